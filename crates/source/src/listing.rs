//! The names in a directory, sorted bytewise.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

/// The names of one directory, `.` and `..` left out, in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Each name with its NUL.
    bytes: Vec<u8>,
    /// Sorted by name.
    names: Vec<Listed>,
}

/// A name of a listing.
#[derive(Debug, Clone, Copy)]
struct Listed {
    /// The name's first bytes, as a number that orders as they do: most names differ in them.
    prefix: u64,
    /// Where it begins and where its NUL ends.
    span: (usize, usize),
    /// The listing says that it is a directory. Not every file system does.
    is_directory: bool,
}

/// How much of a directory is read in one call.
const READ_BYTES: usize = 64 * 1024;

impl Listing {
    /// Lists an open directory from its current position. An error comes with the names found
    /// before.
    ///
    /// `buffer` is scratch space, kept by the caller so that it is not made for each directory.
    pub(crate) fn read(directory: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> (Self, Option<Errno>) {
        buffer.clear();
        buffer.reserve(READ_BYTES);
        let mut listing = Self::default();
        let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
        let error = loop {
            match entries.next() {
                None => break None,
                Some(Err(Errno::INTR)) => {}
                Some(Err(error)) => break Some(error),
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    if name != c"." && name != c".." {
                        listing.push(name, entry.file_type() == FileType::Directory);
                    }
                }
            }
        };
        listing.sort();
        (listing, error)
    }

    /// These names and no others.
    pub(crate) fn of_names<'a>(names: impl Iterator<Item = &'a CStr>) -> Self {
        let mut listing = Self::default();
        names.for_each(|name| listing.push(name, false));
        listing.sort();
        listing
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn name(&self, place: usize) -> &CStr {
        CStr::from_bytes_with_nul(self.text(&self.names[place])).unwrap_or_default()
    }

    /// True if the listing says that the name is a directory.
    pub(crate) fn is_directory(&self, place: usize) -> bool {
        self.names[place].is_directory
    }

    pub(crate) fn contains(&self, name: &CStr) -> bool {
        let wanted = name.to_bytes_with_nul();
        self.names.binary_search_by(|listed| self.text(listed).cmp(wanted)).is_ok()
    }

    fn text(&self, listed: &Listed) -> &[u8] {
        &self.bytes[listed.span.0..listed.span.1]
    }

    #[expect(clippy::big_endian_bytes, reason = "so the number orders as the bytes do")]
    fn push(&mut self, name: &CStr, is_directory: bool) {
        let (begin, name) = (self.bytes.len(), name.to_bytes_with_nul());
        self.bytes.extend_from_slice(name);
        let mut prefix = [0; 8];
        let bytes = name.len().min(prefix.len());
        prefix[..bytes].copy_from_slice(&name[..bytes]);
        let (prefix, span) = (u64::from_be_bytes(prefix), (begin, self.bytes.len()));
        self.names.push(Listed { prefix, span, is_directory });
    }

    /// The NUL that ends each name is smaller than all its bytes, so it may be compared too. A name
    /// that occurs twice because the directory changes meanwhile counts once.
    fn sort(&mut self) {
        let bytes = &self.bytes;
        let text = |listed: &Listed| &bytes[listed.span.0..listed.span.1];
        self.names.sort_unstable_by(|left, right| {
            left.prefix.cmp(&right.prefix).then_with(|| text(left).cmp(text(right)))
        });
        self.names.dedup_by(|left, right| text(left) == text(right));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_bytewise() {
        let names = [c"b", c"a.", c"a", c"a\xff", c"B", c"a b", c"b", c"12345678z", c"12345678"];
        let listing = Listing::of_names(names.into_iter());
        let sorted: Vec<_> = (0..listing.len()).map(|place| listing.name(place)).collect();
        assert_eq!(sorted, [c"12345678", c"12345678z", c"B", c"a", c"a b", c"a.", c"a\xff", c"b"]);
        assert!(listing.contains(c"a\xff"));
        assert!(!listing.contains(c"a\xfe"));
    }
}
