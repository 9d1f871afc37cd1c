//! Btrfs that the kernel wrote: our view is the kernel's, and what we call free nothing needs.

use std::path::Path;

use strongroom_disk::{DiskError, Kind, State, Unclean, open};
use strongroom_testkit::skipped;

use crate::dirty::cut_power;
use crate::mounted::populate;
use crate::world::{
    Image, Mount, Seen, Tree, assert_same, assert_sound_btrfs, cannot_mount, folder, kernels_tree,
    lacks, make_btrfs, our_tree, overwrite_free, run,
};

/// Options of `mkfs.btrfs`, and of the mount that fills the volume.
const SETS: [(&[&str], &str); 6] = [
    (&[], "compress=zstd"),
    (&["--mixed", "-n", "4096"], "compress-force=lzo"),
    (&["-n", "65536", "--csum", "xxhash"], "compress-force=zlib"),
    (
        &["-O", "^no-holes,^skinny-metadata", "-R", "^free-space-tree", "--csum", "sha256"],
        "noatime",
    ),
    (&["-d", "dup", "-m", "dup", "--csum", "blake2"], "compress-force=zstd:15,max_inline=0"),
    (&["-m", "single", "-n", "4096", "-R", "quota"], "nodatacow"),
];

fn cannot() -> Option<&'static str> {
    cannot_mount().or(lacks(&["mkfs.btrfs", "btrfs"]))
}

/// What only Btrfs has in its own way: subvolumes, snapshots, shared and compressed extents.
fn populate_more(at: &Path) {
    let script = "
btrfs -q subvolume create sub && btrfs -q subvolume create sub/inner
echo inside >sub/file; echo deeper >sub/inner/file; cp -a deep sub/
for n in 1 2 3 4; do yes \"line $n of a text that repeats itself\" | head -c ${n}00001 >text-$n; done
seq 1 60000 >numbers; seq 1 700 >small-text; head -c 3000 /dev/zero >small-zeros
head -c 1000000 /dev/zero >zeros; head -c 300000 /dev/urandom | base64 -w0 >base64
sync -f .
btrfs -q subvolume snapshot sub snapshot; btrfs -q subvolume snapshot -r sub read-only
echo changed >>snapshot/file; echo more >sub/more; rm sub/deep/inherits
cp --reflink=always text-3 shared; cp --reflink=always comb shared-comb
dd if=/dev/urandom of=shared bs=1 seek=150000 count=5000 conv=notrunc status=none
dd if=/dev/urandom of=numbers bs=1000 seek=111 count=60 conv=notrunc status=none
btrfs -q subvolume create gone; echo x >gone/x; btrfs -q subvolume delete gone
truncate -s 200000 text-4; truncate -s 123456 zeros; mv sub/inner sub/renamed
";
    run("bash", &["-ec", &format!("cd '{}'\n{script}", at.display())]);
}

#[test]
fn a_volume_that_the_kernel_wrote_is_seen_as_the_kernel_sees_it() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    for (salt, (options, mount)) in SETS.into_iter().enumerate() {
        let what = format!("{options:?} {mount}");
        make_btrfs(&path, "256M", options);
        let mounted = Mount::new(&path, mount);
        populate(mounted.path(), 4096, salt as u32);
        populate_more(mounted.path());
        drop(mounted);
        check_clean(&path, &what);
    }
}

fn comparable(mut tree: Tree) -> Tree {
    tree.values_mut().for_each(Seen::forget_tree);
    // The place of a subvolume in a snapshot of the one around it: the kernel makes it up.
    for name in ["snapshot/inner", "read-only/inner"] {
        assert!(tree.remove(name.as_bytes()).is_some(), "{name}");
    }
    tree
}

fn check_clean(path: &Path, what: &str) {
    let image = Image::open(path);
    let files = open(&image).unwrap().unwrap();
    assert_eq!(files.facts().state, State::Clean, "{what}");
    assert_eq!((files.facts().kind, &files.facts().label[..]), (Kind::Btrfs, &b"label"[..]));
    let ours = comparable(our_tree(&*files, &image));
    assert!(ours.len() > 500);
    let free = files.free().unwrap_or_else(|error| panic!("{what}: {error}"));
    let mounted = Mount::new(path, "ro");
    assert_same(&ours, &comparable(kernels_tree(mounted.path())), what);
    let used = used_of(mounted.path());
    drop(mounted);
    // The start of the device, and the second copy of the superblock.
    let other = (1 << 20) + (64 << 10);
    assert_eq!(free.bytes() + used + other, files.facts().bytes, "{what}");

    overwrite_free(path, &free);
    assert_sound_btrfs(path, what);
    let mounted = Mount::new(path, "ro");
    assert_same(&ours, &comparable(kernels_tree(mounted.path())), what);
}

/// Bytes of the device that are in use, as the kernel counts them.
fn used_of(at: &Path) -> u64 {
    let said = run("btrfs", &["filesystem", "df", "-b", at.to_str().unwrap()]);
    let of_line = |line: &str| {
        let used: u64 = line.rsplit_once("used=").unwrap().1.parse().unwrap();
        if line.contains("DUP") { used * 2 } else { used }
    };
    said.lines().filter(|line| !line.starts_with("GlobalReserve")).map(of_line).sum()
}

#[test]
fn a_stopped_volume_is_seen_as_of_the_last_transaction_and_not_trusted_if_it_has_a_log() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let (path, copy) = (folder.path().join("image"), folder.path().join("copy"));
    make_btrfs(&path, "256M", &[]);
    let mounted = Mount::new(&path, "compress=zstd");
    populate(mounted.path(), 4096, 1);
    run("sync", &["-f", mounted.path().to_str().unwrap()]);
    run("cp", &["--sparse=always", path.to_str().unwrap(), copy.to_str().unwrap()]);
    let image = Image::open(&copy);
    let files = open(&image).unwrap().unwrap();
    assert_eq!(files.facts().state, State::Clean);
    let (ours, free) = (our_tree(&*files, &image), files.free().unwrap());
    overwrite_free(&copy, &free);
    run("sync", &["-f", mounted.path().to_str().unwrap()]);
    assert_same(&ours, &kernels_tree(mounted.path()), "at the last transaction");
    assert_sound_btrfs(&copy, "a copy of a volume in use");

    std::fs::write(mounted.path().join("new"), "synchronized").unwrap();
    cut_power(&path, &copy, mounted.path());
    drop(mounted);
    let reopened = Image::open(&copy);
    let files = open(&reopened).unwrap().unwrap();
    assert_eq!(files.facts().state, State::Dirty(Unclean::LogTree));
    assert!(files.free().is_err());
    assert!(our_tree(&*files, &reopened).len() > 500);
}

#[test]
fn several_devices_are_refused_by_name() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let (path, other) = (folder.path().join("image"), folder.path().join("other"));
    run("truncate", &["-s", "200M", other.to_str().unwrap()]);
    make_btrfs(&path, "200M", &["-m", "raid1", "-d", "raid0", other.to_str().unwrap()]);
    for path in [path, other] {
        let image = Image::open(&path);
        let Err(DiskError::Unsupported { what }) = open(&image) else { panic!() };
        assert!(what.contains("several devices"), "{what}");
    }
}
