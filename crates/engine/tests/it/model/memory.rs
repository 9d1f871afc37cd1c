//! Regions of memory in the model, and how they change.
//!
//! Two buckets, `/file/1` and `/file/2`, have two areas each. Of every area there is memory, which is
//! what the engine reads, and a plain copy of its bytes, with which everything is compared.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use strongroom_catalog::Guarantee;
use strongroom_engine::{Region, Stillness, StillnessGuard};
use strongroom_source::memory::MemoryFile;
use strongroom_source::memory::handed::Handed;
use strongroom_source::memory::mark::PAGE_BYTES;
use strongroom_testkit::Random;

use super::held::Regions;

/// No region is longer than this.
pub const BYTES_MAX: u64 = 9 * (64 << 10);

/// The areas of both buckets.
pub struct Memory {
    /// For those that have a name.
    _folder: tempfile::TempDir,
    areas: Mutex<Vec<Area>>,
}

/// An area: memory, and what is in it.
struct Area {
    path: PathBuf,
    /// Its name, if it has one: else it is a memfd.
    name: Option<PathBuf>,
    file: File,
    bytes: Vec<u8>,
}

/// A change of an area.
#[derive(Debug, Clone)]
pub enum Edit {
    /// These bytes are there from now on.
    Write(usize, Vec<u8>),
    /// Zeros are there from now on; a hole, if it is said so.
    Zero(Range<usize>, bool),
    /// It has another length.
    Resize(usize),
}

impl Memory {
    pub fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let area = |(path, is_named): (&str, bool)| {
            let name = is_named.then(|| folder.path().join(path.replace('/', "-")));
            let file = match &name {
                Some(name) => {
                    let mut how = File::options();
                    how.read(true).write(true).create_new(true).open(name).unwrap()
                }
                None => File::from(memfd_create("model", MemfdFlags::CLOEXEC).unwrap()),
            };
            Area { path: path.into(), name, file, bytes: Vec::new() }
        };
        let areas = [
            ("/file/1/data", true),
            ("/file/1/index", false),
            ("/file/2/data", false),
            ("/file/2/index", true),
        ];
        Self { areas: Mutex::new(areas.map(area).into()), _folder: folder }
    }

    pub fn edit(&self, number: usize, edit: &Edit) {
        let area = &mut self.areas.lock().unwrap_or_else(PoisonError::into_inner)[number];
        match edit {
            Edit::Write(at, bytes) => {
                area.file.write_all_at(bytes, *at as u64).unwrap();
                area.bytes[*at..][..bytes.len()].copy_from_slice(bytes);
            }
            Edit::Zero(range, true) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let (at, bytes) = (range.start as u64, range.len() as u64);
                fallocate(&area.file, flags, at, bytes).unwrap();
                area.bytes[range.clone()].fill(0);
            }
            Edit::Zero(range, false) => {
                area.file.write_all_at(&vec![0; range.len()], range.start as u64).unwrap();
                area.bytes[range.clone()].fill(0);
            }
            Edit::Resize(bytes) => {
                area.file.set_len(*bytes as u64).unwrap();
                area.bytes.resize(*bytes, 0);
            }
        }
    }

    /// A change of an area: of its length only if it `may_resize`.
    pub fn draw(&self, number: usize, may_resize: bool, random: &mut Random) -> Vec<Edit> {
        let areas = self.areas.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = &areas[number].bytes;
        let pages = bytes.len().div_ceil(PAGE_BYTES) as u64;
        if pages == 0 || may_resize && random.once_in(6) {
            let length = random.below(BYTES_MAX) as usize;
            // A multiple of a page, or of nothing.
            let length = if random.once_in(2) { length / PAGE_BYTES * PAGE_BYTES } else { length };
            let new = if may_resize { length } else { bytes.len() };
            let added = new.saturating_sub(bytes.len());
            let content = random.content(added);
            let write = Edit::Write(bytes.len(), content);
            return if random.once_in(3) || added == 0 {
                vec![Edit::Resize(new)]
            } else {
                vec![Edit::Resize(new), write]
            };
        }
        let page = |random: &mut Random| {
            let at = random.below(pages) as usize * PAGE_BYTES;
            at..(at + PAGE_BYTES).min(bytes.len())
        };
        match random.below(4) {
            // Pages of other bytes.
            0 => (0..1 + random.below(4))
                .map(|_| {
                    let page = page(random);
                    Edit::Write(page.start, random.noise(page.len()))
                })
                .collect(),
            // Pages of zeros, one after the other.
            1 => {
                let (first, last) = (page(random), page(random));
                let range = first.start.min(last.start)..first.end.max(last.end);
                vec![Edit::Zero(range, random.once_in(2))]
            }
            // A page that is elsewhere, too.
            2 => {
                let (from, to) = (page(random), page(random));
                let length = from.len().min(to.len());
                vec![Edit::Write(to.start, bytes[from][..length].to_vec())]
            }
            // A flag in many records.
            _ => {
                let (record, flag) = (1 + random.below(9000) as usize, 1 << random.below(8));
                let places = (0..bytes.len()).step_by(record);
                let places = places.filter(|_| random.once_in(2)).collect::<Vec<_>>();
                places.into_iter().map(|at| Edit::Write(at, vec![bytes[at] ^ flag])).collect()
            }
        }
    }

    /// The numbers of the areas of a bucket, or of both.
    pub fn of(bucket: Option<usize>) -> Range<usize> {
        bucket.map_or(0..4, |bucket| 2 * bucket..2 * bucket + 2)
    }

    /// The path of an area in snapshots.
    pub fn path(&self, number: usize) -> PathBuf {
        self.areas.lock().unwrap_or_else(PoisonError::into_inner)[number].path.clone()
    }

    /// What is in these areas.
    pub fn contents(&self, areas: Range<usize>) -> Regions {
        let all = self.areas.lock().unwrap_or_else(PoisonError::into_inner);
        all[areas].iter().map(|area| (area.path.clone(), area.bytes.clone())).collect()
    }

    /// These areas as the engine reads them.
    pub fn regions(&self, areas: Range<usize>, is_held: bool) -> Vec<Region> {
        let all = self.areas.lock().unwrap_or_else(PoisonError::into_inner);
        let region = |area: &Area| {
            let memory = match &area.name {
                Some(name) => MemoryFile::open(name),
                None => {
                    let file = area.file.try_clone().unwrap();
                    Handed::take(file, area.bytes.len() as u64).and_then(|it| it.memory())
                }
            };
            Region { path: area.path.clone(), memory: Box::new(memory.unwrap()), is_held }
        };
        all[areas].iter().map(region).collect()
    }
}

/// The owner writes once more before it holds still.
pub struct Writing<'m> {
    pub memory: &'m Memory,
    /// What it writes, by the numbers of areas.
    pub edits: Mutex<Vec<(usize, Edit)>>,
}

struct Still;

impl Stillness for Writing<'_> {
    fn begin(&self) -> Result<Box<dyn StillnessGuard + '_>, String> {
        for (area, edit) in self.edits.lock().unwrap().drain(..) {
            self.memory.edit(area, &edit);
        }
        Ok(Box::new(Still))
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::new(Guarantee::EXACT, Guarantee::OWNER)
    }
}

impl StillnessGuard for Still {
    fn end(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}
