//! Memory that is in use: stored, watched, put back.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use strongroom_testkit::Random;

use crate::world::{World, has_program, is_root, skipped};

/// A folder of shared memory; if there is little of it, of files that programs map.
fn shared() -> tempfile::TempDir {
    const NEEDED: u64 = 1 << 30;
    let room = rustix::fs::statvfs("/dev/shm").map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    match room >= NEEDED {
        true => tempfile::tempdir_in("/dev/shm").unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

fn write_at(path: &Path, bytes: &[u8], at: u64) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn shared_memory_is_stored_by_what_changed_and_put_back() {
    let (world, folder) = (World::with_repository(), shared());
    let region = folder.path().join("cache");
    let mut bytes = Random::new(1).noise(8 << 20);
    bytes[2 << 20..4 << 20].fill(0);
    fs::write(&region, &bytes).unwrap();
    let name = region.display().to_string();
    let store = || world.run(["ram", "store", &name]).exits(0);
    // Nothing keeps a writer from changing the region while it is read: two equal readings are all that
    // is known, and no word claims more.
    store()
        .says("snapshot")
        .says("512 of 512 pages changed; guarantee: settled (read twice, 2 readings)");
    store().says("0 of 512 pages changed").says("0 B of new content").says("1 reading)");
    write_at(&region, b"changed", 5 << 20);
    let run = world.run(["ram", "store", &name, "--json"]).exits(0);
    let summary = run.summary();
    assert_eq!((&summary["pages_changed"], &summary["guarantee"]), (&1.into(), &"settled".into()));
    let listed = world.run(["snapshots", "--json"]).exits(0).events("snapshot");
    assert!(listed.iter().all(|snapshot| snapshot["guarantee"] == "settled"), "{listed:?}");
    let newest = fs::read(&region).unwrap();

    // It is an ordinary file too.
    world.run(["ls", &format!("latest:{}", folder.path().display())]).exits(0).says("cache");
    assert!(world.run(["cat", &format!("latest:{name}")]).exits(0).bytes == newest);
    world.run(["verify", "--data"]).exits(0);

    // In place, with what differs; elsewhere; back in time.
    let first = ["ram", "load", "latest~2"];
    world.run(first).exits(1).warns("it exists").warns("--overwrite");
    world.run([&first[..], &["--overwrite"]].concat()).exits(0).says("of which 4.0 KiB written");
    assert!(fs::read(&region).unwrap() == bytes);
    let other = world.path("other").display().to_string();
    world.run(["ram", "load", &format!("latest:{name}"), &other]).exits(0);
    assert!(fs::read(&other).unwrap() == newest);
    File::options().write(true).open(&region).unwrap().set_len(1 << 20).unwrap();
    let wrong = world.run(["ram", "load", "latest", "--overwrite"]).exits(1);
    wrong.warns("it has 1048576 bytes, and the region 8388608").warns("remove it first");
    fs::remove_file(&region).unwrap();
    world.run(["ram", "load", "latest"]).exits(0).says("loaded 1 region");
    assert!(fs::read(&region).unwrap() == newest);
}

#[test]
fn a_folder_of_regions_and_a_memfd_by_name() {
    let (world, folder) = (World::with_repository(), shared());
    fs::create_dir(folder.path().join("deep")).unwrap();
    for (name, seed) in [("one", 1), ("deep/two", 2)] {
        fs::write(folder.path().join(name), Random::new(seed).noise(100_000)).unwrap();
    }
    let fd = rustix::fs::memfd_create("region", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let memfd = File::from(fd);
    memfd.write_all_at(&Random::new(3).noise(300_000), 1 << 20).unwrap();
    let of_memfd = format!("heap=/proc/{}/fd/{}", std::process::id(), memfd.as_raw_fd());
    let top = folder.path().display().to_string();
    world.run(["ram", "store", &top, &of_memfd]).exits(0).says("of").says("3 files");
    // The paths are those that were typed, so regions come and go and the series goes on.
    fs::remove_file(folder.path().join("one")).unwrap();
    world.run(["ram", "store", &top, &of_memfd]).exits(0).says("0 of").says("0 B of new content");
    let target = world.path("all").display().to_string();
    world.run(["ram", "load", "latest~1", &target]).exits(0).says("3 regions");
    assert!(fs::read(world.path("all/heap")).unwrap().len() == (1 << 20) + 300_000);
    world.run(["ram", "load", &format!("latest~1:{top}"), &target]).exits(0).says("2 regions");
    assert!(fs::read(world.path("all/one")).unwrap() == Random::new(1).noise(100_000));
    let heap = world.path("heap").display().to_string();
    world.run(["ram", "load", "latest:/heap", &heap]).exits(0);
    assert!(fs::read(&heap).unwrap()[1 << 20..] == Random::new(3).noise(300_000));
    world.run(["ram", "load", "latest:/nowhere"]).exits(1);
    // One of three exists: the others are not begun.
    let half = world.path("half");
    fs::create_dir(&half).unwrap();
    fs::write(half.join("heap"), "mine").unwrap();
    let half = half.display().to_string();
    world.run(["ram", "load", "latest~1", &half]).exits(1).warns("it exists");
    let left: Vec<_> = walk(Path::new(&half));
    assert_eq!(left, [Path::new(&half).join("heap")]);
}

/// The names come from a snapshot, and the links from another user of the folder.
#[test]
fn links_below_a_folder_that_is_loaded_into_are_not_followed() {
    let (world, folder) = (World::with_repository(), shared());
    fs::create_dir_all(folder.path().join("x/cron.d")).unwrap();
    for name in ["x/cron.d/job", "y"] {
        fs::write(folder.path().join(name), Random::new(1).noise(100_000)).unwrap();
    }
    let top = folder.path().display().to_string();
    world.run(["ram", "store", &top]).exits(0);
    let (target, outside) = (world.path("all"), world.path("outside"));
    fs::create_dir_all(outside.join("cron.d")).unwrap();
    fs::create_dir(&target).unwrap();
    let into = target.to_str().unwrap();
    for path in [format!("latest:{top}"), format!("latest:{top}/x")] {
        let link = target.join(if path.ends_with("/x") { "cron.d" } else { "x" });
        let leads = if path.ends_with("/x") { outside.join("cron.d") } else { outside.clone() };
        std::os::unix::fs::symlink(&leads, &link).unwrap();
        // One region goes below the folder, too.
        world.run(["ram", "load", &path, into, "--overwrite"]).exits(1).warns("links in it");
        assert_eq!(walk(&outside), [] as [PathBuf; 0], "{path}");
        fs::remove_file(link).unwrap();
    }
    // Nor is the file itself, wherever it leads, also in place.
    for (leads, exists) in [("nowhere", false), ("there", true)] {
        let there = outside.join(leads);
        if exists {
            fs::write(&there, vec![0; 100_000]).unwrap();
        }
        for (place, words) in [
            (target.join("y"), vec![format!("latest:{top}"), into.to_owned()]),
            (folder.path().join("y"), vec![format!("latest:{top}/y")]),
        ] {
            let _ = fs::remove_file(&place);
            std::os::unix::fs::symlink(&there, &place).unwrap();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let load = [&["ram", "load", "--overwrite"][..], &words].concat();
            world.run(load).exits(1).warns("symbolic link, which is not followed");
            assert_eq!(there.exists(), exists);
            assert!(!exists || fs::read(&there).unwrap() == vec![0; 100_000]);
        }
    }
    // A file that was typed is the user's.
    let typed = world.path("typed");
    std::os::unix::fs::symlink(outside.join("there"), &typed).unwrap();
    let one = format!("latest:{top}/y");
    world.run(["ram", "load", "--overwrite", &one, typed.to_str().unwrap()]).exits(0);
    assert!(fs::read(outside.join("there")).unwrap() == Random::new(1).noise(100_000));
}

/// The files below a folder.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// Huge pages of this machine, mounted for a test.
struct HugeMount {
    folder: tempfile::TempDir,
    pages_before: String,
}

const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

impl HugeMount {
    fn new(pages: u64) -> Self {
        let pages_before = fs::read_to_string(HUGE_PAGES).unwrap();
        let wanted = pages_before.trim().parse::<u64>().unwrap() + pages;
        fs::write(HUGE_PAGES, wanted.to_string()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "hugetlbfs", "none"]).arg(folder.path());
        assert!(mount.status().unwrap().success());
        Self { folder, pages_before }
    }
}

impl Drop for HugeMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.folder.path()).status();
        let _ = fs::write(HUGE_PAGES, &self.pages_before);
    }
}

