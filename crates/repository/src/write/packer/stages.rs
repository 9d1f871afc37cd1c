//! The threads behind a packer: workers compress and encrypt blocks, the sealer adds parity to
//! arenas, the writer writes them. Memory goes around: what one thread no longer needs is the next
//! buffer of another.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use strongroom_arena::{
    ArenaBuilder, ArenaSeed, BlockDraft, BlockSealer, CompressionLevel, FinishedArena, Finishing,
    Origin, Redundancy, SealedBlock, SummarySlot,
};
use strongroom_backend::{Backend, BackendError};
use strongroom_base::{ArenaId, WriteKeys};

use super::ladder::Ladder;
use super::options::{Compression, PackOptions, blocks_in_flight, jobs_waiting, writers_for};
use crate::near::Near;
use crate::repository::Repository;
use crate::write::crew::Crew;
use crate::write::times::{Stage, StageTimes};

/// How often it is looked whether the threads are alive that an arena is waited for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The caller's ends of all queues.
pub struct Stages {
    jobs: Sender<Job>,
    closed: Sender<ClosedArena>,
    written: Receiver<Result<WrittenArena, BackendError>>,
    /// Memory of objects that were written.
    spare_objects: Receiver<Vec<u8>>,
    /// Memory of drafts that were compressed.
    spare_drafts: Receiver<Vec<u8>>,
    /// Memory of blocks that were added to their arena.
    spare_blocks: Sender<Vec<u8>>,
    blocks_in_flight: usize,
    times: Arc<StageTimes>,
    near: Option<Arc<Near>>,
    /// Last: the queues close first.
    crew: Crew,
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

/// A block to be sealed.
struct Job {
    draft: BlockDraft,
    seed: Arc<ArenaSeed>,
    block: Sender<SealedBlock>,
    sealed_bytes: Sender<usize>,
}

/// What a worker answers to a job.
pub struct Submitted {
    /// The block.
    pub block: Receiver<SealedBlock>,
    /// How many bytes it has.
    pub sealed_bytes: Receiver<usize>,
}

/// A block that a worker has, and its slots.
pub struct InFlight {
    /// The sealed block, once it is.
    pub block: Receiver<SealedBlock>,
    /// A slot for each chunk.
    pub slots: Vec<SummarySlot>,
}

/// An arena that gets no more chunks; some of its blocks may be with the workers.
pub struct ClosedArena {
    /// Its name and key.
    pub seed: Arc<ArenaSeed>,
    /// Has the blocks before those in flight.
    pub builder: ArenaBuilder,
    /// The last blocks, in their order.
    pub in_flight: VecDeque<InFlight>,
}

impl Stages {
    /// Starts the threads.
    pub fn start(
        repository: &Repository,
        origin: Origin,
        options: PackOptions,
        times: &Arc<StageTimes>,
    ) -> Self {
        let options = PackOptions { workers: options.workers.max(1), ..options };
        let workers = options.workers;
        let writers = writers_for(repository.backend().promises().in_flight);
        let is_far = writers > 1;
        let (jobs, job_queue) = bounded(jobs_waiting(&options, is_far));
        let (closed, closed_queue) = bounded(0);
        let (finished, finished_queue) = bounded(0);
        let (written_in, written) = unbounded();
        let (spare_objects_in, spare_objects) = bounded(1);
        let (spare_drafts_in, spare_drafts) = bounded(workers + 2);
        let (spare_blocks, spare_blocks_out) = bounded(workers + 2);
        let mut crew = Crew::default();
        let ladder = (options.compression == Compression::Auto).then(|| Arc::new(Ladder::new()));
        for _ in 0..workers {
            let worker = Worker {
                jobs: job_queue.clone(),
                compression: options.compression,
                ladder: ladder.clone(),
                spare_drafts: spare_drafts_in.clone(),
                spare_blocks: spare_blocks_out.clone(),
                times: times.clone(),
            };
            crew.start(move || worker.run());
        }
        let (idle_in, idle) = bounded(writers);
        let sealer = Sealer {
            closed: closed_queue,
            idle: is_far.then_some(idle),
            finished,
            origin,
            keys: repository.write_keys().clone(),
            redundancy: repository.redundancy(),
            padded: repository.config.padding,
            times: times.clone(),
        };
        crew.start(move || sealer.run());
        let near = repository.near().map(Arc::new);
        let kept = near.clone();
        for _ in 0..writers {
            let writer = Writer {
                idle: idle_in.clone(),
                finished: finished_queue.clone(),
                written: written_in.clone(),
                spare_objects: spare_objects_in.clone(),
                backend: repository.surroundings.backend.clone(),
                near: near.clone(),
                times: times.clone(),
            };
            crew.start(move || writer.run());
        }
        // Only the writers hold these: the packer ends when they have.
        drop((finished_queue, written_in, spare_objects_in, idle_in));
        Self {
            jobs,
            closed,
            written,
            spare_objects,
            spare_drafts,
            spare_blocks,
            blocks_in_flight: blocks_in_flight(&options, is_far),
            times: times.clone(),
            near: kept,
            crew,
        }
    }

