//! Sets of small numbers: slots, snapshots, sessions, numbers of wishes.

use std::fmt;

/// A set of numbers below 16.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Set(u16);

impl Set {
    pub const EMPTY: Self = Self(0);
    pub const ALL: Self = Self(u16::MAX);

    pub fn of(members: &[u8]) -> Self {
        members.iter().copied().collect()
    }

    pub fn has(self, member: u8) -> bool {
        self.0 >> member & 1 == 1
    }

    pub const fn with(self, member: u8) -> Self {
        Self(self.0 | 1 << member)
    }

    pub fn without(self, member: u8) -> Self {
        Self(self.0 & !(1 << member))
    }

    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn is_within(self, other: Self) -> bool {
        self.minus(other).is_empty()
    }

    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..16).filter(move |member| self.has(*member))
    }

    pub fn first(self) -> Option<u8> {
        self.iter().next()
    }

    pub fn last(self) -> Option<u8> {
        self.iter().last()
    }
}

impl FromIterator<u8> for Set {
    fn from_iter<I: IntoIterator<Item = u8>>(members: I) -> Self {
        members.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
