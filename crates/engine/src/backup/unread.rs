//! Extended attributes that could not be read, or are too large to be stored.
//!
//! A tree has no place to say so. The next backup would take what is known over, without a word,
//! until the inode changes. So such an entry is stored with another ctime than it has, by a
//! nanosecond: it is no unchanged entry then, and its attributes are asked for again and reported
//! again. It is too little to be seen, and nearer than two changes of an inode are: the content of
//! such a file is not read again because of it.
//!
//! Attributes of root (`trusted.`) are not even listed to a process without a right to them. Its
//! snapshot says so, as a whole: a backup that has the right asks for all attributes again, and one
//! without it asks for no more than before.

use std::borrow::Cow;

use rustix::thread::{CapabilitySet, capabilities};
use strongroom_base::Timestamp;
use strongroom_catalog::tree::ENTRY_BYTES_MAX;
use strongroom_catalog::{Metadata, Snapshot, Xattr};

/// How an entry was in the parent that is still what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// The same entry, with its attributes.
    Same,
    /// The same entry, of which some attributes, or all, were not stored.
    Unread,
}

impl Version {
    /// Whether an entry is the one of the parent; `None` if it may have changed.
    pub fn of(before: &Metadata, now: &Metadata) -> Option<Self> {
        if before.same_version_as(now) {
            return Some(Self::Same);
        }
        let is_unread = before.ctime == other_time(now.ctime);
        let as_marked = || before.same_version_as(&as_stored(now, true));
        (is_unread && as_marked()).then_some(Self::Unread)
    }
}

/// Which attributes of root this backup sees, and its parent saw.
#[derive(Debug, Clone, Copy)]
pub struct Trusted {
    /// Whether they are listed to this thread.
    pub are_listed: bool,
    /// Whether they were not listed when the parent was made, and are now.
    pub are_new: bool,
}

impl Trusted {
    /// By the rights of this thread.
    pub fn of(parent: Option<&Snapshot>) -> Self {
        let may =
            capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
        let are_listed = may && is_of_the_machine();
        let are_new = are_listed && parent.is_some_and(|parent| !parent.lists_trusted);
        Self { are_listed, are_new }
    }
}

/// Whether this process is in the first namespace of users: rights in another one, such as a
/// container's, are none over these attributes. It is not, if that cannot be found out.
fn is_of_the_machine() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// A marked entry has at most this many bytes of attributes: it is small enough to be stored.
const BYTES_MAX: usize = ENTRY_BYTES_MAX / 2;

/// Marks an entry that is stored without some of the attributes that it has. Of too many it keeps none: an
/// entry that is too large to be stored would be marked once more, and that is no mark.
pub fn mark(metadata: &mut Metadata) {
    let bytes = |xattr: &Xattr| xattr.name.len() + xattr.value.len();
    if metadata.xattrs.iter().map(bytes).sum::<usize>() > BYTES_MAX {
        metadata.xattrs.clear();
    }
    metadata.ctime = other_time(metadata.ctime);
}

/// What is stored of an entry.
pub fn as_stored(metadata: &Metadata, is_unread: bool) -> Cow<'_, Metadata> {
    let mut stored = Cow::Borrowed(metadata);
    if is_unread {
        mark(stored.to_mut());
    }
    stored
}

/// Whether an entry had this ctime, in nanoseconds, when it was stored.
pub fn had_ctime(stored: &Metadata, ctime: i128) -> bool {
    let is_it = |time: Timestamp| i128::from(time.0) == ctime;
    is_it(stored.ctime) || is_it(other_time(stored.ctime))
}

fn other_time(time: Timestamp) -> Timestamp {
    Timestamp(time.0 ^ 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_marked_can_be_stored() {
        let large = Xattr { name: b"user.a".to_vec(), value: vec![0; ENTRY_BYTES_MAX] };
        let mut metadata = Metadata { xattrs: vec![large], ..Metadata::default() };
        mark(&mut metadata);
        assert_eq!(metadata.xattrs, []);
    }

    #[test]
    fn what_is_marked_is_the_same_version_and_unread() {
        let now = |ctime| Metadata { inode: 7, ctime: Timestamp(ctime), ..Metadata::default() };
        for ctime in [0, 5, -1, i64::MIN, i64::MAX] {
            let stored = as_stored(&now(ctime), true).into_owned();
            assert_eq!(Version::of(&stored, &now(ctime)), Some(Version::Unread), "{ctime}");
            assert!(had_ctime(&stored, ctime.into()), "{ctime}");
            assert_eq!(Version::of(&now(ctime), &now(ctime)), Some(Version::Same), "{ctime}");
            let other = Metadata { inode: 8, ..now(ctime) };
            assert_eq!(Version::of(&stored, &other), None, "{ctime}");
            let known = Xattr { name: b"user.a".to_vec(), value: Vec::new() };
            let known = Metadata { xattrs: vec![known], ..stored };
            assert_eq!(Version::of(&known, &now(ctime)), Some(Version::Unread), "{ctime}");
        }
        assert_eq!(Version::of(&now(5), &now(6)), None);
    }
}
