//! Access control lists as Borg writes them, as text, made into the attribute that Linux keeps.

/// The attribute's first number.
const VERSION: u32 = 2;
/// The id of an entry that names no user and no group.
const NO_ID: u32 = u32::MAX;

/// Which of its two lists a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Who may use it.
    Access,
    /// The rights with which a file that is made in a directory begins.
    Default,
}

impl List {
    /// The attribute that holds it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Access => "system.posix_acl_access",
            Self::Default => "system.posix_acl_default",
        }
    }
}

/// The value of a list's attribute. None if it is empty, or one of access that has no more than the
/// mode says.
pub fn attribute(list: List, text: &str) -> Result<Option<Vec<u8>>, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let entries = lines.filter(|line| !line.is_empty()).map(entry);
    let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
    // In the order that the kernel demands.
    entries.sort_unstable();
    if entries.is_empty() || (list == List::Access && entries.len() <= 3) {
        return Ok(None);
    }
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, rights) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(rights.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    Ok(Some(value))
}

/// `user:NAME:rwx:NUMBER`, or `user:NUMBER:rwx`.
fn entry(line: &str) -> Result<(u16, u32, u16), String> {
    let bad = || format!("\"{line}\" is no entry of an access control list");
    let fields: Vec<&str> = line.split(':').collect();
    let [kind, name, rights] = fields[..3.min(fields.len())] else { return Err(bad()) };
    let tag = match (kind, name.is_empty()) {
        ("user", true) => 1,
        ("user", false) => 2,
        ("group", true) => 4,
        ("group", false) => 8,
        ("mask", true) => 16,
        ("other", true) => 32,
        _ => return Err(bad()),
    };
    let id = match name.is_empty() {
        true => NO_ID,
        false => fields.get(3).unwrap_or(&name).parse().map_err(|_| bad())?,
    };
    let mut bits = 0;
    for (place, letter) in "rwx".chars().enumerate() {
        match rights.chars().nth(place) {
            Some(found) if found == letter => bits |= 4 >> place,
            Some('-') => {}
            _ => return Err(bad()),
        }
    }
    Ok((tag, id, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_becomes_what_the_kernel_keeps() {
        let text = "user::rwx\nuser:x:r--:1234\ngroup::r-x\nmask::r-x\nother::r-x";
        // As `getfattr -e hex` shows it.
        let value = "0200000001000700ffffffff02000400d204000004000500ffffffff10000500ffffffff\
                     20000500ffffffff";
        let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let attribute = |text| attribute(List::Access, text);
        let made: String = attribute(text).unwrap().map(hex).unwrap();
        assert_eq!(made, value);
        let shuffled = "other::r-x\nmask::r-x\nuser:1234:r-- # a comment\ngroup::r-x\nuser::rwx\n";
        assert_eq!(attribute(shuffled), attribute(text));
        let base = "user::rwx\ngroup::r-x\nother::---";
        assert_eq!(attribute(base), Ok(None));
        // No mode says this of what is made in a directory.
        let made: String = super::attribute(List::Default, base).unwrap().map(hex).unwrap();
        assert_eq!(made, "0200000001000700ffffffff04000500ffffffff20000000ffffffff");
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        for text in ["user", "user:x:rwx", "user::rw", "user::abc", "owner::rwx", "mask:1:rwx"] {
            assert!(attribute(List::Default, text).is_err(), "{text}");
        }
    }
}
