//! Packing new chunks into blocks and blocks into arenas, behind the back of whoever brings them.
//!
//! ```text
//! caller ── drafts ──▶ workers: compress, encrypt ──▶ (in order) ──▶ sealer: parity ──▶ writer
//! ```
//!
//! The caller learns a chunk's location at once; nothing that it makes of it is committed before
//! [`Packer::finish`] has told that every arena is on the medium. Every queue has a bound: at most
//! [`BLOCKS_IN_FLIGHT`] blocks a lane are between caller and arena, and while one arena is written
//! a second gets its parity and a third is built, no more. An arena is closed by the sizes of
//! blocks a fixed distance back, and by what those let expect of the blocks since, not by timing:
//! the same chunks in the same order give the same arenas.

mod lengths;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};
use strongroom_arena::{
    ArenaBuilder, ArenaContent, ArenaSeed, BlockDraft, BlockSealer, CompressionLevel,
    FinishedArena, Finishing, Origin, Redundancy, SealedBlock, StoredChunk, SummarySlot,
};
use strongroom_backend::{Backend, BackendError};
use strongroom_base::{ArenaId, Entropy, Fingerprint, WriteKeys};
use strongroom_catalog::Location;

use super::profile::{Stage, StageTimes};
use crate::repository::Repository;
use lengths::Lengths;

/// Threads that compress unless told otherwise, at most: each holds a block before and after.
const WORKERS_MAX: usize = 8;
/// Blocks of one lane that may be between the caller and their arena: beside one for each worker,
/// one that waits to be compressed and one to be taken in.
const BLOCKS_IN_FLIGHT: usize = WORKERS_MAX + 2;

/// A block of data is closed at so many bytes: as many as its bound lets stand beside the
/// directory.
const DATA_BLOCK_BYTES: usize = 15 << 18;
/// A block of metadata is closed at so many bytes at most. Trees are read one here, one there.
const METADATA_BLOCK_BYTES: usize = 1 << 20;

/// How chunks are packed.
#[derive(Debug, Clone, Copy)]
pub struct PackOptions {
    /// How hard to compress.
    pub compression: Compression,
    /// A block of data is closed at so many bytes of chunks; one of metadata at so many too, but
    /// at a MiB for certain.
    pub block_bytes: usize,
    /// Threads that compress.
    pub workers: usize,
    /// Encode new chunks against what they resemble.
    pub deltas: bool,
}

/// How hard blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// At one level.
    Level(CompressionLevel),
    /// Harder while the threads that compress have nothing to do, less hard while all else waits
    /// for them. The same input then gives other bytes each time.
    Auto,
}

/// Where on [`CompressionLevel::LADDER`] the workers stand.
struct Ladder {
    step: AtomicUsize,
    /// Blocks in a row that found the queue empty, or full.
    idle: AtomicUsize,
    busy: AtomicUsize,
}

/// So many blocks in a row have to say the same before the level changes.
const LADDER_PATIENCE: usize = 3;

impl Ladder {
    fn new() -> Self {
        let first = CompressionLevel::LADDER.iter().position(|l| *l == CompressionLevel::DEFAULT);
        let step = AtomicUsize::new(first.expect("the default is on the ladder"));
        Self { step, idle: AtomicUsize::new(0), busy: AtomicUsize::new(0) }
    }

    /// The level of the next block, by how many wait behind it.
    fn level(&self, waiting: usize, room: usize) -> CompressionLevel {
        let last = CompressionLevel::LADDER.len() - 1;
        let step = self.step.load(Ordering::Relaxed);
        let (up, down) = (waiting == 0, waiting >= room);
        let counted = |is_so: bool, counter: &AtomicUsize| {
            if !is_so {
                counter.store(0, Ordering::Relaxed);
                return false;
            }
            let enough = counter.fetch_add(1, Ordering::Relaxed) + 1 >= LADDER_PATIENCE;
            if enough {
                counter.store(0, Ordering::Relaxed);
            }
            enough
        };
        let next = match (counted(up, &self.idle), counted(down, &self.busy)) {
            (true, _) => (step + 1).min(last),
            (_, true) => step.saturating_sub(1),
            _ => step,
        };
        self.step.store(next, Ordering::Relaxed);
        CompressionLevel::LADDER[next]
    }
}

impl Default for PackOptions {
    /// The default level over blocks of nearly 4 MiB, a worker for each core, and deltas.
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            compression: Compression::Level(CompressionLevel::DEFAULT),
            block_bytes: DATA_BLOCK_BYTES,
            workers: workers.min(WORKERS_MAX),
            deltas: true,
        }
    }
}

