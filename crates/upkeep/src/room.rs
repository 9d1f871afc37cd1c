//! What frees room has some kept for it: on a full disk, a wish or a plan could not be written.

use strongroom_repository::{ErrorKind, Repository, RepositoryError};

/// Does something that leads to more room. If there is none for its own objects, the room that was kept
/// is given up, and it is done again; then room is kept again.
pub fn with_kept_room<T>(
    repository: &Repository,
    act: impl Fn() -> Result<T, RepositoryError>,
) -> Result<T, RepositoryError> {
    let backend = repository.backend();
    match act() {
        Err(error) if error.kind() == ErrorKind::NoSpace && backend.release_room() => {
            let done = act();
            backend.save_room();
            done
        }
        other => other,
    }
}
