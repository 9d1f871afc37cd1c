//! Drives that a backup does not read, and why.

/// A drive that is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// What it is called.
    pub name: String,
    /// Why.
    pub why: WhyLeftOut,
}

/// Why a drive is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyLeftOut {
    /// It is a drive for CDs or floppies.
    Removable,
    /// There is no disk in it.
    Empty,
    /// The guest cannot write to it.
    ReadOnly,
    /// It is flash memory or something else that is no disk.
    NoDisk,
    /// The guest writes to it past QEMU: a device of the host, or one that another program serves.
    PassedThrough,
}

impl WhyLeftOut {
    /// Whether the guest can write to it: then the machine is not complete without it.
    pub fn is_loss(self) -> bool {
        self == Self::PassedThrough
    }
}

impl std::fmt::Display for WhyLeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Removable => "a drive for CDs or floppies",
            Self::Empty => "empty",
            Self::ReadOnly => "read-only",
            Self::NoDisk => "no disk",
            Self::PassedThrough => "passed through to the guest, so that QEMU does not read it",
        })
    }
}
