//! Exclusive create for places that have none: creators agree by notes that they put and then look
//! for.
//!
//! Some stores overwrite, and some only claim that they do not. If single objects are linearizable
//! and a listing shows what was put before it began, that is enough: this is Disk Paxos (Gafni and
//! Lamport, 2003) with one disk, of which every block is written once. The objects `agreed-XX/…`
//! are the blocks; XX spreads them over folders, by the hash of the name.
//!
//! ```text
//! agreed-XX/FOLDER.FILE.ROUND-CREATOR.1       creator: I begin this round
//! agreed-XX/FOLDER.FILE.ROUND-CREATOR.2       I want these bytes, or bytes with this hash
//! agreed-XX/FOLDER.FILE.HASH.draft            long bytes, put before the note that names them
//! ```
//!
//! A creator draws a name for itself, and a round greater than any that it sees. It puts note 1 and
//! lists. If a greater round has begun, it begins again. Otherwise it takes over the bytes of the
//! greatest round that has a note 2, if there is one, puts its own note 2, and lists again. If no
//! greater round has begun by then, its bytes are decided: every later round finds its note 2. Only
//! decided bytes are put under the object's own name, so a put that arrives late does no harm, and
//! any creator that finds a decision puts them there too. Where a note 2 is damaged the name counts
//! as taken; a repair that has the object from elsewhere puts it back without asking. Where a draft does
//! not have the hash that was decided, nothing is put: a creator that has the bytes ends it.
//!
//! Notes stay: a name that was removed is never decided a second time. `docs/design/0023-agreement.md`
//! has the reasons and the costs, and `crates/protocol/src/agreement.rs` is the model.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strongroom_base::entropy::random_array;
use strongroom_base::{Entropy, Timestamp};

use crate::{
    Backend, BackendError, ObjectInfo, ObjectName, Operation, Promises, Room, Soundness, Stores,
    read_all,
};

/// Bytes that a note itself holds at most; longer ones are in a draft.
const INLINE_BYTES_MAX: usize = 16 << 10;
/// How the names of the folders of notes begin.
const FOLDERS: &str = "agreed-";
/// This many bytes of the hash of its bytes are in a note.
const NOTE_HASH_BYTES: usize = 16;
/// This many digits of its hash are in the name of a draft.
const DRAFT_HASH_DIGITS: usize = 32;
/// How often a creator begins again before it gives up: others are faster each time.
const ROUNDS_MAX: u32 = 40;
/// The first pause before it begins again; each further one is longer.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A place without exclusive create, whose users agree.
pub struct AgreedBackend {
    inner: Arc<dyn Backend>,
    /// Whether a name was drawn by chance: only one creator knows it, so nothing is to be agreed.
    is_drawn: fn(&ObjectName) -> bool,
    entropy: Arc<dyn Entropy>,
}

/// A round of a creator: rounds of one number are ordered by the creators' names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Ballot {
    round: u32,
    creator: String,
}

/// What the notes about a name say.
#[derive(Debug, Default)]
struct Notes {
    /// The greatest round that has begun.
    begun: Option<Ballot>,
    /// The greatest round with a note 2.
    wanted: Option<Ballot>,
}

/// What a note 2 holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wish {
    Bytes(Vec<u8>),
    /// The hash of bytes that are in a draft.
    Draft([u8; 32]),
}

impl AgreedBackend {
    /// Over a place. `is_drawn` says whether a name was drawn by chance.
    pub fn new(
        inner: Arc<dyn Backend>,
        is_drawn: fn(&ObjectName) -> bool,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self { inner, is_drawn, entropy }
    }

