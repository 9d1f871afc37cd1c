//! One place made of several stores, of which some may vanish.
//!
//! ```text
//! each store:  stripe                       which store of which set it is
//!              FOLDER/FILE                  a small object, or the index of a large one
//!              pieces/FOLDER-FILE.L.H       this store's piece of an object of L bytes with hash H
//! ```
//!
//! A small object is in every store. A large one is cut into as many pieces as there are stores with
//! data, and Reed–Solomon pieces for the stores with parity; any pieces as many as there are stores
//! with data give the object.
//!
//! Invariants:
//!
//! - An index or a small object is created in the stores in their order, and removed in the reverse.
//!   The first store decides who creates a name. An object exists if any store has its index.
//! - All pieces exist before any index. So if a program dies at any point, and a store vanishes at
//!   any point, each object is there whole, or not there; what was acknowledged is in all stores.
//! - A name of a piece contains the hash of the object, so that two programs that create one object
//!   with different bytes do not overwrite each other's pieces.
//! - Nothing is written unless all stores are there: a store that comes back must not know less, or
//!   something else, than the others. Reading takes as many stores as have data.
//! - A copy of a small object is given up only for one that the [`Judge`] calls whole; a damaged one
//!   in an early store hides none that is whole.
//! - What any store had before a creation is not removed by it.
//!
//! A store without the object `stripe` is no member: it is new, or was erased. [`Backend::mend`]
//! makes it one, once it has everything that it must have.

mod creating;
mod format;
mod mending;
mod pieces;

pub use format::{STORES_MAX, Shape};

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    Backend, BackendError, Judge, ObjectInfo, ObjectName, Operation, Promises, Room, Soundness,
    Stores,
};
use format::{Index, MEMBER_BYTES, Member};
use pieces::{cut, pieces_name, pieces_of};

/// The object that says which store this is, and its copy.
const MEMBER: [&str; 2] = ["stripe", "stripe.copy"];
/// In a store that is being made a member: the set, in the folder of pieces.
const BEGUN: &str = "begun";
/// The folder of pieces.
const PIECES: &str = "pieces";
/// Objects up to this length are in every store.
const SMALL_BYTES: usize = 64 << 10;
/// At most this many indexes are kept in memory.
const INDEXES_MAX: usize = 4096;
/// The folders of a repository: all that is made again in a new store.
const FOLDERS: [&str; 14] = [
    "keys",
    "",
    "arenas",
    "vouchers",
    "arrivals",
    "ended",
    "remarks",
    "forgotten",
    "collections",
    "sessions",
    "aside",
    "manifests",
    "fences",
    "snapshots",
];

type Store = Arc<dyn Backend>;

/// A place made of several stores.
pub struct StripedBackend {
    /// By number; none if the store does not answer or is no member.
    stores: Vec<Option<Store>>,
    /// Stores that are there, empty, and no members.
    spare: Vec<Store>,
    set: [u8; 16],
    shape: Shape,
    small_bytes: usize,
    judge: Option<Judge>,
    described: String,
    // A plain mutex: held for a map operation.
    indexes: Mutex<HashMap<ObjectName, Arc<Index>>>,
}

/// What has a name.
enum Found {
    /// The object itself, from the store that has most of it.
    Small(Vec<u8>, Soundness),
    /// Something in this store of which there are more bytes than that, and no index.
    Long(Store, u64),
    Large(Arc<Index>),
}

impl Found {
    /// What the stores have under the name itself; none if that is no object of ours.
    fn kept(&self) -> Option<Vec<u8>> {
        match self {
            Self::Small(bytes, _) => Some(bytes.clone()),
            Self::Long(..) => None,
            Self::Large(index) => Some(index.pack()),
        }
    }

    /// Whether the object has these bytes.
    fn is(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Small(found, _) => found == bytes,
            Self::Long(..) => false,
            Self::Large(index) => index.is_of(bytes),
        }
    }
}

