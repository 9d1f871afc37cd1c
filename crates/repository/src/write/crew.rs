//! Threads that work until their queues close.

use std::thread::JoinHandle;

/// Threads that end when their queues close.
///
/// A crew is the last field of the structure that feeds it. Fields are dropped in their order, so
/// the structure's ends of the queues close first, and dropping the crew then waits for threads
/// that are about to end.
#[derive(Debug, Default)]
pub struct Crew {
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts one more thread.
    pub fn start(&mut self, work: impl FnOnce() + Send + 'static) {
        self.threads.push(std::thread::spawn(work));
    }

    /// Whether a thread has ended. While the queues are open, only a panic ends one.
    pub fn has_ended(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Waits for every thread, and continues the panic of one that panicked: what a thread did not
    /// finish must not pass for finished. The queues must be closed.
    pub fn join(mut self) {
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            // The thread has reported its panic; dropping must not raise another.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crossbeam_channel::{Sender, unbounded};

    use super::*;

    /// Adds up what it is sent.
    struct Sum {
        numbers: Sender<usize>,
        total: Arc<AtomicUsize>,
        crew: Crew,
    }

    fn sum() -> Sum {
        let (numbers, queue) = unbounded::<usize>();
        let total = Arc::new(AtomicUsize::new(0));
        let mut crew = Crew::default();
        for _ in 0..3 {
            let (queue, total) = (queue.clone(), total.clone());
            crew.start(move || {
                for number in queue {
                    assert_ne!(number, 13, "an unlucky number");
                    total.fetch_add(number, Ordering::Relaxed);
                }
            });
        }
        Sum { numbers, total, crew }
    }

    #[test]
    fn all_that_was_sent_is_done_before_a_crew_has_joined_or_is_dropped() {
        let Sum { numbers, total, crew } = sum();
        (1..=10).for_each(|number| numbers.send(number).unwrap());
        drop(numbers);
        crew.join();
        assert_eq!(total.load(Ordering::Relaxed), 55);
        let sum = sum();
        let total = sum.total.clone();
        (1..=10).for_each(|number| sum.numbers.send(number).unwrap());
        drop(sum);
        assert_eq!(total.load(Ordering::Relaxed), 55);
    }

    #[test]
    fn a_panic_is_continued_by_join_and_not_by_drop() {
        let Sum { numbers, crew, .. } = sum();
        numbers.send(13).unwrap();
        drop(numbers);
        assert!(catch_unwind(AssertUnwindSafe(|| crew.join())).is_err());
        let sum = sum();
        sum.numbers.send(13).unwrap();
        drop(sum);
    }
}
