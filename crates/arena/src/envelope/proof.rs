//! Proofs that a place still has an object: a few bytes instead of the object. No key.
//!
//! An auditor sends a challenge; the place computes the proof from the bytes that it keeps.
//!
//! ```text
//! challenge:  form 1 | nonce 32
//! proof:      form 1 | length 8 | keyed hash 32                                   form 1
//!             … | hash of the body 32 | header 128 | signature 4 × shards         form 2
//! ```
//!
//! The hash is BLAKE3 of the whole object under a key derived from the nonce: only a program that has
//! the bytes can compute it, and no earlier answer helps. Form 2 is for an auditor without the object.
//! The signatures of all shards, computed just now, are compared with a table that was kept elsewhere
//! and with themselves: those of the parity shards must be the parity of those of the data shards
//! (Litwin and Schwarz). That takes no data at all, and finds every change that is no forgery.

use strongroom_base::le::{LeReader, LeWrite, LengthError};
use strongroom_galois::{Signature, signature};

use super::format::{HEADER_BYTES, Header, SHARDS_MAX, SIGNATURE_BYTES};
use super::{HEADROOM, code_of, header_of, shard_range};

/// Bytes of a challenge's nonce.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a challenge.
pub const CHALLENGE_BYTES: usize = 1 + NONCE_BYTES;
/// Bytes of a proof without signatures.
pub const PROOF_BYTES: usize = 1 + 8 + 32;
/// A proof has at most this many bytes.
pub const PROOF_BYTES_MAX: usize =
    PROOF_BYTES + 32 + HEADER_BYTES + (SHARDS_MAX as usize + 1) * SIGNATURE_BYTES;

/// The signature of one shard.
pub type ShardSignature = Signature<2>;

/// What the key of a proof is derived as.
const CONTEXT: &str = "strongroom v0 proof of an object";

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The keyed hash alone.
    Hash,
    /// The signatures of all shards too.
    Signatures,
}

impl Form {
    fn number(self) -> u8 {
        match self {
            Self::Hash => 1,
            Self::Signatures => 2,
        }
    }

    fn of(number: u8) -> Option<Self> {
        [Self::Hash, Self::Signatures].into_iter().find(|form| form.number() == number)
    }
}

/// A challenge. Each is used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Challenge {
    /// What is asked for.
    pub form: Form,
    /// Random.
    pub nonce: [u8; NONCE_BYTES],
}

impl Challenge {
    /// Its bytes.
    pub fn pack(&self) -> [u8; CHALLENGE_BYTES] {
        let mut bytes = [self.form.number(); CHALLENGE_BYTES];
        bytes[1..].copy_from_slice(&self.nonce);
        bytes
    }

    /// The challenge in `bytes`; none if it is none that this program knows.
    pub fn unpack(bytes: &[u8]) -> Option<Self> {
        let (form, nonce) = bytes.split_first()?;
        Some(Self { form: Form::of(*form)?, nonce: nonce.try_into().ok()? })
    }
}

/// The proof of an object's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// How many bytes the object has.
    pub bytes: u64,
    /// The hash of all of them, under the challenge.
    pub hash: [u8; 32],
    /// What was asked for besides; none if the object has no header that can be read.
    pub shards: Option<ShardProof>,
}

/// What a place has of the parts of an object, computed just now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardProof {
    /// The hash of the body.
    pub body_hash: [u8; 32],
    /// The header, from the end that can be read.
    pub header: Header,
    /// The signatures of data and parity shards.
    pub signatures: Vec<Signature<2>>,
}

/// Answers a challenge with the bytes of an object; none if the challenge is unknown.
pub fn prove(object: &[u8], challenge: &[u8]) -> Option<Vec<u8>> {
    let challenge = Challenge::unpack(challenge)?;
    Some(Proof::of(object, challenge).pack(challenge.form))
}

impl Proof {
    /// What the proof of these bytes is.
    pub fn of(object: &[u8], challenge: Challenge) -> Self {
        let key = blake3::derive_key(CONTEXT, &challenge.nonce);
        let hash = *blake3::keyed_hash(&key, object).as_bytes();
        let shards = match challenge.form {
            Form::Hash => None,
            Form::Signatures => ShardProof::of(object),
        };
        Self { bytes: object.len() as u64, hash, shards }
    }

    fn pack(&self, form: Form) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PROOF_BYTES);
        bytes.put_u8(form.number());
        bytes.put_u64(self.bytes);
        bytes.put(&self.hash);
        if let Some(shards) = &self.shards {
            bytes.put(&shards.body_hash);
            bytes.put(&shards.header.pack());
            shards.signatures.iter().for_each(|signature| bytes.put(&signature.to_le_bytes()));
        }
        bytes
    }

    /// The proof in `bytes`, which answer a challenge of a form; none if they are no such answer.
    pub fn unpack(bytes: &[u8], form: Form) -> Option<Self> {
        if bytes.len() > PROOF_BYTES_MAX {
            return None;
        }
        let mut fields = LeReader::new(bytes);
        let read = |fields: &mut LeReader<'_>| -> Result<_, LengthError> {
            Ok((fields.u8()?, fields.u64()?, fields.array()?))
        };
        let (number, length, hash) = read(&mut fields).ok()?;
        if number != form.number() {
            return None;
        }
        let rest = &bytes[PROOF_BYTES..];
        let shards = match form {
            Form::Hash if !rest.is_empty() => return None,
            _ if rest.is_empty() => None,
            _ => Some(ShardProof::unpack(rest)?),
        };
        Some(Self { bytes: length, hash, shards })
    }
}

