//! A picture of a screen: the PPM that every QEMU writes, as PNG.

use std::io;
use std::path::Path;

/// The largest picture that is read.
const BYTES_MAX: usize = 256 << 20;
/// The most bytes of one stored block of deflate.
const STORED_MAX: usize = 0xffff;

/// Turns a picture in the format PPM (`P6`, of 8 bits) into one in PNG. It is not compressed.
pub fn png_of_ppm(ppm: &[u8]) -> io::Result<Vec<u8>> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "QEMU's picture is no PPM");
    let mut rest = ppm.strip_prefix(b"P6").ok_or_else(wrong)?;
    let mut numbers = [0_usize; 3];
    for number in &mut numbers {
        let blank = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        rest = &rest[blank..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = std::str::from_utf8(&rest[..digits]).map_err(|_| wrong())?;
        *number = text.parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
    }
    let [width, height, depth] = numbers;
    let row_bytes = width.checked_mul(3).ok_or_else(wrong)?;
    let bytes = row_bytes.checked_mul(height).filter(|bytes| *bytes <= BYTES_MAX);
    let pixels = rest.get(1..).unwrap_or_default();
    if depth != 255 || width == 0 || height == 0 || bytes != Some(pixels.len()) {
        return Err(wrong());
    }
    let mut rows = Vec::with_capacity(pixels.len() + height);
    for row in pixels.chunks_exact(row_bytes) {
        // No filter.
        rows.push(0);
        rows.extend_from_slice(row);
    }
    let size = |number: usize| u32::try_from(number).map_err(|_| wrong());
    let mut head = Vec::new();
    put_u32(&mut head, size(width)?);
    put_u32(&mut head, size(height)?);
    // 8 bits for each of red, green and blue; the only compression and filter, and not interlaced.
    head.extend_from_slice(&[8, 2, 0, 0, 0]);
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    put_chunk(&mut png, *b"IHDR", &head);
    put_chunk(&mut png, *b"IDAT", &stored(&rows));
    put_chunk(&mut png, *b"IEND", &[]);
    Ok(png)
}

/// Replaces a picture in a file by itself as PNG.
pub fn convert(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.len() > BYTES_MAX as u64 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "QEMU's picture is too large"));
    }
    std::fs::write(path, png_of_ppm(&std::fs::read(path)?)?)
}

/// PNG has the most significant byte first.
#[expect(clippy::big_endian_bytes, reason = "the format of others")]
fn put_u32(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend_from_slice(&number.to_be_bytes());
}

fn put_chunk(png: &mut Vec<u8>, kind: [u8; 4], content: &[u8]) {
    put_u32(png, content.len() as u32);
    let start = png.len();
    png.extend_from_slice(&kind);
    png.extend_from_slice(content);
    let sum = crc32(&png[start..]);
    put_u32(png, sum);
}

/// A zlib stream (RFC 1950) of stored blocks (RFC 1951).
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let last = bytes.chunks(STORED_MAX).count().saturating_sub(1);
    for (number, block) in bytes.chunks(STORED_MAX).enumerate() {
        let length = block.len() as u16;
        stream.push(u8::from(number == last));
        stream.extend_from_slice(&length.to_le_bytes());
        stream.extend_from_slice(&(!length).to_le_bytes());
        stream.extend_from_slice(block);
    }
    put_u32(&mut stream, adler32(bytes));
    stream
}

fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    // This many sums cannot overflow before they are reduced.
    const STEP: usize = 5552;
    let (mut one, mut two) = (1_u32, 0_u32);
    for part in bytes.chunks(STEP) {
        for byte in part {
            one += u32::from(*byte);
            two += one;
        }
        one %= MODULUS;
        two %= MODULUS;
    }
    two << 16 | one
}

/// The sum of PNG and Ethernet, bit by bit: pictures are few.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            sum >> 1 ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    };
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_others() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }

    #[test]
    fn python_reads_the_picture() {
        let (width, height) = (300, 200);
        let pixels: Vec<u8> = (0..width * height * 3).map(|n| (n % 251) as u8).collect();
        let ppm = [format!("P6\n{width} {height}\n255\n").as_bytes(), &pixels].concat();
        let png = png_of_ppm(&ppm).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("screen");
        std::fs::write(&path, &ppm).unwrap();
        convert(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), png);
        // What a reader of PNG does, in short.
        let reader = "
import sys, zlib, struct
png = open(sys.argv[1], 'rb').read(); at = 8; data = b''
while at < len(png):
    length, = struct.unpack('>I', png[at:at + 4]); kind = png[at + 4:at + 8]
    body = png[at + 8:at + 8 + length]
    assert struct.unpack('>I', png[at + 8 + length:at + 12 + length])[0] == zlib.crc32(kind + body)
    if kind == b'IDAT': data += body
    at += 12 + length
rows = zlib.decompress(data)
assert len(rows) == 200 * 901 and rows[0] == 0
assert all(rows[y * 901 + 1 + x] == (y * 900 + x) % 251 for y in range(200) for x in range(900))
";
        let status = std::process::Command::new("python3").args(["-c", reader]).arg(&path).status();
        assert!(status.unwrap().success());
    }

    #[test]
    fn what_is_no_picture_is_an_error() {
        let good = b"P6\n2 1\n255\n123456".to_vec();
        png_of_ppm(&good).unwrap();
        for length in 0..good.len() {
            assert!(png_of_ppm(&good[..length]).is_err(), "{length}");
        }
        let huge = b"P6 18446744073709551615 18446744073709551615 255\n1";
        assert!(png_of_ppm(huge).is_err());
    }
}
