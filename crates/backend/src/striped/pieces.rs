//! The pieces of a large object: cutting it, and reading it back from any of them that suffice.

use std::ops::Range;
use std::sync::Arc;

use strongroom_galois::Code;

use super::format::{Index, PIECE_HASH_BYTES, Shape};
use super::{PIECES, Store, StripedBackend};
use crate::{BackendError, ObjectName};

/// What a store answers: a piece, if it has the right one.
type Answer = Result<Option<Vec<u8>>, BackendError>;

/// An object's index and its pieces, by store.
pub fn cut(bytes: &[u8], shape: Shape) -> (Index, Vec<Vec<u8>>) {
    let hash = *blake3::hash(bytes).as_bytes();
    let mut index = Index { bytes: bytes.len() as u64, shape, hash, pieces: Vec::new() };
    let piece_bytes = length(index.piece_bytes());
    let mut parity = vec![0; piece_bytes * usize::from(shape.parity)];
    code(shape)
        .encode(bytes, piece_bytes, &mut parity)
        .expect("pieces hold the object, and have an even length");
    let mut pieces = Vec::with_capacity(shape.stores());
    for number in 0..usize::from(shape.data) {
        let start = (number * piece_bytes).min(bytes.len());
        let end = (start + piece_bytes).min(bytes.len());
        let mut piece = bytes[start..end].to_vec();
        piece.resize(piece_bytes, 0);
        pieces.push(piece);
    }
    pieces.extend(parity.chunks(piece_bytes).map(<[u8]>::to_vec));
    index.pieces = pieces.iter().map(|piece| piece_hash(piece)).collect();
    (index, pieces)
}

impl Index {
    /// Whether it is of the object with these bytes.
    pub fn is_of(&self, object: &[u8]) -> bool {
        self.bytes == object.len() as u64 && self.hash == *blake3::hash(object).as_bytes()
    }

    /// Whether these bytes are the piece of this number.
    pub fn is_piece(&self, number: usize, bytes: &[u8]) -> bool {
        self.pieces.get(number) == Some(&piece_hash(bytes))
    }
}

fn code(shape: Shape) -> Code {
    Code::new(shape.data.into(), shape.parity.into()).expect("a shape has at most 32 stores")
}

