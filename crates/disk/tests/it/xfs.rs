//! XFS that the kernel wrote, unmounted or stopped: our view is the kernel's, and what we call free
//! nothing needs.

use std::path::Path;

use strongroom_disk::{Kind, State, Unclean, open};
use strongroom_testkit::skipped;

use crate::dirty::{churn, cut_power};
use crate::mounted::populate;
use crate::world::{
    Image, Mount, assert_same, assert_sound_xfs, cannot_mount, folder, free_of_xfs, kernels_tree,
    lacks, make_xfs, our_tree, overwrite_free, run,
};

/// Each is judged unmounted or stopped; the first in both ways.
const SETS: [&[&str]; 8] = [
    &["-b", "size=4096"],
    &["-b", "size=1024", "-i", "nrext64=1"],
    &["-b", "size=1024", "-m", "rmapbt=0,reflink=0,bigtime=0,finobt=0", "-i", "sparse=0"],
    &["-b", "size=4096", "-n", "size=16384", "-d", "agcount=5", "-m", "rmapbt=1"],
    &["-b", "size=2048", "-n", "size=65536", "-i", "size=1024", "-s", "size=2048"],
    &["-b", "size=4096", "-i", "size=1024,nrext64=1", "-m", "bigtime=0,inobtcount=0"],
    &["-b", "size=1024", "-n", "size=4096", "-i", "size=512,sparse=1", "-m", "rmapbt=1"],
    &["-b", "size=4096", "-l", "su=32768,size=8m", "-s", "size=4096"],
];

fn cannot() -> Option<&'static str> {
    cannot_mount().or(lacks(&["mkfs.xfs", "xfs_db", "xfs_io", "xfs_repair"]))
}

fn block_bytes(options: &[&str]) -> u64 {
    options.iter().find_map(|option| option.strip_prefix("size=")?.parse().ok()).unwrap()
}

/// What only XFS has in its own way: trees of attributes, nodes of directories, shared extents,
/// trees of extents in several levels.
fn populate_more(at: &Path) {
    let script = "
import os, random
r = random.Random(5)
open('attributes', 'w').close()
for i in range(400):
    os.setxattr('attributes', f'user.number-{i}', b'%d' % i * (1 + i % 40))
for i in range(5):
    os.setxattr('attributes', f'user.large-{i}', r.randbytes(9000 + 13000 * i))
for i in range(0, 400, 7):
    os.removexattr('attributes', f'user.number-{i}')
os.mkdir('nodes')
for i in range(2500):
    os.link('nothing', 'nodes/' + 'name' * 20 + str(i))
for i in range(0, 2500, 3):
    os.remove('nodes/' + 'name' * 20 + str(i))
with open('fine-comb', 'wb') as file:
    for i in range(0, 3000, 2):
        file.seek(i * 4096)
        file.write(b'%04d' % i * 1024)
";
    let command = format!(
        "cd '{}' && python3 -c \"{}\" && (cp --reflink=always comb shared && cp --reflink=always \
         size-1000 shared-small && dd if=/dev/zero of=shared bs=4k seek=7 count=3 conv=notrunc \
         status=none || true) 2>/dev/null",
        at.display(),
        script
    );
    run("bash", &["-c", &command]);
}

#[test]
fn a_volume_that_the_kernel_wrote_is_seen_as_the_kernel_sees_it() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    for (salt, options) in SETS.into_iter().enumerate().step_by(2) {
        let what = format!("{options:?}");
        make_xfs(&path, "110M", options);
        let mounted = Mount::new(&path, "nouuid");
        populate(mounted.path(), block_bytes(options), salt as u32);
        populate_more(mounted.path());
        drop(mounted);
        check_clean(&path, &what);
    }
}

