//! The compression of NTFS (LZNT1; Microsoft, [MS-XCA], section 2.5).

/// What a chunk becomes.
const CHUNK_BYTES: usize = 4096;
const IS_COMPRESSED: usize = 0x8000;

/// Decompresses chunk after chunk until the output is full or the input ends; what is missing is
/// zeros. `None` if the input is invalid.
pub(super) fn decompress(mut input: &[u8], output: &mut [u8]) -> Option<()> {
    output.fill(0);
    for chunk in output.chunks_mut(CHUNK_BYTES) {
        let Some((head, rest)) = input.split_first_chunk::<2>() else { break };
        let head = usize::from(u16::from_le_bytes(*head));
        if head == 0 {
            break;
        }
        let (body, rest) = rest.split_at_checked((head & 0xfff) + 1)?;
        input = rest;
        if head & IS_COMPRESSED != 0 {
            decompress_chunk(body, chunk)?;
        } else {
            chunk.get_mut(..body.len())?.copy_from_slice(body);
        }
    }
    Some(())
}

fn decompress_chunk(mut input: &[u8], output: &mut [u8]) -> Option<()> {
    let mut at = 0;
    while let Some((&flags, rest)) = input.split_first() {
        input = rest;
        for bit in 0..8 {
            if input.is_empty() {
                break;
            }
            if flags >> bit & 1 == 0 {
                *output.get_mut(at)? = input[0];
                input = &input[1..];
                at += 1;
                continue;
            }
            let (token, rest) = input.split_first_chunk::<2>()?;
            input = rest;
            let token = usize::from(u16::from_le_bytes(*token));
            // The further into the chunk, the more bits has the distance, from 4 to 12.
            let last = at.checked_sub(1)?;
            let distance_bits = (usize::BITS - last.leading_zeros()).clamp(4, 12);
            let count_bits = 16 - distance_bits;
            let distance = (token >> count_bits) + 1;
            let count = (token & ((1 << count_bits) - 1)) + 3;
            let from = at.checked_sub(distance)?;
            if at + count > output.len() {
                return None;
            }
            // A copy may overlap what it makes.
            (0..count).for_each(|n| output[at + n] = output[from + n]);
            at += count;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use strongroom_testkit::Random;

    use super::*;

    #[test]
    fn the_example_of_the_specification_is_decompressed() {
        // [MS-XCA], section 3.3.
        let input = [
            0x38, 0xb0, 0x88, 0x46, 0x23, 0x20, 0x00, 0x20, 0x47, 0x20, 0x41, 0x00, 0x10, 0xa2,
            0x47, 0x01, 0xa0, 0x45, 0x20, 0x44, 0x00, 0x08, 0x45, 0x01, 0x50, 0x79, 0x00, 0xc0,
            0x45, 0x20, 0x05, 0x24, 0x13, 0x88, 0x05, 0xb4, 0x02, 0x4a, 0x44, 0xef, 0x03, 0x58,
            0x02, 0x8c, 0x09, 0x16, 0x01, 0x48, 0x45, 0x00, 0xbe, 0x00, 0x9e, 0x00, 0x04, 0x01,
            0x18, 0x90, 0x00,
        ];
        let text = b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E \
                     E F# D E F# G F# D E F# G F# E D E A F# F# G A A G F# E D D E F# E D D\0";
        let mut output = vec![1; CHUNK_BYTES];
        decompress(&input, &mut output).unwrap();
        assert_eq!(&output[..text.len()], text);
        assert!(output[text.len()..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn chunks_that_are_not_compressed_are_copied_and_noise_ends() {
        let mut input = vec![0xff, 0x3f];
        input.extend([7; CHUNK_BYTES]);
        let mut output = vec![1; 2 * CHUNK_BYTES];
        decompress(&input, &mut output).unwrap();
        assert!(output.starts_with(&[7; CHUNK_BYTES]) && output.ends_with(&[0; CHUNK_BYTES]));
        let mut random = Random::new(1);
        for _ in 0..2000 {
            let bytes = random.below(300) as usize;
            let mut noise = random.noise(bytes);
            if let Some(head) = noise.first_chunk_mut() {
                *head = [bytes as u8, 0xb0];
            }
            let _ = decompress(&noise, &mut output);
        }
    }
}
