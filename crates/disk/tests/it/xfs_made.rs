//! XFS that only its tools wrote: version 4, which not every kernel mounts, and volumes with bytes
//! that lie.

use std::fmt::Write;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use strongroom_disk::{DiskError, State, open};
use strongroom_testkit::{Random, skipped};

use crate::hostile::{Changed, changes, explore};
use crate::world::{
    Image, Mount, assert_same, assert_sound_xfs, cannot_mount, folder, free_of_xfs, kernels_tree,
    lacks, make_xfs, our_tree, overwrite_free, run,
};

fn cannot() -> Option<&'static str> {
    let tools = lacks(&["mkfs.xfs", "xfs_db", "xfs_io", "xfs_repair"]);
    tools.or((!rustix::process::geteuid().is_root()).then_some("owners are kept by root only"))
}

fn make_source(at: &Path) {
    std::fs::create_dir_all(at.join("folder/inner")).unwrap();
    for (name, bytes) in [("empty", 0), ("small", 50), ("block", 65536), ("large", 700_001)] {
        let content: Vec<u8> = (0..bytes).map(|n: u32| (n * 7 + n / 255) as u8).collect();
        std::fs::write(at.join("folder").join(name), content).unwrap();
    }
    (0..400).for_each(|n| std::fs::write(at.join(format!("folder/inner/name-{n}")), "x").unwrap());
    (0..9).for_each(|n| std::fs::write(at.join(format!("folder/{n}")), "y").unwrap());
    std::os::unix::fs::symlink("t".repeat(20), at.join("link")).unwrap();
    std::os::unix::fs::symlink("t".repeat(400), at.join("long-link")).unwrap();
}

/// A prototype file, from which `mkfs.xfs` makes a tree.
fn prototype(source: &Path) -> String {
    let mut text = "/dev/null\n0 0\nd--755 0 0\n".to_owned();
    add_folder(source, &mut text);
    text
}

fn add_folder(folder: &Path, text: &mut String) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap()).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        let stat = path.symlink_metadata().unwrap();
        let mode = stat.permissions().mode() & 0o777;
        if stat.is_dir() {
            writeln!(text, "{name} d--{mode:o} 0 0").unwrap();
            add_folder(&path, text);
        } else if stat.is_symlink() {
            let target = std::fs::read_link(&path).unwrap();
            writeln!(text, "{name} l--{mode:o} 0 0 {}", target.display()).unwrap();
        } else {
            writeln!(text, "{name} ---{mode:o} 0 0 {}", path.display()).unwrap();
        }
    }
    text.push_str("$\n");
}

fn make(at: &Path, size: &str, options: &[&str]) {
    let source = at.with_extension("source");
    let prototype_at = at.with_extension("prototype");
    make_source(&source);
    // `mkfs.xfs` forgets the headers that long targets have since version 5.
    if !options.iter().any(|option| option.contains("crc=0")) {
        std::fs::remove_file(source.join("long-link")).unwrap();
    }
    std::fs::write(&prototype_at, prototype(&source)).unwrap();
    make_xfs(at, size, &[&["-p", prototype_at.to_str().unwrap()], options].concat());
}

const SETS: [&[&str]; 4] = [
    &["-m", "crc=0,finobt=0", "-b", "size=4096"],
    &["-m", "crc=0,finobt=0", "-b", "size=512", "-n", "ftype=0,size=4096"],
    &["-m", "crc=0,finobt=0", "-b", "size=1024", "-n", "ftype=1", "-i", "size=512"],
    &["-b", "size=16384"],
];

#[test]
fn a_volume_of_a_prototype_has_the_tree_that_it_was_made_of() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    for options in SETS {
        let what = format!("{options:?}");
        make(&path, "120M", options);
        let image = Image::open(&path);
        let files = open(&image).unwrap().unwrap();
        assert_eq!(files.facts().state, State::Clean, "{what}");
        let mut ours = our_tree(&*files, &image);
        let mut kernels = kernels_tree(&path.with_extension("source"));
        ours.values_mut().chain(kernels.values_mut()).for_each(crate::world::Seen::forget_times);
        // The root is not a copy.
        ours.remove(&b""[..]);
        kernels.remove(&b""[..]);
        assert_same(&ours, &kernels, &what);
        let free = files.free().unwrap();
        assert_eq!(free.bytes(), free_of_xfs(&path, files.facts().block_bytes), "{what}");
        overwrite_free(&path, &free);
        assert_sound_xfs(&path, &what);
        std::fs::remove_dir_all(path.with_extension("source")).unwrap();
    }
}

#[test]
fn realtime_devices_and_logs_elsewhere_are_refused_by_name() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let (path, other) = (folder.path().join("image"), folder.path().join("other"));
    run("truncate", &["-s", "100M", other.to_str().unwrap()]);
    let log = format!("logdev={},size=20m", other.display());
    let device = format!("rtdev={}", other.display());
    for (options, expected) in [(["-l", &log], "log"), (["-r", &device], "realtime")] {
        make_xfs(&path, "100M", &options);
        let image = Image::open(&path);
        let Err(DiskError::Unsupported { what }) = open(&image) else { panic!("{expected}") };
        assert!(what.contains(expected), "{what}");
    }
}

