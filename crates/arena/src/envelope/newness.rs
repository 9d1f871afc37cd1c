//! Whether an object that says it is of a newer program proves it.
//!
//! A program passes over what a newer one made: that is not damaged, and nothing is collected beside
//! it. So a person who can change a header could have any object passed over. An object of which an older
//! program does not know version, kind or a required feature therefore has a *proof*: a tag over its
//! header under a key that every holder of a key of the repository has. It is in the same place in
//! each version. A claim without a proof is damage of the header, and what is below it is what it was.

use strongroom_base::keys::authenticate;

use super::format::{FEATURES_KNOWN, HEADER_BYTES, MAGIC, ObjectKind, PROOF_BYTES, VERSION};

/// The bytes that a proof is about: the header up to it.
const PROVEN_BYTES: usize = HEADER_BYTES - PROOF_BYTES - 4;

/// A header, in the bytes of any version.
type RawHeader = [u8; HEADER_BYTES];

/// Whether these bytes are a header which says that a newer program made its object.
pub fn claims_newness(header: &RawHeader) -> bool {
    let version = u16::from_le_bytes([header[8], header[9]]);
    let kind = ObjectKind::from_number(header[10]);
    let features = u32::from_le_bytes([header[68], header[69], header[70], header[71]]);
    let is_newer = version > VERSION
        || matches!(kind, ObjectKind::Unknown(_))
        || features & !FEATURES_KNOWN != 0;
    is_newer && header[..8] == MAGIC && has_checksum(header)
}

/// Whether its proof is right.
pub fn is_proven(header: &RawHeader, key: &[u8; 32]) -> bool {
    header[PROVEN_BYTES..][..PROOF_BYTES] == proof_of(header, key)
}

/// The header with its proof and checksum, for a program that makes what older ones do not know.
pub fn with_proof(mut header: RawHeader, key: &[u8; 32]) -> RawHeader {
    let proof = proof_of(&header, key);
    header[PROVEN_BYTES..][..PROOF_BYTES].copy_from_slice(&proof);
    with_checksum(header)
}

/// The header without a claim: of this version, of this kind, and without features that are unknown.
pub fn without_claim(mut header: RawHeader, kind: ObjectKind) -> RawHeader {
    header[8..10].copy_from_slice(&VERSION.to_le_bytes());
    header[10] = kind.number();
    for byte in 0..4 {
        header[68 + byte] &= FEATURES_KNOWN.to_le_bytes()[byte];
    }
    header[PROVEN_BYTES..][..PROOF_BYTES].fill(0);
    with_checksum(header)
}

fn proof_of(header: &RawHeader, key: &[u8; 32]) -> [u8; PROOF_BYTES] {
    let tag = authenticate(key, &header[..PROVEN_BYTES]);
    *tag.first_chunk().expect("a tag is longer than a proof")
}

fn has_checksum(header: &RawHeader) -> bool {
    with_checksum(*header) == *header
}

fn with_checksum(mut header: RawHeader) -> RawHeader {
    let (fields, checksum) = header.split_at_mut(HEADER_BYTES - 4);
    checksum.copy_from_slice(&crc32c::crc32c(fields).to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use strongroom_base::SnapshotId;

    use super::*;
    use crate::envelope::format::{Header, HeaderError, Origin};

    const KEY: [u8; 32] = [5; 32];

    fn header() -> Header {
        Header {
            kind: ObjectKind::Snapshot,
            generation: 0,
            id: [1; 16],
            origin: Origin { session: SnapshotId([1; 16]), sequence: 9 },
            body_bytes: 300,
            shard_bytes_log2: 8,
            parity_shards: 2,
            required_features: 0,
            body_hash: [3; 32],
            proof: [0; PROOF_BYTES],
        }
    }

    /// What a newer program could say.
    fn newer() -> [RawHeader; 3] {
        let plain = header().pack();
        let mut version = plain;
        version[8] = 1;
        let kind = Header { kind: ObjectKind::Unknown(200), ..header() };
        let feature = Header { required_features: 1 << 31, ..header() };
        [with_checksum(version), kind.pack(), feature.pack()]
    }

    #[test]
    fn a_claim_is_proven_by_the_key_alone_and_taken_away_leaves_the_header() {
        let plain = header().pack();
        assert!(!claims_newness(&plain));
        for claim in newer() {
            assert!(claims_newness(&claim) && !is_proven(&claim, &KEY));
            assert_eq!(without_claim(claim, ObjectKind::Snapshot), plain);
            let proven = with_proof(claim, &KEY);
            assert!(claims_newness(&proven) && is_proven(&proven, &KEY));
            assert!(!is_proven(&proven, &[6; 32]), "of another repository");
            for bit in 0..PROVEN_BYTES * 8 {
                let mut changed = proven;
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(!is_proven(&with_checksum(changed), &KEY), "bit {bit} is not in the proof");
            }
            let unpacked = Header::unpack(&proven);
            let is_newer = matches!(unpacked, Err(HeaderError::NewerVersion { version: 1 }))
                || unpacked.is_ok_and(|header| header.is_unknown());
            assert!(is_newer, "an older program passes over it");
        }
    }

    #[test]
    fn what_is_no_header_claims_nothing() {
        for claim in newer() {
            for place in [0, 7, 20, HEADER_BYTES - 1] {
                let mut damaged = claim;
                damaged[place] ^= 1;
                assert!(!claims_newness(&damaged), "byte {place}");
            }
        }
        assert!(!claims_newness(&[0; HEADER_BYTES]));
    }

    /// Frozen bytes.
    #[test]
    fn a_proof_that_was_made_is_right() {
        let proven = with_proof(newer()[2], &KEY);
        let proof: String = proven[PROVEN_BYTES..][..PROOF_BYTES]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(proof, "025821fae81b84cb38336cc3b619c963a5682656");
    }
}
