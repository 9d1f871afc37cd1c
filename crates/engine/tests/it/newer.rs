//! What a newer program made: it is reported, checked and repaired like everything else, and never
//! taken for damage.

use strongroom_arena::envelope::format::{Header, ObjectKind};
use strongroom_arena::envelope::{self, HEADROOM};
use strongroom_backend::{Backend, ObjectName, read_all};
use strongroom_base::{Cancel, Silent};
use strongroom_engine::{Fault, VerifyDepth, plan_repair, repair_objects, verify};
use strongroom_repository::list_snapshots;
use strongroom_testkit::damage::names_in;

use crate::world::World;

type Change = fn(&mut Header);

const CHANGES: [(&str, Change); 2] = [
    ("an unknown kind", |header| header.kind = ObjectKind::Unknown(200)),
    ("an unknown feature", |header| header.required_features = 1),
];

/// Makes an object one that a newer program made.
fn renew(backend: &dyn Backend, name: &ObjectName, change: Change) -> Vec<u8> {
    let mut object = read_all(backend, name).unwrap();
    let mut header = envelope::peek(&object).unwrap();
    let trailer = header.layout().trailer;
    change(&mut header);
    object[..HEADROOM].copy_from_slice(&header.pack());
    object[trailer..].copy_from_slice(&header.pack());
    backend.replace(name, &object).unwrap();
    object
}

#[test]
fn what_a_newer_program_made_is_reported_and_is_no_damage() {
    for (what, change) in CHANGES {
        let world = World::new(900);
        let kept = world.backup();
        let newer = names_in(&world.objects.snapshot(), "snapshots").remove(0);
        renew(&*world.objects, &newer, change);
        world.mutate(1);
        let after = world.backup();
        assert_ne!(kept, after);
        let repository = world.open();
        let list = list_snapshots(&repository).unwrap();
        assert_eq!(list.snapshots.len(), 1, "{what}");
        assert!(list.unreadable[0].1.is_unknown(), "{what}: {:?}", list.unreadable);
        let outcome = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
        assert!(outcome.is_sound(), "{what}: {:?}", outcome.faults);
        assert_eq!(outcome.faults, [(newer, Fault::Unknown)], "{what}");
    }
}

#[test]
fn what_a_newer_program_made_is_repaired_as_it_was() {
    for (what, change) in CHANGES {
        let world = World::new(901);
        world.backup();
        for folder in ["snapshots", "arenas"] {
            let name = names_in(&world.objects.snapshot(), folder).remove(0);
            let whole = renew(&*world.objects, &name, change);
            let mut damaged = whole.clone();
            damaged[HEADROOM + 9] ^= 1;
            world.objects.replace(&name, &damaged).unwrap();
            let plan = plan_repair(&*world.objects, &Silent, &Cancel::new()).unwrap();
            assert_eq!(plan.steps.len(), 1, "{what}, {folder}: {:?}", plan.steps);
            let outcome = repair_objects(&*world.objects, &plan, &Silent, &Cancel::new()).unwrap();
            assert_eq!((outcome.repaired, outcome.lost.len()), (1, 0), "{what}, {folder}");
            assert!(read_all(&*world.objects, &name).unwrap() == whole, "{what}, {folder}");
        }
    }
}
