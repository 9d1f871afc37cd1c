//! Regions that cannot be read to their end: no snapshot, an error that names the region, and the next
//! store finds everything.

use strongroom_source::memory::MemoryFile;

use super::*;

/// What happens to a region.
#[derive(Debug, Clone, Copy)]
enum Strike {
    /// The kernel cannot read a part of it, for once.
    Unreadable,
    /// Its owner cuts it short, to this many bytes.
    Short(u64),
    /// Its owner makes it longer.
    Long,
    /// Its owner removes its name.
    Removed,
}

/// A region of shared memory to which something happens just before one of its readings.
struct Struck {
    memory: MemoryFile,
    path: PathBuf,
    readings: AtomicU64,
    at: u64,
    strike: Strike,
}

impl Struck {
    fn region(path: &Path, at: u64, strike: Strike) -> Region {
        let memory = MemoryFile::open(path).unwrap();
        let struck =
            Self { memory, path: path.to_owned(), readings: AtomicU64::new(0), at, strike };
        Region { path: "/r".into(), memory: Box::new(struck), is_held: false }
    }

    fn strike(&self) -> io::Result<()> {
        let resize = |bytes| std::fs::File::options().write(true).open(&self.path)?.set_len(bytes);
        match self.strike {
            Strike::Unreadable => Err(rustix::io::Errno::IO.into()),
            Strike::Short(bytes) => resize(bytes),
            Strike::Long => resize(self.memory.bytes() + 1),
            Strike::Removed => std::fs::remove_file(&self.path),
        }
    }
}

impl Memory for Struck {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if self.readings.fetch_add(1, Ordering::Relaxed) == self.at {
            self.strike()?;
        }
        self.memory.read_at(offset, buffer)
    }

    fn has_data(&self, range: std::ops::Range<u64>) -> bool {
        self.memory.has_data(range)
    }

    fn check(&self) -> io::Result<()> {
        self.memory.check()
    }

    fn metadata(&self) -> Metadata {
        self.memory.metadata()
    }
}

#[test]
fn a_region_that_cannot_be_read_to_its_end_is_no_snapshot_and_nothing_is_lost() {
    let chunk = CHUNK as u64;
    let strikes = [
        (Strike::Unreadable, "Input/output error"),
        (Strike::Short(3 * chunk + 100), "it became shorter"),
        // Behind the end of a file there is no data, as in a hole.
        (Strike::Short(3 * chunk), "it became shorter"),
        (Strike::Short(0), "it became shorter"),
        (Strike::Long, "it became longer"),
        (Strike::Removed, "it was removed"),
    ];
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("r");
    let mut bytes = Random::new(15).noise(8 * CHUNK);
    let plain = |bytes: &[u8]| Owned::new(bytes).at("/r");
    for (strike, why) in strikes {
        let world = World::bare(15);
        let repository = world.open();
        // Without a parent in the first round, with one in the second.
        for round in 0..2 {
            // In the first reading of its eight chunks, and in the second.
            for at in [0, 1, 4, 7, 8, 11, 15] {
                let known = snapshot_ids(&repository);
                std::fs::write(&path, &bytes).unwrap();
                let struck = [Struck::region(&path, at, strike)];
                let what = format!("{strike:?} at reading {at} of round {round}");
                let error = store_as(&repository, &struck, super::plain()).map(|_| ());
                let error = error.expect_err(&what).to_string();
                assert!(error.starts_with("the region /r cannot be stored: "), "{what}: {error}");
                assert!(error.contains(why), "{what}: {error}");
                assert_eq!(snapshot_ids(&repository), known, "{what}");
            }
            let outcome = store(&repository, &[plain(&bytes)]);
            assert!(loaded(&repository, &outcome.backup.snapshot, "/r", b"") == bytes);
            // Then it differs from its parent everywhere, so that it is read twice.
            bytes.iter_mut().for_each(|byte| *byte ^= 1);
        }
        let verified = verify(&repository, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
        assert!(verified.is_sound(), "{verified:?}");
    }
}