    /// How many blocks of a lane may be between the caller and their arena.
    pub fn blocks_in_flight(&self) -> usize {
        self.blocks_in_flight
    }

    /// Memory for an object.
    pub fn spare_object(&self) -> Vec<u8> {
        self.spare_objects.try_recv().unwrap_or_default()
    }

    /// Memory for a draft.
    pub fn spare_draft(&self) -> Vec<u8> {
        self.spare_drafts.try_recv().unwrap_or_default()
    }

    /// Memory of a block that is in its arena.
    pub fn give_back(&self, block: Vec<u8>) {
        // If there are enough of them already, it is freed.
        let _ = self.spare_blocks.try_send(block);
    }

    /// Has a block of an arena sealed.
    pub fn submit(&self, draft: BlockDraft, seed: &Arc<ArenaSeed>) -> Submitted {
        let (block_in, block) = bounded(1);
        let (sealed_bytes_in, sealed_bytes) = bounded(1);
        let seed = seed.clone();
        let job = Job { draft, seed, block: block_in, sealed_bytes: sealed_bytes_in };
        let sent = self.times.send(&self.jobs, job);
        assert!(sent.is_ok(), "workers live as long as their queue");
        Submitted { block, sealed_bytes }
    }

    /// Counts how long the caller waits.
    pub fn times(&self) -> &StageTimes {
        &self.times
    }

    /// Has an arena finished and written.
    pub fn close(&self, arena: ClosedArena) {
        // The sealer ends early only if it panicked; `finish` continues the panic.
        let _ = self.times.send(&self.closed, arena);
    }

    /// Arenas that were written since the last call; the first failure, if one failed.
    pub fn take_written(&self) -> Result<Vec<WrittenArena>, BackendError> {
        self.written.try_iter().collect()
    }

    /// Waits until one more of the closed arenas is on the medium, or could not be written.
    pub fn wait_written(&self) -> Result<WrittenArena, BackendError> {
        loop {
            let waited = || self.written.recv_timeout(LOOK_EVERY);
            match self.times.time(Stage::Wait, waited) {
                Ok(written) => return written,
                // They end only when the queues close, or by a panic.
                Err(_) => assert!(!self.crew.has_ended(), "a thread of the packer has ended"),
            }
        }
    }

