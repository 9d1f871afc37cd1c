//! Replies in any order, and replies from seeds.

use strongroom_testkit::Random;

use super::*;

/// A reply as a list of chunks with their payloads.
type Chunks = Vec<(ChunkHead, Vec<u8>)>;

fn take(wanted: &mut Wanted, chunks: &Chunks) -> Result<(), Cause> {
    for (head, payload) in chunks {
        let mut rest = &payload[..];
        wanted.take_chunk(*head, &mut |into| {
            let (taken, later) = rest.split_at_checked(into.len()).ok_or(Cause::Closed)?;
            into.copy_from_slice(taken);
            rest = later;
            Ok(())
        })?;
    }
    Ok(())
}

fn data_chunk(offset: u64, bytes: &[u8]) -> (ChunkHead, Vec<u8>) {
    let mut payload = Vec::new();
    crate::wire::Put::put_u64(&mut payload, offset);
    payload.extend_from_slice(bytes);
    let head = ChunkHead { kind: chunk::OFFSET_DATA, is_last: false, length: payload.len() as u32 };
    (head, payload)
}

fn hole_chunk(offset: u64, bytes: u32) -> (ChunkHead, Vec<u8>) {
    let mut payload = Vec::new();
    crate::wire::Put::put_u64(&mut payload, offset);
    crate::wire::Put::put_u32(&mut payload, bytes);
    (ChunkHead { kind: chunk::OFFSET_HOLE, is_last: false, length: 12 }, payload)
}

/// A range cut into chunks of data and holes, shuffled.
fn shuffled(random: &mut Random, start: u64, content: &mut [u8]) -> Chunks {
    let mut chunks = Chunks::new();
    let mut position = 0;
    while position < content.len() {
        let end = (position + 1 + random.below(3000) as usize).min(content.len());
        let part = &mut content[position..end];
        if random.once_in(2) {
            part.fill(0);
            chunks.push(hole_chunk(start + position as u64, part.len() as u32));
        } else {
            chunks.push(data_chunk(start + position as u64, part));
        }
        position = end;
    }
    for place in (1..chunks.len()).rev() {
        chunks.swap(place, random.below(place as u64 + 1) as usize);
    }
    chunks
}

#[test]
fn chunks_come_in_any_order() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let start = random.below(1 << 40);
        let mut content = random.noise(40_000);
        let mut chunks = shuffled(&mut random, start, &mut content);
        let mut wanted = Wanted::data(start..start + 40_000, true);
        take(&mut wanted, &chunks).unwrap();
        assert!(wanted.finish().unwrap().unwrap().into_data() == content, "seed {seed}");
        // One is missing, or comes twice.
        let one = chunks.pop().unwrap();
        let mut wanted = Wanted::data(start..start + 40_000, true);
        take(&mut wanted, &chunks).unwrap();
        assert!(wanted.finish().is_err(), "seed {seed}");
        chunks.extend([one.clone(), one]);
        assert!(take(&mut Wanted::data(start..start + 40_000, true), &chunks).is_err());
    }
}

/// Any chunks are an error or a complete reply of the right length.
#[test]
fn any_chunks_are_survived() {
    let mut complete = 0;
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let mut wanted = match random.below(3) {
            0 => Wanted::nothing(),
            1 => Wanted::data(1000..1000 + 1 + random.below(64), random.below(4) > 0),
            _ => Wanted::status(0..4096, [1, 2].into_iter()),
        };
        let mut chunks = Chunks::new();
        for _ in 0..random.below(6) {
            let kinds = [0, 1, 2, 5, 5, 6, 0x8001, 0x8002, 0x8777, 0xffff];
            let bytes = random.below(40) as usize;
            let mut payload = random.noise(bytes);
            for byte in &mut payload {
                *byte &= *random.pick(&[0, 0, 0, 1, 3, 0xff]);
            }
            let length = if random.once_in(9) { random.number() as u32 } else { bytes as u32 };
            let is_last = random.once_in(2);
            chunks.push((ChunkHead { kind: *random.pick(&kinds), is_last, length }, payload));
        }
        if random.once_in(2) {
            chunks.insert(0, hole_chunk(1000, 1 + random.below(64) as u32));
        }
        if take(&mut wanted, &chunks).is_ok() {
            let bytes = wanted.range.end - wanted.range.start;
            let is_data = matches!(wanted.reply, Reply::Data(_));
            if let Ok(Ok(reply)) = wanted.finish() {
                complete += 1;
                assert!(!is_data || reply.into_data().len() as u64 == bytes);
            }
        }
    }
    assert!(complete > 500, "{complete}");
}

#[test]
fn coverage_is_that_of_single_bytes() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let mut coverage = Coverage::default();
        let mut bytes = [false; 100];
        for _ in 0..40 {
            let start = random.below(99);
            let end = (start + 1 + random.below(12)).min(100);
            let part = &mut bytes[start as usize..end as usize];
            let is_new = !part.contains(&true);
            assert_eq!(coverage.add(start..end), is_new, "seed {seed}");
            if is_new {
                part.fill(true);
            }
        }
        let expected = bytes.iter().filter(|&&is_there| is_there).count();
        assert_eq!(coverage.bytes(), expected as u64);
        let runs = bytes.chunk_by(|a, b| a == b).filter(|run| run[0]).count();
        assert_eq!(coverage.ranges.len(), runs, "seed {seed}");
    }
}
