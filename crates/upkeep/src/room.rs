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

/// The same for many small steps. A collection needs room after them, so only half of what was kept is
/// given up. If that is too little to be halved, and `can_collect` says that a collection has nothing to
/// do without a first step, all of it is given up for that step, and as much as is left is kept again.
/// Returns how many of the steps were done, and why not the next one, if there was no room.
pub fn while_room_lasts<T>(
    repository: &Repository,
    steps: &[T],
    can_collect: impl Fn() -> Result<bool, RepositoryError>,
    mut act: impl FnMut(&T) -> Result<(), RepositoryError>,
) -> Result<(usize, Option<RepositoryError>), RepositoryError> {
    let backend = repository.backend();
    let mut was_released = false;
    for (done, step) in steps.iter().enumerate() {
        let mut acted = act(step);
        if is_no_space(&acted) && !was_released {
            was_released = true;
            if backend.release_half_room() {
                acted = act(step);
            } else if done == 0 && !can_collect()? && backend.release_room() {
                acted = act(step);
                backend.save_room();
            }
        }
        match acted {
            Err(error) if error.kind() == ErrorKind::NoSpace => return Ok((done, Some(error))),
            other => other?,
        }
    }
    Ok((steps.len(), None))
}

fn is_no_space(done: &Result<(), RepositoryError>) -> bool {
    done.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace)
}
