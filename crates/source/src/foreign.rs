//! A directory that shows the tree of another machine, as another program mounts it.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_base::Timestamp;
use strongroom_catalog::{DeviceNumber, Xattr};

use crate::accounts::Accounts;

/// A directory that is taken for the `/` of another machine.
#[derive(Debug, Clone, Default)]
pub struct ForeignRoot {
    /// The directory.
    pub path: PathBuf,
    /// The users and groups of that machine, as far as they are known.
    pub accounts: Accounts,
    /// What the directory does not show as it was.
    pub corrections: Corrections,
}

/// What of a tree is not shown as it was, by path. Most trees have none.
#[derive(Debug, Clone, Default)]
pub struct Corrections(Arc<HashMap<Vec<u8>, Correction>>);

/// What one entry was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Correction {
    /// The number of a device.
    pub device: Option<DeviceNumber>,
    /// Extended attributes that are not shown.
    pub xattrs: Vec<Xattr>,
    /// When the content was last changed.
    pub mtime: Option<Timestamp>,
    /// When the inode was last changed.
    pub ctime: Option<Timestamp>,
}

impl Corrections {
    /// These, by absolute path.
    pub fn new(by_path: HashMap<Vec<u8>, Correction>) -> Self {
        Self(Arc::new(by_path))
    }

    pub(crate) fn of(&self, path: &Path) -> Option<&Correction> {
        self.0.get(path.as_os_str().as_bytes())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