impl ShardProof {
    fn of(object: &[u8]) -> Option<Self> {
        let (header, _) = header_of(object).ok()?;
        let layout = header.layout();
        let body = object.get(HEADROOM..layout.first_table.min(object.len())).unwrap_or_default();
        let signatures = (0..header.shards()).map(|shard| {
            let range = shard_range(&header, &layout, shard);
            let end = range.end.min(object.len());
            signature::<2>(object.get(range.start..end).unwrap_or_default())
        });
        let signatures = signatures.collect();
        Some(Self { body_hash: *blake3::hash(body).as_bytes(), header, signatures })
    }

    fn unpack(bytes: &[u8]) -> Option<Self> {
        let (body_hash, rest) = bytes.split_first_chunk::<32>()?;
        let (header, table) = rest.split_first_chunk::<HEADER_BYTES>()?;
        let header = Header::unpack(header).ok()?;
        let (signatures, left_over) = table.as_chunks::<SIGNATURE_BYTES>();
        if !left_over.is_empty() || signatures.len() != header.shards() {
            return None;
        }
        let signatures = signatures.iter().map(|bytes| Signature::from_le_bytes(*bytes)).collect();
        Some(Self { body_hash: *body_hash, header, signatures })
    }

    /// Whether the body is what the header says.
    pub fn is_body_right(&self) -> bool {
        self.body_hash == self.header.body_hash
    }

    /// Whether the signatures of the parity are the parity of the signatures.
    pub fn is_parity_right(&self) -> bool {
        let (data, parity) = self.signatures.split_at(self.header.data_shards());
        parity.is_empty() || code_of(&self.header).parity_of_signatures(data) == parity
    }

    /// The shards whose signatures are not those of a table.
    pub fn differing(&self, table: &[Signature<2>]) -> Vec<usize> {
        let most = self.signatures.len().max(table.len());
        (0..most).filter(|shard| self.signatures.get(*shard) != table.get(*shard)).collect()
    }
}

#[cfg(test)]
mod tests {
    use strongroom_base::SnapshotId;

    use super::super::format::{ObjectKind, Origin, unpack_table};
    use super::super::{Identity, Redundancy, seal};
    use super::*;

    fn object(body_bytes: usize, per_mille: u32) -> Vec<u8> {
        let mut object = vec![0; HEADROOM];
        object.extend((0..body_bytes).map(|place| (place * place % 251) as u8));
        let origin = Origin { session: SnapshotId([3; 16]), sequence: 4 };
        let identity = Identity { kind: ObjectKind::DataArena, id: [9; 16], generation: 0, origin };
        seal(object, identity, Redundancy { per_mille })
    }

    fn ask(object: &[u8], form: Form, nonce: u8) -> Proof {
        let challenge = Challenge { form, nonce: [nonce; 32] };
        let answer = prove(object, &challenge.pack()).unwrap();
        assert!(answer.len() <= PROOF_BYTES_MAX);
        let proof = Proof::unpack(&answer, form).unwrap();
        assert_eq!(proof, Proof::of(object, challenge));
        proof
    }

    #[test]
    fn every_flipped_bit_changes_the_hash_and_one_in_a_shard_the_algebra() {
        let whole = object(20_001, 30);
        let header = Header::unpack(&whole).unwrap();
        let layout = header.layout();
        let table = unpack_table(&whole[layout.first_table..layout.parity]).unwrap();
        let right = ask(&whole, Form::Signatures, 1);
        let shards = right.shards.clone().unwrap();
        assert!(shards.is_body_right() && shards.is_parity_right());
        assert_eq!(shards.differing(&table), [0; 0]);
        for at in (0..whole.len()).step_by(97) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            assert_ne!(ask(&damaged, Form::Hash, 1).hash, right.hash, "{at}");
            let found = ask(&damaged, Form::Signatures, 1).shards.unwrap();
            let in_body = (HEADER_BYTES..layout.first_table).contains(&at);
            let in_parity = (layout.parity..layout.second_table).contains(&at);
            assert_eq!(found.is_parity_right(), !(in_body || in_parity), "{at}");
            assert_eq!(found.is_body_right(), !in_body, "{at}");
            let count = usize::from(in_body || in_parity);
            assert_eq!(found.differing(&table).len(), count, "{at}");
        }
    }

    #[test]
    fn each_challenge_has_its_own_answer() {
        let whole = object(1000, 1000);
        assert_ne!(ask(&whole, Form::Hash, 1).hash, ask(&whole, Form::Hash, 2).hash);
        assert_eq!(prove(&whole, b""), None);
        assert_eq!(prove(&whole, &[3; CHALLENGE_BYTES]), None);
        assert_eq!(prove(&whole, &[1; CHALLENGE_BYTES + 1]), None);
    }

    #[test]
    fn what_is_no_object_is_proved_and_no_answer_is_believed() {
        for bytes in [&b""[..], b"letter", &[0; 5000]] {
            assert_eq!(ask(bytes, Form::Signatures, 1).shards, None);
        }
        let short = &object(9000, 0)[..400];
        assert!(!ask(short, Form::Signatures, 1).shards.unwrap().is_body_right());
        let challenge = Challenge { form: Form::Signatures, nonce: [1; 32] };
        let answer = prove(&object(1000, 30), &challenge.pack()).unwrap();
        for length in (0..answer.len()).filter(|length| *length != PROOF_BYTES) {
            assert_eq!(Proof::unpack(&answer[..length], Form::Signatures), None, "{length}");
        }
        assert_eq!(Proof::unpack(&answer, Form::Hash), None);
        assert_eq!(Proof::unpack(&vec![2; PROOF_BYTES_MAX + 1], Form::Signatures), None);
    }
}
