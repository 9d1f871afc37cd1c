//! The items that entries are made of, read without detours: an unchanged tree costs what reading
//! its entries costs. Anything unusual is left to `minicbor`, which also reports what is wrong.

use minicbor::Decoder;
use minicbor::decode::Error;

/// A number of type 0.
#[inline(always)]
pub fn uint<T: TryFrom<u64>>(cbor: &mut Decoder<'_>) -> Result<T, Error> {
    let number = match head(cbor) {
        Some((0, number, end)) => {
            cbor.set_position(end);
            number
        }
        _ => cbor.u64()?,
    };
    T::try_from(number).map_err(|_| Error::message("a number larger than it may be"))
}

/// A number of type 0 or 1.
#[inline(always)]
pub fn int(cbor: &mut Decoder<'_>) -> Result<i64, Error> {
    match head(cbor) {
        Some((0, number, end)) if i64::try_from(number).is_ok() => {
            cbor.set_position(end);
            Ok(number.cast_signed())
        }
        _ => cbor.i64(),
    }
}

/// Bytes in one piece.
#[inline(always)]
pub fn bytes<'b>(cbor: &mut Decoder<'b>) -> Result<&'b [u8], Error> {
    match run(cbor, 2) {
        Some(run) => Ok(run),
        None => cbor.bytes(),
    }
}

/// A text, in one piece.
#[inline(always)]
pub fn text<'b>(cbor: &mut Decoder<'b>) -> Result<&'b str, Error> {
    let start = cbor.position();
    if let Some(run) = run(cbor, 3)
        && let Ok(text) = std::str::from_utf8(run)
    {
        return Ok(text);
    }
    cbor.set_position(start);
    cbor.str()
}

#[inline(always)]
fn run<'b>(cbor: &mut Decoder<'b>, kind: u8) -> Option<&'b [u8]> {
    let (found, length, start) = head(cbor)?;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    let run = cbor.input().get(start..end).filter(|_| found == kind)?;
    cbor.set_position(end);
    Some(run)
}

/// The type of the next item, its number, and where its head ends.
#[expect(clippy::big_endian_bytes, reason = "CBOR writes numbers so (RFC 8949 §3)")]
#[inline(always)]
fn head(cbor: &Decoder<'_>) -> Option<(u8, u64, usize)> {
    let start = cbor.position();
    let (&first, rest) = cbor.input().get(start..)?.split_first()?;
    let (number, more) = match first & 0x1f {
        small @ 0..24 => (small.into(), 0),
        24 => (u64::from(*rest.first()?), 1),
        25 => (u16::from_be_bytes(*rest.first_chunk()?).into(), 2),
        26 => (u32::from_be_bytes(*rest.first_chunk()?).into(), 4),
        27 => (u64::from_be_bytes(*rest.first_chunk()?), 8),
        _ => return None,
    };
    Some((first >> 5, number, start + 1 + more))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(input: &[u8]) {
        fn of<T>(
            input: &[u8],
            read: impl FnOnce(&mut Decoder<'_>) -> Result<T, Error>,
        ) -> Option<(T, usize)> {
            let mut cbor = Decoder::new(input);
            read(&mut cbor).ok().map(|read| (read, cbor.position()))
        }
        assert_eq!(of(input, uint::<u64>), of(input, |cbor| cbor.u64()), "{input:?}");
        assert_eq!(of(input, uint::<u32>), of(input, |cbor| cbor.u32()), "{input:?}");
        assert_eq!(of(input, uint::<u8>), of(input, |cbor| cbor.u8()), "{input:?}");
        assert_eq!(of(input, int), of(input, |cbor| cbor.i64()), "{input:?}");
        let owned = |cbor: &mut Decoder<'_>| Ok(bytes(cbor)?.to_vec());
        assert_eq!(of(input, owned), of(input, |cbor| Ok(cbor.bytes()?.to_vec())), "{input:?}");
        let owned = |cbor: &mut Decoder<'_>| Ok(text(cbor)?.to_owned());
        assert_eq!(of(input, owned), of(input, |cbor| Ok(cbor.str()?.to_owned())), "{input:?}");
    }

    proptest! {
        #[test]
        fn every_item_is_what_minicbor_says(
            first in any::<u8>(),
            rest in proptest::collection::vec(prop_oneof![Just(0), Just(255), any::<u8>()], 0..40),
        ) {
            check(&[&[first][..], &rest].concat());
        }
    }
}
