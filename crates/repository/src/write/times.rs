//! How long each stage of the pipeline was at work, and how long one waited for another.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvError, SendError, Sender, TrySendError};
use strongroom_base::Stopwatch;

/// A stage of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Listing directories, and asking for the metadata of their entries.
    Walk,
    /// Opening, reading, cutting and naming the chunks of files.
    Read,
    /// The thread that compares with the parent, looks chunks up, encodes deltas and builds trees,
    /// waiting for another stage.
    Wait,
    /// Compressing and sealing blocks.
    Compress,
    /// Parity and signatures of arenas.
    Protect,
    /// Writing arenas to the backend.
    Write,
}

/// Time at work, summed over the threads of each stage.
#[derive(Debug, Default)]
pub struct StageTimes {
    nanoseconds: [AtomicU64; 6],
}

impl StageTimes {
    /// Does some work of a stage.
    pub fn time<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let begun = Stopwatch::start();
        let made = work();
        self.add(stage, begun.elapsed());
        made
    }

    /// Adds time that a stage was at work.
    pub fn add(&self, stage: Stage, spent: Duration) {
        let spent = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds[stage as usize].fetch_add(spent, Ordering::Relaxed);
    }

    /// How long a stage was at work so far.
    pub fn of(&self, stage: Stage) -> Duration {
        Duration::from_nanos(self.nanoseconds[stage as usize].load(Ordering::Relaxed))
    }

    /// Receives what another stage sends, and counts the time if that is not ready yet.
    pub fn receive<T>(&self, from: &Receiver<T>) -> Result<T, RecvError> {
        from.try_recv().or_else(|_| self.time(Stage::Wait, || from.recv()))
    }

    /// Sends to another stage, and counts the time if that has no room yet.
    pub fn send<T>(&self, to: &Sender<T>, value: T) -> Result<(), SendError<T>> {
        let (sent, waited) = send(to, value);
        self.add(Stage::Wait, waited);
        sent
    }
}

/// Sends, and reports how long it waited for room.
pub fn send<T>(to: &Sender<T>, value: T) -> (Result<(), SendError<T>>, Duration) {
    match to.try_send(value) {
        Ok(()) => (Ok(()), Duration::ZERO),
        Err(TrySendError::Disconnected(value)) => (Err(SendError(value)), Duration::ZERO),
        Err(TrySendError::Full(value)) => {
            let begun = Stopwatch::start();
            let sent = to.send(value);
            (sent, begun.elapsed())
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;

    #[test]
    fn work_and_waiting_are_counted() {
        let times = StageTimes::default();
        times.time(Stage::Compress, || std::thread::sleep(Duration::from_millis(20)));
        assert!(times.of(Stage::Compress) >= Duration::from_millis(20));
        assert_eq!(times.of(Stage::Read), Duration::ZERO);
        let (to, from) = bounded(1);
        times.send(&to, 1).unwrap();
        assert_eq!(times.receive(&from), Ok(1));
        assert_eq!(times.of(Stage::Wait), Duration::ZERO, "neither had to wait");
        let slow = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            to.send(2).unwrap();
        });
        assert_eq!(times.receive(&from), Ok(2));
        assert!(times.of(Stage::Wait) > Duration::ZERO);
        slow.join().unwrap();
        assert!(times.receive(&from).is_err(), "the sender is gone");
    }

    #[test]
    fn a_full_queue_is_waited_for_and_a_closed_one_reported() {
        let (to, from) = bounded(1);
        assert_eq!(send(&to, 1), (Ok(()), Duration::ZERO));
        let slow = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            (from.recv().unwrap(), from.recv().unwrap())
        });
        let (sent, waited) = send(&to, 2);
        assert!(sent.is_ok() && waited > Duration::ZERO);
        assert_eq!(slow.join().unwrap(), (1, 2));
        assert_eq!(send(&to, 3).0, Err(SendError(3)));
    }
}
