//! The walk on a thread of its own: while the entries of one directory are held against the
//! parent's, those of the next are listed and asked for by another thread.
//!
//! Events come in batches, so that the two seldom wait for each other, and in their order. What is
//! ahead is bounded by the events of [`BATCHES_MAX`] batches and two more, the one being filled and
//! the one being dealt with; and so are the directories that these hold open.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use strongroom_base::Stopwatch;
use strongroom_repository::{Stage, StageTimes};
use strongroom_source::{TreeSource, WalkEvent};

/// Events of a batch at most.
const BATCH_EVENTS: usize = 256;
/// Directories that a batch may hold open, beside the one it begins in: each of its events that
/// enters or leaves one may lead to another.
const BATCH_DIRECTORIES: usize = 32;
/// On a file system that is slow to answer, a batch is handed on after so long.
const BATCH_TIME: Duration = Duration::from_millis(5);
/// The clock is asked once in so many events.
const CLOCK_EVENTS: usize = 8;
/// Batches that wait.
const BATCHES_MAX: usize = 2;

/// The events of a walk.
pub struct Walker {
    batches: Option<Receiver<Vec<WalkEvent>>>,
    at_hand: std::vec::IntoIter<WalkEvent>,
    /// None once it has ended.
    thread: Option<JoinHandle<()>>,
    times: Arc<StageTimes>,
}

impl Walker {
    /// Begins to walk.
    pub fn start(mut source: TreeSource, times: &Arc<StageTimes>) -> Self {
        let (send, batches) = bounded(BATCHES_MAX);
        let of_thread = times.clone();
        let thread = std::thread::spawn(move || {
            loop {
                let batch = of_thread.time(Stage::Walk, || next_batch(&mut source));
                // An error is that nobody listens any more.
                if batch.is_empty() || send.send(batch).is_err() {
                    return;
                }
            }
        });
        let (batches, at_hand) = (Some(batches), Vec::new().into_iter());
        Self { batches, at_hand, thread: Some(thread), times: times.clone() }
    }

    fn receive(&self) -> Option<Vec<WalkEvent>> {
        let batches = self.batches.as_ref()?;
        let come = batches.try_recv();
        come.or_else(|_| self.times.time(Stage::Wait, || batches.recv())).ok()
    }
}

impl Iterator for Walker {
    type Item = WalkEvent;

    fn next(&mut self) -> Option<WalkEvent> {
        if let Some(event) = self.at_hand.next() {
            return Some(event);
        }
        match self.receive() {
            Some(batch) => self.at_hand = batch.into_iter(),
            None => {
                // A walk that broke off must not pass for one that came to its end.
                if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                    std::panic::resume_unwind(panic);
                }
            }
        }
        self.at_hand.next()
    }
}

impl Drop for Walker {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was told by it; dropping must not raise another.
            let _ = thread.join();
        }
    }
}

/// What comes next; nothing at the end.
fn next_batch(source: &mut TreeSource) -> Vec<WalkEvent> {
    let (begun, mut directories) = (Stopwatch::start(), 0);
    let mut batch = Vec::with_capacity(BATCH_EVENTS);
    for event in source {
        let turns = matches!(event, WalkEvent::EnterDirectory { .. } | WalkEvent::LeaveDirectory);
        directories += usize::from(turns);
        batch.push(event);
        let late = batch.len().is_multiple_of(CLOCK_EVENTS) && begun.elapsed() > BATCH_TIME;
        if batch.len() == BATCH_EVENTS || directories == BATCH_DIRECTORIES || late {
            break;
        }
    }
    batch
}

#[cfg(test)]
mod tests {
    use strongroom_source::SourceOptions;

    use super::*;

    fn told(events: impl Iterator<Item = WalkEvent>) -> Vec<String> {
        let text = |event| match event {
            WalkEvent::EnterDirectory { entry } => format!("{}/", entry.path().display()),
            WalkEvent::Leaf { entry, .. } => entry.path().display().to_string(),
            WalkEvent::LeaveDirectory => "^".to_owned(),
            other => panic!("{other:?}"),
        };
        events.map(text).collect()
    }

    #[test]
    fn events_come_in_their_order_and_may_be_left() {
        let folder = tempfile::tempdir().unwrap();
        for directory in 0..50 {
            let directory = folder.path().join(format!("d{directory}"));
            std::fs::create_dir(&directory).unwrap();
            for file in 0..directory.as_os_str().len() * 4 {
                std::fs::write(directory.join(format!("f{file}")), "").unwrap();
            }
        }
        let open = || TreeSource::open(&[folder.path().into()], &SourceOptions::default()).unwrap();
        let times = Arc::new(StageTimes::default());
        assert_eq!(told(Walker::start(open(), &times)), told(open()));
        assert!(times.of(Stage::Walk) > Duration::ZERO);
        for events in [0, 1, 300] {
            assert_eq!(Walker::start(open(), &times).take(events).count(), events);
        }
    }
}
