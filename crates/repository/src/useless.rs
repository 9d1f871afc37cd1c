//! What is of no use under the names of what only the owner makes: no reader takes it for the owner's.
//!
//! It was planted, or it was the owner's and nothing of it can be read any more. It is found by
//! `verify`, and `repair` takes it away; until then it stops no verb. Not useless is what may still be
//! read one day, because the medium or its rights refuse it now; what a newer program made; what is
//! in for its object or its copy; and what counts although it cannot be read, as a remark that may be a
//! hold.

use strongroom_arena::envelope::format::HeaderError;
use strongroom_arena::envelope::{self, EnvelopeError};
use strongroom_backend::{BackendError, DIRECTORY_IN_PLACE, ObjectName, Removal, remove_object};

use crate::collections::Collections;
use crate::error::RepositoryError;
use crate::folders::show;
use crate::names::{Step, numbered_of};
use crate::objects::{
    ARRIVALS_FOLDER, COLLECTIONS_FOLDER, ENDED_FOLDER, FORGOTTEN_FOLDER, REMARKS_FOLDER, copy_of,
    expected, original_of, read_whole, rightful_name,
};
use crate::repository::Repository;
use crate::session::snapshot_object;
use crate::signed;
use crate::wishes::Wishes;

/// An object that is of no use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Useless {
    /// Its name.
    pub name: ObjectName,
    /// Whether it is whole, and the owner did not make it: no other program makes such objects.
    pub is_planted: bool,
    /// What is wrong with it.
    pub why: String,
}

/// The folders of what only the owner makes.
const FOLDERS: [&str; 5] =
    [COLLECTIONS_FOLDER, FORGOTTEN_FOLDER, REMARKS_FOLDER, ARRIVALS_FOLDER, ENDED_FOLDER];

/// What is at a name.
enum State {
    Sound,
    Planted,
    /// It was read to its end, or is no file.
    Rubbish(String),
    /// It may still be read, here or by another program.
    Unread,
}

/// Finds them. Only the owner can say so: any other key finds none.
pub fn find_useless(repository: &Repository) -> Result<Vec<Useless>, RepositoryError> {
    if repository.keys.owner.is_none() {
        return Ok(Vec::new());
    }
    let wishes = Wishes::read(repository)?;
    let mut found = Vec::new();
    for folder in FOLDERS {
        for info in show(repository.backend(), folder)?.objects {
            let name = info.name;
            if expected(&name).is_none() {
                continue;
            }
            let useless = match state_of(repository, &name)? {
                State::Sound | State::Unread => continue,
                State::Planted => {
                    let why = "the owner did not make it".to_owned();
                    Useless { name, is_planted: true, why }
                }
                State::Rubbish(why) => Useless { name, is_planted: false, why },
            };
            if useless.is_planted || !counts(repository, &wishes, &useless.name)? {
                found.push(useless);
            }
        }
    }
    Ok(found)
}

/// Removes them; returns what could not be removed, and why. What is to be answered first, is.
///
/// # Errors
///
/// Only the owner may.
pub fn remove_useless(
    repository: &Repository,
    useless: &[ObjectName],
) -> Result<Vec<(ObjectName, String)>, RepositoryError> {
    let mut left = Vec::new();
    if repository.keys.owner.is_none() {
        return Err(RepositoryError::PutOnly);
    }
    // As long as a plan may be the owner's, the numbers before it must stay taken.
    let mut collections = Collections::read_settled(repository)?;
    if let Some(doubtful) = collections.doubtful().map(|(name, _)| name) {
        let verdict = useless.iter().filter(|name| {
            name.folder() == COLLECTIONS_FOLDER
                && name.file().split('.').next() == doubtful.file().split('.').next()
                && *name != &doubtful
        });
        for name in verdict {
            left.extend(remove(repository, name)?);
        }
        collections = Collections::read_settled(repository)?;
    }
    let doubt = collections.doubtful().map(|(name, _)| format!("{name} cannot be read"));
    let wishes = Wishes::read(repository)?;
    for name in useless {
        if let (COLLECTIONS_FOLDER, Some(doubt)) = (name.folder(), &doubt) {
            left.push((name.clone(), doubt.clone()));
            continue;
        }
        if let (FORGOTTEN_FOLDER, Some((snapshot, _))) = (name.folder(), numbered_of(name.file()))
            && wishes.unreadable(snapshot).is_some()
        {
            // It may have been to keep the snapshot: that is what counts so far, and goes on to.
            wishes.keep(repository, snapshot)?;
        }
        left.extend(remove(repository, name)?);
    }
    Ok(left)
}

fn remove(
    repository: &Repository,
    name: &ObjectName,
) -> Result<Option<(ObjectName, String)>, RepositoryError> {
    // Another repair may have removed it, and a collector taken the name.
    if matches!(state_of(repository, name)?, State::Sound | State::Unread) {
        return Ok(None);
    }
    match remove_object(repository.backend(), name) {
        Ok(Removal::Removed | Removal::Absent) => Ok(None),
        Ok(Removal::Directory) => Ok(Some((name.clone(), DIRECTORY_IN_PLACE.to_owned()))),
        Err(error) if error.is_damage() => Ok(Some((name.clone(), error.to_string()))),
        Err(error) => Err(error.into()),
    }
}

