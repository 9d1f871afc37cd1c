//! The threads that answer requests, shared by all connections.
//!
//! Each connection has a lane. Threads take a job from one lane after another, and one lane never
//! occupies all threads: a client that asks for much, or for what is slow, holds up no other.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::stream::Deadline;

/// What a thread has to do.
pub type Job = Box<dyn FnOnce() + Send>;

/// The threads.
pub struct Pool {
    // A plain mutex: held to put and to take a job.
    state: Mutex<State>,
    wanted: Condvar,
    ended: Condvar,
    /// The most threads that work for one lane.
    share: usize,
}

#[derive(Default)]
struct State {
    lanes: HashMap<u64, Lane>,
    /// The lanes from which a job may be taken now, each once.
    ready: VecDeque<u64>,
    workers: usize,
    is_ending: bool,
}

#[derive(Default)]
struct Lane {
    jobs: VecDeque<Job>,
    running: usize,
    /// It is in the list of ready lanes.
    is_ready: bool,
}

impl Pool {
    /// Starts this many threads, at least two.
    pub fn start(workers: usize) -> io::Result<Arc<Self>> {
        let workers = workers.max(2);
        let share = (workers * 3 / 4).max(1);
        let pool = Arc::new(Self {
            state: Mutex::default(),
            wanted: Condvar::new(),
            ended: Condvar::new(),
            share,
        });
        for _ in 0..workers {
            let worker = Worker(pool.clone());
            pool.state().workers += 1;
            let name = "nbd worker".to_owned();
            let spawned = std::thread::Builder::new().name(name).spawn(move || worker.0.work());
            if let Err(error) = spawned {
                pool.end(Duration::ZERO);
                return Err(error);
            }
        }
        Ok(pool)
    }

    /// Has a thread do a job of a lane. The caller bounds how many jobs wait.
    pub fn submit(&self, lane: u64, job: Job) {
        let mut state = self.state();
        if state.is_ending {
            return;
        }
        state.lanes.entry(lane).or_default().jobs.push_back(job);
        state.settle(lane, self.share);
        drop(state);
        self.wanted.notify_one();
    }

    /// Ends the threads; jobs that wait are dropped. Returns true if all ended within this time.
    pub fn end(&self, limit: Duration) -> bool {
        let deadline = Deadline::within(limit);
        let mut state = self.state();
        state.is_ending = true;
        let waiting: Vec<Job> =
            state.lanes.values_mut().flat_map(|lane| lane.jobs.drain(..)).collect();
        drop(state);
        // Without the lock: a job may hold anything.
        drop(waiting);
        self.wanted.notify_all();
        let mut state = self.state();
        while state.workers > 0 && !deadline.has_passed() {
            let waited = self.ended.wait_timeout(state, deadline.left());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.workers == 0
    }

    fn work(&self) {
        let mut state = self.state();
        while !state.is_ending {
            let Some((number, job)) = state.take(self.share) else {
                state = self.wanted.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            // A job that panics has said so. The thread is needed for others.
            let _ = catch_unwind(AssertUnwindSafe(job));
            state = self.state();
            state.finish(number, self.share);
            if !state.ready.is_empty() {
                self.wanted.notify_one();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The next job, of the lane that has waited longest.
    fn take(&mut self, share: usize) -> Option<(u64, Job)> {
        let number = self.ready.pop_front()?;
        let lane = self.lanes.get_mut(&number)?;
        lane.is_ready = false;
        let job = lane.jobs.pop_front()?;
        lane.running += 1;
        self.settle(number, share);
        Some((number, job))
    }

    fn finish(&mut self, number: u64, share: usize) {
        if let Some(lane) = self.lanes.get_mut(&number) {
            lane.running -= 1;
        }
        self.settle(number, share);
    }

    /// Puts a lane among those that are ready, or forgets one that is empty.
    fn settle(&mut self, number: u64, share: usize) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        if lane.jobs.is_empty() && lane.running == 0 {
            self.lanes.remove(&number);
        } else if !lane.jobs.is_empty() && !lane.is_ready && lane.running < share {
            lane.is_ready = true;
            self.ready.push_back(number);
        }
    }
}

/// A thread. It is counted until it ends.
struct Worker(Arc<Pool>);

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.state().workers -= 1;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_slow_lane_holds_up_no_other() {
        let pool = Pool::start(4).unwrap();
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..20 {
            let held = held.clone();
            pool.submit(1, Box::new(move || assert!(held.lock().unwrap().recv().is_err())));
        }
        let (done, finished) = channel();
        for number in 0..50 {
            let done = done.clone();
            pool.submit(2, Box::new(move || done.send(number).unwrap()));
        }
        for _ in 0..50 {
            finished.recv_timeout(Duration::from_secs(10)).expect("lane 2 goes on");
        }
        drop(release);
        pool.submit(3, Box::new(|| panic!("a job's own fault")));
        pool.submit(3, Box::new(move || done.send(99).unwrap()));
        assert_eq!(finished.recv_timeout(Duration::from_secs(10)), Ok(99));
        assert!(pool.end(Duration::from_secs(10)));
    }
}
