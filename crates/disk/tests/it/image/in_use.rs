//! Images that QEMU's tools have open for writing.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use strongroom_base::Stopwatch;
use strongroom_disk::{AtRest, ReadAt, is_in_use};
use strongroom_testkit::skipped;

use super::*;
use crate::world::{Mount, cannot_mount, lacks, make_btrfs, make_ext};

/// A `qemu-io` that has an image open until it is dropped.
struct Writer {
    child: Child,
    input: Option<ChildStdin>,
}

impl Writer {
    fn open(path: &Path) -> Self {
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw"]).arg(path).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        Self { child, input }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.input.take().unwrap().write_all(b"quit\n");
        let _ = self.child.wait();
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    let waited = Stopwatch::start();
    while !is_so() {
        assert!(waited.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_image_that_qemu_opens_while_it_is_read_is_lost() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let images = Images::new();
    let path = images.path("a.raw");
    std::fs::write(&path, Random::new(1).noise(1 << 20)).unwrap();
    let OpenedImage { image, .. } = open_image(&path, ImageOptions::default()).unwrap();
    let image = AtRest::new(image, &path);
    assert!(!is_in_use(&path) && image.broken().is_none());
    let writer = Writer::open(&path);
    wait_until(|| is_in_use(&path));
    assert!(image.broken().is_some_and(|why| why.contains("QEMU")));
    drop(writer);
    assert!(!is_in_use(&path) && image.broken().is_none());
}

/// The `/dev` of a machine of libvirt is its own.
#[test]
fn a_device_is_in_use_by_whichever_node() {
    if skipped(lacks(&TOOLS).or(cannot_mount())) {
        return;
    }
    let images = Images::new();
    let path = images.path("a.raw");
    std::fs::write(&path, Random::new(2).noise(1 << 20)).unwrap();
    let device = PathBuf::from(run("losetup", &["--find", "--show", &images.name("a.raw")]).trim());
    let (other, number) = (images.path("node"), device.to_str().unwrap().replace("/dev/loop", ""));
    run("mknod", &[&images.name("node"), "b", "7", &number]);
    let writer = Writer::open(&other);
    let waited = Stopwatch::start();
    while !is_in_use(&device) && waited.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let found = is_in_use(&device);
    drop(writer);
    let is_used_later = is_in_use(&device);
    run("losetup", &["--detach", device.to_str().unwrap()]);
    assert!(found && !is_used_later);
}

/// Fresh volumes give their files the same numbers.
#[test]
fn a_file_of_the_same_number_is_not_in_use() {
    let cannot = lacks(&TOOLS).or(cannot_mount()).or(lacks(&["mkfs.btrfs", "btrfs"]));
    if skipped(cannot) {
        return;
    }
    let images = Images::new();
    for name in ["one", "other"] {
        make_ext(&images.path(name), "8M", &[]);
    }
    make_btrfs(&images.path("volumes"), "200M", &[]);
    let mounts = ["one", "other", "volumes"].map(|name| Mount::new(&images.path(name), "rw"));
    let volumes = mounts[2].path().to_str().unwrap();
    let [one, other] = ["one", "other"].map(|name| {
        let volume = format!("{volumes}/{name}");
        run("btrfs", &["-q", "subvolume", "create", &volume]);
        PathBuf::from(volume)
    });
    for [path, other] in [[mounts[0].path(), mounts[1].path()], [&one, &other]] {
        let [path, other] = [path.join("a.raw"), other.join("a.raw")];
        let inodes = [&path, &other].map(|path| {
            std::fs::write(path, Random::new(1).noise(1 << 20)).unwrap();
            std::fs::metadata(path).unwrap().ino()
        });
        assert_eq!(inodes[0], inodes[1]);
        let writer = Writer::open(&path);
        wait_until(|| is_in_use(&path));
        assert!(!is_in_use(&other), "{}", other.display());
        drop(writer);
        assert!(!is_in_use(&path));
    }
}

#[test]
fn a_device_that_gives_nothing_any_more_is_lost() {
    if skipped(cannot_mount()) {
        return;
    }
    let images = Images::new();
    std::fs::write(images.path("a.raw"), Random::new(2).noise(1 << 20)).unwrap();
    let device = PathBuf::from(run("losetup", &["--find", "--show", &images.name("a.raw")]).trim());
    let OpenedImage { image, .. } = open_image(&device, ImageOptions::default()).unwrap();
    let image = AtRest::new(image, &device);
    image.read_at(0, &mut [0; 8192]).unwrap();
    let before = image.broken();
    let file = std::fs::File::options().write(true).open(images.path("a.raw")).unwrap();
    // Some of it can still be read.
    file.set_len(100 << 10).unwrap();
    let part = image.broken();
    file.set_len(0).unwrap();
    // The kernel has it in memory.
    let cached = image.read_at(0, &mut [0; 8192]);
    let after = image.broken();
    run("losetup", &["--detach", device.to_str().unwrap()]);
    assert_eq!((before, part, cached.is_ok()), (None, None, true));
    assert!(after.is_some_and(|why| why.contains("none of it can be read")));
}