#[test]
fn huge_pages_are_stored_and_put_back() {
    if skipped("huge pages", (!is_root()).then_some("only root reserves huge pages")) {
        return;
    }
    let (world, huge) = (World::with_repository(), HugeMount::new(6));
    let region = huge.folder.path().join("heap");
    let name = region.display().to_string();
    let file = File::options().read(true).write(true).create_new(true).open(&region).unwrap();
    file.set_len(4 << 20).unwrap();
    let pages = strongroom_source::memory::huge::HugePages::of(&file).unwrap().unwrap();
    let bytes = Random::new(4).noise(1 << 20);
    pages.write_all_at(&bytes, 3 << 20).unwrap();
    world.run(["ram", "store", &name]).exits(0).says("256 of 256 pages changed");
    pages.write_all_at(b"changed", (3 << 20) + 50_000).unwrap();
    pages.write_all_at(b"new", 77).unwrap();
    world.run(["ram", "store", &name]).exits(0).says("2 of 256 pages changed");
    let load = ["ram", "load", "latest~1", "--overwrite"];
    world.run(load).exits(0).says("4.0 KiB written");
    let mut found = vec![1; 4 << 20];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found[3 << 20..] == bytes && found[..3 << 20].iter().all(|byte| *byte == 0));
    // Into a new file of huge pages, and into one of another kind.
    let copy = huge.folder.path().join("copy").display().to_string();
    world.run(["ram", "load", &format!("latest:{name}"), &copy]).exits(0);
    let mut copied = vec![0; 7];
    File::open(&copy).unwrap().read_exact_at(&mut copied, (3 << 20) + 50_000).unwrap();
    assert_eq!(copied, b"changed");
    let plain = world.path("plain").display().to_string();
    world.run(["ram", "load", &format!("latest~1:{name}"), &plain]).exits(0);
    assert!(fs::read(&plain).unwrap() == found);
    // As many as there are: nothing kills the program.
    drop((pages, file));
    let more = huge.folder.path().join("more").display().to_string();
    fs::write(HUGE_PAGES, "0").unwrap();
    let none = world.run(["ram", "load", &format!("latest:{name}"), &more]).exits(1);
    none.warns("there are too few huge pages: raise vm.nr_hugepages");
    assert!(!Path::new(&more).exists());
}

