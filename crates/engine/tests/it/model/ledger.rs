//! Which damage was injected, and what it excuses.

use std::collections::BTreeSet;

use strongroom_backend::ObjectName;

/// The damage that no repair has undone yet.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Objects with damage that parity is there for: once each, since parity repairs no more than that.
    within_parity: BTreeSet<ObjectName>,
    /// Objects that were damaged beyond that, or removed. They stay here, as what was lost with
    /// them stays lost until a backup stores it again.
    beyond: BTreeSet<ObjectName>,
    /// True while one of two copies (of the configuration, of a key slot) may be damaged.
    copies_are_short: bool,
    /// How often something was damaged.
    times: u64,
}

impl Ledger {
    /// True if the next damage to this object is within what parity repairs.
    pub fn is_whole(&self, name: &ObjectName) -> bool {
        !self.within_parity.contains(name) && !self.beyond.contains(name)
    }

    /// True while every object that has a copy has it.
    pub fn copies_are_whole(&self) -> bool {
        !self.copies_are_short
    }

    /// Notes damage to an object; `within_parity` as the test of the damage matrix has it.
    pub fn damage(&mut self, name: &ObjectName, within_parity: bool) {
        self.times += 1;
        if has_copy(name) {
            self.copies_are_short = true;
        } else if within_parity && self.is_whole(name) {
            self.within_parity.insert(name.clone());
        } else {
            self.beyond.insert(name.clone());
        }
    }

    /// Notes that a key was half added or half removed: one of its two copies may be missing.
    pub fn tear_key(&mut self) {
        self.times += 1;
        self.copies_are_short = true;
    }

    /// Notes that a repair made everything whole that can be.
    pub fn repaired(&mut self) {
        self.within_parity.clear();
        self.copies_are_short = false;
    }

    /// How often something was damaged.
    pub fn times(&self) -> u64 {
        self.times
    }

    /// True if something may be lost.
    pub fn excuses_losses(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// True if this object was damaged beyond parity.
    pub fn excuses(&self, name: &ObjectName) -> bool {
        self.beyond.contains(name)
    }

    /// True if a verification must find nothing.
    pub fn is_clean(&self) -> bool {
        self.within_parity.is_empty() && self.beyond.is_empty() && !self.copies_are_short
    }
}

/// True for the configuration and for key slots, which are kept twice.
pub fn has_copy(name: &ObjectName) -> bool {
    name.folder().is_empty() || name.folder() == "keys"
}
