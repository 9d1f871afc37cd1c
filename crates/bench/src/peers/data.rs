//! Data sets: what is backed up, in several versions that are put at the same path in turn.
//!
//! Each is made once and kept. Each is the same wherever it is made from the same packages or the
//! same `/usr`: random content comes from seeds in the source.

mod bulk;
mod image;
mod small;
mod sources;
mod swap;
mod usr;
mod words;

use std::path::{Path, PathBuf};

use crate::shell::Done;

pub use self::sources::{linux_versions, smaller_copies};
pub use self::swap::Swap;

/// How large the sets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scale {
    /// Minutes, to see that all works
    Small,
    /// What is published
    Full,
}

impl Scale {
    /// One of two, by scale.
    pub fn pick<T>(self, small: T, full: T) -> T {
        match self {
            Self::Small => small,
            Self::Full => full,
        }
    }
}

/// Where data sets are kept.
#[derive(Debug, Clone)]
pub struct Store {
    /// The folder of the command line: packages, unpacked sources, tools.
    pub folder: PathBuf,
    /// The folder of this scale's sets and results.
    pub root: PathBuf,
    /// How large the sets are.
    pub scale: Scale,
}

impl Store {
    /// The full scale uses the folder itself, the small scale a folder in it.
    pub fn new(folder: PathBuf, scale: Scale) -> Self {
        let root = scale.pick(folder.join("scale-small"), folder.clone());
        Self { folder, root, scale }
    }

    /// A set's folder.
    pub fn set(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

/// A folder whose content is put at one version after the other.
pub trait DataSet {
    /// What it is, in a sentence for readers.
    fn about(&self) -> String;
    /// Makes what is not there yet.
    fn make(&mut self) -> Done;
    /// How many versions there are, once it is made.
    fn versions(&self) -> u32;
    /// The folder that is backed up.
    fn at(&self) -> &Path;
    /// Puts a version there. After the first, versions come in order.
    fn put_version(&mut self, version: u32) -> Done;
    /// Where a version's content can be read while the last version is in place.
    fn truth(&self, version: u32) -> PathBuf {
        let _ = version;
        self.at().to_owned()
    }
    /// Gives back what was borrowed.
    fn put_away(&mut self) -> Done {
        Ok(())
    }
    /// Whether it is so large that two repositories may not fit on the disk.
    fn is_bulky(&self) -> bool {
        false
    }
}

/// Names of all sets that `peers` measures, in its order. `years` has one of its own, `sixty`.
pub const SETS: [&str; 7] = ["sources", "thirty", "usr", "image", "small", "large", "random"];

/// The set of this name.
pub fn open(name: &str, store: &Store) -> Option<Box<dyn DataSet>> {
    Some(match name {
        "sources" => Box::new(sources::Sources::new(store)),
        "thirty" => Box::new(sources::Thirty::new(store)),
        "sixty" => Box::new(sources::Sixty::new(store)),
        "usr" => Box::new(usr::Usr::new(store)),
        "image" => Box::new(image::Image::new(store)),
        "small" => Box::new(small::Small::new(store)),
        "large" => Box::new(bulk::Large::new(store)),
        "random" => Box::new(bulk::Noise::new(store)),
        _ => return None,
    })
}

/// Runs `make` unless a file in the folder says that just this was made. What is half made is
/// removed first.
fn make_once(folder: &Path, what: &str, make: impl FnOnce() -> Done) -> Done {
    let made = folder.join("made");
    if std::fs::read_to_string(&made).is_ok_and(|text| text == what) {
        return Ok(());
    }
    crate::say(&format!("making {what}"));
    crate::shell::remove(folder)?;
    crate::shell::make_folder(folder)?;
    make()?;
    crate::shell::write(&made, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_made_once() {
        let folder = std::env::temp_dir().join(format!("bench-once-{}", std::process::id()));
        let mut times = 0;
        for what in ["a", "a", "b"] {
            make_once(&folder, what, || {
                times += 1;
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(times, 2);
        crate::shell::remove(&folder).unwrap();
    }

    #[test]
    fn every_set_has_its_name() {
        let store = Store::new(PathBuf::from("nowhere"), Scale::Small);
        assert!(SETS.iter().chain(["sixty"].iter()).all(|name| open(name, &store).is_some()));
        assert!(open("other", &store).is_none());
    }
}
