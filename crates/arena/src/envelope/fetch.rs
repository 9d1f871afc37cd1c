//! A damaged object made whole with parts of a copy elsewhere: as few bytes of it as possible.
//!
//! The damaged object's own signatures say which shards are lost. As many as there is parity are
//! computed; only the others are fetched, each compared with its signature, and the whole with its
//! hash. If any of that fails, the copy is read as a whole.
//!
//! If the damaged object's header is left, the copy must have the same, and so the same body. Without a
//! header nothing of an object can be rescued, so then a copy of the right name and kind is taken.

use std::ops::Range;

use strongroom_backend::{Backend, BackendError, ObjectName};

use super::format::{HEADER_BYTES, Header, Layout, pack_table, unpack_table};
use super::read::read_object;
use super::{header_of, lost_shards, repair, shard_range};
use strongroom_galois::{Signature, signature};

/// An object that is whole again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The object.
    pub object: Vec<u8>,
    /// How many of its bytes were damaged: those of lost shards, and of tables and headers.
    pub damaged_bytes: u64,
    /// How many bytes were read of the copy.
    pub fetched_bytes: u64,
}

/// Makes an object whole with the copy of it at another place. `damaged` is what is left of it, and
/// empty if nothing is; `is_wanted` says whether a header is the object's. None if the copy does not
/// exist or is no help.
///
/// # Errors
///
/// Errors of the other place, except those that concern the copy alone.
pub fn fetch_from(
    other: &dyn Backend,
    name: &ObjectName,
    damaged: &[u8],
    is_wanted: &dyn Fn(&Header) -> bool,
    bytes_max: u64,
) -> Result<Option<Fetched>, BackendError> {
    let mut copy = Copy { other, name, fetched_bytes: 0 };
    let own = header_of(damaged).ok().map(|(header, _)| header).filter(|own| is_wanted(own));
    let is_its =
        |header: &Header| is_wanted(header) && own.as_ref().is_none_or(|own| own == header);
    let parts = match copy.read(0..HEADER_BYTES)? {
        None => None,
        Some(bytes) => match Header::unpack(&bytes).ok().filter(is_its) {
            Some(header) => copy.parts(damaged, header)?,
            None => None,
        },
    };
    if let Some(mut fetched) = parts {
        fetched.fetched_bytes = copy.fetched_bytes;
        return Ok(Some(fetched));
    }
    let whole = match read_object(other, name, bytes_max) {
        Ok(object) => object.bytes,
        Err(error) if is_of_the_copy(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let fetched_bytes = copy.fetched_bytes + whole.len() as u64;
    let Ok(object) = repair(&whole) else { return Ok(None) };
    if !Header::unpack(&object).is_ok_and(|header| is_its(&header)) {
        return Ok(None);
    }
    let damaged_bytes = object.len() as u64;
    Ok(Some(Fetched { object, damaged_bytes, fetched_bytes }))
}

/// Whether an error says something of the copy alone: another copy may help.
fn is_of_the_copy(error: &BackendError) -> bool {
    error.is_not_found() || error.is_damage() || error.is_withheld()
}

/// The copy, and what was read of it.
struct Copy<'c> {
    other: &'c dyn Backend,
    name: &'c ObjectName,
    fetched_bytes: u64,
}

impl Copy<'_> {
    /// A range of it, if all of it exists and can be read.
    fn read(&mut self, range: Range<usize>) -> Result<Option<Vec<u8>>, BackendError> {
        let bytes = match self.other.read(self.name, range.start as u64, range.len()) {
            Ok(bytes) => bytes,
            Err(error) if is_of_the_copy(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.fetched_bytes += bytes.len() as u64;
        Ok(Some(bytes).filter(|bytes| bytes.len() == range.len()))
    }

    /// Makes the object whole with parts of the copy; none if that is not possible, or not worth it.
    fn parts(&mut self, damaged: &[u8], header: Header) -> Result<Option<Fetched>, BackendError> {
        let layout = header.layout();
        if damaged.len() < HEADER_BYTES {
            return Ok(None);
        }
        let own_table = |at: usize| unpack_table(damaged.get(at..at + layout.table_bytes)?);
        let own = [layout.first_table, layout.second_table].map(own_table);
        let mut damaged_bytes =
            own.iter().filter(|table| table.is_none()).count() as u64 * layout.table_bytes as u64;
        let table = match own.into_iter().flatten().next() {
            Some(table) => table,
            None => {
                let range = layout.first_table..layout.first_table + layout.table_bytes;
                let fetched = self.read(range)?;
                match fetched.as_deref().and_then(unpack_table) {
                    Some(table) => table,
                    None => return Ok(None),
                }
            }
        };
        let lost = lost_shards(damaged, &header, &layout, Some(&table));
        let range = |shard| shard_range(&header, &layout, shard);
        damaged_bytes += lost.iter().map(|shard| range(*shard).len() as u64).sum::<u64>();
        let wanted = lost.len().saturating_sub(header.parity_shards as usize);
        // Many requests for parts cost more than one for all.
        if wanted == header.data_shards() {
            return Ok(None);
        }
        let mut object = frame(damaged, &header, &layout, &table);
        for run in runs(&lost, wanted, header.data_shards()) {
            let bytes = range(run.start).start..range(run.end - 1).end;
            let Some(fetched) = self.read(bytes.clone())? else { return Ok(None) };
            object[bytes].copy_from_slice(&fetched);
            let is_right = |shard: usize| signature::<2>(&object[range(shard)]) == table[shard];
            if !run.into_iter().all(is_right) {
                return Ok(None);
            }
        }
        let whole = repair(&object).ok();
        Ok(whole.map(|object| Fetched { object, damaged_bytes, fetched_bytes: 0 }))
    }
}

/// What is left of the object, with header, tables and trailer as they must be.
fn frame(damaged: &[u8], header: &Header, layout: &Layout, table: &[Signature<2>]) -> Vec<u8> {
    let mut object = damaged[..damaged.len().min(layout.object_bytes)].to_vec();
    object.resize(layout.object_bytes, 0);
    let (packed, table) = (header.pack(), pack_table(table));
    object[..HEADER_BYTES].copy_from_slice(&packed);
    for at in [layout.first_table, layout.second_table] {
        object[at..at + layout.table_bytes].copy_from_slice(&table);
    }
    object[layout.trailer..].copy_from_slice(&packed);
    object
}

/// Of the lost shards, `wanted` in as few runs of neighbours as possible. Data and parity are apart
/// in the object, so no run has both.
fn runs(lost: &[usize], wanted: usize, data_shards: usize) -> Vec<Range<usize>> {
    let are_neighbours = |one: &usize, next: &usize| {
        one + 1 == *next && (*one < data_shards) == (*next < data_shards)
    };
    let mut all: Vec<Range<usize>> =
        lost.chunk_by(are_neighbours).map(|run| run[0]..run[run.len() - 1] + 1).collect();
    all.sort_by_key(|run| std::cmp::Reverse(run.len()));
    let mut left = wanted;
    let mut chosen = Vec::new();
    for run in all {
        let count = run.len().min(left);
        if count == 0 {
            break;
        }
        chosen.push(run.start..run.start + count);
        left -= count;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use strongroom_backend::MemoryBackend;
    use strongroom_base::SnapshotId;

    use super::super::format::{ObjectKind, Origin};
    use super::super::{HEADROOM, Identity, Redundancy, seal};
    use super::*;

    fn object(body_bytes: usize) -> Vec<u8> {
        let mut object = vec![0; HEADROOM];
        object.extend((0..body_bytes).map(|place| (place * place % 251) as u8));
        let origin = Origin { session: SnapshotId([3; 16]), sequence: 4 };
        let identity = Identity { kind: ObjectKind::DataArena, id: [9; 16], generation: 0, origin };
        seal(object, identity, Redundancy { per_mille: 30 })
    }

    fn copy_of(object: &[u8]) -> (MemoryBackend, ObjectName) {
        let name = ObjectName::new("arenas", "a");
        let backend = MemoryBackend::new();
        backend.create(&name, object).unwrap();
        (backend, name)
    }

    fn fetch(damaged: &[u8], copy: &[u8]) -> Option<Fetched> {
        let (backend, name) = copy_of(copy);
        let is_wanted = |header: &Header| header.id == [9; 16];
        fetch_from(&backend, &name, damaged, &is_wanted, 1 << 30).unwrap()
    }

    #[test]
    fn fewer_bytes_than_are_damaged_make_it_whole() {
        let whole = object(100_000);
        let header = Header::unpack(&whole).unwrap();
        let parity = header.parity_shards as usize;
        assert!(parity > 1);
        for lost in [parity + 1, parity + 5, header.data_shards() / 2] {
            let mut damaged = whole.clone();
            for shard in 0..lost {
                damaged[HEADER_BYTES + (2 * shard) * header.shard_bytes()] ^= 1;
            }
            let fetched = fetch(&damaged, &whole).unwrap();
            assert!(fetched.object == whole);
            assert_eq!(fetched.damaged_bytes, (lost * header.shard_bytes()) as u64);
            let needed = (lost - parity) * header.shard_bytes() + HEADER_BYTES;
            assert_eq!(fetched.fetched_bytes, needed as u64);
        }
    }

    #[test]
    fn whatever_is_left_of_it() {
        let whole = object(50_000);
        let layout = Header::unpack(&whole).unwrap().layout();
        let mut cases: Vec<Vec<u8>> = vec![Vec::new(), vec![0; 10], vec![0; whole.len()]];
        for length in [200, 30_000, layout.first_table + 3, layout.trailer] {
            cases.push(whole[..length].to_vec());
        }
        for range in [0..60_000, 0..20_000, 20_000..45_000, layout.first_table..layout.trailer] {
            let mut damaged = whole.clone();
            let end = range.end.min(damaged.len());
            damaged[range.start..end].fill(7);
            cases.push(damaged);
        }
        cases.push([whole.clone(), vec![1; 5000]].concat());
        for (place, damaged) in cases.iter().enumerate() {
            let fetched = fetch(damaged, &whole).unwrap_or_else(|| panic!("case {place}"));
            assert!(fetched.object == whole, "case {place}");
            let most = (whole.len() + layout.table_bytes + HEADER_BYTES) as u64;
            assert!(fetched.fetched_bytes <= most, "case {place}");
        }
    }

    #[test]
    fn a_copy_that_is_damaged_helps_as_far_as_it_can() {
        let whole = object(100_000);
        let header = Header::unpack(&whole).unwrap();
        let mut damaged = whole.clone();
        damaged[HEADER_BYTES..50_000].fill(1);
        // Within its own parity.
        let mut copy = whole.clone();
        copy[1000] ^= 1;
        assert!(fetch(&damaged, &copy).unwrap().object == whole);
        // Elsewhere.
        copy[70_000..].fill(0);
        copy[1000] ^= 1;
        assert!(fetch(&damaged, &copy).unwrap().object == whole);
        // In the same place.
        assert!(fetch(&damaged, &damaged).is_none());
        // Another object.
        let mut other = header;
        other.id = [8; 16];
        assert!(fetch(&[], &other.pack()).is_none());
        let (backend, name) = copy_of(b"");
        backend.remove(&name).unwrap();
        assert!(fetch_from(&backend, &name, &whole, &|_| true, 1 << 20).unwrap().is_none());
    }

    #[test]
    fn another_object_of_the_same_name_is_not_taken_for_it() {
        let (whole, other) = (object(100_000), object(90_000));
        let mut damaged = whole.clone();
        damaged[HEADER_BYTES..60_000].fill(1);
        assert!(fetch(&damaged, &other).is_none());
        // The header behind is left.
        damaged[..HEADER_BYTES].fill(0);
        assert!(fetch(&damaged, &other).is_none());
        assert!(fetch(&damaged, &whole).unwrap().object == whole);
        // Without one nothing of it can be rescued.
        damaged.truncate(90_000);
        assert!(fetch(&damaged, &other).unwrap().object == other);
    }

    #[test]
    fn runs_are_few_and_never_cross_into_parity() {
        assert_eq!(runs(&[1, 2, 3, 7, 9, 10], 4, 20), [1..4, 9..10]);
        assert_eq!(runs(&[8, 9, 10, 11], 4, 10), [8..10, 10..12]);
        assert_eq!(runs(&[1, 2], 0, 10), []);
    }
}
