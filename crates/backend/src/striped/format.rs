//! The bytes that a repository over several stores has besides the objects. The document:
//! `docs/format/stripes.md`.

use strongroom_base::le::{LeReader, LeWrite, LengthError};

/// First bytes of an index.
const INDEX_MAGIC: [u8; 16] = *b"STRONGROOM-INDEX";
/// First bytes of a membership.
const MEMBER_MAGIC: [u8; 16] = *b"STRONGROOM-STORE";
/// The format that this program writes.
const VERSION: u8 = 0;
/// A repository has at most this many stores.
pub const STORES_MAX: usize = 32;
/// Bytes of the hash of a piece.
pub const PIECE_HASH_BYTES: usize = 16;
/// Bytes of a membership.
pub const MEMBER_BYTES: usize = 16 + 16 + 4 + 12;

/// How an object is cut, and what its pieces are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Bytes of the object.
    pub bytes: u64,
    /// How many stores have data, and how many parity.
    pub shape: Shape,
    /// BLAKE3 of the object.
    pub hash: [u8; 32],
    /// The beginnings of BLAKE3 of the pieces, by store.
    pub pieces: Vec<[u8; PIECE_HASH_BYTES]>,
}

/// How many stores have data, and how many parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Stores with data.
    pub data: u8,
    /// Stores with parity: as many may vanish.
    pub parity: u8,
}

/// Which store of which set this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The set, at random.
    pub set: [u8; 16],
    /// Its shape.
    pub shape: Shape,
    /// The store's number.
    pub number: u8,
}

impl Shape {
    /// The shape of this many stores; none if there are too few or too many.
    pub fn new(stores: usize, parity: usize) -> Option<Self> {
        let data = stores.checked_sub(parity)?;
        if data == 0 || parity == 0 || parity > data || stores > STORES_MAX {
            return None;
        }
        Some(Self { data: u8::try_from(data).ok()?, parity: u8::try_from(parity).ok()? })
    }

    /// All stores.
    pub fn stores(self) -> usize {
        usize::from(self.data) + usize::from(self.parity)
    }

    /// Bytes of an index.
    pub fn index_bytes(self) -> usize {
        16 + 4 + 8 + 32 + self.stores() * PIECE_HASH_BYTES
    }

    fn unpack(fields: &mut LeReader<'_>) -> Result<Option<Self>, LengthError> {
        let (data, parity) = (usize::from(fields.u8()?), usize::from(fields.u8()?));
        Ok(Self::new(data + parity, parity))
    }
}

impl Index {
    /// Bytes of each piece: an even number.
    pub fn piece_bytes(&self) -> u64 {
        self.bytes.div_ceil(u64::from(self.shape.data)).next_multiple_of(2).max(2)
    }

    /// Its bytes.
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.shape.index_bytes());
        bytes.put(&INDEX_MAGIC);
        bytes.put(&[VERSION, self.shape.data, self.shape.parity, 0]);
        bytes.put_u64(self.bytes);
        bytes.put(&self.hash);
        self.pieces.iter().for_each(|piece| bytes.put(piece));
        bytes
    }

    /// The index in `bytes`; none if they are another object.
    pub fn unpack(bytes: &[u8]) -> Option<Self> {
        let mut fields = LeReader::new(bytes);
        if fields.array().ok()? != INDEX_MAGIC || fields.u8().ok()? != VERSION {
            return None;
        }
        let shape = Shape::unpack(&mut fields).ok()??;
        let (zero, length, hash) = (fields.u8().ok()?, fields.u64().ok()?, fields.array().ok()?);
        let pieces = (0..shape.stores()).map(|_| fields.array().ok()).collect::<Option<_>>()?;
        if zero != 0 || fields.remaining() > 0 || length > 1 << 40 {
            return None;
        }
        Some(Self { bytes: length, shape, hash, pieces })
    }

    /// Whether an object would be taken for an index if it were stored as it is.
    pub fn resembles(object: &[u8]) -> bool {
        object.starts_with(&INDEX_MAGIC)
    }
}

impl Member {
    /// Its bytes.
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MEMBER_BYTES);
        bytes.put(&MEMBER_MAGIC);
        bytes.put(&self.set);
        bytes.put(&[VERSION, self.shape.data, self.shape.parity, self.number]);
        let hash = blake3::hash(&bytes);
        bytes.put(&hash.as_bytes()[..12]);
        bytes
    }

    /// The membership in `bytes`; none if it is damaged, or of another version.
    pub fn unpack(bytes: &[u8]) -> Option<Self> {
        let (front, hash) = bytes.split_last_chunk::<12>()?;
        if blake3::hash(front).as_bytes()[..12] != *hash {
            return None;
        }
        let mut fields = LeReader::new(front);
        if fields.array().ok()? != MEMBER_MAGIC {
            return None;
        }
        let (set, version) = (fields.array().ok()?, fields.u8().ok()?);
        let shape = Shape::unpack(&mut fields).ok()??;
        let number = fields.u8().ok()?;
        let is_one = usize::from(number) < shape.stores() && version == VERSION;
        (is_one && fields.remaining() == 0).then_some(Self { set, shape, number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_back_whole_or_not_at_all() {
        for (stores, parity) in [(2, 1), (3, 1), (5, 2), (32, 16)] {
            let shape = Shape::new(stores, parity).unwrap();
            let pieces = (0..stores).map(|store| [store as u8; 16]).collect();
            let index = Index { bytes: 12_345, shape, hash: [7; 32], pieces };
            let bytes = index.pack();
            assert_eq!(bytes.len(), shape.index_bytes());
            assert_eq!(Index::unpack(&bytes), Some(index));
            let member = Member { set: [3; 16], shape, number: 1 };
            let packed = member.pack();
            assert_eq!(packed.len(), MEMBER_BYTES);
            assert_eq!(Member::unpack(&packed), Some(member));
            for length in 0..bytes.len() {
                assert_eq!(Index::unpack(&bytes[..length]), None);
                assert_eq!(Member::unpack(&packed[..length.min(packed.len() - 1)]), None);
            }
        }
        for (stores, parity) in [(1, 1), (1, 0), (2, 0), (3, 2), (0, 0), (40, 1)] {
            assert_eq!(Shape::new(stores, parity), None);
        }
    }

    #[test]
    fn pieces_hold_the_object() {
        let shape = Shape::new(4, 1).unwrap();
        for bytes in [0, 1, 5, 6, 7, 100, 101] {
            let index = Index { bytes, shape, hash: [0; 32], pieces: Vec::new() };
            assert!(index.piece_bytes() * 3 >= bytes && index.piece_bytes().is_multiple_of(2));
        }
    }
}
