//! exFAT volumes that exfat-fuse wrote: what we see is what it shows.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use strongroom_disk::{FileSystem, Kind, Source, State, Unclean, open};
use strongroom_testkit::{Random, skipped};

use crate::hostile::{Changed, changes, explore, used};
use crate::world::{
    Image, Tree, assert_same, cannot_mount, check_parts, folder, kernels_tree, lacks, our_tree,
    overwrite_free, run, without_owners,
};

fn cannot() -> Option<&'static str> {
    cannot_mount().or(lacks(&["mkfs.exfat", "mount.exfat-fuse", "fsck.exfat", "dump.exfat"]))
}

fn make(path: &Path, size: &str, options: &[&str]) {
    drop(std::fs::remove_file(path));
    let path = path.to_str().unwrap();
    run("truncate", &["-s", size, path]);
    run("mkfs.exfat", &[&["-L", "Läbel"], options, &[path]].concat());
}

/// An image that exfat-fuse shows, until it is dropped.
struct Shown {
    at: PathBuf,
    device: String,
}

impl Shown {
    fn new(image: &Path) -> Self {
        let at = image.with_extension("shown");
        std::fs::create_dir_all(&at).unwrap();
        let device = run("losetup", &["-f", "--show", image.to_str().unwrap()]).trim().to_owned();
        let place = at.to_str().unwrap();
        run("env", &["TZ=UTC", "LC_ALL=C.UTF-8", "mount.exfat-fuse", &device, place]);
        Self { at, device }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        run("umount", &[self.at.to_str().unwrap()]);
        run("losetup", &["-d", &self.device]);
    }
}

fn shown_tree(image: &Path) -> Tree {
    let shown = Shown::new(image);
    let mut tree = kernels_tree(&shown.at);
    without_owners(&mut tree, 1_000_000_000);
    tree
}

/// Files with names of all kinds; pieces that are free again, and files in these.
fn populate(at: &Path, random: &mut Random) {
    std::fs::create_dir_all(at.join("folder/inner/deeper")).unwrap();
    std::fs::create_dir_all(at.join("many")).unwrap();
    let long = "n".repeat(255);
    for name in ["empty", "small", "Größe 𝄞 €", &long, "folder/large", "folder/inner/deeper/end"]
    {
        let bytes = if name == "empty" { 0 } else { random.below(100_000) as usize };
        std::fs::write(at.join(name), random.content(bytes)).unwrap();
    }
    let name = |n: u64| at.join(format!("many/{n:03} {}", "x".repeat(n as usize % 100)));
    for n in 0..200 {
        let bytes = random.below(9000) as usize;
        std::fs::write(name(n), random.noise(bytes)).unwrap();
    }
    (0..200).step_by(3).for_each(|n| std::fs::remove_file(name(n)).unwrap());
    // Two files that grow in turn are in pieces.
    let mut pair = ["one", "two"].map(|name| File::create(at.join(name)).unwrap());
    for n in 0..20 {
        pair[n % 2].write_all(&random.noise(70_000)).unwrap();
    }
    let mut file = File::create(at.join("behind a gap")).unwrap();
    file.seek(SeekFrom::Start(300_000)).unwrap();
    file.write_all(b"the end").unwrap();
}

#[test]
fn a_volume_that_exfat_fuse_wrote_is_seen_as_it_shows_it() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    let sets: [(&[&str], &str); 4] = [
        (&["-c", "4K"], "20M"),
        (&["-c", "512", "-b", "64K"], "12M"),
        (&["-c", "32K", "--pack-bitmap"], "40M"),
        (&["-c", "1K", "-b", "4K"], "12M"),
    ];
    for (seed, (options, size)) in (0..).zip(sets) {
        let what = format!("{options:?}");
        make(&path, size, options);
        let shown = Shown::new(&path);
        populate(&shown.at, &mut Random::new(seed));
        drop(shown);
        let image = Image::open(&path);
        let files = open(&image).unwrap().unwrap();
        let facts = files.facts();
        assert_eq!((facts.kind, facts.state), (Kind::ExFat, State::Clean), "{what}");
        assert_eq!(facts.label, "Läbel".as_bytes());
        let mut ours = our_tree(&*files, &image);
        without_owners(&mut ours, 1_000_000_000);
        assert!(ours.len() > 130);
        assert_same(&ours, &shown_tree(&path), &what);

        for name in ["one", "behind a gap"] {
            check_parts(&*files, find(&*files, name), &mut Random::new(seed));
        }

        let free = files.free().unwrap_or_else(|error| panic!("{what}: {error}"));
        let said = run("dump.exfat", &[path.to_str().unwrap()]);
        let number = |label: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(label)).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        assert_eq!(free.bytes(), number("Free Clusters:") * number("Cluster size:"), "{what}");
        overwrite_free(&path, &free);
        assert_same(&ours, &shown_tree(&path), &what);
        run("fsck.exfat", &["-n", path.to_str().unwrap()]);
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
    assert!(found != 0, "{wanted}");
    found
}

