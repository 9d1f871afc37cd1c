//! The key to the blocks of an arena. A reader opens its private seal with the first block that it
//! reads: most arenas are opened for their summaries alone, and the seal costs more than all else.

use std::sync::{Arc, OnceLock};

use strongroom_base::ArenaId;
use strongroom_base::keys::derive_object_key;
use strongroom_base::seal::{PrivateKey, SealKey};

use crate::error::{ArenaError, damaged};
use crate::format::{ArenaHead, BLOCKS_SALT_BYTES};
use crate::writer::KEY_INFO;

/// What the key of blocks that were sealed again is derived as, from the arena's key and a salt.
const BLOCKS_CONTEXT: &str = "strongroom v0 arena blocks";

/// The key to the blocks of one arena.
pub struct BlocksKey {
    arena: ArenaId,
    /// None inside once it was tried in vain.
    opened: OnceLock<Option<SealKey>>,
    sealed: Option<(Arc<PrivateKey>, ArenaHead)>,
}

impl BlocksKey {
    /// From the key of an arena, if that is known.
    pub fn known(arena: ArenaId, key: &[u8; 32], head: &ArenaHead) -> Self {
        let opened = OnceLock::from(Some(of_blocks(key, head)));
        Self { arena, opened, sealed: None }
    }

    /// From the arena's head, for a holder of the private key.
    pub fn sealed(arena: ArenaId, private_key: Arc<PrivateKey>, head: ArenaHead) -> Self {
        Self { arena, opened: OnceLock::new(), sealed: Some((private_key, head)) }
    }

    /// The key.
    ///
    /// # Errors
    ///
    /// [`ArenaError::Damaged`] if the head does not hold it.
    pub fn open(&self) -> Result<&SealKey, ArenaError> {
        let open = || {
            let (private_key, head) = self.sealed.as_ref()?;
            let key = private_key.open(KEY_INFO, &self.arena.0, &head.sealed_key).ok()?;
            Some(of_blocks(&key.try_into().ok()?, head))
        };
        let opened = self.opened.get_or_init(open).as_ref();
        opened.ok_or_else(|| damaged(self.arena, "its key does not open"))
    }
}

fn of_blocks(key: &[u8; 32], head: &ArenaHead) -> SealKey {
    match head.salt == [0; BLOCKS_SALT_BYTES] {
        true => SealKey::new(key),
        false => SealKey::new(&derive_object_key(BLOCKS_CONTEXT, key, &head.salt)),
    }
}
