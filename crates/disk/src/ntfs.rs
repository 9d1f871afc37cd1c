//! NTFS, read as ntfs-3g shows it: the file system of Windows.
//!
//! The number of a file is its reference: the number of its record, and above it how many times that
//! was given to another file. The parts of the file system that are files too (`$MFT` and others) are
//! left out, and so are the short names that DOS would see.
//!
//! A directory has mode 0755 and a file 0644, without the bits to write if it is read-only. Owners and
//! permissions of Windows, which are lists of users of its domain, are left out, and so are its other
//! attributes. A stream beside the content is an extended attribute `user.NAME`, as ntfs-3g shows it,
//! if it has at most 64 KiB, the most that Linux allows; larger streams are left out.
//!
//! Links and junctions are symbolic links, with slashes; those with a drive letter keep it. Content
//! that is encrypted, or that Windows compressed as a whole, is refused. The journal is not replayed:
//! unless it is empty, nothing is free.

mod boot;

mod record;

mod runs;

mod mft;

mod inode;

mod stream;

mod lznt1;

mod directory;

mod reparse;

mod state;

mod free;

use std::ops::{ControlFlow, Range};

use strongroom_base::Timestamp;
use strongroom_catalog::{Metadata, Xattr};

use crate::error::{DiskError, Result};
use crate::fields::{le32, le64};
use crate::file_system::{Entry, Facts, FileSystem, Kind, Node, NodeKind, Piece, State, Unclean};
use crate::free::FreeMap;
use crate::read::{ReadAt, read_vec};
use crate::wide;

use boot::Boot;
use inode::Inode;
use mft::Mft;
use record::kind;
use reparse::{INTERIX_BYTES_MAX, Reparse, interix_target};
use stream::Stream;

const ROOT: u64 = 5;
/// Records below this one describe the file system.
const FIRST_FILE: u64 = 16;

/// Attributes of a file.
const READ_ONLY: u32 = 0x1;
const SYSTEM: u32 = 0x4;

/// Windows makes no larger reparse points.
const REPARSE_BYTES_MAX: u64 = 16 << 10;
/// The limits of Linux for an extended attribute, and for all of a file.
const XATTR_BYTES_MAX: u64 = 64 << 10;
const XATTR_NAME_MAX: usize = 255;
const XATTRS_BYTES_MAX: u64 = 1 << 20;
/// The stream with the content of a file that Windows compressed as a whole.
const WOF_STREAM: &[u8] = b"user.WofCompressedData";

/// From 1601, which times of Windows count from, to 1970, in 100 ns.
const EPOCH: i128 = 116_444_736_000_000_000;

const PAGE_FILES: [&[u8]; 2] = [b"pagefile.sys", b"swapfile.sys"];
const HIBERNATION_FILE: &[u8] = b"hiberfil.sys";

/// A volume of NTFS.
pub struct Ntfs<'a> {
    mft: Mft<'a>,
    facts: Facts,
    /// The reference of the root directory.
    root: u64,
}