#[test]
fn what_cannot_be_a_region_is_named() {
    let (world, folder) = (World::with_repository(), shared());
    let run = |what: &str| world.run(["ram", "store", what]).exits(1);
    run("/dev/shm/there-is-no-such").warns("cannot read the region").warns("No such file");
    run("/dev/null").warns("it is a character device, and no region of memory");
    run(&folder.path().display().to_string()).warns("there is no region in these folders");
    let region = folder.path().join("r");
    fs::write(&region, b"x").unwrap();
    let region = region.display().to_string();
    let frozen = |folder: &str| world.run(["ram", "store", &region, "--freeze", folder]).exits(1);
    frozen("/tmp").warns("it is no control group that can be frozen");
    frozen("/nowhere").warns("cannot freeze /nowhere");
    world.run(["snapshots"]).exits(0).warns("there are no snapshots yet");
}

#[test]
fn the_private_memory_of_a_process_is_found_in_its_snapshot() {
    let world = World::with_repository();
    let program = "
held = bytearray(b'strongroom'[:10]) + bytearray(5_000_000)
held[4_000_000:4_000_006] = b'needle'
print('ready', flush=True)
input()
";
    let mut child = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let what = format!("python=pid:{}", child.id());
    world.run(["ram", "store", &what]).exits(0).says("of /python").says("guarantee: settled");
    world.run(["ram", "store", &what]).exits(0).says("0 of");
    let folder = world.path("loaded").display().to_string();
    world.run(["ram", "load", "latest:/python", &folder]).exits(0);
    let holds = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|part| part == what);
    let is_there = fs::read_dir(&folder).unwrap().any(|entry| {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        holds(&bytes, b"strongroom\0\0\0\0") && holds(&bytes, b"\0\0needle\0\0")
    });
    assert!(is_there);
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = world.run(["ram", "store", &what]).exits(1);
    gone.warns("cannot read the memory of the process").warns("there is no process of this number");
}