impl StripedBackend {
    /// Opens a set of stores in any order; `None` if none of them is a member of one. Of the stores
    /// that cannot be reached, there is none in `stores`.
    ///
    /// # Errors
    ///
    /// Fails if too many are missing, or if they are of different sets.
    pub fn open(stores: Vec<Option<Store>>, described: &str) -> Result<Option<Self>, BackendError> {
        let count = stores.len();
        let (mut members, mut others) = (Vec::new(), Vec::new());
        for store in stores.into_iter().flatten() {
            match member_of(&*store) {
                Ok(Some(member)) => members.push((member, store)),
                Ok(None) => others.push(store),
                // It does not answer.
                Err(_) => {}
            }
        }
        let Some((first, _)) = members.first() else { return Ok(None) };
        let (set, shape) = (first.set, first.shape);
        let fail = |what: String| Err(failed(Operation::Open, described, what));
        if members.iter().any(|(member, _)| (member.set, member.shape) != (set, shape)) {
            return fail("its stores belong to different repositories".to_owned());
        }
        if count != shape.stores() {
            return fail(format!("it has {} stores, and {count} were given", shape.stores()));
        }
        let mut by_number: Vec<Option<Store>> = vec![None; count];
        for (member, store) in members {
            if by_number[usize::from(member.number)].replace(store).is_some() {
                return fail("two of its stores are the same, or copies of each other".to_owned());
            }
        }
        let there = by_number.iter().flatten().count();
        if there < usize::from(shape.data) {
            let needed = shape.data;
            return fail(format!(
                "{there} of its {count} stores can be read, and it needs {needed}"
            ));
        }
        let mut spare = Vec::new();
        for store in others {
            if is_empty(&*store)? || is_begun(&*store, &set)? {
                spare.push(store);
            }
        }
        let described = described.to_owned();
        let (small_bytes, judge, indexes) = (SMALL_BYTES, None, Mutex::default());
        let stores = by_number;
        Ok(Some(Self { stores, spare, set, shape, small_bytes, judge, described, indexes }))
    }

    /// Makes a set of empty stores, or opens the one that they are.
    pub fn create(
        stores: Vec<Store>,
        parity: usize,
        set: [u8; 16],
        described: &str,
    ) -> Result<Self, BackendError> {
        let opened = Self::open(stores.iter().cloned().map(Some).collect(), described);
        if opened.as_ref().is_ok_and(|opened| opened.as_ref().is_some_and(|o| o.spare.is_empty())) {
            return opened?.ok_or_else(|| unreachable_set(described));
        }
        for store in &stores {
            if is_empty(&**store)? {
                continue;
            }
            // Something is stored: what is no member was erased, and is mended, not made.
            return match opened? {
                Some(opened) => Ok(opened),
                None => {
                    let what = format!("{} is not empty", store.describe());
                    Err(failed(Operation::Open, described, what))
                }
            };
        }
        let mut known = Vec::new();
        for store in &stores {
            known.extend(member_of(&**store)?);
        }
        let shape = Shape::new(stores.len(), parity).ok_or_else(|| {
            let what = format!("{} stores cannot have {parity} with parity", stores.len());
            failed(Operation::Open, described, what)
        })?;
        let (set, shape) = known.first().map_or((set, shape), |member| (member.set, member.shape));
        let is_free = |number: &u8| known.iter().all(|member| member.number != *number);
        let mut numbers = (0..u8::MAX).take(shape.stores()).filter(is_free);
        for store in &stores {
            if member_of(&**store)?.is_none()
                && let Some(number) = numbers.next()
            {
                join(&**store, Member { set, shape, number })?;
            }
        }
        let opened = Self::open(stores.into_iter().map(Some).collect(), described)?;
        opened.ok_or_else(|| unreachable_set(described))
    }

    /// Cuts objects that are longer than this.
    pub fn with_small_bytes(self, small_bytes: usize) -> Self {
        Self { small_bytes, ..self }
    }

    /// Lets a judge say which of several small copies is whole. Without one, the first counts, and what
    /// differs is not replaced.
    pub fn with_judge(self, judge: Judge) -> Self {
        Self { judge: Some(judge), ..self }
    }

    /// How many of its stores are missing.
    pub fn missing(&self) -> usize {
        self.stores.iter().filter(|store| store.is_none()).count()
    }

    /// A part of what was found.
    fn read_own(
        &self,
        name: &ObjectName,
        found: &Found,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, BackendError> {
        match found {
            Found::Small(bytes, _) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let end = start.saturating_add(length).min(bytes.len());
                Ok(bytes[start..end].to_vec())
            }
            Found::Long(store, _) => store.read(name, offset, length),
            Found::Large(index) => self.read_part(name, index, offset, length),
        }
    }

    fn there(&self) -> impl Iterator<Item = &Store> {
        self.stores.iter().flatten()
    }

