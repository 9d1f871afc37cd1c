//! Which files of which snapshots depend on what is lost.
//!
//! Snapshots share most of their trees; a tree that was found whole once is not walked again. One
//! with a loss is walked again, because the loss must be named in every snapshot that shows it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use strongroom_base::{Cancel, Monitor, SnapshotId};
use strongroom_catalog::recipe::read_node;
use strongroom_catalog::{ChunkRef, Entry, EntryKind, Recipe, Snapshot, TreeReader};
use strongroom_repository::{ChunkReader, RepositoryError};

/// A file, or a directory's list of names, of which something is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affected {
    /// In this snapshot.
    pub snapshot: SnapshotId,
    /// Where.
    pub path: PathBuf,
    /// Bytes of its content that are lost, as far as known.
    pub lost_bytes: u64,
    /// True for a directory: any part of it that is not named elsewhere is lost.
    pub is_directory: bool,
}

/// Whether a chunk can be read, from where its recipe says or from elsewhere.
pub type IsGood<'g> = dyn FnMut(&ChunkRef) -> Result<bool, RepositoryError> + 'g;

/// What an audit counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Audited {
    /// Snapshots walked.
    pub snapshots: u64,
    /// Trees read, each once if it is whole.
    pub trees: u64,
    /// Chunks of content checked.
    pub chunks: u64,
}

/// A directory that is being walked.
struct Level<'r> {
    entries: TreeReader<'r, ChunkReader>,
    tree: Recipe,
    name: Vec<u8>,
    whole: bool,
}

/// Names everything that is affected, in all these snapshots.
pub fn audit(
    reader: &ChunkReader,
    snapshots: &[Snapshot],
    is_good: &mut IsGood<'_>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<(Vec<Affected>, Audited), RepositoryError> {
    let mut auditor = Auditor {
        reader,
        is_good,
        whole: HashSet::new(),
        affected: Vec::new(),
        audited: Audited::default(),
    };
    for snapshot in snapshots {
        monitor.detail(&format!("snapshot {}", snapshot.id.short()));
        auditor.snapshot(snapshot, cancel)?;
    }
    Ok((auditor.affected, auditor.audited))
}

struct Auditor<'r, 'g> {
    reader: &'r ChunkReader,
    is_good: &'r mut IsGood<'g>,
    /// Trees known to be whole.
    whole: HashSet<[u8; 32]>,
    affected: Vec<Affected>,
    audited: Audited,
}

impl<'r> Auditor<'r, '_> {
    fn snapshot(&mut self, snapshot: &Snapshot, cancel: &Cancel) -> Result<(), RepositoryError> {
        self.audited.snapshots += 1;
        let mut levels = Vec::new();
        self.descend(&snapshot.root, Vec::new(), &mut levels);
        while let Some(level) = levels.last_mut() {
            cancel.check()?;
            match level.entries.next_entry() {
                Ok(Some(entry)) => self.entry(snapshot, entry, &mut levels)?,
                Ok(None) => {
                    let level = levels.pop().expect("just looked at");
                    if level.whole {
                        self.whole.insert(level.tree.digest());
                    } else if let Some(above) = levels.last_mut() {
                        above.whole = false;
                    }
                }
                Err(error) => {
                    let error = RepositoryError::from(error);
                    if !error.is_damage() {
                        return Err(error);
                    }
                    let path = path_of(&levels, None);
                    self.affected.push(Affected {
                        snapshot: snapshot.id,
                        path,
                        lost_bytes: 0,
                        is_directory: true,
                    });
                    levels.pop();
                    if let Some(above) = levels.last_mut() {
                        above.whole = false;
                    }
                }
            }
        }
        Ok(())
    }

    fn descend(&mut self, tree: &Recipe, name: Vec<u8>, levels: &mut Vec<Level<'r>>) {
        self.audited.trees += 1;
        let entries = TreeReader::new(tree, self.reader);
        levels.push(Level { entries, tree: tree.clone(), name, whole: true });
    }

    fn entry(
        &mut self,
        snapshot: &Snapshot,
        entry: Entry,
        levels: &mut Vec<Level<'r>>,
    ) -> Result<(), RepositoryError> {
        match &entry.kind {
            EntryKind::Directory { tree, .. } if !self.whole.contains(&tree.digest()) => {
                self.descend(tree, entry.name.clone(), levels);
            }
            EntryKind::File { content } => {
                let lost_bytes = self.lost_bytes(content)?;
                if let Some(lost_bytes) = lost_bytes {
                    let path = path_of(levels, Some(&entry.name));
                    let snapshot = snapshot.id;
                    let affected = Affected { snapshot, path, lost_bytes, is_directory: false };
                    self.affected.push(affected);
                    levels.last_mut().expect("a file is in a directory").whole = false;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// How many bytes of a file are lost; `None` if it is whole.
    fn lost_bytes(&mut self, content: &Recipe) -> Result<Option<u64>, RepositoryError> {
        let mut rest: Vec<(u8, ChunkRef)> =
            content.refs.iter().map(|chunk| (content.depth, *chunk)).collect();
        let (mut lost, mut any) = (0, false);
        while let Some((depth, chunk)) = rest.pop() {
            if chunk.is_hole() {
                continue;
            }
            if depth == 0 {
                self.audited.chunks += 1;
                if !(self.is_good)(&chunk)? {
                    lost += chunk.stream_bytes;
                    any = true;
                }
                continue;
            }
            match read_node(&chunk, self.reader).map_err(RepositoryError::from) {
                Ok(children) => rest.extend(children.into_iter().map(|child| (depth - 1, child))),
                Err(error) if error.is_damage() => {
                    lost += chunk.stream_bytes;
                    any = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(any.then_some(lost))
    }
}

fn path_of(levels: &[Level<'_>], name: Option<&[u8]>) -> PathBuf {
    let names = levels.iter().map(|level| level.name.as_slice()).chain(name);
    let mut path = PathBuf::from("/");
    names.filter(|name| !name.is_empty()).for_each(|name| path.push(OsStr::from_bytes(name)));
    path
}
