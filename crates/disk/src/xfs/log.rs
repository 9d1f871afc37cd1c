//! The log, replayed in memory: which bytes are newer in it than in their place.
//!
//! The log is a ring of records ([`ring`]), whose operations are parts of transactions
//! ([`transactions`]), which consist of items ([`items`]): parts of blocks, inodes, and what the
//! kernel still intended to do. As in the kernel, two passes go over it: the first finds the blocks
//! that were freed and must not be written any more, the second takes the changes.

mod ring;

mod transactions;

mod newer;

mod inodes;

mod items;

use crate::error::{DiskError, Result};
use crate::file_system::Unclean;

use super::blocks::{Blocks, Overlay, TooLarge};

use items::Replayer;
use newer::{Cancelled, Newer};
use ring::{Ring, Span};
use transactions::Transactions;

/// What a replay found.
pub(super) struct Replay {
    pub overlay: Overlay,
    pub transactions: u32,
}

/// Why a replay ends.
enum Stop {
    Unclean(Unclean),
    Disk(DiskError),
}

const DAMAGED: Stop = Stop::Unclean(Unclean::JournalDamaged);

impl From<DiskError> for Stop {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

impl From<TooLarge> for Stop {
    fn from(TooLarge: TooLarge) -> Self {
        Self::Unclean(Unclean::JournalTooLarge)
    }
}

/// Replays the log; `None` if the volume was unmounted. The inner error says why it cannot be done.
pub(super) fn replay(blocks: &Blocks<'_>) -> Result<Result<Option<Replay>, Unclean>> {
    match try_replay(blocks) {
        Ok(replay) => Ok(Ok(replay)),
        Err(Stop::Unclean(unclean)) => Ok(Err(unclean)),
        Err(Stop::Disk(DiskError::Io(error))) => Err(error.into()),
        Err(Stop::Disk(_)) => Ok(Err(Unclean::JournalDamaged)),
    }
}

fn try_replay(blocks: &Blocks<'_>) -> Result<Option<Replay>, Stop> {
    let ring = Ring::open(blocks)?;
    let Some(span) = ring.span()? else { return Ok(None) };
    if !blocks.superblock.has_known_log() {
        return Err(Stop::Unclean(Unclean::JournalUnknown));
    }
    let mut cancelled = Cancelled::default();
    transactions(&ring, span, &mut |one| items::note_cancelled(&mut cancelled, one))?;
    let mut replayer = Replayer::new(Newer::new(blocks, cancelled));
    transactions(&ring, span, &mut |transaction| replayer.take(transaction))?;
    let (overlay, transactions) = replayer.finish()?;
    Ok(Some(Replay { overlay, transactions }))
}

/// Gives each transaction that was committed to `take`, in the order of the commits.
fn transactions(
    ring: &Ring<'_, '_>,
    span: Span,
    take: &mut dyn FnMut(&transactions::Transaction) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut open = Transactions::default();
    ring.records(span, &mut |record| open.record(record, take))
}
