//! Shadows and the memory that they copy.

use rustix::fs::fstat;
use rustix::io::pread;

use super::*;

fn shadow_of(memory: &mut [u8]) -> Shadow {
    let address = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: each test keeps the memory until its shadow is dropped, and has one thread.
    unsafe { Shadow::new(address, memory.len()).unwrap() }
}

fn content(shadow: &Shadow) -> Vec<u8> {
    let mut bytes = vec![0; shadow.bytes];
    assert_eq!(pread(shadow.file(), &mut bytes, 0).unwrap(), bytes.len());
    bytes
}

#[test]
fn only_pages_that_differ_are_copied() {
    for bytes in [1, PAGE_BYTES - 1, PAGE_BYTES, 40 * PAGE_BYTES + 5] {
        let mut memory: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8 + 1).collect();
        let mut shadow = shadow_of(&mut memory);
        assert_eq!(shadow.capture().unwrap(), bytes as u64);
        assert_eq!(content(&shadow), memory);
        assert_eq!(shadow.capture().unwrap(), 0);

        *memory.last_mut().unwrap() ^= 1;
        let last_page = bytes - (bytes - 1) / PAGE_BYTES * PAGE_BYTES;
        assert_eq!(shadow.capture().unwrap(), last_page as u64);
        assert_eq!(content(&shadow), memory);
    }
}

#[test]
fn memory_of_zeros_has_no_copy() {
    let mut memory = vec![0; 100 * PAGE_BYTES];
    memory[50 * PAGE_BYTES] = 1;
    let mut shadow = shadow_of(&mut memory);
    assert_eq!(shadow.capture().unwrap(), PAGE_BYTES as u64);
    assert_eq!(fstat(shadow.file()).unwrap().st_blocks, PAGE_BYTES as i64 / 512);

    // What became zero is written, since the shadow has something else.
    memory[50 * PAGE_BYTES] = 0;
    assert_eq!(shadow.capture().unwrap(), PAGE_BYTES as u64);
    assert_eq!(content(&shadow), memory);
}

#[test]
fn what_was_filled_comes_back() {
    let mut memory = vec![7; 3 * PAGE_BYTES + 1];
    let mut shadow = shadow_of(&mut memory);
    shadow.capture().unwrap();
    assert_eq!(pwrite(shadow.file(), &[9, 9], PAGE_BYTES as u64 - 1).unwrap(), 2);
    shadow.put_back();
    let mut expected = vec![7; 3 * PAGE_BYTES + 1];
    expected[PAGE_BYTES - 1..PAGE_BYTES + 1].fill(9);
    assert_eq!(memory, expected);
}

#[test]
fn what_was_filled_sparsely_stays_sparse() {
    let mut memory = vec![7; 100 * PAGE_BYTES];
    let mut shadow = shadow_of(&mut memory);
    assert_eq!(pwrite(shadow.file(), &[9], 60 * PAGE_BYTES as u64).unwrap(), 1);
    shadow.put_back();
    let mut expected = vec![0; 100 * PAGE_BYTES];
    expected[60 * PAGE_BYTES] = 9;
    assert_eq!(memory, expected);
    assert_eq!(shadow.capture().unwrap(), 0);
    assert!(fstat(shadow.file()).unwrap().st_blocks <= PAGE_BYTES as i64 / 512);
}

#[test]
fn what_was_filled_in_vain_is_not_in_the_next_copy() {
    let mut memory = vec![0; 100 * PAGE_BYTES];
    let mut shadow = shadow_of(&mut memory);
    assert_eq!(pwrite(shadow.file(), &[9], 60 * PAGE_BYTES as u64).unwrap(), 1);
    shadow.look_for_holes();
    assert_eq!(shadow.capture().unwrap(), PAGE_BYTES as u64);
    assert_eq!(content(&shadow), memory);
}

#[test]
fn a_shadow_keeps_its_length() {
    let mut memory = vec![7; PAGE_BYTES];
    let shadow = shadow_of(&mut memory);
    assert_eq!(ftruncate(shadow.file(), 1), Err(Errno::PERM));
    assert_eq!(ftruncate(shadow.file(), 1 << 20), Err(Errno::PERM));
}
