//! Requests and their answers, without sockets.

use std::sync::Arc;

use strongroom_testkit::Random;

use super::*;

/// A disk that says of its holes what it is made to say.
struct Said {
    bytes: Vec<u8>,
    extents: Box<dyn Fn(Range<u64>) -> io::Result<Vec<Extent>> + Send + Sync>,
    is_read_only: bool,
}

impl Export for Said {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn append(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
        bytes.extend_from_slice(&self.bytes[range.start as usize..range.end as usize]);
        Ok(())
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Vec<Extent>> {
        (self.extents)(range)
    }

    fn write_zeroes(&self, _: Range<u64>, zeroing: Zeroing) -> io::Result<()> {
        if zeroing.only_if_fast { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
    }

    fn trim(&self, _: Range<u64>) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn agree(export: Said) -> Agreed {
    let size = export.size();
    Agreed { export: Arc::new(export), size, has_structured_replies: true, has_allocation: true }
}

fn plain(is_read_only: bool) -> Agreed {
    let extents = Box::new(|range: Range<u64>| {
        Ok(vec![Extent { bytes: range.end - range.start, is_hole: false }])
    });
    agree(Said { bytes: vec![1; 8 << 20], extents, is_read_only })
}

fn ask(command: u16, flags: u16, offset: u64, length: u32) -> Request {
    Request { flags, command, cookie: 5, offset, length }
}

/// The error of an answer, or none.
fn errno(agreed: &Agreed, request: &Request) -> Option<u8> {
    let answer = carry_out(agreed, request, &[]);
    let is_error = answer[6] == 0x80;
    is_error.then(|| answer[CHUNK_HEAD_BYTES + 3])
}

#[test]
fn invalid_requests_are_refused() {
    use command::*;
    use command_flag::*;
    let (writable, read_only) = (plain(false), plain(true));
    let size = writable.size;
    let cases = [
        (&writable, ask(READ, 0, 0, 512), None),
        (&writable, ask(READ, FUA, 0, 512), None),
        (&writable, ask(READ, DF, 0, 1 << 20), None),
        (&writable, ask(READ, 0, size, 0), None),
        (&writable, ask(READ, 0, size, 1), Some(22)),
        (&writable, ask(READ, 0, u64::MAX, 2), Some(22)),
        (&writable, ask(READ, NO_HOLE, 0, 512), Some(22)),
        (&writable, ask(WRITE, 0, size - 1, 2), Some(28)),
        (&writable, ask(WRITE_ZEROES, NO_HOLE | FUA, 0, 512), None),
        (&writable, ask(WRITE_ZEROES, FAST_ZERO, 0, 512), Some(95)),
        (&writable, ask(WRITE_ZEROES, 0, size, 1), Some(28)),
        (&writable, ask(TRIM, 0, 0, 512), Some(28)),
        (&writable, ask(TRIM, 0, size, 1), Some(22)),
        (&writable, ask(TRIM, 0, 0, 0), None),
        (&writable, ask(FLUSH, 0, 99, 99), None),
        (&writable, ask(CACHE, 0, 0, 1 << 20), None),
        (&writable, ask(CACHE, REQ_ONE, 0, 512), Some(22)),
        (&writable, ask(BLOCK_STATUS, REQ_ONE, 0, 512), None),
        (&writable, ask(BLOCK_STATUS, 0, 0, 0), Some(22)),
        (&writable, ask(8, 0, 0, 512), Some(22)),
        (&writable, ask(0xffff, 0, 0, 512), Some(22)),
        (&read_only, ask(WRITE, 0, 0, 512), Some(1)),
        (&read_only, ask(TRIM, 0, 0, 512), Some(1)),
        (&read_only, ask(WRITE_ZEROES, 0, 0, 512), Some(1)),
        (&read_only, ask(FLUSH, 0, 0, 0), None),
    ];
    for (agreed, request, expected) in cases {
        assert_eq!(errno(agreed, &request), expected, "{request:?}");
    }
    let mut unasked = plain(true);
    unasked.has_allocation = false;
    assert_eq!(errno(&unasked, &ask(BLOCK_STATUS, 0, 0, 512)), Some(22));
    let large = agree(Said {
        bytes: vec![0; REQUEST_BYTES_MAX as usize + 1],
        extents: Box::new(|_| Err(io::ErrorKind::Other.into())),
        is_read_only: true,
    });
    assert_eq!(errno(&large, &ask(READ, 0, 0, REQUEST_BYTES_MAX + 1)), Some(75));
    assert_eq!(errno(&large, &ask(READ, 0, 0, REQUEST_BYTES_MAX)), None);
    assert_eq!(errno(&large, &ask(BLOCK_STATUS, 0, 0, 512)), Some(5));
}

/// Extents from seeds, honest and not: parts are without gaps, differ from their neighbours, and no
/// hole is below the limit.
#[test]
fn parts_cover_the_range_whatever_the_disk_says() {
    for seed in 0..500 {
        let extents = Box::new(move |range: Range<u64>| {
            let mut random = Random::new(seed ^ range.start);
            let count = random.below(9);
            let extent = |random: &mut Random| Extent {
                bytes: match random.below(6) {
                    0 => 0,
                    1 => u64::MAX - random.below(9),
                    _ => random.below(30_000),
                },
                is_hole: random.once_in(2),
            };
            if random.once_in(20) {
                return Err(io::ErrorKind::Other.into());
            }
            Ok((0..count).map(|_| extent(&mut random)).collect())
        });
        let export = Said { bytes: vec![1; 1 << 20], extents, is_read_only: true };
        let range = seed * 7..(1 << 20) - seed;
        let parts = data_and_holes(&export, range.clone());
        let mut position = range.start;
        for (place, (part, is_hole)) in parts.iter().enumerate() {
            assert_eq!(part.start, position);
            assert!(part.end > part.start);
            assert!(!is_hole || part.end - part.start >= HOLE_BYTES_MIN);
            assert!(place == 0 || parts[place - 1].1 != *is_hole);
            position = part.end;
        }
        assert_eq!(position, range.end, "seed {seed}");
        let agreed = agree(export);
        let length = (range.end - range.start) as u32;
        let status = ask(command::BLOCK_STATUS, 0, range.start, length);
        let answer = carry_out(&agreed, &status, &[]);
        assert!(answer.len() <= memory_bytes(&status));
        let read = ask(command::READ, 0, range.start, length);
        assert!(carry_out(&agreed, &read, &[]).len() <= memory_bytes(&read));
    }
}
