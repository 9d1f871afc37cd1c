//! Machines that are stored with their memory, and go on where they were.

mod counting;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};

use crate::space::Disk;
use crate::world::{CHEAP, Run, World, is_root, skipped};
use counting::{Counted, Counting, Relay, counted};

/// What a machine says that goes on where it was, as many lines of it.
fn resumed(world: &World, snapshot: &str, lines: usize) -> Vec<Counted> {
    let mut command = world.command(["boot", snapshot, "--resume"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
    let found: Vec<Counted> = said.filter_map(|line| counted(&line)).take(lines).collect();
    if found.len() < lines {
        panic!("it ended: {:?}", World::finish(child));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    World::finish(child).exits(0);
    found
}

/// What a machine had counted to at the instant of a snapshot, in its memory and on its disk.
fn at_instant(world: &World, snapshot: &str) -> (u32, u32) {
    let number = |path: &str, at: u64| {
        let file = world.path("cat");
        let run = world.run(["cat", &format!("{snapshot}:/vm1/{path}")]).exits(0);
        fs::write(&file, &run.bytes).unwrap();
        let mut number = [0; 4];
        fs::File::open(&file).unwrap().read_exact_at(&mut number, at).unwrap();
        u32::from_le_bytes(number)
    };
    (number("memory/ram0", counting::IN_MEMORY), number("vda.raw", counting::ON_DISK))
}

/// The machine goes on where it was at a snapshot, and its disk has what its memory has.
#[track_caller]
fn goes_on(world: &World, snapshot: &str) {
    let (memory, disk) = at_instant(world, snapshot);
    assert!(disk == memory || disk + 1 == memory, "{disk} on the disk, {memory} in memory");
    let found = resumed(world, snapshot, 5);
    // Of a line that was being said, its end is said.
    let first = found.iter().find(|one| one.number > 0 && one.is_whole).unwrap().number;
    assert!((memory..=memory + 1).contains(&first), "{first} after {memory}: {found:?}");
    let rest = &found[found.iter().position(|one| one.number == first).unwrap()..];
    for (place, one) in rest.iter().enumerate() {
        assert_eq!((one.number, one.agrees), (first + place as u32, true), "{found:?}");
    }
}

fn backup(world: &World, guest: &Counting) -> serde_json::Value {
    let monitor = guest.monitor();
    let words =
        ["--json", "machine", "backup", "--memory", "--full-speed", monitor.to_str().unwrap()];
    world.run(words).exits(0).summary()
}

#[test]
fn each_night_goes_on_where_it_was() {
    let world = World::with_repository();
    let guest = Counting::start(&world, "qcow2", &[]);
    let mut nights = Vec::new();
    for night in 0..3 {
        let before = guest.waits_for_more();
        let event = backup(&world, &guest);
        assert!(guest.waits_for_more() > before, "the guest goes on");
        let number = |name: &str| event[name].as_u64().unwrap();
        assert_eq!(number("memory_pages"), counting::MEMORY_BYTES / 16384);
        if night > 0 {
            assert!((1..64).contains(&number("memory_pages_changed")), "{event}");
            assert!(number("bytes_read") < 512 << 10, "the bitmaps are still there: {event}");
            assert!(number("bytes_stored") < 64 << 10, "{event}");
        }
        nights.push(event["snapshot"].as_str().unwrap().to_owned());
        guest.has_nothing_of_ours();
    }
    drop(guest);
    nights.iter().for_each(|night| goes_on(&world, night));
    world.say("snapshots").exits(0).says("memory: exact");
    world.say("verify --data").exits(0);
    // It starts as any other, too, and then its disk is ahead of its memory.
    let run = world.say("ls -R latest").exits(0);
    run.says("/vm1/memory/ram0").says("/vm1/machine/device-state");
}

#[test]
fn a_raw_disk_and_memory_without_a_name_are_stored_too() {
    let world = World::with_repository();
    let memory = format!("memory-backend-memfd,id=ram0,size={}", counting::MEMORY_BYTES);
    let guest = Counting::start(&world, "raw", &["-object", &memory]);
    for _ in 0..2 {
        guest.waits_for_more();
        backup(&world, &guest);
        guest.has_nothing_of_ours();
    }
    drop(guest);
    goes_on(&world, "latest~1");
    goes_on(&world, "latest");
}

#[test]
fn what_cannot_be_stored_or_resumed_is_said() {
    let world = World::with_repository();
    let private = format!("memory-backend-ram,id=ram0,size={}", counting::MEMORY_BYTES);
    let guest = Counting::start(&world, "qcow2", &["-object", &private]);
    let monitor = guest.monitor();
    let monitor = monitor.to_str().unwrap();
    let run = world.run(["machine", "backup", "--memory", monitor]).exits(1);
    run.warns("\"ram0\" is in no file").warns("memory-backend-file,id=ram0,size=16M");
    world.run(["machine", "backup", "--memory", "--agent", "x", monitor]).exits(2);
    world.run(["machine", "backup", "--full-speed", monitor]).exits(0);
    world
        .say("boot --resume")
        .exits(1)
        .warns("stored without its memory")
        .warns("without --resume");
    world.say("boot --resume --keep x").exits(2);
    drop(guest);

    let guest = Counting::start(&world, "qcow2", &[]);
    guest.ask("stop");
    let monitor = guest.monitor();
    let run = world.run(["machine", "backup", "--memory", monitor.to_str().unwrap()]).exits(1);
    run.warns("the machine is paused");
    guest.ask("cont");
    fs::rename(world.path("ram0"), world.path("moved")).unwrap();
    let run = world.run(["machine", "backup", "--memory", monitor.to_str().unwrap()]).exits(1);
    run.warns("is not found");
    fs::rename(world.path("moved"), world.path("ram0")).unwrap();
    backup(&world, &guest);
    // Another QEMU, which has no such machine.
    world.say("boot --resume --qemu qemu-system-x86_64 --no-network").exits(2);
    let other = world.run(["boot", "--resume", "--qemu", "true"]).exits(1);
    other.warns("which machines it has");
}

#[test]
fn a_machine_of_which_something_is_damaged_is_not_resumed() {
    let world = World::with_repository();
    let guest = Counting::start(&world, "qcow2", &[]);
    backup(&world, &guest);
    drop(guest);
    // The state of the devices is the longest of what is not zeros.
    let files = strongroom_testkit::damage::files_below(&world.repository().join("arenas"));
    let longest = files.iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let bytes = longest.metadata().unwrap().len();
    let file = fs::File::options().write(true).open(longest).unwrap();
    file.write_all_at(&vec![0x5a; bytes as usize / 2], bytes / 4).unwrap();
    let run = world.say("boot --resume");
    assert!(!run.out.contains("vm1 runs"), "{run:?}");
    assert!(run.code != Some(0) && run.err.contains("damaged"), "{run:?}");
}

/// Backs up by a relay that does something when a command passes.
fn backup_until(
    world: &World,
    guest: &Counting,
    command: &'static str,
    then: impl Fn(&mut Child) + Send + 'static,
) -> (Run, Relay) {
    let program: Arc<Mutex<Option<Child>>> = Arc::default();
    let inside = program.clone();
    let relay = Relay::start(world, guest, move |passes| {
        if passes == command {
            then(inside.lock().unwrap().as_mut().unwrap());
        }
    });
    let words = ["machine", "backup", "--memory", "--full-speed"];
    let mut backup = world.command(words.map(str::to_owned).into_iter().chain([relay.path()]));
    let mut running = program.lock().unwrap();
    *running = Some(backup.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    drop(running);
    relay.waits_for_its_client();
    let child = program.lock().unwrap().take().unwrap();
    (World::finish(child), relay)
}

#[test]
fn a_machine_runs_on_if_the_backup_is_killed_while_it_is_paused() {
    let world = World::with_repository();
    let guest = Counting::start(&world, "qcow2", &[]);
    backup(&world, &guest);
    for command in ["migrate", "transaction", "cont"] {
        let (run, _relay) = backup_until(&world, &guest, command, |child| child.kill().unwrap());
        assert_eq!(run.code, None, "{command}: {run:?}");
        // Nothing but the process that watches over the pause does this.
        guest.waits_for_more();
        guest.waits_until_nothing_is_left();
    }
    backup(&world, &guest);
    guest.has_nothing_of_ours();
    drop(guest);
    goes_on(&world, "latest");
    assert_eq!(world.say("--json snapshots").exits(0).events("snapshot").len(), 2);
}

#[test]
fn a_qemu_that_dies_while_it_is_paused_loses_the_backup_only() {
    let world = World::with_repository();
    let guest = Counting::start(&world, "qcow2", &[]);
    let qemu = guest.process();
    let (run, relay) = backup_until(&world, &guest, "migrate", move |_| {
        kill_process(qemu, Signal::KILL).unwrap();
    });
    run.exits(7).warns("QEMU ended");
    drop((relay, guest));
    assert!(world.say("--json snapshots").exits(0).events("snapshot").is_empty());
}

#[test]
fn a_full_repository_loses_the_backup_only() {
    if skipped("a full disk", (!is_root()).then_some("only root may mount")) {
        return;
    }
    let world = World::empty();
    let repository = world.repository();
    let disk = Disk::mount(&repository, "3M");
    if skipped("a full disk", disk.is_none().then_some("it cannot be mounted here")) {
        return;
    }
    let disk = disk.unwrap();
    world.run(["init"].iter().chain(&CHEAP)).exits(0);
    let guest = Counting::start(&world, "qcow2", &[]);
    guest.fill_memory();
    let monitor = guest.monitor();
    let words = ["machine", "backup", "--memory", "--full-speed", monitor.to_str().unwrap()];
    world.run(words).exits(1);
    guest.waits_for_more();
    guest.has_nothing_of_ours();
    disk.grow("64M");
    backup(&world, &guest);
    drop(guest);
    goes_on(&world, "latest");
}
