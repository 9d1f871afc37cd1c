//! Reading a disk: threads read segments ahead, cut them and name their chunks; the caller takes the
//! pieces in the order of the disk.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use strongroom_base::{Cancel, Cancelled, Stopwatch};
use strongroom_catalog::ChunkRef;
use strongroom_disk::{Image, ReadAt, gives_nothing};
use strongroom_repository::{
    ChunkReader, PIECE_BYTES, Piece, Stage, StageTimes, StreamCutter, send,
};

use super::plan::{Content, Segment};
use super::unchanged::Patched;
use crate::error::EngineError;

/// A thread is given about this many bytes at a time, and at most this many segments.
const JOB_BYTES: u64 = 4 << 20;
const JOB_SEGMENTS: usize = 1024;
/// What belongs to no file is cut into windows at multiples of this, so that it fits into memory.
const WINDOW_BYTES: u64 = 8 << 20;
/// The unit in which zeros are looked for, and in which a part that cannot be read is lost.
const PAGE_BYTES: usize = 4096;
/// A run of at least this many pages of zeros is a hole.
const HOLE_PAGES: usize = 16;
/// What is read at once where segments are short.
const AHEAD_BYTES: usize = 1 << 20;
/// Each time that this much more of a disk is lost, some places of it are read: is there still a disk?
const LOST_BYTES: u64 = 64 << 20;
/// Lots of cuts of a job that wait to be taken.
const WAITING_MAX: usize = 2;

/// What was found on a disk, in its order.
pub enum Cut {
    /// Chunks of a segment, from this byte of the disk on.
    Data {
        /// Where they begin.
        start: u64,
        /// The segment.
        segment: Segment,
        /// The chunks.
        piece: Piece,
    },
    /// Zeros that are not stored.
    Zeros {
        /// How many.
        bytes: u64,
    },
    /// A chunk of the parent that is kept.
    Kept(ChunkRef),
    /// A part that was not written, as the disk said, and differs from the parent.
    Denied {
        /// The part.
        range: Range<u64>,
    },
    /// The disk is lost as a whole.
    Broken {
        /// Why.
        why: String,
    },
    /// A part that cannot be read. Zeros are in its place.
    Unreadable {
        /// The part.
        range: Range<u64>,
        /// Why.
        why: String,
    },
    /// A part of the sample that cannot be read. The parent's chunk is kept.
    Unsampled {
        /// The part.
        range: Range<u64>,
        /// Why.
        why: String,
    },
}

/// What a thread needs to read.
#[derive(Clone)]
pub struct Cutting<'d> {
    /// The disk.
    pub disk: &'d Patched<'d>,
    /// Cuts files.
    pub files: StreamCutter,
    /// Cuts everything else.
    pub others: StreamCutter,
    /// Knows the chunks of the parent.
    pub reader: &'d ChunkReader,
    /// The request to stop.
    pub cancel: &'d Cancel,
    /// Where the time goes.
    pub times: Arc<StageTimes>,
    /// Bytes of the disk that could not be read so far.
    pub lost: Arc<AtomicU64>,
}

/// Segments for one thread.
struct Job {
    segments: Vec<Segment>,
    cuts: Sender<Vec<Cut>>,
}

/// Reads the segments of a disk on this many threads, and gives what is found in the order of the disk.
///
/// # Errors
///
/// Those of `take`, and a request to stop.
pub fn cut_disk(
    cutting: &Cutting<'_>,
    mut plan: impl Iterator<Item = Segment>,
    threads: usize,
    take: &mut dyn FnMut(Cut) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let ahead = threads + 2;
    let (give, jobs) = bounded::<Job>(ahead);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let jobs = jobs.clone();
            scope.spawn(move || jobs.iter().for_each(|job| run(cutting, &job)));
        }
        drop(jobs);
        // Dropped at the end of this, so that the threads end.
        let give = give;
        let mut waiting: VecDeque<Receiver<Vec<Cut>>> = VecDeque::new();
        loop {
            while waiting.len() < ahead
                && let Some(segments) = next_job(&mut plan)
            {
                let (cuts, receiver) = bounded(WAITING_MAX);
                give.send(Job { segments, cuts }).expect("threads take jobs until there are none");
                waiting.push_back(receiver);
            }
            let Some(next) = waiting.pop_front() else { break };
            while let Ok(cuts) = cutting.times.receive(&next) {
                cuts.into_iter().try_for_each(&mut *take)?;
            }
            // A thread that was stopped gives no more.
            cutting.cancel.check()?;
        }
        match cutting.lost.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => why_gone(cutting.disk.image()).map_or(Ok(()), |why| take(Cut::Broken { why })),
        }
    })
}

