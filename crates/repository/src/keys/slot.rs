//! Key slots: each opens the repository with one passphrase. The document: `docs/format/keys.md`.
//!
//! A slot has a part in the clear, for listings and for the key derivation, and a sealed secret.
//! The secret is sealed with a key that Argon2id makes of the passphrase; the part in the clear is
//! authenticated by the same seal. Slots are added, changed and removed without touching anything
//! else.

mod secret;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use minicbor::{Decoder, Encoder};
use rustix::mm::{Advice, madvise};
use strongroom_base::entropy::random_array;
use strongroom_base::keys::derive_object_key;
use strongroom_base::seal::SealKey;
use strongroom_base::{DomainId, Entropy, RepositoryId, SlotId, Timestamp};
use strongroom_catalog::FormatError;
use strongroom_catalog::format::{decode_map, expect_array};
use zeroize::Zeroizing;

use super::generated::is_generated;
use crate::error::SlotError;

pub use secret::{DOMAIN_NAME_BYTES_MAX, PutOnlySecret, SlotSecret, is_domain_name};

/// The cost of Argon2id, for opening a slot and for guessing its passphrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KdfCost {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over that memory.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

impl KdfCost {
    /// The second recommendation of RFC 9106 §4: 64 MiB, so that opening stays within the memory
    /// that any operation may take.
    pub const DEFAULT: Self = Self { memory_kib: 64 << 10, passes: 3, lanes: 4 };
    /// The least cost for a passphrase that a person chose: an eighth of the default.
    pub const TYPED_MIN: Self = Self { memory_kib: 8 << 10, ..Self::DEFAULT };
    /// The lowest cost of Argon2: for passphrases that were drawn at random.
    pub const CHEAPEST: Self = Self { memory_kib: 32, passes: 1, lanes: 4 };
    /// No slot may ask for more than 1 GiB.
    pub const MEMORY_KIB_MAX: u32 = 1 << 20;

    /// Nor for more than 16 passes over that.
    const WORK_MAX: u64 = 16 << 20;

    /// The cost that suits a passphrase: next to nothing if it cannot be guessed.
    pub fn suited_to(passphrase: &[u8]) -> Self {
        if is_generated(passphrase) { Self::CHEAPEST } else { Self::DEFAULT }
    }

    /// KiB that are filled in all passes together: the processor time of opening a slot.
    pub fn work(self) -> u64 {
        u64::from(self.memory_kib) * u64::from(self.passes)
    }

    /// False if a slot is too cheap for this passphrase. An attacker who may create objects could
    /// add slots that cost next to nothing, sealed under guesses of a passphrase that a person
    /// chose, and learn from what a client does which guess was right.
    fn is_enough_for(self, passphrase: &[u8]) -> bool {
        self.work() >= Self::TYPED_MIN.work() || is_generated(passphrase)
    }

    fn params(self) -> Option<Params> {
        let bounded = self.memory_kib <= Self::MEMORY_KIB_MAX
            && self.work() <= Self::WORK_MAX
            && (1..=64).contains(&self.lanes);
        if !bounded {
            return None;
        }
        Params::new(self.memory_kib, self.passes, self.lanes, Some(32)).ok()
    }
}

/// Memory for Argon2, in huge pages if the system provides them: without them, a third of the time
/// is spent on page faults and missing translations.
fn argon2_memory(blocks: usize) -> Vec<Block> {
    let mut memory: Vec<Block> = Vec::with_capacity(blocks);
    let room = memory.spare_capacity_mut();
    let start = room.as_mut_ptr().addr().next_multiple_of(PAGE_BYTES);
    let end = room.as_ptr_range().end.addr() / PAGE_BYTES * PAGE_BYTES;
    if let Some(bytes) = end.checked_sub(start).filter(|bytes| *bytes > 0) {
        let advised = room.as_mut_ptr().with_addr(start);
        // SAFETY: the range lies within room that this vector owns; the advice changes which pages
        // back it, not what may be done with them. If it is refused, nothing changes.
        let _ = unsafe { madvise(advised.cast(), bytes, Advice::LinuxHugepage) };
    }
    memory.resize(blocks, Block::default());
    memory
}

