//! A batch of files is written: what they need is sorted by where it is, read once, and written at
//! its place. A file that exists keeps its name until the one that replaces it is whole and on the
//! disk.

mod existing;
mod gather;
mod needs;
mod runs;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::IoSlice;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::bounded;
use lru::LruCache;
use strongroom_base::{Cancel, Monitor, Progress};
use strongroom_repository::ChunkReader;
use strongroom_source::{BegunFile, TargetError, TargetFile};

use super::RestoreOptions;
use super::behind::FlushedTarget;
use crate::error::EngineError;
pub use existing::is_right;
pub use gather::{Batch, FurtherName, Making, NameIn, PendingFile, Unfinished};
use gather::{BatchFile, Want};
use runs::{Run, Stretch};

/// At most this many files that are written from several runs are open at a time.
const OPEN_FILES_MAX: usize = 64;

/// At most this many runs of a repository far away are read at the same time. Each has a few MiB.
const FAR_WORKERS_MAX: usize = 8;

/// Runs that are read at the same time if they are whole arenas.
const WHOLE_WORKERS: usize = 3;

/// The longest name that the file systems of Linux take.
const FILE_NAME_BYTES_MAX: usize = 255;

/// What writing a batch amounted to.
#[derive(Default)]
pub struct Written {
    /// Bytes that came from the repository.
    pub bytes_written: u64,
    /// Chunks that were needed.
    pub chunks_needed: u64,
    /// Runs of blocks that they were read in: requests to the backend.
    pub reads: u64,
    /// Files that could not be written to their end.
    pub failed: u64,
    /// What could not be put back.
    pub problems: Vec<TargetError>,
    /// Files of which something is withheld by the place, and what it said.
    pub withheld: Vec<(PathBuf, String)>,
    /// Files of which something is lost.
    pub damaged: Vec<Damaged>,
    /// Files with further names that have not come back: these names are not linked.
    pub not_back: HashMap<NameIn, NotBack>,
    /// The last file, if its rest comes with the next batch.
    pub unfinished: Option<Unfinished>,
}

/// Why a file has not come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotBack {
    /// Something of it is lost in the repository; its recovered parts have this name, if any.
    Damaged(Option<Vec<u8>>),
    /// The place withholds something of it, and said this.
    Withheld(String),
    /// It could not be made, which was reported.
    Failed,
}

/// A file of which something is lost in the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// Where it belongs.
    pub path: PathBuf,
    /// What is lost.
    pub why: String,
    /// Where the recovered parts are; none if they could not be put anywhere.
    pub salvage: Option<PathBuf>,
    /// How it was to be made.
    pub making: Making,
}

/// What becomes of a file while its batch is written.
struct FileState {
    handle: Mutex<Option<Arc<TargetFile>>>,
    /// Chunks yet to be written.
    remaining: AtomicU32,
    /// It was opened, and what has its name is what was written, as far as is known.
    begun: AtomicBool,
    /// If it was closed before it was finished, what it is known by when it is opened again.
    closed: Mutex<Option<BegunFile>>,
    /// The name that it has until it is whole.
    temporary: Mutex<Option<Vec<u8>>>,
    /// It is whole, and may take its name.
    whole: AtomicBool,
    /// What its recovered parts are called.
    salvage: Mutex<Option<Vec<u8>>>,
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
    withheld: Mutex<HashMap<u32, String>>,
    /// The first failure that is no damage: it ends the restore.
    failure: Mutex<Option<EngineError>>,
    chunks_needed: AtomicU64,
    reads: AtomicU64,
    files_done: AtomicU64,
    bytes_done: AtomicU64,
    bytes_written: AtomicU64,
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
        withheld: Mutex::default(),
        failure: Mutex::default(),
        chunks_needed: AtomicU64::new(0),
        reads: AtomicU64::new(0),
        files_done: AtomicU64::new(0),
        bytes_done: AtomicU64::new(0),
        bytes_written: AtomicU64::new(0),
    };
    let lost = batch.files.iter().enumerate().filter_map(|(number, file)| {
        // A batch is bounded.
        file.lost.clone().map(|why| (number as u32, why))
    });
    lock(&shared.damaged).extend(lost);
    let withheld = batch.files.iter().zip(0_u32..);
    let withheld = withheld.filter_map(|(file, number)| Some((number, file.withheld.clone()?)));
    lock(&shared.withheld).extend(withheld);
    shared.go_on();
    let done = shared.make(monitor, cancel, progress);
    if done.is_err() {
        shared.discard(|_| true);
    }
    done?;
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
            closed: Mutex::default(),
            temporary: Mutex::default(),
            whole: AtomicBool::new(false),
            salvage: Mutex::default(),
            damaged: AtomicBool::new(file.lost.is_some()),
            failed: AtomicBool::new(file.withheld.is_some()),
        }
    }
}

