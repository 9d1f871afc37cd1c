//! Volumes that were copied while the kernel had them mounted, as a power cut leaves them: what we
//! see is what the kernel's own replay of the same copy gives.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use strongroom_disk::{State, Unclean, open};
use strongroom_testkit::skipped;

use crate::mounted::populate;
use crate::world::{
    Image, Mount, assert_same, assert_sound, cannot_mount, folder, kernels_tree, make_ext,
    our_tree, overwrite_free, run,
};

const SETS: [(&[&str], &str); 9] = [
    (&["-t", "ext4", "-b", "4096"], "acl"),
    (&["-t", "ext4", "-b", "1024"], "acl,data=journal"),
    (&["-t", "ext3", "-b", "1024"], "acl"),
    (&["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^64bit"], "acl,journal_checksum"),
    (&["-t", "ext4", "-b", "1024", "-O", "^64bit"], "acl,data=journal,journal_checksum"),
    (&["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,64bit", "-J", "size=4"], "acl"),
    (
        &["-t", "ext4", "-b", "2048", "-J", "size=4"],
        "acl,data=writeback,journal_async_commit,journal_checksum",
    ),
    (&["-t", "ext4", "-b", "4096", "-O", "bigalloc,inline_data,orphan_file"], "acl"),
    (&["-t", "ext4", "-b", "4096", "-O", "ea_inode,metadata_csum_seed"], "acl,data=journal"),
];

/// Copies an image while it is mounted. The last commit was just made, so that the copy has a
/// journal with much in it.
pub fn cut_power(image: &Path, copy: &Path, at: &Path) {
    let open_and_gone = at.join("deleted-but-open");
    let mut orphan = File::create(&open_and_gone).unwrap();
    orphan.write_all(&[7; 300_000]).unwrap();
    orphan.sync_all().unwrap();
    std::fs::remove_file(&open_and_gone).unwrap();
    // What a data journal has of a block that begins with the journal's own number is escaped.
    let magic: Vec<u8> = [0xc0, 0x3b, 0x39, 0x98].into_iter().cycle().take(50_000).collect();
    let mut last = File::create(at.join("last")).unwrap();
    last.write_all(&magic).unwrap();
    last.sync_all().unwrap();
    run("cp", &["--sparse=always", image.to_str().unwrap(), copy.to_str().unwrap()]);
    drop(orphan);
}

#[test]
fn a_dirty_journal_is_replayed_as_the_kernel_replays_it() {
    if skipped(cannot_mount()) {
        return;
    }
    let folder = folder();
    let (path, copy) = (folder.path().join("image"), folder.path().join("copy"));
    for (salt, (options, mount)) in SETS.into_iter().enumerate() {
        let what = format!("{options:?} {mount}");
        make_ext(&path, "64M", options);
        let mounted = Mount::new(&path, mount);
        let block_bytes = options.iter().filter_map(|o| o.parse().ok()).next().unwrap();
        populate(mounted.path(), block_bytes, salt as u32);
        run("sync", &["-f", mounted.path().to_str().unwrap()]);
        // Freed directories and their blocks used for content: revocations.
        run("bash", &["-c", &churn(mounted.path())]);
        cut_power(&path, &copy, mounted.path());
        drop(mounted);
        check(&copy, &what);
    }
}

pub fn churn(at: &Path) -> String {
    format!(
        "cd '{}' && for i in 1 2 3; do rm -r many; mkdir many; for n in {{1..150}}; do \
         echo $i >many/again-$n; done; sync -f .; done; dd if=/dev/urandom of=filled bs=1k \
         count=900 status=none; mv deep moved; chmod 700 moved; truncate -s 5000 comb; \
         setfattr -n user.late -v v filled",
        at.display()
    )
}

fn check(copy: &Path, what: &str) {
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

    let mounted = Mount::new(copy, "rw");
    assert_same(&ours, &kernels_tree(mounted.path()), what);
    drop(mounted);
    assert_sound(copy, what);

    // The free bytes of the replayed view are not needed by the kernel's replay either.
    overwrite_free(&unreplayed, &free);
    let mounted = Mount::new(&unreplayed, "rw");
    assert_same(&ours, &kernels_tree(mounted.path()), what);
    drop(mounted);
    assert_sound(&unreplayed, what);
}

#[test]
fn what_cannot_be_replayed_is_not_trusted() {
    if skipped(cannot_mount()) {
        return;
    }
    let folder = folder();
    let (path, copy) = (folder.path().join("image"), folder.path().join("copy"));
    let cases: [(&[&str], Unclean); 2] = [
        (&["-t", "ext2"], Unclean::NoJournal),
        (&["-t", "ext4", "-b", "4096"], Unclean::JournalDamaged),
    ];
    for (options, expected) in cases {
        make_ext(&path, "64M", options);
        let mounted = Mount::new(&path, "acl");
        populate(mounted.path(), 4096, 1);
        run("sync", &["-f", mounted.path().to_str().unwrap()]);
        cut_power(&path, &copy, mounted.path());
        drop(mounted);
        if expected == Unclean::JournalDamaged {
            damage_journal(&copy);
        }
        let image = Image::open(&copy);
        let files = open(&image).unwrap().unwrap();
        assert_eq!(files.facts().state, State::Dirty(expected));
        assert!(files.free().is_err());
        assert!(files.node(files.root()).is_ok());
    }
}