/// Why none of a disk can be read, if that is so: it is gone, or a snapshot of it has overflowed.
fn why_gone(disk: &dyn Image) -> Option<String> {
    let error = gives_nothing(disk.size(), &|at, buffer| disk.read_at(at, buffer))?;
    Some(format!("none of it can be read any more: {error}"))
}

fn next_job(plan: &mut impl Iterator<Item = Segment>) -> Option<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut bytes = 0;
    while bytes < JOB_BYTES
        && segments.len() < JOB_SEGMENTS
        && let Some(segment) = plan.next()
    {
        if segment.content.is_read() {
            bytes += segment.bytes;
        }
        segments.push(segment);
    }
    (!segments.is_empty()).then_some(segments)
}

fn run(cutting: &Cutting<'_>, job: &Job) {
    let begun = Stopwatch::start();
    let mut hand = Hand {
        cutting,
        cuts: &job.cuts,
        held: Vec::new(),
        held_bytes: 0,
        waited: Duration::ZERO,
        ahead: Ahead::default(),
    };
    // An error means that the caller takes no more, or that the backup was stopped.
    let _ = hand.job(&job.segments);
    cutting.times.add(Stage::Read, begun.elapsed().saturating_sub(hand.waited));
}

/// A thread at work on a job.
struct Hand<'h, 'd> {
    cutting: &'h Cutting<'d>,
    cuts: &'h Sender<Vec<Cut>>,
    held: Vec<Cut>,
    held_bytes: u64,
    waited: Duration,
    ahead: Ahead,
}

/// What was read ahead: short segments lie side by side.
#[derive(Default)]
struct Ahead {
    bytes: Vec<u8>,
    start: u64,
    /// Up to where the disk may be read: behind it is what counts as zeros, or another's job.
    until: u64,
}

impl Hand<'_, '_> {
    fn job(&mut self, segments: &[Segment]) -> Result<(), EngineError> {
        for (number, segment) in segments.iter().enumerate() {
            self.cutting.cancel.check()?;
            if segment.start >= self.ahead.until {
                let is_read = |segment: &&Segment| segment.content.is_read();
                let run = segments[number..].iter().take_while(is_read);
                self.ahead.until = segment.start + run.map(|segment| segment.bytes).sum::<u64>();
            }
            match segment.content {
                Content::Zeros => self.give(Cut::Zeros { bytes: segment.bytes }, 0)?,
                Content::Kept { chunk, is_sampled } => self.kept(*segment, chunk, is_sampled)?,
                Content::File(..) => self.file(*segment)?,
                Content::Other => self.other(*segment)?,
            }
        }
        self.hand_on()
    }

    /// Keeps a chunk of the parent; compares it with the disk first if it is in the sample.
    fn kept(
        &mut self,
        segment: Segment,
        chunk: ChunkRef,
        is_sampled: bool,
    ) -> Result<(), EngineError> {
        if is_sampled {
            let mut bytes = vec![0; usize::try_from(segment.bytes).expect("a chunk is short")];
            match self.cutting.disk.image().read_at(segment.start, &mut bytes) {
                Ok(()) => {
                    let fingerprint = self.cutting.files.fingerprint(&bytes);
                    if !self.cutting.reader.may_be(&chunk, &fingerprint)? {
                        return self.give(Cut::Denied { range: segment.range() }, 0);
                    }
                }
                Err(error) => {
                    self.check_disk()?;
                    let (range, why) = (segment.range(), error.to_string());
                    self.give(Cut::Unsampled { range, why }, 0)?;
                }
            }
        }
        self.give(Cut::Kept(chunk), 0)
    }

    /// After a read that failed: is there still a disk?
    fn check_disk(&mut self) -> Result<(), EngineError> {
        match self.cutting.disk.broken() {
            Some(why) => self.give(Cut::Broken { why }, 0),
            None => Ok(()),
        }
    }