/// An arena that is on the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenArena {
    /// Its name.
    pub id: ArenaId,
    /// Bytes of its object.
    pub object_bytes: u64,
    /// Blocks in it.
    pub blocks: usize,
}

struct Job {
    draft: BlockDraft,
    seed: Arc<ArenaSeed>,
    reply: Sender<SealedBlock>,
    sealed_bytes: Sender<usize>,
}

/// A block on its way, and what it holds.
struct InFlight {
    block: Receiver<SealedBlock>,
    slots: Vec<SummarySlot>,
}

/// An arena that gets no more chunks; some of its blocks may be on their way.
struct ClosedArena {
    builder: ArenaBuilder,
    in_flight: VecDeque<InFlight>,
}

struct OpenArena {
    seed: Arc<ArenaSeed>,
    builder: ArenaBuilder,
    draft: BlockDraft,
    draft_slots: Vec<SummarySlot>,
    blocks: u32,
    in_flight: VecDeque<InFlight>,
}

/// Packs chunks into arenas. Data and metadata go to separate ones.
pub struct Packer {
    lanes: [Option<OpenArena>; 2],
    lengths: [Lengths; 2],
    jobs: Option<Sender<Job>>,
    closed: Option<Sender<ClosedArena>>,
    written: Receiver<Result<WrittenArena, BackendError>>,
    /// Objects that were written: the next are built in their memory.
    spare: Receiver<Vec<u8>>,
    /// The same of drafts that were compressed.
    spare_drafts: Receiver<Vec<u8>>,
    /// The same of blocks that are in their arena, for the workers.
    spare_blocks: Sender<Vec<u8>>,
    threads: Vec<JoinHandle<()>>,
    times: Arc<StageTimes>,
    arena_bytes: usize,
    block_bytes: usize,
    keys: WriteKeys,
    entropy: Arc<dyn Entropy>,
}

impl Packer {
    /// Starts the threads.
    pub fn start(
        repository: &Repository,
        origin: Origin,
        options: PackOptions,
        times: &Arc<StageTimes>,
    ) -> Self {
        let workers = options.workers.max(1);
        let (jobs, job_queue) = bounded::<Job>(workers);
        let (closed, closed_queue) = bounded::<ClosedArena>(0);
        let (finished, finished_queue) = bounded::<FinishedArena>(0);
        let (written_in, written) = unbounded();
        let (spare_in, spare) = bounded(1);
        let (spare_drafts_in, spare_drafts) = bounded(workers + 2);
        let (spare_blocks, spare_blocks_out) = bounded(workers + 2);
        let ladder = match options.compression {
            Compression::Level(_) => None,
            Compression::Auto => Some(Arc::new(Ladder::new())),
        };
        let level = match options.compression {
            Compression::Level(level) => level,
            Compression::Auto => CompressionLevel::DEFAULT,
        };
        let mut threads: Vec<_> = (0..workers)
            .map(|_| {
                let (jobs, times, ladder) = (job_queue.clone(), times.clone(), ladder.clone());
                let (drafts, blocks) = (spare_drafts_in.clone(), spare_blocks_out.clone());
                std::thread::spawn(move || {
                    seal_blocks(&jobs, (&drafts, &blocks), level, ladder.as_deref(), &times);
                })
            })
            .collect();
        let keys = repository.write_keys().clone();
        let redundancy = repository.redundancy();
        let of_sealer = times.clone();
        threads.push(std::thread::spawn(move || {
            for arena in closed_queue {
                // The writer ends early only once nobody listens; then nobody waits for this arena.
                let _ = finished.send(finish_arena(arena, origin, &keys, redundancy, &of_sealer));
            }
        }));
        let backend = repository.surroundings.backend.clone();
        let of_writer = times.clone();
        threads.push(std::thread::spawn(move || {
            for arena in finished_queue {
                let result = write_arena(&arena, &*backend, &of_writer);
                // Where there are enough of them already, it is given back.
                let _ = spare_in.try_send(arena.into_memory());
                if written_in.send(result).is_err() {
                    return;
                }
            }
        }));
        Self {
            lanes: [None, None],
            lengths: [Lengths::new(), Lengths::new()],
            jobs: Some(jobs),
            closed: Some(closed),
            written,
            spare,
            spare_drafts,
            spare_blocks,
            threads,
            times: times.clone(),
            arena_bytes: repository.config.arena_bytes as usize,
            block_bytes: options.block_bytes,
            keys: repository.write_keys().clone(),
            entropy: repository.surroundings.entropy.clone(),
        }
    }

