//! Disks of machines that do not run: shown, stored, browsed, put back.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_testkit::Random;

use crate::world::{World, is_root, skipped};

/// Where the partition begins.
const PARTITION: u64 = 1 << 20;
/// How large its file system is.
const FILES_KIB: u64 = 24 << 10;

#[track_caller]
fn tool(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}\n{output:?}");
}

/// Makes a disk with a partition that holds files, and one for swap.
pub fn disk_with_files(world: &World) -> PathBuf {
    disk_with(world, |_| {})
}

/// The same, with what `fill` puts into the root of its files.
fn disk_with(world: &World, fill: impl FnOnce(&Path)) -> PathBuf {
    let (tree, disk) = (world.path("guest"), world.path("disk.raw"));
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(tree.join("etc/fstab"), "/dev/vda1 / ext4 defaults 0 1\n").unwrap();
    fs::write(tree.join("noise"), Random::new(14).noise(3 << 20)).unwrap();
    fill(&tree);
    let image = world.path("files.img");
    let (tree, image) = (tree.display().to_string(), image.display().to_string());
    let size = format!("{FILES_KIB}k");
    tool("mke2fs", &["-q", "-t", "ext4", "-L", "root", "-d", &tree, &image, &size]);
    let mut bytes = vec![0; 1 << 20];
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
    let sectors = u32::try_from(FILES_KIB * 2).unwrap();
    bytes[446 + 12..446 + 16].copy_from_slice(&sectors.to_le_bytes());
    bytes[462 + 4] = 0x82;
    bytes[462 + 8..462 + 12].copy_from_slice(&(2048 + sectors).to_le_bytes());
    bytes[462 + 12..462 + 16].copy_from_slice(&8192_u32.to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes.extend(fs::read(&image).unwrap());
    // What was swapped out is noise.
    let swap = bytes.len();
    bytes.extend(Random::new(15).noise(4 << 20));
    bytes[swap..swap + 4096].fill(0);
    bytes[swap + 1024..swap + 1032].copy_from_slice(&[1, 0, 0, 0, 0xff, 3, 0, 0]);
    bytes[swap + 4086..swap + 4096].copy_from_slice(b"SWAPSPACE2");
    fs::write(&disk, bytes).unwrap();
    fs::remove_file(image).unwrap();
    disk
}

/// Puts noise where the file system has nothing.
fn dirty_the_free_space(disk: &Path) {
    let file = File::options().write(true).open(disk).unwrap();
    let at = PARTITION + FILES_KIB * 1024 - (1 << 20);
    file.write_all_at(&Random::new(16).noise(64 << 10), at).unwrap();
}

#[test]
fn a_machine_is_shown_stored_browsed_and_put_back() {
    let world = World::with_repository();
    let path = disk_with_files(&world);
    dirty_the_free_space(&path);
    let disk = path.display().to_string();
    let shown = world.run(["image", "show", &format!("vda={disk}")]).exits(0);
    shown.says("vda/p1  24.0 MiB  ext4        root").says("vda/p2   4.0 MiB  swap");

    let xml = world.path("vm1.xml");
    fs::write(&xml, "<domain/>").unwrap();
    let xml = xml.display().to_string();
    let backup = |more: &[&str]| {
        let vda = format!("vda={disk}");
        world.run([&["image", "backup", "vm1", &vda][..], more].concat()).exits(0)
    };
    backup(&["--with", &xml]).says("snapshot").says("of /vm1");
    let cat = |what: &str| world.run(["cat", what]).exits(0).out;
    assert_eq!(cat("latest:/vm1/vda/p1/etc/fstab"), "/dev/vda1 / ext4 defaults 0 1\n");
    assert_eq!(cat("latest:/vm1/machine/vm1.xml"), "<domain/>");
    world.run(["find", "fstab", "--host", "vm1"]).exits(0).says("/vm1/vda/p1/etc/fstab");
    world.run(["verify", "--data"]).exits(0);

    // What is free became zeros, and nothing else changed.
    let out = world.path("out.raw");
    let target = out.display().to_string();
    world.run(["image", "restore", "latest", &target]).exits(0).says("/vm1/vda.raw");
    assert_ne!(fs::read(&out).unwrap(), fs::read(&path).unwrap());
    let checked = format!("{target}?offset={PARTITION}");
    tool("e2fsck", &["-fn", &checked]);
    let restore = ["image", "restore", "latest:/vm1/vda.raw", &target, "--overwrite"];
    world.run(restore).exits(0).says("of which 0 B written");

    // All of it, on request; the target needs what is new.
    backup(&["--keep-free", "--keep-swap"]);
    world.run(restore).exits(0);
    assert_eq!(fs::read(&out).unwrap(), fs::read(&path).unwrap());
    world
        .run(["diff", "latest~1:/vm1/vda/p1", "latest:/vm1/vda/p1"])
        .exits(0)
        .says("no differences");
}

#[test]
fn images_in_qcow2_are_read_and_made() {
    let world = World::with_repository();
    let raw = disk_with_files(&world).display().to_string();
    let [qcow2, out] =
        ["disk.qcow2", "out.qcow2"].map(|name| world.path(name).display().to_string());
    tool("qemu-img", &["convert", "-c", "-O", "qcow2", &raw, &qcow2]);
    world.run(["image", "show", &qcow2]).exits(0).says("disk (qcow2)").says("ext4");
    world.run(["image", "backup", "vm1", &qcow2, "--keep-free", "--keep-swap"]).exits(0);
    let run = world.run(["image", "backup", "vm1", &raw, "--keep-free", "--keep-swap"]);
    run.exits(0).says("0 B of new content");
    world.run(["image", "restore", "latest", &out, "--format", "qcow2"]).exits(0);
    tool("qemu-img", &["check", "-q", &out]);
    tool("qemu-img", &["compare", "-q", &out, &raw]);
    let again = ["image", "restore", "latest", &out, "--format", "qcow2", "--overwrite"];
    world.run(again).exits(1).warns("new file");
    let before = fs::read(&qcow2).unwrap();
    let over = world.run(["image", "restore", "latest", &qcow2, "--overwrite"]);
    over.exits(1).warns("an image in qcow2").warns("new file");
    assert!(fs::read(&qcow2).unwrap() == before, "it is as it was");
    // As it is, if that is what is said.
    world.run(["image", "show", &qcow2, "--format", "raw"]).exits(0).says("disk (raw)");
    world.run(["image", "show", &raw, "--format", "qcow2"]).exits(1).warns("real format");
    world.run(["image", "show", &raw, "--format", "qcow3"]).exits(2).warns("name raw, qcow2");
    // Beside a raw disk one whose image needs another file.
    let overlay = world.path("overlay.qcow2").display().to_string();
    tool("qemu-img", &["create", "-q", "-f", "qcow2", "-b", &raw, "-F", "raw", &overlay]);
    let disks = [format!("vda={raw}"), format!("vdb={overlay}")];
    let show = |more: &[&str]| {
        let words = ["image", "show", &disks[0], &disks[1]];
        world.run([&words[..], more].concat())
    };
    show(&[]).exits(1).warns("--format qcow2");
    show(&["--format", "vdb=qcow2"]).exits(0).says("disk (raw)").says("disk (qcow2)");
    show(&["--format", "qcow2", "--format", "vda=raw"]).exits(0).says("disk (qcow2)");
    show(&["--format", "vdc=qcow2"]).exits(2).warns("names the disk vdc");
}

#[test]
fn what_can_be_typed_wrong_is_named() {
    let world = World::with_repository();
    let disk = disk_with_files(&world).display().to_string();
    let fails = |args: &[&str], why: &str| {
        world.run([&["image"][..], args].concat()).exits(1).warns(why);
    };
    fails(&["backup", "vm1", "/nowhere"], "/nowhere");
    fails(&["backup", "vm1", "/dev/null"], "neither a file nor a block device");
    fails(&["backup", "a/b", &disk], "\"a/b\" cannot name a machine");
    fails(&["backup", "vm1", &format!("machine={disk}")], "cannot name a disk");
    fails(&["backup", "vm1", &disk, "--with", "/nowhere"], "with the machine");
    fails(&["backup", "vm1", &disk, "--dry-run", "--parent", "nothing"], "nothing");
    fails(&["show", "/nowhere"], "/nowhere");
    // Two disks: one has to be named.
    world.run(["image", "backup", "vm2", &disk, &disk]).exits(0);
    let out = world.path("out.raw").display().to_string();
    fails(&["restore", "latest", &out], "/vm2/disk0.raw, /vm2/disk1.raw");
    fails(&["restore", "latest:/vm2/disk0/p1/etc", &out], "has no disk");
    fails(&["restore", "latest:/vm3", &out], "/vm3");
    fails(&["restore", "latest:/vm2/disk0.raw", &disk], "--overwrite");
    fails(&["restore", "latest:/vm2/disk0.raw", "/dev/null"], "neither a file nor a block device");
    fails(&["restore", "latest:/vm2/disk0.raw", "/nowhere/out.raw"], "/nowhere/out.raw");
    assert!(!Path::new(&out).exists());
}

#[test]
fn a_disk_that_does_not_fit_leaves_no_half() {
    if skipped("a small file system", (!is_root()).then_some("only root may mount")) {
        return;
    }
    let world = World::with_repository();
    let disk = disk_with_files(&world).display().to_string();
    world.run(["image", "backup", "vm1", &disk]).exits(0);
    let small = world.path("small");
    fs::create_dir(&small).unwrap();
    let small = small.display().to_string();
    tool("mount", &["-t", "tmpfs", "-o", "size=1m", "none", &small]);
    let target = format!("{small}/out.raw");
    let run = world.run(["image", "restore", "latest", &target]);
    let left = Path::new(&target).exists();
    fs::write(&target, "x").unwrap();
    let again = world.run(["image", "restore", "latest", &target, "--overwrite"]);
    tool("umount", &[&small]);
    run.exits(1).warns("No space left");
    assert!(!left);
    again.exits(1).warns("partly restored");
}

/// A file that the machine swaps to keeps its header; a copy that it does not swap to keeps all.
#[test]
fn what_was_swapped_to_a_file_is_left_out() {
    let world = World::with_repository();
    let mut area = Random::new(17).noise(2 << 20);
    let fill = |tree: &Path| {
        let file = tree.join("swap file");
        fs::write(&file, &area).unwrap();
        tool("mkswap", &["-U", "0123abcd-0000-4000-8000-000000000001", file.to_str().unwrap()]);
        area = fs::read(&file).unwrap();
        fs::write(tree.join("copy"), &area).unwrap();
        let table = "/dev/vda1 / ext4 defaults 0 1\n/swap\\040file none swap sw 0 0\n";
        fs::write(tree.join("etc/fstab"), table).unwrap();
    };
    let disk = disk_with(&world, fill);
    let out = world.path("out.raw");
    let backup = |more: &[&str]| {
        let vda = format!("vda={}", disk.display());
        world.run([&["image", "backup", "vm1", &vda][..], more].concat()).exits(0);
        world.run(["image", "restore", "latest:/vm1/vda.raw", out.to_str().unwrap()]).exits(0);
        let of = |name: &str| world.run(["cat", &format!("latest:/vm1/vda/p1/{name}")]).exits(0);
        (of("swap file").bytes, of("copy").bytes, fs::read(&out).unwrap())
    };
    let (swapped, copy, image) = backup(&[]);
    assert!(copy == area && swapped.len() == area.len());
    assert!(swapped[..4096] == area[..4096] && swapped[4096..].iter().all(|byte| *byte == 0));
    // The disk has the copy alone.
    let page = &area[1 << 20..(1 << 20) + 4096];
    let count = |image: &[u8]| image.chunks_exact(4096).filter(|part| *part == page).count();
    assert_eq!(count(&image), 1);
    fs::remove_file(&out).unwrap();
    let (swapped, _, image) = backup(&["--keep-swap"]);
    assert!(swapped == area && count(&image) == 2);
}
