//! The names in a directory, sorted bytewise.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::RawDir;
use rustix::io::Errno;

/// The names of one directory, `.` and `..` left out, in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Each name with its NUL.
    bytes: Vec<u8>,
    /// Where each name begins and where its NUL ends, sorted by name.
    spans: Vec<(usize, usize)>,
}

/// What of a directory is read in one call.
const READ_BYTES: usize = 64 * 1024;

impl Listing {
    /// Lists an open directory from where it stands. With an error come the names found before.
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
                        listing.push(name);
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
        names.for_each(|name| listing.push(name));
        listing.sort();
        listing
    }

    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn name(&self, place: usize) -> &CStr {
        let (begin, end) = self.spans[place];
        CStr::from_bytes_until_nul(&self.bytes[begin..end]).unwrap_or_default()
    }

    pub(crate) fn contains(&self, name: &CStr) -> bool {
        let wanted = name.to_bytes_with_nul();
        self.spans.binary_search_by(|&(begin, end)| self.bytes[begin..end].cmp(wanted)).is_ok()
    }

    fn push(&mut self, name: &CStr) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(name.to_bytes_with_nul());
        self.spans.push((begin, self.bytes.len()));
    }

    /// The NUL that ends each name is smaller than all its bytes, so it may take part. A name
    /// told twice by a directory that changes meanwhile counts once.
    fn sort(&mut self) {
        let bytes = &self.bytes;
        let text = |span: &(usize, usize)| &bytes[span.0..span.1];
        self.spans.sort_unstable_by(|left, right| text(left).cmp(text(right)));
        self.spans.dedup_by(|left, right| text(left) == text(right));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_bytewise() {
        let names = [c"b", c"a.", c"a", c"a\xff", c"B", c"a b", c"b"];
        let listing = Listing::of_names(names.into_iter());
        let sorted: Vec<_> = (0..listing.len()).map(|place| listing.name(place)).collect();
        assert_eq!(sorted, [c"B", c"a", c"a b", c"a.", c"a\xff", c"b"]);
        assert!(listing.contains(c"a\xff"));
        assert!(!listing.contains(c"a\xfe"));
    }
}
