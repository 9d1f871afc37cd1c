//! LZO1X, decompressed: the format of the kernel's own description (Documentation/staging/lzo.rst),
//! without its later extension for runs, which Btrfs does not use.

/// Decompresses a stream; `None` if it is damaged or longer than `bytes_max`.
pub(super) fn decompress(stream: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let mut lzo = Lzo { rest: stream, output: Vec::new(), bytes_max };
    // How many literals came before: none, one to three, or a run of at least four.
    let mut state = 0;
    if *stream.first()? > 17 {
        let count = usize::from(lzo.byte()?) - 17;
        lzo.literals(count)?;
        state = count.min(4);
    }
    loop {
        let code = usize::from(lzo.byte()?);
        if code < 16 && state == 0 {
            let count = if code == 0 { lzo.long(15)? } else { code };
            lzo.literals(count + 3)?;
            state = 4;
            continue;
        }
        let (distance, length, following) = match code {
            0..16 => {
                let high = usize::from(lzo.byte()?) << 2;
                let (base, length) = if state == 4 { (0x801, 3) } else { (1, 2) };
                (base + (code >> 2) + high, length, code & 3)
            }
            16..32 => {
                let length = match code & 7 {
                    0 => lzo.long(7)?,
                    length => length,
                };
                let word = lzo.word()?;
                let distance = ((code & 8) << 11) + (word >> 2);
                if distance == 0 {
                    return Some(lzo.output);
                }
                (distance + 0x4000, length + 2, word & 3)
            }
            32..64 => {
                let length = match code & 31 {
                    0 => lzo.long(31)?,
                    length => length,
                };
                let word = lzo.word()?;
                (1 + (word >> 2), length + 2, word & 3)
            }
            _ => {
                let high = usize::from(lzo.byte()?) << 3;
                (1 + ((code >> 2) & 7) + high, (code >> 5) + 1, code & 3)
            }
        };
        lzo.copy(distance, length)?;
        lzo.literals(following)?;
        state = following;
    }
}

struct Lzo<'s> {
    rest: &'s [u8],
    output: Vec<u8>,
    bytes_max: usize,
}

impl Lzo<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn word(&mut self) -> Option<usize> {
        Some(usize::from(self.byte()?) | usize::from(self.byte()?) << 8)
    }

    /// A length above what its code can say.
    fn long(&mut self, base: usize) -> Option<usize> {
        let mut length = base;
        loop {
            match self.byte()? {
                0 => length += 255,
                last => return Some(length + usize::from(last)),
            }
        }
    }

    fn grows(&self, count: usize) -> Option<()> {
        (self.output.len() + count <= self.bytes_max).then_some(())
    }

    fn literals(&mut self, count: usize) -> Option<()> {
        self.grows(count)?;
        let (now, rest) = self.rest.split_at_checked(count)?;
        self.output.extend_from_slice(now);
        self.rest = rest;
        Some(())
    }

    /// Repeats what was `distance` before; it may repeat itself.
    fn copy(&mut self, distance: usize, length: usize) -> Option<()> {
        self.grows(length)?;
        let start = self.output.len().checked_sub(distance)?;
        for index in start..start + length {
            self.output.push(*self.output.get(index)?);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_with_each_kind_of_copy_is_decompressed() {
        // Four literals, a copy of three that were one before, and the end.
        let stream = [21, b'a', b'b', b'c', b'd', 0x40, 0, 17, 0, 0];
        assert_eq!(decompress(&stream, 100).unwrap(), b"abcdddd");
        assert_eq!(decompress(&stream, 6), None, "longer than it may be");
        // A copy from before the beginning.
        assert_eq!(decompress(&[21, b'a', b'b', b'c', b'd', 0x40, 1, 17, 0, 0], 100), None);
        // A run of 300 literals, then a long copy.
        let mut stream = vec![0, 0, 27];
        stream.extend((0..300).map(|n| n as u8));
        stream.extend([32, 0, 60, 0xac, 4, 17, 0, 0]);
        let mut expected: Vec<u8> = (0..300).map(|n| n as u8).collect();
        (0..31 + 255 + 60 + 2).for_each(|n| expected.push(expected[n]));
        assert_eq!(decompress(&stream, 1000).unwrap(), expected);
        for end in 0..stream.len() {
            assert_eq!(decompress(&stream[..end], 1000), None, "{end}");
        }
    }
}
