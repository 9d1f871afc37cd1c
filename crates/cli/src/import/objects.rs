//! The entries of `restic find --json`: one JSON document of any length without line ends, so it is
//! cut into its entries while it is read.

use std::io::Read;

/// How much is read at once.
const READ_BYTES: usize = 64 * 1024;
/// An entry is an object in the list of a snapshot's entries, in the list of snapshots: this is
/// how many brackets enclose it, its own included.
const DEPTH: usize = 4;

/// Where in the document the reader is.
#[derive(Debug, Default)]
struct Objects {
    /// How many brackets are open.
    depth: usize,
    /// How many were open at the most.
    deepest: usize,
    in_string: bool,
    after_backslash: bool,
    /// What there is of the entry.
    text: Vec<u8>,
}

/// Gives each entry, and returns whether the document has an end. What is between the entries does
/// not matter: restic writes there which trees it could not load.
pub fn each_object<E>(
    mut document: impl Read,
    each: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<bool, E>
where
    E: From<std::io::Error>,
{
    let mut objects = Objects::default();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = match document.read(&mut buffer) {
            Ok(0) => return Ok(objects.deepest > 0 && objects.depth == 0),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        for byte in &buffer[..count] {
            if objects.take(*byte) {
                each(&objects.text)?;
                objects.text.clear();
            }
        }
    }
}

impl Objects {
    /// Whether the byte ends an entry.
    fn take(&mut self, byte: u8) -> bool {
        let was_inside = self.depth >= DEPTH;
        if self.in_string {
            self.in_string = self.after_backslash || byte != b'"';
            self.after_backslash = !self.after_backslash && byte == b'\\';
        } else {
            match byte {
                b'"' => self.in_string = self.depth > 0,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        self.deepest = self.deepest.max(self.depth);
        let is_inside = self.depth >= DEPTH;
        if was_inside || is_inside {
            self.text.push(byte);
        }
        was_inside && !is_inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(document: &[u8]) -> (Vec<String>, bool) {
        let mut all = Vec::new();
        let is_whole = each_object::<std::io::Error>(document, &mut |text| {
            all.push(String::from_utf8(text.to_vec()).unwrap());
            Ok(())
        });
        (all, is_whole.unwrap())
    }

    #[test]
    fn a_document_is_cut_into_its_entries() {
        // As restic writes it, damage included.
        let document = br#"[{"matches":[{"path":"/a","uid":0},{"path":"/}]\"{\\","x":{"y":[1]}}Unable to load tree f0
 ... which belongs to snapshot 12
],"hits":2,"snapshot":"12"}]
"#;
        let (all, is_whole) = objects(document);
        assert_eq!(all, [r#"{"path":"/a","uid":0}"#, r#"{"path":"/}]\"{\\","x":{"y":[1]}}"#]);
        assert!(is_whole);
        for cut in 1..document.len() - 2 {
            assert!(!objects(&document[..cut]).1, "{cut}");
        }
        assert_eq!(objects(b"Unable to load tree f0\n[]\n"), (vec![], true));
        assert_eq!(objects(b""), (vec![], false));
        assert_eq!(objects(b"]}]}{"), (vec![], false));
    }
}
