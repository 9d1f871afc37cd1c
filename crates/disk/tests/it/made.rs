//! Volumes that only `mke2fs` and `debugfs` wrote, for which nothing needs to be mounted: all sizes
//! of blocks, and what the kernel cannot be made to write here.

use std::ops::ControlFlow;
use std::path::Path;

use strongroom_disk::{DiskError, NodeKind, State, Unclean, open};
use strongroom_testkit::skipped;

use crate::world::{
    Image, assert_same, assert_sound, folder, kernels_tree, lacks, make_ext, our_tree,
    overwrite_free, run,
};

fn cannot() -> Option<&'static str> {
    let tools = lacks(&["mke2fs", "debugfs", "setfattr"]);
    tools.or((!rustix::process::geteuid().is_root()).then_some("owners are kept by root only"))
}

fn make_source(at: &Path) {
    std::fs::create_dir_all(at.join("folder/inner")).unwrap();
    for (name, bytes) in [("empty", 0), ("small", 50), ("block", 65536), ("large", 700_001)] {
        let content: Vec<u8> = (0..bytes).map(|n: u32| (n * 7 + n / 255) as u8).collect();
        std::fs::write(at.join("folder").join(name), content).unwrap();
    }
    (0..400).for_each(|n| std::fs::write(at.join(format!("folder/inner/name-{n}")), "x").unwrap());
    std::os::unix::fs::symlink("t".repeat(200), at.join("link")).unwrap();
    run("setfattr", &["-n", "user.note", "-v", "kept", at.join("folder/small").to_str().unwrap()]);
}

#[test]
fn volumes_of_all_block_sizes_have_the_tree_that_they_were_made_of() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let (source, path) = (folder.path().join("source"), folder.path().join("image"));
    make_source(&source);
    let sets: [&[&str]; 10] = [
        &["-b", "1024"],
        &["-b", "2048", "-O", "^extent,^64bit"],
        &["-b", "4096", "-O", "inline_data"],
        &["-b", "8192"],
        &["-b", "16384", "-O", "bigalloc"],
        &["-b", "65536"],
        // What the kernel of a test machine may lack.
        &["-b", "4096", "-O", "casefold,project,large_dir"],
        &["-b", "2048", "-O", "project,stable_inodes,verity,orphan_file"],
        &["-b", "65536", "-O", "^metadata_csum,^dir_index"],
        &["-b", "4096", "-E", "lazy_itable_init=1", "-I", "1024"],
    ];
    for options in sets {
        let from = ["-t", "ext4", "-d", source.to_str().unwrap()];
        make_ext(&path, "200M", &[&from, options].concat());
        let image = Image::open(&path);
        let files = open(&image).unwrap().unwrap();
        let mut ours = our_tree(&*files, &image);
        ours.retain(|name, _| !name.starts_with(b"lost+found"));
        assert_same_but_inodes(&mut ours, &source, &format!("{options:?}"));
        let free = files.free().unwrap();
        let stats = run("dumpe2fs", &["-h", path.to_str().unwrap()]);
        let blocks = stats.lines().find_map(|line| line.strip_prefix("Free blocks:")).unwrap();
        let blocks: u64 = blocks.trim().parse().unwrap();
        assert_eq!(free.bytes(), blocks * files.facts().block_bytes, "{options:?}");
        overwrite_free(&path, &free);
        assert_sound(&path, &format!("{options:?}"));
    }
}

/// `mke2fs` gives out inodes and change times as it likes.
fn assert_same_but_inodes(ours: &mut crate::world::Tree, source: &Path, what: &str) {
    let mut kernels = kernels_tree(source);
    for seen in ours.values_mut().chain(kernels.values_mut()) {
        seen.forget_inode();
    }
    // The root is not a copy.
    ours.remove(&b""[..]);
    kernels.remove(&b""[..]);
    assert_same(ours, &kernels, what);
}

#[test]
fn encrypted_files_keep_their_metadata_and_are_refused_otherwise() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let (source, path) = (folder.path().join("source"), folder.path().join("image"));
    make_source(&source);
    make_ext(&path, "20M", &["-t", "ext4", "-O", "encrypt", "-d", source.to_str().unwrap()]);
    for file in ["/folder/inner", "/folder/large"] {
        let request = format!("set_inode_field {file} flags 0x80800");
        run("debugfs", &["-w", "-R", &request, path.to_str().unwrap()]);
    }
    let image = Image::open(&path);
    let files = open(&image).unwrap().unwrap();
    let find = |folder: u64, wanted: &[u8]| {
        let mut found = 0;
        let listed = files.entries(folder, &mut |entry| {
            found = if entry.name == wanted { entry.inode } else { found };
            ControlFlow::Continue(())
        });
        listed.map(|()| found)
    };
    let top = find(files.root(), b"folder").unwrap();
    let (large, inner) = (find(top, b"large").unwrap(), find(top, b"inner").unwrap());
    let node = files.node(large).unwrap();
    assert!(node.encrypted && node.kind == NodeKind::File && node.metadata.size == 700_001);
    let refused = |result: Result<(), DiskError>| {
        assert!(matches!(result, Err(DiskError::Unsupported { .. })), "{result:?}");
    };
    refused(files.read(large, 0, &mut [0; 10]).map(drop));
    refused(files.pieces(large, 0..10, &mut |_| ControlFlow::Continue(())));
    refused(find(inner, b"x").map(drop));
    assert!(files.free().is_ok());
}

#[test]
fn a_journal_that_debugfs_wrote_is_replayed_and_revoked() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let (path, block) = (folder.path().join("image"), folder.path().join("block"));
    for features in ["metadata_csum", "^metadata_csum,64bit", "^metadata_csum,^64bit"] {
        make_ext(&path, "20M", &["-t", "ext4", "-b", "1024", "-O", features]);
        let journal = |request: &str| {
            let commands = folder.path().join("commands");
            std::fs::write(&commands, request).unwrap();
            run("debugfs", &["-w", "-f", commands.to_str().unwrap(), path.to_str().unwrap()]);
        };
        let name = block.to_str().unwrap();
        std::fs::write(&block, [&[0xc0, 0x3b, 0x39, 0x98][..], &[5; 2044]].concat()).unwrap();
        journal("write /dev/null file\n");
        journal(&format!("jo\njw -b 15000,15001 {name}\njw -r 15001\njc\n"));
        let image = Image::open(&path);
        let files = open(&image).unwrap().unwrap();
        let state = files.facts().state;
        assert!(matches!(state, State::Replayed { transactions: 2, blocks: 1 }), "{state:?}");
        drop(files);
        run("debugfs", &["-w", "-R", "ssv state 3", path.to_str().unwrap()]);
        let files = open(&image).unwrap().unwrap();
        assert_eq!(files.facts().state, State::Dirty(Unclean::Errors));
    }
}