    /// Waits until every closed arena is on the medium.
    pub fn finish(self) -> Result<Vec<WrittenArena>, BackendError> {
        let Self { jobs, closed, written, near, crew, .. } = self;
        drop((jobs, closed));
        crew.join();
        if let Some(near) = near {
            near.trim();
        }
        written.iter().collect()
    }
}

struct Worker {
    jobs: Receiver<Job>,
    compression: Compression,
    ladder: Option<Arc<Ladder>>,
    spare_drafts: Sender<Vec<u8>>,
    spare_blocks: Receiver<Vec<u8>>,
    times: Arc<StageTimes>,
}

impl Worker {
    fn run(self) {
        let level = match self.compression {
            Compression::Level(level) => level,
            Compression::Auto => CompressionLevel::DEFAULT,
        };
        let mut sealer = BlockSealer::new(level);
        let room = self.jobs.capacity().unwrap_or(1);
        for mut job in &self.jobs {
            if let Some(ladder) = &self.ladder {
                sealer.set_level(ladder.level(self.jobs.len(), room));
            }
            let memory = self.spare_blocks.try_recv().unwrap_or_default();
            let seal = || sealer.seal_within(memory, &mut job.draft, job.seed.id, &job.seed.key);
            let block = self.times.time(Stage::Compress, seal);
            // If there are enough of them already, it is freed.
            let _ = self.spare_drafts.try_send(job.draft.into_memory());
            // No one waits for them if the packer was dropped.
            let _ = job.sealed_bytes.send(block.bytes.len());
            let _ = job.block.send(block);
        }
    }
}

struct Sealer {
    closed: Receiver<ClosedArena>,
    /// Several writers report here when they have nothing to do. Writing is what everything waits
    /// for then, and an arena that is finished early only takes memory.
    idle: Option<Receiver<()>>,
    finished: Sender<FinishedArena>,
    origin: Origin,
    keys: WriteKeys,
    redundancy: Redundancy,
    padded: bool,
    times: Arc<StageTimes>,
}

impl Sealer {
    fn run(self) {
        loop {
            // They end if one panicked, or if the packer was dropped.
            if self.idle.as_ref().is_some_and(|idle| idle.recv().is_err()) {
                return;
            }
            let Ok(arena) = self.closed.recv() else { return };
            // The writer ends early only if no one takes what it has written.
            let _ = self.finished.send(self.finish(arena));
        }
    }

    /// Adds the last blocks of an arena, and what proves and repairs it.
    fn finish(&self, arena: ClosedArena) -> FinishedArena {
        let ClosedArena { seed, mut builder, in_flight } = arena;
        for InFlight { block, slots } in in_flight {
            builder.push(&block.recv().expect("a worker answers every job"), slots);
        }
        let finishing = Finishing {
            generation: 0,
            origin: self.origin,
            keys: &self.keys,
            redundancy: self.redundancy,
            padding: self.padded.then_some(&seed.key),
        };
        self.times.time(Stage::Protect, || builder.finish(finishing))
    }
}

struct Writer {
    idle: Sender<()>,
    finished: Receiver<FinishedArena>,
    written: Sender<Result<WrittenArena, BackendError>>,
    spare_objects: Sender<Vec<u8>>,
    backend: Arc<dyn Backend>,
    near: Option<Arc<Near>>,
    times: Arc<StageTimes>,
}

impl Writer {
    fn run(self) {
        loop {
            // The sealer asks for it only if there are several writers.
            let _ = self.idle.try_send(());
            let Ok(arena) = self.finished.recv() else { return };
            let written = self.write(&arena);
            // If there are enough of them already, it is freed.
            let _ = self.spare_objects.try_send(arena.into_memory());
            if self.written.send(written).is_err() {
                return;
            }
        }
    }

    fn write(&self, arena: &FinishedArena) -> Result<WrittenArena, BackendError> {
        let name = arena.name.object();
        self.times.time(Stage::Write, || self.backend.create(&name, arena.object()))?;
        if let Some(near) = &self.near {
            near.keep(arena.name, arena.object());
        }
        Ok(WrittenArena {
            id: arena.name.id,
            object_bytes: arena.object().len() as u64,
            blocks: arena.summary.blocks.len(),
        })
    }
}
