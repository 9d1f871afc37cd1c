//! How bad a schedule is: what the store does to calls, how long actors sleep, how often programs
//! are killed. Each seed has its own.

use strongroom_testkit::Random;

use crate::store::Fate;

/// Each number N means once in N calls; 0 means never.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    /// An operation whose answer is lost.
    pub odd_change: u64,
    /// An operation that is done once more later.
    pub repeated_change: u64,
    /// A lost answer after which the caller gets none to its next calls either.
    pub outage: u64,
    /// A look that gets no answer.
    pub failed_look: u64,
    /// An object can no longer be read, for some time.
    pub bad_spot: u64,
    /// A pending operation is done.
    pub landing: u64,
    /// The caller sleeps.
    pub sleep: u64,
    /// It sleeps for at most this many calls of others.
    pub sleep_max: u64,
    /// The caller's program is killed.
    pub kill: u64,
    /// Of 100 calls, after this many the caller goes on without letting others run.
    pub stay_percent: u64,
}

impl Weather {
    /// Nothing goes wrong.
    pub const CALM: Self = Self {
        odd_change: 0,
        repeated_change: 0,
        outage: 0,
        failed_look: 0,
        bad_spot: 0,
        landing: 0,
        sleep: 0,
        sleep_max: 1,
        kill: 0,
        stay_percent: 100,
    };

    /// The weather of a schedule.
    pub fn draw(random: &mut Random) -> Self {
        Self {
            odd_change: *random.pick(&[0, 0, 8, 20, 60]),
            repeated_change: *random.pick(&[0, 0, 4, 20]),
            outage: *random.pick(&[0, 2, 4]),
            failed_look: *random.pick(&[0, 0, 0, 300, 1000]),
            bad_spot: *random.pick(&[0, 0, 0, 0, 100]),
            landing: *random.pick(&[10, 50, 300, 0]),
            sleep: *random.pick(&[0, 15, 40, 150]),
            sleep_max: *random.pick(&[20, 200, 800]),
            kill: *random.pick(&[0, 0, 150, 500]),
            stay_percent: *random.pick(&[0, 60, 90, 97]),
        }
    }

    /// What happens to an operation.
    pub fn fate(self, random: &mut Random, is_cut_off: bool) -> Fate {
        if is_cut_off {
            return *random.pick(&[Fate::Unanswered, Fate::Late, Fate::Lost]);
        }
        if hits(random, self.odd_change) {
            return *random.pick(&[Fate::Unanswered, Fate::Late, Fate::Lost]);
        }
        let is_repeated = hits(random, self.repeated_change);
        if is_repeated { Fate::AnsweredAndRepeated } else { Fate::Answered }
    }

    /// For how many calls the caller is cut off after it got no answer, if it is.
    pub fn cuts_off(self, random: &mut Random) -> Option<u64> {
        hits(random, self.outage).then(|| 1 + random.below(8))
    }

    /// Whether an object that exists may be unreadable.
    pub fn hides_objects(self) -> bool {
        self.failed_look > 0 || self.bad_spot > 0
    }

    /// Whether a look gets no answer.
    pub fn fails(self, random: &mut Random) -> bool {
        hits(random, self.failed_look)
    }

    /// For how many calls an object cannot be read from now on, if one cannot.
    pub fn goes_bad(self, random: &mut Random) -> Option<u64> {
        hits(random, self.bad_spot).then(|| 1 + random.below(400))
    }

    /// Whether a pending operation is done now.
    pub fn lands(self, random: &mut Random) -> bool {
        hits(random, self.landing)
    }

    /// For how many calls the caller sleeps, if it does.
    pub fn sleeps(self, random: &mut Random) -> Option<u64> {
        hits(random, self.sleep).then(|| 1 + random.below(self.sleep_max))
    }

    /// Whether the caller's program is killed.
    pub fn kills(self, random: &mut Random) -> bool {
        hits(random, self.kill)
    }

    /// Whether the caller goes on at once.
    pub fn stays(self, random: &mut Random) -> bool {
        random.below(100) < self.stay_percent
    }
}

fn hits(random: &mut Random, once_in: u64) -> bool {
    once_in > 0 && random.once_in(once_in)
}
