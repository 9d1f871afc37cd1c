//! A disk is put back: into a file or onto a device, and of that only what differs is written.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::bounded;
use rustix::fs::{FallocateFlags, fallocate};
use strongroom_arena::CacheLimits;
use strongroom_base::{Cancel, Monitor, Problem, Progress, Severity};
use strongroom_catalog::{ChunkRef, Recipe, Snapshot};
use strongroom_repository::{
    ChunkReader, Repository, RepositoryError, StoredDisk, false_if_unreadable, find_disks,
};

use strongroom_source::memory::huge::HugePages;

use crate::error::EngineError;
use crate::parts::{LostPart, Part, Parts};

/// Chunks that a thread deals with at a time: neighbours are in the same blocks.
const LOT: usize = 64;
/// What is written of a chunk that differs.
const PAGE_BYTES: usize = 4096;
/// What is compared or written of zeros at a time.
const ZEROS_BYTES: usize = 1 << 20;
/// More threads than this wait for the same disk.
const THREADS_MAX: usize = 4;

/// What putting a disk back did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskOutcome {
    /// Bytes of the disk.
    pub bytes: u64,
    /// Bytes that differed and were written; zeros that became a hole are not among them.
    pub bytes_written: u64,
    /// Bytes of the disk that are lost in the repository. What was there before is still there.
    pub bytes_lost: u64,
    /// How many parts of it cannot be read: one with a wrong recipe may have no bytes.
    pub parts_lost: u64,
}

struct Work<'w> {
    reader: &'w ChunkReader,
    target: &'w File,
    /// The target, if it consists of huge pages.
    huge: Option<HugePages>,
    /// Bytes that the target had before: what is behind them is zeros.
    existing: u64,
    monitor: &'w dyn Monitor,
    cancel: &'w Cancel,
    /// A lot has failed: nothing more is done.
    has_failed: AtomicBool,
}

/// The disks of machines that a path of a snapshot means ([`find_disks`](strongroom_repository::find_disks)).
///
/// # Errors
///
/// There is no such path, or the repository cannot be read.
pub fn disks_of(
    repository: &Repository,
    snapshot: &Snapshot,
    path: &[u8],
) -> Result<Vec<StoredDisk>, EngineError> {
    let reader = ChunkReader::for_restore(repository, &snapshot.domain, CacheLimits::default())?;
    Ok(find_disks(snapshot, path, &reader)?)
}

