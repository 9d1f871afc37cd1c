//! The real engine in simulation: clients, collectors, a forgetter and readers on one store that
//! keeps its promises and no others, in any order, killed and put to sleep at any call. A seed is a
//! schedule; a seed that loses something replays exactly.
//!
//! ```text
//! strongroom-simulation                     ten thousand schedules
//! strongroom-simulation --schedules N       N of them; --first SEED, --threads N
//! strongroom-simulation --seed SEED         one, with all that happens in it
//! strongroom-simulation --agreed 1 …        on a store that overwrites, so that creators must agree
//! strongroom-simulation --twice 1 …         each twice: a seed that does not replay is a fault
//! ```
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a report is what it is for"
)]

mod actors;
mod beginning;
mod judge;
mod ledger;
mod regimes;
mod schedule;
mod stage;
mod store;
#[cfg(test)]
mod tests;
mod weather;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use crate::beginning::Beginning;
use crate::ledger::Counts;
use crate::schedule::{Outcome, run};

/// What was asked for.
struct Arguments {
    schedules: u64,
    first: u64,
    threads: u64,
    seed: Option<u64>,
    agreed: bool,
    twice: bool,
}

fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::from(2);
        }
    };
    let beginning = Beginning::make(arguments.agreed);
    let is_right = match arguments.seed {
        Some(seed) => replay(&beginning, seed),
        None => run_all(&beginning, &arguments),
    };
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Arguments {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        // In each, one actor at a time does something, and some time passes between two.
        let threads = 3 * thread::available_parallelism().map_or(1, usize::from) as u64;
        let mut arguments =
            Self { schedules: 10_000, first: 0, threads, seed: None, agreed: false, twice: false };
        while let Some(word) = words.next() {
            let number = words.next().and_then(|number| number.parse().ok());
            let number = number.ok_or_else(|| format!("{word} needs a number"))?;
            match word.as_str() {
                "--schedules" => arguments.schedules = number,
                "--first" => arguments.first = number,
                "--threads" => arguments.threads = number.max(1),
                "--seed" => arguments.seed = Some(number),
                "--agreed" => arguments.agreed = number > 0,
                "--twice" => arguments.twice = number > 0,
                _ => return Err(format!("there is no {word}: see the head of main.rs")),
            }
        }
        Ok(arguments)
    }
}

/// One schedule, with its trace.
fn replay(beginning: &Beginning, seed: u64) -> bool {
    let outcome = run(beginning, seed, true);
    for line in &outcome.trace {
        println!("{line}");
    }
    report(seed, &outcome);
    println!("hash {:016x}", outcome.hash);
    outcome.losses.is_empty()
}

fn report(seed: u64, outcome: &Outcome) {
    for loss in &outcome.losses {
        println!("seed {seed}: {loss}");
    }
}

/// Sums of all schedules.
#[derive(Default)]
struct Sums {
    schedules: u64,
    counts: Counts,
    calls: u64,
    landed: u64,
    crashes: u64,
}

fn run_all(beginning: &Beginning, arguments: &Arguments) -> bool {
    let begun = Instant::now();
    let next = AtomicU64::new(arguments.first);
    let end = arguments.first.saturating_add(arguments.schedules);
    let (sums, is_lost) = (Mutex::new(Sums::default()), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                while !is_lost.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let mut outcome = run(beginning, seed, false);
                    if arguments.twice && run(beginning, seed, false).hash != outcome.hash {
                        outcome.losses.push("it does not replay".to_owned());
                    }
                    sums.lock().expect("no schedule panics").add(&outcome);
                    if !outcome.losses.is_empty() && !is_lost.swap(true, Ordering::Relaxed) {
                        report(seed, &outcome);
                        println!("all of it: strongroom-simulation --seed {seed}");
                    }
                }
            });
        }
    });
    sums.into_inner().expect("no schedule panics").show(begun);
    let is_whole = regimes::show(arguments.schedules);
    !is_lost.into_inner() && is_whole
}

impl Sums {
    fn add(&mut self, outcome: &Outcome) {
        self.schedules += 1;
        self.counts.add(&outcome.counts);
        self.calls += outcome.calls;
        self.landed += outcome.landed;
        self.crashes += outcome.crashes;
    }

    fn show(&self, begun: Instant) {
        let seconds = begun.elapsed().as_secs_f64();
        let Counts {
            commits,
            fenced,
            unknown,
            with_deltas,
            verdicts,
            slots,
            forgotten,
            taken_back,
            waited,
            read_back,
        } = self.counts;
        println!("{} schedules in {seconds:.0} s: {} calls", self.schedules, self.calls);
        println!(
            "{commits} commits ({with_deltas} with deltas), {unknown} unknown, {fenced} fenced"
        );
        println!(
            "{verdicts} verdicts, {slots} arenas or slots removed, {forgotten} snapshots forgotten"
        );
        println!(
            "{waited} collections waited, {taken_back} wishes taken back, {read_back} read back"
        );
        println!("{} programs killed, {} operations late", self.crashes, self.landed);
    }
}
