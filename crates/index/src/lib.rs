//! Fingerprint to opaque location: sealed sorted segments behind filters.
