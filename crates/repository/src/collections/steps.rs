//! The objects of a collection's steps: how they are created, and what is found under their names.
//!
//! A plan and a verdict have a second copy, created from the bytes that count once those are there:
//! the name without `.copy` alone decides who was first. Each of the two is enough to know what goes.

use std::collections::BTreeSet;

use strongroom_arena::envelope;
use strongroom_backend::{BackendError, ObjectName, remove_object};
use strongroom_base::ArenaId;
use strongroom_catalog::FormatError;

use super::{End, Selection};
use crate::error::RepositoryError;
use crate::names::Step;
use crate::objects::{copy_of, read_whole};
use crate::repository::Repository;
use crate::signed;

/// What is under a name.
#[derive(Debug)]
pub(super) enum Found<T> {
    /// What the owner made.
    Is(T),
    /// Something whole that the owner did not make: nothing that the owner made becomes that by
    /// damage, so it was planted, and does not count.
    Forged,
    /// Something that may be, or may have been, the owner's.
    Unreadable(RepositoryError),
    /// Nothing.
    Missing,
}

impl<T> Found<T> {
    /// What the owner made.
    pub(super) fn made(self) -> Option<T> {
        match self {
            Self::Is(made) => Some(made),
            _ => None,
        }
    }
}

/// What a plan or a verdict says: its object, or else its copy.
pub(super) fn read_step(
    repository: &Repository,
    number: u64,
    step: Step,
) -> Result<Found<Selection>, RepositoryError> {
    let name = step.object(number);
    let unpack = |bytes: &[u8]| Selection::unpack(bytes);
    let first = read_at(repository, &name, &name, unpack)?;
    if matches!(first, Found::Is(_)) || !step.has_copy() {
        return Ok(first);
    }
    // A copy is created after the object, and removed before it: alone it counts only if it is whole.
    Ok(match read_at(repository, &copy_of(&name), &name, unpack)? {
        Found::Is(selection) => Found::Is(selection),
        _ => first,
    })
}

/// What the end of a collection says.
pub(super) fn read_end(
    repository: &Repository,
    number: u64,
) -> Result<Found<End>, RepositoryError> {
    let name = Step::Done.object(number);
    read_at(repository, &name, &name, |bytes| End::unpack(bytes, number))
}

fn read_at<T>(
    repository: &Repository,
    at: &ObjectName,
    name: &ObjectName,
    unpack: impl Fn(&[u8]) -> Result<T, FormatError>,
) -> Result<Found<T>, RepositoryError> {
    let content = match signed::read_at(repository, at, name) {
        Ok(content) => content,
        Err(RepositoryError::Forged { .. }) => return Ok(Found::Forged),
        Err(RepositoryError::Backend(error)) if error.is_not_found() => return Ok(Found::Missing),
        Err(error) if error.is_unreadable() => return Ok(Found::Unreadable(error)),
        Err(error) => return Err(error),
    };
    Ok(match unpack(&content) {
        Ok(made) => Found::Is(made),
        Err(source) => Found::Unreadable(RepositoryError::Format { name: at.clone(), source }),
    })
}

/// The name of a collection's verdict.
pub fn verdict_object(number: u64) -> ObjectName {
    Step::Verdict.object(number)
}

/// Creates a plan (C3). Returns false if another collector was faster.
pub fn create_plan(
    repository: &Repository,
    number: u64,
    plan: &Selection,
) -> Result<bool, RepositoryError> {
    let name = Step::Plan.object(number);
    let object = signed::seal(repository, &name, &plan.pack())?;
    let is_created = signed::put(repository, &name, &object)?;
    if is_created {
        put_copy(repository, &name, &object);
    }
    Ok(is_created)
}

/// Creates a verdict (C7), and returns the one that counts; false beside it if it is another
/// collector's. Its copy is there, too, unless the name is taken.
///
/// # Errors
///
/// [`RepositoryError::Undecided`] if the name is taken by what is no verdict.
pub fn create_verdict(
    repository: &Repository,
    number: u64,
    verdict: &Selection,
) -> Result<(Selection, bool), RepositoryError> {
    let name = Step::Verdict.object(number);
    let object = signed::seal(repository, &name, &verdict.pack())?;
    let put = || signed::put(repository, &name, &object);
    // The answer to an earlier call may have been lost: what is there decides.
    let created = put();
    match read_step(repository, number, Step::Verdict)? {
        Found::Is(found) => {
            // That it can be read does not say that it lasts: only a call that succeeds does.
            let is_own = found == *verdict && created.or_else(|_| put())?;
            if is_own {
                put_copy(repository, &name, &object);
            } else {
                copy_whole(repository, &name);
            }
            Ok((found, is_own))
        }
        Found::Unreadable(error) => Err(RepositoryError::undecided(name, &error)),
        Found::Forged | Found::Missing => match created {
            Err(error) => Err(error),
            Ok(_) => Err(RepositoryError::Undecided {
                name,
                why: "the owner did not make it".to_owned(),
            }),
        },
    }
}

/// Makes sure that a verdict lasts, before anything is removed because of it: the program that made it
/// may have died when only one of several stores had it, or before its folder was flushed.
pub fn confirm_verdict(repository: &Repository, number: u64) -> Result<(), RepositoryError> {
    let (backend, name) = (repository.backend(), Step::Verdict.object(number));
    for at in [name.clone(), copy_of(&name)] {
        let found = match read_whole(backend, &at, repository.config.arena_bytes) {
            Err(error) if error.is_not_found() || error.is_damage() || error.is_withheld() => {
                continue;
            }
            other => other?,
        };
        match backend.create(&at, &found.bytes) {
            Ok(()) => return Ok(()),
            // It is full, and what it removes makes room. One store alone has what it shows.
            Err(BackendError::NoSpace { .. }) if backend.stores().is_none() => return Ok(()),
            // A part of it cannot be read, or it was repaired meanwhile.
            Err(BackendError::AlreadyExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let why = "it was changed when it was read again".to_owned();
    Err(RepositoryError::Undecided { name, why })
}

/// Creates the copy of an object that is there. If that fails there is one copy less: what lies in its
/// place is named by `verify`, and nothing depends on it.
fn put_copy(repository: &Repository, name: &ObjectName, object: &[u8]) {
    let _ = signed::put(repository, &copy_of(name), object);
}

/// Creates the copy of an object that another program has made.
fn copy_whole(repository: &Repository, name: &ObjectName) {
    let found = read_whole(repository.backend(), name, repository.config.arena_bytes);
    if let Some(whole) = found.ok().and_then(|found| envelope::repair(&found.bytes).ok()) {
        put_copy(repository, name, &whole);
    }
}

/// Ends a collection all of whose verdict is carried out (C9), but in these arenas.
pub fn finish_collection(
    repository: &Repository,
    number: u64,
    verdict: &Selection,
    put_off: &BTreeSet<ArenaId>,
) -> Result<(), RepositoryError> {
    let name = Step::Done.object(number);
    let end = End::of(repository, number, verdict, put_off)?;
    let object = signed::seal(repository, &name, &end.pack())?;
    if !signed::put(repository, &name, &object)? && read_end(repository, number)?.made().is_none() {
        // It decides nothing, so what is of no use there is replaced.
        repository.backend().replace(&name, &object)?;
    }
    let plan = Step::Plan.object(number);
    // The copy first: as long as there is a plan, its collection may not have ended.
    for name in [copy_of(&plan), plan] {
        // What stays does not count any more, and `verify` names it.
        remove_object(repository.backend(), &name)?;
    }
    Ok(())
}
