//! Btrfs that lies: nodes of trees are changed and get the right checksum again, and compressed
//! content is changed. Each call ends, and nothing panics.

use std::path::Path;

use strongroom_disk::{ReadAt, open};
use strongroom_testkit::{Random, skipped};

use crate::hostile::{Changed, explore};
use crate::world::{Mount, cannot_mount, folder, lacks, make_btrfs, run};

const NODE_BYTES: usize = 4096;

fn cannot() -> Option<&'static str> {
    cannot_mount().or(lacks(&["mkfs.btrfs", "btrfs"]))
}

fn image(at: &Path) -> Vec<u8> {
    make_btrfs(at, "32M", &["--mixed", "-n", "4096"]);
    for compression in ["lzo", "zlib", "zstd"] {
        let mounted = Mount::new(at, &format!("compress-force={compression}"));
        let script = format!(
            "mkdir {compression}; cd {compression}; btrfs -q subvolume create sub; \
             seq 1 30000 >numbers; seq 1 300 >inline; head -c 90000 /dev/zero >zeros; \
             ln -s target link; setfattr -n user.a -v b inline; truncate -s 300000 sparse; \
             for n in {{1..60}}; do echo $n >sub/name-$n; done; sync -f .; \
             btrfs -q subvolume snapshot sub snapshot; rm sub/name-4"
        );
        run("bash", &["-ec", &format!("cd '{}'; {script}", mounted.path().display())]);
    }
    std::fs::read(at).unwrap()
}

fn sum(node: &[u8]) -> [u8; 4] {
    crc32c::crc32c(&node[32..]).to_le_bytes()
}

/// Changes some bytes of a node, and its checksum.
fn change_node(random: &mut Random, bytes: &[u8], at: usize) -> Vec<(u64, u8)> {
    let mut node = bytes[at..at + NODE_BYTES].to_vec();
    for _ in 0..=random.below(3) {
        let place = match random.below(3) {
            0 => 32 + random.below(70),
            1 => 100 + random.below(400),
            _ => 32 + random.below(NODE_BYTES as u64 - 40),
        } as usize;
        let noise = random.number() as u8;
        let value = *random.pick(&[0, 1, 0x7f, 0x80, 0xff, noise, node[place] ^ 1]);
        (0..=random.below(4) as usize).for_each(|n| node[place + n] = value);
    }
    let right = sum(&node);
    node[..4].copy_from_slice(&right);
    let differ = |n: &usize| node[*n] != bytes[at + n];
    (0..NODE_BYTES).filter(differ).map(|n| ((at + n) as u64, node[n])).collect()
}

#[test]
fn changed_bytes_of_btrfs_end_in_errors_or_in_other_files() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let bytes = image(&folder.path().join("image"));
    let is_node = |at: &usize| bytes[*at..*at + 4] == sum(&bytes[*at..*at + NODE_BYTES]);
    let nodes: Vec<usize> = (0..bytes.len()).step_by(NODE_BYTES).filter(is_node).collect();
    let is_data = |at: &usize| !is_node(at) && bytes[*at..*at + 64].iter().any(|byte| *byte != 0);
    let data: Vec<usize> = (1 << 20..bytes.len()).step_by(NODE_BYTES).filter(is_data).collect();
    assert!(nodes.len() > 40 && data.len() > 40, "{} {}", nodes.len(), data.len());
    let (mut opened, mut names) = (0, 0);
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let mut changes = Vec::new();
        for _ in 0..=random.below(2) {
            let node = *random.pick(&nodes);
            changes.extend(change_node(&mut random, &bytes, node));
        }
        if random.once_in(3) {
            changes.clear();
        }
        for _ in 0..random.below(12) {
            let at = *random.pick(&data) as u64 + random.below(300);
            changes.push((at, random.number() as u8));
        }
        let changed = Changed { bytes: &bytes, changes };
        if let Ok(Some(files)) = open(&changed) {
            opened += 1;
            names += explore(&*files);
        }
    }
    assert!(opened > 250 && names > 10_000, "{opened} {names}");
}

/// A volume whose bytes end early.
struct Short<'a>(&'a [u8], u64);

impl ReadAt for Short<'_> {
    fn size(&self) -> u64 {
        self.1
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        let end = offset + buffer.len() as u64;
        if end > self.1 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        buffer.copy_from_slice(&self.0[offset as usize..end as usize]);
        Ok(())
    }
}

#[test]
fn btrfs_that_is_cut_off_anywhere_is_refused() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    make_btrfs(&path, "200M", &[]);
    let bytes = std::fs::read(&path).unwrap();
    assert!(open(&bytes).unwrap().is_some());
    for end in (0..bytes.len() as u64).step_by(5_000_003) {
        assert!(!matches!(open(&Short(&bytes, end)), Ok(Some(_))), "{end}");
    }
}

#[test]
fn a_damaged_superblock_is_replaced_by_its_copy_and_not_trusted() {
    if skipped(cannot()) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("image");
    make_btrfs(&path, "200M", &[]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[(64 << 10) + 90] ^= 1;
    let files = open(&bytes).unwrap().unwrap();
    assert!(!files.facts().state.is_trusted());
    assert!(files.node(files.root()).is_ok());
}