impl<'b> Shared<'b> {
    /// Takes up the file that began in the batch before.
    fn go_on(&self) {
        if let (Some(begun), Some(state)) = (&self.batch.begun, self.states.first()) {
            state.begun.store(begun.opened.is_some(), Ordering::Relaxed);
            lock(&state.closed).clone_from(&begun.opened);
            state.failed.fetch_or(begun.failed, Ordering::Relaxed);
            lock(&state.temporary).clone_from(&begun.temporary);
            if let Some(why) = &begun.damaged {
                state.damaged.store(true, Ordering::Relaxed);
                lock(&self.damaged).insert(0, why.clone());
            }
            lock(&self.withheld).extend(begun.withheld.clone().map(|why| (0, why)));
        }
    }

    /// Makes the files, and lets those that are whole take their names.
    fn make(
        &self,
        monitor: &dyn Monitor,
        cancel: &Cancel,
        progress: &Progress,
    ) -> Result<(), EngineError> {
        let wanted = self.use_what_exists(cancel)?;
        self.write(&wanted, monitor, cancel, progress)?;
        if self.options.verify {
            self.verify(cancel)?;
        }
        self.replace_what_exists()
    }

    /// Renames the files that are whole, once they are on the disk: a loss of power leaves the one
    /// that exists or the one that replaces it.
    fn replace_what_exists(&self) -> Result<(), EngineError> {
        let is_whole = |number: &usize| {
            let state = &self.states[*number];
            state.whole.load(Ordering::Relaxed) && !state.failed.load(Ordering::Relaxed)
        };
        let whole: Vec<usize> = (0..self.states.len()).filter(is_whole).collect();
        if !whole.is_empty() {
            self.target.sync()?;
        }
        for number in whole {
            let file = &self.batch.files[number];
            let temporary = lock(&self.states[number].temporary).take();
            if let Some(temporary) = temporary {
                let renamed = self.target.rename(file.directory, &temporary, &file.name);
                if !self.check(number as u32, renamed) {
                    *lock(&self.states[number].temporary) = Some(temporary);
                }
            }
        }
        self.discard(|file| file.is_last);
        // The last file, if its rest comes with the next batch.
        let unfinished = self.batch.files.iter().rposition(|file| !file.is_last);
        unfinished.into_iter().for_each(|number| self.close(number as u32));
        Ok(())
    }

    /// Removes the temporary files that will take no name.
    fn discard(&self, is_done: impl Fn(&BatchFile) -> bool) {
        for (file, state) in self.batch.files.iter().zip(&self.states) {
            let temporary = lock(&state.temporary).take_if(|_| is_done(file));
            if let Some(temporary) = temporary
                && let Err(error) = self.target.remove(file.directory, &temporary)
            {
                lock(&self.problems).push(error);
            }
        }
    }

    /// The name that a file has at the moment.
    fn name_now(&self, number: usize) -> Vec<u8> {
        let temporary = lock(&self.states[number].temporary).clone();
        temporary.unwrap_or_else(|| self.batch.files[number].name.clone())
    }

