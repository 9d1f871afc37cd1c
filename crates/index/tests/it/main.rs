//! What the index promises, seen from outside: what look-ups cost, what damage does, who sees what,
//! and which bytes it writes.

mod cost;
mod damage;
mod document;
mod sharing;

use strongroom_index::{Index, Key, Value};

/// The `n`-th of endless uniformly spread keys (SplitMix64).
fn key(n: u64) -> Key {
    let mut state = n.wrapping_mul(0xd134_2543_de82_ef95);
    let mut key = [0; 32];
    for word in key.as_chunks_mut::<8>().0 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        *word = (mixed ^ (mixed >> 31)).to_le_bytes();
    }
    key
}

/// Where the tests put the `n`-th key.
fn location(n: u64) -> Value {
    Value(n * 3 + 1)
}

/// Inserts the keys from `begin` to before `end`.
fn insert(index: &mut Index, begin: u64, end: u64) {
    for n in begin..end {
        index.insert(&key(n), location(n)).expect("the table can be spilled");
    }
}

/// Asserts that the keys from `begin` to before `end` are where they were put.
fn assert_known(index: &Index, begin: u64, end: u64) {
    for n in begin..end {
        assert_eq!(index.lookup(&key(n)).expect("all pages are good"), Some(location(n)), "{n}");
    }
}

/// Asserts that the keys from `begin` to before `end` are not known.
fn assert_unknown(index: &Index, begin: u64, end: u64) {
    for n in begin..end {
        assert_eq!(index.lookup(&key(n)).expect("all pages are good"), None, "{n}");
    }
}