/// Puts a disk into `target`, a file or a device that is open for reading and writing.
///
/// # Errors
///
/// The target is a device that is too small, or cannot be written; the repository cannot be read.
/// What is damaged there is a problem, and named.
pub fn restore_disk(
    repository: &Repository,
    disk: &StoredDisk,
    target: &File,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<DiskOutcome, EngineError> {
    let existing = prepare(target, disk.content.stream_bytes())?;
    restore_stream(repository, (&disk.domain, &disk.content), target, existing, monitor, cancel)
}

/// Puts a stream of random access into `target`, which is as long or longer, and of which what is
/// behind `existing` bytes is zeros. It is given with the domain whose snapshot names it.
pub fn restore_stream(
    repository: &Repository,
    (domain, content): (&str, &Recipe),
    target: &File,
    existing: u64,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<DiskOutcome, EngineError> {
    let reader = ChunkReader::for_restore(repository, domain, CacheLimits::default())?;
    let bytes = content.stream_bytes();
    let huge = HugePages::of(target).map_err(EngineError::Output)?;
    let has_failed = AtomicBool::new(false);
    let work = Work { reader: &reader, target, huge, existing, monitor, cancel, has_failed };
    let outcome = work.run(content)?;
    target.sync_data().map_err(EngineError::Output)?;
    Ok(DiskOutcome { bytes, ..outcome })
}

/// Gives the content of a disk to `write`, from its beginning to its end, holes left out.
///
/// # Errors
///
/// Those of `write`; the repository cannot be read. What is damaged there is a problem, and left out.
pub fn read_disk(
    repository: &Repository,
    disk: &StoredDisk,
    write: &mut dyn FnMut(u64, &[u8]) -> std::io::Result<()>,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<DiskOutcome, EngineError> {
    let reader = ChunkReader::for_restore(repository, &disk.domain, CacheLimits::default())?;
    let bytes = disk.content.stream_bytes();
    let mut outcome = DiskOutcome { bytes, ..DiskOutcome::default() };
    let mut progress = Progress { bytes_total: Some(bytes), ..Progress::default() };
    let mut parts = Parts::new(&disk.content, &reader);
    while let Some(part) = parts.next()? {
        cancel.check()?;
        progress.bytes += match part {
            Part::Lost(part) => outcome.lose(monitor, &part),
            Part::Chunk(_, hole) if hole.is_hole() => hole.stream_bytes,
            Part::Chunk(offset, chunk) => {
                match reader.read_data(&chunk) {
                    Ok(bytes) => {
                        write(offset, &bytes).map_err(EngineError::Output)?;
                        outcome.bytes_written += bytes.len() as u64;
                    }
                    Err(why) if why.is_damage() => {
                        let bytes = chunk.stream_bytes;
                        outcome.lose(monitor, &LostPart { offset, bytes, why });
                    }
                    Err(error) => return Err(error.into()),
                }
                chunk.stream_bytes
            }
        };
        progress.bytes_new = outcome.bytes_written;
        monitor.progress(&progress);
    }
    Ok(outcome)
}

impl DiskOutcome {
    /// Whether it is not the disk that was stored.
    pub fn is_damaged(&self) -> bool {
        self.parts_lost > 0
    }

    /// Counts what is lost, and says so. Returns how many bytes these are.
    fn lose(&mut self, monitor: &dyn Monitor, part: &LostPart) -> u64 {
        let LostPart { offset, bytes, why } = part;
        self.bytes_lost += bytes;
        self.parts_lost += 1;
        let message = format!("{bytes} bytes from byte {offset} on are lost: {why}");
        monitor.problem(Problem { severity: Severity::Damage, path: None, message: &message });
        *bytes
    }
}

/// Makes the target as long as the disk; returns how many bytes it had.
fn prepare(target: &File, bytes: u64) -> Result<u64, EngineError> {
    let metadata = target.metadata().map_err(EngineError::Output)?;
    if metadata.is_file() {
        target.set_len(bytes).map_err(EngineError::Output)?;
        return Ok(metadata.len().min(bytes));
    }
    let room = rustix::fs::seek(target, rustix::fs::SeekFrom::End(0))
        .map_err(|error| EngineError::Output(error.into()))?;
    if room < bytes {
        let message = format!("the device has {room} bytes, and the disk {bytes}");
        return Err(RepositoryError::Argument(message).into());
    }
    Ok(bytes)
}

impl Work<'_> {
    fn run(&self, content: &Recipe) -> Result<DiskOutcome, EngineError> {
        let (give, lots) = bounded::<Vec<Part>>(THREADS_MAX);
        let (done, results) = bounded::<Result<DiskOutcome, EngineError>>(THREADS_MAX);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let total = content.stream_bytes();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let (lots, done) = (lots.clone(), done.clone());
                scope.spawn(move || {
                    for lot in lots {
                        let result = self.lot(&lot);
                        self.has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
                        done.send(result).expect("results are taken until there are none");
                    }
                });
            }
            drop((lots, done));
            let walker = scope.spawn(move || self.walk(content, &give));
            let mut outcome = DiskOutcome::default();
            let mut progress = Progress { bytes_total: Some(total), ..Progress::default() };
            let mut failed = None;
            for result in results {
                match result {
                    Ok(lot) => {
                        outcome.bytes_written += lot.bytes_written;
                        outcome.bytes_lost += lot.bytes_lost;
                        outcome.parts_lost += lot.parts_lost;
                        progress.bytes += lot.bytes;
                        progress.bytes_new = outcome.bytes_written;
                        self.monitor.progress(&progress);
                    }
                    Err(error) => {
                        failed.get_or_insert(error);
                    }
                }
            }
            let walked = walker.join().expect("it does not panic");
            failed.map_or(walked.map(|()| outcome), Err)
        })
    }

    fn walk(
        &self,
        content: &Recipe,
        give: &crossbeam_channel::Sender<Vec<Part>>,
    ) -> Result<(), EngineError> {
        let mut parts = Parts::new(content, self.reader);
        let mut lot = Vec::with_capacity(LOT);
        while let Some(part) = parts.next()? {
            self.cancel.check()?;
            if self.has_failed() {
                return Ok(());
            }
            lot.push(part);
            if lot.len() == LOT && give.send(std::mem::take(&mut lot)).is_err() {
                break;
            }
        }
        let _ = give.send(lot);
        Ok(())
    }

    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Puts parts back. If another lot has failed, it ends early.
    fn lot(&self, lot: &[Part]) -> Result<DiskOutcome, EngineError> {
        let mut outcome = DiskOutcome::default();
        let mut buffer = Vec::new();
        for part in lot {
            self.cancel.check()?;
            if self.has_failed() {
                break;
            }
            let (offset, chunk) = match part {
                Part::Chunk(offset, chunk) => (*offset, chunk),
                Part::Lost(part) => {
                    outcome.bytes += outcome.lose(self.monitor, part);
                    continue;
                }
            };
            outcome.bytes += chunk.stream_bytes;
            if chunk.is_hole() {
                outcome.bytes_written += self.zero(offset, chunk.stream_bytes, &mut buffer)?;
                continue;
            }
            if self.is_right(offset, chunk, &mut buffer)? {
                continue;
            }
            match self.reader.read_data(chunk) {
                Ok(bytes) => outcome.bytes_written += self.write(offset, &bytes, &buffer)?,
                Err(why) if why.is_damage() => {
                    let bytes = chunk.stream_bytes;
                    outcome.lose(self.monitor, &LostPart { offset, bytes, why });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(outcome)
    }

    /// Writes the pages of a chunk that differ from what the target has, if that is known; returns
    /// how many bytes these were.
    fn write(&self, offset: u64, bytes: &[u8], existing: &[u8]) -> Result<u64, EngineError> {
        let is_right =
            |range: &Range<usize>| existing.get(range.clone()) == bytes.get(range.clone());
        let (mut at, mut written) = (0, 0);
        while at < bytes.len() {
            let page = |at: usize| at..(at + PAGE_BYTES).min(bytes.len());
            let mut end = at;
            while end < bytes.len() && !is_right(&page(end)) {
                end = page(end).end;
            }
            if end > at {
                let to = offset + at as u64;
                self.put(&bytes[at..end], to)?;
                written += (end - at) as u64;
            }
            // The page here, if there is one, is right.
            at = page(end).end.max(end + 1);
        }
        Ok(written)
    }

    /// Writes into the target.
    fn put(&self, bytes: &[u8], at: u64) -> Result<(), EngineError> {
        let written = match &self.huge {
            Some(huge) => huge.write_all_at(bytes, at),
            None => self.target.write_all_at(bytes, at),
        };
        written.map_err(EngineError::Output)
    }

    /// Whether the target has a chunk already. `buffer` is what it has in its place, or empty. What of
    /// it cannot be read is written: a device puts a sector that failed elsewhere then.
    fn is_right(
        &self,
        offset: u64,
        chunk: &ChunkRef,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, EngineError> {
        buffer.clear();
        if offset + chunk.stream_bytes > self.existing {
            return Ok(false);
        }
        let bytes = usize::try_from(chunk.stream_bytes).unwrap_or(usize::MAX);
        if bytes > strongroom_repository::config::CHUNK_BYTES_MAX {
            return Ok(false);
        }
        buffer.resize(bytes, 0);
        if self.target.read_exact_at(buffer, offset).is_err() {
            buffer.clear();
            return Ok(false);
        }
        // A chunk that is lost is reported when it is read.
        Ok(false_if_unreadable(self.reader.is_data(chunk, buffer))?)
    }

    /// Sees that a part of the target is zeros; returns how many bytes had to be written.
    fn zero(&self, offset: u64, bytes: u64, buffer: &mut Vec<u8>) -> Result<u64, EngineError> {
        let end = (offset + bytes).min(self.existing);
        if offset >= end {
            return Ok(0);
        }
        let range = offset..end;
        let hole = self.huge.as_ref().map_or(range.clone(), |huge| huge.whole_pages(range));
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if hole.is_empty()
            || fallocate(self.target, flags, hole.start, hole.end - hole.start).is_err()
        {
            return self.write_zeros(offset..end, buffer);
        }
        Ok(self.write_zeros(offset..hole.start, buffer)?
            + self.write_zeros(hole.end..end, buffer)?)
    }

    /// Writes zeros where there are none, or where the target cannot be read; returns how many bytes
    /// these were.
    fn write_zeros(&self, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<u64, EngineError> {
        static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];
        let Range { start: mut at, end } = range;
        let mut written = 0;
        while at < end {
            self.cancel.check()?;
            let step = (end - at).min(ZEROS_BYTES as u64) as usize;
            buffer.resize(step, 0);
            let is_read = self.target.read_exact_at(buffer, at).is_ok();
            if !is_read || buffer.iter().any(|byte| *byte != 0) {
                self.put(&ZEROS[..step], at)?;
                written += step as u64;
            }
            at += step as u64;
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use strongroom_base::Silent;

    use super::*;
    use crate::testing::World;

    #[test]
    fn zeros_are_written_where_the_target_cannot_be_read() {
        let world = World::new();
        let snapshot = world.backup_of(world.folder.path());
        let limits = CacheLimits::default();
        let reader = ChunkReader::for_restore(&world.repository, &snapshot.domain, limits).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target");
        std::fs::write(&path, [7; 10_000]).unwrap();
        // It cannot be read at all.
        let target = File::options().write(true).open(&path).unwrap();
        let work = Work {
            reader: &reader,
            target: &target,
            huge: None,
            existing: 10_000,
            monitor: &Silent,
            cancel: &Cancel::new(),
            has_failed: AtomicBool::new(false),
        };
        assert_eq!(work.write_zeros(1000..9000, &mut Vec::new()).unwrap(), 8000);
        let expected = [&[7; 1000][..], &[0; 8000], &[7; 1000]].concat();
        assert!(std::fs::read(&path).unwrap() == expected);
    }

    /// How far work has come.
    #[derive(Default)]
    struct Progressed(AtomicU64);

    impl Monitor for Progressed {
        fn progress(&self, progress: &Progress) {
            self.0.fetch_max(progress.bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_ends_soon_after_a_failure() {
        let world = World::new();
        let bytes = strongroom_testkit::noise(1, 12 << 20);
        world.write("large", &bytes);
        let snapshot = world.backup();
        let limits = CacheLimits::default();
        let reader = ChunkReader::for_restore(&world.repository, &snapshot.domain, limits).unwrap();
        let path = [world.path(), b"/large".to_vec()].concat();
        let found = strongroom_repository::find_path(&snapshot, &path, &reader).unwrap();
        let strongroom_repository::Found::Entry { entry, .. } = found else { panic!() };
        let content = entry.content().unwrap();
        // All but the first byte is right, which cannot be written.
        let target = world.folder.path().join("target");
        std::fs::write(&target, [&[!bytes[0]], &bytes[1..]].concat()).unwrap();
        let progressed = Progressed::default();
        let work = Work {
            reader: &reader,
            target: &File::open(&target).unwrap(),
            huge: None,
            existing: content.stream_bytes(),
            monitor: &progressed,
            cancel: &Cancel::new(),
            has_failed: AtomicBool::new(false),
        };
        work.run(content).unwrap_err();
        let done = progressed.0.load(Ordering::Relaxed);
        assert!(done < 8 << 20, "{done} bytes were dealt with");
    }
}
