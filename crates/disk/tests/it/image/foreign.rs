//! Images of other systems, and those that are refused.

use strongroom_disk::{Format, ImageError, ImageOptions, open_image};
use strongroom_testkit::{Random, skipped};

use super::{Images, TOOLS, assert_same, named, scribbles};
use crate::world::{cannot_mount, lacks, run};

/// Makes an image of another format by conversion, and by writing to it if QEMU can.
fn check(format: &str, qemu: &str, options: &str, can_write: bool, random: &mut Random) {
    let size = (5 << 20) + 512;
    let mut disk = vec![0; size];
    for _ in 0..8 {
        let from = random.below(size as u64) as usize;
        let count = random.below(400_000).min((size - from) as u64) as usize;
        disk[from..from + count].copy_from_slice(&random.content(count));
    }
    let images = Images::new();
    std::fs::write(images.path("raw"), &disk).unwrap();
    let (raw, name) = (images.name("raw"), images.name("disk"));
    run("qemu-img", &["convert", "-f", "raw", "-O", qemu, "-o", options, &raw, &name]);
    let whole = images.open("disk");
    assert_eq!(whole.format.name(), format);
    // QEMU rounds the size of some up.
    let expected = images.as_qemu_reads("disk", qemu);
    assert!(expected.starts_with(&disk), "{options}");
    assert_same(&*whole.image, &expected, random, options);
    if can_write {
        images.write("disk", qemu, &scribbles(random, size as u64, None, 25));
        let expected = images.as_qemu_reads("disk", qemu);
        assert_same(&*images.open("disk").image, &expected, random, options);
    }
}

#[test]
fn vhd() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let mut random = Random::new(1);
    for subformat in ["dynamic", "fixed"] {
        check("vhd", "vpc", &format!("subformat={subformat}"), true, &mut random);
        let options = format!("subformat={subformat},force_size=on");
        check("vhd", "vpc", &options, true, &mut random);
    }
}

#[test]
fn vmdk() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let mut random = Random::new(2);
    for subformat in ["monolithicSparse", "monolithicFlat"] {
        check("vmdk", "vmdk", &format!("subformat={subformat}"), true, &mut random);
    }
    check("vmdk", "vmdk", "subformat=monolithicSparse,zeroed_grain=on", true, &mut random);
    check("vmdk", "vmdk", "subformat=twoGbMaxExtentSparse", false, &mut random);
    check("vmdk", "vmdk", "subformat=twoGbMaxExtentFlat", false, &mut random);
    check("vmdk", "vmdk", "subformat=streamOptimized", false, &mut random);
    check("vmdk", "vmdk", "compat6=on", true, &mut random);
}

#[test]
fn vmdk_with_a_parent_is_refused() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let images = Images::new();
    images.create("base", "vmdk", &[], "1M");
    images.create("disk", "vmdk", &["-b", &images.name("base"), "-F", "vmdk"], "1M");
    let error = open_image(&images.path("disk"), ImageOptions::default()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("a parent disk"), "{error}");
}

#[test]
fn vmdk_of_several_extents() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    for subformat in ["twoGbMaxExtentSparse", "twoGbMaxExtentFlat"] {
        let images = Images::new();
        let options = format!("subformat={subformat}");
        images.create("disk.vmdk", "vmdk", &["-o", &options], "5G");
        let edge = 2 << 30;
        let write = |at: u64| format!("write -P 7 {at} 1M");
        images.write(
            "disk.vmdk",
            "vmdk",
            &[write(edge - (1 << 19)), write(2 * edge), write(5 << 20)],
        );
        let image = images.open("disk.vmdk").image;
        assert_eq!(image.size(), 5 << 30);
        let mut bytes = [0; 1 << 20];
        image.read_at(edge - (1 << 19), &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 7));
        let data: u64 = super::data_of(&*image).iter().map(|range| range.end - range.start).sum();
        assert!((3 << 20..4 << 20).contains(&data), "{data}");
        // An extent alone is no disk.
        if subformat == "twoGbMaxExtentSparse" {
            let error = open_image(&images.path("disk-s001.vmdk"), ImageOptions::default());
            let error = error.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("name the file that lists the extents"), "{error}");
        }
        std::fs::remove_file(images.path(match subformat {
            "twoGbMaxExtentSparse" => "disk-s002.vmdk",
            _ => "disk-f002.vmdk",
        }))
        .unwrap();
        let error = open_image(&images.path("disk.vmdk"), named(Format::Vmdk));
        assert!(matches!(error, Err(ImageError::Needed { .. })));
    }
}

#[test]
fn vhdx() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let mut random = Random::new(3);
    for options in ["subformat=dynamic", "subformat=fixed", "subformat=dynamic,block_size=16M"] {
        check("vhdx", "vhdx", options, true, &mut random);
    }
    // More blocks than one map of sectors is for.
    let images = Images::new();
    images.create("disk", "vhdx", &["-o", "block_size=256M"], "40T");
    let at = (39 << 40) + 512;
    images.write("disk", "vhdx", &[format!("write -P 7 {at} 1M")]);
    let image = images.open("disk").image;
    let mut byte = [0];
    image.read_at(at, &mut byte).unwrap();
    assert_eq!(byte, [7]);
    assert_eq!(image.next_data(0).unwrap().unwrap().start, 39 << 40);
}

