//! Key slots as they are stored: each twice, because losing a file of a kilobyte must not cost a
//! repository.

use strongroom_arena::Origin;
use strongroom_arena::envelope::format::ObjectKind;
use strongroom_arena::envelope::{self, Identity};
use strongroom_backend::{Backend, both, each_read_ahead};
use strongroom_base::SlotId;

use super::slot::KeySlot;
use crate::error::RepositoryError;
use crate::objects::{COPY, KEYS_FOLDER, read_small, slot_names, slot_object_id};

/// Every key slot that can be read, and how many slots there should be. If a slot and its copy
/// differ, both are returned, the slot first: anybody can make a slot that is whole, and only a
/// passphrase shows which one is right.
pub fn read_slots(backend: &dyn Backend) -> Result<(Vec<KeySlot>, usize), RepositoryError> {
    read_slots_ahead(backend, &[])
}

/// The same. Those that are likely to be there are read while the slots are listed.
pub fn read_slots_ahead(
    backend: &dyn Backend,
    likely: &[SlotId],
) -> Result<(Vec<KeySlot>, usize), RepositoryError> {
    let in_flight = backend.promises().in_flight;
    let (ahead, listed) =
        both(in_flight, || read_each(backend, likely), || backend.list(KEYS_FOLDER));
    let mut ids: Vec<SlotId> = listed?
        .iter()
        .filter_map(|info| info.name.file().trim_end_matches(COPY).parse().ok())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    // What could not be read ahead is read again, if it is there.
    let mut slots = ahead.unwrap_or_default();
    slots.retain(|slot| ids.contains(&slot.id));
    let mut others = ids.clone();
    others.retain(|id| !slots.iter().any(|slot| slot.id == *id));
    slots.extend(read_each(backend, &others)?);
    // A slot comes before its copy still.
    slots.sort_by_key(|slot| slot.id);
    Ok((slots, ids.len()))
}

fn read_each(backend: &dyn Backend, ids: &[SlotId]) -> Result<Vec<KeySlot>, RepositoryError> {
    let mut slots = Vec::new();
    let mut withheld = None;
    let in_flight = backend.promises().in_flight;
    each_read_ahead(
        in_flight,
        ids,
        |id| read_slot(backend, *id),
        |_, slot| {
            match slot {
                // Another one may open.
                Err(error) if error.is_withheld() => withheld = Some(error),
                other => slots.extend(other?),
            }
            Ok::<(), RepositoryError>(())
        },
    )?;
    match withheld.filter(|_| slots.is_empty()) {
        Some(error) => Err(error),
        None => Ok(slots),
    }
}

/// A slot from each copy that can be read, once if they agree.
fn read_slot(backend: &dyn Backend, id: SlotId) -> Result<Vec<KeySlot>, RepositoryError> {
    let mut slots = Vec::new();
    let mut failure = None;
    let [first, copy] = slot_names(id);
    let read = |name| read_small(backend, name, ObjectKind::KeySlot, Some(&slot_object_id(id)));
    let in_flight = backend.promises().in_flight;
    let (first, copy) = both(in_flight, || read(&first), || read(&copy));
    for body in [first, copy] {
        match body {
            Ok(body) => slots.extend(KeySlot::unpack(id, &body)),
            Err(RepositoryError::Backend(error)) if error.is_not_found() => {}
            Err(error) if error.is_damage() => {}
            Err(error) => failure = Some(error),
        }
    }
    slots.dedup();
    match failure.filter(|_| slots.is_empty()) {
        Some(error) => Err(error),
        None => Ok(slots),
    }
}

/// Stores a new key slot.
pub fn write_slot(backend: &dyn Backend, slot: &KeySlot) -> Result<(), RepositoryError> {
    let id = slot_object_id(slot.id);
    let kind = ObjectKind::KeySlot;
    let identity = Identity { kind, id, generation: 0, origin: Origin::NONE };
    let object = envelope::seal_small(&slot.pack(), identity);
    for name in slot_names(slot.id).iter().rev() {
        backend.create(name, &object)?;
    }
    Ok(())
}
