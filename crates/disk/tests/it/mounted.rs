//! Volumes that the kernel wrote and unmounted, in many sets of features: our view is the kernel's,
//! and what we call free nothing needs.

use std::path::Path;

use strongroom_disk::{Kind, State, open};
use strongroom_testkit::skipped;

use crate::world::{
    Image, Mount, assert_same, assert_sound, cannot_mount, folder, kernels_tree, make_ext,
    our_tree, overwrite_free, run,
};

/// Options of `mke2fs`, and of the mount that fills the volume.
const SETS: [(&[&str], &str); 22] = [
    (&["-t", "ext2", "-b", "1024"], "acl"),
    (&["-t", "ext2", "-b", "4096"], "acl"),
    (&["-t", "ext3", "-b", "1024", "-I", "128"], "acl"),
    (&["-t", "ext3", "-b", "4096", "-I", "256"], "acl"),
    (&["-t", "ext4", "-b", "1024"], "acl"),
    (&["-t", "ext4", "-b", "2048"], "acl"),
    (&["-t", "ext4", "-b", "4096"], "acl"),
    (&["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,uninit_bg"], "acl"),
    (&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^64bit"], "acl"),
    (&["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "meta_bg,^resize_inode"], "acl"),
    (&["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"], "acl"),
    (&["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"], "acl"),
    (&["-t", "ext4", "-b", "4096", "-O", "inline_data", "-I", "256"], "acl"),
    (&["-t", "ext4", "-b", "1024", "-O", "inline_data", "-I", "512"], "acl"),
    (&["-t", "ext4", "-b", "4096", "-O", "ea_inode"], "acl"),
    (&["-t", "ext4", "-b", "1024", "-O", "^extent,^64bit"], "acl"),
    (&["-t", "ext4", "-b", "4096", "-I", "128"], "acl"),
    (&["-t", "ext4", "-b", "1024", "-O", "^flex_bg,sparse_super2,metadata_csum_seed"], "acl"),
    (&["-t", "ext4", "-b", "4096", "-O", "large_dir,mmp,verity,encrypt,stable_inodes"], "acl"),
    (&["-t", "ext4", "-b", "4096", "-O", "fast_commit,orphan_file"], "acl"),
    (&["-t", "ext4", "-b", "4096", "-O", "^has_journal"], "acl"),
    (&["-t", "ext4", "-b", "1024"], "acl,data=journal,journal_checksum"),
];

pub fn populate(at: &Path, block_bytes: u64, salt: u32) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/populate.py");
    let command =
        format!("cd '{}' && python3 '{}' {block_bytes} {salt}", at.display(), script.display());
    run("bash", &["-c", &command]);
}

#[test]
fn a_volume_that_the_kernel_wrote_is_seen_as_the_kernel_sees_it() {
    if skipped(cannot_mount()) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    for (salt, (options, mount)) in SETS.into_iter().enumerate() {
        let what = format!("{options:?} {mount}");
        let bytes = if options.contains(&"1024") { "40M" } else { "100M" };
        make_ext(&path, bytes, options);
        let block_bytes = options.iter().filter_map(|o| o.parse().ok()).next().unwrap();
        let mounted = Mount::new(&path, mount);
        populate(mounted.path(), block_bytes, salt as u32);
        drop(mounted);
        check(&path, &what);
        let files = Image::open(&path);
        let kind = open(&files).unwrap().unwrap().facts().kind;
        let expected = match options[1] {
            "ext2" => Kind::Ext2,
            "ext3" => Kind::Ext3,
            _ => Kind::Ext4,
        };
        // Inodes of 256 bytes came with ext4, and have a feature of their own.
        assert!(kind == expected || options.contains(&"256"), "{kind:?} {what}");
    }
}

fn check(path: &Path, what: &str) {
    let image = Image::open(path);
    let files = open(&image).unwrap().unwrap();
    assert_eq!(files.facts().state, State::Clean, "{what}");
    assert_eq!(files.facts().label, b"label");
    let ours = our_tree(&*files, &image);
    assert!(ours.len() > 500);
    let free = files.free().unwrap_or_else(|error| panic!("{what}: {error}"));
    let mounted = Mount::new(path, "ro");
    let kernels = kernels_tree(mounted.path());
    let stat = rustix::fs::statvfs(mounted.path()).unwrap();
    drop(mounted);
    assert_same(&ours, &kernels, what);
    let kernels_free = stat.f_bfree * stat.f_frsize;
    assert_eq!(free.bytes(), kernels_free, "{what}");

    overwrite_free(path, &free);
    assert_sound(path, what);
    let mounted = Mount::new(path, "ro");
    assert_same(&ours, &kernels_tree(mounted.path()), what);
}