fn check_clean(path: &Path, what: &str) {
    let image = Image::open(path);
    let files = open(&image).unwrap().unwrap();
    assert_eq!(files.facts().state, State::Clean, "{what}");
    assert_eq!((files.facts().kind, &files.facts().label[..]), (Kind::Xfs, &b"label"[..]));
    let ours = our_tree(&*files, &image);
    assert!(ours.len() > 500);
    let free = files.free().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(free.bytes(), free_of_xfs(path, files.facts().block_bytes), "{what}");
    let mounted = Mount::new(path, "ro,nouuid");
    assert_same(&ours, &kernels_tree(mounted.path()), what);
    drop(mounted);

    overwrite_free(path, &free);
    assert_sound_xfs(path, what);
    let mounted = Mount::new(path, "ro,nouuid");
    assert_same(&ours, &kernels_tree(mounted.path()), what);
}

#[test]
fn a_dirty_log_is_replayed_as_the_kernel_replays_it() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let (path, copy) = (folder.path().join("image"), folder.path().join("copy"));
    let with_default = SETS.into_iter().take(1).chain(SETS.into_iter().skip(1).step_by(2));
    for (salt, options) in with_default.enumerate() {
        let what = format!("{options:?}");
        make_xfs(&path, "110M", options);
        let mounted = Mount::new(&path, "nouuid");
        populate(mounted.path(), block_bytes(options), salt as u32);
        run("sync", &["-f", mounted.path().to_str().unwrap()]);
        populate_more(mounted.path());
        run("bash", &["-c", &churn(mounted.path())]);
        if salt % 2 == 0 {
            cut_power(&path, &copy, mounted.path());
            drop(mounted);
        } else {
            let at = mounted.path().to_str().unwrap();
            run("xfs_io", &["-x", "-c", "shutdown -f", at]);
            drop(mounted);
            run("cp", &["--sparse=always", path.to_str().unwrap(), copy.to_str().unwrap()]);
        }
        check_dirty(&copy, &what);
    }
}

fn check_dirty(copy: &Path, what: &str) {
    let image = Image::open(copy);
    let files = open(&image).unwrap().unwrap();
    let State::Replayed { transactions, blocks } = files.facts().state else {
        panic!("{what}: {:?}", files.facts().state);
    };
    assert!(transactions > 0 && blocks > 0, "{what}: {transactions} {blocks}");
    let ours = our_tree(&*files, &image);
    let free = files.free().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(free.bytes() > 1 << 20, "{what}");
    let unreplayed = copy.with_extension("before");
    run("cp", &["--sparse=always", copy.to_str().unwrap(), unreplayed.to_str().unwrap()]);

    let mounted = Mount::new(copy, "nouuid");
    assert_same(&ours, &kernels_tree(mounted.path()), what);
    drop(mounted);
    assert_sound_xfs(copy, what);

    // The free bytes of the replayed view are not needed by the kernel's replay either.
    overwrite_free(&unreplayed, &free);
    let mounted = Mount::new(&unreplayed, "nouuid");
    assert_same(&ours, &kernels_tree(mounted.path()), what);
    drop(mounted);
    assert_sound_xfs(&unreplayed, what);
}

#[test]
fn a_damaged_log_is_not_trusted() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let (path, copy) = (folder.path().join("image"), folder.path().join("copy"));
    make_xfs(&path, "60M", &[]);
    let mounted = Mount::new(&path, "nouuid");
    populate(mounted.path(), 4096, 1);
    cut_power(&path, &copy, mounted.path());
    drop(mounted);
    let mut bytes = std::fs::read(&copy).unwrap();
    // Before it begins, the kernel fills what follows with empty records.
    let is_head = |at: &usize| {
        bytes[*at..].starts_with(b"\xfe\xed\xba\xbe") && bytes[at + 12..at + 16] != [0; 4]
    };
    let heads: Vec<usize> = (0..bytes.len()).step_by(512).filter(is_head).collect();
    assert!(heads.len() > 8, "{}", heads.len());
    // The oldest record that counts, which the newest names by its sector.
    let last = heads[heads.len() - 1];
    let sector = bytes[last + 28..last + 32].iter().fold(0, |n, byte| n << 8 | usize::from(*byte));
    bytes[heads[0] + sector * 512 + 1000] ^= 1;

    let files = open(&bytes).unwrap().unwrap();
    assert_eq!(files.facts().state, State::Dirty(Unclean::JournalDamaged));
    assert!(files.free().is_err());
    assert!(files.node(files.root()).is_ok());
}
