//! Inserts and looks up ten million keys (or as many millions as the first argument says) and prints
//! what that costs.
#![expect(clippy::disallowed_methods, reason = "an example is a program")]
#![expect(clippy::print_stdout, reason = "an example that prints its measurements")]

use std::time::Instant;

use strongroom_index::{Index, Key, Result, Value};

const LOOKUPS: u64 = 2_000_000;

fn main() -> Result<()> {
    let millions = std::env::args().nth(1).and_then(|argument| argument.parse().ok());
    let count = millions.unwrap_or(10) * 1_000_000;
    let path = std::env::temp_dir().join(format!("strongroom-index-{}", std::process::id()));
    let measured = measure(&path, count);
    drop(std::fs::remove_dir_all(&path));
    measured
}

fn measure(path: &std::path::Path, count: u64) -> Result<()> {
    let mut index = Index::open(path)?;
    timed("insert", count, || {
        (0..count).try_for_each(|n| index.insert(&key(n), Value(n)))?;
        index.flush(b"speed")
    })?;
    drop(index);
    let mut opened = None;
    timed("open, a key", count, || {
        opened = Some(Index::open(path)?);
        Ok(())
    })?;
    let mut index = opened.unwrap_or_else(Index::in_memory);
    let step = 7_919;
    timed("hit", LOOKUPS, || {
        (0..LOOKUPS).try_for_each(|n| {
            let n = n * step % count;
            assert_eq!(index.lookup(&key(n))?, Some(Value(n)));
            Ok(())
        })
    })?;
    timed("miss", LOOKUPS, || {
        (0..LOOKUPS).try_for_each(|n| {
            assert_eq!(index.lookup(&key(count + n))?, None);
            Ok(())
        })
    })?;
    timed("hit, 2 threads", LOOKUPS, || two_threads(&index, |n| key(n * step % count)))?;
    timed("miss, 2 threads", LOOKUPS, || two_threads(&index, |n| key(count + n)))?;
    let stats = index.stats();
    println!("{stats:?}");
    println!(
        "{:.1} bytes of disk and {:.2} bits of memory a record",
        stats.disk_bytes as f64 / stats.records as f64,
        stats.memory_bytes as f64 * 8.0 / stats.records as f64
    );
    timed("retain half", count, || index.retain(|location| location.0.is_multiple_of(2)))?;
    timed("flush it", 1, || index.flush(b"retained"))
}

fn two_threads(index: &Index, key: impl Fn(u64) -> Key + Sync) -> Result<()> {
    let key = &key;
    let half = |begin: u64| {
        move || (begin..LOOKUPS).step_by(2).try_for_each(|n| index.lookup(&key(n)).map(|_| ()))
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(half(1));
        half(0)().and(other.join().unwrap_or(Ok(())))
    })
}

fn timed(what: &str, count: u64, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let begin = Instant::now();
    run()?;
    let elapsed = begin.elapsed();
    let each = elapsed.as_nanos() as f64 / count as f64;
    println!("{what:16} {:8.3} s, {each:9.1} ns each", elapsed.as_secs_f64());
    Ok(())
}

/// Uniformly spread bytes (SplitMix64).
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