/// Advice goes to whole pages of this size.
const PAGE_BYTES: usize = 4096;

/// What a key permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Access {
    /// Reading and storing.
    Full = 0,
    /// Storing only.
    PutOnly = 1,
}

/// Bytes of a slot's commitment.
const COMMITMENT_BYTES: usize = 32;
/// The context in which the commitment is derived.
const COMMITMENT_CONTEXT: &str = "strongroom v0 slot commitment";

/// One key slot, in the form in which it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySlot {
    /// Its name.
    pub id: SlotId,
    /// The name that its owner gave it. Like all fields, it is authentic only once the slot was
    /// opened.
    pub label: String,
    /// When it was made.
    pub created: Timestamp,
    /// What its key permits. The sealed part decides.
    pub access: Access,
    /// The domain of a key that can only store; none if the program that made it did not say.
    pub domain: Option<DomainId>,
    /// What opening it costs.
    pub cost: KdfCost,
    salt: [u8; 16],
    /// A hash of the slot's key. AES-GCM does not commit to a key: without this, one slot could be
    /// made to open with several passphrases.
    commitment: [u8; COMMITMENT_BYTES],
    /// The exact bytes of the map in the clear, which the seal authenticates.
    clear: Vec<u8>,
    sealed: Vec<u8>,
}

mod key {
    pub const LABEL: u64 = 0;
    pub const CREATED: u64 = 1;
    pub const ACCESS: u64 = 2;
    pub const COST: u64 = 3;
    pub const SALT: u64 = 4;
    pub const COMMITMENT: u64 = 5;
    pub const DOMAIN: u64 = 6;
}

/// The name and cost of a new slot.
#[derive(Debug, Clone)]
pub struct NewSlot {
    /// The name that its owner gives it.
    pub label: String,
    /// When it is made.
    pub created: Timestamp,
    /// What opening it costs; the default depends on the passphrase.
    pub cost: Option<KdfCost>,
}

impl KeySlot {
    /// Seals `secret` under a passphrase.
    pub fn seal(
        new: NewSlot,
        secret: &SlotSecret,
        passphrase: &[u8],
        repository: RepositoryId,
        entropy: &dyn Entropy,
    ) -> Result<Self, SlotError> {
        let cost = new.cost.unwrap_or_else(|| KdfCost::suited_to(passphrase));
        if !cost.is_enough_for(passphrase) {
            return Err(SlotError::TooCheap { least_mib: KdfCost::TYPED_MIN.memory_kib >> 10 });
        }
        let mut slot = Self {
            id: SlotId(random_array(entropy)),
            label: new.label,
            created: new.created,
            access: secret.access(),
            domain: secret.domain(),
            cost,
            salt: random_array(entropy),
            commitment: [0; COMMITMENT_BYTES],
            clear: Vec::new(),
            sealed: Vec::new(),
        };
        let key = slot.derive_key(passphrase).ok_or(SlotError::OutOfBounds)?;
        slot.commitment = slot.commitment_to(&key);
        slot.clear = slot.encode_clear();
        let mut sealed = secret.pack();
        SealKey::new(&key).seal(0, &slot.aad(repository), &mut sealed);
        slot.sealed = sealed;
        Ok(slot)
    }

    /// Whether the slot can be one of this passphrase: it is not too cheap for it, and costs no more
    /// than a slot may.
    pub fn suits(&self, passphrase: &[u8]) -> bool {
        self.cost.is_enough_for(passphrase) && self.cost.params().is_some()
    }

    /// The secret, if this passphrase is the slot's and nothing in the slot was changed.
    pub fn open(&self, passphrase: &[u8], repository: RepositoryId) -> Option<SlotSecret> {
        if !self.suits(passphrase) {
            return None;
        }
        let key = self.derive_key(passphrase)?;
        if self.commitment_to(&key) != self.commitment {
            return None;
        }
        let mut sealed = Zeroizing::new(self.sealed.clone());
        let opened = SealKey::new(&key).open(0, &self.aad(repository), &mut sealed).ok()?;
        SlotSecret::unpack(opened)
    }

