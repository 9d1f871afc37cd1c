//! Opening an arena: header, head and summary, by the key of its domain or by a voucher.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use strongroom_backend::Withheld;
use strongroom_base::seal::AuthorityKey;
use strongroom_base::{ArenaId, DomainId, DomainKeys, SnapshotId};

use super::ArenaStore;
use crate::blocks_key::BlocksKey;
use crate::envelope;
use crate::envelope::format::{HEADER_BYTES, Header};
use crate::error::{ArenaError, damaged, format_error};
use crate::format::{ArenaHead, SUMMARY_START};
use crate::mark::SummaryBinding;
use crate::name::ArenaName;
use crate::opened::Arena;
use crate::voucher::Voucher;
use crate::writer::{ArenaContent, key_of_summary, open_summary};

/// Bytes that are read to open an arena: header, head and, of most arenas, the summary.
const OPENING_BYTES: usize = 64 << 10;

/// Which arenas are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Any,
    /// Those that a writer may build upon.
    Trusted,
}

impl ArenaStore {
    pub(super) fn open_arena(&self, name: ArenaName, wanted: Wanted) -> Result<Arena, ArenaError> {
        let opening = match self.reads_no_blocks.load(Ordering::Relaxed) {
            true => SUMMARY_START,
            false => OPENING_BYTES,
        };
        let mut start = match self.read(name, 0, opening) {
            // Perhaps only a block after the summary cannot be read: that is no reason to lose the
            // summary.
            Err(ArenaError::Damaged { .. }) => self.read(name, 0, SUMMARY_START)?,
            // Who may not read blocks reads what is in front of them, and asks for no more.
            Err(error) if error.withheld() == Some(Withheld::Forbidden) => {
                let start = self.read(name, 0, SUMMARY_START)?;
                self.reads_no_blocks.store(true, Ordering::Relaxed);
                start
            }
            other => other?,
        };
        let (_, head) = heads_of(name, &start)?;
        // The head bounds the length; see ArenaHead::unpack.
        let missing = (head.blocks_start() as usize).saturating_sub(start.len());
        if missing > 0 {
            start.append(&mut self.read(name, start.len() as u64, missing)?);
        }
        self.open_wanted_in(name, &start, wanted)
    }

    /// Opens an arena from the bytes of its object, or from a beginning of it that contains the
    /// summary.
    pub fn open_arena_in(&self, name: ArenaName, object: &[u8]) -> Result<Arena, ArenaError> {
        self.open_wanted_in(name, object, Wanted::Any)
    }

    pub(super) fn open_wanted_in(
        &self,
        name: ArenaName,
        object: &[u8],
        wanted: Wanted,
    ) -> Result<Arena, ArenaError> {
        let id = name.id;
        let (header, head) = heads_of(name, object)?;
        if self.only_of.is_some_and(|domain| domain != head.domain) {
            return Err(ArenaError::NotPossessed { arena: id, domain: head.domain });
        }
        let sealed = sealed_summary_in(id, &head, object)?;
        let binding = binding_of(id, &header, &head);
        let voucher = self.voucher_for(id, &header, sealed);
        let trusted = head.domain == self.keys.write.domain.id || voucher.is_some();
        if wanted == Wanted::Trusted && !trusted {
            return Err(ArenaError::Foreign { arena: id, domain: head.domain });
        }
        let key = match (self.keys.domain(head.domain), voucher) {
            (Some(domain), _) => key_of_summary(sealed, &binding, &domain.summary_key),
            (None, Some(voucher)) => Ok(voucher.summary_key),
            (None, None) => return Err(ArenaError::Foreign { arena: id, domain: head.domain }),
        };
        let authority = &self.keys.write.authority;
        let opened = key.and_then(|key| open_summary(sealed, &binding, &key, authority));
        let (summary, is_marked) = opened.map_err(|error| format_error(id, error))?;
        let arena = Arena {
            id,
            generation: header.generation,
            domain: head.domain,
            trusted,
            is_marked,
            origin: header.origin,
            summary,
            object_bytes: header.layout().object_bytes as u64,
            blocks_start: head.blocks_start(),
            first_places: Vec::new(),
            key: self.blocks_key(id, &head, header.origin.session).map(Arc::new),
        };
        Ok(arena.with_places())
    }

