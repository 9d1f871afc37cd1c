//! What a snapshot holds, read by its trees and recipes alone: slow, plain, and no part of restore.

use std::collections::{BTreeSet, HashMap};
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
    let reader = ChunkReader::new(repository, CacheLimits::default())?;
    let mut taker =
        Taker { reader: &reader, image: Image::default(), inodes: HashMap::new(), lost: None };
    taker.tree(&snapshot.root, b"")?;
    for mut paths in taker.inodes.into_values().filter(|paths| paths.len() > 1) {
        paths.sort_unstable();
        for path in &paths {
            let node = taker.image.nodes.get_mut(path).expect("it was put there with its inode");
            node.linked_to = Some(paths[0].clone());
        }
    }
    let below = path.strip_prefix("/").unwrap_or(path);
    Ok(taker.image.below(below.as_os_str().as_bytes()))
}

/// Every path of a snapshot of which something cannot be read: what verify and restore must name.
pub fn lost_paths(repository: &Repository, id: SnapshotId) -> BTreeSet<PathBuf> {
    let snapshot = read_snapshot(repository, id).unwrap();
    let reader = ChunkReader::new(repository, CacheLimits::default()).unwrap();
    let mut taker = Taker {
        reader: &reader,
        image: Image::default(),
        inodes: HashMap::new(),
        lost: Some(BTreeSet::new()),
    };
    taker.tree(&snapshot.root, b"").unwrap();
    let lost = taker.lost.expect("set above");
    lost.iter().map(|path| Path::new("/").join(OsStr::from_bytes(path))).collect()
}

struct Taker<'r> {
    reader: &'r ChunkReader,
    image: Image,
    inodes: HashMap<(u64, u64), Vec<Vec<u8>>>,
    /// Where this is kept, what is lost is noted and passed over.
    lost: Option<BTreeSet<Vec<u8>>>,
}

impl Taker<'_> {
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
                lost.insert(path.to_vec());
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
        if !entry.is_directory() {
            let inode = (metadata.device, metadata.inode);
            self.inodes.entry(inode).or_default().push(path.clone());
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
                let bytes = self.reader.read(&chunk)?;
                assert_eq!(bytes.len() as u64, chunk.stream_bytes, "a chunk is as long as said");
                content.push(&bytes);
            }
        }
        Ok(content)
    }
}