/// Changes a bit in a block of the journal's first transaction.
fn damage_journal(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let superblock = journal_superblock(&bytes);
    let first = superblock + number(&bytes, superblock + 0x1c) * 4096;
    assert!([1, 5].contains(&number(&bytes, first + 4)), "the log begins with a descriptor");
    bytes[first + 100] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Where the journal begins; at least its first blocks are consecutive.
fn journal_superblock(bytes: &[u8]) -> usize {
    let magic = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
    (0..bytes.len()).step_by(4096).find(|at| bytes[*at..].starts_with(&magic)).unwrap()
}

fn number(bytes: &[u8], at: usize) -> usize {
    bytes[at..at + 4].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

#[test]
fn a_fast_commit_behind_the_last_transaction_is_not_trusted() {
    if skipped(cannot_mount()) {
        return;
    }
    let folder = folder();
    let (path, copy) = (folder.path().join("image"), folder.path().join("copy"));
    make_ext(&path, "64M", &["-t", "ext4", "-b", "4096", "-O", "fast_commit"]);
    // The kernel notes the feature in the journal some time after the first mount.
    let mounted = Mount::new(&path, "acl");
    std::fs::write(mounted.path().join("first"), "content").unwrap();
    drop(mounted);
    let mounted = Mount::new(&path, "acl");
    cut_power(&path, &copy, mounted.path());
    drop(mounted);
    let mut bytes = std::fs::read(&copy).unwrap();
    let state = |bytes: &Vec<u8>| open(bytes).unwrap().unwrap().facts().state;
    let superblock = journal_superblock(&bytes);
    assert!(number(&bytes, superblock + 0x28) & 0x20 != 0, "the journal can have fast commits");
    let fast = number(&bytes, superblock + 0x10) - number(&bytes, superblock + 0x54);
    // The kernel begins with the second block. What it has there itself is removed.
    let heads = [fast, fast + 1].map(|block| {
        let request = format!("bmap <8> {block}");
        let block = run("debugfs", &["-R", &request, copy.to_str().unwrap()]);
        block.trim().parse::<usize>().unwrap() * 4096
    });
    heads.iter().for_each(|head| bytes[*head..*head + 12].fill(0));
    let State::Replayed { transactions, .. } = state(&bytes) else { panic!("{:?}", state(&bytes)) };
    let next = number(&bytes, superblock + 0x18) as u32 + transactions;
    for head in heads {
        let before = bytes[head..head + 12].to_vec();
        bytes[head..head + 8].copy_from_slice(&[9, 0, 8, 0, 0, 0, 0, 0]);
        for (transaction, is_newer) in [(next, true), (next + 1, true), (next - 1, false)] {
            bytes[head + 8..head + 12].copy_from_slice(&transaction.to_le_bytes());
            assert_eq!(state(&bytes) == State::Dirty(Unclean::FastCommits), is_newer);
        }
        bytes[head..head + 12].copy_from_slice(&before);
    }
}

/// Files that were synchronized, and that the kernel has after its replay: their content is not free.
#[test]
fn kept_1_7_nothing_is_free_beside_fast_commits() {
    if skipped(cannot_mount()) {
        return;
    }
    let folder = folder();
    let (path, copy) = (folder.path().join("image"), folder.path().join("copy"));
    let mut found = 0;
    for options in [
        &["-t", "ext4", "-b", "4096", "-O", "fast_commit"][..],
        &["-t", "ext4", "-b", "1024", "-O", "fast_commit,orphan_file"],
        &["-t", "ext4", "-b", "4096", "-O", "fast_commit,bigalloc,metadata_csum_seed"],
    ] {
        make_ext(&path, "400M", options);
        let mounted = Mount::new(&path, "acl");
        let synced = mounted.path().join("d");
        std::fs::create_dir(&synced).unwrap();
        run("sync", &["-f", synced.to_str().unwrap()]);
        let content = |number: u32| -> Vec<u8> {
            (0..300_000_u32).map(|at| (at.wrapping_mul(2 * number + 3) >> 8) as u8).collect()
        };
        for number in 0..30 {
            let mut file = File::create(synced.join(number.to_string())).unwrap();
            file.write_all(&content(number)).unwrap();
            file.sync_all().unwrap();
        }
        run("cp", &["--sparse=always", path.to_str().unwrap(), copy.to_str().unwrap()]);
        drop(mounted);
        let image = Image::open(&copy);
        let files = open(&image).unwrap().unwrap();
        match files.facts().state {
            State::Dirty(Unclean::FastCommits) => {
                found += 1;
                assert!(files.free().is_err() && files.page_files().is_err());
                assert!(files.node(files.root()).is_ok());
            }
            // Then all of it is in transactions.
            _ => check(&copy, &format!("{options:?}")),
        }
        let mounted = Mount::new(&copy, "rw");
        for number in 0..30 {
            let kernels = std::fs::read(mounted.path().join(format!("d/{number}"))).unwrap();
            assert!(kernels == content(number), "{options:?}: {number}");
        }
    }
    assert!(found > 0, "this kernel makes no fast commits");
}
