//! What a snapshot must give back: a tree of files, or regions of memory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use strongroom_base::SizeLimits;
use strongroom_source::memory::mark::{Detector, Marker, PAGE_BYTES};
use strongroom_testkit::{Content, Image, Kind, Node};

/// Where marks are in a snapshot.
const MARKS: &str = "/.strongroom-marks";
/// What marks begin with.
const MARKS_HEAD_BYTES: usize = 32;

/// The bytes of regions, by their paths.
pub type Regions = BTreeMap<PathBuf, Vec<u8>>;

/// What a snapshot must give back.
#[derive(Clone)]
pub enum Held {
    /// A tree.
    Tree(Image, Names),
    /// Regions of memory, and their marks.
    Regions(Regions),
}

/// Whether all names of a file are one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// They are.
    Joined,
    /// There were more such files than the backup remembered.
    PerhapsApart,
}

impl Names {
    /// What a backup with these limits promises.
    pub fn within(limits: &SizeLimits) -> Self {
        match limits.linked_max < SizeLimits::DEFAULT.linked_max {
            true => Self::PerhapsApart,
            false => Self::Joined,
        }
    }

    fn assert_same(self, image: &Image, kept: &Image, what: &str) {
        if self == Self::Joined || image.nodes.len() != kept.nodes.len() {
            return image.assert_same(kept, what);
        }
        for (path, node) in &kept.nodes {
            let Some(expected) = image.nodes.get(path) else {
                return image.assert_same(kept, what);
            };
            // Names that are one file were one.
            let is_right = match &node.linked_to {
                None => true,
                Some(first) => {
                    let first = image.nodes.get(first);
                    expected.linked_to.is_some()
                        && first.is_some_and(|first| first.linked_to == expected.linked_to)
                }
            };
            if !is_right || without_links(node) != without_links(expected) {
                return image.assert_same(kept, what);
            }
        }
    }
}

impl Held {
    /// The same, stored once more with these limits.
    pub fn stored_within(mut self, limits: &SizeLimits) -> Self {
        if let Self::Tree(_, names) = &mut self
            && Names::within(limits) == Names::PerhapsApart
        {
            *names = Names::PerhapsApart;
        }
        self
    }

    /// The path in the snapshot from which it is read.
    pub fn top(&self, tree: &Path) -> PathBuf {
        match self {
            Self::Tree(..) => tree.to_owned(),
            Self::Regions(_) => PathBuf::from("/"),
        }
    }

    /// The regions, if it is of memory.
    pub fn regions(&self) -> Option<&Regions> {
        match self {
            Self::Tree(..) => None,
            Self::Regions(regions) => Some(regions),
        }
    }

    /// What is kept is right; what is not kept is lost, or below a directory of which names are lost.
    pub fn check_kept(
        &self,
        kept: &Image,
        lost: &BTreeMap<PathBuf, String>,
        tree: &Path,
        what: &str,
    ) {
        let paths: Vec<PathBuf> = match self {
            Self::Tree(image, names) if lost.is_empty() => {
                return names.assert_same(image, kept, what);
            }
            Self::Tree(image, _) => {
                for (path, node) in &kept.nodes {
                    let expected = image.nodes.get(path);
                    let expected = expected.unwrap_or_else(|| panic!("{what}: {path:?} is new"));
                    assert_eq!(without_links(node), without_links(expected), "{what}: {path:?}");
                }
                let missing = image.nodes.keys().filter(|path| !kept.nodes.contains_key(*path));
                missing.map(|path| tree.join(OsStr::from_bytes(path))).collect()
            }
            Self::Regions(regions) => {
                check_regions(regions, kept, what);
                let is_missing = |path: &PathBuf| file_at(kept, path).is_none();
                let marks = regions.keys().map(|path| marks_of(path));
                regions.keys().cloned().chain(marks).filter(is_missing).collect()
            }
        };
        for path in paths {
            let is_named = path.ancestors().any(|above| lost.contains_key(above));
            assert!(is_named, "{what}: {} is not there", path.display());
        }
    }

    /// A restore of it has everything, or at least all that is expected.
    pub fn check_restored(&self, restored: &Image, is_partial: bool, what: &str) {
        match self {
            Self::Tree(image, _) if is_partial => {
                assert!(is_part_of(image, restored), "{what}: a part is missing");
            }
            Self::Tree(image, names) => names.assert_same(image, restored, what),
            Self::Regions(regions) => {
                let mut restored = restored.clone();
                // Of other buckets, what an earlier restore left is still there.
                restored.nodes.retain(|path, _| is_of(regions, path));
                self.check_kept(&restored, &BTreeMap::new(), Path::new("/"), what);
            }
        }
    }
}

/// Whether a path is that of a region or of its marks.
fn is_of(regions: &Regions, path: &[u8]) -> bool {
    let path = Path::new("/").join(OsStr::from_bytes(path));
    regions.keys().any(|region| path == *region || path == marks_of(region))
}

/// Every file is a region with its bytes, or the marks of one.
fn check_regions(regions: &Regions, kept: &Image, what: &str) {
    for (path, node) in &kept.nodes {
        let path = Path::new("/").join(OsStr::from_bytes(path));
        let Kind::File(content) = &node.kind else {
            assert_eq!(node.kind, Kind::Directory, "{what}: {}", path.display());
            continue;
        };
        let marked = path.strip_prefix(MARKS).ok().map(|below| Path::new("/").join(below));
        let bytes = regions.get(marked.as_ref().unwrap_or(&path));
        let bytes = bytes.unwrap_or_else(|| panic!("{what}: {} is new", path.display()));
        let found = bytes_of(content);
        let is_right = match marked {
            Some(_) => found == marks(bytes, &found),
            None => found == *bytes,
        };
        assert!(is_right, "{what}: {} is not what was stored", path.display());
    }
}

/// The marks of a region, with the seed of those that were found.
fn marks(region: &[u8], found: &[u8]) -> Vec<u8> {
    let seed = found.get(16..24).map_or(0, |seed| u64::from_le_bytes(seed.try_into().unwrap()));
    let mut marks = b"SRMARKS\0".to_vec();
    marks.extend([PAGE_BYTES as u64, seed, region.len() as u64].map(u64::to_le_bytes).concat());
    assert_eq!(marks.len(), MARKS_HEAD_BYTES);
    let marker = Marker { seed };
    marks.extend(region.chunks(PAGE_BYTES).flat_map(|page| marker.mark(page).0));
    marks
}

/// Where the marks of a region are.
fn marks_of(region: &Path) -> PathBuf {
    Path::new(MARKS).join(region.strip_prefix("/").unwrap())
}

fn file_at<'i>(image: &'i Image, path: &Path) -> Option<&'i Content> {
    let below = path.strip_prefix("/").unwrap();
    match &image.nodes.get(below.as_os_str().as_bytes())?.kind {
        Kind::File(content) => Some(content),
        _ => None,
    }
}

fn bytes_of(content: &Content) -> Vec<u8> {
    let mut bytes = vec![0; content.bytes as usize];
    for (offset, run) in &content.runs {
        bytes[*offset as usize..][..run.len()].copy_from_slice(run);
    }
    bytes
}

/// Names that are lost cannot be linked to.
fn without_links(node: &Node) -> Node {
    Node { linked_to: None, ..node.clone() }
}

/// True if everything in `kept` is in `image` as it is there: what a partial backup may hold.
pub fn is_part_of(kept: &Image, image: &Image) -> bool {
    kept.nodes.iter().all(|(path, node)| {
        image.nodes.get(path).is_some_and(|other| without_links(other) == without_links(node))
    })
}
