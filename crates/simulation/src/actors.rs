//! Who takes part, and what each does: the engine's verbs, and a note in the ledger of what they
//! reported.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strongroom_base::{Cancel, Clock, Silent, SizeLimits, SnapshotId, Timestamp};
use strongroom_engine::{EngineError, backup_reader};
use strongroom_repository::{Repository, RepositoryError};
use strongroom_testkit::{Random, TickingClock, draw_limits};
use strongroom_upkeep::{PruneOptions, forget, prune, remember};

use crate::beginning::{Beginning, FILE, backup_options, content};
use crate::judge::read_back;
use crate::ledger::{Report, Wish};
use crate::stage::{Handle, NO_ANSWER, Shared, Stage};

/// A part that an actor plays.
#[derive(Debug, Clone, Copy)]
pub enum Part {
    /// Backs up as this host.
    Client(u64),
    /// Collects.
    Collector,
    /// Forgets, and takes it back.
    Forgetter,
    /// Reads snapshots back.
    Reader,
}

/// Who takes part in a schedule.
pub fn draw_cast(random: &mut Random) -> Vec<Part> {
    // Two machines of one name are parents of each other's snapshots.
    let hosts = 1 + random.below(2);
    let clients = 2 + random.below(2);
    let mut cast: Vec<Part> = (0..clients).map(|client| Part::Client(client % hosts)).collect();
    cast.extend([Part::Collector, Part::Forgetter]);
    if random.once_in(2) {
        cast.push(Part::Collector);
    }
    if random.once_in(4) {
        cast.push(Part::Reader);
    }
    cast
}

impl Part {
    /// Its name in a trace.
    pub fn name(self, number: usize) -> String {
        match self {
            Self::Client(_) => format!("client {number}"),
            Self::Collector => format!("collector {number}"),
            Self::Forgetter => "forgetter".to_owned(),
            Self::Reader => "reader".to_owned(),
        }
    }

    /// How often it does what it does.
    fn rounds(self, random: &mut Random) -> u64 {
        match self {
            Self::Client(_) | Self::Collector => 1 + random.below(2),
            Self::Forgetter => 1 + random.below(4),
            Self::Reader => 2,
        }
    }
}

/// A clock that goes on with the calls of the schedule. It may be wrong by years.
struct StageClock {
    stage: Arc<Stage>,
    wrong_by: i64,
    /// It shows multiples of this: two backups often begin at the same time, and make equal trees.
    coarse: i64,
}

impl Clock for StageClock {
    fn now(&self) -> Timestamp {
        let calls = self.stage.shared().calls.cast_signed();
        Timestamp(TickingClock::START.0 + self.wrong_by + calls / self.coarse * self.coarse)
    }
}

/// One who takes part.
pub struct Actor<'s> {
    stage: &'s Arc<Stage>,
    beginning: &'s Beginning,
    number: usize,
    part: Part,
    /// Where its machine keeps caches.
    cache: Option<PathBuf>,
}

impl<'s> Actor<'s> {
    /// An actor that waits for its turn.
    pub fn new(
        stage: &'s Arc<Stage>,
        beginning: &'s Beginning,
        number: usize,
        part: Part,
        cache: Option<PathBuf>,
    ) -> Self {
        Self { stage, beginning, number, part, cache }
    }

    /// Plays the part to its end.
    pub fn play(&self) {
        self.stage.enter(self.number);
        // The others wait for this one.
        if catch_unwind(AssertUnwindSafe(|| self.play_rounds())).is_err() {
            let shared = &mut *self.stage.shared();
            shared.ledger.lose(format!("{} panicked", self.part.name(self.number)));
        }
        self.stage.leave(self.number);
    }

