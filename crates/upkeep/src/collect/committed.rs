//! Sessions that a prune must not end, although their writers have not been heard of for long: their snapshots
//! were committed, and are gone.

use std::collections::BTreeSet;

use strongroom_base::{Monitor, Problem, Severity, SnapshotId};
use strongroom_repository::{ListedSession, OwnRecord, RepositoryError, list_snapshots};

use super::Collector;
use crate::health::census::Census;
use crate::health::ended::Proofs;
use crate::health::lost::Unrecognised;
use crate::repair::find_removed;

/// Those of these sessions whose snapshots a repair can commit again, or could if it knew more of them.
pub(super) fn find_committed(
    collector: &Collector<'_>,
    sessions: &[ListedSession],
) -> Result<BTreeSet<SnapshotId>, RepositoryError> {
    let Collector { repository, reader, options, monitor, cancel, .. } = collector;
    if sessions.is_empty() {
        return Ok(BTreeSet::new());
    }
    let list = list_snapshots(repository)?;
    let proofs = Proofs::read(repository, &list, &OwnRecord::read(repository, *monitor))?;
    // As long as nothing is missed, no header has to be read.
    if !sessions.iter().any(|session| proofs.may_concern(session.id)) {
        return Ok(BTreeSet::new());
    }
    let census = Census::take(repository.backend())?;
    let lost = find_removed(repository, reader, &census, options.patience, *monitor, cancel)?;
    // The headers of what another domain has stored prove nothing.
    let is_proven = |left: &&Unrecognised| left.domain.is_none() || proofs.are_certain(left.id);
    let others = lost.unrecognised.iter().filter(is_proven).map(|left| left.id);
    Ok(lost.snapshots.iter().map(|lost| lost.id).chain(others).collect())
}

/// Says what has to be done about such a session.
pub(super) fn say_committed(session: SnapshotId, monitor: &dyn Monitor) {
    let message = format!(
        "session {} is not ended, because its snapshot was committed and is gone, without having been \
         forgotten: run `strongroom repair`, and then `strongroom prune` again; if it was forgotten in \
         another copy of the repository, `strongroom forget {session}`",
        session.short()
    );
    monitor.problem(Problem { severity: Severity::Warning, path: None, message: &message });
}
