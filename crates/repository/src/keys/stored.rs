//! Key slots as they are stored: each twice, because losing a file of a kilobyte must not cost a
//! repository.

use strongroom_arena::Origin;
use strongroom_arena::envelope::format::ObjectKind;
use strongroom_arena::envelope::{self, Identity};
use strongroom_backend::Backend;
use strongroom_base::SlotId;

use super::slot::KeySlot;
use crate::error::RepositoryError;
use crate::objects::{COPY, KEYS_FOLDER, read_small, slot_names, slot_object_id};

/// Every key slot that can be read from either copy, and how many slots there should be.
pub fn read_slots(backend: &dyn Backend) -> Result<(Vec<KeySlot>, usize), RepositoryError> {
    let mut ids: Vec<SlotId> = backend
        .list(KEYS_FOLDER)?
        .iter()
        .filter_map(|info| info.name.file().trim_end_matches(COPY).parse().ok())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let mut slots = Vec::new();
    for id in &ids {
        slots.extend(read_slot(backend, *id)?);
    }
    Ok((slots, ids.len()))
}

/// A slot from the copy that can be read; `None` if both are damaged or gone.
fn read_slot(backend: &dyn Backend, id: SlotId) -> Result<Option<KeySlot>, RepositoryError> {
    let mut failure = None;
    for name in slot_names(id) {
        match read_small(backend, &name, ObjectKind::KeySlot, Some(&slot_object_id(id))) {
            Ok(body) => {
                if let Ok(slot) = KeySlot::unpack(id, &body) {
                    return Ok(Some(slot));
                }
            }
            Err(RepositoryError::Backend(error)) if error.is_not_found() => {}
            Err(error) if error.is_damage() => {}
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(None), Err)
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