/// Whether an object counts although nothing of it can be read, or its other copy restores it.
fn counts(
    repository: &Repository,
    wishes: &Wishes,
    name: &ObjectName,
) -> Result<bool, RepositoryError> {
    match name.folder() {
        REMARKS_FOLDER => Ok(numbered_of(name.file())
            .is_some_and(|(snapshot, number)| wishes.remarks().may_hold(snapshot, number))),
        COLLECTIONS_FOLDER => {
            let has_twin =
                Step::or_copy_of(name.file()).is_some_and(|(_, step, _)| step.has_copy());
            Ok(has_twin && is_sound_beside(repository, name)?)
        }
        ENDED_FOLDER => is_sound_beside(repository, name),
        _ => Ok(false),
    }
}

/// Whether the other copy of an object is sound.
fn is_sound_beside(repository: &Repository, name: &ObjectName) -> Result<bool, RepositoryError> {
    let twin = original_of(name).unwrap_or_else(|| copy_of(name));
    Ok(matches!(state_of(repository, &twin)?, State::Sound))
}

fn state_of(repository: &Repository, at: &ObjectName) -> Result<State, RepositoryError> {
    let name = original_of(at).unwrap_or_else(|| at.clone());
    let read = match at.folder() {
        REMARKS_FOLDER | ARRIVALS_FOLDER => signed::read_private(repository, at),
        ENDED_FOLDER => signed::read_private_at(repository, at, &name),
        _ => signed::read_at(repository, at, &name),
    };
    Ok(match read {
        Ok(_) => State::Sound,
        Err(RepositoryError::Forged { .. }) if is_displaced(repository, at)? => State::Unread,
        Err(RepositoryError::Forged { .. }) => State::Planted,
        Err(RepositoryError::Object { source, .. }) => match source {
            EnvelopeError::Unknown | EnvelopeError::Header(HeaderError::NewerVersion { .. }) => {
                State::Unread
            }
            source if is_read_whole(repository, at) => State::Rubbish(source.to_string()),
            _ => State::Unread,
        },
        Err(RepositoryError::Backend(error)) => match error {
            BackendError::TooLarge { .. } => State::Rubbish(error.to_string()),
            BackendError::Unreadable { ref source, .. } if error.is_no_file() => {
                State::Rubbish(source.to_string())
            }
            error if error.is_damage() || error.is_not_found() || error.is_withheld() => {
                State::Unread
            }
            error => return Err(error.into()),
        },
        Err(error) if error.is_damage() => State::Unread,
        Err(error) => return Err(error),
    })
}

/// Whether the medium gave every byte of an object.
fn is_read_whole(repository: &Repository, at: &ObjectName) -> bool {
    let read = read_whole(repository.backend(), at, repository.config.arena_bytes);
    read.is_ok_and(|object| object.refused_bytes == 0)
}

/// Whether the owner made it for another name, and no object has that name: a person has moved it, and can
/// move it back. Otherwise it is only a copy, and of no use under this name; so is the plan of a collection
/// that has ended, which was removed.
fn is_displaced(repository: &Repository, at: &ObjectName) -> Result<bool, RepositoryError> {
    let object = match read_whole(repository.backend(), at, repository.config.arena_bytes) {
        Ok(object) => object,
        Err(error) if error.is_damage() || error.is_not_found() => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let header = envelope::peek(&object.bytes).ok();
    let rightful = header.and_then(|header| rightful_name(&header));
    let rightful = rightful.filter(|name| {
        FOLDERS.contains(&name.folder()) && *name != original_of(at).unwrap_or_else(|| at.clone())
    });
    let Some(rightful) = rightful else { return Ok(false) };
    let is_of_the_owner = signed::read_at(repository, at, &rightful).is_ok();
    let is_there = || signed::read(repository, &rightful).is_ok();
    // What was said of a snapshot that a collection has removed went with it. While there is an object of
    // it, this may be what keeps it after all.
    let is_over = || -> Result<bool, RepositoryError> {
        if let (FORGOTTEN_FOLDER | REMARKS_FOLDER, Some((snapshot, _))) =
            (rightful.folder(), numbered_of(rightful.file()))
        {
            let object = repository.backend().size(&snapshot_object(snapshot));
            let is_missing = object.is_err_and(|error| error.is_not_found());
            return Ok(is_missing && Collections::read(repository)?.took(snapshot));
        }
        let step =
            Step::or_copy_of(rightful.file()).filter(|_| rightful.folder() == COLLECTIONS_FOLDER);
        let is_plan = step.is_some_and(|(_, step, _)| step == Step::Plan);
        Ok(is_plan && Collections::read(repository)?.has_ended(&rightful))
    };
    Ok(is_of_the_owner && !is_there() && !is_over()?)
}
