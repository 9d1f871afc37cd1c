//! Reading a region on threads: each chunk is compared with what its marks were. The caller takes what
//! was found in the order of the region.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use crossbeam_channel::{Receiver, Sender, bounded};
use strongroom_base::{Cancel, Fingerprint};
use strongroom_repository::{ChunkReader, StreamCutter};
use strongroom_source::memory::Memory;
use strongroom_source::memory::mark::{Detector, Mark, Marker, PAGE_BYTES};

use super::draft::{Record, lengths};
use super::{CHUNK_BYTES, PAGES, ROTATION};
use crate::error::EngineError;

/// What a thread reads at a time.
const JOB_BYTES: u64 = 2 << 20;

/// What is needed to read a region.
#[derive(Clone, Copy)]
pub struct Scan<'s> {
    /// Where it is, for messages.
    pub path: &'s Path,
    /// The region.
    pub memory: &'s dyn Memory,
    /// Makes marks.
    pub marker: Marker,
    /// Names chunks.
    pub cutter: &'s StreamCutter,
    /// Knows the chunks of the parent.
    pub reader: &'s ChunkReader,
    /// Which kept chunks are compared with their fingerprints, if any.
    pub turn: Option<u64>,
    /// How many threads read.
    pub threads: usize,
    /// The request to stop.
    pub cancel: &'s Cancel,
}

/// What a chunk is now.
pub enum Found {
    /// Its marks are what they were.
    Same,
    /// It is zeros, and was not.
    Zeros,
    /// It is something else.
    Data {
        /// Its bytes.
        bytes: Vec<u8>,
        /// Its marks.
        marks: [Mark; PAGES],
        /// Its name.
        fingerprint: Fingerprint,
        /// Its marks are what they were, and its bytes are not.
        is_mended: bool,
    },
}

/// A chunk that was read.
pub struct Part {
    /// How long it is.
    pub length: usize,
    /// What it was compared with, if anything was known of it.
    pub before: Option<Record>,
    /// What it is.
    pub found: Found,
}

struct Job {
    start: u64,
    lengths: Vec<usize>,
    before: Vec<Option<Record>>,
    done: Sender<io::Result<Vec<Part>>>,
}

/// Gives what is known of chunks of these lengths, from a byte of the region on.
type Known<'k> = dyn FnMut(u64, &[usize]) -> Result<Vec<Option<Record>>, EngineError> + 'k;
/// Takes chunks, from a byte of the region on.
type Take<'t> = dyn FnMut(u64, Vec<Part>) -> Result<(), EngineError> + 't;

impl Scan<'_> {
    /// Reads all of the region, and gives what is found in its order.
    pub fn run(&self, known: &mut Known<'_>, take: &mut Take<'_>) -> Result<(), EngineError> {
        let ahead = self.threads + 2;
        let (give, jobs) = bounded::<Job>(ahead);
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                let jobs = jobs.clone();
                scope.spawn(move || jobs.iter().for_each(|job| self.work(job)));
            }
            drop(jobs);
            // Dropped at the end of this, so that the threads end.
            let give = give;
            let mut waiting: VecDeque<(u64, Receiver<_>)> = VecDeque::new();
            let mut next = 0;
            loop {
                while waiting.len() < ahead && next < self.memory.bytes() {
                    let end = (next + JOB_BYTES).min(self.memory.bytes());
                    let lengths = lengths(next, end);
                    let before = known(next, &lengths)?;
                    let (done, receiver) = bounded(1);
                    let job = Job { start: next, lengths, before, done };
                    give.send(job).expect("threads take jobs until there are none");
                    waiting.push_back((next, receiver));
                    next = end;
                }
                let Some((start, receiver)) = waiting.pop_front() else { return Ok(()) };
                self.cancel.check()?;
                let parts = receiver.recv().expect("each job is done");
                take(start, parts.map_err(|error| self.error(error))?)?;
            }
        })
    }

    /// A chunk as it is now, compared with nothing.
    pub fn read_again(&self, start: u64, length: usize) -> Result<Found, EngineError> {
        let mut buffer = Vec::new();
        self.look(start, length, None, &mut buffer).map_err(|error| self.error(error))
    }

    fn error(&self, error: io::Error) -> EngineError {
        EngineError::Region { path: self.path.to_owned(), error }
    }

    fn work(&self, job: Job) {
        let mut buffer = Vec::new();
        let mut at = job.start;
        let end = at + job.lengths.iter().map(|length| *length as u64).sum::<u64>();
        let has_data = self.memory.has_data(at..end);
        let parts = job.lengths.into_iter().zip(job.before).map(|(length, before)| {
            let found = match has_data && self.memory.has_data(at..at + length as u64) {
                true => self.look(at, length, before.as_ref(), &mut buffer)?,
                false => zeros(before.as_ref()),
            };
            at += length as u64;
            Ok(Part { length, before, found })
        });
        // If the result is not taken, the scan has ended.
        let _ = job.done.send(parts.collect());
    }

    /// Reads a chunk.
    fn look(
        &self,
        start: u64,
        length: usize,
        before: Option<&Record>,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Found> {
        buffer.resize(length, 0);
        self.memory.read_at(start, buffer)?;
        let mut marks = [Mark::ZEROS; PAGES];
        for (mark, page) in marks.iter_mut().zip(buffer.chunks(PAGE_BYTES)) {
            *mark = self.marker.mark(page);
        }
        if marks == [Mark::ZEROS; PAGES] {
            return Ok(zeros(before));
        }
        // Zeros have marks of zeros, so they are not the same as this.
        let same = before.filter(|before| before.marks == marks);
        let has_turn = |turn| start / CHUNK_BYTES as u64 % ROTATION == turn;
        let is_mended = match same {
            Some(before) if self.turn.is_some_and(has_turn) => {
                match self.reader.is_data(&before.chunk, buffer) {
                    Ok(is_what_it_was) => !is_what_it_was,
                    // What cannot be read now, or by this key, is taken for what it was.
                    Err(error) => error.is_damage() || error.is_lost_chunk(),
                }
            }
            _ => false,
        };
        if same.is_some() && !is_mended {
            return Ok(Found::Same);
        }
        let fingerprint = self.cutter.fingerprint(buffer);
        Ok(Found::Data { bytes: buffer.clone(), marks, fingerprint, is_mended })
    }
}

/// A chunk of zeros.
fn zeros(before: Option<&Record>) -> Found {
    match before.is_some_and(|before| before.chunk.is_hole()) {
        true => Found::Same,
        false => Found::Zeros,
    }
}
