//! Snapshots that were removed, and that no verdict names: a place or a person did it, or another copy of
//! the repository.

use std::time::Duration;

use strongroom_base::{Cancel, Monitor, Problem, Severity, SnapshotId};
use strongroom_catalog::Recipe;
use strongroom_repository::objects::list_objects;
use strongroom_repository::{ChunkReader, Repository, RepositoryError, Wishes};

use super::inventory::Inventory;
use crate::health::census::Census;
use crate::repair::find_removed;

/// A snapshot that existed, or whose backup failed at its last step.
#[derive(Debug, PartialEq, Eq)]
pub struct Left {
    /// Its name.
    pub id: SnapshotId,
    /// The name of its domain.
    pub domain: String,
    /// Its sequence.
    pub sequence: u64,
    /// What is left of its trees: that of `/`, or all that may be below it.
    pub trees: Vec<Recipe>,
    /// Whether its object exists, and only rubbish is left of it.
    pub is_spoilt: bool,
    why: &'static str,
    way_out: &'static str,
}

/// What was found of them.
pub struct Removed {
    /// Never forgotten: a repair can commit them again, so what they need stays.
    pub lost: Vec<Left>,
    /// What is left of others, whose writers may be at work: it stays too, and nothing is said of it.
    pub in_doubt: Vec<Left>,
    /// Forgotten since.
    pub let_go: Vec<Left>,
}

/// Looks for them, and names those that were never forgotten. `patience` is that with sessions whose writers
/// may be at work.
///
/// # Errors
///
/// [`RepositoryError::NotCollectable`] if one of these has an object of which only rubbish is left.
pub fn find_lost(
    repository: &Repository,
    reader: &ChunkReader,
    inventory: &Inventory,
    patience: Duration,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Removed, RepositoryError> {
    let wishes = Wishes::read(repository)?;
    let mut census = Census::of_listing(&list_objects(repository.backend())?);
    for holding in inventory.arenas() {
        census.note(&holding.name.object(), holding.origin);
    }
    let find = |patience| find_left(repository, reader, &census, patience, monitor, cancel);
    // A plan made now may be carried out when patience with all of them is over.
    let first = find(Duration::ZERO)?;
    // A listing may show a later snapshot and not the one before it, for a moment.
    let mut again = if first.is_empty() { Vec::new() } else { find(Duration::ZERO)? };
    again.retain(|left| first.iter().any(|first| first.id == left.id));
    let (let_go, again): (Vec<_>, Vec<_>) =
        again.into_iter().partition(|left| wishes.forget(left.id));
    let ended = if again.is_empty() { Vec::new() } else { find(patience)? };
    let (lost, in_doubt): (Vec<_>, Vec<_>) =
        again.into_iter().partition(|left| ended.iter().any(|ended| ended.id == left.id));
    for left in &lost {
        if left.is_spoilt {
            let (what, why) = (format!("snapshot {}", left.id), left.why.to_owned());
            return Err(RepositoryError::NotCollectable { what, why });
        }
        let message = format!(
            "snapshot {}, sequence {}: {}, so what it needs stays. {}; if it was forgotten in another \
             copy of the repository, `strongroom forget {}`",
            left.id.short(),
            left.sequence,
            left.why,
            left.way_out,
            left.id
        );
        monitor.problem(Problem { severity: Severity::Warning, path: None, message: &message });
    }
    Ok(Removed { lost, in_doubt, let_go })
}

fn find_left(
    repository: &Repository,
    reader: &ChunkReader,
    census: &Census,
    patience: Duration,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Vec<Left>, RepositoryError> {
    let found = find_removed(repository, reader, census, patience, monitor, cancel)?;
    let own = repository.secret.domain_name();
    // What may never have been committed gives up no number: another snapshot may have it, or get it.
    let claims = |was_committed: bool, id: SnapshotId| match was_committed {
        true => own.to_owned(),
        false => id.to_string(),
    };
    let recognised = found.snapshots.into_iter().map(|lost| Left {
        id: lost.id,
        domain: claims(lost.was_committed, lost.id),
        sequence: lost.sequence,
        is_spoilt: lost.is_spoilt,
        why: lost.why_gone(),
        way_out: "`strongroom repair` commits it again",
        trees: vec![lost.root],
    });
    let others = found.unrecognised.into_iter().map(|lost| Left {
        id: lost.id,
        // Its name is not known, and no domain has this one: the number is that of no other's snapshot.
        domain: lost
            .domain
            .map_or_else(|| claims(lost.was_committed, lost.id), |domain| domain.to_string()),
        sequence: lost.sequence,
        is_spoilt: false,
        why: lost.why_gone(),
        way_out: lost.way_out(),
        trees: lost.trees,
    });
    Ok(recognised.chain(others).collect())
}