fn piece_hash(piece: &[u8]) -> [u8; PIECE_HASH_BYTES] {
    let hash = blake3::hash(piece);
    *hash.as_bytes().first_chunk().expect("a hash is longer")
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The name of an object's pieces, in every store.
pub fn pieces_name(name: &ObjectName, index: &Index) -> ObjectName {
    let hash: String = index.hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let file = format!("{}-{}.{}.{hash}", name.folder(), name.file(), index.bytes);
    ObjectName::new(PIECES, file)
}

/// The object to which pieces belong, and its length.
pub fn pieces_of(pieces: &ObjectName) -> Option<(ObjectName, u64)> {
    let (rest, _hash) = pieces.file().rsplit_once('.')?;
    let (object, bytes) = rest.rsplit_once('.')?;
    let (folder, file) = object.split_once('-')?;
    let name = match folder {
        "" => ObjectName::parse(file)?,
        folder => ObjectName::parse(&format!("{folder}/{file}"))?,
    };
    Some((name, bytes.parse().ok()?))
}

impl StripedBackend {
    /// A large object, checked and made of any pieces that suffice.
    pub(super) fn read_whole(
        &self,
        name: &ObjectName,
        index: &Index,
    ) -> Result<Vec<u8>, BackendError> {
        let pieces = 0..length(index.piece_bytes());
        let check = |number: usize, piece: &[u8]| index.is_piece(number, piece);
        let data: Vec<usize> = (0..usize::from(self.shape.data)).collect();
        let mut object = self.read_pieces(name, index, &data, pieces, &check)?.concat();
        object.truncate(length(index.bytes));
        Ok(object)
    }

    /// The first index of any store that leads to the whole object, and is the one of that object.
    pub(super) fn whole_index(&self, name: &ObjectName) -> Option<Arc<Index>> {
        let mut tried: Vec<Index> = Vec::new();
        for index in self.indexes_of(name) {
            if tried.contains(&index) {
                continue;
            }
            if self.read_whole(name, &index).is_ok_and(|whole| cut(&whole, self.shape).0 == index) {
                return Some(self.keep(name, index));
            }
            tried.push(index);
        }
        None
    }

    /// The indexes that the stores have under a name.
    pub(super) fn indexes_of(&self, name: &ObjectName) -> impl Iterator<Item = Index> {
        let most = self.shape.index_bytes() + 1;
        self.there().filter_map(move |store| self.index_in(&store.read(name, 0, most).ok()?))
    }

    /// A part of one, which is not checked: the reader does that, and reads all of it then.
    pub(super) fn read_part(
        &self,
        name: &ObjectName,
        index: &Index,
        offset: u64,
        count: usize,
    ) -> Result<Vec<u8>, BackendError> {
        let start = offset.min(index.bytes);
        let end = start.saturating_add(count as u64).min(index.bytes);
        let piece_bytes = index.piece_bytes();
        let mut part = Vec::with_capacity(length(end - start));
        let mut at = start;
        while at < end {
            let number = at / piece_bytes;
            let first = at - number * piece_bytes;
            let last = (end - number * piece_bytes).min(piece_bytes);
            // Symbols have two bytes.
            let even = length(first & !1)..length(last.next_multiple_of(2));
            let read = self.read_pieces(name, index, &[length(number)], even, &|_, _| true)?;
            let skip = length(first & 1);
            part.extend_from_slice(&read[0][skip..skip + length(last - first)]);
            at = number * piece_bytes + last;
        }
        Ok(part)
    }

    /// The same range of these data pieces. Those that cannot be read are computed from others.
    fn read_pieces(
        &self,
        name: &ObjectName,
        index: &Index,
        wanted: &[usize],
        range: Range<usize>,
        check: &(dyn Fn(usize, &[u8]) -> bool + Sync),
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let mut found: Vec<Option<Vec<u8>>> = vec![None; self.shape.stores()];
        let mut error = self.read_from(name, index, wanted, &range, check, &mut found);
        let has = |found: &[Option<Vec<u8>>]| wanted.iter().all(|number| found[*number].is_some());
        if !has(&found) {
            // The others, as many as are still needed at a time.
            let needed = usize::from(self.shape.data);
            let mut others = (0..self.shape.stores()).filter(|number| !wanted.contains(number));
            loop {
                let got = found.iter().flatten().count();
                let next: Vec<usize> = others.by_ref().take(needed.saturating_sub(got)).collect();
                if next.is_empty() {
                    break;
                }
                error = self.read_from(name, index, &next, &range, check, &mut found).or(error);
            }
            if found.iter().flatten().count() < needed {
                return Err(error.unwrap_or(BackendError::NotFound { name: name.clone() }));
            }
            self.compute(&mut found, range.len());
        }
        let pieces = wanted.iter().filter_map(|number| found[*number].take()).collect();
        Ok(pieces)
    }

    /// Reads pieces from their stores at the same time. Returns an error of one, if there is any.
    fn read_from(
        &self,
        name: &ObjectName,
        index: &Index,
        numbers: &[usize],
        range: &Range<usize>,
        check: &(dyn Fn(usize, &[u8]) -> bool + Sync),
        found: &mut [Option<Vec<u8>>],
    ) -> Option<BackendError> {
        let pieces = pieces_name(name, index);
        let read = |number: usize, store: &Store| {
            let piece = store.read(&pieces, range.start as u64, range.len())?;
            let is_right = piece.len() == range.len() && check(number, &piece);
            // A piece that is damaged is lost.
            Ok(Some(piece).filter(|_| is_right))
        };
        let read = &read;
        let answers: Vec<(usize, Answer)> = match numbers {
            [number] => {
                let store = self.stores[*number].as_ref();
                vec![(*number, store.map_or(Ok(None), |store| read(*number, store)))]
            }
            numbers => std::thread::scope(|scope| {
                let begun: Vec<_> = numbers
                    .iter()
                    .filter_map(|number| {
                        let store = Arc::clone(self.stores[*number].as_ref()?);
                        Some((*number, scope.spawn(move || read(*number, &store))))
                    })
                    .collect();
                let ended = begun.into_iter();
                ended.map(|(number, thread)| (number, thread.join().unwrap_or(Ok(None)))).collect()
            }),
        };
        let mut failed = None;
        for (number, answer) in answers {
            match answer {
                Ok(piece) => found[number] = piece,
                Err(error) => failed = Some(error),
            }
        }
        failed
    }

    /// Computes the missing pieces.
    fn compute(&self, found: &mut [Option<Vec<u8>>], piece_bytes: usize) {
        let lost: Vec<usize> = (0..found.len()).filter(|at| found[*at].is_none()).collect();
        let mut all = Vec::with_capacity(found.len() * piece_bytes);
        for piece in found.iter() {
            match piece {
                Some(piece) => all.extend_from_slice(piece),
                None => all.resize(all.len() + piece_bytes, 0),
            }
        }
        let (data, parity) = all.split_at_mut(usize::from(self.shape.data) * piece_bytes);
        code(self.shape)
            .repair(data, parity, piece_bytes, &lost)
            .expect("as many pieces are there as stores have data");
        for number in lost {
            found[number] = Some(all[number * piece_bytes..][..piece_bytes].to_vec());
        }
    }
}
