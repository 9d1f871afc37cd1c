//! Reading files ahead: while the chunks of one file are stored, those of the next are opened,
//! read, cut and named by other threads.
//!
//! Files are begun in the order of the walk and taken in that order. Each has a channel of its own
//! with room for a few pieces, so a long file waits for the caller to take it, and never for a file
//! behind it. The caller bounds what is being read ([`AHEAD_FILES`], and the bytes of
//! them).

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use strongroom_base::{Cancel, Cancelled, Stopwatch};
use strongroom_catalog::Metadata;
use strongroom_repository::{Crew, PIECE_BYTES, Piece, Stage, StageTimes, StreamCutter, send};
use strongroom_source::{EntryHandle, FileChange, SourceError, SourceFile};

use crate::error::EngineError;

/// Files that are being read at most. Each holds its directory open.
pub const AHEAD_FILES: usize = 128;
/// A file of unknown length has at most this many bytes: a stream without an end is no file.
const UNKNOWN_BYTES_MAX: u64 = 16 << 30;
/// Pieces of one file that wait to be taken, beside the one at hand.
const WAITING_MAX: usize = 2;

/// What becomes known of a file, in this order: opened, then data and holes, then the end.
#[derive(Debug)]
pub enum Reading {
    /// It is open.
    Opened {
        /// What it was then, with its extended attributes.
        metadata: Box<Metadata>,
        /// Why the extended attributes are missing, if they are.
        problem: Option<SourceError>,
    },
    /// Chunks of its content.
    Data(Piece),
    /// A hole of this many bytes.
    Hole(u64),
    /// It was read as far as it goes.
    End {
        /// What became of it meanwhile.
        change: Result<Option<FileChange>, SourceError>,
        /// Whether it ended before the size that it had when it was opened.
        is_short: bool,
    },
    /// It cannot be read, or not to its end.
    Failed(SourceError),
}

/// A file being read. If the channel closes before [`Reading::End`], reading was stopped.
#[derive(Debug)]
pub struct FileAhead {
    /// What is known so far, some at a time: of a short file all at once.
    pub readings: Receiver<Vec<Reading>>,
    /// What it counts against the bound.
    pub bytes: usize,
}

struct Job {
    file: EntryHandle,
    readings: Sender<Vec<Reading>>,
}

/// What a thread needs to read files.
#[derive(Clone)]
struct Reader {
    cutter: StreamCutter,
    cancel: Cancel,
    times: Arc<StageTimes>,
}

impl Reader {
    fn read(&self, job: &Job) {
        let begun = Stopwatch::start();
        let mut give = Give { readings: &job.readings, held: Vec::new(), waited: Duration::ZERO };
        // An error means that no one takes the file any more, or that the backup was stopped.
        let _ = read_file(&job.file, &self.cutter, &self.cancel, &mut give);
        self.times.add(Stage::Read, begun.elapsed().saturating_sub(give.waited));
    }
}

/// Threads that read.
pub struct Readers {
    jobs: Sender<Job>,
    reader: Reader,
    /// Last: the queue closes first. Files that no one has taken are given up: their channels are
    /// closed by now.
    _crew: Crew,
}

impl Readers {
    /// Starts the threads.
    pub fn start(
        count: usize,
        cutter: &StreamCutter,
        cancel: &Cancel,
        times: &Arc<StageTimes>,
    ) -> Self {
        let reader =
            Reader { cutter: cutter.clone(), cancel: cancel.clone(), times: times.clone() };
        // The caller keeps to the bound.
        let (jobs, queue) = unbounded::<Job>();
        let mut crew = Crew::default();
        for _ in 0..count.max(1) {
            let (queue, reader) = (queue.clone(), reader.clone());
            crew.start(move || queue.iter().for_each(|job| reader.read(&job)));
        }
        Self { jobs, reader, _crew: crew }
    }

    /// Begins a file that has about this many bytes.
    pub fn begin(&self, file: EntryHandle, bytes: u64) -> FileAhead {
        let (send, readings) = bounded(WAITING_MAX);
        self.jobs.send(Job { file, readings: send }).expect("readers live as long as their queue");
        let most = PIECE_BYTES * (WAITING_MAX + 1);
        FileAhead { readings, bytes: usize::try_from(bytes).unwrap_or(usize::MAX).min(most) }
    }