#[test]
fn vhdx_with_a_log_is_refused() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let images = Images::new();
    images.create("disk", "vhdx", &[], "8M");
    let path = images.name("disk");
    // Both headers name a log, with the checksums that they have then.
    let mut bytes = std::fs::read(&path).unwrap();
    for header in [64 << 10, 128 << 10] {
        let header = &mut bytes[header..header + 4096];
        header[48..64].fill(7);
        header[4..8].fill(0);
        let crc = crc32c::crc32c(header);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(&path, &bytes).unwrap();
    let error = open_image(&images.path("disk"), ImageOptions::default()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("a log that was not replayed"), "{error}");
}

#[test]
fn formats_that_are_not_read_are_named_with_the_way_out() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let images = Images::new();
    for (name, format) in
        [("qed", "QED"), ("vdi", "VDI"), ("parallels", "Parallels"), ("qcow", "qcow")]
    {
        images.create("disk", name, &[], "8M");
        let options = ImageOptions::default();
        let error = open_image(&images.path("disk"), options).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(&format!("the format {format},")), "{error}");
        assert!(error.contains("qemu-img convert -O qcow2"), "{error}");
        // Its bytes as they are, if that is what is wanted.
        let options = ImageOptions { format: Some(Format::Raw), ..options };
        let image = open_image(&images.path("disk"), options).unwrap().image;
        assert_eq!(image.size(), images.path("disk").metadata().unwrap().len());
    }
}

#[test]
fn a_format_that_is_named_is_not_guessed() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let images = Images::new();
    images.create("disk", "qcow2", &[], "1M");
    let open =
        |format| open_image(&images.path("disk"), ImageOptions { format, backing_format: None });
    assert_eq!(open(None).unwrap().format, Format::Qcow2);
    assert_eq!(open(Some(Format::Raw)).unwrap().format, Format::Raw);
    assert!(matches!(open(Some(Format::Vhd)), Err(ImageError::OtherFormat { .. })));
    std::fs::write(images.path("disk"), [0; 3000]).unwrap();
    assert!(matches!(open(Some(Format::Qcow2)), Err(ImageError::OtherFormat { .. })));
    assert_eq!(open(None).unwrap().image.size(), 3000);
}

#[test]
fn what_qcow2_images_say_against_being_read() {
    if skipped(lacks(&TOOLS)) {
        return;
    }
    let images = Images::new();
    images.create("disk", "qcow2", &[], "1M");
    let bytes = std::fs::read(images.path("disk")).unwrap();
    let error = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut changed = bytes.clone();
        change(&mut changed);
        std::fs::write(images.path("disk"), changed).unwrap();
        let error = open_image(&images.path("disk"), ImageOptions::default());
        error.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(error(&|bytes| bytes[79] = 1), Ok(()), "it was not closed");
    let corrupt = error(&|bytes| bytes[79] = 2).unwrap_err();
    assert!(corrupt.contains("marked") && corrupt.contains("qemu-img check -r all"), "{corrupt}");
    let unknown = error(&|bytes| bytes[77] = 6).unwrap_err();
    assert!(unknown.contains("features number 17, number 18,"), "{unknown}");
    let named = error(&|bytes| {
        bytes[77] = 1;
        // The bit of the first name in the table becomes that of the unknown one.
        let at = bytes.windows(9).position(|nine| nine == b"dirty bit").unwrap();
        bytes[at - 1] = 16;
    });
    let named = named.unwrap_err();
    assert!(named.contains("the incompatible feature \"dirty bit\","), "{named}");
    let data_file = error(&|bytes| bytes[79] = 4).unwrap_err();
    assert!(data_file.contains("a data file that its header does not name"), "{data_file}");
    assert!(error(&|bytes| bytes[35] = 1).unwrap_err().contains("has encryption,"));
    assert!(error(&|bytes| bytes[35] = 2).unwrap_err().contains("has encryption by LUKS,"));
    assert!(error(&|bytes| bytes[7] = 4).unwrap_err().contains("version 4"));
}

#[test]
fn an_image_on_a_block_device() {
    if skipped(lacks(&TOOLS).or(cannot_mount())) {
        return;
    }
    let (images, mut random) = (Images::new(), Random::new(4));
    images.create("disk", "qcow2", &[], "1M");
    images.write("disk", "qcow2", &scribbles(&mut random, 1 << 20, None, 20));
    let expected = images.as_qemu_reads("disk", "qcow2");
    let device = run("losetup", &["-f", "-r", "--show", &images.name("disk")]);
    let device = device.trim();
    // The same device as the backing file of an image.
    images.create("above", "qcow2", &["-b", device, "-F", "qcow2"], "1M");
    for path in [std::path::Path::new(device), &images.path("above")] {
        let opened = open_image(path, named(Format::Qcow2)).unwrap();
        assert_same(&*opened.image, &expected, &mut random, device);
    }
    run("losetup", &["-d", device]);
}
