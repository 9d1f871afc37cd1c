//! What a folder holds, in the two forms in which servers of FTP say it.

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) is_folder: bool,
    /// Its size, if it is a file.
    pub(super) bytes: Option<u64>,
}

/// A line of `MLSD` (RFC 3659): `type=file;size=12; name`. None for what is not an entry.
pub(super) fn from_facts(line: &str) -> Option<Entry> {
    let (facts, name) = line.split_once(' ')?;
    let mut entry = Entry { name: name.to_owned(), is_folder: false, bytes: None };
    for fact in facts.split(';') {
        let (key, value) = fact.split_once('=').unwrap_or((fact, ""));
        match (key.to_ascii_lowercase().as_str(), value.to_ascii_lowercase().as_str()) {
            ("type", "cdir" | "pdir") => return None,
            ("type", "dir") => entry.is_folder = true,
            ("size", size) => entry.bytes = size.parse().ok(),
            _ => {}
        }
    }
    if entry.is_folder {
        entry.bytes = None;
    }
    Some(entry)
}

/// A line of `LIST`, as `ls -l` prints it: `-rw-r--r-- 1 0 0 12 Nov 24 07:00 name`. None for what
/// is not an entry. Names with spaces come back only in part; no object has one.
pub(super) fn from_long_line(line: &str) -> Option<Entry> {
    let mut words = line.split_whitespace();
    let mode = words.next()?;
    if mode.len() < 10 {
        return None;
    }
    let size = words.nth(3)?;
    let name = words.nth(3)?;
    if name == "." || name == ".." {
        return None;
    }
    let bytes = if mode.starts_with('-') { Some(size.parse().ok()?) } else { None };
    Some(Entry { name: name.to_owned(), is_folder: mode.starts_with('d'), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let file = Entry { name: "a.0".to_owned(), is_folder: false, bytes: Some(120) };
        let folder = Entry { name: "keys".to_owned(), is_folder: true, bytes: None };
        assert_eq!(from_facts("type=file;size=120;modify=2026; a.0"), Some(file.clone()));
        assert_eq!(from_facts("Type=dir;Size=4096; keys"), Some(folder.clone()));
        assert_eq!(from_facts("type=cdir; ."), None);
        let line = "-rw-------    1 0        0             120 Nov 24 07:00 a.0";
        assert_eq!(from_long_line(line), Some(file));
        let line = "drwxr-xr-x    2 0        0            4096 Nov 24 07:00 keys";
        assert_eq!(from_long_line(line), Some(folder));
        for line in ["total 12", "", "x", "-rw------- 1 0 0 big Nov 24 07:00 a"] {
            assert_eq!(from_long_line(line), None, "{line}");
        }
    }
}
