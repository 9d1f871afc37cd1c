//! A bounded part, for each change.

use strongroom_base::regimes::table;

use crate::beginning::Beginning;
use crate::regimes::MET;
use crate::schedule::run;

#[test]
fn a_seed_replays_exactly() {
    let beginning = Beginning::make(false);
    for seed in 0..40 {
        let (first, second) = (run(&beginning, seed, true), run(&beginning, seed, true));
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first.hash, second.hash, "seed {seed}");
    }
    assert_eq!(run(&Beginning::make(false), 7, false).hash, run(&beginning, 7, false).hash);
}

#[test]
fn nothing_is_lost() {
    let beginning = Beginning::make(false);
    for seed in 0..200 {
        let outcome = run(&beginning, seed, false);
        assert_eq!(outcome.losses, [""; 0], "seed {seed}");
    }
    let (text, missing) = table(&MET);
    assert!(missing.is_empty(), "never met: {missing:?}\n{text}");
}

#[test]
fn nothing_is_lost_in_a_store_that_overwrites() {
    let beginning = Beginning::make(true);
    for seed in 0..60 {
        let outcome = run(&beginning, seed, false);
        assert_eq!(outcome.losses, [""; 0], "seed {seed}");
    }
}
