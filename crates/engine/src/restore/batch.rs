//! A batch of files: what they need, sorted by where it lies, read once and written in place.

mod needs;
mod runs;
mod standing;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::IoSlice;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::bounded;
use lru::LruCache;
use strongroom_base::{Cancel, Fingerprint, Monitor, Progress};
use strongroom_catalog::{ChunkRef, Entry, Location, Metadata, RecipeReader};
use strongroom_repository::ChunkReader;
use strongroom_source::{DirectoryId, TargetError, TargetFile};

use super::RestoreOptions;
use super::behind::FlushedTarget;
use crate::error::EngineError;
use needs::Placed;
use runs::{Run, Stretch};

/// A batch is written once it wants so many chunks (about 20 MiB of memory).
const WANTS_MAX: usize = 200_000;
/// A batch is written once it holds so many files.
const FILES_MAX: usize = 25_000;
/// Files that are written from several runs are held open, so many at a time.
const OPEN_FILES_MAX: usize = 64;

/// The file systems of Linux take names so long.
const FILE_NAME_BYTES_MAX: usize = 255;

/// A name in a directory of the target.
pub type NameIn = (DirectoryId, Vec<u8>);

/// A file of the batch.
struct BatchFile {
    directory: DirectoryId,
    name: Vec<u8>,
    metadata: Metadata,
    /// Something of this name stands at the target.
    stands: bool,
    /// Why the rest of its recipe cannot be had.
    lost: Option<String>,
    holes: Vec<(u64, u64)>,
    first_want: usize,
    wants: usize,
}

/// A chunk that a file needs.
#[derive(Clone, Copy)]
struct Want {
    location: Location,
    fingerprint: Fingerprint,
    file: u32,
    bytes: u32,
    offset: u64,
}

/// What is gathered between two flushes.
#[derive(Default)]
pub struct Batch {
    files: Vec<BatchFile>,
    wants: Vec<Want>,
    /// Further names of files: the first name, and the one to be made.
    pub links: Vec<(NameIn, NameIn)>,
    /// Directories that nothing more comes into, deepest first.
    pub closed: Vec<(DirectoryId, Metadata)>,
}

/// What writing a batch amounted to.
#[derive(Default)]
pub struct Written {
    /// Files that were right already.
    pub files_right: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Chunks that were needed.
    pub chunks_needed: u64,
    /// Runs of blocks that they were read in: requests to the backend.
    pub reads: u64,
    /// What could not be put back.
    pub problems: Vec<TargetError>,
    /// Files of which something is lost, and why.
    pub damaged: Vec<(PathBuf, String)>,
    /// Those of them that have further names.
    pub damaged_linked: HashSet<NameIn>,
}

impl Batch {
    /// Adds a file and what it needs.
    pub fn add_file(
        &mut self,
        directory: DirectoryId,
        entry: Entry,
        stands: bool,
        reader: &ChunkReader,
    ) -> Result<(), EngineError> {
        let file = u32::try_from(self.files.len()).expect("a batch is bounded");
        let first_want = self.wants.len();
        let mut holes = Vec::new();
        let content = entry.content().expect("the caller adds files");
        let mut recipe = RecipeReader::new(content, reader);
        let mut lost = None;
        loop {
            let (offset, chunk) = match recipe.next_chunk() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(error) => {
                    let error = EngineError::from(error);
                    if !error.is_damage() {
                        return Err(error);
                    }
                    lost = Some(error.to_string());
                    break;
                }
            };
            if chunk.is_hole() {
                holes.push((offset, chunk.stream_bytes));
            } else {
                self.wants.push(want(file, offset, &chunk));
            }
        }
        let wants = self.wants.len() - first_want;
        let (name, metadata) = (entry.name, entry.metadata);
        self.files.push(BatchFile {
            directory,
            name,
            metadata,
            stands,
            lost,
            holes,
            first_want,
            wants,
        });
        Ok(())
    }

    /// True where it is time to write.
    pub fn is_full(&self) -> bool {
        self.wants.len() >= WANTS_MAX || self.files.len() >= FILES_MAX
    }
}

fn want(file: u32, offset: u64, chunk: &ChunkRef) -> Want {
    let bytes = u32::try_from(chunk.stream_bytes).unwrap_or(u32::MAX);
    let (location, fingerprint) = (chunk.location, chunk.fingerprint);
    Want { location, fingerprint, file, bytes, offset }
}

/// What becomes of a file while its batch is written.
struct FileState {
    handle: Mutex<Option<Arc<TargetFile>>>,
    /// Chunks yet to be written.
    remaining: AtomicU32,
    /// It was opened before: what stands under its name is what was written.
    begun: AtomicBool,
    damaged: AtomicBool,
    failed: AtomicBool,
}