    /// Decides the bytes of a name: those that are wanted, or those of another creator.
    fn decide(&self, name: &ObjectName, bytes: &[u8]) -> Result<Wish, BackendError> {
        let own = Wish::of(bytes);
        if let Wish::Draft(hash) = &own {
            self.inner.replace(&draft(name, hash), bytes)?;
        }
        let chance: [u8; 8] = random_array(&*self.entropy);
        let creator: String = chance.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut notes = self.notes(name)?;
        for attempt in 0..ROUNDS_MAX {
            let round = notes.begun.map_or(1, |ballot| ballot.round + 1);
            let ballot = Ballot { round, creator: creator.clone() };
            let begun = self.inner.replace(&note(name, &ballot, 1), &[]);
            // In an earlier round a wish was noted.
            begun.map_err(|error| if attempt > 0 { error.unsettled() } else { error })?;
            notes = self.notes(name)?;
            if notes.is_beyond(&ballot) {
                self.pause(attempt);
                continue;
            }
            let wish = match &notes.wanted {
                // Bytes were wanted, perhaps decided, and a damaged note does not say which.
                Some(other) => Wish::unpack(&read_all(&*self.inner, &note(name, other, 2))?)
                    .ok_or_else(|| BackendError::AlreadyExists { name: name.clone() })?,
                None => own.clone(),
            };
            // From here on the wish may be decided, and others carry it out.
            let noted = self.inner.replace(&note(name, &ballot, 2), &wish.pack());
            noted.map_err(BackendError::unsettled)?;
            notes = self.notes(name)?;
            if !notes.is_beyond(&ballot) {
                return Ok(wish);
            }
            self.pause(attempt);
        }
        Err(self.failed(name, "others create it at the same time, again and again"))
    }

    fn notes(&self, name: &ObjectName) -> Result<Notes, BackendError> {
        let mut notes = Notes::default();
        for info in self.inner.list(&folder_of(name))? {
            let Some((ballot, phase)) = ballot_in(name, info.name.file()) else { continue };
            notes.begun = notes.begun.max(Some(ballot.clone()));
            if phase == 2 {
                notes.wanted = notes.wanted.max(Some(ballot));
            }
        }
        Ok(notes)
    }

    /// By chance and longer each time, so that one of several creators is alone at last.
    fn pause(&self, attempt: u32) {
        let [chance] = random_array(&*self.entropy);
        let most = (PAUSE * (attempt + 1)).min(PAUSE_MAX);
        std::thread::sleep(most * u32::from(chance) / 255);
    }

    fn failed(&self, name: &ObjectName, why: &'static str) -> BackendError {
        let source = std::io::Error::other(why);
        BackendError::Io { operation: Operation::Write, what: name.to_string(), source }
    }

    /// Puts decided bytes under the object's own name. True if they are these.
    fn carry_out(
        &self,
        name: &ObjectName,
        decided: &Wish,
        own: &[u8],
    ) -> Result<bool, BackendError> {
        let is_own = *decided == Wish::of(own);
        if is_own {
            self.inner.replace(name, own)?;
        } else {
            match decided {
                Wish::Bytes(bytes) => self.inner.replace(name, bytes)?,
                Wish::Draft(hash) => match read_all(&*self.inner, &draft(name, hash)) {
                    // Nothing else is put in the place of what may have been acknowledged; who has the
                    // bytes can still end it.
                    Ok(bytes) if blake3::hash(&bytes) != *hash => {
                        return Err(self.failed(name, "its draft does not have the bytes decided"));
                    }
                    Ok(bytes) => self.inner.replace(name, &bytes)?,
                    // Its creator has put the object, and then removed the draft.
                    Err(error) if error.is_not_found() => {}
                    Err(error) => return Err(error),
                },
            }
        }
        if let Wish::Draft(hash) = decided {
            // It is a matter of room only.
            let _ = self.inner.remove(&draft(name, hash));
        }
        Ok(is_own)
    }
}

impl Notes {
    /// Whether a greater round than this one has begun.
    fn is_beyond(&self, ballot: &Ballot) -> bool {
        self.begun.as_ref().is_some_and(|begun| begun > ballot)
    }
}

impl Wish {
    fn of(bytes: &[u8]) -> Self {
        if bytes.len() <= INLINE_BYTES_MAX {
            Self::Bytes(bytes.to_vec())
        } else {
            Self::Draft(*blake3::hash(bytes).as_bytes())
        }
    }

    fn pack(&self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => [&[2], &note_hash(bytes)[..], bytes].concat(),
            Self::Draft(hash) => [&[1], hash.as_slice()].concat(),
        }
    }

    fn unpack(note: &[u8]) -> Option<Self> {
        match note.split_first()? {
            (2, rest) => {
                let (hash, bytes) = rest.split_first_chunk()?;
                let is_whole = bytes.len() <= INLINE_BYTES_MAX && note_hash(bytes) == *hash;
                is_whole.then(|| Self::Bytes(bytes.to_vec()))
            }
            (1, hash) => Some(Self::Draft(hash.try_into().ok()?)),
            _ => None,
        }
    }
}

/// What shows that a note with bytes is whole.
fn note_hash(bytes: &[u8]) -> [u8; NOTE_HASH_BYTES] {
    *blake3::hash(bytes).as_bytes().first_chunk().expect("a hash is longer")
}