    fn derive_key(&self, passphrase: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, self.cost.params()?);
        let mut key = Zeroizing::new([0; 32]);
        let mut memory = argon2_memory(argon2.params().block_count());
        argon2
            .hash_password_into_with_memory(passphrase, &self.salt, &mut *key, &mut memory[..])
            .ok()?;
        Some(key)
    }

    fn commitment_to(&self, key: &[u8; 32]) -> [u8; COMMITMENT_BYTES] {
        derive_object_key(COMMITMENT_CONTEXT, key, &self.id.0)
    }

    /// What the seal is bound to: this slot of this repository, and all that is in the clear.
    fn aad(&self, repository: RepositoryId) -> Vec<u8> {
        [&repository.0[..], &self.id.0[..], &self.clear].concat()
    }

    fn encode_clear(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut cbor = Encoder::new(&mut bytes);
        let mut encode = || -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
            cbor.map(6 + u64::from(self.domain.is_some()))?;
            cbor.u64(key::LABEL)?.str(&self.label)?;
            cbor.u64(key::CREATED)?.i64(self.created.0)?;
            cbor.u64(key::ACCESS)?.u8(self.access as u8)?;
            cbor.u64(key::COST)?.array(3)?;
            cbor.u32(self.cost.memory_kib)?.u32(self.cost.passes)?.u32(self.cost.lanes)?;
            cbor.u64(key::SALT)?.bytes(&self.salt)?;
            cbor.u64(key::COMMITMENT)?.bytes(&self.commitment)?;
            if let Some(domain) = self.domain {
                cbor.u64(key::DOMAIN)?.bytes(&domain.0)?;
            }
            Ok(())
        };
        encode().expect("a vector takes all that is written to it");
        bytes
    }

    /// The slot's bytes. Its identifier is the object's name, not part of them.
    pub fn pack(&self) -> Vec<u8> {
        [&self.clear[..], &self.sealed].concat()
    }

    /// The slot of this identifier in `bytes`.
    pub fn unpack(id: SlotId, bytes: &[u8]) -> Result<Self, FormatError> {
        let (mut label, mut created, mut access) = (None, None, None);
        let (mut cost, mut salt, mut commitment, mut domain) = (None, None, None, None);
        let mut cbor = Decoder::new(bytes);
        decode_map(&mut cbor, |cbor, number| {
            match number {
                key::LABEL => label = Some(cbor.str()?.to_owned()),
                key::CREATED => created = Some(Timestamp(cbor.i64()?)),
                key::ACCESS => access = access_of(cbor.u8()?),
                key::COST => {
                    expect_array(cbor, 3)?;
                    let (memory_kib, passes, lanes) = (cbor.u32()?, cbor.u32()?, cbor.u32()?);
                    cost = Some(KdfCost { memory_kib, passes, lanes });
                }
                key::SALT => salt = cbor.bytes()?.try_into().ok(),
                key::COMMITMENT => commitment = cbor.bytes()?.try_into().ok(),
                key::DOMAIN => domain = cbor.bytes()?.try_into().ok().map(DomainId),
                _ => cbor.skip()?,
            }
            Ok(())
        })
        .map_err(|error| damaged(&error.to_string()))?;
        let (clear, sealed) = bytes.split_at(cbor.position());
        if !secret::SEALED_BYTES.contains(&sealed.len()) {
            return Err(damaged("its secret has another length"));
        }
        let slot = (|| {
            Some(Self {
                id,
                label: label?,
                created: created?,
                access: access?,
                domain,
                cost: cost?,
                salt: salt?,
                commitment: commitment?,
                clear: clear.to_vec(),
                sealed: sealed.to_vec(),
            })
        })();
        slot.ok_or_else(|| damaged("a field is missing"))
    }
}

fn access_of(number: u8) -> Option<Access> {
    match number {
        0 => Some(Access::Full),
        1 => Some(Access::PutOnly),
        _ => None,
    }
}

fn damaged(detail: &str) -> FormatError {
    FormatError::damaged("key slot", detail)
}

#[cfg(test)]
mod tests;
