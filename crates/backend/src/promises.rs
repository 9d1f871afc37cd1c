//! What a place promises beyond the interface of all places.

/// What a place promises beyond the interface of all places, and what it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promises {
    /// Of several callers that create one name, one succeeds. None if the place has the operation,
    /// but may only claim to be exclusive: `init` tries it.
    pub is_exclusive: Option<bool>,
    /// What was written is seen at once by every reader, and by every listing. None if unknown.
    pub is_consistent: Option<bool>,
    /// A write that returned `Ok` survives a power cut.
    pub is_durable: bool,
    /// How many requests at a time are worth having in flight.
    pub in_flight: usize,
    /// A part of an object takes no more than its own bytes. If not, what follows it is sent too, at
    /// least in part, so what is wanted of an object is best read at once.
    pub sends_parts: bool,
    /// The largest object that it keeps, in bytes.
    pub object_bytes_max: u64,
    /// It copies objects by itself ([`crate::Backend::copy`]).
    pub copies: bool,
    /// It locks objects until a time ([`crate::Backend::retain`]).
    pub locks: bool,
    /// It computes proofs of the bytes it keeps ([`crate::Backend::prove`]).
    pub proves: bool,
}

impl Promises {
    /// Those of a place on this machine whose writes are durable.
    pub const LOCAL: Self = Self {
        is_exclusive: Some(true),
        is_consistent: Some(true),
        is_durable: true,
        in_flight: 1,
        sends_parts: true,
        object_bytes_max: u64::MAX,
        copies: false,
        locks: false,
        proves: false,
    };
}