/// Everything that the workers share.
struct Shared<'b> {
    batch: &'b Batch,
    states: Vec<FileState>,
    reader: &'b ChunkReader,
    target: &'b FlushedTarget<'b>,
    options: &'b RestoreOptions,
    // Plain mutexes: each is held for a push or a map operation.
    open: Mutex<LruCache<u32, ()>>,
    problems: Mutex<Vec<TargetError>>,
    damaged: Mutex<HashMap<u32, String>>,
    /// The first failure that is no damage: it ends the restore.
    failure: Mutex<Option<EngineError>>,
    chunks_needed: AtomicU64,
    reads: AtomicU64,
    files_done: AtomicU64,
    bytes_done: AtomicU64,
    bytes_written: AtomicU64,
    files_right: AtomicU64,
}

/// Writes the files of a batch.
pub fn write_files(
    batch: &Batch,
    reader: &ChunkReader,
    target: &FlushedTarget<'_>,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
    progress: &mut Progress,
) -> Result<Written, EngineError> {
    let open = NonZeroUsize::new(OPEN_FILES_MAX).expect("sixty-four is not zero");
    let shared = Shared {
        batch,
        states: batch.files.iter().map(FileState::new).collect(),
        reader,
        target,
        options,
        open: Mutex::new(LruCache::new(open)),
        problems: Mutex::default(),
        damaged: Mutex::default(),
        failure: Mutex::default(),
        chunks_needed: AtomicU64::new(0),
        reads: AtomicU64::new(0),
        files_done: AtomicU64::new(0),
        bytes_done: AtomicU64::new(0),
        bytes_written: AtomicU64::new(0),
        files_right: AtomicU64::new(0),
    };
    let lost = batch.files.iter().enumerate().filter_map(|(number, file)| {
        // A batch holds at most FILES_MAX files and a few.
        file.lost.clone().map(|why| (number as u32, why))
    });
    lock(&shared.damaged).extend(lost);
    let wanted = shared.look_at_what_stands(cancel)?;
    let placed = needs::place(&wanted, reader, cancel)?;
    shared.write(&placed, monitor, cancel, progress)?;
    if options.verify {
        shared.verify(cancel)?;
    }
    progress.files += shared.files_done.load(Ordering::Relaxed);
    progress.bytes += shared.bytes_done.load(Ordering::Relaxed);
    progress.bytes_new += shared.bytes_written.load(Ordering::Relaxed);
    monitor.progress(progress);
    Ok(shared.into_written())
}

impl FileState {
    fn new(file: &BatchFile) -> Self {
        Self {
            handle: Mutex::new(None),
            remaining: AtomicU32::new(u32::try_from(file.wants).unwrap_or(u32::MAX)),
            begun: AtomicBool::new(false),
            damaged: AtomicBool::new(file.lost.is_some()),
            failed: AtomicBool::new(false),
        }
    }
}

