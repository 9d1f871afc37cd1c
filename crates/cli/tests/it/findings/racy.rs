//! Files that may have changed right after they were read.

use std::fs;

use crate::world::World;

#[test]
fn engine_21_a_file_that_changed_just_before_its_backup_is_read_once_more() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    fs::write(world.tree().join("file"), vec![7; 100_000]).unwrap();
    let words = format!("--json backup {}", world.tree().display());
    // How many chunks were read from files.
    let chunks = || world.say(&words).exits(0).summary()["chunks"].as_u64().unwrap();
    assert!(chunks() > 0);
    world.settle();
    assert!(chunks() > 0, "a write in the same tick would not have shown");
    assert_eq!(chunks(), 0, "the second backup began long after the change");
}