fn used(bytes: &[u8]) -> Vec<u64> {
    let lines = bytes.chunks(64).zip(0..);
    lines.filter(|(line, _)| line.iter().any(|byte| *byte != 0)).map(|(_, index)| index).collect()
}

#[test]
fn changed_bytes_of_xfs_end_in_errors_or_in_other_files() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    for (set, options) in SETS[..3].iter().enumerate() {
        let small = ["-l", "size=6m", "-d", "agcount=1"];
        make(&path, "24M", &[options, &small[..]].concat());
        std::fs::remove_dir_all(path.with_extension("source")).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        // Not the content of the large file, which is most of the volume.
        let used: Vec<u64> =
            used(&bytes).into_iter().filter(|line| is_metadata(&bytes, *line)).collect();
        let (mut opened, mut names) = (0, 0);
        for seed in 0..200 {
            let mut random = Random::new(seed * 4 + set as u64);
            let mut changed = changes(&mut random, &bytes, &used);
            if random.once_in(2) {
                changed.retain(|(at, _)| *at > 512);
            }
            let changed = Changed { bytes: &bytes, changes: changed };
            if let Ok(Some(files)) = open(&changed) {
                opened += 1;
                names += explore(&*files);
            }
        }
        assert!(opened > 100 && names > 20_000, "set {set}: {opened} {names}");
    }
}

/// Whether the block that a line of 64 bytes is in begins as a structure of XFS does.
fn is_metadata(bytes: &[u8], line: u64) -> bool {
    let block = &bytes[(line * 64) as usize / 512 * 512..];
    let heads: [&[u8]; 8] = [b"XFSB", b"XAG", b"IN", b"ABT", b"IABT", b"XD2", b"BMAP", b"FIBT"];
    heads.iter().any(|head| block.starts_with(head))
}

#[test]
fn a_log_whose_records_lie_ends() {
    if skipped(cannot().or(cannot_mount())) {
        return;
    }
    let folder = folder();
    let (path, copy) = (folder.path().join("image"), folder.path().join("copy"));
    make_xfs(&path, "24M", &["-l", "size=6m", "-b", "size=1024", "-d", "agcount=1"]);
    let mounted = Mount::new(&path, "nouuid");
    for n in 0..40 {
        let at = mounted.path().join(format!("folder-{n}"));
        std::fs::create_dir(&at).unwrap();
        std::fs::write(at.join("file"), vec![n; 3000]).unwrap();
        std::os::unix::fs::symlink("t".repeat(900), at.join("link")).unwrap();
    }
    std::fs::remove_dir_all(mounted.path().join("folder-3")).unwrap();
    let mut last = File::create(mounted.path().join("last")).unwrap();
    last.write_all(b"last").unwrap();
    last.sync_all().unwrap();
    run("cp", &[path.to_str().unwrap(), copy.to_str().unwrap()]);
    drop((last, mounted));
    let bytes = std::fs::read(&copy).unwrap();
    let number = |at: usize| bytes[at..at + 4].iter().fold(0, |n, b| n << 8 | usize::from(*b));
    let heads: Vec<usize> = (0..bytes.len())
        .step_by(512)
        .filter(|at| number(*at) == 0xfeed_babe && number(at + 12) != 0)
        .collect();
    assert!(heads.len() > 2);
    let (mut replayed, mut names) = (0, 0);
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let mut bytes = bytes.clone();
        let head = *random.pick(&heads);
        let length = number(head + 12);
        for _ in 0..=random.below(4) {
            // Most of it is content; the heads of operations and items are at its start.
            let bound = if random.once_in(2) { length.min(600) } else { length };
            let at = match random.once_in(8) {
                true => head + 8 + random.below(40) as usize,
                false => head + 512 + random.below(bound as u64) as usize,
            };
            let noise = random.number() as u8;
            bytes[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff, noise]);
        }
        bytes[head + 32..head + 36].fill(0);
        let sum = crc32c::crc32c_append(
            crc32c::crc32c(&bytes[head..head + 328]),
            &bytes[head + 512..head + 512 + length],
        );
        bytes[head + 32..head + 36].copy_from_slice(&sum.to_le_bytes());
        let Ok(Some(files)) = open(&bytes) else { continue };
        replayed += usize::from(matches!(files.facts().state, State::Replayed { .. }));
        names += explore(&*files);
    }
    assert!(replayed > 20 && names > 400, "{replayed} {names}");
}

#[test]
fn xfs_that_is_cut_off_anywhere_is_refused() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    make_xfs(&path, "24M", &["-l", "size=6m", "-d", "agcount=1"]);
    let bytes = std::fs::read(&path).unwrap();
    assert!(open(&bytes).unwrap().is_some());
    for end in (0..bytes.len()).step_by(2_000_003) {
        let short = bytes[..end].to_vec();
        assert!(!matches!(open(&short), Ok(Some(_))), "{end}");
    }
}