impl<'b> Shared<'b> {
    /// Reads and writes on several threads, run by run in the order in which they lie.
    fn write(
        &self,
        placed: &Placed<'b>,
        monitor: &dyn Monitor,
        cancel: &Cancel,
        progress: &Progress,
    ) -> Result<(), EngineError> {
        let workers = self.options.workers.max(1);
        let (send, receive) = bounded::<Run<'_>>(workers);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let receive = receive.clone();
                scope.spawn(move || {
                    for run in receive {
                        if !cancel.is_cancelled() && lock(&self.failure).is_none() {
                            self.write_run(&run);
                        }
                    }
                });
            }
            drop(receive);
            let planned = self.plan_runs(placed, &mut |run| {
                let mut now = progress.clone();
                now.files += self.files_done.load(Ordering::Relaxed);
                now.bytes += self.bytes_done.load(Ordering::Relaxed);
                now.bytes_new += self.bytes_written.load(Ordering::Relaxed);
                monitor.progress(&now);
                send.send(run).expect("workers take runs until there are no more");
                Ok(cancel.check()?)
            });
            drop(send);
            planned
        })?;
        lock(&self.failure).take().map_or(Ok(()), Err)?;
        // Workers leave what they find once it was stopped.
        Ok(cancel.check()?)
    }

    /// Writes a chunk that is not where the recipe says.
    fn write_from_elsewhere(&self, want: &Want) {
        let chunk = ChunkRef {
            fingerprint: want.fingerprint,
            location: want.location,
            stream_bytes: u64::from(want.bytes),
        };
        match self.reader.read(&chunk) {
            Ok(bytes) => self.write_stretch(&Stretch::of(want, Cow::Owned(bytes))),
            Err(error) if !error.is_damage() => {
                lock(&self.failure).get_or_insert(error.into());
            }
            Err(error) => {
                self.states[want.file as usize].damaged.store(true, Ordering::Relaxed);
                lock(&self.damaged).entry(want.file).or_insert_with(|| error.to_string());
                self.count_down(want.file, 1);
            }
        }
    }

    /// Writes neighbouring chunks at once.
    fn write_stretch(&self, stretch: &Stretch<'_>) {
        let Some(first) = stretch.first else { return };
        let bytes = stretch.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        if let Some(file) = self.open(first.file) {
            let mut parts: Vec<_> =
                stretch.chunks.iter().map(|chunk| IoSlice::new(chunk)).collect();
            let written = file.write_parts_at(first.offset, &mut parts).map(|waiting| {
                self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
                self.target.note_waiting(waiting);
            });
            self.check(first.file, written);
        }
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
        self.count_down(first.file, stretch.chunks.len() as u32);
    }

    /// So many chunks of a file have been seen to.
    fn count_down(&self, number: u32, chunks: u32) {
        let remained = self.states[number as usize].remaining.fetch_sub(chunks, Ordering::AcqRel);
        if remained == chunks {
            self.finish(number);
        }
    }

    /// The file, opened if need be. None where that failed, which was told then.
    fn open(&self, number: u32) -> Option<Arc<TargetFile>> {
        let state = &self.states[number as usize];
        if state.failed.load(Ordering::Relaxed) {
            return None;
        }
        let mut handle = lock(&state.handle);
        if let Some(file) = &*handle {
            return Some(file.clone());
        }
        let file = &self.batch.files[number as usize];
        let (directory, name, size) = (file.directory, &file.name, file.metadata.size);
        let opened = match file.stands || state.begun.swap(true, Ordering::Relaxed) {
            true => self.target.open_file_for_write(directory, name, size),
            false => self.target.create_file(directory, name, size),
        };
        let opened = match opened {
            Ok(opened) => Arc::new(opened),
            Err(error) => {
                drop(handle);
                self.check(number, Err(error));
                return None;
            }
        };
        *handle = Some(opened.clone());
        drop(handle);
        let pushed_out = lock(&self.open).push(number, ());
        if let Some((other, ())) = pushed_out.filter(|(other, ())| *other != number) {
            *lock(&self.states[other as usize].handle) = None;
        }
        Some(opened)
    }

    /// Puts the metadata of a file back, which has all its content.
    fn finish(&self, number: u32) {
        let state = &self.states[number as usize];
        let file = &self.batch.files[number as usize];
        self.files_done.fetch_add(1, Ordering::Relaxed);
        let Some(handle) = self.open(number) else { return };
        lock(&self.open).pop(&number);
        *lock(&state.handle) = None;
        if state.damaged.load(Ordering::Relaxed) {
            self.check(number, handle.reach_size());
            let marked = damaged_name(&file.name);
            let renamed = self.target.rename(file.directory, &file.name, &marked);
            self.check(number, renamed);
            return;
        }
        // The last one to hold the file is here: all its chunks were counted down.
        let Some(handle) = Arc::into_inner(handle) else { return };
        lock(&self.problems).extend(self.target.finish_file(handle, &file.metadata));
    }

    /// Notes a failure of one file, which costs that file alone.
    fn check(&self, number: u32, result: Result<(), TargetError>) -> bool {
        match result {
            Ok(()) => true,
            Err(error) => {
                self.states[number as usize].failed.store(true, Ordering::Relaxed);
                lock(&self.problems).push(error);
                false
            }
        }
    }

    fn into_written(self) -> Written {
        let damaged = lock(&self.damaged).drain().collect::<Vec<_>>();
        let path_of = |number: u32| {
            let file = &self.batch.files[number as usize];
            self.target.path_of(file.directory, &file.name)
        };
        let mut damaged: Vec<(PathBuf, String)> =
            damaged.into_iter().map(|(number, why)| (path_of(number), why)).collect();
        damaged.sort();
        let files = self.batch.files.iter().zip(&self.states);
        let damaged_linked = files
            .filter(|(file, state)| {
                file.metadata.links > 1 && state.damaged.load(Ordering::Relaxed)
            })
            .map(|(file, _)| (file.directory, file.name.clone()))
            .collect();
        Written {
            damaged_linked,
            files_right: self.files_right.into_inner(),
            bytes_written: self.bytes_written.into_inner(),
            chunks_needed: self.chunks_needed.into_inner(),
            reads: self.reads.into_inner(),
            problems: self.problems.into_inner().unwrap_or_else(PoisonError::into_inner),
            damaged,
        }
    }
}

/// What a file is called of which something is lost; a long name is cut to make room.
pub fn damaged_name(name: &[u8]) -> Vec<u8> {
    const MARK: &[u8] = b".damaged";
    let room = (FILE_NAME_BYTES_MAX - MARK.len()).min(name.len());
    [&name[..room], MARK].concat()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