    /// All stores, to write.
    fn all(&self, operation: Operation, name: &ObjectName) -> Result<Vec<&Store>, BackendError> {
        let all: Option<Vec<&Store>> = self.stores.iter().map(Option::as_ref).collect();
        all.ok_or_else(|| {
            let what = format!(
                "{} of its {} stores is missing; until `strongroom repair` has made it again, it \
                 can only be read",
                self.missing(),
                self.shape.stores()
            );
            failed(operation, &format!("{name} of {}", self.described), what)
        })
    }

    /// What has a name: the first index, or the first of the best copies. That it does not exist is
    /// an answer only if no store that answers has it.
    fn look(&self, name: &ObjectName) -> Result<Found, BackendError> {
        if let Some(index) = self.indexes().get(name) {
            return Ok(Found::Large(index.clone()));
        }
        let mut best: Option<(Soundness, Found)> = None;
        let (mut failed, mut absent) = (Vec::new(), None);
        for store in self.there() {
            let (soundness, found) = match self.look_in(store, name) {
                Ok(found @ Found::Large(_)) => return Ok(found),
                Ok(Found::Small(bytes, soundness)) => (soundness, Found::Small(bytes, soundness)),
                Ok(found @ Found::Long(..)) => (Soundness::Damaged, found),
                Err(error) => {
                    match error.is_not_found() {
                        true => absent = Some(error),
                        false => failed.push(error),
                    }
                    continue;
                }
            };
            if best.as_ref().is_none_or(|(known, _)| soundness > *known) {
                best = Some((soundness, found));
            }
            if soundness == Soundness::Whole {
                break;
            }
        }
        if let Some((_, found)) = best {
            return Ok(found);
        }
        // As many stores as there is parity may be silent.
        let silent = failed.len() + self.missing();
        match (absent, failed.pop()) {
            (Some(absent), _) if silent <= usize::from(self.shape.parity) => Err(absent),
            (_, Some(error)) => Err(error),
            (Some(absent), None) => Err(absent),
            (None, None) => Err(BackendError::NotFound { name: name.clone() }),
        }
    }

    /// What a store has under a name itself.
    fn look_in(&self, store: &Store, name: &ObjectName) -> Result<Found, BackendError> {
        let most = self.shape.index_bytes().max(self.small_bytes) + 1;
        let bytes = store.read(name, 0, most)?;
        Ok(match self.index_in(&bytes) {
            Some(index) => Found::Large(self.keep(name, index)),
            None if bytes.len() == most => Found::Long(Arc::clone(store), store.size(name)?),
            None => {
                let soundness = self.judge(name, &bytes);
                Found::Small(bytes, soundness)
            }
        })
    }

    /// How much of a small object there is in some bytes.
    fn judge(&self, name: &ObjectName, bytes: &[u8]) -> Soundness {
        match self.judge {
            Some(judge) => judge(name, bytes),
            // They may be what is left of an index.
            None if bytes.len() <= self.shape.index_bytes() => Soundness::Repairable,
            None => Soundness::Whole,
        }
    }

    /// The index in what a store has under a name.
    fn index_in(&self, bytes: &[u8]) -> Option<Index> {
        Index::unpack(bytes).filter(|index| index.shape == self.shape)
    }

    fn keep(&self, name: &ObjectName, index: Index) -> Arc<Index> {
        let index = Arc::new(index);
        let mut indexes = self.indexes();
        if indexes.len() >= INDEXES_MAX {
            indexes.clear();
        }
        indexes.insert(name.clone(), index.clone());
        index
    }

    fn indexes(&self) -> MutexGuard<'_, HashMap<ObjectName, Arc<Index>>> {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the pieces of an object, in all stores at once.
    fn put_pieces(
        &self,
        stores: &[&Store],
        name: &ObjectName,
        bytes: &[u8],
        put: impl Fn(&Store, &ObjectName, &[u8]) -> Result<(), BackendError> + Sync,
    ) -> Result<Index, BackendError> {
        let (index, pieces) = cut(bytes, self.shape);
        let piece_name = pieces_name(name, &index);
        let put = &put;
        let results: Vec<Result<(), BackendError>> = std::thread::scope(|scope| {
            let begin = |(store, piece): (&&Store, &Vec<u8>)| {
                let (store, piece, name) = (Arc::clone(store), piece.clone(), piece_name.clone());
                scope.spawn(move || put(&store, &name, &piece))
            };
            let begun: Vec<_> = stores.iter().zip(&pieces).map(begin).collect();
            begun.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
        });
        results.into_iter().collect::<Result<(), _>>()?;
        Ok(index)
    }

