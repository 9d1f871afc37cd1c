//! Snapshots that were removed, and that no verdict names: a place or a person did it, or another copy of
//! the repository.

use strongroom_base::{Cancel, Monitor, Problem, Severity};
use strongroom_repository::objects::list_objects;
use strongroom_repository::{ChunkReader, Repository, RepositoryError, Wishes};

use super::inventory::Inventory;
use crate::health::census::Census;
use crate::health::lost::LostSnapshot;
use crate::repair::find_removed;

/// What was found of them.
pub struct Removed {
    /// Never forgotten: a repair can commit them again, so what they need stays.
    pub lost: Vec<LostSnapshot>,
    /// Forgotten since.
    pub let_go: Vec<LostSnapshot>,
}

/// Looks for them, and names those that were never forgotten.
///
/// # Errors
///
/// [`RepositoryError::NotCollectable`] if one of these has an object of which only rubbish is left.
pub fn find_lost(
    repository: &Repository,
    reader: &ChunkReader,
    inventory: &Inventory,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<Removed, RepositoryError> {
    let wishes = Wishes::read(repository)?;
    let mut census = Census::of_listing(&list_objects(repository.backend())?);
    for holding in inventory.arenas() {
        census.note(&holding.name.object(), holding.origin);
    }
    let find = || -> Result<Vec<LostSnapshot>, RepositoryError> {
        let mut found = find_removed(repository, reader, &census, monitor, cancel)?;
        found.retain(|lost| lost.was_committed);
        Ok(found)
    };
    let first = find()?;
    // A listing may show a later snapshot and not the one before it, for a moment.
    let mut again = if first.is_empty() { Vec::new() } else { find()? };
    again.retain(|lost| first.contains(lost));
    let (let_go, lost): (Vec<_>, Vec<_>) =
        again.into_iter().partition(|lost| wishes.forget(lost.id));
    for lost in &lost {
        if lost.is_spoilt {
            let (what, why) = (format!("snapshot {}", lost.id), lost.why_gone().to_owned());
            return Err(RepositoryError::NotCollectable { what, why });
        }
        let message = format!(
            "snapshot {}, sequence {}, {}: what it needs stays. `strongroom repair` commits it again; \
             if it was forgotten in another copy of the repository, `strongroom forget {}`",
            lost.id.short(),
            lost.sequence,
            lost.why_gone(),
            lost.id
        );
        monitor.problem(Problem { severity: Severity::Warning, path: None, message: &message });
    }
    Ok(Removed { lost, let_go })
}
