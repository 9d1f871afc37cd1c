//! Snapshots that this machine has opened before, in sealed batches in a file of its cache: a backup
//! begins by looking at all of them. Opening one takes a tenth of a millisecond and, far away, a
//! request. The document: `docs/format/opened.md`.
//!
//! An object is never changed under its name, so what was in it once is in it still, unless it is
//! damaged: `verify` reads the object itself. What the batches hold is checked as if it came from
//! there. Batches that are damaged or cut, and all behind them, count as absent.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use strongroom_base::entropy::random_array;
use strongroom_base::le::{LeReader, LeWrite, LengthError};
use strongroom_base::seal::TAG_BYTES;
use strongroom_base::{DomainId, Monitor, SnapshotId};

use crate::cache::{self, SALT_BYTES};
use crate::repository::Repository;

/// What the key of a batch is derived as.
const CONTEXT: &str = "strongroom v0 opened snapshots";
/// The file in the cache of a repository, and what it is called while it is written.
const FILE: &str = "opened";
const FILE_NEW: &str = "opened.new";
/// What a batch begins with.
pub const MAGIC: [u8; 8] = *b"SROPENED";
/// The version of a batch.
pub const VERSION: u32 = 1;
/// Bytes of a batch before what is sealed.
pub const HEADER_BYTES: usize = MAGIC.len() + 4 + SALT_BYTES + 8;
/// Bytes of a snapshot in a batch, before what was in its seal.
pub const SNAPSHOT_BYTES: usize = SnapshotId::BYTES + 8 + DomainId::BYTES + 8 + 4;
/// A longer file is not read.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// What would hold more is not written: two million snapshots.
const PLAIN_BYTES_MAX: usize = 240 << 20;

/// What opening a snapshot's object gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened<'b> {
    /// Bytes of the object.
    pub object_bytes: u64,
    /// Who made it, and its sequence, as its claim says.
    pub claimed: (DomainId, u64),
    /// What was in the seal.
    pub plain: &'b [u8],
}

/// Snapshots that were opened before, and those that are new to the file.
#[derive(Default)]
pub struct OpenedSnapshots {
    bytes: Vec<u8>,
    places: HashMap<SnapshotId, Range<usize>>,
    new: Vec<u8>,
    /// Those of `places` that were asked for.
    used: Vec<Range<usize>>,
    /// False if the end of the file is no whole batch: nothing can be appended to it.
    is_whole: bool,
}

impl OpenedSnapshots {
    /// What the file holds; nothing if there is none.
    pub fn read(repository: &Repository, monitor: &dyn Monitor) -> Self {
        let Some(path) = repository.cache_folder().map(|folder| folder.join(FILE)) else {
            return Self::default();
        };
        let file = match cache::read_file(&path, FILE_BYTES_MAX) {
            Ok(file) => file.unwrap_or_default(),
            Err(error) => {
                monitor.detail(&format!("{}: {error}", path.display()));
                return Self::default();
            }
        };
        let mut read = Self { is_whole: true, ..Self::default() };
        let mut rest = &file[..];
        while !rest.is_empty() && read.is_whole {
            match read.take_batch(repository, rest) {
                Some(behind) => rest = behind,
                None => read.is_whole = false,
            }
        }
        read
    }

