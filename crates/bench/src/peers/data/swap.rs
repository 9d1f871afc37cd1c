//! Versions that are folders or files of their own, put at one path by renaming, one at a time.

use std::path::{Path, PathBuf};

use crate::shell::{Doing, Done, Failure, make_folder, write};

/// A path, and what may be put there.
#[derive(Debug)]
pub struct Swap {
    at: PathBuf,
    /// Says whose content is at `at`; written before the content is put there.
    marker: PathBuf,
    homes: Vec<PathBuf>,
}

impl Swap {
    /// What an interrupted run left at `at` goes home at once.
    pub fn open(at: PathBuf) -> Done<Self> {
        let mut marker = at.clone().into_os_string();
        marker.push(".home");
        let mut swap = Self { at, marker: PathBuf::from(marker), homes: Vec::new() };
        swap.put_away()?;
        Ok(swap)
    }

    /// The homes of the versions, in order.
    pub fn set_homes(&mut self, homes: Vec<PathBuf>) {
        self.homes = homes;
    }

    /// How many versions there are.
    pub fn versions(&self) -> u32 {
        self.homes.len() as u32
    }

    /// Where versions are put.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Puts a version, counted from 1, in the place of what is there.
    pub fn put_version(&mut self, version: u32) -> Done {
        self.put_away()?;
        let home = self.homes.get((version as usize).wrapping_sub(1));
        let home = home.ok_or_else(|| Failure::Other(format!("there is no version {version}")))?;
        if let Some(folder) = self.at.parent() {
            make_folder(folder)?;
        }
        write(&self.marker, home.as_os_str().as_encoded_bytes())?;
        std::fs::rename(home, &self.at).doing(format!("put {} in its place", home.display()))
    }

    /// Puts what is there back home.
    pub fn put_away(&mut self) -> Done {
        if !self.at.exists() {
            return Ok(());
        }
        let home = std::fs::read_to_string(&self.marker)
            .doing(format!("find out whose content is at {}", self.at.display()))?;
        std::fs::rename(&self.at, &home).doing(format!("put {home} back"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_and_go_home() {
        let folder = std::env::temp_dir().join(format!("bench-swap-{}", std::process::id()));
        let homes: Vec<PathBuf> = ["one", "two"].map(|name| folder.join(name)).to_vec();
        for home in &homes {
            write(&home.join("name"), home.as_os_str().as_encoded_bytes()).unwrap();
        }
        let at = folder.join("place/at");
        let content = || std::fs::read_to_string(at.join("name")).unwrap();
        let mut swap = Swap::open(at.clone()).unwrap();
        swap.set_homes(homes.clone());
        swap.put_version(1).unwrap();
        assert!(content().ends_with("one") && !homes[0].exists());
        swap.put_version(2).unwrap();
        assert!(content().ends_with("two") && homes[0].exists());
        // Another run begins.
        Swap::open(at.clone()).unwrap();
        assert!(!at.exists() && homes[1].exists());
        assert!(swap.put_version(3).is_err());
        crate::shell::remove(&folder).unwrap();
    }
}