    fn play_rounds(&self) {
        let rounds = self.part.rounds(&mut self.stage.shared().random);
        for _ in 0..rounds {
            match self.part {
                Part::Client(host) => self.back_up(&format!("host-{host}")),
                Part::Collector => self.collect(),
                Part::Forgetter => self.forget_or_remember(),
                Part::Reader => self.read(),
            }
            if self.stage.revive(self.number) && self.draw(|random| random.once_in(3)) {
                break;
            }
        }
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Random) -> T) -> T {
        draw(&mut self.stage.shared().random)
    }

    /// The repository, opened by a new program.
    fn open(&self, coarse: i64) -> Repository {
        let handle = Handle { stage: self.stage.clone(), actor: self.number };
        // The programs of one repository need not have the same limits.
        let (seed, wrong_by, limits) = self.draw(|random| {
            let wrong_by = *random.pick(&[0, 0, 0, 1, -1_000_000, 365 * 86_400_000_000_000]);
            let limits = if random.once_in(3) { SizeLimits::DEFAULT } else { draw_limits(random) };
            (random.number(), wrong_by, limits)
        });
        let clock = StageClock { stage: self.stage.clone(), wrong_by, coarse };
        let (handle, clock) = (Arc::new(handle), Arc::new(clock));
        self.beginning.open(handle, clock, seed, self.cache.clone(), limits)
    }

    fn is_killed(&self) -> bool {
        self.stage.shared().is_killed(self.number)
    }

    fn note(&self, what: &str, outcome: &str) {
        self.stage.shared().note(self.number, what, "", outcome);
    }

    fn back_up(&self, host: &str) {
        let (label, content, is_new) = {
            let shared = &mut *self.stage.shared();
            let content = content(&mut shared.random, &shared.ledger);
            (shared.ledger.begin(content.clone()), content, shared.random.once_in(3))
        };
        // A machine that is new has no parent, and finds chunks by their fingerprints alone.
        let host = if is_new { format!("new-{label}") } else { host.to_owned() };
        let repository = self.open(1000);
        self.note(&format!("begins backup {label}"), "");
        let mut input = &content[..];
        let options = backup_options(label, &host);
        let outcome =
            backup_reader(&repository, FILE, &mut input, &options, &Silent, &Cancel::new());
        let report = match &outcome {
            Ok(outcome) => Report::Committed(outcome.snapshot.id),
            Err(EngineError::Repository(RepositoryError::CommitUnknown { .. })) => Report::Nothing,
            Err(error) => Report::Failed(error.to_string()),
        };
        if self.is_killed() {
            return;
        }
        self.note(&format!("reports backup {label}"), &format!("{report:?}"));
        let shared = &mut *self.stage.shared();
        let counts = &mut shared.ledger.counts;
        match &outcome {
            Ok(outcome) => {
                counts.commits += 1;
                counts.with_deltas += u64::from(outcome.written.deltas > 0);
            }
            Err(EngineError::Repository(RepositoryError::Fenced { .. })) => counts.fenced += 1,
            Err(EngineError::Repository(RepositoryError::CommitUnknown { .. })) => {
                counts.unknown += 1;
            }
            Err(error) => expect_no_answer(shared, "a backup", &error.to_string()),
        }
        shared.ledger.attempts[label].report = report;
    }

    fn collect(&self) {
        let options = self.draw(|random| PruneOptions {
            unused_percent_max: *random.pick(&[0, 0, 0, 5]),
            patience: *random.pick(&[Duration::ZERO, Duration::ZERO, Duration::MAX]),
            rewritten_max: *random.pick(&[None, None, Some(4000)]),
            time_max: *random.pick(&[None, None, Some(Duration::ZERO)]),
            dry_run: random.once_in(20),
        });
        let repository = self.open(1);
        self.note("begins to collect", "");
        let outcome = prune(&repository, &options, &Silent, &Cancel::new());
        if self.is_killed() {
            return;
        }
        let shared = &mut *self.stage.shared();
        match outcome {
            Ok(outcome) => {
                shared.note(self.number, "has collected", "", "");
                shared.ledger.counts.waited += u64::from(!outcome.waiting.is_empty());
            }
            Err(RepositoryError::OtherCollector { .. }) => {}
            Err(error @ RepositoryError::Miscounted { .. }) => {
                // The marks and the second reckoning differ: no weather excuses that.
                shared.ledger.lose(format!("a collection miscounted: {error}"));
            }
            Err(error) => {
                shared.note(self.number, "cannot collect", "", &error.to_string());
                expect_no_answer(shared, "a collection", &error.to_string());
            }
        }
    }

    fn forget_or_remember(&self) {
        let (label, id, may_go) = {
            let shared = &mut *self.stage.shared();
            let attempts = shared.ledger.attempts.iter().enumerate();
            let known = attempts.filter_map(|(label, attempt)| {
                Some((label, attempt.committed()?, attempt.may_go()))
            });
            let known: Vec<(usize, SnapshotId, bool)> = known.collect();
            *shared.random.pick(&known)
        };
        let repository = self.open(1);
        if may_go && self.draw(|random| random.once_in(2)) {
            self.note(&format!("wants {label} back"), "");
            {
                let attempt = &mut self.stage.shared().ledger.attempts[label];
                attempt.wish(Wish::Asked);
                attempt.is_wanted_back = true;
            }
            let outcome = remember(&repository, &[id]);
            if self.is_killed() {
                return;
            }
            let shared = &mut *self.stage.shared();
            match outcome {
                Ok(late) if late.is_empty() => {
                    shared.note(self.number, &format!("has {label} back"), "", "");
                    shared.ledger.counts.taken_back += 1;
                    let attempt = &mut shared.ledger.attempts[label];
                    attempt.wish(Wish::TakenBack);
                    attempt.is_wanted_back = false;
                }
                Ok(_) => shared.note(self.number, &format!("is too late for {label}"), "", ""),
                Err(error) => expect_no_answer(shared, "taking back", &error.to_string()),
            }
            return;
        }
        self.note(&format!("forgets {label}"), "");
        self.stage.shared().ledger.attempts[label].wish(Wish::Asked);
        let outcome = forget(&repository, &[id]);
        if self.is_killed() {
            return;
        }
        let shared = &mut *self.stage.shared();
        match outcome {
            Ok(_) => shared.ledger.attempts[label].wish(Wish::Forget),
            Err(error) => expect_no_answer(shared, "forgetting", &error.to_string()),
        }
    }

    fn read(&self) {
        let (label, id, wishes) = {
            let shared = &mut *self.stage.shared();
            let attempts = shared.ledger.attempts.iter().enumerate();
            let kept = attempts.filter(|(_, attempt)| !attempt.may_go());
            let kept = kept
                .filter_map(|(label, attempt)| Some((label, attempt.committed()?, attempt.wishes)));
            let kept: Vec<(usize, SnapshotId, u32)> = kept.collect();
            if kept.is_empty() {
                return;
            }
            *shared.random.pick(&kept)
        };
        let repository = self.open(1);
        let found = read_back(&repository, id);
        if self.is_killed() {
            return;
        }
        let shared = &mut *self.stage.shared();
        shared.ledger.counts.read_back += 1;
        let attempt = &shared.ledger.attempts[label];
        if attempt.wishes != wishes {
            return;
        }
        match found {
            Ok(found) if found[..] == attempt.content[..] => {}
            Ok(_) => shared.ledger.lose(format!("a reader finds other content in {label}")),
            Err(error) => expect_no_answer(shared, &format!("reading {label}"), &error.to_string()),
        }
    }
}

/// In a store that keeps its promises, nothing but the lack of an answer stops a verb. An object that
/// cannot be read for a time is taken for damaged, with good reason.
fn expect_no_answer(shared: &mut Shared, what: &str, error: &str) {
    if !error.contains(NO_ANSWER) && !shared.weather.hides_objects() {
        shared.ledger.lose(format!("{what} was stopped: {error}"));
    }
}
