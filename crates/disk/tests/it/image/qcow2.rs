//! qcow2 images with every combination of features that `qemu-img` makes.

use strongroom_disk::Image;
use strongroom_testkit::{Random, skipped};

use super::{Images, TOOLS, assert_same, scribbles};
use crate::world::{lacks, run};

/// Makes an image with these options, writes here and there, and compares.
fn check(options: &str, size: u64, compress: Option<u64>, seed: u64) {
    let (images, mut random) = (Images::new(), Random::new(seed));
    let options = options.replace("DATA", &images.name("data"));
    images.create("disk", "qcow2", &["-o", &options], &size.to_string());
    images.judge("disk", "qcow2", &mut random);
    images.write("disk", "qcow2", &scribbles(&mut random, size, compress, 40));
    images.judge("disk", "qcow2", &mut random);
    if !options.contains("data_file") {
        images.judge_map("disk", "qcow2");
    }
}

#[test]
fn clusters_of_every_size_in_both_versions() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let sizes = ["512", "1k", "4k", "64k", "512k", "2M"];
    for (seed, cluster) in (0..).zip(sizes) {
        check(&format!("compat=0.10,cluster_size={cluster}"), 3 << 20, None, seed);
        check(&format!("compat=1.1,cluster_size={cluster}"), 3 << 20, None, 100 + seed);
    }
    // A disk that ends inside of a cluster.
    check("compat=1.1", (5 << 20) + 512, None, 7);
    check("compat=0.10,cluster_size=2M", (5 << 20) + 512, None, 8);
    check("compat=1.1,lazy_refcounts=on,refcount_bits=1", 3 << 20, None, 9);
}

#[test]
fn subclusters() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    for (seed, cluster) in (0..).zip(["16k", "64k", "128k", "2M"]) {
        check(&format!("extended_l2=on,cluster_size={cluster}"), (5 << 20) + 1024, None, seed);
    }
    check("extended_l2=on,cluster_size=64k", 3 << 20, Some(64 << 10), 5);
}

#[test]
fn compressed_clusters() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    for (seed, kind) in (0..).zip(["zlib", "zstd"]) {
        for (cluster, bytes) in [("512", 512), ("4k", 4 << 10), ("64k", 64 << 10), ("2M", 2 << 20)]
        {
            let options = format!("compression_type={kind},cluster_size={cluster}");
            check(&options, 3 << 20, Some(bytes), seed);
        }
    }
    check("compat=0.10", (3 << 20) + 512, Some(64 << 10), 9);
}

#[test]
fn files_that_are_converted_with_compression() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let (images, mut random) = (Images::new(), Random::new(1));
    let size = (3 << 20) + 1536;
    let mut disk = Vec::new();
    while disk.len() < size {
        disk.extend(random.content(70_000));
    }
    disk.truncate(size);
    disk[1 << 20..][..500_000].fill(0);
    std::fs::write(images.path("raw"), &disk).unwrap();
    for options in ["compression_type=zlib", "compression_type=zstd,cluster_size=2M"] {
        let (raw, to) = (images.name("raw"), images.name("disk"));
        run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", "-c", "-o", options, &raw, &to]);
        assert_same(&*images.open("disk").image, &disk, &mut random, options);
        images.judge("disk", "qcow2", &mut random);
    }
}

#[test]
fn clusters_in_a_data_file() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    check("data_file=DATA", 3 << 20, None, 1);
    check("data_file=DATA,data_file_raw=on", 3 << 20, None, 2);
    check("data_file=DATA,extended_l2=on", (3 << 20) + 512, None, 3);
    check("data_file=DATA,data_file_raw=on,preallocation=metadata", 3 << 20, None, 4);
    check("data_file=DATA,cluster_size=512", 1 << 20, None, 5);
}

#[test]
fn room_that_was_allocated_in_advance() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    for (seed, mode) in (0..).zip(["metadata", "falloc", "full"]) {
        check(&format!("preallocation={mode}"), 5 << 20, None, seed);
        check(&format!("preallocation={mode},extended_l2=on"), (3 << 20) + 512, None, 10 + seed);
    }
    check("preallocation=metadata,compat=0.10,cluster_size=4k", 3 << 20, None, 20);
}

#[test]
fn snapshots_inside_are_not_the_disk() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    for options in ["compat=1.1", "compat=0.10,cluster_size=4k", "extended_l2=on"] {
        let (images, mut random) = (Images::new(), Random::new(3));
        images.create("disk", "qcow2", &["-o", options], "3M");
        for round in 0..3 {
            images.write("disk", "qcow2", &scribbles(&mut random, 3 << 20, None, 12));
            let name = format!("before {round}");
            run("qemu-img", &["snapshot", "-c", &name, &images.name("disk")]);
        }
        images.judge("disk", "qcow2", &mut random);
        run("qemu-img", &["snapshot", "-a", "before 0", &images.name("disk")]);
        images.judge("disk", "qcow2", &mut random);
        images.write("disk", "qcow2", &scribbles(&mut random, 3 << 20, None, 12));
        images.judge("disk", "qcow2", &mut random);
    }
}

#[test]
fn a_disk_of_many_terabytes_takes_no_time() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let images = Images::new();
    images.create("disk", "qcow2", &["-o", "cluster_size=2M"], "60T");
    images.write("disk", "qcow2", &["write -P 7 50T 1M".into(), "write -P 8 59T 512".into()]);
    let image = images.open("disk").image;
    let (first, second) = (50 << 40, 59 << 40);
    assert_eq!(image.next_data(0).unwrap().unwrap().start, first);
    assert_eq!(image.next_data(first + (2 << 20)).unwrap().unwrap().start, second);
    assert_eq!(image.next_data(second + (2 << 20)).unwrap(), None);
    let mut bytes = [0; 2];
    image.read_at(second + 511, &mut bytes).unwrap();
    assert_eq!(bytes, [8, 0]);
    // The same with the smallest clusters.
    images.create("disk", "qcow2", &["-o", "cluster_size=512"], "6G");
    images.write("disk", "qcow2", &["write -P 7 5G 1M".into()]);
    assert_eq!(images.open("disk").image.next_data(5).unwrap().unwrap().start, 5 << 30);
}

#[test]
fn several_threads_read_one_image() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let (images, mut random) = (Images::new(), Random::new(5));
    images.create("disk", "qcow2", &["-o", "cluster_size=4k"], "4M");
    images.write("disk", "qcow2", &scribbles(&mut random, 4 << 20, Some(4096), 60));
    let expected = images.as_qemu_reads("disk", "qcow2");
    let image = images.open("disk").image;
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (image, expected): (&dyn Image, _) = (&*image, &expected);
            scope.spawn(move || assert_same(image, expected, &mut Random::new(seed), "threads"));
        }
    });
}
