//! Chains of backing files.

use std::os::unix::fs::symlink;

use strongroom_disk::{Format, ImageError, ImageOptions, open_image};
use strongroom_testkit::{Random, skipped};

use super::{Images, TOOLS, named, scribbles};
use crate::world::{lacks, run};

fn backed(images: &Images, name: &str, backing: &str, format: &str, options: &str, size: &str) {
    images.create(name, "qcow2", &["-b", backing, "-F", format, "-o", options], size);
}

#[test]
fn chains_of_every_kind_of_image() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let (images, mut random) = (Images::new(), Random::new(1));
    images.create("0", "raw", &[], "2M");
    images.write("0", "raw", &scribbles(&mut random, 2 << 20, None, 20));
    let layers = [
        ("1", "0", "raw", "cluster_size=4k", 3 << 20),
        // What is behind the end of its backing file is zeros, though the one below has more.
        ("2", "1", "qcow2", "extended_l2=on", 1 << 20),
        ("3", "2", "qcow2", "compat=0.10", (3 << 20) + 512),
        ("4", "3", "qcow2", "compression_type=zstd", 4 << 20),
        ("5", "4", "qcow2", "extended_l2=on,cluster_size=16k", 4 << 20),
    ];
    for (seed, (name, backing, format, options, size)) in (0..).zip(layers) {
        backed(&images, name, backing, format, options, &size.to_string());
        images.judge(name, "qcow2", &mut random);
        let compress = (name == "4").then_some(64 << 10);
        images.write(name, "qcow2", &scribbles(&mut Random::new(seed), size, compress, 15));
        images.judge(name, "qcow2", &mut random);
    }
}

#[test]
fn names_are_relative_to_the_image() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let (images, mut random) = (Images::new(), Random::new(2));
    std::fs::create_dir(images.path("inner")).unwrap();
    images.create("base", "qcow2", &[], "1M");
    images.write("base", "qcow2", &scribbles(&mut random, 1 << 20, None, 9));
    let absolute = images.name("base");
    for backing in ["../base", &absolute, &format!("file:{absolute}")] {
        backed(&images, "inner/disk", backing, "qcow2", "compat=1.1", "1M");
        images.judge("inner/disk", "qcow2", &mut random);
    }
}

/// The guest of a raw disk can make it begin as an image over any file of the host.
#[test]
fn other_files_are_opened_only_if_the_format_is_named() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let images = Images::new();
    images.create("secret", "raw", &[], "1M");
    let secret = images.name("secret");
    backed(&images, "over", &secret, "raw", "compat=1.1", "1M");
    let data_file = format!("data_file={secret},data_file_raw=on");
    images.create("beside", "qcow2", &["-o", &data_file], "1M");
    let vmdk = format!(
        "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\n\
         createType=\"monolithicFlat\"\nRW 2048 FLAT \"{secret}\" 0\n"
    );
    std::fs::write(images.path("list"), vmdk).unwrap();
    for (name, format) in
        [("over", Format::Qcow2), ("beside", Format::Qcow2), ("list", Format::Vmdk)]
    {
        let error = open_image(&images.path(name), ImageOptions::default()).map(drop).unwrap_err();
        assert!(matches!(error, ImageError::FormatNotNamed { .. }), "{name}: {error}");
        let said = error.to_string();
        assert!(said.contains(&secret) && said.contains(&format!("--format {format}")), "{said}");
        open_image(&images.path(name), named(format)).unwrap();
        // A disk that is raw is its own bytes.
        let raw = open_image(&images.path(name), named(Format::Raw)).unwrap().image;
        assert_eq!(raw.size(), images.path(name).metadata().unwrap().len());
    }
}