    /// Takes in the first batch; returns what is behind it.
    fn take_batch<'f>(&mut self, repository: &Repository, file: &'f [u8]) -> Option<&'f [u8]> {
        let (header, rest) = file.split_first_chunk::<HEADER_BYTES>()?;
        let mut fields = LeReader::new(header);
        let is_known = fields.array().ok()? == MAGIC && fields.u32().ok()? == VERSION;
        let salt = fields.array().ok().filter(|_| is_known)?;
        let sealed_bytes = usize::try_from(fields.u64().ok()?).ok()?;
        let (sealed, behind) = rest.split_at_checked(sealed_bytes)?;
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(sealed);
        let key = cache::key(repository, CONTEXT, &salt);
        let opened = key.open(0, header, &mut self.bytes[begin..]).map(|plain| plain.len());
        let end = begin + opened.ok()?;
        self.bytes.truncate(end);
        let mut place = begin;
        while place < end {
            let (id, _, bytes) = unpack(&self.bytes[place..end]).ok()?;
            self.places.insert(id, place..place + bytes);
            place += bytes;
        }
        Some(behind)
    }

    /// What is known of a snapshot whose object has this length.
    pub fn find(&mut self, id: SnapshotId, object_bytes: u64) -> Option<Opened<'_>> {
        let place = self.places.get(&id)?.clone();
        self.used.push(place.clone());
        let (_, opened, _) = unpack(&self.bytes[place]).ok()?;
        Some(opened).filter(|opened| opened.object_bytes == object_bytes)
    }

    /// Takes note of one that was opened now.
    pub fn add(&mut self, id: SnapshotId, opened: &Opened<'_>) {
        pack(id, opened, &mut self.new);
    }

    /// Keeps what is new. If most of the file is of snapshots that were not asked for, as they are
    /// gone, or its end is damaged, it is written again. Should that fail, the next backup opens
    /// them once more.
    pub fn keep(mut self, repository: &Repository, monitor: &dyn Monitor) {
        let is_mostly_used = self.is_whole && 2 * self.used.len() >= self.places.len();
        let Some(folder) = repository.cache_folder() else { return };
        if self.new.is_empty() && is_mostly_used {
            return;
        }
        let written = cache::lock(&folder).and_then(|_lock| {
            if is_mostly_used && self.bytes.len() + self.new.len() < PLAIN_BYTES_MAX {
                return append(&folder.join(FILE), &seal(repository, self.new));
            }
            let mut body: Vec<u8> =
                self.used.iter().flat_map(|place| &self.bytes[place.clone()]).copied().collect();
            body.append(&mut self.new);
            if body.len() >= PLAIN_BYTES_MAX {
                return Ok(());
            }
            cache::write_file(&folder, FILE, FILE_NEW, &seal(repository, body))
        });
        if let Err(error) = written {
            monitor.detail(&format!("opened snapshots cannot be kept: {error}"));
        }
    }
}

fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

fn seal(repository: &Repository, mut body: Vec<u8>) -> Vec<u8> {
    let salt = random_array(&*repository.surroundings.entropy);
    let mut batch = pack_header(&salt, body.len() + TAG_BYTES);
    cache::key(repository, CONTEXT, &salt).seal(0, &batch, &mut body);
    batch.append(&mut body);
    batch
}

fn pack_header(salt: &[u8; SALT_BYTES], sealed_bytes: usize) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.put(&MAGIC);
    header.put_u32(VERSION);
    header.put(salt);
    header.put_u64(sealed_bytes as u64);
    header
}

fn pack(id: SnapshotId, opened: &Opened<'_>, bytes: &mut Vec<u8>) {
    let (domain, sequence) = opened.claimed;
    bytes.put(&id.0);
    bytes.put_u64(opened.object_bytes);
    bytes.put(&domain.0);
    bytes.put_u64(sequence);
    bytes.put_u32(u32::try_from(opened.plain.len()).expect("a snapshot is shorter than 4 GiB"));
    bytes.put(opened.plain);
}

/// The first snapshot in opened bytes, and how many of them it takes.
fn unpack(bytes: &[u8]) -> Result<(SnapshotId, Opened<'_>, usize), LengthError> {
    let mut fields = LeReader::new(bytes);
    let id = SnapshotId(fields.array()?);
    let object_bytes = fields.u64()?;
    let claimed = (DomainId(fields.array()?), fields.u64()?);
    let plain_bytes = fields.u32()? as usize;
    let plain = fields.take(plain_bytes)?;
    Ok((id, Opened { object_bytes, claimed, plain }, SNAPSHOT_BYTES + plain_bytes))
}

#[cfg(test)]
mod tests;
