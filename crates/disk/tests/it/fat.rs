//! FAT volumes that `mkfs.vfat` and mtools wrote: what we see is what mtools gives back.

use std::ops::ControlFlow;
use std::path::Path;

use strongroom_disk::{FileSystem, Kind, State, Unclean, open};
use strongroom_testkit::{Random, skipped};

use crate::hostile::{Changed, changes, explore, used};
use crate::world::{
    Image, Tree, assert_same, check_parts, folder, kernels_tree, lacks, our_tree, overwrite_free,
    run, without_owners,
};

const TOOLS: [&str; 6] = ["mkfs.vfat", "fsck.vfat", "mcopy", "mdel", "mattrib", "mmd"];

/// Options of `mkfs.vfat`, and the size of the volume.
const SETS: [(&[&str], &str, Kind); 7] = [
    (&["-F", "12", "-s", "1"], "2M", Kind::Fat12),
    (&["-F", "12", "-s", "8", "-f", "1"], "8M", Kind::Fat12),
    (&["-F", "16", "-s", "4"], "20M", Kind::Fat16),
    (&["-F", "16", "-s", "2", "-S", "1024"], "20M", Kind::Fat16),
    (&["-F", "32", "-s", "1"], "40M", Kind::Fat32),
    (&["-F", "32", "-s", "4", "-h", "2048"], "160M", Kind::Fat32),
    (&["-F", "16", "-s", "1", "-S", "4096"], "60M", Kind::Fat16),
];

fn make(path: &Path, size: &str, options: &[&str]) {
    drop(std::fs::remove_file(path));
    let path = path.to_str().unwrap();
    run("truncate", &["-s", size, path]);
    let head = ["-a", "-i", "1234abcd", "-n", "STICK 1"];
    run("mkfs.vfat", &[&head, options, &[path]].concat());
}

/// Runs one of the tools on an image, in UTC.
fn mtools(tool: &str, image: &Path, arguments: &[&str]) {
    let head = ["TZ=UTC", "LC_ALL=C.UTF-8", "MTOOLS_SKIP_CHECK=1", tool, "-i"];
    run("env", &[&head[..], &[image.to_str().unwrap()], arguments].concat());
}

/// Files with names of all kinds; some pieces of a volume that are free again, and a file in these.
fn populate(source: &Path, image: &Path, random: &mut Random) {
    std::fs::create_dir_all(source.join("EFI/BOOT")).unwrap();
    std::fs::create_dir_all(source.join("many")).unwrap();
    let long = "a name that is as long as it may be ".repeat(7);
    let names = ["EFI/BOOT/BOOTX64.EFI", "lower.txt", "Größe 𝄞.md", "UPPER.low", "noext", &long];
    for name in names {
        let bytes = random.below(40_000) as usize;
        std::fs::write(source.join(name.trim()), random.content(bytes)).unwrap();
    }
    std::fs::write(source.join("empty"), "").unwrap();
    for n in 0..150 {
        let text = vec![n as u8; random.below(3000) as usize];
        std::fs::write(source.join(format!("many/a longer name {n}.data")), text).unwrap();
    }
    for name in ["EFI", "many", "lower.txt", "UPPER.low", "noext", "empty", "Größe 𝄞.md"] {
        let from = source.join(name);
        mtools("mcopy", image, &["-s", "-m", "-Q", from.to_str().unwrap(), "::/"]);
    }
    let long = source.join(long.trim());
    mtools("mcopy", image, &["-m", long.to_str().unwrap(), "::/EFI/"]);
    let every_third = |n: &usize| n.is_multiple_of(3);
    let gone: Vec<_> = (0..150).filter(every_third).collect();
    let gone: Vec<_> = gone.iter().map(|n| format!("::/many/a longer name {n}.data")).collect();
    mtools("mdel", image, &gone.iter().map(String::as_str).collect::<Vec<_>>());
    let large = source.join("fragmented");
    std::fs::write(&large, random.noise(300_001)).unwrap();
    mtools("mcopy", image, &["-m", large.to_str().unwrap(), "::/"]);
}

