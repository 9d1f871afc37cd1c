//! What a snapshot holds, read by its trees and recipes alone: slow, plain, and no part of restore.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use strongroom_arena::CacheLimits;
use strongroom_base::SnapshotId;
use strongroom_catalog::{Entry, EntryKind, Recipe, RecipeReader, TreeReader};
use strongroom_repository::{ChunkReader, Repository, RepositoryError, read_snapshot};
use strongroom_testkit::{Content, Image, Kind, Node};

/// What a snapshot holds at a path, as an image of it.
pub fn read_back(
    repository: &Repository,
    id: SnapshotId,
    path: &Path,
) -> Result<Image, RepositoryError> {
    let snapshot = read_snapshot(repository, id)?;
    let reader = ChunkReader::of_domain(repository, &snapshot.domain, CacheLimits::default())?;
    let mut taker = Taker::new(&reader);
    taker.tree(&snapshot.root, b"")?;
    Ok(taker.image_at(path))
}

/// Every path of a snapshot of which something cannot be read: what verify and restore must name.
pub fn lost_paths(repository: &Repository, id: SnapshotId) -> BTreeSet<PathBuf> {
    salvage(repository, id, Path::new("/")).unwrap().1.into_keys().collect()
}

/// What can be read of a snapshot at a path, and every path of which something cannot, with the
/// reason.
pub fn salvage(
    repository: &Repository,
    id: SnapshotId,
    path: &Path,
) -> Result<(Image, BTreeMap<PathBuf, String>), RepositoryError> {
    let snapshot = read_snapshot(repository, id)?;
    let reader = ChunkReader::of_domain(repository, &snapshot.domain, CacheLimits::default())?;
    let mut taker = Taker { lost: Some(BTreeMap::new()), ..Taker::new(&reader) };
    taker.tree(&snapshot.root, b"")?;
    let lost = taker.lost.take().expect("set above");
    let full = |path: Vec<u8>| Path::new("/").join(OsStr::from_bytes(&path));
    let lost = lost.into_iter().map(|(path, why)| (full(path), why));
    Ok((taker.image_at(path), lost.collect()))
}

struct Taker<'r> {
    reader: &'r ChunkReader,
    image: Image,
    /// The paths of each file that may have several names, by all that is said of it but the name
    /// (docs/format/tree.md).
    files: HashMap<String, Vec<Vec<u8>>>,
    /// If this is set, a lost chunk is recorded and skipped.
    lost: Option<BTreeMap<Vec<u8>, String>>,
}

impl<'r> Taker<'r> {
    fn new(reader: &'r ChunkReader) -> Self {
        Self { reader, image: Image::default(), files: HashMap::new(), lost: None }
    }

    /// What was read at a path, with the names of one file linked to each other.
    fn image_at(mut self, path: &Path) -> Image {
        for mut paths in self.files.into_values().filter(|paths| paths.len() > 1) {
            paths.sort_unstable();
            for path in &paths {
                let node = self.image.nodes.get_mut(path);
                node.expect("it was put there with its path").linked_to = Some(paths[0].clone());
            }
        }
        let below = path.strip_prefix("/").unwrap_or(path);
        self.image.below(below.as_os_str().as_bytes())
    }

    fn tree(&mut self, tree: &Recipe, above: &[u8]) -> Result<(), RepositoryError> {
        let mut entries = TreeReader::new(tree, self.reader);
        loop {
            let entry = match entries.next_entry().map_err(RepositoryError::from) {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(()),
                Err(error) => return self.lose(above, error),
            };
            let separator: &[u8] = if above.is_empty() { b"" } else { b"/" };
            let path = [above, separator, &entry.name].concat();
            if let Err(error) = self.entry(&entry, path.clone()) {
                self.lose(&path, error)?;
            }
        }
    }

    fn lose(&mut self, path: &[u8], error: RepositoryError) -> Result<(), RepositoryError> {
        match &mut self.lost {
            Some(lost) if error.is_damage() => {
                lost.insert(path.to_vec(), error.to_string());
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn entry(&mut self, entry: &Entry, path: Vec<u8>) -> Result<(), RepositoryError> {
        let metadata = &entry.metadata;
        let kind = match &entry.kind {
            EntryKind::File { content } => Kind::File(self.content(content)?),
            EntryKind::Directory { tree, .. } => {
                self.tree(tree, &path)?;
                Kind::Directory
            }
            EntryKind::Symlink { target } => Kind::Symlink(target.clone()),
            EntryKind::Fifo => Kind::Fifo,
            EntryKind::Socket => Kind::Socket,
            EntryKind::CharDevice(number) => {
                Kind::CharDevice(rustix::fs::makedev(number.major, number.minor))
            }
            EntryKind::BlockDevice(number) => {
                Kind::BlockDevice(rustix::fs::makedev(number.major, number.minor))
            }
        };
        if !entry.is_directory() && metadata.links > 1 {
            let nameless = Entry { name: Vec::new(), ..entry.clone() };
            self.files.entry(format!("{nameless:?}")).or_default().push(path.clone());
        }
        let xattrs = metadata.xattrs.iter().map(|x| (x.name.clone(), x.value.clone())).collect();
        let node = Node {
            kind,
            mode: u32::from(metadata.mode),
            owner: (metadata.uid, metadata.gid),
            mtime: i128::from(metadata.mtime.0),
            xattrs,
            linked_to: None,
        };
        self.image.nodes.insert(path, node);
        Ok(())
    }

    fn content(&mut self, recipe: &Recipe) -> Result<Content, RepositoryError> {
        let mut content = Content::default();
        let mut chunks = RecipeReader::new(recipe, self.reader);
        while let Some((offset, chunk)) = chunks.next_chunk()? {
            assert_eq!(offset, content.bytes, "chunks follow each other");
            if chunk.is_hole() {
                content.push_hole(chunk.stream_bytes);
            } else {
                let bytes = self.reader.read_data(&chunk)?;
                assert_eq!(bytes.len() as u64, chunk.stream_bytes, "a chunk is as long as said");
                content.push(&bytes);
            }
        }
        Ok(content)
    }
}
