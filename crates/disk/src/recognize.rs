//! Which file system is on a volume, or whether it is a swap area. What has the marks of several is
//! listed, and not trusted.

use std::ops::{ControlFlow, Range};

use crate::btrfs::Btrfs;
use crate::error::Result;
use crate::exfat::ExFat;
use crate::ext::Ext;
use crate::fat::Fat;
use crate::file_system::{Entry, Facts, FileSystem, Node, Piece, State};
use crate::free::FreeMap;
use crate::marks;
use crate::ntfs::Ntfs;
use crate::read::ReadAt;
use crate::swap::Swap;
use crate::understood::NotUnderstood;
use crate::xfs::Xfs;

type Opened<'a> = Result<Option<Box<dyn FileSystem + 'a>>>;

/// The file system of a volume; `None` if it has none that we know.
///
/// A volume that has the marks of something else besides is [`State::NotUnderstood`]: nothing of it
/// counts as free.
///
/// # Errors
///
/// If the superblock says which file system it is and cannot be right, or needs what we lack.
pub fn open<'a>(volume: &'a dyn ReadAt) -> Opened<'a> {
    let Some(files) = first(volume)? else { return Ok(None) };
    Ok(Some(match other_owner(volume, files.owners) {
        Some(other) => Box::new(Doubtful::new(files.first, other)),
        None => files.first,
    }))
}

/// What a volume with a file system can be besides. What cannot be read is no proof that there is
/// nothing.
fn other_owner(volume: &dyn ReadAt, owners: usize) -> Option<&'static str> {
    if owners > 1 {
        return Some("another file system");
    }
    match (marks::find(volume), Swap::find(volume)) {
        (Ok(None), Ok(None)) => None,
        (Ok(Some(mark)), _) => Some(mark),
        (Ok(None), Ok(Some(_))) => Some("a swap area"),
        _ => Some("something that cannot be read"),
    }
}

/// The swap area that a volume is; `None` if it is something else, or has the marks of something else
/// besides.
///
/// # Errors
///
/// The volume cannot be read.
pub fn open_swap(volume: &dyn ReadAt) -> Result<Option<Swap>> {
    let Some(swap) = Swap::find(volume)? else { return Ok(None) };
    let is_alone = matches!((first(volume), marks::find(volume)), (Ok(None), Ok(None)));
    // What a suspended machine wakes up with is needed in any case.
    Ok((is_alone || swap.hibernated).then_some(swap))
}

/// Whether a physical volume of LVM has the marks of something else besides: it can be what LVM left,
/// and its volumes with it. What cannot be read is no proof that there is nothing.
pub(crate) fn has_owner_beside_lvm(volume: &dyn ReadAt) -> bool {
    let found = (first(volume), marks::find_beside(volume, marks::LVM), Swap::find(volume));
    !matches!(found, (Ok(None), Ok(None), Ok(None)))
}

/// What readers of file systems say of a volume.
struct Recognized<'a> {
    first: Box<dyn FileSystem + 'a>,
    /// How many of them know it, or find their mark.
    owners: usize,
}

fn first<'a>(volume: &'a dyn ReadAt) -> Result<Option<Recognized<'a>>> {
    // The boot sector of FAT has no mark of its own: the others are asked first.
    let all: [fn(&'a dyn ReadAt) -> Opened<'a>; 6] = [
        |volume| boxed(Ext::open(volume)),
        |volume| boxed(Xfs::open(volume)),
        |volume| boxed(Btrfs::open(volume)),
        |volume| boxed(Ntfs::open(volume)),
        |volume| boxed(ExFat::open(volume)),
        |volume| boxed(Fat::open(volume)),
    ];
    let (mut found, mut refused, mut owners) = (None, None, 0);
    for open in all {
        let opened = open(volume);
        owners += usize::from(!matches!(opened, Ok(None)));
        match opened {
            Ok(Some(files)) => found = found.or(Some(files)),
            Ok(None) => {}
            // The mark of one file system can be anything in another.
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match (found, refused) {
        (Some(first), _) => Ok(Some(Recognized { first, owners })),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(None),
    }
}

fn boxed<'a, F: FileSystem + 'a>(opened: Result<Option<F>>) -> Opened<'a> {
    Ok(opened?.map(|files| Box::new(files) as Box<dyn FileSystem>))
}

/// A file system on a volume that has the marks of something else, too.
struct Doubtful<'a> {
    files: Box<dyn FileSystem + 'a>,
    facts: Facts,
}

impl<'a> Doubtful<'a> {
    fn new(files: Box<dyn FileSystem + 'a>, other: &'static str) -> Self {
        let mut facts = files.facts().clone();
        if facts.state.is_trusted() {
            facts.state = State::NotUnderstood(NotUnderstood::Mark(other));
        }
        Self { files, facts }
    }
}

impl FileSystem for Doubtful<'_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn root(&self) -> u64 {
        self.files.root()
    }

    fn node(&self, inode: u64) -> Result<Node> {
        self.files.node(inode)
    }

    fn entries(
        &self,
        directory: u64,
        take: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.files.entries(directory, take)
    }

    fn pieces(
        &self,
        file: u64,
        range: Range<u64>,
        take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<()> {
        self.files.pieces(file, range, take)
    }

    fn read(&self, file: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.files.read(file, offset, buffer)
    }

    fn free(&self) -> Result<FreeMap> {
        self.facts.state.check_trusted()?;
        self.files.free()
    }

    fn page_files(&self) -> Result<Vec<u64>> {
        self.facts.state.check_trusted()?;
        self.files.page_files()
    }
}