/// What mtools reads.
fn extracted(image: &Path, to: &Path) -> Tree {
    std::fs::create_dir_all(to).unwrap();
    mtools("mcopy", image, &["-s", "-m", "-n", "-Q", "::/*", to.to_str().unwrap()]);
    let tree = kernels_tree(to);
    std::fs::remove_dir_all(to).unwrap();
    tree
}

#[test]
fn a_volume_that_mtools_wrote_is_seen_as_mtools_sees_it() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let folder = folder();
    let (source, path, out) =
        (folder.path().join("source"), folder.path().join("image"), folder.path().join("out"));
    for (seed, (options, size, kind)) in (0..).zip(SETS) {
        let what = format!("{options:?}");
        make(&path, size, options);
        populate(&source, &path, &mut Random::new(seed));
        let image = Image::open(&path);
        let files = open(&image).unwrap().unwrap();
        let facts = files.facts();
        assert_eq!((facts.kind, facts.state), (kind, State::Clean), "{what}");
        assert_eq!(
            (&facts.label[..], &facts.uuid[..4]),
            (&b"STICK 1"[..], &[0xcd, 0xab, 0x34, 0x12][..])
        );
        let mut ours = our_tree(&*files, &image);
        without_owners(&mut ours, 2_000_000_000);
        let mut theirs = extracted(&path, &out);
        without_owners(&mut theirs, 2_000_000_000);
        assert!(ours.len() > 100);
        assert_same(&ours, &theirs, &what);

        check_parts(&*files, find(&*files, "fragmented"), &mut Random::new(seed));

        let free = files.free().unwrap_or_else(|error| panic!("{what}: {error}"));
        let said = run("fsck.vfat", &["-n", path.to_str().unwrap()]);
        let counts = said.split_whitespace().rev().find_map(|word| word.split_once('/')).unwrap();
        let [used, all] = [counts.0, counts.1].map(|count| count.parse::<u64>().unwrap());
        let sector = options.windows(2).find(|pair| pair[0] == "-S").map_or("512", |pair| pair[1]);
        let cluster = sector.parse::<u64>().unwrap() * options[3].parse::<u64>().unwrap();
        assert_eq!(free.bytes(), (all - used) * cluster, "{what}");
        overwrite_free(&path, &free);
        run("fsck.vfat", &["-n", path.to_str().unwrap()]);
        let mut after = extracted(&path, &out);
        without_owners(&mut after, 2_000_000_000);
        assert_same(&ours, &after, &what);
        std::fs::remove_dir_all(&source).unwrap();
    }
}

/// The number of a file in the root directory.
fn find(files: &dyn FileSystem, wanted: &str) -> u64 {
    let mut found = 0;
    let listed = files.entries(files.root(), &mut |entry| {
        found = if entry.name == wanted.as_bytes() { entry.inode } else { found };
        ControlFlow::Continue(())
    });
    listed.unwrap();
    found
}

#[test]
fn what_is_read_only_cannot_be_written_and_a_full_volume_has_no_free_bytes() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let folder = folder();
    let (path, content) = (folder.path().join("image"), folder.path().join("content"));
    make(&path, "2M", &["-F", "12", "-s", "1"]);
    std::fs::write(&content, vec![7; 5000]).unwrap();
    for name in ["::/kept", "::/other"] {
        mtools("mcopy", &path, &[content.to_str().unwrap(), name]);
    }
    mtools("mattrib", &path, &["+r", "::/kept"]);
    let image = Image::open(&path);
    let free = open(&image).unwrap().unwrap().free().unwrap().bytes();
    std::fs::write(&content, vec![8; free as usize]).unwrap();
    mtools("mcopy", &path, &[content.to_str().unwrap(), "::/all"]);
    let files = open(&image).unwrap().unwrap();
    let mode = |name| files.node(find(&*files, name)).unwrap().metadata.mode;
    assert_eq!((mode("kept"), mode("other"), mode("all")), (0o444, 0o644, 0o644));
    assert_eq!(files.free().unwrap().ranges().count(), 0);
}

