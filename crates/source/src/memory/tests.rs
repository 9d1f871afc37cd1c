//! Regions of shared memory, and what their owners do to them meanwhile.

use std::os::fd::AsRawFd;

use strongroom_testkit::Random;

use super::*;

fn shared(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("region");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn what_is_no_region_is_refused_by_its_kind() {
    let (folder, path) = shared(b"x");
    let refused = |path: &Path| MemoryFile::open(path).unwrap_err().to_string();
    assert_eq!(refused(folder.path()), "it is a directory, and no region of memory");
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
    assert_eq!(refused(&pipe), "it is a named pipe, and no region of memory");
    std::fs::remove_file(&path).unwrap();
    assert!(refused(&path).starts_with("No such file"));
}

#[test]
fn a_region_that_shrinks_grows_or_is_replaced_is_named_so() {
    let bytes = Random::new(3).noise(100_000);
    let (_folder, path) = shared(&bytes);
    let region = MemoryFile::open(&path).unwrap();
    let mut read = vec![0; bytes.len()];
    region.read_at(0, &mut read).unwrap();
    assert_eq!(read, bytes);
    region.check().unwrap();
    let owner = File::options().write(true).open(&path).unwrap();
    owner.set_len(200_000).unwrap();
    assert!(region.check().unwrap_err().to_string().starts_with("it became longer"));
    owner.set_len(50_000).unwrap();
    let error = region.read_at(0, &mut read).unwrap_err();
    assert!(error.to_string().starts_with("it became shorter"), "{error}");
    // What is behind the end is no data, as in a hole, so it may never be read.
    assert!(!region.has_data(65_536..100_000));
    assert!(region.check().unwrap_err().to_string().starts_with("it became shorter"));
    let region = MemoryFile::open(&path).unwrap();
    std::fs::write(path.with_extension("new"), &bytes).unwrap();
    std::fs::rename(path.with_extension("new"), &path).unwrap();
    assert!(region.check().unwrap_err().to_string().starts_with("another file took its name"));
    std::fs::remove_file(&path).unwrap();
    assert!(region.check().unwrap_err().to_string().starts_with("it was removed"));
}

/// The kernel's own error: at the first address of a process nothing is mapped.
#[test]
fn what_the_kernel_cannot_read_is_an_error_of_its_own() {
    let file = File::open("/proc/self/mem").unwrap();
    // A file of the kernel is refused when it is opened.
    let metadata = metadata_of(&tempfile::tempfile().unwrap()).unwrap();
    let (path, is_held, is_shared) = (None, false, true);
    let region = MemoryFile { path, file, bytes: 4096, metadata, is_held, is_shared };
    let error = region.read_at(0, &mut [0; 4096]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{error}");
}

#[test]
fn a_memfd_is_a_region_and_its_holes_are_known() {
    let fd = rustix::fs::memfd_create("region", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let owner = File::from(fd);
    owner.set_len(1 << 30).unwrap();
    owner.write_all_at(b"x", 512 << 20).unwrap();
    let path = format!("/proc/self/fd/{}", owner.as_raw_fd());
    let region = MemoryFile::open(Path::new(&path)).unwrap();
    assert_eq!(region.bytes(), 1 << 30);
    assert!(!region.has_data(0..512 << 20));
    assert!(region.has_data(0..(512 << 20) + 1));
    assert!(!region.has_data((513 << 20)..1 << 30));
    region.check().unwrap();
}