/// What can be said of the bytes of a note or a draft; none if the name is of neither.
pub fn judge_note(name: &ObjectName, bytes: &[u8]) -> Option<Soundness> {
    name.folder().strip_prefix(FOLDERS)?;
    let (rest, kind) = name.file().rsplit_once('.')?;
    let is_right = match kind {
        "1" => bytes.is_empty(),
        "2" => Wish::unpack(bytes).is_some(),
        "draft" => {
            let (_, hash) = rest.rsplit_once('.')?;
            blake3::hash(bytes).to_hex()[..DRAFT_HASH_DIGITS] == *hash
        }
        _ => return None,
    };
    Some(if is_right { Soundness::Whole } else { Soundness::Damaged })
}

/// The folder of the notes about a name.
fn folder_of(name: &ObjectName) -> String {
    format!("{FOLDERS}{:02x}", blake3::hash(name.as_str().as_bytes()).as_bytes()[0])
}

/// How the files of the notes about a name begin.
fn stem(name: &ObjectName) -> String {
    let folder = if name.folder().is_empty() { "top" } else { name.folder() };
    format!("{folder}.{}", name.file())
}

fn note(name: &ObjectName, ballot: &Ballot, phase: u8) -> ObjectName {
    let Ballot { round, creator } = ballot;
    ObjectName::new(&folder_of(name), format!("{}.{round:08x}-{creator}.{phase}", stem(name)))
}

fn draft(name: &ObjectName, hash: &[u8; 32]) -> ObjectName {
    let hash = blake3::Hash::from_bytes(*hash).to_hex();
    ObjectName::new(
        &folder_of(name),
        format!("{}.{}.draft", stem(name), &hash[..DRAFT_HASH_DIGITS]),
    )
}

/// The round and the number of the note that a file is, if it is about this name.
fn ballot_in(name: &ObjectName, file: &str) -> Option<(Ballot, u8)> {
    let (rest, phase) = file.rsplit_once('.')?;
    let (of, ballot) = rest.rsplit_once('.')?;
    let (round, creator) = ballot.split_once('-')?;
    let phase = match phase {
        "1" => 1,
        "2" => 2,
        _ => return None,
    };
    let round = u32::from_str_radix(round, 16).ok().filter(|round| *round < u32::MAX)?;
    let is_of_it = of == stem(name) && creator.len() == 16;
    is_of_it.then(|| (Ballot { round, creator: creator.to_owned() }, phase))
}

impl Backend for AgreedBackend {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        self.inner.read(name, offset, length)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        self.inner.size(name)
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        if (self.is_drawn)(name) {
            return self.inner.replace(name, bytes);
        }
        // What is under the name was decided.
        match self.inner.size(name) {
            Ok(_) => {
                return match crate::holds(&*self.inner, name, bytes)? {
                    // It may be in some stores only of a place that consists of several.
                    true if self.inner.stores().is_some() => self.inner.replace(name, bytes),
                    true => Ok(()),
                    false => Err(BackendError::AlreadyExists { name: name.clone() }),
                };
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        let decided = self.decide(name, bytes)?;
        match self.carry_out(name, &decided, bytes) {
            Ok(true) => Ok(()),
            Ok(false) => Err(BackendError::AlreadyExists { name: name.clone() }),
            Err(error) => Err(error.unsettled()),
        }
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.replace(name, bytes)
    }

    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.inner.remove(name)
    }

    fn discard(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.inner.discard(name)
    }

    fn room(&self) -> Option<&dyn Room> {
        self.inner.room()
    }

    fn stores(&self) -> Option<&dyn Stores> {
        self.inner.stores()
    }