#[test]
fn what_is_dirty_circular_or_shared_has_nothing_free() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let folder = folder();
    let (path, content) = (folder.path().join("image"), folder.path().join("content"));
    make(&path, "20M", &["-F", "16", "-s", "1"]);
    std::fs::write(&content, vec![7; 5000]).unwrap();
    for name in ["::/one", "::/two"] {
        mtools("mcopy", &path, &[content.to_str().unwrap(), name]);
    }
    let clean = std::fs::read(&path).unwrap();
    let with = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = clean.clone();
        change(&mut bytes);
        bytes
    };
    let state = |bytes: &Vec<u8>| open(bytes).unwrap().unwrap().facts().state;
    assert_eq!(state(&clean), State::Clean);
    let dirty = State::Dirty(Unclean::NoJournal);
    let reserved = usize::from(clean[14]) * 512;
    assert_eq!(state(&with(&|bytes| bytes[37] |= 1)), dirty);
    assert_eq!(state(&with(&|bytes| bytes[reserved + 3] &= !0x80)), dirty);
    let errors = State::Dirty(Unclean::Errors);
    assert_eq!(state(&with(&|bytes| bytes[reserved + 3] &= !0x40)), errors);

    // The files have ten clusters each, from the second on.
    let read = |bytes: &Vec<u8>, name| {
        let files = open(bytes).unwrap().unwrap();
        files.read(find(&*files, name), 0, &mut [0; 5000]).is_ok()
    };
    let link = |bytes: &mut [u8], cluster: usize, next: u8| {
        bytes[reserved + cluster * 2..][..2].copy_from_slice(&[next, 0]);
    };
    for (next, is_read) in [(3, false), (14, true), (0, false)] {
        let bytes = with(&|bytes| link(bytes, 5, next));
        assert_eq!(read(&bytes, "one"), is_read, "{next}");
        assert!(read(&bytes, "two"));
        assert!(open(&bytes).unwrap().unwrap().free().is_err(), "{next}");
    }
    // A copy of the table that does not agree frees nothing.
    let table_bytes = usize::from(clean[22]) * 512;
    let second = reserved + table_bytes + 1000 * 2;
    let bytes = with(&|bytes| bytes[second] = 0xff);
    let free = |bytes: &Vec<u8>| open(bytes).unwrap().unwrap().free().unwrap().bytes();
    assert_eq!(free(&bytes), free(&clean) - 512);
}

#[test]
fn a_table_that_looks_like_another_file_system_is_a_table() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    make(&path, "30M", &["-F", "16", "-s", "1", "-R", "1"]);
    let mut bytes = std::fs::read(&path).unwrap();
    // The mark of ext's superblock is in the table, as the number of a cluster.
    bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
    assert_eq!(open(&bytes).unwrap().unwrap().facts().kind, Kind::Fat16);
}

#[test]
fn changed_bytes_of_a_volume_end_in_errors_or_in_other_files() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let folder = folder();
    let (source, path) = (folder.path().join("source"), folder.path().join("image"));
    for (options, size, _) in [SETS[0], SETS[2], SETS[4]] {
        make(&path, size, options);
        populate(&source, &path, &mut Random::new(9));
        std::fs::remove_dir_all(&source).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let used = used(&bytes);
        let mut names = 0;
        for seed in 0..40 {
            let changes = changes(&mut Random::new(seed), &bytes, &used);
            let changed = Changed { bytes: &bytes, changes };
            if let Ok(Some(files)) = open(&changed) {
                names += explore(&*files);
            }
        }
        assert!(names > 1000, "{names}");
        let mut opened = 0;
        for at in 0..512 {
            for value in [0, 0x80, 0xff, bytes[at as usize] ^ 1] {
                let changed = Changed { bytes: &bytes, changes: vec![(at, value)] };
                if let Ok(Some(files)) = open(&changed) {
                    opened += 1;
                    drop(files.node(files.root()));
                    drop(files.entries(files.root(), &mut |_| ControlFlow::Continue(())));
                }
            }
        }
        assert!(opened > 800);
        for end in (0..bytes.len()).step_by(1_000_003) {
            assert!(!matches!(open(&bytes[..end].to_vec()), Ok(Some(_))), "{end}");
        }
    }
}
