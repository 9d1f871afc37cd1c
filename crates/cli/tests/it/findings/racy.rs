//! Files that may have changed right after they were read.

use std::fs;
use std::time::Duration;

use strongroom_testkit::Mapped;

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
    assert!(chunks() > 0, "a write shortly after the change would not have shown");
    assert_eq!(chunks(), 0, "the second backup began long after the change");
}

/// The kernel notes the time of the first write to a page, and the next only when the page was on
/// the disk meanwhile.
#[test]
fn a_file_that_is_written_through_a_mapping_is_read_once_more() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    let file = world.tree().join("file");
    fs::write(&file, [b'A'; 4096]).unwrap();
    let mut mapped = Mapped::new(&file);
    mapped.write(b'B');
    std::thread::sleep(Duration::from_secs(3));
    world.backup().exits(0);
    mapped.write(b'C');
    world.backup().exits(0);
    let restored = world.restored(&format!("latest:{}", file.display()));
    assert_eq!(fs::read(restored.join("file")).unwrap()[0], b'C');
}
