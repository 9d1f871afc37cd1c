//! Images that lie: any bytes are changed or cut off, each call ends, and nothing panics.

use std::sync::Arc;

use strongroom_disk::{Image, Qcow2, ReadAt, image_over};
use strongroom_testkit::{Random, skipped};

use super::{Images, TOOLS, scribbles};
use crate::world::{lacks, run};

/// Bytes of an image, of which some are changed.
#[derive(Clone)]
struct Changed {
    bytes: Arc<[u8]>,
    end: u64,
    changes: Vec<(u64, u8)>,
}

impl ReadAt for Changed {
    fn size(&self) -> u64 {
        self.end
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|&end| end <= self.end);
        let end = end.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(&self.bytes[offset as usize..end as usize]);
        for (at, byte) in &self.changes {
            if let Some(place) = at.checked_sub(offset).and_then(|at| buffer.get_mut(at as usize)) {
                *place = *byte;
            }
        }
        Ok(())
    }
}

impl Image for Changed {}

#[test]
fn a_compressed_grain_that_is_cut_short_is_refused() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let images = Images::new();
    // Two grains and a half.
    let disk = Random::new(77).noise(160 << 10);
    std::fs::write(images.path("raw"), &disk).unwrap();
    let (raw, name) = (images.name("raw"), images.name("disk"));
    let subformat = "subformat=streamOptimized";
    run("qemu-img", &["convert", "-f", "raw", "-O", "vmdk", "-o", subformat, &raw, &name]);
    let mut read = vec![0; disk.len()];
    images.open("disk").image.read_at(0, &mut read).unwrap();
    assert!(read == disk, "the last grain may be shorter");
    // The first grain: its place on the disk, its length, its bytes.
    let mut bytes = std::fs::read(&name).unwrap();
    let first = usize::from(u16::from_le_bytes([bytes[64], bytes[65]])) * 512;
    let length = u32::from_le_bytes(bytes[first + 8..first + 12].try_into().unwrap());
    assert_eq!((bytes[first], length > 64 << 10), (0, true));
    bytes[first + 8..first + 12].copy_from_slice(&(length / 2).to_le_bytes());
    std::fs::write(&name, &bytes).unwrap();
    let image = images.open("disk").image;
    image.read_at(0, &mut read[..4096]).unwrap_err();
    image.read_at(64 << 10, &mut read[..4096]).unwrap();
    // A whole stream, of too few bytes.
    let mut stream = flate2::Compress::new(flate2::Compression::fast(), true);
    let mut deflated = Vec::with_capacity(2000);
    stream.compress_vec(&[7; 1000], &mut deflated, flate2::FlushCompress::Finish).unwrap();
    let length = u32::try_from(deflated.len()).unwrap();
    bytes[first + 8..first + 12].copy_from_slice(&length.to_le_bytes());
    bytes[first + 12..first + 12 + deflated.len()].copy_from_slice(&deflated);
    std::fs::write(&name, &bytes).unwrap();
    images.open("disk").image.read_at(0, &mut read[..512]).unwrap_err();
}

/// Uses all of an image. Returns whether all of it could be read.
fn explore(image: &dyn Image, random: &mut Random) -> bool {
    let size = image.size();
    let mut is_whole = true;
    let mut buffer = vec![0; 70_000];
    for _ in 0..8 {
        let start = if size == 0 { 0 } else { random.below(size) };
        let count = (size - start).min(buffer.len() as u64) as usize;
        is_whole &= image.read_at(start, &mut buffer[..count]).is_ok();
    }
    let mut at = 0;
    for _ in 0..200 {
        let Ok(Some(data)) = image.next_data(at) else { break };
        assert!(at <= data.start && data.start < data.end && data.end <= size);
        at = data.end;
    }
    is_whole
}

fn explore_bitmaps(image: &Qcow2) {
    for bitmap in image.bitmaps().unwrap_or_default() {
        let Ok(ranges) = image.dirty(&bitmap.name) else { continue };
        let mut end = 0;
        for range in ranges.take(1000).flatten() {
            assert!(end <= range.start && range.start < range.end && range.end <= image.size());
            end = range.end;
        }
    }
}

/// Images with a bit of everything, and the bytes of each that are not zero.
fn samples() -> Vec<Changed> {
    let sets = [
        ("compat=1.1,cluster_size=4k", Some(4 << 10)),
        ("compat=0.10,cluster_size=512", Some(512)),
        ("extended_l2=on,cluster_size=16k,compression_type=zstd", Some(16 << 10)),
        ("cluster_size=64k", None),
    ];
    let sample = |(seed, (options, compress)): (u64, (&str, Option<u64>))| {
        let images = Images::new();
        images.create("disk", "qcow2", &["-o", options], "1M");
        if !options.contains("0.10") {
            run("qemu-img", &["bitmap", "--add", "-g", "512", &images.name("disk"), "night"]);
        }
        let mut random = Random::new(seed);
        images.write("disk", "qcow2", &scribbles(&mut random, 1 << 20, compress, 30));
        let bytes: Arc<[u8]> = std::fs::read(images.path("disk")).unwrap().into();
        Changed { end: bytes.len() as u64, bytes, changes: Vec::new() }
    };
    (0..).zip(sets).map(sample).collect()
}

/// Changes a few bytes in the header, in the clusters that are tables for all that one can see, or
/// anywhere.
fn change(image: &mut Changed, tables: &[u64], random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let at = match random.below(5) {
            0 => random.below(112),
            1 => random.below(600),
            2 => random.below(image.end),
            _ => *random.pick(tables) + random.below(16),
        };
        let extreme = [0, 1, 0x7f, 0x80, 0xff, random.number() as u8];
        let value = *random.pick(&extreme);
        let flipped = image.bytes[at.min(image.end - 1) as usize] ^ (1 << random.below(8));
        match random.below(3) {
            0 => image.changes.push((at, flipped)),
            1 => image.changes.push((at, value)),
            _ => image.changes.extend((at..at + 8).map(|at| (at, value))),
        }
    }
}

