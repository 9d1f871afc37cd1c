//! What of the program's memory others may see.

use std::process::Command;

use crate::world::{World, has_program, program, skipped};

#[test]
fn engine_23_keys_in_memory_are_not_dumped() {
    if skipped("strace", (!has_program("strace")).then_some("it is not installed")) {
        return;
    }
    let world = World::with_repository();
    let log = world.path("calls");
    let mut command = Command::new("strace");
    command.args(["-e", "trace=prctl,prlimit64,setrlimit,openat,read", "-o"]).arg(&log);
    command.arg(program()).arg("snapshots");
    world.surround(&mut command);
    let output = command.output().unwrap();
    if skipped("strace", (!output.status.success()).then_some("it may not trace here")) {
        return;
    }
    let calls = std::fs::read_to_string(log).unwrap();
    let before: Vec<&str> = calls.lines().take_while(|call| !call.contains("\"keys")).collect();
    assert!(before.len() < calls.lines().count(), "the key slots were never read:\n{calls}");
    for wanted in ["PR_SET_DUMPABLE, SUID_DUMP_DISABLE) = 0", "RLIMIT_CORE, {rlim_cur=0"] {
        assert!(before.iter().any(|call| call.contains(wanted)), "no {wanted}:\n{calls}");
    }
}