#[test]
fn a_backing_file_without_a_format_is_not_guessed() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let (images, mut random) = (Images::new(), Random::new(2));
    images.create("base", "raw", &[], "1M");
    images.write("base", "raw", &scribbles(&mut random, 1 << 20, None, 9));
    images.create("disk", "qcow2", &[], "1M");
    // qemu-img writes no such image any more, unless it need not open the backing file.
    run("qemu-img", &["rebase", "-u", "-b", "base", "-F", "raw", &images.name("disk")]);
    let mut bytes = std::fs::read(images.path("disk")).unwrap();
    let magic = [0xe2, 0x79, 0x2a, 0xca];
    let at = bytes.windows(4).position(|four| four == magic).unwrap();
    bytes[at] = 0;
    std::fs::write(images.path("disk"), &bytes).unwrap();
    let path = images.path("disk");
    let error = open_image(&path, ImageOptions::default()).map(|_| ()).unwrap_err();
    assert!(matches!(error, ImageError::BackingFormat { .. }), "{error}");
    assert!(error.to_string().contains("qemu-img rebase -u -b base -F FORMAT"), "{error}");
    let options = ImageOptions { backing_format: Some(Format::Raw), ..named(Format::Qcow2) };
    let opened = open_image(&path, options).unwrap();
    let base = std::fs::read(images.path("base")).unwrap();
    super::assert_same(&*opened.image, &base, &mut random, "base");
}

/// An image whose backing file is called so, without asking what it is.
fn refers_to(images: &Images, name: &str, backing: &str) -> String {
    images.create(name, "qcow2", &["-u", "-b", backing, "-F", "qcow2"], "1M");
    match open_image(&images.path(name), named(Format::Qcow2)) {
        Ok(_) => "opened".into(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_cannot_be_followed_is_named() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let images = Images::new();
    for place in ["nbd:localhost:10809", "nbd://host/export", "http://host/image", "file:relative"]
    {
        let said = refers_to(&images, "disk", place);
        assert!(said.contains(place) && said.contains("only names of files"), "{said}");
    }
    let said = refers_to(&images, "disk", "json:{\"driver\":\"file\",\"filename\":\"x\"}");
    assert!(said.contains("json:") && said.contains("only names of files"), "{said}");
    let said = refers_to(&images, "disk", "absent");
    assert!(said.contains("disk needs another file") && said.contains("absent"), "{said}");
    run("mkfifo", &[&images.name("pipe")]);
    let said = refers_to(&images, "disk", "pipe");
    assert!(said.contains("neither a file nor a block device"), "{said}");
    let said = refers_to(&images, "disk", ".");
    assert!(said.contains("neither a file nor a block device"), "{said}");
    images.create("raw", "raw", &[], "1M");
    let said = refers_to(&images, "disk", "raw");
    assert!(said.contains("raw is not in the format qcow2"), "{said}");
}

#[test]
fn loops_and_endless_chains_are_found() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let images = Images::new();
    let said = refers_to(&images, "self", "self");
    assert!(said.contains("form a loop"), "{said}");
    symlink("b", images.path("link")).unwrap();
    refers_to(&images, "a", "link");
    let said = refers_to(&images, "b", "a");
    assert!(said.contains("form a loop"), "{said}");
    images.create("0", "qcow2", &[], "1M");
    let bytes = std::fs::read(images.path("0")).unwrap();
    for depth in 1..=64 {
        // By hand: a thousandth of the time that qemu-img takes.
        let mut image = bytes.clone();
        let below = (depth - 1).to_string();
        // Where the name is, and how long it is.
        image[14] = 2;
        image[19] = below.len() as u8;
        image[0x200..0x200 + below.len()].copy_from_slice(below.as_bytes());
        std::fs::write(images.path(&depth.to_string()), &image).unwrap();
    }
    let options = ImageOptions { backing_format: Some(Format::Qcow2), ..named(Format::Qcow2) };
    let longest = open_image(&images.path("63"), options).unwrap().image;
    longest.read_at(0, &mut [0; 4096]).unwrap();
    assert_eq!(longest.next_data(0).unwrap(), None);
    let error = open_image(&images.path("64"), options).map(|_| ()).unwrap_err();
    assert!(matches!(error, ImageError::TooDeep { max: 64, .. }), "{error}");
}
