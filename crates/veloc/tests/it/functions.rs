//! A program that calls every function.

use std::process::Command;

use crate::world::{Kind, World};

#[test]
fn every_function_does_what_the_header_says() {
    let world = World::new();
    let program = world.compile("functions", Kind::Single);
    let mut command = Command::new(program);
    command.arg(world.configuration()).env("LD_LIBRARY_PATH", world.library());
    let ended = command.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    let complaints = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said == "done\n", "{said}{complaints}");
    assert!(complaints.contains("rank 4: there is no version 9 of a in all ranks"), "{complaints}");
    assert_eq!(world.archive.versions("plate", 4, "some"), [1, 2, 3]);
}
