//! Several requests at a time: far away, each takes a round trip.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

/// At most this many are read at the same time.
const THREADS_MAX: usize = 8;
/// Fewer are not worth threads if the place is near.
const MANY: usize = 64;

/// Reads each of these and calls `take` with what came, in no certain order. A few results wait to
/// be taken, at most. After the first error of `take`, no more are read. `in_flight` is how many
/// requests the place is good for ([`Promises::in_flight`](crate::Promises::in_flight)).
pub fn each_read_ahead<T: Sync, R: Send, E>(
    in_flight: usize,
    wanted: &[T],
    read: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(&T, R) -> Result<(), E>,
) -> Result<(), E> {
    let is_far = in_flight > 1;
    if wanted.len() < if is_far { 2 } else { MANY } {
        return wanted.iter().try_for_each(|one| take(one, read(one)));
    }
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let most = if is_far { in_flight.min(THREADS_MAX) } else { THREADS_MAX };
        let threads = most.min(wanted.len());
        let (sender, receiver) = sync_channel(threads);
        for _ in 0..threads {
            let (sender, next, read) = (sender.clone(), &next, &read);
            scope.spawn(move || {
                // Once nothing is taken any more, sending fails.
                while let Some(one) = wanted.get(next.fetch_add(1, Ordering::Relaxed))
                    && sender.send((one, read(one))).is_ok()
                {}
            });
        }
        drop(sender);
        receiver.into_iter().try_for_each(|(one, came)| take(one, came))
    })
}

/// Does both and returns when both are done: at the same time if the place is good for several
/// requests, otherwise one after the other. `in_flight` is as for [`each_read_ahead`].
pub fn both<A: Send, B>(
    in_flight: usize,
    one: impl FnOnce() -> A + Send,
    other: impl FnOnce() -> B,
) -> (A, B) {
    if in_flight <= 1 {
        let one = one();
        return (one, other());
    }
    thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        (one.join().unwrap_or_else(|panic| resume_unwind(panic)), other)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn each_is_taken_once() {
        for count in [0, 1, MANY - 1, MANY, 1000] {
            let wanted: Vec<usize> = (0..count).collect();
            let mut taken = BTreeSet::new();
            let read = |one: &usize| one * 2;
            let take = |one: &usize, came: usize| {
                assert_eq!(came, one * 2);
                assert!(taken.insert(*one));
                Ok::<_, ()>(())
            };
            each_read_ahead(1, &wanted, read, take).unwrap();
            assert_eq!(taken.len(), count);
        }
    }

    #[test]
    fn both_are_done() {
        for in_flight in [1, 2] {
            let mut last = 0;
            assert_eq!(both(in_flight, || 1, || last = 2), (1, ()));
            assert_eq!(last, 2);
        }
        let panicked = std::panic::catch_unwind(|| both(2, || panic!("one"), || 2));
        assert!(panicked.is_err());
    }

    #[test]
    fn after_an_error_little_is_read() {
        let wanted: Vec<usize> = (0..10_000).collect();
        let reads = AtomicUsize::new(0);
        let read = |_: &usize| reads.fetch_add(1, Ordering::Relaxed);
        assert_eq!(each_read_ahead(1, &wanted, read, |_, _| Err("stop")), Err("stop"));
        assert!(reads.into_inner() < 1000);
    }
}
