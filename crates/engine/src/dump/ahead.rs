//! Reading ahead of a stream: one thread walks, several decode, and the caller receives everything
//! in order.
//!
//! ```text
//! walker ── batches, a block each ──▶ decoders ──▶ (in order) ──▶ caller
//! ```
//!
//! A batch is a run of the walk's items whose chunks are in one block, across small files too, so a
//! block is decoded once. At most [`BATCHES_AHEAD`] batches of [`BATCH_BYTES_MAX`] are between
//! walker and caller.

use crossbeam_channel::{Receiver, Sender, bounded};
use strongroom_base::{ArenaId, Cancel};
use strongroom_catalog::recipe::check_length;
use strongroom_catalog::{ChunkRef, Entry, EntryKind, LinkKey, LinkTable, Recipe};
use strongroom_repository::{ChunkReader, Found, RepositoryError, SnapshotEvent};
use strongroom_source::PathFilter;

use crate::error::EngineError;
use crate::parts::{LostPart, Part, Parts};
use crate::wanted::{WantedEvent, WantedWalk};

/// Batches that may wait for the caller.
const BATCHES_AHEAD: usize = 8;
/// A batch is closed once it holds this many bytes of chunks.
const BATCH_BYTES_MAX: u64 = 1 << 20;
/// A batch is closed once it holds this many steps.
const BATCH_STEPS_MAX: usize = 1024;
/// One writer cannot keep more decoders than this busy.
const DECODERS_MAX: usize = 4;

/// How further names of a file are represented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkMode {
    /// The first name has the content, the others lead to it.
    First,
    /// Each has the content.
    Each,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ByteRange {
    /// Its first byte, from 0.
    pub offset: u64,
    /// Its length, which may go past the end of the file; none for all that follows.
    pub length: Option<u64>,
}

impl ByteRange {
    /// Behind its last byte.
    pub fn end(self) -> u64 {
        self.length.map_or(u64::MAX, |length| self.offset.saturating_add(length))
    }
}

/// What is read.
#[derive(Clone, Copy)]
pub struct Wanted<'w> {
    /// What is below this.
    pub found: &'w Found,
    /// Of that, only what this wants.
    pub filter: Option<&'w PathFilter>,
    /// How further names are represented.
    pub links: LinkMode,
    /// Of each file, only the chunks that hold this.
    pub range: ByteRange,
}

/// What comes next.
pub enum Item {
    /// An entry; if it is a file and not a link, its content follows.
    Entry {
        /// Relative to the top; `.` for the top itself.
        path: Vec<u8>,
        /// The entry.
        entry: Box<Entry>,
        /// The first name of the same inode, if this is a further one.
        link: Option<Vec<u8>>,
    },
    /// The range begins this many bytes behind the beginning of the next chunk or hole.
    Before(u64),
    /// The next bytes of the file.
    Chunk(Result<Vec<u8>, LostChunk>),
    /// This many zeros of the file.
    Hole(u64),
    /// Names of a directory cannot be read.
    LostNames {
        /// The directory.
        path: Vec<u8>,
        /// Why.
        error: RepositoryError,
    },
}

/// A part of a file that cannot be read.
pub struct LostChunk {
    /// How many bytes of the file it covers.
    pub bytes: u64,
    /// Why.
    pub error: RepositoryError,
}

/// One step of the caller: an item that is ready, or the next chunk of the batch.
enum Step {
    Ready(Item),
    NextChunk,
}

/// Chunks of one block, and where their bytes are wanted.
struct Job {
    chunks: Vec<ChunkRef>,
    reply: Sender<Vec<Result<Vec<u8>, LostChunk>>>,
}

struct Batch {
    steps: Vec<Step>,
    chunks: Receiver<Vec<Result<Vec<u8>, LostChunk>>>,
}

