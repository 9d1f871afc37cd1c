//! Whether a snapshot that was stored again is the one that it replaces.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use strongroom_base::Cancel;
use strongroom_catalog::{ChunkRef, Entry, EntryKind, Recipe, RecipeReader, Snapshot, TreeReader};
use strongroom_repository::{ChunkReader, Repository, RepositoryError};

/// Checks that two snapshots have the same entries and the same chunks in them, and that each chunk
/// is where the second one says.
///
/// # Errors
///
/// [`RepositoryError::Miscopied`] if they differ: then the first must not be forgotten.
pub fn reckon_same(
    repository: &Repository,
    reader: &ChunkReader,
    first: &Snapshot,
    second: &Snapshot,
    cancel: &Cancel,
) -> Result<(), RepositoryError> {
    let comparison = Comparison { repository, reader, cancel };
    let mut rest = vec![(Vec::new(), first.root.clone(), second.root.clone())];
    while let Some((path, one, other)) = rest.pop() {
        if let Err(difference) = comparison.trees(&path, &one, &other, &mut rest)? {
            let path = PathBuf::from(OsStr::from_bytes(&difference));
            return Err(RepositoryError::Miscopied { snapshot: first.id, path });
        }
    }
    Ok(())
}

/// Two directories that are still to be compared, and their path.
type Pair = (Vec<u8>, Recipe, Recipe);

struct Comparison<'c> {
    repository: &'c Repository,
    reader: &'c ChunkReader,
    cancel: &'c Cancel,
}

impl Comparison<'_> {
    /// Compares two directories, and notes those in them; or says where they differ.
    fn trees(
        &self,
        path: &[u8],
        one: &Recipe,
        other: &Recipe,
        rest: &mut Vec<Pair>,
    ) -> Result<Result<(), Vec<u8>>, RepositoryError> {
        let mut ones = TreeReader::new(one, self.reader);
        let mut others = TreeReader::new(other, self.reader);
        loop {
            self.cancel.check()?;
            let (is_one, is_other) = (ones.advance()?, others.advance()?);
            match (is_one, is_other) {
                (false, false) => return Ok(Ok(())),
                (true, true) => {}
                _ => return Ok(Err(path.to_vec())),
            }
            let (one, other) = (ones.entry(), others.entry());
            let below = [path, b"/", &one.name].concat();
            let is_same = match (&one.kind, &other.kind) {
                (
                    EntryKind::Directory { tree, partial },
                    EntryKind::Directory { tree: of_other, partial: is_partial },
                ) => {
                    rest.push((below.clone(), tree.clone(), of_other.clone()));
                    partial == is_partial
                }
                (EntryKind::File { content }, EntryKind::File { content: of_other }) => {
                    self.are_streams_same(content, of_other)?
                }
                (kind, of_other) => kind == of_other,
            };
            if !is_same || !is_said_the_same(one, other) {
                return Ok(Err(below));
            }
        }
    }

    fn are_streams_same(&self, one: &Recipe, other: &Recipe) -> Result<bool, RepositoryError> {
        if one == other {
            return Ok(true);
        }
        let mut ones = RecipeReader::new(one, self.reader);
        let mut others = RecipeReader::new(other, self.reader);
        loop {
            match (ones.next_chunk()?, others.next_chunk()?) {
                (None, None) => return Ok(true),
                (Some((at, chunk)), Some((at_other, of_other))) => {
                    if at != at_other || !self.is_same(&chunk, &of_other)? {
                        return Ok(false);
                    }
                }
                _ => return Ok(false),
            }
        }
    }

    /// Whether two references are to the same bytes, and those are in the place of the second.
    fn is_same(&self, one: &ChunkRef, other: &ChunkRef) -> Result<bool, RepositoryError> {
        if one.stream_bytes != other.stream_bytes || one.is_hole() != other.is_hole() {
            return Ok(false);
        }
        if one == other || one.is_hole() {
            return Ok(true);
        }
        let expected = match self.repository.keys.write.naming.is_by_value() {
            true => self.reader.in_summary(one.location)?,
            false => one.fingerprint,
        };
        Ok(self.reader.in_summary(other.location)? == expected)
    }
}

/// Whether two entries agree in everything but what they hold.
fn is_said_the_same(one: &Entry, other: &Entry) -> bool {
    one.name == other.name && one.metadata == other.metadata
}
