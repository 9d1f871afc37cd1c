//! The walk on a thread of its own: while the entries of one directory are compared with the
//! parent's, another thread lists the next directory and reads the metadata of its entries.
//!
//! Events come in batches, so that the two seldom wait for each other, and in their order. At most
//! [`BATCHES_MAX`] batches and two more are ahead: the one being filled and the one being used.
//! That bounds the directories that are held open, too.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use strongroom_base::Stopwatch;
use strongroom_repository::{Crew, Stage, StageTimes};
use strongroom_source::{TreeSource, WalkEvent};

/// Events of a batch at most.
const BATCH_EVENTS: usize = 256;
/// Directories that a batch may hold open, besides the one it begins in: each of its events that
/// enters or leaves one may lead to another.
const BATCH_DIRECTORIES: usize = 32;
/// On a file system that is slow to answer, a batch is sent after this time.
const BATCH_TIME: Duration = Duration::from_millis(5);
/// The clock is read once in this many events.
const CLOCK_EVENTS: usize = 8;
/// Batches that wait.
const BATCHES_MAX: usize = 2;

/// The events of a walk.
pub struct Walker {
    batches: Receiver<Vec<WalkEvent>>,
    at_hand: std::vec::IntoIter<WalkEvent>,
    times: Arc<StageTimes>,
    /// Last: the queue closes first. Empty once the walk has ended.
    crew: Crew,
}

impl Walker {
    /// Begins to walk.
    pub fn start(mut source: TreeSource, times: &Arc<StageTimes>) -> Self {
        let (send, batches) = bounded(BATCHES_MAX);
        let of_thread = times.clone();
        let mut crew = Crew::default();
        crew.start(move || {
            loop {
                let batch = of_thread.time(Stage::Walk, || next_batch(&mut source));
                // An error means that the walker was dropped.
                if batch.is_empty() || send.send(batch).is_err() {
                    return;
                }
            }
        });
        Self { batches, at_hand: Vec::new().into_iter(), times: times.clone(), crew }
    }
}

impl Iterator for Walker {
    type Item = WalkEvent;

    fn next(&mut self) -> Option<WalkEvent> {
        if let Some(event) = self.at_hand.next() {
            return Some(event);
        }
        match self.times.receive(&self.batches) {
            Ok(batch) => self.at_hand = batch.into_iter(),
            // A walk that panicked must not pass for one that ended.
            Err(_) => std::mem::take(&mut self.crew).join(),
        }
        self.at_hand.next()
    }
}

/// The next events; none at the end.
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

    fn texts(events: impl Iterator<Item = WalkEvent>) -> Vec<String> {
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
        assert_eq!(texts(Walker::start(open(), &times)), texts(open()));
        assert!(times.of(Stage::Walk) > Duration::ZERO);
        for events in [0, 1, 300] {
            assert_eq!(Walker::start(open(), &times).take(events).count(), events);
        }
    }
}
