//! Threads that open blocks before they are asked for.
//!
//! A part of a disk is turned into the blocks that have its chunks, each once; threads open these
//! into the cache at the same time, whichever arena they are in. What fails is not reported: the
//! read that needs it fails again.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use strongroom_catalog::ChunkRef;

use super::map::{DiskMap, Nodes};
use crate::chunks::{Chunks, Failure};

/// Parts and blocks that wait; what comes on top is left to those who read.
const TASKS_MAX: usize = 1024;
/// The most chunks that are looked at for one part. A recipe may be of chunks of one byte.
const CHUNKS_MAX: usize = 1 << 16;

/// Opens blocks on threads of its own.
pub struct Fetcher {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

struct Queue {
    chunks: Arc<Chunks>,
    nodes: Arc<Nodes<Chunks>>,
    // A plain mutex: held to put and to take a task.
    state: Mutex<State>,
    wanted: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    is_ending: bool,
}

enum Task {
    /// The blocks of a part of a disk.
    Part(Arc<DiskMap>, Range<u64>, Holes),
    /// The block of a chunk.
    Block(ChunkRef),
}

/// What a hole in a part that is fetched means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holes {
    /// Nothing behind it is fetched: a reader that arrives there has no reason to go on.
    End,
    /// It is passed over.
    Pass,
}

impl Fetcher {
    /// Starts the threads.
    pub fn start(
        chunks: Arc<Chunks>,
        nodes: Arc<Nodes<Chunks>>,
        threads: usize,
    ) -> io::Result<Self> {
        let (state, wanted) = (Mutex::default(), Condvar::new());
        let queue = Arc::new(Queue { chunks, nodes, state, wanted });
        let mut fetcher = Self { queue, threads: Vec::new() };
        for _ in 0..threads.max(2) {
            let queue = fetcher.queue.clone();
            let thread = std::thread::Builder::new().name("nbd fetcher".to_owned());
            fetcher.threads.push(thread.spawn(move || queue.work())?);
        }
        Ok(fetcher)
    }

    /// Has a part of a disk fetched, and returns at once.
    pub fn fetch(&self, map: &Arc<DiskMap>, part: Range<u64>, holes: Holes) {
        let part = part.start..part.end.min(map.bytes());
        if !part.is_empty() {
            self.queue.put(std::iter::once(Task::Part(map.clone(), part, holes)));
        }
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.is_ending = true;
        state.tasks.clear();
        drop(state);
        self.queue.wanted.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Queue {
    fn work(&self) {
        while let Some(task) = self.next() {
            match task {
                Task::Block(chunk) => self.chunks.open_block_once(&chunk),
                Task::Part(map, part, holes) => self.divide(&map, part, holes),
            }
        }
    }

    fn next(&self) -> Option<Task> {
        let mut state = self.state();
        loop {
            if state.is_ending {
                return None;
            }
            if let Some(task) = state.tasks.pop_front() {
                return Some(task);
            }
            state = self.wanted.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put(&self, tasks: impl Iterator<Item = Task>) {
        let mut state = self.state();
        let room = TASKS_MAX.saturating_sub(state.tasks.len());
        state.tasks.extend(tasks.take(room));
        drop(state);
        self.wanted.notify_all();
    }

    /// Puts each block of a part into the queue once.
    fn divide(&self, map: &DiskMap, part: Range<u64>, holes: Holes) {
        let (mut known, mut blocks) = (HashSet::new(), Vec::new());
        let mut looked_at = 0;
        let found = map.for_each(part, &self.nodes, |_, chunk| {
            let is_end = chunk.is_hole() && holes == Holes::End;
            looked_at += 1;
            if is_end || blocks.len() == TASKS_MAX || looked_at > CHUNKS_MAX {
                return Ok(ControlFlow::Break(()));
            }
            if !chunk.is_hole()
                && let Some(block) = self.chunks.block_of(chunk)
                && known.insert(block)
            {
                blocks.push(Task::Block(*chunk));
            }
            Ok::<_, Failure>(ControlFlow::Continue(()))
        });
        // What was found before a failure is fetched all the same.
        let _ = found;
        self.put(blocks.into_iter());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