#[test]
fn changed_bytes_end_in_errors_or_in_other_bytes() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    for (set, sample) in samples().into_iter().enumerate() {
        // Entries of tables begin with the bit that says that a cluster is used once.
        let entries = sample.bytes.chunks(8).zip(0..).filter(|(entry, _)| entry[0] & 0xc0 != 0);
        let tables: Vec<u64> = entries
            .filter(|(entry, _)| entry[1..4] == [0, 0, 0])
            .map(|(_, index)| index * 8)
            .collect();
        let (mut opened, mut whole) = (0, 0);
        for seed in 0..500 {
            let mut random = Random::new(seed * 8 + set as u64);
            let mut changed = sample.clone();
            change(&mut changed, &tables, &mut random);
            if let Ok(image) = Qcow2::over(Box::new(changed)) {
                opened += 1;
                whole += u64::from(explore(&image, &mut random));
                explore_bitmaps(&image);
            }
        }
        assert!(opened > 150 && whole > 20 && whole < opened, "set {set}: {opened}, {whole}");
    }
}

#[test]
fn an_image_that_is_cut_off_anywhere_is_refused_or_ends_in_errors() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    for sample in samples() {
        for end in (0..sample.end).step_by(60_009) {
            let short = Changed { end, ..sample.clone() };
            let Ok(image) = Qcow2::over(Box::new(short)) else { continue };
            explore(&image, &mut Random::new(end));
            // What is read is what is there, or zeros in the last cluster of the file.
            let full = Qcow2::over(Box::new(sample.clone())).unwrap();
            let (mut ours, mut expected) = (vec![0; 512], vec![0; 512]);
            for at in (0..image.size()).step_by(512) {
                full.read_at(at, &mut expected).unwrap();
                if image.read_at(at, &mut ours).is_ok() {
                    assert!(ours == expected || end % 512 != 0, "{at} of an image cut at {end}");
                }
            }
        }
    }
}

#[test]
fn noise_behind_a_header_ends() {
    let mut opened = 0;
    for seed in 0..1000 {
        let mut random = Random::new(seed);
        let mut bytes = random.noise(8192);
        bytes[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
        // A header with fields that are small, and noise for the rest.
        for at in (8..112).step_by(4) {
            let value = [0, 0, 0, random.below(40) as u8];
            bytes[at..at + 4].copy_from_slice(&value);
        }
        bytes[20..24].copy_from_slice(&[0, 0, 0, 9 + random.below(13) as u8]);
        bytes[8..20].fill(0);
        bytes[24..32].copy_from_slice(&[0, 0, 0, 0, 0, random.below(16) as u8, 0, 0]);
        bytes[32..36].fill(0);
        bytes[40..48].fill(0);
        bytes[46] = 2 * random.below(16) as u8;
        bytes[72..80].fill(0);
        bytes[79] = random.below(32) as u8 & !2;
        bytes[100..120].fill(0);
        bytes[103] = 112;
        let bytes: Arc<[u8]> = bytes.into();
        let image = Changed { end: bytes.len() as u64, bytes, changes: Vec::new() };
        if let Ok(image) = Qcow2::over(Box::new(image)) {
            opened += 1;
            explore(&image, &mut random);
            explore_bitmaps(&image);
        }
    }
    assert!(opened > 20, "{opened}");
}

/// Images of other systems, with the places where their structures are.
fn foreign_samples() -> Vec<(Changed, Vec<u64>)> {
    let sets = [
        ("vpc", "subformat=dynamic"),
        ("vmdk", "subformat=monolithicSparse"),
        ("vmdk", "subformat=streamOptimized"),
        ("vhdx", "subformat=dynamic"),
    ];
    let sample = |(format, options)| {
        let (images, mut random) = (Images::new(), Random::new(1));
        std::fs::write(images.path("raw"), random.content(1 << 20)).unwrap();
        let (raw, name) = (images.name("raw"), images.name("disk"));
        run("qemu-img", &["convert", "-f", "raw", "-O", format, "-o", options, &raw, &name]);
        let bytes: Arc<[u8]> = std::fs::read(images.path("disk")).unwrap().into();
        // Small numbers, and texts: what the disk holds is noise, or one byte.
        let parts = bytes.chunks(16).zip(0..);
        let used = parts.filter(|(part, _)| {
            part.iter().filter(|&&byte| byte == 0).count() > 5 && part.iter().any(|&byte| byte > 0)
        });
        let used = used.map(|(_, index)| index * 16).collect();
        (Changed { end: bytes.len() as u64, bytes, changes: Vec::new() }, used)
    };
    sets.into_iter().map(sample).collect()
}

#[test]
fn changed_bytes_of_other_formats_end_in_errors_or_in_other_bytes() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    for (set, (sample, used)) in foreign_samples().into_iter().enumerate() {
        assert!(image_over(Box::new(sample.clone()), None).is_ok(), "set {set}");
        let mut opened = 0;
        for seed in 0..300 {
            let mut random = Random::new(seed * 8 + set as u64);
            let mut changed = sample.clone();
            change(&mut changed, &used, &mut random);
            if let Ok(found) = image_over(Box::new(changed), None) {
                opened += 1;
                explore(&*found.image, &mut random);
            }
        }
        assert!(opened > 30, "set {set}: {opened}");
        for end in (0..sample.end).step_by(50_021) {
            let short = Changed { end, ..sample.clone() };
            if let Ok(found) = image_over(Box::new(short), None) {
                explore(&*found.image, &mut Random::new(end));
            }
        }
    }
}