    /// Reads a file that is wanted before those that were begun, while `take` takes it. The
    /// threads cannot: each may be waiting for the caller to take what it has.
    pub fn read_at_once<T>(&self, file: EntryHandle, take: impl FnOnce(&FileAhead) -> T) -> T {
        let (send, readings) = bounded(WAITING_MAX);
        let job = Job { file, readings: send };
        std::thread::scope(|scope| {
            scope.spawn(move || self.reader.read(&job));
            let ahead = FileAhead { readings, bytes: 0 };
            // Dropped when it was taken, so that the thread never waits for it.
            take(&ahead)
        })
    }
}

/// Sends readings; the time that it waits for room is not counted as reading.
struct Give<'g> {
    readings: &'g Sender<Vec<Reading>>,
    /// Kept to be sent with what follows it: one piece at most.
    held: Vec<Reading>,
    waited: Duration,
}

impl Give<'_> {
    fn give(&mut self, reading: Reading) -> Result<(), EngineError> {
        let is_last = matches!(reading, Reading::End { .. } | Reading::Failed(_));
        if matches!(reading, Reading::Data(_))
            && self.held.iter().any(|held| matches!(held, Reading::Data(_)))
        {
            self.hand_on()?;
        }
        self.held.push(reading);
        if is_last { self.hand_on() } else { Ok(()) }
    }

    fn hand_on(&mut self) -> Result<(), EngineError> {
        let (sent, waited) = send(self.readings, std::mem::take(&mut self.held));
        self.waited += waited;
        sent.map_err(|_| Cancelled.into())
    }
}

fn read_file(
    handle: &EntryHandle,
    cutter: &StreamCutter,
    cancel: &Cancel,
    give: &mut Give<'_>,
) -> Result<(), EngineError> {
    cancel.check()?;
    let file = match handle.open_file_when_free(cancel) {
        Ok(file) => file,
        Err(error) => return give.give(Reading::Failed(error)),
    };
    let mut metadata = Box::new(file.metadata().clone());
    let read = handle.xattrs_of(&file);
    metadata.xattrs = read.xattrs;
    give.give(Reading::Opened { metadata, problem: read.problem })?;
    match read_content(&file, cutter, cancel, give) {
        Ok(is_short) => give.give(Reading::End { change: file.change(), is_short }),
        Err(EngineError::Source(error)) => give.give(Reading::Failed(error)),
        Err(stopped) => Err(stopped),
    }
}

/// Reads a file and returns whether it is shorter than it was said to be.
fn read_content(
    file: &SourceFile,
    cutter: &StreamCutter,
    cancel: &Cancel,
    give: &mut Give<'_>,
) -> Result<bool, EngineError> {
    if file.has_unknown_size() {
        return read_to_end(file, cutter, cancel, give).map(|()| false);
    }
    let mut at = 0;
    for extent in file.extents() {
        let extent = extent?;
        if extent.offset > at {
            give.give(Reading::Hole(extent.offset - at))?;
            at = extent.offset;
        }
        let end = extent.offset + extent.bytes;
        let mut read = |buffer: &mut [u8]| {
            cancel.check()?;
            let length = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let count = file.read_at(at, &mut buffer[..length])?;
            at += count as u64;
            Ok((count, at == end || count < length))
        };
        cutter.cut(extent.bytes, &mut read, &mut |piece| give.give(Reading::Data(piece)))?;
        if at < end {
            // Truncated while it was read, or its file system does not know better: it ends here.
            return Ok(true);
        }
    }
    if at < file.size() {
        give.give(Reading::Hole(file.size() - at))?;
    }
    Ok(false)
}

/// Reads a file whose length no one says.
fn read_to_end(
    file: &SourceFile,
    cutter: &StreamCutter,
    cancel: &Cancel,
    give: &mut Give<'_>,
) -> Result<(), EngineError> {
    let mut at = 0;
    let mut read = |buffer: &mut [u8]| {
        cancel.check()?;
        let count = file.read_at(at, buffer)?;
        at += count as u64;
        if at > UNKNOWN_BYTES_MAX {
            return Err(SourceError::Endless { path: file.path().to_owned(), bytes: at }.into());
        }
        Ok((count, count < buffer.len()))
    };
    cutter.cut(u64::MAX, &mut read, &mut |piece| give.give(Reading::Data(piece)))
}
