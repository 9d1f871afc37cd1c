//! Configuration and key slots: each in two copies, each with parity, and none of them can be
//! forged.

use std::sync::Arc;

use strongroom_arena::Origin;
use strongroom_arena::envelope::format::ObjectKind;
use strongroom_arena::envelope::{self, Identity};
use strongroom_backend::{Backend, ObjectName, read_all};
use strongroom_base::{Cancel, RepositoryId, Silent};
use strongroom_repository::config::Config;
use strongroom_repository::{Repository, RepositoryError};
use strongroom_testkit::Change;
use strongroom_testkit::damage::{Objects, names_in};
use strongroom_upkeep::{Fault, VerifyDepth, plan_repair, repair, verify};

use crate::world::{PASSPHRASE, World};

fn small(folder: &str, objects: &Objects) -> Vec<ObjectName> {
    let names = names_in(objects, folder);
    assert_eq!(names.len(), 2, "the object and its copy");
    names
}

#[test]
fn a_wrong_passphrase_is_said_to_be_one() {
    let world = World::new(100);
    for wrong in [&b""[..], b"correct horse", &[0xff; 1000], &PASSPHRASE[..86]] {
        let error = Repository::open(world.surroundings(), wrong).err().unwrap();
        assert!(matches!(error, RepositoryError::WrongPassphrase { slots: 1 }), "{error}");
    }
}

#[test]
fn one_copy_is_enough_whatever_becomes_of_the_other() {
    let world = World::new(101);
    let base = world.objects.snapshot();
    for folder in ["", "keys"] {
        for name in small(folder, &base) {
            for change in Change::ALL {
                let mut objects = base.clone();
                change.on_object(&mut objects, &name);
                if let Err(error) = world.open_objects(&objects) {
                    panic!("{change:?} of {name}: {error}");
                }
            }
        }
    }
}

#[test]
fn with_both_copies_gone_it_says_so() {
    let world = World::new(102);
    let base = world.objects.snapshot();
    for change in [Change::Removed, Change::Empty, Change::Zeros] {
        for folder in ["", "keys"] {
            let mut objects = base.clone();
            for name in small(folder, &base) {
                change.on_object(&mut objects, &name);
            }
            let error = world.open_objects(&objects).err().unwrap();
            let clear = match (folder, change) {
                ("keys", _) => matches!(error, RepositoryError::NoKeySlot { .. }),
                (_, Change::Removed) => matches!(error, RepositoryError::NotARepository { .. }),
                _ => error.is_damage() || matches!(error, RepositoryError::NotARepository { .. }),
            };
            assert!(clear, "{change:?} of both in \"{folder}\": {error:?}");
        }
    }
}

/// A configuration that someone without the keys made, of this repository or of another.
fn forge_config(repository: &Repository, change: impl FnOnce(&mut Config)) -> Vec<u8> {
    let mut forged = repository.config.clone();
    change(&mut forged);
    let other = strongroom_base::MasterSecret([1; 32]).owner_keys();
    let kind = ObjectKind::Config;
    let identity = Identity { kind, id: forged.id.0, generation: 0, origin: Origin::NONE };
    envelope::seal_small(&forged.pack(&other.authority), identity)
}

/// One of the two is forged: the other opens, and a repair with a key writes it again.
#[test]
fn engine_08_a_forged_configuration_is_passed_over_for_its_copy_and_mended() {
    let changes: [fn(&mut Config); 3] = [
        |config| config.parity_per_mille = 0,
        |config| config.arena_bytes = 1,
        |config| config.id = RepositoryId([5; 16]),
    ];
    for (place, name) in ["config", "config.copy"].into_iter().enumerate() {
        for (number, change) in changes.iter().enumerate() {
            let world = World::new(970);
            let kept = world.backup();
            let name = ObjectName::top(name);
            let right = read_all(&*world.objects, &name).unwrap();
            let forged = forge_config(&world.open(), change);
            world.objects.replace(&name, &forged).unwrap();
            let before = world.objects.snapshot();
            let repository = world.open();
            assert_eq!(repository.config_faults.len(), 1 - place, "{name}, {number}");
            world.assert_holds(&repository, kept.snapshot.id, &world.image(), "by the copy");
            let verified = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
            assert_eq!(verified.faults, [(name.clone(), Fault::Forged)], "{number}");
            let plan = plan_repair(&*world.objects, &Silent, &Cancel::new()).unwrap();
            assert!(plan.steps.is_empty(), "{name}, {number}: {:?}", plan.steps);
            let outcome = repair(&repository, &plan, &Silent, &Cancel::new()).unwrap();
            assert_eq!((outcome.repaired, outcome.lost.len()), (1, 0), "{name}, {number}");
            let mut expected = before;
            expected.insert(name.clone(), right);
            assert!(world.objects.snapshot() == expected, "{name}, {number}: nothing else changed");
            assert!(world.open().config_faults.is_empty());
        }
    }
}

#[test]
fn a_forged_configuration_is_refused() {
    let world = World::new(103);
    let repository = world.open();
    let object = forge_config(&repository, |config| config.parity_per_mille = 0);
    let mut objects = world.objects.snapshot();
    for name in small("", &objects) {
        objects.insert(name, object.clone());
    }
    let error = world.open_objects(&objects).err().unwrap();
    assert!(matches!(error, RepositoryError::ForgedConfig), "{error}");
}

#[test]
fn the_configuration_of_another_repository_opens_nothing() {
    let (world, other) = (World::new(104), World::new(105));
    let mut objects = world.objects.snapshot();
    let others = other.objects.snapshot();
    for name in small("", &objects) {
        objects.insert(name.clone(), others[&name].clone());
    }
    let error = world.open_objects(&objects).err().unwrap();
    assert!(matches!(error, RepositoryError::WrongPassphrase { .. }), "{error}");
}

#[test]
fn a_slot_under_another_name_opens_nothing() {
    let world = World::new(106);
    let mut objects = world.objects.snapshot();
    let [name, copy] = small("keys", &objects).try_into().unwrap();
    let bytes = objects.remove(&name).unwrap();
    objects.remove(&copy);
    objects.insert(ObjectName::new("keys", "0123456789abcdef"), bytes);
    let error = world.open_objects(&objects).err().unwrap();
    assert!(matches!(error, RepositoryError::NoKeySlot { found: 1 }), "{error}");
}

#[test]
fn what_is_no_repository_is_said_to_be_none() {
    let world = World::empty(107);
    let error = Repository::open(world.surroundings(), PASSPHRASE).err().unwrap();
    assert!(matches!(error, RepositoryError::NotARepository { .. }), "{error}");
    let objects: Objects = [(ObjectName::top("config"), b"[core]\nbare = true\n".to_vec())].into();
    let error = world.open_objects(&objects).err().unwrap();
    assert!(matches!(error, RepositoryError::NotARepository { .. }), "{error}");
    let backend = strongroom_backend::MemoryBackend::from_snapshot(objects);
    let init = crate::world::init_options();
    let made = Repository::init(world.over(Arc::new(backend)), PASSPHRASE, &init);
    assert!(made.is_err(), "a place in use is left alone");
}

#[test]
fn every_repository_has_a_name_of_its_own() {
    let ids: Vec<RepositoryId> = (0..3).map(|seed| World::new(seed).open().config.id).collect();
    assert!(ids[0] != ids[1] && ids[1] != ids[2]);
}
