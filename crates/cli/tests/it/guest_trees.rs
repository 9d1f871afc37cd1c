//! The files of a guest's volume: a mounted snapshot shows what another reader shows of the restored
//! disk, for each file system by the kernel or by the tools made for it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};
use strongroom_testkit::Random;

use crate::mount::{cannot_mount, mounted_by};
use crate::world::{World, is_root, skipped};

/// What every file system can hold.
const PLAIN: &str = r#"
mkdir -p etc 'a folder/of a folder' many
for number in $(seq 150); do head -c $((number * 97)) noise >many/$number; done
for number in $(seq 3 5 150); do rm many/$number; done
cp noise 'a folder/of a folder/naïve name.bin'
printf 'one line\n' >etc/fstab
: >empty
touch -d '2001-02-03 04:05:06' etc/fstab
"#;
/// What a file system of a Unix can hold besides.
const UNIX: &str = r"
truncate -s 5M sparse
printf end >>sparse
ln noise linked
ln -s etc/fstab link
ln -s $(head -c 300 /dev/zero | tr '\0' x) long
mkfifo fifo
mknod device c 1 3
setfattr -n user.note -v 'a note' etc/fstab
setfattr -n user.long -v $(head -c 900 /dev/zero | tr '\0' y) noise
setfacl -m u:1234:rw,g:77:r etc/fstab
setfacl -d -m u:1234:rwx etc
chown 1000:1001 many/1
chmod 4751 many/2
";

#[track_caller]
fn tool(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).env("LC_ALL", "C.UTF-8").args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}\n{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A file system that is mounted until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, at: PathBuf, options: &[&str]) -> Self {
        fs::create_dir(&at).unwrap();
        let places = [image.to_str().unwrap(), at.to_str().unwrap()];
        tool("mount", &[options, &places].concat());
        Self(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        tool("umount", &[self.0.to_str().unwrap()]);
    }
}

/// Our mount, until it is dropped.
struct Nights(Child);

impl Drop for Nights {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.0), Signal::INT).unwrap();
        self.0.wait().unwrap();
    }
}

/// A file system: how it is made, mounted to be written, and read again by another.
struct Kind {
    name: &'static str,
    bytes: u64,
    make: &'static [&'static str],
    /// How to mount it to be written, and to be read; mtools do both if there is nothing.
    mount: Option<[&'static [&'static str]; 2]>,
    holds: &'static [&'static str],
    /// How rsync compares.
    compare: &'static str,
}

const BY_KERNEL: Option<[&[&str]; 2]> = Some([&["-o", "loop"], &["-o", "loop,ro"]]);
const BY_NTFS_3G: Option<[&[&str]; 2]> =
    Some([&["-t", "ntfs-3g", "-o", "loop"], &["-t", "ntfs-3g", "-o", "loop,ro"]]);
const KINDS: [Kind; 5] = [
    Kind {
        name: "ext4",
        bytes: 32 << 20,
        make: &["mke2fs", "-q", "-t", "ext4"],
        mount: BY_KERNEL,
        holds: &[PLAIN, UNIX],
        compare: "-naXAHc",
    },
    Kind {
        name: "xfs",
        bytes: 300 << 20,
        make: &["mkfs.xfs", "-q"],
        mount: BY_KERNEL,
        holds: &[PLAIN, UNIX],
        compare: "-naXAHc",
    },
    Kind {
        name: "btrfs",
        bytes: 120 << 20,
        make: &["mkfs.btrfs", "-q"],
        mount: BY_KERNEL,
        holds: &[PLAIN, UNIX],
        compare: "-naXAHc",
    },
    Kind {
        name: "ntfs",
        bytes: 32 << 20,
        make: &["mkfs.ntfs", "-q", "-F"],
        mount: BY_NTFS_3G,
        holds: &[PLAIN],
        compare: "-nrltc",
    },
    Kind {
        name: "fat",
        bytes: 32 << 20,
        make: &["mkfs.vfat"],
        mount: None,
        holds: &[PLAIN],
        compare: "-nrc",
    },
];

impl Kind {
    /// Makes one with files.
    fn make(&self, world: &World) -> PathBuf {
        let image = world.path(self.name);
        File::create(&image).unwrap().set_len(self.bytes).unwrap();
        tool(self.make[0], &[&self.make[1..], &[image.to_str().unwrap()]].concat());
        let at = world.path("written");
        let mounted = self.mount.map(|[write, _]| Mounted::new(&image, at.clone(), write));
        fs::create_dir_all(&at).unwrap();
        fs::write(at.join("noise"), Random::new(self.bytes).noise(300_000)).unwrap();
        let copy = format!("mcopy -s -Q -i {} * ::", image.display());
        let copy = if mounted.is_none() { &*copy } else { "" };
        for script in self.holds.iter().chain(&[copy]) {
            tool("bash", &["-c", &format!("set -e; cd {}\n{script}", at.display())]);
        }
        drop(mounted);
        fs::remove_dir_all(at).unwrap();
        image
    }
}

/// The folder of the only volume of a disk.
fn volume_in(nights: &Path, disk: &str) -> PathBuf {
    let ids = fs::read_dir(nights.join("ids")).unwrap().next().unwrap().unwrap().path();
    let folder = ids.join("vm1").join(disk);
    let volumes: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(volumes.len(), 1, "{volumes:?}");
    volumes[0].clone()
}

#[test]
fn a_mounted_volume_is_what_other_readers_show_of_the_restored_disk() {
    let reason = cannot_mount().or((!is_root()).then_some("only root may mount"));
    if skipped("file systems of guests", reason) {
        return;
    }
    let world = World::with_repository();
    let images = KINDS.map(|kind| (kind.name, kind.make(&world)));
    let named = images.map(|(name, image)| format!("{name}={}", image.display()));
    let words: Vec<&str> =
        ["image", "backup", "vm1"].into_iter().chain(named.iter().map(String::as_str)).collect();
    world.run(words).exits(0);
    let nights = world.path("nights");
    let words = ["--json", "mount", nights.to_str().unwrap()];
    let _mounted = Nights(mounted_by(&mut world.command(words), &nights).0);
    for kind in KINDS {
        let restored = world.path(&format!("restored-{}", kind.name));
        let disk = format!("latest:/vm1/{}.raw", kind.name);
        world.run(["image", "restore", &disk, restored.to_str().unwrap()]).exits(0);
        let at = world.path(&format!("read-{}", kind.name));
        let other = match kind.mount {
            Some([_, read]) => Some(Mounted::new(&restored, at.clone(), read)),
            None => {
                fs::create_dir(&at).unwrap();
                let image = restored.to_str().unwrap();
                tool("mcopy", &["-s", "-Q", "-i", image, "::*", at.to_str().unwrap()]);
                None
            }
        };
        let ours = format!("{}/", volume_in(&nights, kind.name).display());
        let theirs = format!("{}/", at.display());
        assert!(fs::read_dir(&at).unwrap().count() >= 5, "{}: nothing is compared", kind.name);
        for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
            let found = tool("rsync", &[kind.compare, "--delete", "--itemize-changes", from, to]);
            assert_eq!(found, "", "{} of {from} and {to}", kind.name);
        }
        drop(other);
    }
}