#[test]
fn a_put_only_key_stores_what_changed() {
    let (world, folder) = (World::with_repository(), shared());
    let region = folder.path().join("cache");
    fs::write(&region, Random::new(8).noise(4 << 20)).unwrap();
    let key = world.path("put-only").display().to_string();
    world.run(["key", "generate", &key]).exits(0);
    world.run(["key", "add", "--put-only", "--new-password-file", &key]).exits(0);
    let name = region.display().to_string();
    let store = || world.run(["ram", "store", &name, "--password-file", &key]).exits(0);
    store().says("256 of 256 pages changed");
    write_at(&region, b"changed", 1 << 20);
    store().says("1 of 256 pages changed");
    let stored = world.run(["cat", &format!("latest:{name}")]).exits(0).bytes;
    assert!(stored == fs::read(&region).unwrap());
}

/// A program that writes to a region all the time: two numbers at its ends, one after the other.
struct Writer(Child);

impl Writer {
    fn start(region: &Path) -> Self {
        let program = "
import mmap, sys
file = open(sys.argv[1], 'r+b')
memory = mmap.mmap(file.fileno(), 0)
count = 0
print('ready', flush=True)
while True:
    count += 1
    memory[0:8] = count.to_bytes(8, 'little')
    memory[-8:] = count.to_bytes(8, 'little')
    at = 8 + count * 4096 % (len(memory) - 16)
    memory[at:at + 1] = b'x'
";
        let mut child = Command::new("python3")
            .args(["-c", program])
            .arg(region)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        Self(child)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn what_is_written_all_the_time_is_refused_until_it_is_accepted() {
    let (world, folder) = (World::with_repository(), shared());
    let region = folder.path().join("busy");
    fs::write(&region, Random::new(4).noise(16 << 20)).unwrap();
    let _writer = Writer::start(&region);
    let region = region.display().to_string();
    let refused = world.run(["ram", "store", &region, "--passes", "2"]).exits(1);
    refused.warns("is of no instant").warns("--freeze FOLDER").warns("--accept-fuzzy");
    world.run(["snapshots"]).exits(0).warns("there are no snapshots yet");
    let accepted = world.run(["ram", "store", &region, "--accept-fuzzy", "--passes", "2"]).exits(0);
    accepted.says("guarantee: fuzzy (read twice, 2 readings)");
}

/// A file system that can hold on to a file, in an image; it is unmounted when this is dropped.
struct Xfs(PathBuf);

impl Xfs {
    fn mount(world: &World) -> Self {
        let (image, folder) = (world.path("xfs.img"), world.path("xfs"));
        File::create(&image).unwrap().set_len(400 << 20).unwrap();
        fs::create_dir(&folder).unwrap();
        let run = |program: &str, words: &[&Path]| {
            let output = Command::new(program).args(words).output().unwrap();
            assert!(output.status.success(), "{program}: {output:?}");
        };
        run("mkfs.xfs", &["-q".as_ref(), &image]);
        run("mount", &["-o".as_ref(), "loop".as_ref(), &image, &folder]);
        Self(folder)
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        assert!(Command::new("umount").arg(&self.0).status().unwrap().success());
    }
}

#[test]
fn what_a_file_system_holds_on_to_is_of_one_instant() {
    if skipped("a file system that shares blocks", (!is_root()).then_some("only root may mount")) {
        return;
    }
    let world = World::with_repository();
    let xfs = Xfs::mount(&world);
    let region = xfs.0.join("busy");
    fs::write(&region, Random::new(9).noise(32 << 20)).unwrap();
    let writer = Writer::start(&region);
    let name = region.display().to_string();
    // A region that is read twice is of a later instant, and of one alone if nothing was undone.
    let (others, other) = (shared(), "other");
    fs::write(others.path().join(other), [7; 1 << 20]).unwrap();
    let other = others.path().join(other).display().to_string();
    let run = world.run(["ram", "store", &name, &other]).exits(0);
    run.says("guarantee: settled (read twice, 2 readings)");
    for _ in 0..3 {
        let run = world.run(["ram", "store", &name]).exits(0);
        run.says("guarantee: bytes (held by the file system, 1 reading)");
        let stored = world.run(["cat", &format!("latest:{name}")]).exits(0).bytes;
        let number = |at: usize| u64::from_le_bytes(stored[at..at + 8].try_into().unwrap());
        let (first, last) = (number(0), number(stored.len() - 8));
        assert!(first > 0 && (first == last || first == last + 1), "{first} {last}");
    }
    drop(writer);
}

/// Control groups of version 2: where this machine has them, or in a folder of the test.
struct ControlGroups {
    folder: PathBuf,
    is_ours: bool,
}

impl ControlGroups {
    fn find(world: &World) -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let found = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let folder = words.next()?;
            (words.next() == Some("cgroup2")).then(|| PathBuf::from(folder))
        });
        if let Some(folder) = found {
            return Self { folder, is_ours: false };
        }
        let folder = world.path("groups");
        fs::create_dir(&folder).unwrap();
        let mount = Command::new("mount").args(["-t", "cgroup2", "none"]).arg(&folder).status();
        assert!(mount.unwrap().success(), "the kernel has control groups of version 2");
        Self { folder, is_ours: true }
    }
}

