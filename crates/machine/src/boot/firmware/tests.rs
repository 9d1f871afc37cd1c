//! Stored files of a firmware, and those that lie.
#![expect(clippy::big_endian_bytes, reason = "qcow2 is big-endian")]

use strongroom_disk::Qcow2Writer;

use super::*;

const CLUSTER: usize = 64 << 10;
const FLASH_BYTES: u64 = 8 * CLUSTER as u64;

fn file(name: &str, format: &str) -> FirmwareFile {
    FirmwareFile { name: name.to_owned(), path: String::new(), format: format.to_owned() }
}

/// An image with `words` in its third cluster.
fn qcow2(bytes: u64, words: &[u8]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = Qcow2Writer::create(file.reopen().unwrap(), bytes).unwrap();
    writer.write_at(2 * CLUSTER as u64, words).unwrap();
    writer.finish().unwrap();
    fs::read(file.path()).unwrap()
}

/// Bytes of a header, at a place.
fn with(image: &[u8], parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut image = image.to_vec();
    for (at, bytes) in parts {
        image[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    image
}

/// A header of 104 bytes with these extensions, and the name of a backing file behind them.
fn header(image: &[u8], extensions: &[(u32, &[u8])], backing: &[u8], incompatible: u64) -> Vec<u8> {
    let mut area = Vec::new();
    for (kind, bytes) in extensions {
        area.extend(kind.to_be_bytes());
        area.extend((bytes.len() as u32).to_be_bytes());
        area.extend_from_slice(bytes);
        area.resize(area.len().next_multiple_of(8), 0);
    }
    area.extend([0; 8]);
    let name_at = 104 + area.len() as u64;
    area.extend_from_slice(backing);
    let name_at = if backing.is_empty() { 0 } else { name_at };
    with(
        image,
        &[
            (8, &name_at.to_be_bytes()),
            (16, &(backing.len() as u32).to_be_bytes()),
            (72, &incompatible.to_be_bytes()),
            (100, &104_u32.to_be_bytes()),
            (104, &area),
        ],
    )
}

#[test]
fn what_was_stored_as_an_image_is_what_the_guest_sees() {
    let parent = tempfile::tempdir().unwrap();
    let mut folder = FirmwareFolder::create(parent.path().join("firmware")).unwrap();
    let image = qcow2(FLASH_BYTES, b"variables");
    folder.put(&file("vars.fd", "qcow2"), image.clone()).unwrap();
    let flash = fs::read(parent.path().join("firmware/vars.fd")).unwrap();
    assert_eq!(flash.len() as u64, FLASH_BYTES);
    assert_eq!(&flash[2 * CLUSTER..][..9], b"variables");
    assert!(!flash.windows(4).any(|word| word == b"QFI\xfb"));
    // Of a raw file, the bytes are those that it has, also if they look like an image.
    folder.put(&file("code.fd", "raw"), image.clone()).unwrap();
    assert_eq!(fs::read(parent.path().join("firmware/code.fd")).unwrap(), image);
    assert!(folder.path_of(&file("code.fd", "qcow2")).is_some());
    assert_eq!(folder.path_of(&file("other.fd", "raw")), None);
    for name in ["", "../outside", ".hidden", "/etc/x"] {
        folder.put(&file(name, "raw"), vec![1]).unwrap();
        assert_eq!(folder.path_of(&file(name, "raw")), None);
    }
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
}

/// Each of them would have QEMU open another file, the second and third for writing.
#[test]
fn an_image_that_names_a_file_of_the_host_is_refused() {
    const BACKING_FORMAT: u32 = 0xe279_2aca;
    const DATA_FILE: u32 = 0x4441_5441;
    let parent = tempfile::tempdir().unwrap();
    let secret = parent.path().join("secret");
    fs::write(&secret, vec![b'S'; FLASH_BYTES as usize]).unwrap();
    let secret = secret.to_str().unwrap().as_bytes();
    let json = [b"json:{\"driver\":\"file\",\"filename\":\"", secret, b"\"}"].concat();
    let image = qcow2(FLASH_BYTES, b"x");
    let raw: &[(u32, &[u8])] = &[(BACKING_FORMAT, b"raw")];
    let mut folder = FirmwareFolder::create(parent.path().join("firmware")).unwrap();
    for (case, hostile) in [
        ("a backing file", header(&image, raw, secret, 0)),
        ("a backing file without a format", header(&image, &[], secret, 0)),
        ("a backing file as JSON", header(&image, raw, &json, 0)),
        ("a backing file at a network", header(&image, raw, b"nbd://127.0.0.1/x", 0)),
        ("a data file", header(&image, &[(DATA_FILE, secret)], b"", 1 << 2)),
    ] {
        let error = folder.put(&file("vars.fd", "qcow2"), hostile).unwrap_err();
        assert!(matches!(error, FirmwareError::OtherFile { .. }), "{case}: {error}");
        assert_eq!(folder.path_of(&file("vars.fd", "qcow2")), None, "{case}");
    }
    for (case, hostile) in [
        ("a data file without a name", header(&image, &[], b"", 1 << 2)),
        ("no image", vec![0; CLUSTER]),
        ("an unknown feature", header(&image, &[], b"", 1 << 40)),
    ] {
        let error = folder.put(&file("vars.fd", "qcow2"), hostile).unwrap_err();
        assert!(matches!(error, FirmwareError::Image { .. }), "{case}: {error}");
    }
    let vast = qcow2(FIRMWARE_BYTES_MAX + CLUSTER as u64, b"x");
    let error = folder.put(&file("vars.fd", "qcow2"), vast).unwrap_err();
    assert!(matches!(error, FirmwareError::TooLong { .. }), "{error}");
    assert_eq!(folder.path_of(&file("vars.fd", "qcow2")), None);
    // Nor are many files together.
    let mut folder = FirmwareFolder::create(parent.path().join("other")).unwrap();
    let half = qcow2(FIRMWARE_BYTES_MAX / 2 + CLUSTER as u64, b"x");
    folder.put(&file("one.fd", "qcow2"), half.clone()).unwrap();
    let error = folder.put(&file("two.fd", "qcow2"), half).unwrap_err();
    assert!(matches!(error, FirmwareError::TooLong { .. }), "{error}");
}