/// Passes everything that is wanted to `take`, in the order of the walk, until `take` fails.
pub fn read_ahead(
    reader: &ChunkReader,
    wanted: Wanted<'_>,
    cancel: &Cancel,
    take: &mut dyn FnMut(Item) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let decoders = std::thread::available_parallelism().map_or(1, usize::from).min(DECODERS_MAX);
    let (jobs, job_queue) = bounded::<Job>(BATCHES_AHEAD);
    let (batches, batch_queue) = bounded::<Batch>(BATCHES_AHEAD);
    std::thread::scope(|scope| {
        for _ in 0..decoders {
            let jobs = job_queue.clone();
            scope.spawn(move || decode(&jobs, reader));
        }
        drop(job_queue);
        let walker = scope.spawn(move || {
            let mut walker = Walker {
                reader,
                cancel,
                links: wanted.links,
                range: wanted.range,
                linked: LinkTable::new(Walker::LINKED_MAX),
                jobs,
                batches,
                steps: Vec::new(),
                chunks: Vec::new(),
                bytes: 0,
                block: None,
            };
            match walker.walk(&wanted) {
                Err(Stop::Failed(error)) => Err(EngineError::from(error)),
                Ok(()) | Err(Stop::NobodyListens) => Ok(()),
            }
        });
        for batch in batch_queue {
            let mut chunks = batch.chunks.recv().expect("a decoder answers every job").into_iter();
            for step in batch.steps {
                cancel.check()?;
                take(match step {
                    Step::Ready(item) => item,
                    Step::NextChunk => Item::Chunk(chunks.next().expect("one for each chunk")),
                })?;
            }
        }
        walker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn decode(jobs: &Receiver<Job>, reader: &ChunkReader) {
    for job in jobs {
        let lost = |chunk: &ChunkRef, error| LostChunk { bytes: chunk.stream_bytes, error };
        let read = |chunk: &ChunkRef| reader.read_data(chunk).map_err(|error| lost(chunk, error));
        // If the caller has given up, no thread waits for the result.
        let _ = job.reply.send(job.chunks.iter().map(read).collect());
    }
}

/// Why the walk ends early.
enum Stop {
    Failed(RepositoryError),
    NobodyListens,
}

impl From<RepositoryError> for Stop {
    fn from(error: RepositoryError) -> Self {
        Self::Failed(error)
    }
}

struct Walker<'w> {
    reader: &'w ChunkReader,
    cancel: &'w Cancel,
    links: LinkMode,
    range: ByteRange,
    /// The first names of files that have further ones to come.
    linked: LinkTable<LinkKey, Vec<u8>>,
    jobs: Sender<Job>,
    batches: Sender<Batch>,
    steps: Vec<Step>,
    chunks: Vec<ChunkRef>,
    bytes: u64,
    /// The block in which the batch's chunks lie.
    block: Option<(ArenaId, Option<usize>)>,
}

impl Walker<'_> {
    /// At most this many files with several names are remembered; for any others, each name has the
    /// content.
    const LINKED_MAX: usize = 100_000;

    fn walk(&mut self, wanted: &Wanted<'_>) -> Result<(), Stop> {
        let found = wanted.found;
        let top = match found {
            Found::Root { .. } => Vec::new(),
            Found::Entry { entry, path } if entry.is_directory() => [b"/", &path[..]].concat(),
            Found::Entry { path, .. } => {
                let name = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                [b"/", &path[..name]].concat()
            }
        };
        let top = top.strip_suffix(b"/").unwrap_or(&top).to_vec();
        let mut walk = WantedWalk::new(found, wanted.filter, self.reader, self.cancel);
        while let Some(WantedEvent { event, .. }) = walk.next()? {
            match event {
                SnapshotEvent::Enter(directory) => {
                    if let Some(entry) = directory.entry {
                        self.entry(relative(directory.path, &top), entry.clone())?;
                    }
                }
                SnapshotEvent::Leaf { path, entry } => {
                    self.entry(relative(path, &top), entry.clone())?;
                }
                SnapshotEvent::Leave { .. } => {}
                SnapshotEvent::Lost { path, error } => {
                    let path = relative(path, &top);
                    self.step(Step::Ready(Item::LostNames { path, error }))?;
                }
            }
        }
        self.flush()
    }

    fn entry(&mut self, path: Vec<u8>, mut entry: Entry) -> Result<(), Stop> {
        if let Err(error) = check_length(&entry) {
            entry.kind = EntryKind::File { content: Recipe::default() };
            self.step(Step::Ready(Item::Entry { path, entry: Box::new(entry), link: None }))?;
            let lost = LostChunk { bytes: 0, error: error.into() };
            return self.step(Step::Ready(Item::Chunk(Err(lost))));
        }
        let link = match self.links {
            LinkMode::First if !entry.is_directory() => self.first_name(&path, &entry),
            LinkMode::First | LinkMode::Each => None,
        };
        let content = entry.content().filter(|_| link.is_none()).cloned();
        self.step(Step::Ready(Item::Entry { path, entry: Box::new(entry), link }))?;
        content.map_or(Ok(()), |content| self.content(&content))
    }

    fn first_name(&mut self, path: &[u8], entry: &Entry) -> Option<Vec<u8>> {
        let key = LinkKey::of(entry)?;
        let first = self.linked.take(&key);
        if first.is_none() {
            self.linked.insert(key, entry.metadata.links, path.to_vec());
        }
        first
    }

    fn content(&mut self, content: &Recipe) -> Result<(), Stop> {
        let mut parts = Parts::new(content, self.reader);
        let (mut read, end) = (self.range.offset, self.range.end());
        // Seeking passes over a chunk of no bytes, which is damage that the whole file has.
        if read > 0
            && let Some(part) = parts.seek_forward(read)?
        {
            read = self.lost(read, part)?;
        }
        while read < end {
            let (begin, chunk) = match parts.next()? {
                None => break,
                Some(Part::Chunk(begin, chunk)) => (begin, chunk),
                Some(Part::Lost(part)) => {
                    read = self.lost(read, part)?;
                    continue;
                }
            };
            if begin < read {
                self.step(Step::Ready(Item::Before(read - begin)))?;
            }
            read = begin.saturating_add(chunk.stream_bytes);
            if chunk.is_hole() {
                self.step(Step::Ready(Item::Hole(chunk.stream_bytes)))?;
            } else {
                self.chunk(chunk)?;
            }
        }
        Ok(())
    }

    /// Gives what is lost from here on; returns where that ends.
    fn lost(&mut self, from: u64, part: LostPart) -> Result<u64, Stop> {
        let end = part.offset.saturating_add(part.bytes);
        let lost = LostChunk { bytes: end.saturating_sub(from), error: part.why };
        self.step(Step::Ready(Item::Chunk(Err(lost))))?;
        Ok(end.max(from))
    }

    fn chunk(&mut self, chunk: ChunkRef) -> Result<(), Stop> {
        let location = chunk.location;
        // If the arena cannot be opened, the decoder looks elsewhere, or reports why.
        let arena = self.reader.store().arena(location.arena).ok();
        let block = (location.arena, arena.and_then(|arena| arena.block_of(location.slot)));
        let is_full = self.bytes >= BATCH_BYTES_MAX;
        if !self.chunks.is_empty() && (is_full || self.block != Some(block)) {
            self.flush()?;
        }
        self.block = Some(block);
        self.bytes += chunk.stream_bytes;
        self.chunks.push(chunk);
        self.step(Step::NextChunk)
    }

    fn step(&mut self, step: Step) -> Result<(), Stop> {
        self.steps.push(step);
        if self.steps.len() >= BATCH_STEPS_MAX { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Stop> {
        let (reply, chunks) = bounded(1);
        let job = Job { chunks: std::mem::take(&mut self.chunks), reply };
        let batch = Batch { steps: std::mem::take(&mut self.steps), chunks };
        self.bytes = 0;
        self.jobs.send(job).map_err(|_| Stop::NobodyListens)?;
        self.batches.send(batch).map_err(|_| Stop::NobodyListens)
    }
}

/// A path below the top; `.` for the top.
fn relative(path: &[u8], top: &[u8]) -> Vec<u8> {
    let rest = path.strip_prefix(top).unwrap_or(path);
    let rest = rest.strip_prefix(b"/").unwrap_or(rest);
    if rest.is_empty() { b".".to_vec() } else { rest.to_vec() }
}
