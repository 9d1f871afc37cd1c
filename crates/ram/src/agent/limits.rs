//! What programs and datagrams may take of an agent: it neither ends nor grows by what they send.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use strongroom_base::Stopwatch;

/// Events that wait for the agent: messages of programs and commands. A program that sends more waits,
/// a datagram more is lost.
pub const EVENTS_MAX: usize = 256;
/// What programs have the agent do at the same time, and the buckets that rounds are at work on.
pub const JOBS_MAX: usize = 512;
/// Calls of a program that wait to be carried out.
pub const CALLS_MAX: usize = 64;
/// Areas that are kept for calls of a program that wait, beside those that it has.
pub const WAITING_AREAS_MAX: usize = 4_096;
/// Requests of a program that wait for a version, or for a look into the repository.
pub const WAITS_MAX: usize = 1_024;
/// Versions of which a bucket knows how they ended. The repository knows the others.
pub const ENDED_MAX: usize = 256;
/// How long a program may take to say which bucket it has.
pub const GREETING: Duration = Duration::from_secs(10);

/// Connections at most, however many files the agent may have open.
const CONNECTIONS_MAX: u64 = 1_024;
/// Lines of one kind that are logged at once.
const LINES_MAX: u32 = 20;
/// How often that many may be.
const LINES_PERIOD: Duration = Duration::from_secs(60);

/// What can be open at the same time.
#[derive(Debug, Clone, Copy)]
pub struct OpenLimits {
    /// Connections.
    pub connections: usize,
    /// Areas of all buckets.
    pub areas: usize,
}

impl OpenLimits {
    /// What the system allows, once this process has asked for as much as it may have. An area takes a
    /// descriptor, and another one while it is stored.
    pub fn raise() -> Self {
        let limit = getrlimit(Resource::Nofile);
        // One that stays lower is enough for fewer programs.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let connections = CONNECTIONS_MAX.min(files / 8);
        let areas = (files.saturating_sub(connections) / 3).min(1 << 20);
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self { connections: count(connections), areas: count(areas) }
    }
}

/// Lines of one kind: of a flood of them, the first are logged, and then how many there were.
#[derive(Debug)]
pub struct Lines {
    since: Stopwatch,
    count: u32,
}

impl Default for Lines {
    fn default() -> Self {
        Self { since: Stopwatch::start(), count: 0 }
    }
}

impl Lines {
    /// Whether a line is logged. The text is added to it.
    pub fn admit(&mut self) -> Option<String> {
        let mut left_out = 0;
        if self.since.elapsed() >= LINES_PERIOD {
            left_out = self.count.saturating_sub(LINES_MAX);
            *self = Self::default();
        }
        self.count = self.count.saturating_add(1);
        if self.count > LINES_MAX {
            return None;
        }
        Some(match left_out {
            0 => String::new(),
            count => format!(" ({count} such lines before it are left out)"),
        })
    }
}
