//! Bitmaps that `qemu-img bitmap` makes and that writes of `qemu-io` fill.

use strongroom_disk::{ImageError, Qcow2};
use strongroom_testkit::{Random, skipped};

use super::{Images, TOOLS, shown};
use crate::world::{lacks, run};

fn add(images: &Images, name: &str, granularity: &str) {
    run("qemu-img", &["bitmap", "--add", "-g", granularity, &images.name("disk"), name]);
}

fn open(images: &Images) -> Qcow2 {
    Qcow2::open(&images.path("disk"), None).unwrap()
}

#[test]
fn bitmaps_have_what_was_written_after_they_were_made() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    for (seed, options) in (0..).zip(["cluster_size=64k", "cluster_size=512", "extended_l2=on"]) {
        let (images, mut random) = (Images::new(), Random::new(seed));
        let size = (24 << 20) + 512;
        images.create("disk", "qcow2", &["-o", options], &size.to_string());
        assert_eq!(open(&images).bitmaps().unwrap(), []);
        let all = [("fine", "512", 512), ("middle", "64K", 64 << 10), ("coarse", "1M", 1 << 20)];
        let mut written: Vec<(u64, u64)> = Vec::new();
        let mut begins = Vec::new();
        for (name, granularity, _) in all {
            add(&images, name, granularity);
            begins.push(written.len());
            for _ in 0..4 {
                let start = random.below((size - 512) / 512) * 512;
                let length = ((1 + random.below(900)) * 512).min(size - start);
                written.push((start, length));
                let command = format!("write -P {} {start} {length}", 1 + random.below(255));
                images.write("disk", "qcow2", &[command]);
            }
        }
        let image = open(&images);
        let found = image.bitmaps().unwrap();
        assert_eq!(found.len(), 3);
        for ((bitmap, (name, _, granularity)), begin) in found.iter().zip(all).zip(begins) {
            assert_eq!((&bitmap.name[..], bitmap.granularity_bytes), (name, granularity));
            assert!(bitmap.is_recording && !bitmap.is_inconsistent);
            let bits = size.div_ceil(granularity);
            let mut expected = vec![false; bits as usize];
            for (start, length) in &written[begin..] {
                let (first, last) = (start / granularity, (start + length - 1) / granularity);
                (first..=last).for_each(|bit| expected[bit as usize] = true);
            }
            let mut dirty = vec![false; bits as usize];
            let mut end = None;
            for range in image.dirty(name).unwrap() {
                let range = range.unwrap();
                assert!(range.start < range.end && end.is_none_or(|end| end < range.start));
                assert!(range.end.is_multiple_of(granularity) || range.end == size);
                end = Some(range.end);
                let bits = range.start / granularity..range.end.div_ceil(granularity);
                bits.for_each(|bit| dirty[bit as usize] = true);
            }
            assert!(dirty == expected, "{options}, {name}");
        }
    }
}

#[test]
fn a_bitmap_over_all_of_a_large_disk_takes_little_memory() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let images = Images::new();
    images.create("disk", "qcow2", &[], "2T");
    add(&images, "night", "64K");
    let all: Vec<_> = open(&images).dirty("night").unwrap().collect();
    assert_eq!(all.len(), 0);
    images.write("disk", "qcow2", &["write -z 0 1G".into(), "write 2040G 1M".into()]);
    let image = open(&images);
    let all: Vec<_> = image.dirty("night").unwrap().map(Result::unwrap).collect();
    let (first, second) = (0..1 << 30, 2040 << 30..(2040 << 30) + (1 << 20));
    assert_eq!(all, [first, second]);
}

#[test]
fn a_bitmap_that_was_not_written_back_is_refused() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let images = Images::new();
    images.create("disk", "qcow2", &[], "8M");
    add(&images, "quiet", "64K");
    run("qemu-img", &["bitmap", "--disable", &images.name("disk"), "quiet"]);
    add(&images, "night", "64K");
    assert!(!open(&images).bitmaps().unwrap()[0].is_recording);
    // A machine that dies has marked its bitmaps as in use.
    let path = shown(&images.path("disk"));
    let mut arguments = vec!["-f", "qcow2", "-c", "write 0 1M", "-c", "flush"];
    arguments.extend(["-c", "sigraise 9", &path]);
    std::process::Command::new("qemu-io").args(&arguments).output().unwrap();
    let image = open(&images);
    let bitmaps = image.bitmaps().unwrap();
    assert!(bitmaps.iter().all(|bitmap| bitmap.is_inconsistent), "{bitmaps:?}");
    let error = image.dirty("night").map(|_| ()).unwrap_err();
    assert!(matches!(error, ImageError::InconsistentBitmap { .. }), "{error}");
    assert!(matches!(image.dirty("other"), Err(ImageError::NoBitmap { .. })));
}