    /// The voucher that applies to this object, if there is one.
    fn voucher_for(&self, id: ArenaId, header: &Header, sealed_summary: &[u8]) -> Option<Voucher> {
        let vouchers = self.vouchers.read().unwrap_or_else(PoisonError::into_inner);
        let applies = |voucher: &&Voucher| {
            voucher.generation == header.generation
                && voucher.body_hash == header.body_hash
                && voucher.summary_hash == *blake3::hash(sealed_summary).as_bytes()
        };
        vouchers.get(&id)?.iter().find(applies).cloned()
    }

    /// Trusts the arenas that the owner vouches for, each in the generations for which there is a voucher. The
    /// vouchers must be authentic.
    pub fn trust(&self, vouchers: Vec<Voucher>) {
        let mut known = self.vouchers.write().unwrap_or_else(PoisonError::into_inner);
        for voucher in vouchers {
            let of_arena = known.entry(voucher.arena).or_default();
            if !of_arena.contains(&voucher) {
                of_arena.push(voucher);
            }
        }
    }

    /// The key that marks generations, if this is the owner.
    pub(crate) fn authority(&self) -> Result<&AuthorityKey, ArenaError> {
        self.keys.owner.as_ref().map(|owner| &owner.authority).ok_or(ArenaError::PutOnly)
    }

    /// The keys of a domain, if this holder has them.
    pub(crate) fn domain(&self, id: DomainId) -> Option<DomainKeys> {
        self.keys.domain(id)
    }

    /// True if the owner vouched for a generation of the arena.
    pub fn is_vouched(&self, id: ArenaId) -> bool {
        self.vouchers.read().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
    }

    /// A voucher for an arena, from its whole object. The caller must have checked that the arena
    /// holds what its summary says.
    pub fn vouch_for(&self, name: ArenaName, object: &[u8]) -> Result<Voucher, ArenaError> {
        let id = name.id;
        let (header, head) = heads_of(name, object)?;
        let sealed = sealed_summary_in(id, &head, object)?;
        let foreign = ArenaError::Foreign { arena: id, domain: head.domain };
        let domain = self.keys.domain(head.domain).ok_or(foreign)?;
        let key = key_of_summary(sealed, &binding_of(id, &header, &head), &domain.summary_key);
        Ok(Voucher {
            arena: id,
            generation: header.generation,
            body_hash: header.body_hash,
            summary_hash: *blake3::hash(sealed).as_bytes(),
            summary_key: key.map_err(|error| format_error(id, error))?,
        })
    }

    /// The key of an arena's blocks; `None` for a put-only holder who does not know the secret of
    /// its session.
    pub(crate) fn blocks_key(
        &self,
        id: ArenaId,
        head: &ArenaHead,
        session: SnapshotId,
    ) -> Option<BlocksKey> {
        if let Some(private_key) = &self.private_key {
            return Some(BlocksKey::sealed(id, private_key.clone(), head.clone()));
        }
        let secret = self.secrets.get(&session)?;
        Some(BlocksKey::known(id, secret.arena_key(id), head.clone()))
    }
}

/// What an arena's summary is bound to.
fn binding_of(arena: ArenaId, header: &Header, head: &ArenaHead) -> SummaryBinding {
    let (generation, origin, domain) = (header.generation, header.origin, head.domain);
    SummaryBinding { arena, generation, origin, domain }
}

/// The sealed summary in the bytes of an object, or of its beginning.
fn sealed_summary_in<'o>(
    id: ArenaId,
    head: &ArenaHead,
    object: &'o [u8],
) -> Result<&'o [u8], ArenaError> {
    let summary = SUMMARY_START..head.blocks_start() as usize;
    object.get(summary).ok_or_else(|| damaged(id, "it is too short"))
}

pub(crate) fn heads_of(name: ArenaName, object: &[u8]) -> Result<(Header, ArenaHead), ArenaError> {
    let ArenaName { id, generation } = name;
    let header = envelope::peek(object).map_err(|error| damaged(id, error))?;
    if header.is_unknown() {
        return Err(ArenaError::Unknown { arena: id });
    }
    let is_named_so = header.kind == ArenaContent::of(id).object_kind()
        && header.id == id.0
        && header.generation == generation;
    if !is_named_so {
        return Err(damaged(id, "another object is in its place"));
    }
    let head =
        ArenaHead::unpack(&object[HEADER_BYTES..]).map_err(|error| format_error(id, error))?;
    if head.body_bytes() != header.body_bytes {
        return Err(damaged(id, "its head contradicts its header"));
    }
    Ok((header, head))
}
