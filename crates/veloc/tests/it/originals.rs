//! VELOC's own examples, which are not in this tree. `STRONGROOM_TEST_VELOC` names a clone of
//! <https://github.com/ECP-VeloC/VELOC>; then run with `--ignored`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::world::World;

/// Megabytes of each rank. The examples compute 600 steps and make a checkpoint each 200.
const MEGABYTES: &str = "8";

#[expect(clippy::disallowed_methods, reason = "the folder is not of this tree")]
fn sources() -> PathBuf {
    std::env::var_os("STRONGROOM_TEST_VELOC").expect("STRONGROOM_TEST_VELOC names a clone").into()
}

fn compile(world: &World, compiler: &str, example: &str) -> PathBuf {
    let output = world.library().join(example.replace('.', "_"));
    let compiled = Command::new(compiler)
        .args(["-O2", "-o"])
        .arg(&output)
        .arg("-I")
        .arg(env!("CARGO_MANIFEST_DIR"))
        .arg(sources().join("test").join(example))
        .arg("-L")
        .arg(world.library())
        .args(["-lveloc-client", "-lm"])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    output
}

fn run(world: &World, program: &Path) -> (Output, String) {
    let mut command = Command::new("mpirun");
    command.args(["-n", "2"]).arg(program).arg(MEGABYTES).arg(world.configuration());
    let ended = command.env("LD_LIBRARY_PATH", world.library()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!complaints.contains("strongroom"), "{said}{complaints}");
    (ended, said)
}

/// Runs an example to its end, and again from its last checkpoint.
fn twice(example: &str) {
    let world = World::new();
    let program = compile(&world, "mpicc", example);
    let (ended, said) = run(&world, &program);
    assert!(ended.status.success() && said.contains("Execution finished"), "{said}");
    assert!(!said.contains("initiating restart"), "{said}");
    for rank in 0..2 {
        assert_eq!(world.archive.versions("plate", rank, "heatdis"), [200, 400, 600]);
    }
    let (ended, said) = run(&world, &program);
    assert!(ended.status.success() && said.contains("Execution finished"), "{said}");
    assert!(said.contains("found at iteration 600, initiating restart"), "{said}");
}

#[test]
#[ignore = "needs VELOC's sources: STRONGROOM_TEST_VELOC"]
fn the_example_of_regions_goes_on() {
    twice("heatdis_mem.c");
}

#[test]
#[ignore = "needs VELOC's sources: STRONGROOM_TEST_VELOC"]
fn the_example_of_files_goes_on() {
    twice("heatdis_file.c");
}

#[test]
#[ignore = "needs VELOC's sources: STRONGROOM_TEST_VELOC"]
fn the_example_that_fails_in_the_middle_goes_on() {
    let world = World::new();
    let program = compile(&world, "mpicxx", "heatdis_fault.cpp");
    let (ended, said) = run(&world, &program);
    assert!(!ended.status.success() && !said.contains("Execution finished"), "{said}");
    let (ended, said) = run(&world, &program);
    assert!(ended.status.success() && said.contains("Execution finished"), "{said}");
    assert!(said.contains("Restart from iteration 200 finished"), "{said}");
}
