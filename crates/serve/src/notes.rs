//! Notes of clients that agree about a name (design 0023): what a room takes of them.
//!
//! A room creates exclusively, but a repository that was made elsewhere may say that its users agree. A
//! note is about an object, so a visitor may do with it what it may do with that.

use strongroom_arena::envelope;
use strongroom_backend::{ObjectName, Soundness, judge_note};

/// How the names of the folders of notes begin; two digits follow.
const FOLDERS: &str = "agreed-";
/// How notes name the folder of an object at the top.
const TOP: &str = "top";

/// The folder of the object that a note or a draft is about; none if the name is of neither.
pub(crate) fn folder_in(name: &ObjectName) -> Option<&str> {
    let digits = name.folder().strip_prefix(FOLDERS)?;
    let is_spread = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Of a name, these bytes do not matter.
    judge_note(name, &[]).filter(|_| is_spread)?;
    let (folder, _) = name.file().split_once('.')?;
    Some(if folder == TOP { "" } else { folder })
}

/// Whether these are the bytes of a whole note, or of a draft of a whole object.
pub(crate) fn is_whole(name: &ObjectName, bytes: &[u8]) -> bool {
    let is_object = || envelope::inspect(bytes).is_ok_and(|found| found.is_whole());
    judge_note(name, bytes) == Some(Soundness::Whole)
        && (!name.file().ends_with(".draft") || is_object())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_about_the_folder_that_it_names() {
        let of = |name: &str| {
            let name = ObjectName::parse(name).unwrap();
            folder_in(&name).map(str::to_owned)
        };
        let round = "00000001-0123456789abcdef";
        assert_eq!(of(&format!("agreed-07/top.config.{round}.1")).as_deref(), Some(""));
        assert_eq!(
            of(&format!("agreed-ff/collections.1.plan.{round}.2")).as_deref(),
            Some("collections")
        );
        assert_eq!(of("agreed-ff/arenas.a.1.0123.draft").as_deref(), Some("arenas"));
        for name in
            ["agreed-07/x", "agreed-0/top.a.1", "agreed-zz/top.a.1", "arenas/top.a.1", "top.a.1"]
        {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
