//! One very large file in which little moves, and files that nothing makes smaller.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use strongroom_testkit::Random;

use super::words::Words;
use super::{DataSet, Store, Swap, make_once};
use crate::shell::{Doing, Done, Failure, make_folder};

const UNIT: usize = 64 << 10;
const PAGE: u64 = 4 << 10;
/// How much is put into the middle.
const INSERTED: usize = 1 << 20;
/// How many pages change besides.
const PAGES_CHANGED: usize = 8;

/// One large file, every second 64 KiB of it text.
pub struct Large {
    folder: PathBuf,
    at: PathBuf,
    swap: Option<Swap>,
    units: u64,
}

impl Large {
    /// Nothing is made yet.
    pub fn new(store: &Store) -> Self {
        let folder = store.set("large");
        let at = folder.join("at");
        Self { folder, at, swap: None, units: store.scale.pick(512, 131_072) }
    }

    fn home(&self, version: u32) -> PathBuf {
        self.folder.join(format!("version-{version}"))
    }

    fn write(&self, version: u32) -> Done {
        make_folder(&self.home(version))?;
        let path = self.home(version).join("file");
        let words = Words::new();
        let mut random = Random::new(9);
        let pages: Vec<u64> = (0..PAGES_CHANGED)
            .map(|_| random.below(self.units * UNIT as u64 / PAGE))
            .filter(|_| version > 1)
            .collect();
        let content = || -> std::io::Result<()> {
            let mut file = BufWriter::with_capacity(1 << 20, File::create(&path)?);
            let mut noise = vec![0; UNIT.max(INSERTED)];
            for unit in 0..self.units {
                if version > 1 && unit == self.units / 2 {
                    Random::new(u64::MAX).fill(&mut noise);
                    file.write_all(&noise[..INSERTED])?;
                }
                let mut bytes = if unit % 2 == 0 {
                    Random::new(unit).fill(&mut noise[..UNIT]);
                    noise[..UNIT].to_vec()
                } else {
                    words.text(&mut Random::new(unit), UNIT)
                };
                let unit_pages = UNIT as u64 / PAGE;
                for page in pages.iter().filter(|page| **page / unit_pages == unit) {
                    let at = (page % unit_pages * PAGE) as usize;
                    Random::new(!*page).fill(&mut bytes[at..at + PAGE as usize]);
                }
                file.write_all(&bytes)?;
            }
            file.into_inner()?.sync_all()
        };
        content().doing(format!("write {}", path.display()))
    }
}

impl DataSet for Large {
    fn about(&self) -> String {
        format!(
            "one file of {} MiB, every second 64 KiB of it text and the others noise; then {} MiB \
             are put into its middle and {PAGES_CHANGED} pages change",
            (self.units * UNIT as u64) >> 20,
            INSERTED >> 20
        )
    }

    fn make(&mut self) -> Done {
        let mut swap = Swap::open(self.at.clone())?;
        make_once(
            &self.folder,
            &format!("a file of {} units in two versions", self.units),
            || {
                self.write(1)?;
                self.write(2)
            },
        )?;
        swap.set_homes(vec![self.home(1), self.home(2)]);
        self.swap = Some(swap);
        Ok(())
    }

    fn versions(&self) -> u32 {
        2
    }

    fn at(&self) -> &Path {
        &self.at
    }

    fn put_version(&mut self, version: u32) -> Done {
        let swap = self.swap.as_mut();
        swap.ok_or_else(|| Failure::Other("the file is not made".to_owned()))?.put_version(version)
    }

    fn is_bulky(&self) -> bool {
        self.units > 10_000
    }
}

/// Files of noise.
pub struct Noise {
    folder: PathBuf,
    at: PathBuf,
    files: u64,
    file_bytes: usize,
}

impl Noise {
    /// Nothing is made yet.
    pub fn new(store: &Store) -> Self {
        let folder = store.set("random");
        let at = folder.join("at");
        let (files, file_bytes) = store.scale.pick((10, 1 << 20), (205, 10 << 20));
        Self { folder, at, files, file_bytes }
    }
}

impl DataSet for Noise {
    fn about(&self) -> String {
        format!(
            "{} files of {} MiB each that no compression makes smaller",
            self.files,
            self.file_bytes >> 20
        )
    }

    fn make(&mut self) -> Done {
        let what = format!("{} files of {} bytes of noise", self.files, self.file_bytes);
        make_once(&self.folder, &what, || {
            let mut noise = vec![0; self.file_bytes];
            (0..self.files).try_for_each(|file| {
                Random::new(file << 32).fill(&mut noise);
                crate::shell::write(&self.at.join(format!("{file:03}")), &noise)
            })
        })
    }

    fn versions(&self) -> u32 {
        1
    }

    fn at(&self) -> &Path {
        &self.at
    }

    fn put_version(&mut self, _version: u32) -> Done {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;
    use crate::shell::{count_files, remove};

    #[test]
    fn the_large_file_grows_in_its_middle() {
        let folder = std::env::temp_dir().join(format!("bench-large-{}", std::process::id()));
        let mut large = Large::new(&Store::new(folder.clone(), Scale::Small));
        large.make().unwrap();
        large.put_version(1).unwrap();
        let first = std::fs::read(large.at.join("file")).unwrap();
        large.put_version(2).unwrap();
        let second = std::fs::read(large.at.join("file")).unwrap();
        assert_eq!((first.len(), second.len()), (32 << 20, 33 << 20));
        let pages = |a: &[u8], b: &[u8]| {
            a.chunks(4096).zip(b.chunks(4096)).filter(|(before, after)| before != after).count()
        };
        let middle = first.len() / 2;
        let changed = pages(&first[..middle], &second[..middle])
            + pages(&first[middle..], &second[middle + INSERTED..]);
        assert_eq!(changed, PAGES_CHANGED);
        remove(&folder).unwrap();
    }

    #[test]
    fn noise_is_made_once() {
        let folder = std::env::temp_dir().join(format!("bench-random-{}", std::process::id()));
        let mut random = Noise::new(&Store::new(folder.clone(), Scale::Small));
        random.make().unwrap();
        random.make().unwrap();
        assert_eq!(count_files(random.at()).unwrap(), (10, 10 << 20));
        remove(&folder).unwrap();
    }
}
