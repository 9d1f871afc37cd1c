//! One schedule: a seed, from its cast to its judgement.

use std::sync::Arc;
use std::thread;

use strongroom_testkit::Random;
use tempfile::TempDir;

use crate::actors::{Actor, draw_cast};
use crate::beginning::Beginning;
use crate::judge::Judge;
use crate::ledger::Counts;
use crate::stage::{Shared, Stage};
use crate::weather::Weather;

/// What a schedule came to.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What must not be.
    pub losses: Vec<String>,
    /// What was done.
    pub counts: Counts,
    /// Calls to the store.
    pub calls: u64,
    /// Operations that were done late.
    pub landed: u64,
    /// Programs that were killed.
    pub crashes: u64,
    /// A hash of all that happened.
    pub hash: u64,
    /// All that happened, if it was asked for.
    pub trace: Vec<String>,
}

/// Runs the schedule of a seed.
pub fn run(beginning: &Beginning, seed: u64, with_trace: bool) -> Outcome {
    let mut random = Random::new(seed);
    // The numbers of neighbouring seeds would resemble each other.
    let mut random = Random::new(random.number());
    let cast = draw_cast(&mut random);
    let weather = Weather::draw(&mut random);
    let names = cast.iter().enumerate().map(|(number, part)| part.name(number)).collect();
    let (mut store, ledger) = (beginning.store.clone(), beginning.ledger.clone());
    if random.once_in(2) {
        store.pending.clear();
    }
    let caches = random.once_in(2).then(make_folder);
    let cache_of = |number: usize| Some(caches.as_ref()?.path().join(number.to_string()));
    let mut shared = Shared::new(random, store, ledger, weather);
    shared.trace = with_trace.then(|| vec![format!("{weather:?}")]);
    let stage = Arc::new(Stage::new(names, shared));
    thread::scope(|scope| {
        for (number, part) in cast.iter().enumerate() {
            let (stage, cache) = (&stage, cache_of(number));
            scope.spawn(move || Actor::new(stage, beginning, number, *part, cache).play());
        }
        stage.join();
    });
    let number = cast.len();
    // The first of the cast is a client, and the judge finishes on its machine.
    Judge { stage: &stage, beginning, number, cache: cache_of(0) }.judge();
    let mut shared = stage.shared();
    Outcome {
        losses: std::mem::take(&mut shared.ledger.losses),
        counts: shared.ledger.counts,
        calls: shared.calls,
        landed: shared.landed,
        crashes: shared.crashes,
        hash: shared.hash,
        trace: shared.trace.take().unwrap_or_default(),
    }
}

/// A folder for the caches of the machines, in memory if that is possible here.
fn make_folder() -> TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    folder.expect("a folder can be made for temporary files")
}
