//! Disks of any night for other programs, and machines that start from the archive.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use strongroom_base::Stopwatch;

use crate::images::disk_with_files;
use crate::world::{Run, World};

/// Starts the program, and reads until a line has this; returns that line.
fn started(world: &World, words: &[&str], until: &str) -> (Child, String) {
    started_as(world.command(words), until)
}

fn started_as(mut command: Command, until: &str) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
    let found = lines.find(|line| line.contains(until));
    drop(lines);
    let Some(line) = found else {
        let run = World::finish(child);
        panic!("it ended without {until}: {run:?}");
    };
    (child, line)
}

fn interrupt(child: Child) -> Run {
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    World::finish(child)
}

#[track_caller]
fn judge(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}\n{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn uri_of(event: &str) -> String {
    let event: serde_json::Value = serde_json::from_str(event).unwrap();
    event["uri"].as_str().unwrap().to_owned()
}

#[test]
fn other_programs_read_the_disk_of_a_night_and_write_beside_it() {
    let world = World::with_repository();
    let disk = disk_with_files(&world).display().to_string();
    world
        .run(["image", "backup", "vm1", &format!("vda={disk}"), "--keep-free", "--keep-swap"])
        .exits(0);
    let socket = world.path("my socket");
    let socket = socket.to_str().unwrap();
    let (child, line) = started(&world, &["--json", "nbd", "--socket", socket], "\"disk\"");
    let uri = uri_of(&line);
    assert!(uri.starts_with("nbd+unix:///vm1/vda@20") && uri.contains("my%20socket"), "{uri}");
    judge("qemu-img", &["compare", "-f", "raw", "-F", "raw", &disk, &uri]);
    // Another server cannot have the same socket.
    world.run(["nbd", "--socket", socket]).exits(1).warns("something is at this path");
    interrupt(child).exits(0);
    assert!(!Path::new(socket).exists());

    // What is written lasts as long as its folder.
    let overlay = world.path("overlay");
    let words = ["--json", "nbd", "--listen", "127.0.0.1:0", "--writable", "--overlay"];
    let words = [&words[..], &[overlay.to_str().unwrap()]].concat();
    for command in ["write -P 7 1M 64k", "read -P 7 1M 64k"] {
        let (child, line) = started(&world, &words, "\"disk\"");
        judge("qemu-io", &["-f", "raw", "-c", command, &uri_of(&line)]);
        interrupt(child).exits(0);
    }
    let (child, line) = started(&world, &["--json", "nbd", "--listen", "127.0.0.1:0"], "\"disk\"");
    judge("qemu-img", &["compare", "-f", "raw", "-F", "raw", &disk, &uri_of(&line)]);
    interrupt(child).exits(0);
}

#[test]
fn what_cannot_be_offered_or_started_is_said() {
    let world = World::with_tree(3);
    world.backup().exits(0);
    world.run(["nbd"]).exits(1).warns("no snapshot has a disk").warns("image backup");
    world.run(["boot"]).exits(1).warns("has no machine").warns("image backup");
    world.run(["nbd", "--listen", "0.0.0.0:10809"]).exits(1);
    world.run(["nbd", "--overlay", "x"]).exits(2);
    world.run(["drill", "--no-kvm"]).exits(2).warns("--boot");
    world.run(["drill", "--expect", "x"]).exits(2);
    let disk = disk_with_files(&world).display().to_string();
    let vda = format!("vda={disk}");
    world.run(["image", "backup", "vm1", &vda]).exits(0);
    world.run(["boot", "latest:/vm2"]).exits(1).warns("it has vm1");
    world.run(["boot", "--qemu", "/nowhere"]).exits(1).warns("cannot run /nowhere");
    world.run(["nbd", "--listen", "0.0.0.0:10809"]).exits(1).warns("ssh -L");
}

/// A disk whose first sector says so on the serial port, and then waits.
fn talking_disk(world: &World, words: &str) -> PathBuf {
    talking_disk_at(world.path("talking.raw"), words)
}

fn talking_disk_at(path: PathBuf, words: &str) -> PathBuf {
    let mut sector = vec![
        0xfa, 0x31, 0xc0, 0x8e, 0xd8, // cli; xor ax, ax; mov ds, ax
        0xbe, 0x16, 0x7c, // mov si, 0x7c16
        0xba, 0xf8, 0x03, // mov dx, 0x3f8
        0xac, 0x08, 0xc0, // lodsb; or al, al
        0x74, 0x03, // jz to the halt
        0xee, // out dx, al
        0xeb, 0xf8, // jmp to lodsb
        0xf4, 0xeb, 0xfd, // hlt; jmp back
    ];
    sector.extend_from_slice(words.as_bytes());
    sector.resize(510, 0);
    sector.extend_from_slice(&[0x55, 0xaa]);
    sector.resize(1 << 20, 0);
    fs::write(&path, sector).unwrap();
    path
}

#[test]
fn a_machine_starts_from_the_archive_and_proves_that_it_lives() {
    let world = World::with_repository();
    let disk = talking_disk(&world, "hello\r\nvm1 login: ");
    world.run(["image", "backup", "vm1", &format!("vda={}", disk.display())]).exits(0);
    let machine = ["--no-kvm", "--memory", "64MiB"];
    let boot = [&["boot", "latest:/vm1"][..], &machine].concat();
    let (child, _) = started(&world, &boot, "hello");
    interrupt(child).exits(0);

    let drill = |more: &[&str]| world.run([&["drill", "--boot"][..], &machine, more].concat());
    let picture = world.path("screen.png");
    let run = drill(&["--picture", picture.to_str().unwrap()]).exits(0);
    run.says("proved: vm1 started").says("screen.png");
    assert!(fs::read(&picture).unwrap().starts_with(b"\x89PNG"));
    world.run(["snapshots"]).exits(0).says("(started ");
    let run = drill(&["--expect", "hello", "--expect", "good bye", "--within", "3s"]).exits(1);
    run.says("FAILED: vm1 was started").says("\"good bye\"").says("vm1 login:");
    world.run(["snapshots"]).exits(0).says("(start failed ");
    let events = world.run(["--json", "snapshots"]).exits(0).events("snapshot");
    assert_eq!(events[0]["booted"]["verdict"], "failed");
    assert!(events[0]["booted"]["last_proved"].is_string(), "{events:?}");
    assert_eq!(events[0]["proved"], serde_json::Value::Null);
}

#[test]
fn a_set_of_machines_starts_in_order() {
    let world = World::with_repository();
    for (name, words) in [("db", "ready\r\n"), ("web", "web login: ")] {
        let disk = talking_disk_at(world.path(&format!("{name}.raw")), words);
        world.run(["image", "backup", name, &format!("vda={}", disk.display())]).exits(0);
    }
    let file = world.path("set.toml");
    let drill = |set: &str, more: &[&str]| {
        fs::write(&file, set).unwrap();
        let words = ["drill", "--boot", "--no-kvm", "--set", file.to_str().unwrap()];
        world.run([&words[..], more].concat())
    };
    let db = "[[machine]]\nstart = \"latest:/db\"\nmemory = \"64MiB\"\n";
    let web = "[[machine]]\nstart = \"latest:/web\"\nmemory = \"64MiB\"\ncpus = 1\n";
    let both = format!("{db}expect = [\"ready\"]\n{web}address = \"192.168.1.20\"\n");
    let run = drill(&both, &[]).exits(0);
    run.says("proved: db started").says("proved: web started").says("set of 2 machines started");
    let run = world.run(["snapshots"]).exits(0);
    assert_eq!(run.out.matches("(started ").count(), 2, "{run:?}");

    // One that does not live ends it, and nothing is said of those behind it.
    let run = drill(&format!("{db}within = \"2s\"\n{web}"), &["--no-record"]).exits(1);
    run.says("FAILED: db was started")
        .says("not tried: web was not started, since db does not live");
    // What is typed is for all.
    drill(&format!("{db}{web}"), &["--no-record", "--within", "2s"]).exits(1).says("within 2.0 s");

    // What is wrong is said before anything is started.
    let wrong = |set: &str| drill(set, &[]).exits(2);
    wrong("").warns("it lists 0 machines");
    wrong("[[machines]]").warns("set.toml").warns("machines");
    wrong("[[machine]]\nexpect = \"x\"\n").warns("machine 1").warns("--start");
    wrong(&format!("{db}expects = \"x\"\n")).warns("machine 1").warns("--expects");
    wrong(&format!("{db}{web}address = \"here\"\n")).warns("machine 2").warns("here");
    wrong(&format!("{db}no-network = true\n")).warns("without a network");
    drill(&format!("{db}[[machine]]\nstart = \"latest:/mail\"\n"), &[]).exits(1).warns("mail");
    world.run(["drill", "--set", "x"]).exits(2).warns("--boot");
    world.run(["drill", "--boot", "--set", "/nowhere"]).exits(2).warns("/nowhere");
    world.run(["drill", "--boot", "--set", "x", "--expect", "y"]).exits(2);
}

/// The emulator is stored as files, and starts the machine out of the snapshot.
#[test]
fn a_machine_starts_under_the_emulator_that_was_stored() {
    let world = World::with_repository();
    let disk = talking_disk(&world, "vm1 login: ");
    world.run(["image", "backup", "vm1", &format!("vda={}", disk.display())]).exits(0);
    let program = "/usr/bin/qemu-system-x86_64";
    let listed = world.run(["machine", "emulator"]).exits(0).says(program).out;
    let list = world.path("emulator");
    fs::write(&list, listed).unwrap();
    world.run(["backup", "--files-from", list.to_str().unwrap()]).exits(0);
    let start = |words: &[&str]| {
        world.run([&["drill", "--boot", "latest:/vm1", "--no-kvm", "-v"][..], words].concat())
    };
    let emulator = format!("latest:{program}");
    start(&["--memory", "64MiB", "--emulator", &emulator]).exits(0).says("proved: vm1 started");
    start(&["--emulator", "latest:/usr/bin/gone"]).exits(1).warns("has no emulator /usr/bin/gone");
    start(&["--emulator", "latest"]).exits(1).warns("SNAPSHOT:/PROGRAM");
    world.run(["machine", "emulator", "no-such"]).exits(1).warns("no-such");
}

#[test]
fn a_machine_that_kvm_cannot_run_is_emulated() {
    let world = World::with_repository();
    let disk = talking_disk(&world, "vm1 login: ");
    world.run(["image", "backup", "vm1", &format!("vda={}", disk.display())]).exits(0);
    // As on hosts where /dev/kvm can be opened, and no more.
    let qemu = world.path("qemu");
    let refusing = "#!/bin/sh\ncase \"$*\" in *'-accel kvm'*) echo no >&2; exit 1; esac\n\
                    exec qemu-system-x86_64 \"$@\"\n";
    fs::write(&qemu, refusing).unwrap();
    fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
    let words = ["drill", "--boot", "--memory", "64MiB", "--qemu", qemu.to_str().unwrap()];
    let run = world.run(words).exits(0).says("proved: vm1 started");
    // Elsewhere it is not tried.
    if fs::File::options().read(true).write(true).open("/dev/kvm").is_ok() {
        run.warns("its processor is emulated");
    }
}

#[test]
fn a_machine_ends_with_the_program_that_started_it() {
    let world = World::with_repository();
    let disk = talking_disk(&world, "hello\r\n");
    world.run(["image", "backup", "vm1", &format!("vda={}", disk.display())]).exits(0);
    let boot = ["--json", "boot", "--no-kvm", "--memory", "64MiB"];
    let (mut child, line) = started(&world, &boot, "\"machine\"");
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    let monitor = event["monitor"].as_str().unwrap();
    assert!(UnixStream::connect(monitor).is_ok());
    child.kill().unwrap();
    child.wait().unwrap();
    let begun = Stopwatch::start();
    while UnixStream::connect(monitor).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(10), "QEMU runs on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Another snapshot has come since: a machine that began again from it would look as if all that it wrote
/// were lost.
#[test]
fn what_a_machine_wrote_belongs_to_the_snapshot_that_it_began_with() {
    let world = World::with_repository();
    let disk = talking_disk(&world, "hello\r\n");
    let night = || {
        world.run(["image", "backup", "vm1", &format!("vda={}", disk.display())]).exits(0);
        let listed = world.run(["snapshots", "--json"]).exits(0).events("snapshot");
        listed.last().unwrap()["id"].as_str().unwrap().to_owned()
    };
    let first = night();
    let kept = world.path("kept");
    let boot = ["--no-kvm", "--memory", "64MiB", "--keep", kept.to_str().unwrap()];
    let starts = |snapshot: &str| {
        let words = [&["--json", "boot", snapshot][..], &boot].concat();
        let (child, _) = started(&world, &words, "\"machine\"");
        interrupt(child).exits(0);
    };
    starts("latest");
    let second = night();
    assert_ne!(first, second);
    let refused = world.run([&["boot", "latest"][..], &boot].concat()).exits(1);
    refused.warns("has what vm1 of the snapshot").warns("name that snapshot to go on with it");
    starts(&first);
}

/// Scratch folders: of a start, of overlays, and of the memory of a guest.
#[test]
fn what_a_killed_run_has_left_is_removed_by_the_next() {
    let world = World::with_repository();
    let disk = talking_disk(&world, "hello\r\n");
    world.run(["image", "backup", "vm1", &format!("vda={}", disk.display())]).exits(0);
    let temporary = world.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let command = |words: &[&str]| {
        let mut command = world.command(words);
        command.env("TMPDIR", &temporary);
        command
    };
    let left = || {
        let mut found = Vec::new();
        let mut folders = vec![temporary.clone(), world.path("cache")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                match entry.file_name().to_str().unwrap().starts_with("strongroom-run-") {
                    true => found.push(entry.path()),
                    false if entry.file_type().unwrap().is_dir() => folders.push(entry.path()),
                    false => {}
                }
            }
        }
        found
    };
    let socket = world.path("nbd");
    let nbd = ["--json", "nbd", "--writable", "--socket", socket.to_str().unwrap()];
    let boot = ["--json", "boot", "--no-kvm", "--memory", "64MiB"];
    for (words, until, folders) in [(&nbd[..], "\"disk\"", 1), (&boot[..], "\"machine\"", 2)] {
        let (mut child, _) = started_as(command(words), until);
        child.kill().unwrap();
        child.wait().unwrap();
        let found = left();
        // Each has its marker.
        assert_eq!(found.len(), 2 * folders, "{words:?}: {found:?}");
        // What lives is left alone.
        let (child, _) = started_as(command(&boot), "\"machine\"");
        let now = left();
        assert!(now.len() == 4 && found.iter().all(|path| !path.exists()), "{found:?} {now:?}");
        let (other, _) = started_as(command(&boot), "\"machine\"");
        let run = interrupt(other).exits(0);
        assert!(now.iter().all(|path| path.exists()), "{run:?}");
        interrupt(child).exits(0);
        assert_eq!(left(), [] as [PathBuf; 0]);
    }
    // Of a guest whose memory was being loaded.
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let memory = format!("/dev/shm/strongroom-run-{:016x}", std::process::id());
    let (memory, marker) = (PathBuf::from(&memory), PathBuf::from(memory + ".owner"));
    fs::create_dir(&memory).unwrap();
    fs::write(memory.join("ram0"), "secrets").unwrap();
    fs::write(&marker, format!("scratch folder of a strongroom run\nhost {host:?}\n")).unwrap();
    let (child, _) = started_as(command(&boot), "\"machine\"");
    interrupt(child).exits(0);
    assert!(!memory.exists() && !marker.exists());
}

/// A machine with an emulated TPM: the state is stored with it, and is in the TPM of the machine that
/// starts from the archive.
#[test]
fn a_machine_keeps_its_tpm() {
    let world = World::with_repository();
    let (disk, folder) = (talking_disk(&world, "hello\r\n"), world.path("tpm"));
    fs::create_dir(&folder).unwrap();
    let (tpm, monitor) = (world.path("tpm.sock"), world.path("qmp"));
    let mut emulator = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "swtpm", "socket", "--tpm2", "--tpmstate"])
        .arg(format!("dir={},mode=0600", folder.display()))
        .arg("--ctrl")
        .arg(format!("type=unixio,path={}", tpm.display()))
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let waits = |what: &dyn Fn() -> bool, until: &str| {
        let begun = Stopwatch::start();
        while !what() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it waits until {until}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    waits(&|| tpm.exists(), "swtpm listens");
    let mut machine = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-name", "vm1"])
        .args(["-machine", "q35,accel=tcg", "-m", "64", "-nodefaults", "-display", "none"])
        .args(["-qmp", &format!("unix:{},server=on,wait=off", monitor.display())])
        .args(["-chardev", &format!("socket,id=chrtpm,path={}", tpm.display())])
        .args(["-tpmdev", "emulator,id=tpm0,chardev=chrtpm", "-device", "tpm-crb,tpmdev=tpm0"])
        .args(["-drive", &format!("if=virtio,format=raw,file={}", disk.display())])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let state = folder.join("tpm2-00.permall");
    waits(&|| UnixStream::connect(&monitor).is_ok() && state.exists(), "there is a state");
    let socket = monitor.to_str().unwrap();
    let run = world.run(["machine", "backup", socket, "--store-reserve", "1MiB"]).exits(0);
    assert!(!run.err.contains("TPM"), "{run:?}");
    let stored = world.run(["cat", "latest:/vm1/machine/tpm2-00.permall"]).exits(0);
    assert!(!stored.bytes.is_empty());
    machine.kill().unwrap();
    machine.wait().unwrap();
    emulator.kill().unwrap();
    emulator.wait().unwrap();

    let (child, line) = started(&world, &["--json", "boot", "--no-kvm"], "\"machine\"");
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event["notes"], serde_json::json!([]), "{event}");
    // QEMU would not start without its TPM, nor the TPM with a state that it does not understand.
    let monitor = PathBuf::from(event["monitor"].as_str().unwrap());
    let state = monitor.with_file_name("tpm").join("tpm2-00.permall");
    assert!(state.exists(), "{state:?}");
    interrupt(child).exits(0);
    assert!(!state.exists(), "nothing is left of a start");
}

