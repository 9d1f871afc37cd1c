//! Which requests follow each other, and how far ahead of them is worth reading.
//!
//! Several clients may read one disk from front to back at different places, each with requests that
//! arrive a little out of order. Each such place is a *run*. After the second request of a run,
//! 256 KiB ahead of it are fetched, and twice as much each time that half of this is used up.

use std::ops::Range;

/// How much is fetched ahead at first.
pub const AHEAD_BYTES_MIN: u64 = 256 << 10;
/// How much is fetched ahead at most.
pub const AHEAD_BYTES_MAX: u64 = 8 << 20;
/// How much all runs of a disk together fetch ahead.
const AHEAD_BYTES_SUM: u64 = 32 << 20;
/// Runs that are followed at the same time.
const RUNS_MAX: usize = 8;
/// A request may begin this far before the end of those that it follows.
const BEFORE_BYTES_MAX: u64 = 1 << 20;
/// A request may begin this far behind the end of those that it follows.
const BEHIND_BYTES_MAX: u64 = 256 << 10;

/// The runs of one disk.
#[derive(Debug, Default)]
pub struct Sequence {
    /// That of the last request is last.
    runs: Vec<Run>,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    /// Where the requests so far end.
    end: u64,
    /// How many there were.
    requests: u64,
    /// How much is fetched ahead.
    window: u64,
    /// What was fetched ends here.
    fetched: u64,
}

impl Sequence {
    /// Notes a request, and returns what is now to be fetched, if anything.
    pub fn note(&mut self, request: Range<u64>) -> Option<Range<u64>> {
        let follows = |run: &Run| {
            let from = run.end.saturating_sub(BEFORE_BYTES_MAX);
            (from..=run.end.saturating_add(BEHIND_BYTES_MAX)).contains(&request.start)
        };
        let Some(place) = self.runs.iter().rposition(follows) else {
            if self.runs.len() == RUNS_MAX {
                self.runs.remove(0);
            }
            let end = request.end;
            self.runs.push(Run { end, requests: 1, window: AHEAD_BYTES_MIN, fetched: end });
            return None;
        };
        let mut run = self.runs.remove(place);
        let window_max = (AHEAD_BYTES_SUM / (self.runs.len() as u64 + 1)).min(AHEAD_BYTES_MAX);
        let wanted = run.follow(request.end, window_max);
        self.runs.push(run);
        wanted
    }
}

impl Run {
    fn follow(&mut self, end: u64, window_max: u64) -> Option<Range<u64>> {
        self.end = self.end.max(end);
        self.requests += 1;
        let from = self.fetched.max(self.end);
        let to = self.end.saturating_add(self.window);
        if to - from.min(to) < self.window / 2 {
            return None;
        }
        self.fetched = to;
        self.window = (self.window * 2).min(window_max);
        Some(from..to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn the_second_request_of_a_run_begins_it_and_windows_double() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.note(0..64 * KIB), None);
        assert_eq!(sequence.note(64 * KIB..128 * KIB), Some(128 * KIB..384 * KIB));
        let (mut fetched, mut longest) = (384 * KIB, 0);
        for request in 2..1000 {
            let end = (request + 1) * 64 * KIB;
            if let Some(wanted) = sequence.note(request * 64 * KIB..end) {
                assert_eq!(wanted.start, fetched, "nothing twice, and nothing left out");
                fetched = wanted.end;
            }
            assert!(fetched > end, "it stays ahead");
            longest = longest.max(fetched - end);
        }
        assert_eq!(longest, AHEAD_BYTES_MAX);
    }

    #[test]
    fn requests_that_jump_fetch_nothing() {
        let mut sequence = Sequence::default();
        for step in 0..1000_u64 {
            let start = (step * 7919 % 1000) * (16 << 20);
            assert_eq!(sequence.note(start..start + 4 * KIB), None);
        }
        assert!(sequence.runs.len() <= RUNS_MAX);
    }

    #[test]
    fn four_clients_at_four_places_are_four_runs() {
        let mut sequence = Sequence::default();
        let mut fetched = 0;
        for step in 0..64 {
            for client in 0..4 {
                // Two requests of each client are in the wrong order.
                let start = (client << 30) + (step ^ 1) * 256 * KIB;
                let wanted = sequence.note(start..start + 256 * KIB);
                fetched += wanted.map_or(0, |wanted| wanted.end - wanted.start);
            }
        }
        assert_eq!(sequence.runs.len(), 4);
        assert!((60 << 20..100 << 20).contains(&fetched), "{fetched}");
    }

    #[test]
    fn offsets_at_the_end_of_all_numbers_do_no_harm() {
        let mut sequence = Sequence::default();
        for start in [u64::MAX - 4096, u64::MAX - 100, u64::MAX - 1] {
            let _ = sequence.note(start..u64::MAX);
        }
    }
}
