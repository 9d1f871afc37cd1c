//! The key to the blocks of an arena. A reader opens its private seal with the first block that it
//! reads: most arenas are opened for their summaries alone, and the seal costs more than all else.

use std::sync::{Arc, OnceLock};

use strongroom_base::ArenaId;
use strongroom_base::keys::derive_object_key;
use strongroom_base::seal::{PrivateKey, SealKey};
use zeroize::Zeroizing;

use crate::error::{ArenaError, damaged};
use crate::format::{ArenaHead, BLOCKS_SALT_BYTES};

/// The context in which arena keys are sealed.
pub(crate) const KEY_INFO: &str = "strongroom v0 arena key";
/// The context in which the key of blocks that were sealed again is derived from the arena's key and a salt.
const BLOCKS_CONTEXT: &str = "strongroom v0 arena blocks";
/// The context in which the salt is derived from the arena's key and the hash of all that is sealed.
const SALT_CONTEXT: &str = "strongroom v0 salt of arena blocks";

/// The key to the blocks of one arena.
pub struct BlocksKey {
    arena: ArenaId,
    head: ArenaHead,
    origin: KeyOrigin,
    /// None inside once it was tried in vain.
    opened: OnceLock<Option<SealKey>>,
}

/// Where an arena's key comes from.
enum KeyOrigin {
    /// From the secret of its session.
    Known(Zeroizing<[u8; 32]>),
    /// From its head.
    Sealed(Arc<PrivateKey>),
}

impl BlocksKey {
    /// From the key of an arena, if that is known.
    pub fn known(arena: ArenaId, key: [u8; 32], head: ArenaHead) -> Self {
        let origin = KeyOrigin::Known(Zeroizing::new(key));
        Self { arena, head, origin, opened: OnceLock::new() }
    }

    /// From the arena's head, for a holder of the private key.
    pub fn sealed(arena: ArenaId, private_key: Arc<PrivateKey>, head: ArenaHead) -> Self {
        Self { arena, head, origin: KeyOrigin::Sealed(private_key), opened: OnceLock::new() }
    }

    /// The key.
    ///
    /// # Errors
    ///
    /// [`ArenaError::Damaged`] if the head does not hold it.
    pub fn open(&self) -> Result<&SealKey, ArenaError> {
        let open = || self.of_arena().map(|key| of_blocks(&key, &self.head.salt));
        self.opened.get_or_init(open).as_ref().ok_or_else(|| self.closed())
    }

    /// The salt and the key for blocks of the arena that are sealed again. The same blocks get the same
    /// salt, and others another one, so no number is used for two messages under one key.
    ///
    /// # Errors
    ///
    /// [`ArenaError::Damaged`] if the head does not hold the arena's key.
    pub fn again(
        &self,
        hash: &blake3::Hash,
    ) -> Result<([u8; BLOCKS_SALT_BYTES], SealKey), ArenaError> {
        let key = self.of_arena().ok_or_else(|| self.closed())?;
        let derived = derive_object_key(SALT_CONTEXT, &key, hash.as_bytes());
        let salt = derived.first_chunk().copied().expect("32 bytes are more than 12");
        Ok((salt, of_blocks(&key, &salt)))
    }

    fn of_arena(&self) -> Option<Zeroizing<[u8; 32]>> {
        match &self.origin {
            KeyOrigin::Known(key) => Some(key.clone()),
            KeyOrigin::Sealed(private_key) => {
                let key = private_key.open(KEY_INFO, &self.arena.0, &self.head.sealed_key).ok()?;
                Some(Zeroizing::new(key.try_into().ok()?))
            }
        }
    }

    fn closed(&self) -> ArenaError {
        damaged(self.arena, "its key does not open")
    }
}

fn of_blocks(key: &[u8; 32], salt: &[u8; BLOCKS_SALT_BYTES]) -> SealKey {
    match *salt == [0; BLOCKS_SALT_BYTES] {
        true => SealKey::new(key),
        false => SealKey::new(&derive_object_key(BLOCKS_CONTEXT, key, salt)),
    }
}