    /// Cuts a part of a file, however long it is.
    fn file(&mut self, segment: Segment) -> Result<(), EngineError> {
        let cutting = self.cutting;
        let (mut read_to, mut given_to) = (segment.start, segment.start);
        let end = segment.start + segment.bytes;
        // Both closures need the hand.
        let hand = std::cell::RefCell::new(self);
        let mut read = |buffer: &mut [u8]| {
            cutting.cancel.check()?;
            let bytes = buffer.len().min(usize::try_from(end - read_to).unwrap_or(usize::MAX));
            hand.borrow_mut().read(read_to, &mut buffer[..bytes])?;
            read_to += bytes as u64;
            Ok::<_, EngineError>((bytes, read_to == end))
        };
        let mut give = |piece: Piece| {
            let start = given_to;
            let bytes = piece.bytes();
            given_to += bytes;
            hand.borrow_mut().give(Cut::Data { start, segment, piece }, bytes)
        };
        cutting.files.cut(segment.bytes, &mut read, &mut give)
    }

    /// Cuts what belongs to no file, window by window, and leaves out runs of zeros.
    fn other(&mut self, segment: Segment) -> Result<(), EngineError> {
        let (mut at, end) = (segment.start, segment.start + segment.bytes);
        let mut window = Vec::new();
        while at < end {
            self.cutting.cancel.check()?;
            let until = (at / WINDOW_BYTES + 1) * WINDOW_BYTES;
            let bytes = until.min(end) - at;
            window.resize(usize::try_from(bytes).expect("a window fits into memory"), 0);
            self.read(at, &mut window)?;
            for run in runs(&window) {
                let start = at + run.range.start as u64;
                if run.is_zeros {
                    self.give(Cut::Zeros { bytes: run.range.len() as u64 }, 0)?;
                } else {
                    self.run(start, segment, &window[run.range])?;
                }
            }
            at += bytes;
        }
        Ok(())
    }

    fn run(&mut self, start: u64, segment: Segment, bytes: &[u8]) -> Result<(), EngineError> {
        let (mut taken, mut given) = (0, start);
        let mut read = |buffer: &mut [u8]| {
            let count = buffer.len().min(bytes.len() - taken);
            buffer[..count].copy_from_slice(&bytes[taken..taken + count]);
            taken += count;
            Ok::<_, EngineError>((count, taken == bytes.len()))
        };
        let cutter = &self.cutting.others;
        cutter.cut(bytes.len() as u64, &mut read, &mut |piece: Piece| {
            let (start, bytes) = (given, piece.bytes());
            given += bytes;
            self.give(Cut::Data { start, segment, piece }, bytes)
        })
    }

    /// Reads a part of the disk. What cannot be read is zeros, and reported.
    fn read(&mut self, start: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        if self.ahead.take(self.cutting.disk, start, buffer)
            || self.cutting.disk.read_at(start, buffer).is_ok()
        {
            return Ok(());
        }
        self.check_disk()?;
        let mut lost: Option<(Range<u64>, String)> = None;
        for (number, page) in buffer.chunks_mut(PAGE_BYTES).enumerate() {
            self.cutting.cancel.check()?;
            let at = start + (number * PAGE_BYTES) as u64;
            let end = at + page.len() as u64;
            let Err(error) = self.cutting.disk.read_at(at, page) else { continue };
            page.fill(0);
            self.count_lost(page.len() as u64)?;
            match &mut lost {
                Some((range, _)) if range.end == at => range.end = end,
                _ => {
                    let before = lost.replace((at..end, error.to_string()));
                    self.lose(before)?;
                }
            }
        }
        self.lose(lost)
    }

    /// Counts what is lost. Zeros in place of a whole disk are no backup of it.
    fn count_lost(&mut self, bytes: u64) -> Result<(), EngineError> {
        let before = self.cutting.lost.fetch_add(bytes, Ordering::Relaxed);
        if before / LOST_BYTES == (before + bytes) / LOST_BYTES {
            return Ok(());
        }
        match why_gone(self.cutting.disk.image()) {
            Some(why) => {
                self.give(Cut::Broken { why }, 0)?;
                self.hand_on()
            }
            None => Ok(()),
        }
    }

