//! Which of the key slots a passphrase opens.

use strongroom_base::SlotId;

use super::{KeySlot, SlotSecret};
use crate::config::Config;
use crate::error::RepositoryError;

/// Key slots are cheap to plant and expensive to try.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// This many are tried in any case,
    tried_min: usize,
    /// and more until this was spent: KiB that are filled, in all passes.
    work_max: u64,
}

const BOUNDS: Bounds = Bounds { tried_min: 64, work_max: 64 * (64 << 10) * 3 };

/// The first slot that the passphrase opens: those that were opened last, then the cheapest first. Those
/// that are too cheap for a passphrase that a person chose are none for it. A slot that opens and whose
/// owner did not sign the configuration is skipped: an attacker who guesses passphrases put it there.
pub fn open_slot(
    slots: &[KeySlot],
    passphrase: &[u8],
    known: &[SlotId],
    config: &Config,
    config_bytes: &[u8],
) -> Result<(SlotId, SlotSecret), RepositoryError> {
    open_within(BOUNDS, slots, passphrase, known, config, config_bytes)
}

fn open_within(
    bounds: Bounds,
    slots: &[KeySlot],
    passphrase: &[u8],
    known: &[SlotId],
    config: &Config,
    config_bytes: &[u8],
) -> Result<(SlotId, SlotSecret), RepositoryError> {
    let mut suitable: Vec<&KeySlot> = slots.iter().filter(|slot| slot.suits(passphrase)).collect();
    suitable.sort_by_key(|slot| (!known.contains(&slot.id), slot.cost.work()));
    let mut error = RepositoryError::WrongPassphrase { slots: slots.len() };
    let mut work = 0_u64;
    for (tried, slot) in suitable.iter().enumerate() {
        if tried >= bounds.tried_min && work >= bounds.work_max {
            return Err(RepositoryError::TooManySlots { slots: suitable.len(), tried });
        }
        work = work.saturating_add(slot.cost.work());
        let Some(secret) = slot.open(passphrase, config.id) else { continue };
        if Config::is_authentic(config_bytes, &secret.keys().write.authority) {
            return Ok((slot.id, secret));
        }
        error = RepositoryError::ForgedConfig;
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use strongroom_backend::MemoryBackend;
    use strongroom_base::{FixedClock, SeededEntropy, Timestamp};

    use super::*;
    use crate::keys::{KdfCost, NewSlot, read_slots};
    use crate::repository::{InitOptions, Repository, Surroundings, read_config};

    const PASSPHRASE: &[u8] =
        b"strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";
    /// A passphrase that a person chose.
    const TYPED: &[u8] = b"correct horse battery staple";

    /// A repository with a slot for each passphrase, and others that open with none: cheaper ones.
    #[test]
    fn kept_h5_planted_slots_lock_nobody_out_and_too_many_are_called_that() {
        let backend = Arc::new(MemoryBackend::new());
        let entropy = Arc::new(SeededEntropy::new(5));
        let surroundings = Surroundings {
            backend: backend.clone(),
            clock: Arc::new(FixedClock(Timestamp(0))),
            entropy: entropy.clone(),
            cache: None,
        };
        let options = InitOptions { cost: Some(KdfCost::CHEAPEST), ..InitOptions::default() };
        let repository = Repository::init(surroundings, PASSPHRASE, &options).unwrap();
        let (config, bytes) = read_config(&*backend).unwrap();
        let (mut slots, _) = read_slots(&*backend).unwrap();
        let generated = slots[0].clone();
        let new = |cost| NewSlot { label: String::new(), created: Timestamp(0), cost: Some(cost) };
        let seal = |cost, passphrase: &[u8]| {
            KeySlot::seal(new(cost), &repository.secret, passphrase, config.id, &*entropy).unwrap()
        };
        let typed = seal(KdfCost { passes: 4, ..KdfCost::TYPED_MIN }, TYPED);
        slots.push(typed.clone());
        let plant = |of: &KeySlot, number: u64| {
            let mut planted = of.clone();
            planted.id = SlotId(number.to_le_bytes());
            planted
        };
        // More than are tried, and too cheap for a typed passphrase.
        slots.extend((0..70).map(|number| plant(&generated, number)));
        let open = |bounds, slots: &[KeySlot], passphrase: &[u8], known: &[SlotId]| {
            open_within(bounds, slots, passphrase, known, &config, &bytes).map(|(id, _)| id)
        };
        let few = Bounds { tried_min: 2, work_max: 1 << 10 };
        assert_eq!(open(few, &slots, TYPED, &[]).unwrap(), typed.id);
        assert_eq!(open(BOUNDS, &slots, PASSPHRASE, &[]).unwrap(), generated.id);
        // Some of them cost what a typed passphrase needs, and less than the slot.
        let cheaper = seal(KdfCost::TYPED_MIN, b"another passphrase");
        slots.extend((100..103).map(|number| plant(&cheaper, number)));
        let refused = open(few, &slots, TYPED, &[]);
        let is_said = |error: &RepositoryError| {
            matches!(error, RepositoryError::TooManySlots { slots: 4, tried: 2 })
        };
        assert!(refused.as_ref().is_err_and(is_said), "{refused:?}");
        assert_eq!(open(few, &slots, TYPED, &[typed.id]).unwrap(), typed.id, "the known one first");
        let enough = Bounds { tried_min: 2, work_max: 1 << 30 };
        assert_eq!(open(enough, &slots, TYPED, &[]).unwrap(), typed.id);
        let wrong = open(enough, &slots[..2], b"no passphrase of these", &[]);
        assert!(matches!(wrong, Err(RepositoryError::WrongPassphrase { slots: 2 })), "{wrong:?}");
    }
}
