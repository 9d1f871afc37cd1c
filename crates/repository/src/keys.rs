//! Keys: the slots that hold them under passphrases, and the objects of these slots.

mod generated;
mod opening;
mod slot;
mod stored;

pub use generated::generate_passphrase;
pub use opening::open_slot;
pub use slot::{
    Access, DOMAIN_NAME_BYTES_MAX, KdfCost, KeySlot, NewSlot, PutOnlySecret, SlotSecret,
    is_domain_name,
};
pub use stored::{read_slots, read_slots_ahead, write_slot};