impl<'a> Ntfs<'a> {
    /// Opens the NTFS of a volume; `None` if it has another file system or none.
    pub fn open(volume: &'a dyn ReadAt) -> Result<Option<Self>> {
        if volume.size() < boot::BYTES as u64 {
            return Ok(None);
        }
        let sector = read_vec(volume, 0, boot::BYTES)?;
        let Some(boot) = Boot::parse(&sector, volume.size())? else { return Ok(None) };
        let mft = whole_mft(volume, boot)?;
        let root = mft.record(ROOT)?.reference();
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&mft.boot.serial);
        let volume = Inode::load(&mft, state::VOLUME);
        let label = volume.and_then(|volume| volume.value(&mft, kind::VOLUME_NAME, b""));
        let label = label.unwrap_or_default();
        let facts = Facts {
            kind: Kind::Ntfs,
            label: wide::utf8(wide::units(&label)),
            uuid,
            state: State::Dirty(Unclean::Errors),
            block_bytes: mft.boot.cluster_bytes,
            bytes: mft.boot.clusters * mft.boot.cluster_bytes,
        };
        let mut ntfs = Self { mft, facts, root };
        match ntfs.state() {
            Ok(state) => ntfs.facts.state = state,
            Err(DiskError::Io(error)) => return Err(error.into()),
            // Its files can be read all the same.
            Err(_) => {}
        }
        Ok(Some(ntfs))
    }

    fn state(&self) -> Result<State> {
        let files = self.in_root(&[HIBERNATION_FILE])?;
        let file = files.first().map(|&number| self.stream(number)).transpose()?.flatten();
        state::state(&self.mft, file.as_ref())
    }

    /// The files of the root directory that have one of these names, in any case.
    fn in_root(&self, names: &[&[u8]]) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        let root = Inode::load(&self.mft, self.root)?;
        directory::entries(&self.mft, &root, &mut |entry| {
            if names.iter().any(|name| entry.name.eq_ignore_ascii_case(name)) {
                found.push(entry.inode);
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// The data of a file.
    fn stream(&self, number: u64) -> Result<Option<Stream>> {
        Inode::load(&self.mft, number)?.stream(&self.mft, kind::DATA, b"")
    }

    /// The content of a regular file that can be read; `None` if it has none.
    fn content(&self, number: u64) -> Result<Option<Stream>> {
        let inode = Inode::load(&self.mft, number)?;
        let content = inode.stream(&self.mft, kind::DATA, b"")?;
        if inode.base.is_directory() {
            return Err(inode.damaged("this is not a regular file, by record"));
        }
        match self.reparse(&inode)? {
            Reparse::Is(_) => return Err(inode.damaged("this is not a regular file, by record")),
            Reparse::Elsewhere(what) => return Err(DiskError::unsupported(what)),
            Reparse::Other => {}
        }
        if content.as_ref().is_some_and(Stream::is_encrypted) {
            return Err(DiskError::unsupported("content that Windows encrypted"));
        }
        Ok(content)
    }

    fn reparse(&self, inode: &Inode) -> Result<Reparse> {
        let Some(value) = inode.stream(&self.mft, kind::REPARSE_POINT, b"")? else {
            return Ok(Reparse::Other);
        };
        if value.bytes > REPARSE_BYTES_MAX {
            return Err(inode.damaged("length of a reparse point, by record"));
        }
        Ok(reparse::reparse(&value.read_all(&self.mft)?))
    }

    fn kind(&self, inode: &Inode, attributes: u32, content: Option<&Stream>) -> Result<NodeKind> {
        if let Reparse::Is(kind) = self.reparse(inode)? {
            return Ok(kind);
        }
        if inode.base.is_directory() {
            return Ok(NodeKind::Directory);
        }
        if let Some(content) = content
            && attributes & SYSTEM != 0
            && content.bytes <= INTERIX_BYTES_MAX
            && !content.is_encrypted()
            && let Some(target) = interix_target(&content.read_all(&self.mft)?)
        {
            return Ok(NodeKind::Symlink { target });
        }
        Ok(NodeKind::File)
    }

    /// The streams beside the content that are short enough to be extended attributes.
    fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>> {
        let mut xattrs = Vec::new();
        let mut bytes = 0;
        for units in inode.stream_names() {
            let name = [b"user.", &wide::utf8(wide::units(units))[..]].concat();
            if name.len() > XATTR_NAME_MAX || name.contains(&0) || name == WOF_STREAM {
                continue;
            }
            let stream = inode.stream(&self.mft, kind::DATA, units)?;
            let Some(stream) = stream.filter(|stream| stream.bytes <= XATTR_BYTES_MAX) else {
                continue;
            };
            bytes += stream.bytes;
            if stream.is_encrypted() || bytes > XATTRS_BYTES_MAX {
                continue;
            }
            xattrs.push(Xattr { name, value: stream.read_all(&self.mft)? });
        }
        xattrs.sort_by(|one: &Xattr, other| one.name.cmp(&other.name));
        Ok(xattrs)
    }
}

/// Finds all of the table of files. Its first record describes its first part; the others are
/// described by records that are in the parts before.
fn whole_mft(volume: &dyn ReadAt, boot: Boot) -> Result<Mft<'_>> {
    let mut mft = Mft::begin(volume, boot)?;
    let inode = Inode::load(&mft, 0)?;
    for part in inode.parts(kind::DATA, b"").skip(1) {
        let attribute = inode.part(&mft, part)?;
        mft.add(&attribute, part.number())?;
    }
    Ok(mft)
}

/// A time of Windows.
fn timestamp(time: u64) -> Timestamp {
    let nanos = (i128::from(time) - EPOCH) * 100;
    Timestamp(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

impl FileSystem for Ntfs<'_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn root(&self) -> u64 {
        self.root
    }

    fn node(&self, number: u64) -> Result<Node> {
        let inode = Inode::load(&self.mft, number)?;
        let information = inode.value(&self.mft, kind::STANDARD_INFORMATION, b"")?;
        let content = inode.stream(&self.mft, kind::DATA, b"")?;
        let attributes = le32(&information, 32);
        let kind = self.kind(&inode, attributes, content.as_ref())?;
        let mode = match (&kind, attributes & READ_ONLY) {
            (NodeKind::Directory, _) => 0o755,
            (NodeKind::Symlink { .. }, _) => 0o777,
            (_, 0) => 0o644,
            _ => 0o444,
        };
        let size = match &kind {
            NodeKind::File => content.as_ref().map_or(0, |content| content.bytes),
            NodeKind::Symlink { target } => target.len() as u64,
            _ => 0,
        };
        let encrypted = kind == NodeKind::File && content.is_some_and(|data| data.is_encrypted());
        let metadata = Metadata {
            mode,
            mtime: timestamp(le64(&information, 8)),
            ctime: timestamp(le64(&information, 16)),
            inode: number,
            links: inode.names(&self.mft)?.max(1),
            size,
            xattrs: self.xattrs(&inode)?,
            ..Metadata::default()
        };
        Ok(Node { kind, metadata, encrypted, verity: false })
    }

    fn entries(
        &self,
        directory: u64,
        take: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let inode = Inode::load(&self.mft, directory)?;
        if !inode.base.is_directory() {
            return Err(inode.damaged("this is not a directory, by record"));
        }
        directory::entries(&self.mft, &inode, take)
    }

    fn pieces(
        &self,
        file: u64,
        range: Range<u64>,
        take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<()> {
        self.content(file)?.map_or(Ok(()), |content| content.pieces(&self.mft, range, take))
    }

    fn read(&self, file: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.content(file)?.map_or(Ok(0), |content| content.read(&self.mft, offset, buffer))
    }

    fn free(&self) -> Result<FreeMap> {
        self.facts.state.check_trusted()?;
        free::map(self)
    }

    fn page_files(&self) -> Result<Vec<u64>> {
        self.facts.state.check_trusted()?;
        // If the machine is hibernated, the volume is not clean.
        self.in_root(&[&PAGE_FILES[..], &[HIBERNATION_FILE]].concat())
    }
}
