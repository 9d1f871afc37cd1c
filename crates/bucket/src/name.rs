//! What files, areas and versions may be named. They become names of a snapshot's tree.

/// Bytes that the name of an area, or of a file, may have at most.
pub const AREA_NAME_BYTES_MAX: usize = 64;
/// Bytes that the name under which versions are stored may have at most.
pub const VERSION_NAME_BYTES_MAX: usize = 128;
/// Areas that a bucket may have at most.
pub const AREAS_MAX: usize = 512;

/// The file beside the areas of a bucket that describes it, so no area has this name.
const DESCRIPTION: &str = "bucket.json";

/// Why something cannot be named so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It has no bytes.
    #[error("the name is empty")]
    Empty,
    /// It has too many bytes.
    #[error("the name is longer than {0} bytes")]
    Long(usize),
    /// It leads to another folder.
    #[error("the name has a slash or a zero byte, or is `.` or `..`")]
    Path,
    /// It could command the terminal of who lists it, and no cluster has it.
    #[error("the name has a control character")]
    Control,
    /// It is the name of the file that describes a bucket.
    #[error("the name `bucket.json` is reserved")]
    Reserved,
}

/// Checks the name of a file.
pub fn check_file(name: &str) -> Result<(), NameError> {
    check(name, AREA_NAME_BYTES_MAX)
}

/// Checks the name of an area.
pub fn check_area(name: &str) -> Result<(), NameError> {
    check(name, AREA_NAME_BYTES_MAX)?;
    if name == DESCRIPTION { Err(NameError::Reserved) } else { Ok(()) }
}

/// Checks the name under which versions are stored.
pub fn check_version_name(name: &str) -> Result<(), NameError> {
    check(name, VERSION_NAME_BYTES_MAX)
}

fn check(name: &str, bytes_max: usize) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > bytes_max {
        return Err(NameError::Long(bytes_max));
    }
    if name.contains(['/', '\0']) || name == "." || name == ".." {
        return Err(NameError::Path);
    }
    if name.contains(char::is_control) {
        return Err(NameError::Control);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        assert_eq!(check_area("data"), Ok(()));
        assert_eq!(check_area(&"x".repeat(64)), Ok(()));
        assert_eq!(check_area(&"x".repeat(65)), Err(NameError::Long(64)));
        assert_eq!(check_area(""), Err(NameError::Empty));
        for name in [".", "..", "a/b", "/", "a\0b"] {
            assert_eq!(check_area(name), Err(NameError::Path), "{name:?}");
        }
        for name in ["a\nb", "\u{1b}[2J", "\u{9b}"] {
            assert_eq!(check_area(name), Err(NameError::Control), "{name:?}");
        }
        assert_eq!(check_area("bucket.json"), Err(NameError::Reserved));
        assert_eq!(check_file("bucket.json"), Ok(()));
        assert_eq!(check_version_name(&"x".repeat(128)), Ok(()));
    }
}
