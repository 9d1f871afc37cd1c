//! The power fails.
#![expect(clippy::disallowed_methods, reason = "a test that reads the environment or the clock")]

use std::fs;
use std::time::Instant;

use strongroom_testkit::tree::{TreeOptions, grow};
use strongroom_testkit::{Random, assert_same};

use crate::world::World;

#[test]
fn killed_at_any_moment() {
    let world = World::with_repository();
    let mut random = Random::new(17);
    fs::create_dir(world.tree()).unwrap();
    let options = TreeOptions { entries: 40, ..TreeOptions::default() };
    let words = format!("backup {}", world.tree().display());
    fs::write(world.tree().join("noise"), random.noise(8 << 20)).unwrap();
    let began = Instant::now();
    world.backup().exits(0);
    let usual = began.elapsed();
    let mut cut_short = 0;
    for round in 0..10 {
        grow(&world.tree().join(format!("day-{round}")), round, options);
        fs::write(world.tree().join("noise"), random.noise(8 << 20)).unwrap();
        let mut child = world.start(&words);
        // From before the repository is open to near the end.
        std::thread::sleep(usual.mul_f64(random.below(1000) as f64 / 1000.0));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        cut_short += u32::from(!status.success());
        world.say("verify").exits(0).says("no damage was found");
    }
    assert!(cut_short > 0, "no backup was cut short");
    world.backup().exits(0);
    world.say("verify --data").exits(0).says("no damage was found");
    assert_same(&world.tree(), &world.restored(&world.of("latest")));
}