    /// How many threads compress.
    pub fn workers(&self) -> usize {
        self.threads.len() - 2
    }

    /// Packs a chunk and tells where it will be. The flag tells that its arena is a new one.
    pub fn put(
        &mut self,
        content: ArenaContent,
        fingerprint: Fingerprint,
        chunk: StoredChunk<'_>,
    ) -> Result<(Location, bool), BackendError> {
        let lane = content as usize;
        let block_bytes = match content {
            ArenaContent::Data => self.block_bytes,
            ArenaContent::Metadata => self.block_bytes.min(METADATA_BLOCK_BYTES),
        };
        let mut is_new = false;
        let open = self.lanes[lane].as_ref();
        if open.is_some_and(|arena| arena.draft.is_full_for(chunk.stored_bytes(), block_bytes)) {
            self.submit_block(lane);
        }
        let arena = self.lanes[lane].get_or_insert_with(|| {
            is_new = true;
            let seed = ArenaSeed::draw(content, &self.keys, &*self.entropy);
            // Trees are few: their arena grows as it must.
            let builder = match content {
                ArenaContent::Data => {
                    let memory = self.spare.try_recv().unwrap_or_default();
                    ArenaBuilder::new(&seed, memory, self.arena_bytes + block_bytes)
                }
                ArenaContent::Metadata => ArenaBuilder::new(&seed, Vec::new(), 0),
            };
            OpenArena::begin(seed, builder)
        });
        let slot = arena.draft.push(chunk);
        arena.draft_slots.push(SummarySlot::of(fingerprint, chunk));
        Ok((Location { arena: arena.seed.id, slot }, is_new))
    }

    /// Arenas that were written since the last call; the first failure, if one failed.
    pub fn take_written(&mut self) -> Result<Vec<WrittenArena>, BackendError> {
        self.written.try_iter().collect()
    }