impl Drop for ControlGroups {
    fn drop(&mut self) {
        if self.is_ours {
            Command::new("umount").arg(&self.folder).status().unwrap();
        }
    }
}

/// A control group that is removed when its programs are gone.
struct Group(PathBuf);

impl Group {
    fn with(name: &str, top: &Path, process: u32) -> Self {
        let folder = top.join(format!("strongroom-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("cgroup.procs"), process.to_string()).unwrap();
        Self(folder)
    }

    fn is_frozen(&self) -> bool {
        fs::read_to_string(self.0.join("cgroup.events")).unwrap().contains("frozen 1")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel takes a moment to see that a killed process is gone.
        while fs::remove_dir(&self.0).is_err() && self.0.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_frozen_control_group_is_stored_as_it_was_and_goes_on() {
    if skipped("control groups", (!is_root()).then_some("only root may make them")) {
        return;
    }
    let (world, folder) = (World::with_repository(), shared());
    let groups = ControlGroups::find(&world);
    let region = folder.path().join("busy");
    fs::write(&region, Random::new(5).noise(32 << 20)).unwrap();
    // Dropped in this order: the group is empty when the writer is gone.
    let writer = Writer::start(&region);
    let group = Group::with("frozen", &groups.folder, writer.0.id());
    let (name, frozen) = (region.display().to_string(), group.0.display().to_string());
    for _ in 0..3 {
        let run = world.run(["ram", "store", &name, "--freeze", &frozen]).exits(0);
        run.says("guarantee: frozen (control group frozen, 3 readings)");
        assert!(!group.is_frozen(), "it goes on");
        let stored = world.run(["cat", &format!("latest:{name}")]).exits(0).bytes;
        let number = |at: usize| u64::from_le_bytes(stored[at..at + 8].try_into().unwrap());
        // One store of the writer may be between the two.
        let (first, last) = (number(0), number(stored.len() - 8));
        assert!(first == last || first == last + 1, "{first} {last}: not of one instant");
    }
    drop(writer);
    drop(group);
}

/// `frozen` is said only if all who can write are stopped.
#[test]
fn kept_1_11_a_control_group_without_a_writer_of_the_region_is_refused() {
    if skipped("control groups", (!is_root()).then_some("only root may make them")) {
        return;
    }
    let (world, folder) = (World::with_repository(), shared());
    let groups = ControlGroups::find(&world);
    let region = folder.path().join("busy");
    fs::write(&region, Random::new(5).noise(32 << 20)).unwrap();
    let name = region.display().to_string();
    let mut sleeper = Command::new("sleep").arg("100").spawn().unwrap();
    let group = Group::with("other", &groups.folder, sleeper.id());
    let store = || world.run(["ram", "store", &name, "--freeze", &group.0.display().to_string()]);
    // No program writes: it is frozen.
    store().exits(0).says("guarantee: frozen (control group frozen, 3 readings)");
    let writer = Writer::start(&region);
    let refused = store().exits(1);
    let outside = format!("the process {} (", writer.0.id());
    refused.warns(&outside).warns("can write to the regions, and is not in the control group");
    assert!(!group.is_frozen(), "it goes on");
    drop(writer);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let is_empty = || fs::read_to_string(group.0.join("cgroup.procs")).unwrap().is_empty();
    while !is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    store().exits(1).warns("no program is in it, so nothing would be stopped");
}

#[test]
fn kept_1_11_a_control_group_that_was_frozen_stays_frozen() {
    if skipped("control groups", (!is_root()).then_some("only root may make them")) {
        return;
    }
    let (world, folder) = (World::with_repository(), shared());
    let groups = ControlGroups::find(&world);
    let region = folder.path().join("busy");
    fs::write(&region, Random::new(5).noise(4 << 20)).unwrap();
    let writer = Writer::start(&region);
    let group = Group::with("before", &groups.folder, writer.0.id());
    fs::write(group.0.join("cgroup.freeze"), "1").unwrap();
    let (name, frozen) = (region.display().to_string(), group.0.display().to_string());
    let run = world.run(["ram", "store", &name, "--freeze", &frozen]).exits(0);
    run.says("guarantee: frozen (control group frozen, 3 readings)");
    assert!(group.is_frozen(), "the administrator's command is not undone");
    fs::write(group.0.join("cgroup.freeze"), "0").unwrap();
    drop(writer);
    drop(group);
}

#[test]
fn a_control_group_that_the_program_is_in_is_refused() {
    if skipped("control groups", (!is_root()).then_some("only root may make them")) {
        return;
    }
    let (world, folder) = (World::with_repository(), shared());
    let groups = ControlGroups::find(&world);
    let region = folder.path().join("region");
    fs::write(&region, b"x").unwrap();
    let mut sleeper = Command::new("sleep").arg("100").spawn().unwrap();
    let group = Group::with("own", &groups.folder, sleeper.id());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let inner = Group(group.0.join("inner"));
    fs::create_dir(&inner.0).unwrap();
    let program = world.command(["ram", "store"]);
    let mut shell = Command::new("sh");
    world.surround(&mut shell);
    shell
        .args(["-c", "echo $$ > \"$1\"; shift; exec \"$@\"", "sh"])
        .arg(inner.0.join("cgroup.procs"))
        .arg(program.get_program())
        .args(program.get_args())
        .args([&region, Path::new("--freeze"), &group.0]);
    let refused = crate::world::Run::of(shell.output().unwrap()).exits(1);
    refused.warns("this process is in it, and would stop too");
    drop(inner);
    drop(group);
}

#[test]
fn a_control_group_goes_on_if_the_program_is_killed() {
    if skipped("control groups", (!is_root()).then_some("only root may make them")) {
        return;
    }
    let (world, folder) = (World::with_repository(), shared());
    let groups = ControlGroups::find(&world);
    let region = folder.path().join("busy");
    fs::write(&region, Random::new(6).noise(64 << 20)).unwrap();
    let writer = Writer::start(&region);
    let group = Group::with("killed", &groups.folder, writer.0.id());
    let (name, frozen) = (region.display().to_string(), group.0.display().to_string());
    world.run(["ram", "store", &name, "--freeze", &frozen]).exits(0);
    let mut seen_frozen = 0;
    for _ in 0..5 {
        let mut program =
            world.command(["ram", "store", &name, "--freeze", &frozen]).spawn().unwrap();
        let is_frozen = || {
            let state = fs::read_to_string(group.0.join("cgroup.freeze")).unwrap();
            state.trim() == "1"
        };
        while !is_frozen() && program.try_wait().unwrap().is_none() {}
        program.kill().unwrap();
        seen_frozen += u32::from(is_frozen());
        program.wait().unwrap();
        while is_frozen() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(seen_frozen > 0, "it was killed while the group was frozen");
    world.run(["ram", "store", &name, "--freeze", &frozen]).exits(0);
    drop(writer);
    drop(group);
}

#[test]
fn a_store_that_is_stopped_is_no_snapshot_and_a_watch_ends() {
    let (world, folder) = (World::with_repository(), shared());
    let region = folder.path().join("cache");
    fs::write(&region, Random::new(10).noise(256 << 20)).unwrap();
    let name = region.display().to_string();
    let interrupt = |words: &[&str], after: Duration| {
        let mut command = world.command(words);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(after);
        let process = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
        World::finish(child)
    };
    let snapshots = || world.run(["snapshots", "--json"]).exits(0).events("snapshot").len();
    let stopped = interrupt(&["ram", "store", &name], Duration::from_millis(300));
    stopped.exits(130);
    assert_eq!(snapshots(), 0);
    world.run(["ram", "store", &name]).exits(0);
    interrupt(&["ram", "watch", &name, "--every", "1"], Duration::from_secs(5)).exits(0);
    assert!(snapshots() > 1);
}

#[test]
fn regions_are_watched() {
    let (world, folder) = (World::with_repository(), shared());
    let region = folder.path().join("cache");
    fs::write(&region, Random::new(7).noise(1 << 20)).unwrap();
    let name = region.display().to_string();
    let run = world.run(["ram", "watch", &name, "--every", "0", "--count", "3"]).exits(0);
    assert_eq!(run.out.matches("guarantee: settled").count(), 3, "{}", run.out);
    assert_eq!(world.run(["snapshots", "--json"]).exits(0).events("snapshot").len(), 3);
    world.run(["ram", "watch", &name, "--count", "0"]).exits(2);
}

#[test]
fn a_watch_says_at_its_end_that_a_store_failed() {
    let (world, folder) = (World::with_repository(), shared());
    let region = folder.path().join("cache");
    fs::write(&region, Random::new(7).noise(1 << 20)).unwrap();
    let name = region.display().to_string();
    let mut command = world.command(["ram", "watch", &name, "--every", "1", "--count", "2"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("guarantee:") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "no first snapshot");
    }
    fs::remove_file(&region).unwrap();
    let mut warned = BufReader::new(child.stderr.take().unwrap());
    while !line.contains("cannot read the region") {
        line.clear();
        assert!(warned.read_line(&mut line).unwrap() > 0, "no failure is reported");
    }
    fs::write(&region, Random::new(8).noise(1 << 20)).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

/// A memcached that keeps its items in a file.
struct Memcached {
    process: Child,
    socket: PathBuf,
}

impl Memcached {
    fn start(items: &Path, socket: PathBuf) -> Self {
        let _ = fs::remove_file(&socket);
        let process = Command::new("memcached")
            .args(["-u", "root", "-m", "64", "-s"])
            .arg(&socket)
            .arg("-e")
            .arg(items)
            .spawn()
            .unwrap();
        let started = Self { process, socket };
        while UnixStream::connect(&started.socket).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
        started
    }

    /// Sets items, and waits until the last is set.
    fn set(&self, items: impl Iterator<Item = (u32, Vec<u8>)>) {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let mut words = Vec::new();
        for (key, value) in items {
            words.extend(format!("set key{key} 0 0 {} noreply\r\n", value.len()).into_bytes());
            words.extend(value);
            words.extend(b"\r\n");
        }
        words.extend(b"version\r\n");
        stream.write_all(&words).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.starts_with("VERSION"), "{line}");
    }

    fn get(&self, key: u32) -> Option<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.write_all(format!("get key{key}\r\n").as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let bytes = line.trim().strip_prefix("VALUE ")?.rsplit(' ').next()?.parse().unwrap();
        let mut value = vec![0; bytes];
        stream.read_exact(&mut value).unwrap();
        Some(value)
    }

    /// Stops it in the way in which it keeps its items.
    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
        self.process.wait().unwrap();
        // It takes its items over only in a later second than that in which it ended.
        std::thread::sleep(Duration::from_millis(1100));
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The recipe of the book: it is stored while it is stopped, is lost, and comes back with all items.
#[test]
fn memcached_comes_back_with_its_items() {
    let missing = (!has_program("memcached")).then_some("memcached is not installed");
    if skipped("memcached", missing) {
        return;
    }
    let (world, folder) = (World::with_repository(), shared());
    let (items, meta) = (folder.path().join("items"), folder.path().join("items.meta"));
    let socket = || world.path("socket");
    let value = |key: u32, round: u64| Random::new(u64::from(key) << 8 | round).content(300);
    let first = Memcached::start(&items, socket());
    first.set((0..2000).map(|key| (key, value(key, 0))));
    let regions = [&items, &meta].map(|path| path.display().to_string());
    let store =
        || world.run([&["ram", "store", "--json"][..], &[&regions[0], &regions[1]]].concat());
    first.stop();
    store().exits(0);
    let second = Memcached::start(&items, socket());
    second.set((0..2000).step_by(100).map(|key| (key, value(key, 1))));
    second.stop();
    let summary = store().exits(0).summary();
    // One item of a hundred: little of what there is.
    let (stored, bytes) = (&summary["bytes_stored"], &summary["bytes"]);
    assert!(stored.as_u64().unwrap() < bytes.as_u64().unwrap() / 50, "{summary}");
    fs::remove_file(&items).unwrap();
    fs::remove_file(&meta).unwrap();
    for (snapshot, round) in [("latest", 1), ("latest~1", 0)] {
        world.run(["ram", "load", snapshot, "--overwrite"]).exits(0);
        let again = Memcached::start(&items, socket());
        for key in 0..2000_u32 {
            let round = if key.is_multiple_of(100) { round } else { 0 };
            assert!(again.get(key) == Some(value(key, round)), "{snapshot}: item {key}");
        }
        again.stop();
        // What it wrote when it ended is of another run.
        fs::remove_file(&meta).unwrap();
    }
}
