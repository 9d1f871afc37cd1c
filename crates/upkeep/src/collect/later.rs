//! `prune --later` and `prune --undo`: what is condemned today is removed by the next prune, and can
//! be brought back until then.
//!
//! Nothing of this is a step of its own in the protocol: a plan may wait for its verdict as long as
//! it likes, and a verdict may remove nothing (`docs/concurrency.md`). What a plan condemns, no writer
//! relies on meanwhile, so it takes its space a day longer, and content that comes back is stored
//! again.

use strongroom_arena::CacheLimits;
use strongroom_backend::Withheld;
use strongroom_base::units::counted;
use strongroom_base::{Cancel, Monitor, SnapshotId};
use strongroom_repository::{
    Collections, Repository, RepositoryError, Selection, Wishes, create_verdict,
};

use super::carry::{Way, carry_out};
use super::{PruneOptions, PruneOutcome, Stage, prune_until};
use crate::reader::reader_of_everything;
use crate::room::with_kept_room;
use crate::verify::{VerifyDepth, VerifyOutcome, verify};

/// Removes what an earlier prune condemned, if nothing that snapshots need is damaged, and condemns what
/// no snapshot needs now. The next prune removes it.
///
/// # Errors
///
/// As [`prune`](super::prune). [`RepositoryError::NotCollectableNow`] if something is withheld, and so
/// could not be verified.
pub fn prune_later(
    repository: &Repository,
    options: &PruneOptions,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Later, RepositoryError> {
    let open = Collections::read_settled(repository)?.open;
    // What is decided is final, and was asked about before.
    let verified = open.as_ref().filter(|open| !options.dry_run && !open.decided);
    if let Some(open) = verified {
        let found = verify(repository, VerifyDepth::Structure, monitor, cancel)?;
        if found.forbids_removal(&open.selection) {
            return Ok(Later::Doubted(Box::new(found)));
        }
        // Nothing is known to be wrong: it is to be read, and not to be repaired.
        if !found.is_complete() {
            return Err(not_read(&found));
        }
    }
    prune_until(repository, options, Stage::Condemned { verified }, monitor, cancel)
        .map(|outcome| Later::Pruned(Box::new(outcome)))
}

/// That something was withheld which would have to be verified first.
fn not_read(found: &VerifyOutcome) -> RepositoryError {
    let first = found.withheld.first();
    let more = match found.withheld.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", counted(count as u64 - 1, "object", "objects")),
    };
    RepositoryError::NotCollectableNow {
        what: first
            .map_or_else(|| "what snapshots need".to_owned(), |(name, ..)| format!("{name}{more}")),
        withheld: first.map_or(Withheld::Archived, |(_, why, _)| *why),
        why: first.map_or_else(|| Withheld::Archived.to_string(), |(.., answer)| answer.clone()),
    }
}

/// What came of a prune that removes later.
#[derive(Debug)]
pub enum Later {
    /// It was done. If `condemned`, the last collection waits for the next prune.
    Pruned(Box<PruneOutcome>),
    /// Nothing was removed and nothing condemned, because the repository is not sound: what was
    /// condemned before may be needed to mend it.
    Doubted(Box<VerifyOutcome>),
}

/// What was brought back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    /// The collection that removes nothing now.
    pub collection: u64,
    /// Snapshots that are no longer forgotten.
    pub snapshots: Vec<SnapshotId>,
    /// Snapshots that another collection has taken meanwhile.
    pub late: Vec<SnapshotId>,
}

/// Brings back what the last prune condemned; none if nothing is condemned.
///
/// # Errors
///
/// [`RepositoryError::Decided`] if it is too late: a prune has begun to remove it.
pub fn undo_prune(
    repository: &Repository,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Option<Undone>, RepositoryError> {
    repository.check_mode()?;
    repository.check_place()?;
    // A full disk is when it is wanted most.
    with_kept_room(repository, || undo(repository, monitor, cancel))
}

fn undo(
    repository: &Repository,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Option<Undone>, RepositoryError> {
    let collections = Collections::read_settled(repository)?;
    if let Some((name, why)) = collections.blocked() {
        return Err(RepositoryError::undecided(name, why));
    }
    let Some(open) = collections.open else { return Ok(None) };
    Wishes::read(repository)?.refuse_withheld().map_err(|folder| folder.error())?;
    let collection = open.number;
    // The first verdict counts, whether it is this one or that of a prune at the same time.
    let (verdict, _) = create_verdict(repository, collection, &Selection::default())?;
    if verdict != Selection::default() {
        return Err(RepositoryError::Decided { collection });
    }
    let reader = reader_of_everything(repository, CacheLimits::default())?;
    carry_out(repository, reader.store(), collection, &verdict, &Way::whole(monitor, cancel))?;
    // Only now: while they are in a plan, the wishes cannot be taken back.
    let wishes = Wishes::read(repository)?;
    let (mut snapshots, mut late) = (Vec::new(), Vec::new());
    for forgotten in open.selection.snapshots {
        match wishes.undo(repository, forgotten.id)? {
            true => snapshots.push(forgotten.id),
            false => late.push(forgotten.id),
        }
    }
    Ok(Some(Undone { collection, snapshots, late }))
}
