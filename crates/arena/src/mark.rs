//! The owner's mark: a signature in the summary of every generation after the first.
//!
//! Only the owner rewrites arenas. Every client that may create objects can create an object under
//! the name of a further generation of another domain's arena; it cannot make the mark. So a marked
//! generation says for all others of the arena which domain they must be of.

use strongroom_base::le::LeWrite;
use strongroom_base::seal::{AuthorityKey, AuthorityPublicKey, SIGNATURE_BYTES};
use strongroom_base::{ArenaId, DomainId};

use crate::envelope::format::Origin;

/// What a summary is bound to, besides its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SummaryBinding {
    pub arena: ArenaId,
    pub generation: u32,
    pub origin: Origin,
    pub domain: DomainId,
}

/// What a mark is signed as.
const CONTEXT: &str = "strongroom v0 arena generation";

/// The mark of a summary, decompressed, in the arena and generation that it is bound to.
pub(crate) fn mark(
    authority: &AuthorityKey,
    binding: &SummaryBinding,
    summary: &[u8],
) -> [u8; SIGNATURE_BYTES] {
    authority.sign(CONTEXT, &message(binding, summary))
}

/// Whether bytes that follow a summary begin with its mark.
pub(crate) fn is_marked(
    authority: &AuthorityPublicKey,
    binding: &SummaryBinding,
    summary: &[u8],
    following: &[u8],
) -> bool {
    let Some(mark) = following.first_chunk::<SIGNATURE_BYTES>() else { return false };
    // The first generation has none, and no mark is zeros.
    let is_there = binding.generation > 0 && *mark != [0; SIGNATURE_BYTES];
    is_there && authority.verifies(CONTEXT, &message(binding, summary), mark)
}

fn message(binding: &SummaryBinding, summary: &[u8]) -> Vec<u8> {
    let SummaryBinding { arena, generation, origin, domain } = binding;
    let mut message = arena.0.to_vec();
    message.put_u32(*generation);
    message.put(&origin.session.0);
    message.put_u64(origin.sequence);
    message.put(&domain.0);
    message.put(blake3::hash(summary).as_bytes());
    message
}