    /// Writes what is left and waits until every arena is on the medium.
    pub fn finish(mut self) -> Result<Vec<WrittenArena>, BackendError> {
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].is_some() {
                self.submit_block(lane);
            }
            if let Some(arena) = self.lanes[lane].take() {
                self.close(arena);
            }
        }
        self.stop();
        self.written.iter().collect()
    }

    /// Hands the draft to the workers and takes in the block that is due.
    fn submit_block(&mut self, lane: usize) {
        let Some(arena) = &mut self.lanes[lane] else { return };
        if arena.draft.is_empty() {
            return;
        }
        let memory = self.spare_drafts.try_recv().unwrap_or_default();
        let next = BlockDraft::within(memory, arena.blocks + 1, arena.draft.next_slot());
        let draft = std::mem::replace(&mut arena.draft, next);
        let slots = std::mem::take(&mut arena.draft_slots);
        arena.blocks += 1;
        let (reply, block) = bounded(1);
        let (sealed_bytes, sealed) = bounded(1);
        self.lengths[lane].count(arena.seed.id, &draft, sealed, &self.times);
        let job = Job { draft, seed: arena.seed.clone(), reply, sealed_bytes };
        let jobs = self.jobs.as_ref().expect("jobs are taken until the packer stops");
        let sent = match jobs.try_send(job) {
            Err(TrySendError::Full(job)) => self.times.time(Stage::Wait, || jobs.send(job)).is_ok(),
            other => other.is_ok(),
        };
        assert!(sent, "workers live as long as jobs are taken");
        arena.in_flight.push_back(InFlight { block, slots });
        arena.take_in(&self.spare_blocks, &self.times);
        if self.lengths[lane].expected(arena.seed.id) >= self.arena_bytes {
            let arena = self.lanes[lane].take().expect("just looked at");
            self.close(arena);
        }
    }

    fn close(&mut self, arena: OpenArena) {
        let closed = ClosedArena { builder: arena.builder, in_flight: arena.in_flight };
        let queue = self.closed.as_ref().expect("arenas are taken until the packer stops");
        // The sealer ends early only once nobody listens; then nobody waits for this arena.
        self.times.time(Stage::Wait, || drop(queue.send(closed)));
    }

    fn stop(&mut self) {
        self.jobs = None;
        self.closed = None;
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for Packer {
    /// A packer that is given up leaves the arenas it has written; the next session finds them.
    fn drop(&mut self) {
        self.jobs = None;
        self.closed = None;
        self.lanes = [None, None];
        for thread in self.threads.drain(..) {
            // A panic of a thread was told by the thread; dropping must not raise another.
            let _ = thread.join();
        }
    }
}

impl OpenArena {
    fn begin(seed: ArenaSeed, builder: ArenaBuilder) -> Self {
        Self {
            builder,
            seed: Arc::new(seed),
            draft: BlockDraft::new(0, 0),
            draft_slots: Vec::new(),
            blocks: 0,
            in_flight: VecDeque::new(),
        }
    }

    /// Takes in the blocks that are ready, and waits where too many are not.
    fn take_in(&mut self, spare: &Sender<Vec<u8>>, times: &StageTimes) {
        while let Some(first) = self.in_flight.front() {
            let block = match first.block.try_recv() {
                Err(_) if self.in_flight.len() <= BLOCKS_IN_FLIGHT => return,
                Err(_) => wait_for(&first.block, times),
                Ok(block) => block,
            };
            let taken = self.in_flight.pop_front().expect("just looked at");
            self.builder.push(&block, taken.slots);
            // Where there are enough of them already, it is given back.
            let _ = spare.try_send(block.bytes);
        }
    }
}

impl InFlight {
    fn push_to(self, builder: &mut ArenaBuilder, times: &StageTimes) {
        builder.push(&wait_for(&self.block, times), self.slots);
    }
}

/// What a worker makes of a job.
fn wait_for<T>(answer: &Receiver<T>, times: &StageTimes) -> T {
    let at_once = answer.try_recv();
    let answer = at_once.or_else(|_| times.time(Stage::Wait, || answer.recv()));
    answer.expect("a worker answers every job")
}

fn seal_blocks(
    jobs: &Receiver<Job>,
    (spare_drafts, spare_blocks): (&Sender<Vec<u8>>, &Receiver<Vec<u8>>),
    level: CompressionLevel,
    ladder: Option<&Ladder>,
    times: &StageTimes,
) {
    let mut sealer = BlockSealer::new(level);
    let room = jobs.capacity().unwrap_or(1);
    for mut job in jobs {
        if let Some(ladder) = ladder {
            sealer.set_level(ladder.level(jobs.len(), room));
        }
        let memory = spare_blocks.try_recv().unwrap_or_default();
        let seal = || sealer.seal_within(memory, &mut job.draft, job.seed.id, &job.seed.key);
        let block = times.time(Stage::Compress, seal);
        // Where there are enough of them already, it is given back.
        let _ = spare_drafts.try_send(job.draft.into_memory());
        // Nobody waits for them where the packer was given up.
        let _ = job.sealed_bytes.send(block.bytes.len());
        let _ = job.reply.send(block);
    }
}

/// Takes in the last blocks of an arena, and adds what proves and repairs it.
fn finish_arena(
    mut arena: ClosedArena,
    origin: Origin,
    keys: &WriteKeys,
    redundancy: Redundancy,
    times: &StageTimes,
) -> FinishedArena {
    // The sealer's waiting is not the caller's.
    let unwatched = StageTimes::default();
    for block in arena.in_flight.drain(..) {
        block.push_to(&mut arena.builder, &unwatched);
    }
    let finishing = Finishing { generation: 0, origin, keys, redundancy, padding: None };
    times.time(Stage::Protect, || arena.builder.finish(finishing))
}

fn write_arena(
    arena: &FinishedArena,
    backend: &dyn Backend,
    times: &StageTimes,
) -> Result<WrittenArena, BackendError> {
    let name = arena.name.object();
    times.time(Stage::Write, || backend.create(&name, arena.object()))?;
    Ok(WrittenArena {
        id: arena.name.id,
        object_bytes: arena.object().len() as u64,
        blocks: arena.summary.blocks.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_rises_while_workers_are_idle_and_falls_while_all_wait_for_them() {
        let ladder = Ladder::new();
        let levels = |waiting: usize| (0..40).map(|_| ladder.level(waiting, 2)).collect::<Vec<_>>();
        assert_eq!(levels(1), vec![CompressionLevel::DEFAULT; 40]);
        let rising = levels(0);
        assert_eq!(rising[..2], [CompressionLevel::DEFAULT; 2]);
        assert_eq!(rising.last(), CompressionLevel::LADDER.last());
        assert_eq!(levels(2).last(), CompressionLevel::LADDER.first());
        assert!((0..7).all(|_| ladder.level(0, 2) <= ladder.level(2, 2)), "one a turn is nothing");
    }
}
