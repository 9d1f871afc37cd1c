//! Images of disks that another program wrote: qcow2 with its bitmaps, VMDK, VHDX, VHD.
//!
//! For any bytes, each call ends, within bounded memory. The input is a list of patches of a file of
//! zeros that ends with the last of them, so that a mutation changes a field, and a seed is a small
//! image. Checksums are made right, as most mutations would end at them.

#![no_main]

use std::process::Command;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use strongroom_disk::{Image, Qcow2, ReadAt, image_over};
use strongroom_fuzz::{Input, measure, write_seeds_if_asked};

const FILE_BYTES_MAX: usize = 10 << 20;
const PATCH_BYTES: usize = 256;
/// Both caches, a compressed cluster and what becomes of it, a directory of bitmaps.
const MEMORY_BYTES_MAX: usize = 24 << 20;

fuzz_target!(init: write_seeds_if_asked(seeds), |data: &[u8]| {
    let file = Arc::new(file(&mut Input::new(data)));
    let measured = measure(|| {
        if let Ok(opened) = image_over(Box::new(File(file.clone())), None) {
            explore(&*opened.image);
        }
        if let Ok(image) = Qcow2::over(Box::new(File(file.clone()))) {
            explore_bitmaps(&image);
        }
    });
    assert!(measured.peak_bytes < MEMORY_BYTES_MAX, "{} bytes", measured.peak_bytes);
});

/// The bytes of an image. They are shared, so that they are not counted.
struct File(Arc<Vec<u8>>);

impl ReadAt for File {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(offset, buffer)
    }
}

impl Image for File {}

/// A file of zeros with patches: a place of three bytes, a length, and the bytes.
fn file(input: &mut Input<'_>) -> Vec<u8> {
    let mut file = Vec::new();
    while !input.is_empty() {
        let [low, middle, high, length] = input.array();
        let at = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
        let at = at % (FILE_BYTES_MAX - PATCH_BYTES);
        let bytes = input.bytes(usize::from(length) + 1);
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }
    if file.starts_with(b"vhdxfile") {
        for (at, bytes) in [(64, 4), (128, 4), (192, 64), (256, 64)] {
            let Some(part) = file.get_mut(at << 10..(at + bytes) << 10) else { continue };
            part[4..8].fill(0);
            let crc = crc32c::crc32c(part);
            part[4..8].copy_from_slice(&crc.to_le_bytes());
        }
    }
    let footer = file.len().saturating_sub(512);
    for (at, bytes, checksum) in [(footer, 512, 64), (512, 1024, 36)] {
        let Some(part) = file.get_mut(at..at + bytes) else { continue };
        if part.starts_with(b"conectix") || part.starts_with(b"cxsparse") {
            part[checksum..checksum + 4].fill(0);
            let sum = !part.iter().map(|&byte| u32::from(byte)).sum::<u32>();
            part[checksum..checksum + 4].copy_from_slice(&sum.swap_bytes().to_le_bytes());
        }
    }
    file
}

fn explore(image: &dyn Image) {
    let size = image.size();
    let mut buffer = vec![0; 70_000];
    let mut read = |at: u64| {
        let count = size.saturating_sub(at).min(buffer.len() as u64) as usize;
        drop(image.read_at(at, &mut buffer[..count]));
    };
    [0, size / 3, size.saturating_sub(9)].into_iter().for_each(&mut read);
    assert!(image.read_at(size, &mut [0]).is_err());
    let mut at = 0;
    for _ in 0..50 {
        let Ok(Some(data)) = image.next_data(at) else { break };
        assert!(at <= data.start && data.start < data.end && data.end <= size);
        read(data.start);
        at = data.end;
    }
}

fn explore_bitmaps(image: &Qcow2) {
    for bitmap in image.bitmaps().unwrap_or_default().iter().take(8) {
        let Ok(ranges) = image.dirty(&bitmap.name) else { continue };
        let mut end = None;
        for range in ranges.take(200).flatten() {
            assert!(range.start < range.end && range.end <= image.size());
            assert!(end.is_none_or(|end| end < range.start));
            end = Some(range.end);
        }
    }
}

/// The patches that make a file. The last is whole, as the file ends there.
fn patches(file: &[u8]) -> Vec<u8> {
    let mut patches = Vec::new();
    let parts = file.chunks(PATCH_BYTES).count();
    for (index, part) in file.chunks(PATCH_BYTES).enumerate() {
        let last = part.iter().rposition(|byte| *byte != 0);
        let last = if index + 1 == parts { Some(part.len() - 1) } else { last };
        let Some(last) = last else { continue };
        let at = ((index * PATCH_BYTES) as u32).to_le_bytes();
        patches.extend([at[0], at[1], at[2], last as u8]);
        patches.extend(&part[..=last]);
    }
    patches
}

/// Images of QEMU, if it is installed; a header by hand in any case.
fn seeds() -> Vec<Vec<u8>> {
    let mut header = vec![0; 1024];
    header[..8].copy_from_slice(b"QFI\xfb\0\0\0\x02");
    header[23] = 9;
    let sets = [
        ("qcow2", "cluster_size=512,compat=0.10", true),
        ("qcow2", "cluster_size=4k", true),
        ("qcow2", "cluster_size=512,compression_type=zstd", true),
        ("qcow2", "cluster_size=16k,extended_l2=on", false),
        ("vmdk", "subformat=monolithicSparse", false),
        ("vmdk", "subformat=streamOptimized", false),
        ("vpc", "subformat=dynamic", false),
        ("vhdx", "subformat=dynamic,block_size=1M", false),
    ];
    let mut seeds = vec![patches(&header)];
    let images = sets.into_iter().filter_map(|(format, options, compress)| {
        image(format, options, compress).filter(|image| image.len() < FILE_BYTES_MAX)
    });
    seeds.extend(images.map(|image| patches(&image)));
    seeds
}

fn image(format: &str, options: &str, compress: bool) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().ok()?;
    let (raw, path) = (folder.path().join("raw"), folder.path().join("image"));
    let mut disk = vec![0; 64 << 10];
    disk[9_000..9_700].fill(7);
    disk[20_480..20_992].fill(8);
    std::fs::write(&raw, disk).ok()?;
    let mut tool = Command::new("qemu-img");
    tool.args(["convert", "-f", "raw", "-O", format, "-o", options]);
    if compress {
        tool.arg("-c");
    }
    if !tool.arg(&raw).arg(&path).status().ok()?.success() {
        return None;
    }
    if format == "qcow2" && !options.contains("0.10") {
        let mut tool = Command::new("qemu-img");
        tool.args(["bitmap", "--add", "-g", "512"]).arg(&path).arg("night").status().ok()?;
        let mut tool = Command::new("qemu-io");
        tool.args(["-f", "qcow2", "-c", "write 30000 1000"]).arg(&path).output().ok()?;
    }
    std::fs::read(&path).ok()
}