    fn complaint(&self) -> Option<String> {
        self.inner.complaint()
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, BackendError> {
        self.inner.list(folder)
    }

    fn sweep(&self) -> Result<usize, BackendError> {
        self.inner.sweep()
    }

    fn promises(&self) -> Promises {
        Promises { is_exclusive: Some(true), ..self.inner.promises() }
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        self.inner.holds_at_most(folder)
    }

    fn copy(&self, from: &ObjectName, to: &ObjectName) -> Result<(), BackendError> {
        self.inner.copy(from, to)
    }

    fn retain(&self, name: &ObjectName, until: Timestamp) -> Result<(), BackendError> {
        self.inner.retain(name, until)
    }

    fn prove(&self, name: &ObjectName, challenge: &[u8]) -> Result<Vec<u8>, BackendError> {
        self.inner.prove(name, challenge)
    }

    fn replicas(&self) -> &[Arc<dyn Backend>] {
        self.inner.replicas()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn folders(&self) -> Vec<PathBuf> {
        self.inner.folders()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use strongroom_base::SeededEntropy;

    use super::*;
    use crate::MemoryBackend;

    /// A store that overwrites and says that all is well.
    struct Liar(MemoryBackend);

    impl Backend for Liar {
        fn read(&self, name: &ObjectName, at: u64, length: usize) -> Result<Vec<u8>, BackendError> {
            self.0.read(name, at, length)
        }
        fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
            self.0.size(name)
        }
        fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
            self.0.replace(name, bytes)
        }
        fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
            self.0.replace(name, bytes)
        }
        fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
            self.0.remove(name)
        }
        fn room(&self) -> Option<&dyn Room> {
            None
        }
        fn stores(&self) -> Option<&dyn Stores> {
            None
        }
        fn complaint(&self) -> Option<String> {
            None
        }
        fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, BackendError> {
            self.0.list(folder)
        }
        fn sweep(&self) -> Result<usize, BackendError> {
            self.0.sweep()
        }
        fn promises(&self) -> Promises {
            Promises { is_exclusive: None, ..self.0.promises() }
        }
        fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
            self.0.holds_at_most(folder)
        }
        fn describe(&self) -> String {
            self.0.describe()
        }
        fn folders(&self) -> Vec<PathBuf> {
            Vec::new()
        }
    }

    fn agreed(inner: &Arc<dyn Backend>, seed: u64) -> AgreedBackend {
        let is_drawn = |name: &ObjectName| name.folder() == "drawn";
        AgreedBackend::new(inner.clone(), is_drawn, Arc::new(SeededEntropy::new(seed)))
    }

    #[test]
    fn one_of_many_creators_wins_in_a_store_that_overwrites() {
        let liar: Arc<dyn Backend> = Arc::new(Liar(MemoryBackend::new()));
        for (round, length) in [1, 100, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, 1 << 20]
            .into_iter()
            .cycle()
            .enumerate()
            .take(40)
        {
            let name = ObjectName::new("snapshots", format!("s{round}"));
            let (start, winners) = (Barrier::new(8), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                for creator in 0..8_u8 {
                    let (liar, name, start, winners) = (&liar, &name, &start, &winners);
                    scope.spawn(move || {
                        let backend = agreed(liar, u64::from(creator) * 1000 + round as u64);
                        let own = vec![creator; length];
                        start.wait();
                        match backend.create(name, &own) {
                            Ok(()) => {
                                winners.fetch_add(1, Ordering::Relaxed);
                                assert!(read_all(&backend, name).unwrap() == own);
                            }
                            Err(BackendError::AlreadyExists { .. }) => {
                                let found = read_all(&backend, name).unwrap();
                                assert!(found.len() == length && found != own);
                            }
                            Err(error) => panic!("{error}"),
                        }
                    });
                }
            });
            assert_eq!(winners.into_inner(), 1, "round {round}");
        }
    }

    #[test]
    fn what_was_decided_stays_decided() {
        let liar: Arc<dyn Backend> = Arc::new(Liar(MemoryBackend::new()));
        let name = ObjectName::new("collections", "7.plan");
        let [one, other] = [1, 2].map(|seed| agreed(&liar, seed));
        one.create(&name, b"first").unwrap();
        one.create(&name, b"first").unwrap();
        assert!(matches!(other.create(&name, b"other"), Err(BackendError::AlreadyExists { .. })));
        // Removed, and asked for once more: never with other bytes.
        one.remove(&name).unwrap();
        assert!(matches!(other.create(&name, b"other"), Err(BackendError::AlreadyExists { .. })));
        assert_eq!(read_all(&*liar, &name).unwrap(), b"first");
        // A name that begins as another is another.
        other.create(&ObjectName::new("collections", "7.plan.x"), b"x").unwrap();
        other.create(&ObjectName::top("config"), b"x").unwrap();
        other.create(&ObjectName::top("config.copy"), b"y").unwrap();
        // Drawn names have no notes.
        let before = (0..256).map(|n| liar.list(&format!("agreed-{n:02x}")).unwrap().len());
        let before: usize = before.sum();
        one.create(&ObjectName::new("drawn", "a"), b"x").unwrap();
        let after = (0..256).map(|n| liar.list(&format!("agreed-{n:02x}")).unwrap().len());
        assert_eq!(before, after.sum::<usize>());
    }

    #[test]
    fn a_damaged_note_lets_nobody_decide_anew() {
        let liar: Arc<dyn Backend> = Arc::new(Liar(MemoryBackend::new()));
        let name = ObjectName::top("config");
        agreed(&liar, 1).create(&name, b"first").unwrap();
        liar.remove(&name).unwrap();
        for info in liar.list(&folder_of(&name)).unwrap() {
            liar.replace(&info.name, b"rubbish").unwrap();
        }
        for bytes in [&b"first"[..], b"other"] {
            let refused = agreed(&liar, 2).create(&name, bytes);
            assert!(matches!(refused, Err(BackendError::AlreadyExists { .. })), "{refused:?}");
        }
        assert!(liar.size(&name).is_err());
    }

    /// A draft that was cut short by a power cut is not put in the place of what was decided.
    #[test]
    fn a_draft_with_other_bytes_is_not_put() {
        let liar: Arc<dyn Backend> = Arc::new(Liar(MemoryBackend::new()));
        let name = ObjectName::new("snapshots", "s");
        let decided = vec![7; INLINE_BYTES_MAX + 1];
        let wish = Wish::of(&decided);
        let Wish::Draft(hash) = wish else { panic!("{wish:?}") };
        let ballot = Ballot { round: 1, creator: "0123456789abcdef".to_owned() };
        liar.replace(&note(&name, &ballot, 1), &[]).unwrap();
        liar.replace(&note(&name, &ballot, 2), &wish.pack()).unwrap();
        for left in [&b""[..], &decided[1..], &vec![0; decided.len()]] {
            liar.replace(&draft(&name, &hash), left).unwrap();
            let other = agreed(&liar, 2).create(&name, b"other").unwrap_err();
            assert!(!matches!(other, BackendError::AlreadyExists { .. }), "{other}");
            assert!(liar.size(&name).is_err(), "{} bytes", left.len());
            // The one who wanted it may already have put it.
            liar.replace(&name, &decided).unwrap();
            let name_taken = agreed(&liar, 3).carry_out(&name, &wish, b"other").unwrap_err();
            assert!(read_all(&*liar, &name).unwrap() == decided, "{name_taken}");
            liar.remove(&name).unwrap();
        }
        // The one who has the bytes ends it.
        agreed(&liar, 4).create(&name, &decided).unwrap();
        assert!(read_all(&*liar, &name).unwrap() == decided);
        assert!(agreed(&liar, 5).create(&name, b"other").is_err());
    }

    /// Of a note that was cut short, or is zeros, nothing is put.
    #[test]
    fn a_note_with_other_bytes_is_not_put() {
        let liar: Arc<dyn Backend> = Arc::new(Liar(MemoryBackend::new()));
        let name = ObjectName::new("snapshots", "s");
        let ballot = Ballot { round: 1, creator: "0123456789abcdef".to_owned() };
        let packed = Wish::of(b"the bytes that were decided").pack();
        liar.replace(&note(&name, &ballot, 1), &[]).unwrap();
        for left in [&packed[..0], &packed[..1], &packed[..20], &vec![0; packed.len()]] {
            liar.replace(&note(&name, &ballot, 2), left).unwrap();
            agreed(&liar, 2).create(&name, b"other").unwrap_err();
            assert!(liar.size(&name).is_err(), "{} bytes", left.len());
        }
    }

    #[test]
    fn notes_are_read_as_they_were_written_and_others_are_passed_over() {
        let name = ObjectName::top("config");
        let ballot = Ballot { round: 7, creator: "0123456789abcdef".to_owned() };
        for phase in [1, 2] {
            let note = note(&name, &ballot, phase);
            assert_eq!(ballot_in(&name, note.file()), Some((ballot.clone(), phase)));
            assert_eq!(ballot_in(&ObjectName::top("config.copy"), note.file()), None);
        }
        for file in
            ["", "x", "top.config.1", "top.config.zz-0123456789abcdef.1", "top.config.1-a.2"]
        {
            assert_eq!(ballot_in(&name, file), None, "{file}");
        }
        for wish in [Wish::of(b""), Wish::of(&[7; 99_999])] {
            assert_eq!(Wish::unpack(&wish.pack()), Some(wish));
        }
        assert_eq!(
            (Wish::unpack(&[]), Wish::unpack(&[1, 2]), Wish::unpack(&[9])),
            (None, None, None)
        );
    }
}