/// Where the entries of a file begin in the volume.
fn entries_of(files: &dyn FileSystem, name: &str) -> u64 {
    (find(files, name) >> 1) * 32
}

/// Gives the entries of a file the checksum that they need.
fn sign(image: &Image, at: u64) {
    let mut entries = vec![0; 19 * 32];
    image.0.read_exact_at(&mut entries, at).unwrap();
    entries.truncate((usize::from(entries[1]) + 1) * 32);
    let bytes = entries.iter().enumerate().filter(|(at, _)| !matches!(at, 2 | 3));
    let sum =
        bytes.fold(0, |sum: u16, (_, byte)| sum.rotate_right(1).wrapping_add(u16::from(*byte)));
    image.0.write_all_at(&sum.to_le_bytes(), at + 2).unwrap();
}

#[test]
fn what_was_never_written_is_zeros_and_what_is_shared_or_dirty_has_nothing_free() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    make(&path, "12M", &["-c", "4K"]);
    let shown = Shown::new(&path);
    for (name, byte) in [("one", 7), ("two", 8)] {
        std::fs::write(shown.at.join(name), vec![byte; 20_000]).unwrap();
    }
    drop(shown);
    let image = Image(File::options().read(true).write(true).open(&path).unwrap());
    let files = open(&image).unwrap().unwrap();
    let all = files.free().unwrap().bytes();
    let [one, two] = ["one", "two"].map(|name| entries_of(&*files, name));
    let number = find(&*files, "one");

    // Fewer bytes are valid than the file has.
    image.0.write_all_at(&5000_u64.to_le_bytes(), one + 32 + 8).unwrap();
    assert!(files.node(number).is_err(), "its checksum is that of before");
    sign(&image, one);
    let mut content = vec![1; 20_000];
    assert_eq!(files.read(number, 0, &mut content).unwrap(), 20_000);
    assert!(content[..5000].iter().all(|byte| *byte == 7));
    assert!(content[5000..].iter().all(|byte| *byte == 0));
    let mut pieces = Vec::new();
    let taken = files.pieces(number, 0..20_000, &mut |piece| {
        pieces.push((piece.offset, piece.bytes, matches!(piece.source, Source::Volume(_))));
        ControlFlow::Continue(())
    });
    taken.unwrap();
    assert_eq!(pieces, [(0, 5000, true), (5000, 15_000, false)]);
    assert_eq!(files.free().unwrap().bytes(), all, "what was not written is allocated");

    // The first cluster of the one is that of the other.
    let mut first = [0; 4];
    image.0.read_exact_at(&mut first, two + 32 + 20).unwrap();
    image.0.write_all_at(&first, one + 32 + 20).unwrap();
    sign(&image, one);
    assert!(files.free().is_err());

    for (flags, expected) in [(2, Unclean::NoJournal), (4, Unclean::Errors)] {
        image.0.write_all_at(&[flags], 106).unwrap();
        let files = open(&image).unwrap().unwrap();
        assert_eq!(files.facts().state, State::Dirty(expected));
        assert!(files.free().is_err() && files.node(find(&*files, "two")).is_ok());
    }
}

#[test]
fn changed_bytes_of_exfat_end_in_errors_or_in_other_files() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    make(&path, "5M", &["-c", "512", "-b", "64K"]);
    let shown = Shown::new(&path);
    populate(&shown.at, &mut Random::new(3));
    drop(shown);
    let bytes = std::fs::read(&path).unwrap();
    let used = used(&bytes);
    let (mut opened, mut names) = (0, 0);
    for seed in 0..150 {
        let changes = changes(&mut Random::new(seed), &bytes, &used);
        let changed = Changed { bytes: &bytes, changes };
        if let Ok(Some(files)) = open(&changed) {
            opened += 1;
            names += explore(&*files);
        }
    }
    assert!(opened > 30 && names > 2000, "{opened} {names}");
    for at in 0..512 {
        for value in [0, 0x80, 0xff, bytes[at as usize] ^ 1] {
            // With the checksum that these bytes need, as a liar would have it.
            let mut lie = bytes[..12 * 512].to_vec();
            lie[at as usize] = value;
            let checked = lie[..11 * 512].iter().enumerate();
            let sum = checked.filter(|(at, _)| !matches!(at, 106 | 107 | 112));
            let sum = sum
                .fold(0, |sum: u32, (_, byte)| sum.rotate_right(1).wrapping_add(u32::from(*byte)));
            let place = (11 * 512..).zip(sum.to_le_bytes());
            let changes = place.chain([(at, value)]).collect();
            let changed = Changed { bytes: &bytes, changes };
            if let Ok(Some(files)) = open(&changed) {
                drop(files.entries(files.root(), &mut |_| ControlFlow::Continue(())));
                drop(files.free());
            }
        }
    }
    for end in (0..bytes.len()).step_by(100_003) {
        assert!(!matches!(open(&bytes[..end].to_vec()), Ok(Some(_))), "{end}");
    }
}
