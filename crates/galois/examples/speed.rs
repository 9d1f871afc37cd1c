//! How fast signatures, encoding and repair are here, on one thread, in GB/s of data read.
//!
//! Run: `cargo run --release -p strongroom-galois --example speed`
#![expect(clippy::disallowed_methods, reason = "an example is a program")]
#![expect(clippy::print_stdout, reason = "printing is what this example is for")]

use std::{hint::black_box, time::Instant};

use strongroom_galois::{Code, signature};

const SHARD_BYTES: usize = 64 << 10;
const SECONDS_EACH: f64 = 0.3;

fn main() {
    let ram = noise(256 << 20);
    let cached = &ram[..256 << 10];

    report("read, L2", cached.len(), || sum(cached));
    report("read, RAM", ram.len(), || sum(&ram));
    for page_bytes in [4 << 10, 16 << 10, SHARD_BYTES] {
        let kib = page_bytes >> 10;
        let pages = |data: &[u8]| {
            for page in data.chunks(page_bytes) {
                black_box(signature::<2>(page));
            }
        };
        report(&format!("signature<2>, {kib} KiB pages, L2"), cached.len(), || pages(cached));
        report(&format!("signature<2>, {kib} KiB pages, RAM"), ram.len(), || pages(&ram));
    }
    for (data_shards, parity_shards) in
        [(16, 1), (64, 2), (64, 4), (128, 4), (256, 8), (512, 16), (1024, 32), (1024, 128)]
    {
        code(&ram, data_shards, parity_shards);
    }
}

fn code(ram: &[u8], data_shards: usize, parity_shards: usize) {
    let name = format!("{data_shards}+{parity_shards}");
    let mut data = ram[..data_shards * SHARD_BYTES].to_vec();
    let mut parity = vec![0; parity_shards * SHARD_BYTES];
    let code = Code::new(data_shards, parity_shards).expect("the shape is possible");

    report(&format!("encode {name}"), data.len(), || {
        code.encode(&data, SHARD_BYTES, &mut parity).expect("the lengths fit");
    });
    let mut repair = |lost: &[usize]| {
        report(&format!("repair {name}, {} lost", lost.len()), data.len(), || {
            code.repair(&mut data, &mut parity, SHARD_BYTES, lost).expect("not too many are lost");
        });
    };
    repair(&[data_shards / 2]);
    let most: Vec<_> = (0..parity_shards).map(|at| at * (data_shards / parity_shards)).collect();
    if most.len() > 1 {
        repair(&most);
    }
}

/// Bytes that do not compress; from a linear congruential generator.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Reads all of `data` in the plainest way.
fn sum(data: &[u8]) {
    let words = data.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    black_box(words.fold(0, u64::wrapping_add));
}

/// Runs `work`, which reads `bytes`, for a while and prints the best speed of a run.
fn report(name: &str, bytes: usize, mut work: impl FnMut()) {
    let begin = Instant::now();
    let mut best_seconds = f64::INFINITY;
    while begin.elapsed().as_secs_f64() < SECONDS_EACH {
        let start = Instant::now();
        work();
        best_seconds = best_seconds.min(start.elapsed().as_secs_f64());
    }
    println!("{name:40} {:8.2} GB/s", bytes as f64 / best_seconds / 1e9);
}
