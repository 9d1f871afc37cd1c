//! `key`: adds, changes, lists and removes slots.

use strongroom_backend::remove_object;
use strongroom_base::SlotId;
use strongroom_repository::keys::{
    Access, KdfCost, KeySlot, NewSlot, SlotSecret, read_slots, write_slot,
};
use strongroom_repository::objects::slot_names;
use strongroom_repository::{Endings, Repository, RepositoryError};

/// All key slots that can be read, each once.
pub fn list_keys(repository: &Repository) -> Result<Vec<KeySlot>, RepositoryError> {
    let (mut slots, _) = read_slots(repository.backend())?;
    slots.dedup_by_key(|slot| slot.id);
    slots.sort_by_key(|slot| (slot.created, slot.id));
    Ok(slots)
}

/// What a new key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewAccess<'n> {
    /// Reading and storing.
    Full,
    /// Storing only, for the domain of this name: the machines of a domain trust each other.
    PutOnly(&'n str),
}

/// Adds a slot for another passphrase.
pub fn add_key(
    repository: &Repository,
    passphrase: &[u8],
    label: &str,
    access: NewAccess<'_>,
    cost: Option<KdfCost>,
) -> Result<SlotId, RepositoryError> {
    let put_only;
    let secret = match access {
        NewAccess::Full if !repository.keys.can_read() => {
            return Err(RepositoryError::PutOnly);
        }
        NewAccess::Full => &repository.secret,
        NewAccess::PutOnly(domain) => {
            if Endings::read(repository)?.of(domain).is_some() {
                return Err(RepositoryError::DomainEnded { domain: domain.to_owned() });
            }
            let own = repository.secret.domain_name();
            put_only = repository.secret.put_only(domain).ok_or_else(|| match own {
                "" => RepositoryError::DomainName { name: domain.to_owned() },
                own => {
                    RepositoryError::OtherDomain { own: own.to_owned(), wanted: domain.to_owned() }
                }
            })?;
            &put_only
        }
    };
    add_slot(repository, secret, passphrase, label, cost)
}

fn add_slot(
    repository: &Repository,
    secret: &SlotSecret,
    passphrase: &[u8],
    label: &str,
    cost: Option<KdfCost>,
) -> Result<SlotId, RepositoryError> {
    let created = repository.surroundings.clock.now();
    let new = NewSlot { label: label.to_owned(), created, cost };
    let entropy = &*repository.surroundings.entropy;
    let slot = KeySlot::seal(new, secret, passphrase, repository.config.id, entropy)?;
    write_slot(repository.backend(), &slot)?;
    Ok(slot.id)
}

/// Gives the opened slot another passphrase. The new slot is created before the old one is removed.
pub fn change_key(
    repository: &Repository,
    passphrase: &[u8],
    cost: Option<KdfCost>,
) -> Result<SlotId, RepositoryError> {
    let slots = list_keys(repository)?;
    let label = slots.iter().find(|slot| slot.id == repository.slot).map(|slot| &slot.label);
    let label = label.cloned().unwrap_or_default();
    let new = add_slot(repository, &repository.secret, passphrase, &label, cost)?;
    remove_slot(repository, repository.slot)?;
    Ok(new)
}

/// Removes a slot, but never the last one that can read, nor the one that has opened the repository: what another
/// slot says of itself, anyone could have written who may store.
pub fn remove_key(repository: &Repository, slot: SlotId) -> Result<(), RepositoryError> {
    let slots = list_keys(repository)?;
    let readers = |slots: &[KeySlot]| {
        slots.iter().filter(|other| other.access == Access::Full && other.id != slot).count()
    };
    if readers(&slots) == 0 {
        return Err(RepositoryError::LastKeySlot { slot: slot.to_string() });
    }
    if slot == repository.slot {
        return Err(RepositoryError::OwnKeySlot { slot: slot.to_string() });
    }
    remove_slot(repository, slot)
}

pub(crate) fn remove_slot(repository: &Repository, slot: SlotId) -> Result<(), RepositoryError> {
    let [slot, copy] = slot_names(slot);
    // The first once more: until the copy is gone, a repair may have made it again from that.
    for name in [&slot, &copy, &slot] {
        remove_object(repository.backend(), name)?;
    }
    Ok(())
}
