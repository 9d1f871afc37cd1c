//! Memory of large buffers, used again: a block or a summary that is opened takes over what an earlier
//! one has given back.
//!
//! Blocks in a cache come and go in any order, and hardly two are equally long. An allocator then
//! leaves holes between them that are a little too short for the next: marking 10^8 chunks held 140 MiB
//! of holes beside 30 MiB that it used (`campaign/prune-memory`).

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// Shorter ones are left to the allocator, which has enough of them.
const RECYCLED_BYTES_MIN: usize = 64 << 10;
/// Bytes that are kept for later, at most: two of the longest blocks.
const IDLE_BYTES_MAX: usize = 8 << 20;

static IDLE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Bytes whose memory the next buffer takes over.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recycled(Vec<u8>);

impl Recycled {
    /// An empty buffer with room for as many bytes, or up to a quarter more.
    pub fn with_room(bytes: usize) -> Self {
        if bytes < RECYCLED_BYTES_MIN {
            return Self(Vec::with_capacity(bytes));
        }
        let fits = |idle: &Vec<u8>| (bytes..=bytes + bytes / 4).contains(&idle.capacity());
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let shortest = idle.iter().enumerate().filter(|(_, memory)| fits(memory));
        let shortest = shortest.min_by_key(|(_, memory)| memory.capacity()).map(|(place, _)| place);
        match shortest {
            Some(place) => Self(idle.swap_remove(place)),
            // Eight lengths between a power of two and the next, so that others fit later.
            None => {
                Self(Vec::with_capacity(bytes.next_multiple_of(bytes.next_power_of_two() / 16)))
            }
        }
    }

    /// A copy of these bytes.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut copy = Self::with_room(bytes.len());
        copy.0.extend_from_slice(bytes);
        copy
    }

    /// The bytes, to be made more or fewer.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// Bytes of memory that it takes.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl Deref for Recycled {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Recycled {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Recycled {
    fn drop(&mut self) {
        let mut memory = std::mem::take(&mut self.0);
        if !(RECYCLED_BYTES_MIN..=IDLE_BYTES_MAX).contains(&memory.capacity()) {
            return;
        }
        memory.clear();
        let mut surplus = Vec::new();
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(memory);
        let mut bytes: usize = idle.iter().map(Vec::capacity).sum();
        // What was idle for longest goes: lengths change from verb to verb.
        while bytes > IDLE_BYTES_MAX {
            let oldest = idle.remove(0);
            bytes -= oldest.capacity();
            surplus.push(oldest);
        }
        // What is let go is freed after the lock.
        drop(idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_round_and_holds_only_what_was_put_in() {
        for bytes in [0, 1, 1000, 70_000, 1_041_000, 1_049_870, 5 << 20] {
            let content = vec![7; bytes];
            let first = Recycled::copy_of(&content);
            assert_eq!(*first, content[..]);
            drop(first);
            let next = Recycled::with_room(bytes);
            assert!(next.is_empty());
            assert!(next.capacity() >= bytes, "{bytes}");
            assert!(next.capacity() <= bytes + bytes / 4, "{bytes}");
        }
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let some: Vec<Recycled> = (0..40).map(|n| Recycled::with_room(n * 100_000)).collect();
        drop(some);
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(idle.iter().map(Vec::capacity).sum::<usize>() <= IDLE_BYTES_MAX);
        assert!(idle.iter().all(Vec::is_empty));
    }
}
