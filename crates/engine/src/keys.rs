//! `key`: slots are added, changed, listed and removed.

use strongroom_base::SlotId;
use strongroom_repository::keys::{Access, KdfCost, KeySlot, NewSlot, read_slots, write_slot};
use strongroom_repository::objects::slot_names;
use strongroom_repository::{Repository, RepositoryError};

use crate::error::EngineError;

/// All key slots that can be read.
pub fn list_keys(repository: &Repository) -> Result<Vec<KeySlot>, EngineError> {
    let (mut slots, _) = read_slots(repository.backend())?;
    slots.sort_by_key(|slot| (slot.created, slot.id));
    Ok(slots)
}

/// Adds a slot that another passphrase opens.
pub fn add_key(
    repository: &Repository,
    passphrase: &[u8],
    label: &str,
    access: Access,
    cost: Option<KdfCost>,
) -> Result<SlotId, EngineError> {
    let put_only = repository.secret.put_only();
    let secret = match access {
        Access::Full if repository.keys.private_key.is_none() => {
            return Err(RepositoryError::PutOnly.into());
        }
        Access::Full => &repository.secret,
        Access::PutOnly => &put_only,
    };
    let created = repository.surroundings.clock.now();
    let new = NewSlot { label: label.to_owned(), created, cost };
    let entropy = &*repository.surroundings.entropy;
    let slot = KeySlot::seal(new, secret, passphrase, repository.config.id, entropy)
        .map_err(|error| RepositoryError::Argument(error.to_string()))?;
    write_slot(repository.backend(), &slot)?;
    Ok(slot.id)
}

/// Gives the slot that was opened another passphrase. The new slot stands before the old goes.
pub fn change_key(
    repository: &Repository,
    passphrase: &[u8],
    cost: Option<KdfCost>,
) -> Result<SlotId, EngineError> {
    let slots = list_keys(repository)?;
    let label = slots.iter().find(|slot| slot.id == repository.slot).map(|slot| &slot.label);
    let label = label.cloned().unwrap_or_default();
    let access = repository.secret.access();
    let new = add_key(repository, passphrase, &label, access, cost)?;
    remove_slot(repository, repository.slot)?;
    Ok(new)
}

/// Removes a slot, but never the last that reads.
pub fn remove_key(repository: &Repository, slot: SlotId) -> Result<(), EngineError> {
    let slots = list_keys(repository)?;
    let readers = |slots: &[KeySlot]| {
        slots.iter().filter(|other| other.access == Access::Full && other.id != slot).count()
    };
    if readers(&slots) == 0 {
        return Err(RepositoryError::LastKeySlot { slot: slot.to_string() }.into());
    }
    remove_slot(repository, slot)
}

fn remove_slot(repository: &Repository, slot: SlotId) -> Result<(), EngineError> {
    for name in slot_names(slot) {
        match repository.backend().remove(&name) {
            Err(error) if error.is_not_found() => {}
            other => other?,
        }
    }
    Ok(())
}