    /// What is stored under the name itself: the object if it is small, otherwise its index.
    fn is_small(&self, bytes: &[u8]) -> bool {
        bytes.len() <= self.small_bytes && !Index::resembles(bytes)
    }

    /// Removes pieces from the stores that have them.
    fn remove_pieces(&self, stores: &[&Store], pieces: &ObjectName) -> Result<(), BackendError> {
        for store in stores {
            match store.remove(pieces) {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Backend for StripedBackend {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        let index = match self.look(name)? {
            Found::Large(index) => index,
            found => return self.read_own(name, &found, offset, length),
        };
        let read = match offset == 0 && length as u64 >= index.bytes {
            true => self.read_whole(name, &index),
            false => self.read_part(name, &index, offset, length),
        };
        let Err(error) = read else { return read };
        // It may have been removed since its index was read, or this index may be damaged.
        self.indexes().remove(name);
        let other = match self.look(name)? {
            Found::Large(same) if same == index => self.whole_index(name),
            Found::Large(other) => Some(other),
            found => return self.read_own(name, &found, offset, length),
        };
        match other {
            Some(other) => self.read_part(name, &other, offset, length),
            None => Err(error),
        }
    }

    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        self.indexes().remove(name);
        Ok(match self.look(name)? {
            Found::Small(bytes, _) => bytes.len() as u64,
            Found::Long(_, bytes) => bytes,
            Found::Large(index) => index.bytes,
        })
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.create_in_all(name, bytes)
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        let stores = self.all(Operation::Write, name)?;
        let before = match self.look(name) {
            Ok(Found::Large(index)) => Some(pieces_name(name, &index)),
            _ => None,
        };
        self.indexes().remove(name);
        let mut now = None;
        let packed;
        let kept = if self.is_small(bytes) {
            bytes
        } else {
            let put = |store: &Store, name: &ObjectName, piece: &[u8]| store.replace(name, piece);
            let index = self.put_pieces(&stores, name, bytes, put)?;
            now = Some(pieces_name(name, &index));
            packed = index.pack();
            &packed
        };
        for store in &stores {
            store.replace(name, kept)?;
        }
        match before.filter(|before| now.as_ref() != Some(before)) {
            Some(before) => self.remove_pieces(&stores, &before),
            None => Ok(()),
        }
    }

    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        let stores = self.all(Operation::Remove, name)?;
        self.indexes().remove(name);
        let found = self.look(name)?;
        self.indexes().remove(name);
        for store in stores.iter().rev() {
            match store.remove(name) {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        match found {
            Found::Large(index) => self.remove_pieces(&stores, &pieces_name(name, &index)),
            _ => Ok(()),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, BackendError> {
        if folder == PIECES {
            return Ok(Vec::new());
        }
        let mut all: BTreeMap<ObjectName, u64> = BTreeMap::new();
        let mut lengths: HashMap<ObjectName, Vec<u64>> = HashMap::new();
        let mut silent = self.missing();
        let index_bytes = self.shape.index_bytes() as u64;
        for store in self.there() {
            let listed = store.list(folder).and_then(|listed| {
                // In every folder but that of arenas, nearly all objects are small.
                let has_index = listed.iter().any(|info| info.bytes == index_bytes);
                Ok((listed, if has_index { store.list(PIECES)? } else { Vec::new() }))
            });
            match listed {
                Ok((listed, pieces)) => {
                    all.extend(listed.into_iter().map(|info| (info.name, info.bytes)));
                    for (name, bytes) in pieces.iter().filter_map(|info| pieces_of(&info.name)) {
                        let known = lengths.entry(name).or_default();
                        if !known.contains(&bytes) {
                            known.push(bytes);
                        }
                    }
                }
                Err(error) if silent >= usize::from(self.shape.parity) => return Err(error),
                Err(_) => silent += 1,
            }
        }
        all.retain(|name, _| !MEMBER.contains(&name.as_str()));
        let mut objects = Vec::with_capacity(all.len());
        for (name, bytes) in all {
            let bytes = match lengths.get(&name).map(Vec::as_slice) {
                _ if bytes != index_bytes => bytes,
                Some([length]) => *length,
                _ => match self.size(&name) {
                    Err(error) if error.is_not_found() => continue,
                    other => other?,
                },
            };
            objects.push(ObjectInfo { name, bytes });
        }
        Ok(objects)
    }

    fn sweep(&self) -> Result<usize, BackendError> {
        let mut swept = 0;
        for store in self.there() {
            swept += store.sweep()?;
        }
        Ok(swept)
    }

    fn promises(&self) -> Promises {
        let all: Vec<Promises> = self.there().map(|store| store.promises()).collect();
        let together = |promise: fn(&Promises) -> Option<bool>| {
            let answers: Vec<Option<bool>> = all.iter().map(promise).collect();
            match answers.contains(&Some(false)) {
                true => Some(false),
                false => answers.iter().all(|answer| *answer == Some(true)).then_some(true),
            }
        };
        let least = all.iter().map(|store| store.object_bytes_max).min().unwrap_or(0);
        Promises {
            is_exclusive: together(|store| store.is_exclusive),
            is_consistent: together(|store| store.is_consistent),
            is_durable: all.iter().all(|store| store.is_durable),
            in_flight: all.iter().map(|store| store.in_flight).max().unwrap_or(1),
            sends_parts: all.iter().all(|store| store.sends_parts),
            object_bytes_max: least.saturating_mul(u64::from(self.shape.data)),
            copies: false,
            locks: false,
            proves: false,
        }
    }

    fn room(&self) -> Option<&dyn Room> {
        Some(self)
    }

    fn stores(&self) -> Option<&dyn Stores> {
        Some(self)
    }

    fn complaint(&self) -> Option<String> {
        let (missing, all) = (self.missing(), self.shape.stores());
        (missing > 0).then(|| {
            format!(
                "{missing} of the {all} stores of {} cannot be read, or were erased: until \
                 `strongroom repair` has made them again, nothing can be stored",
                self.described
            )
        })
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        for other in FOLDERS.into_iter().filter(|other| *other != folder) {
            if !self.list(other)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn describe(&self) -> String {
        self.described.clone()
    }

    fn folders(&self) -> Vec<PathBuf> {
        self.stores.iter().flatten().chain(&self.spare).flat_map(|store| store.folders()).collect()
    }
}

impl Room for StripedBackend {
    fn save(&self) {
        self.there().for_each(|store| store.save_room());
    }

    fn release(&self) -> bool {
        self.there().filter(|store| store.release_room()).count() > 0
    }

    fn release_half(&self) -> bool {
        self.there().filter(|store| store.release_half_room()).count() > 0
    }
}

/// Which store of which set it is; none if it is no member.
fn member_of(store: &dyn Backend) -> Result<Option<Member>, BackendError> {
    for file in MEMBER {
        match store.read(&ObjectName::top(file), 0, MEMBER_BYTES + 1) {
            Ok(bytes) => {
                if let Some(member) = Member::unpack(&bytes) {
                    return Ok(Some(member));
                }
            }
            Err(error) if error.is_not_found() || error.is_damage() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Makes a store a member.
fn join(store: &dyn Backend, member: Member) -> Result<(), BackendError> {
    MEMBER.iter().try_for_each(|file| store.replace(&ObjectName::top(file), &member.pack()))
}

/// Whether a store has none of the objects that a repository has.
fn is_empty(store: &dyn Backend) -> Result<bool, BackendError> {
    for folder in FOLDERS.into_iter().chain([PIECES]) {
        let mut listed = store.list(folder)?;
        listed.retain(|info| !MEMBER.contains(&info.name.as_str()));
        if !listed.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a store was being made a member of a set.
fn is_begun(store: &dyn Backend, set: &[u8; 16]) -> Result<bool, BackendError> {
    match store.read(&ObjectName::new(PIECES, BEGUN), 0, set.len() + 1) {
        Ok(bytes) => Ok(bytes == set),
        Err(error) if error.is_not_found() || error.is_damage() => Ok(false),
        Err(error) => Err(error),
    }
}

fn unreachable_set(described: &str) -> BackendError {
    failed(Operation::Open, described, "its stores do not keep what they are given".to_owned())
}

fn failed(operation: Operation, what: &str, why: String) -> BackendError {
    BackendError::Io { operation, what: what.to_owned(), source: io::Error::other(why) }
}

fn panicked() -> Result<(), BackendError> {
    Err(failed(Operation::Write, "a store", "its thread ended early".to_owned()))
}