/// The header of an image can name a file, which QEMU would open: the second kind for writing.
#[test]
fn a_stored_machine_opens_no_file_of_its_host() {
    const CODE: &str = "/usr/share/seabios/bios-256k.bin";
    let world = World::with_repository();
    let (disk, secret) = (talking_disk(&world, "hello\r\n"), world.path("secret"));
    let (code, variables) = (world.path("uefi-code.fd"), world.path("uefi-variables.fd"));
    let json = world.path("machine.json");
    fs::copy(CODE, &code).unwrap();
    let file = |name: &str, format: &str| serde_json::json!({"name": name, "path": format!("/{name}"), "format": format});
    let description = serde_json::json!({
        "version": 1,
        "machine": "pc",
        "memory_bytes": 64 << 20,
        "cpu": {"count": 1},
        "firmware": {
            "kind": "uefi",
            "code": file("uefi-code.fd", "raw"),
            "variables": file("uefi-variables.fd", "qcow2"),
        },
    });
    fs::write(&json, serde_json::to_vec(&description).unwrap()).unwrap();
    let content = vec![b'S'; 256 << 10];
    let create = |more: &[&str]| {
        fs::write(&secret, &content).unwrap();
        let _ = fs::remove_file(&variables);
        let path = variables.to_str().unwrap();
        judge("qemu-img", &[&["create", "-q", "-f", "qcow2"], more, &[path, "256k"]].concat());
        fs::write(&secret, &content).unwrap();
        let vda = format!("vda={}", disk.display());
        let with = [&json, &code, &variables].map(|path| ["--with", path.to_str().unwrap()]);
        let words = [&["image", "backup", "vm1", &vda][..], &with.concat()].concat();
        world.run(words).exits(0);
    };
    let boot = ["boot", "--no-kvm"];
    let named = secret.display();
    for option in [
        vec!["-b", secret.to_str().unwrap(), "-F", "raw"],
        vec!["-o", &format!("data_file={named},data_file_raw=on")],
    ] {
        create(&option);
        let mut command = world.command(boot);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // QEMU runs for ever if it takes it.
        let id = Pid::from_child(&child);
        let begun = Stopwatch::start();
        let run = std::thread::scope(|scope| {
            let run = scope.spawn(|| World::finish(child));
            while !run.is_finished() && begun.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(20));
            }
            if !run.is_finished() {
                kill_process(id, Signal::INT).unwrap();
            }
            run.join().unwrap()
        });
        run.exits(1).warns("uefi-variables.fd").warns("never opened");
        assert_eq!(fs::read(&secret).unwrap(), content);
    }
    create(&[]);
    let (child, line) = started(&world, &boot, "hello");
    assert!(line.contains("hello"));
    interrupt(child).exits(0);
}
