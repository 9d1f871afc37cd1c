//! What the medium refuses to read, and what vanishes between a listing and the look at it, ends no
//! verb: what is whole is handled, and the rest is named.

use std::ops::Range;
use std::sync::Arc;

use strongroom_backend::MemoryBackend;
use strongroom_base::{Cancel, Silent};
use strongroom_repository::{Repository, RepositoryError};
use strongroom_testkit::{CallKind, Calls, FaultKind, FaultPlan, FaultyBackend, RefusingBackend};
use strongroom_upkeep::{VerifyDepth, plan_repair, repair, verify};

use crate::damage::{Structure, check_readable, scene};
use crate::verify::check_all;
use crate::world::{options, run};

const SECTOR: u64 = 4096;

/// One sector, and a whole object.
fn bad_ranges(object: &[u8]) -> [Range<u64>; 2] {
    let sector = object.len() as u64 / 2 / SECTOR * SECTOR;
    [sector..sector + SECTOR, 0..u64::MAX]
}

#[test]
fn what_the_medium_refuses_is_named_and_the_rest_goes_on() {
    let scene = scene(180);
    for structure in Structure::ALL {
        for name in structure.objects(&scene.base) {
            for bad in bad_ranges(&scene.base[&name]) {
                let what = format!("{structure:?} {name}, {bad:?}");
                let objects = Arc::new(MemoryBackend::from_snapshot(scene.base.clone()));
                let backend = Arc::new(RefusingBackend::with_bad(objects, &name, bad));
                let repository = scene.world.open_over(backend.clone()).unwrap();
                check_readable(&scene, &repository, &what);
                let verified = check_all(&repository);
                assert!(verified.faults.iter().any(|(faulty, _)| *faulty == name), "{what}");
                let back_up = || {
                    let next = run(&repository, &options(&scene.world.tree()), &Silent);
                    next.unwrap_or_else(|error| panic!("{what}: {error}")).snapshot.id
                };
                back_up();
                let plan = plan_repair(&*backend, &Silent, &Cancel::new()).unwrap();
                let outcome = repair(&repository, &plan, &Silent, &Cancel::new())
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                let is_mended = backend.still_bad().is_empty();
                assert!(is_mended || !outcome.lost.is_empty(), "{what}: {outcome:?}");
                if matches!(structure, Structure::Config | Structure::KeySlot) {
                    assert!(is_mended, "{what}: its copy is sound");
                }
                // What an arena has lost is known since then, and taken from the source again.
                let image = scene.world.image();
                scene.world.assert_holds(&repository, back_up(), &image, &what);
            }
        }
    }
}

/// A verb that looks at everything.
type Look = fn(&Repository) -> Result<(), RepositoryError>;

fn verified(repository: &Repository) -> Result<(), RepositoryError> {
    verify(repository, VerifyDepth::Data, &Silent, &Cancel::new()).map(drop)
}

fn repaired(repository: &Repository) -> Result<(), RepositoryError> {
    let plan = plan_repair(repository.backend(), &Silent, &Cancel::new())?;
    repair(repository, &plan, &Silent, &Cancel::new()).map(drop)
}

/// Engine 9: a session ends, a key is removed, while it is looked at.
#[test]
fn what_vanishes_after_it_was_listed_is_passed_over() {
    let scene = scene(181);
    for folder in ["", "keys", "snapshots", "sessions", "arenas"] {
        // Of many reads in a row, some.
        let step = if folder == "arenas" { 11 } else { 1 };
        for look in [verified as Look, repaired] {
            for at in (0..).step_by(step) {
                let what = format!("call {at} of {folder:?}");
                let objects = Arc::new(MemoryBackend::from_snapshot(scene.base.clone()));
                let calls = Calls::of(&[CallKind::Read]).within(folder);
                let plan = FaultPlan::hiccup(calls, at, FaultKind::Vanish);
                let faulty = Arc::new(FaultyBackend::new(objects, plan));
                let repository = scene.world.open_over(faulty.clone()).unwrap();
                look(&repository).unwrap_or_else(|error| panic!("{what}: {error}"));
                if faulty.fired() == 0 {
                    break;
                }
            }
        }
    }
}
