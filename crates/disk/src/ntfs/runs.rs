//! Runs of clusters: each has a length, and the distance of its place from that of the run before.

use crate::error::{DiskError, Result};

use super::record::Attribute;

/// Consecutive clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The first, counted in the attribute.
    pub at: u64,
    /// The first on the volume; `None` for a hole.
    pub place: Option<u64>,
    /// How many there are; not zero.
    pub count: u64,
}

/// The runs of a part of an attribute, in ascending order, without gaps. `clusters` is how many the
/// volume has, and `number` the record that is damaged if they are.
pub(super) fn runs(
    attribute: &Attribute,
    clusters: u64,
    number: u64,
) -> impl Iterator<Item = Result<Run>> + '_ {
    let (mut rest, mut at, mut place) = (attribute.mapping(), attribute.lowest(), 0);
    let mut is_over = false;
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        match next(&mut rest, &mut at, &mut place, clusters) {
            Some(None) if at == attribute.end() => None,
            Some(Some(run)) if at <= attribute.end() => Some(Ok(run)),
            _ => {
                is_over = true;
                Some(Err(DiskError::damaged("runs of a file, by record", number)))
            }
        }
    })
}

/// The next run; `Some(None)` at the end, `None` if it is invalid.
fn next(rest: &mut &[u8], at: &mut u64, place: &mut i64, clusters: u64) -> Option<Option<Run>> {
    let Some((&head, behind)) = rest.split_first().filter(|(head, _)| **head != 0) else {
        return Some(None);
    };
    let (count, behind) = behind.split_at_checked(usize::from(head & 15))?;
    let (distance, behind) = behind.split_at_checked(usize::from(head >> 4))?;
    let count = u64::try_from(signed(count)?).ok().filter(|&count| count > 0)?;
    let first = *at;
    *at = at.checked_add(count).filter(|&end| i64::try_from(end).is_ok())?;
    *rest = behind;
    if distance.is_empty() {
        return Some(Some(Run { at: first, place: None, count }));
    }
    *place = place.checked_add(signed(distance)?)?;
    let start = u64::try_from(*place).ok()?;
    let is_there = start.checked_add(count).is_some_and(|end| end <= clusters);
    is_there.then_some(Some(Run { at: first, place: Some(start), count }))
}

/// A number of up to eight bytes, of which the last has the sign.
fn signed(bytes: &[u8]) -> Option<i64> {
    let last = bytes.last()?;
    let mut number = [if last & 0x80 != 0 { 0xff } else { 0 }; 8];
    number.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(number))
}
