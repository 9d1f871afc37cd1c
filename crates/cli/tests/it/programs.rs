//! Programs that keep buckets in memory, and the agent of their node: in C, in Python, and with VELOC's
//! library.

mod bad_days;
mod heat;
mod surroundings;

use std::process::{Child, Command, Output, Stdio};

use crate::world::World;
use surroundings::{Agent, Driven, compile, eventually, of_tree, surround, versions};

/// Starts the example of the library.
fn count(world: &World, until: u64) -> Child {
    let include = format!("-I{}", of_tree("crates/bucket/include").display());
    let source = "crates/bucket/examples/counter.c";
    let program = compile(world, "cc", source, &[&include, "-lstrongroom-bucket"]);
    let mut command = Command::new(program);
    surround(world, &mut command);
    command.arg(until.to_string()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn words(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat()
}

#[test]
fn a_counter_goes_on_where_it_was_killed() {
    let world = World::with_repository();
    let agent = Agent::start(&world);
    let mut first = count(&world, u64::MAX);
    eventually("three versions", || versions(&world, "steps").len() >= 3);
    first.kill().unwrap();
    first.wait().unwrap();

    // A version is a snapshot, and its areas are files.
    let (reached, snapshot) = versions(&world, "steps").pop().unwrap();
    world.say("snapshots").exits(0).says(&format!("[steps@{reached}]"));
    world.say("ls -R latest").exits(0).says("counter/0/state").says("counter/0/bucket.json");
    let state = world.say(&format!("cat {snapshot}:/counter/0/state")).exits(0).bytes;
    assert_eq!(state[..8], reached.to_le_bytes());
    assert_eq!(state.len(), 8 * 100_001);

    let until = reached + 505;
    let second = count(&world, until).wait_with_output().unwrap();
    let said = words(&second);
    assert!(second.status.success(), "{said}");
    let went_on = said.strip_prefix("goes on at step ").and_then(|rest| rest.split_once('\n'));
    // What the agent had captured may have been committed after the program was killed.
    let went_on: u64 = went_on.unwrap().0.parse().unwrap();
    assert!(went_on >= reached && went_on < until, "{said}");
    let sum = until * (until + 1) / 2;
    assert!(said.ends_with(&format!("{until} steps, sum {sum}\n")), "{said}");
    agent.stop();
    world.say("verify --data").exits(0);
}

#[test]
fn shared_and_private_memory_come_back_in_python() {
    let world = World::with_repository();
    let _agent = Agent::start(&world);
    let mut program = Driven::with_bucket(&world, "model", 3);
    program.does("fd, view = shared(1_000_000)");
    program.does("view[:] = noise(1_000_000, 1)");
    program.does("heap, mapped = bytearray(noise(500_000, 2)), mmap.mmap(-1, 300_000)");
    program.does("mapped[1000:2000] = noise(1000, 3)");
    program.does("bucket.region('shared', fd, 1_000_000)");
    program.does("bucket.region('heap', heap)");
    program.does("bucket.region('mapped', mapped)");
    assert!(program.does("bucket.test('epoch')").is_null());
    for version in [1, 5] {
        program.does(&format!("view[0:1] = heap[0:1] = mapped[0:1] = bytes([{version}])"));
        program.does(&format!("bucket.store('epoch', {version})"));
        program.does(&format!("bucket.wait('epoch', {version})"));
    }
    assert_eq!(program.does("bucket.test('epoch')"), 5);
    program
        .does("view[:] = bytes(1_000_000); heap[:] = bytes(500_000); mapped[:] = bytes(300_000)");
    for version in [1, 5] {
        program.does(&format!("bucket.load('epoch', {version})"));
        program.has(&format!("view[0] == heap[0] == mapped[0] == {version}"));
        program.has("view[1:] == noise(1_000_000, 1)[1:] and heap[1:] == noise(500_000, 2)[1:]");
        program.has("mapped[1000:2000] == noise(1000, 3) and mapped[2000:] == bytes(298_000)");
    }
    let (code, why) = program.fails("bucket.load('epoch', 4)");
    assert!(code == -7 && why.contains("there is no version 4 of epoch"), "{code} {why}");
    assert_eq!(program.fails("bucket.wait('epoch', 4)").0, -5);
    let path = format!("cat {}:/model/3/heap", versions(&world, "epoch")[1].1);
    assert_eq!(world.say(&path).exits(0).bytes[0], 5);

    // Another program has an area of another length: nothing changes.
    program.kill();
    let mut other = Driven::with_bucket(&world, "model", 3);
    other.does("heap, mapped, all = bytearray(400_000), bytearray(300_000), bytearray(1_000_000)");
    other.does("bucket.region('heap', heap)");
    other.does("bucket.region('mapped', mapped)");
    assert_eq!(other.fails("bucket.load('epoch', 5)").0, -6);
    other.does("bucket.region('shared', all)");
    let (code, why) = other.fails("bucket.load('epoch', 5)");
    assert_eq!(code, -6);
    assert!(why.contains("registered with 400000 bytes, but 500000 bytes were stored"), "{why}");
    other.has("not any(heap) and not any(mapped) and not any(all)");
    other.does("bucket.forget('heap'); heap = bytearray(500_000)");
    other.does("bucket.region('heap', heap)");
    other.does("bucket.load('epoch', 5)");
    other.has("heap[1:] == noise(500_000, 2)[1:] and all[1:] == noise(1_000_000, 1)[1:]");
}

#[test]
fn what_is_behind_an_area_stays_when_it_is_loaded() {
    let world = World::with_repository();
    let _agent = Agent::start(&world);
    let mut program = Driven::with_bucket(&world, "orders", 0);
    program.does("fd, view = shared(2_000_000)");
    program.does("view[:] = noise(2_000_000, 9)");
    program.does("bucket.region('head', fd, 1_000_001)");
    program.does("bucket.store('n', 1)");
    program.does("bucket.wait('n', 1)");
    program.does("view[0:4] = view[1_000_001:1_000_005] = view[-4:] = b'more'");
    program.does("bucket.load('n', 1)");
    program.has("os.fstat(fd).st_size == 2_000_000");
    program.has("view[:1_000_001] == noise(2_000_000, 9)[:1_000_001]");
    program.has("view[1_000_001:1_000_005] == view[-4:] == b'more'");

    // A file that became shorter is not stored, and is long again when it is loaded.
    program.does("other, _ = shared(500_000)");
    program.does("bucket.region('head', other, 500_000)");
    program.does("bucket.store('n', 2)");
    program.does("os.ftruncate(other, 1000)");
    let (code, why) = program.fails("bucket.store('n', 3)");
    assert!(code == -5 && why.contains("the area head cannot be read: it "), "{why}");
    program.does("bucket.load('n', 2)");
    program.has("os.fstat(other).st_size == 500_000");

    // Nothing is written to what the program does not let the agent write to.
    program.does("import fcntl; sealed = os.memfd_create('sealed', os.MFD_ALLOW_SEALING)");
    program.does("os.write(sealed, bytes(500_000)); fcntl.fcntl(sealed, 1033, 8)");
    program.does("bucket.region('head', sealed, 500_000)");
    program.does("bucket.store('n', 4)");
    program.does("bucket.wait('n', 4)");
    program.does("full = os.memfd_create('full', os.MFD_ALLOW_SEALING)");
    program.does("os.write(full, b'1' * 500_000); fcntl.fcntl(full, 1033, 8)");
    program.does("bucket.region('head', full, 500_000)");
    let (code, why) = program.fails("bucket.load('n', 4)");
    assert!(code == -5 && why.contains("the area head cannot be written"), "{code} {why}");
    assert!(why.contains("not sealed"), "{why}");
}

#[test]
fn a_bucket_is_opened_again_at_once() {
    let world = World::with_repository();
    let _agent = Agent::start(&world);
    let mut program = Driven::with_bucket(&world, "orders", 0);
    for _ in 0..100 {
        program.does("bucket.close(); bucket = Bucket('orders', 0)");
    }
    for _ in 0..5 {
        program.kill();
        program = Driven::with_bucket(&world, "orders", 0);
    }
    // While the program lives, no other has its bucket.
    let (code, why) = program.fails("Bucket('orders', 0)");
    let pid = program.process.id();
    assert!(code == -3 && why.contains(&format!("the process {pid} has it")), "{code} {why}");
}

#[test]
fn a_program_has_its_bucket_freed_once_it_is_stored() {
    let world = World::with_repository();
    let _agent = Agent::start(&world);
    let mut program = Driven::with_bucket(&world, "cache", 0);
    program.does("freed, memory = [], bytearray(noise(2_000_000, 4))");
    program.does("fd, view = shared(1_000_000)");
    program.does("view[:] = noise(1_000_000, 5)");
    program.does("bucket.region('shared', fd, 1_000_000)");
    program.does("bucket.region('memory', memory)");
    // Without a callback that frees, nothing is freed; with one that refuses, neither.
    let callbacks = |evict: &str| format!("bucket.on_quiesce(lambda: 0, lambda: 0, {evict})");
    program.does(&callbacks("lambda: 1 / 0"));
    let (code, why) = program.fails("bucket.evict()");
    assert!(code == -5 && why.contains("its program keeps its memory"), "{code} {why}");
    program.does(&callbacks("lambda: freed.append(len(memory)) or memory.clear"));
    program.does("bucket.evict()");
    program.has("freed == [2_000_000]");
    assert_eq!(versions(&world, "evicted").len(), 2);
    let (_, why) = program.fails("bucket.store('n', 1)");
    assert!(why.contains("no area is registered"), "{why}");

    program.does("memory.clear(); memory.extend(bytes(2_000_000)); view[:] = bytes(1_000_000)");
    program.does("bucket.region('shared', fd, 1_000_000)");
    program.does("bucket.region('memory', memory)");
    program.does("bucket.load('evicted', bucket.test('evicted'))");
    program.has("memory == noise(2_000_000, 4) and view[:] == noise(1_000_000, 5)");
}