    fn lose(&mut self, lost: Option<(Range<u64>, String)>) -> Result<(), EngineError> {
        lost.map_or(Ok(()), |(range, why)| self.give(Cut::Unreadable { range, why }, 0))
    }

    fn give(&mut self, cut: Cut, bytes: u64) -> Result<(), EngineError> {
        self.held.push(cut);
        self.held_bytes += bytes;
        let is_much = self.held_bytes >= PIECE_BYTES as u64 || self.held.len() >= JOB_SEGMENTS;
        if is_much { self.hand_on() } else { Ok(()) }
    }

    fn hand_on(&mut self) -> Result<(), EngineError> {
        self.held_bytes = 0;
        let (sent, waited) = send(self.cuts, std::mem::take(&mut self.held));
        self.waited += waited;
        sent.map_err(|_| Cancelled.into())
    }
}

impl Ahead {
    /// Takes a short part out of what was read ahead, or reads ahead for it. Returns false if that
    /// is of no use.
    fn take(&mut self, disk: &dyn ReadAt, start: u64, buffer: &mut [u8]) -> bool {
        let end = start + buffer.len() as u64;
        let has =
            |ahead: &Self| start >= ahead.start && end <= ahead.start + ahead.bytes.len() as u64;
        if !has(self) {
            let room = usize::try_from(self.until.saturating_sub(start)).unwrap_or(usize::MAX);
            let bytes = room.min(AHEAD_BYTES);
            if buffer.len() >= bytes {
                return false;
            }
            self.bytes.resize(bytes, 0);
            self.start = start;
            if disk.read_at(start, &mut self.bytes).is_err() {
                self.bytes.clear();
                return false;
            }
        }
        let from = (start - self.start) as usize;
        buffer.copy_from_slice(&self.bytes[from..from + buffer.len()]);
        true
    }
}

/// A run of zeros, or of what is between two of them.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    range: Range<usize>,
    is_zeros: bool,
}

/// The runs of a window. A few zeros are part of what is around them; a window of nothing else is
/// zeros, however short it is.
fn runs(window: &[u8]) -> Vec<Run> {
    let is_zeros = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    if is_zeros(window) {
        return vec![Run { range: 0..window.len(), is_zeros: true }];
    }
    let mut runs = Vec::new();
    // Where what is no hole begins, and where the zeros at hand begin.
    let (mut begun, mut zeros) = (0, None);
    let mut at = 0;
    for page in window.chunks(PAGE_BYTES).chain([&[1][..]]) {
        if is_zeros(page) {
            zeros.get_or_insert(at);
        } else if let Some(from) = zeros.take().filter(|from| at - from >= HOLE_PAGES * PAGE_BYTES)
        {
            if from > begun {
                runs.push(Run { range: begun..from, is_zeros: false });
            }
            runs.push(Run { range: from..at, is_zeros: true });
            begun = at;
        }
        at = (at + page.len()).min(window.len());
    }
    if begun < window.len() {
        runs.push(Run { range: begun..window.len(), is_zeros: false });
    }
    runs
}

#[cfg(test)]
mod tests {
    use strongroom_testkit::Random;

    use super::*;

    #[test]
    fn runs_are_the_window_and_zeros_are_zeros() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut window = Vec::new();
            for _ in 0..random.below(6) {
                let bytes = random.below(30) as usize * PAGE_BYTES + random.below(2) as usize * 77;
                match random.once_in(2) {
                    true => window.resize(window.len() + bytes, 0),
                    false => window.extend(random.noise(bytes)),
                }
            }
            let mut at = 0;
            for run in runs(&window) {
                assert_eq!(run.range.start, at, "seed {seed}");
                at = run.range.end;
                let zeros = window[run.range.clone()].iter().all(|byte| *byte == 0);
                assert!(!run.is_zeros || zeros, "seed {seed}");
                assert!(run.is_zeros || run.range.len() % PAGE_BYTES == 0 || at == window.len());
            }
            assert_eq!(at, window.len(), "seed {seed}");
        }
        let mut window = vec![0; HOLE_PAGES * PAGE_BYTES];
        window.push(1);
        let hole = Run { range: 0..HOLE_PAGES * PAGE_BYTES, is_zeros: true };
        assert_eq!(runs(&window)[0], hole);
        assert_eq!(runs(&window[PAGE_BYTES..]).len(), 1, "too few zeros for a hole");
    }
}
