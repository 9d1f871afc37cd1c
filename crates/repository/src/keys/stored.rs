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
    let mut ids: Vec<SlotId> = backend
        .list(KEYS_FOLDER)?
        .iter()
        .filter_map(|info| info.name.file().trim_end_matches(COPY).parse().ok())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let mut slots = Vec::new();
    let in_flight = backend.promises().in_flight;
    each_read_ahead(
        in_flight,
        &ids,
        |id| read_slot(backend, *id),
        |_, slot| {
            slots.extend(slot?);
            Ok::<(), RepositoryError>(())
        },
    )?;
    slots.sort_by_key(|slot| slot.id);
    Ok((slots, ids.len()))
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