    /// Reads and writes on several threads, run by run, mostly in the order in which they
    /// lie.
    fn write(
        &self,
        wanted: &[&'b Want],
        monitor: &dyn Monitor,
        cancel: &Cancel,
        progress: &Progress,
    ) -> Result<(), EngineError> {
        let workers = match self.reader.sends_parts() {
            true => self.options.workers.max(self.reader.requests_in_flight().min(FAR_WORKERS_MAX)),
            false => WHOLE_WORKERS,
        };
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
            let mut give = |run| {
                let mut now = progress.clone();
                now.files += self.files_done.load(Ordering::Relaxed);
                now.bytes += self.bytes_done.load(Ordering::Relaxed);
                now.bytes_new += self.bytes_written.load(Ordering::Relaxed);
                monitor.progress(&now);
                send.send(run).expect("workers take runs until there are no more");
                cancel.check()?;
                // Nothing more is fetched once it failed.
                lock(&self.failure).take().map_or(Ok(()), Err)
            };
            let placed = needs::place(wanted, self.reader, cancel, &mut |placed| {
                self.plan_runs(placed, &mut give)
            });
            let planned = placed.and_then(|placed| self.plan_runs(placed, &mut give));
            drop(send);
            planned
        })?;
        lock(&self.failure).take().map_or(Ok(()), Err)?;
        // Workers leave what they find once it was stopped.
        Ok(cancel.check()?)
    }

    /// Writes a chunk that is not where the recipe says.
    fn write_from_elsewhere(&self, want: &Want) {
        match self.reader.read_data(&want.chunk()) {
            Ok(bytes) => self.write_stretch(&Stretch::of(want, Cow::Owned(bytes))),
            Err(error) if error.is_withheld() => self.leave_out(want, error.to_string()),
            Err(error) if !error.is_damage() => {
                lock(&self.failure).get_or_insert(error.into());
            }
            Err(error) => self.lose(want, error.to_string()),
        }
    }

    /// Leaves a file out of which the place withholds a chunk: nothing is known to be lost, so the next
    /// restore may bring all of it.
    fn leave_out(&self, want: &Want, why: String) {
        if !self.states[want.file as usize].failed.swap(true, Ordering::Relaxed) {
            lock(&self.withheld).insert(want.file, why);
        }
        self.count_down(want.file, 1);
    }

    /// Notes that a chunk is lost.
    fn lose(&self, want: &Want, why: String) {
        self.states[want.file as usize].damaged.store(true, Ordering::Relaxed);
        lock(&self.damaged).entry(want.file).or_insert(why);
        self.count_down(want.file, 1);
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

    /// Counts chunks of a file that are dealt with.
    fn count_down(&self, number: u32, chunks: u32) {
        let remained = self.states[number as usize].remaining.fetch_sub(chunks, Ordering::AcqRel);
        if remained == chunks {
            self.finish(number);
        }
    }

    /// The file, opened if need be. None if that failed, which was reported then.
    fn open(&self, number: u32) -> Option<Arc<TargetFile>> {
        let state = &self.states[number as usize];
        if state.failed.load(Ordering::Relaxed) {
            return None;
        }
        let mut handle = lock(&state.handle);
        if let Some(file) = &*handle {
            return Some(file.clone());
        }
        // Another thread may have failed to open it meanwhile.
        if state.failed.load(Ordering::Relaxed) {
            return None;
        }
        let file = &self.batch.files[number as usize];
        let mut closed = lock(&state.closed);
        let opened = match &*closed {
            None => self.begin(file, &state.temporary),
            Some(begun) => {
                let (directory, size) = (file.directory, file.metadata.size);
                let name = self.name_now(number as usize);
                self.target.reopen_file(directory, &name, &file.name, begun, size)
            }
        };
        let opened = match opened {
            Ok(opened) => Arc::new(opened),
            Err(error) => {
                if let TargetError::Meddled { .. } = error {
                    // What has the name now is not this restore's to remove.
                    state.begun.store(false, Ordering::Relaxed);
                    *closed = None;
                }
                self.check(number, Err(error));
                drop((closed, handle));
                return None;
            }
        };
        state.begun.store(true, Ordering::Relaxed);
        drop(closed);
        *handle = Some(opened.clone());
        drop(handle);
        let pushed_out = lock(&self.open).push(number, ());
        if let Some((other, ())) = pushed_out.filter(|(other, ())| *other != number) {
            self.close(other);
        }
        Some(opened)
    }

    /// Closes a file of which more is to be written.
    fn close(&self, number: u32) {
        let state = &self.states[number as usize];
        let mut handle = lock(&state.handle);
        if let Some(file) = handle.take() {
            let closed = file.begun().map(|begun| *lock(&state.closed) = Some(begun));
            // Who finishes the file waits for the handle, and is the last to have it then.
            drop(file);
            drop(handle);
            self.check(number, closed);
        }
    }

    /// Opens a file for the first time.
    fn begin(
        &self,
        file: &BatchFile,
        temporary: &Mutex<Option<Vec<u8>>>,
    ) -> Result<TargetFile, TargetError> {
        let (directory, name, size) = (file.directory, &file.name, file.metadata.size);
        match file.making {
            Making::Fresh => self.target.create_file(directory, name, size),
            Making::Patch => self.target.open_file_for_write(directory, name, size),
            Making::Beside => {
                let (name, opened) = self.target.create_temporary(directory, name, size)?;
                *lock(temporary) = Some(name);
                Ok(opened)
            }
        }
    }

    /// Puts the metadata of a file back, which has all its content.
    fn finish(&self, number: u32) {
        let state = &self.states[number as usize];
        let file = &self.batch.files[number as usize];
        if !file.is_last {
            return;
        }
        self.files_done.fetch_add(1, Ordering::Relaxed);
        let Some(handle) = self.open(number) else { return self.remove_torn(number, file) };
        lock(&self.open).pop(&number);
        *lock(&state.handle) = None;
        if state.damaged.load(Ordering::Relaxed) {
            self.check(number, handle.reach_size());
            if file.making != Making::Patch {
                self.set_aside(number, file);
            }
            return;
        }
        // Its end may be a hole for which there is no room.
        if !self.check(number, handle.reach_size()) {
            drop(handle);
            return self.remove_torn(number, file);
        }
        // The last one to hold the file is here: all its chunks were counted down.
        let Some(handle) = Arc::into_inner(handle) else {
            let path = self.target.path_of(file.directory, &file.name);
            self.check(number, Err(TargetError::StillOpen { path }));
            return;
        };
        lock(&self.problems).extend(self.target.finish_file(handle, &file.metadata));
        state.whole.store(file.making == Making::Beside, Ordering::Relaxed);
    }

    /// Removes a new file that could not be written to its end: its name says that it is whole.
    fn remove_torn(&self, number: u32, file: &BatchFile) {
        let state = &self.states[number as usize];
        *lock(&state.handle) = None;
        let is_ours = state.begun.load(Ordering::Relaxed) && file.making == Making::Fresh;
        if is_ours && let Err(error) = self.target.remove(file.directory, &file.name) {
            lock(&self.problems).push(error);
        }
    }

    /// Gives the recovered parts of a file a name that is free.
    fn set_aside(&self, number: u32, file: &BatchFile) {
        let state = &self.states[number as usize];
        let name = self.name_now(number as usize);
        for salvage in damaged_names(&file.name) {
            match self.target.rename_to_free(file.directory, &name, &salvage) {
                Ok(false) => {}
                Ok(true) => {
                    *lock(&state.temporary) = None;
                    *lock(&state.salvage) = Some(salvage);
                    return;
                }
                Err(error) => {
                    self.check(number, Err(error));
                    return;
                }
            }
        }
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
        let reasons = std::mem::take(&mut *lock(&self.damaged));
        let files = || self.batch.files.iter().zip(&self.states).zip(0_u32..);
        let withheld_reasons = std::mem::take(&mut *lock(&self.withheld));
        let (mut damaged, mut withheld) = (Vec::new(), Vec::new());
        let mut not_back = HashMap::new();
        for ((file, state), number) in files().filter(|((file, _), _)| file.is_last) {
            let path_of = |name: &[u8]| self.target.path_of(file.directory, name);
            let salvage = lock(&state.salvage).clone();
            let why_not = if let Some(why) = reasons.get(&number).cloned() {
                let (path, kept) = (path_of(&file.name), salvage.as_deref().map(path_of));
                damaged.push(Damaged { path, why, salvage: kept, making: file.making });
                NotBack::Damaged(salvage)
            } else if let Some(why) = withheld_reasons.get(&number) {
                withheld.push((path_of(&file.name), why.clone()));
                NotBack::Withheld(why.clone())
            } else if state.failed.load(Ordering::Relaxed) {
                NotBack::Failed
            } else {
                continue;
            };
            if file.metadata.links > 1 {
                not_back.insert((file.directory, file.name.clone()), why_not);
            }
        }
        damaged.sort_by(|one, other| one.path.cmp(&other.path));
        withheld.sort();
        let unfinished = files().find(|((file, _), _)| !file.is_last);
        let unfinished = unfinished.map(|((file, state), number)| Unfinished {
            directory: Some(file.directory),
            temporary: lock(&state.temporary).clone(),
            damaged: reasons.get(&number).cloned(),
            withheld: withheld_reasons.get(&number).cloned(),
            opened: lock(&state.closed).clone(),
            failed: state.failed.load(Ordering::Relaxed),
        });
        let has_failed = |state: &FileState| state.failed.load(Ordering::Relaxed);
        let failed = files().filter(|((file, state), _)| file.is_last && has_failed(state)).count();
        Written {
            withheld,
            damaged,
            not_back,
            unfinished,
            failed: failed as u64,
            bytes_written: self.bytes_written.into_inner(),
            chunks_needed: self.chunks_needed.into_inner(),
            reads: self.reads.into_inner(),
            problems: self.problems.into_inner().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// What the recovered parts of a file may be called, the first that is free; a long name is cut to
/// make room.
pub fn damaged_names(name: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (1_u32..).map(move |number| {
        let mark = match number {
            1 => ".damaged".to_owned(),
            _ => format!(".damaged.{number}"),
        };
        let room = (FILE_NAME_BYTES_MAX - mark.len()).min(name.len());
        [&name[..room], mark.as_bytes()].concat()
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
