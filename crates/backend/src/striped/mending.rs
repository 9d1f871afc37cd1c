//! Mending: what single stores lack, and how they get it again.

use std::collections::HashMap;

use super::format::{Index, Member};
use super::pieces::{cut, pieces_name};
use super::{BEGUN, FOLDERS, Found, PIECES, Store, StripedBackend, join};
use crate::{Backend, BackendError, ObjectInfo, ObjectName, Soundness, Stores};

/// An object of which a store lacks something.
struct Lack {
    name: ObjectName,
    found: Found,
    own: Own,
    /// Whether it has its piece, if there are pieces.
    has_piece: bool,
}

/// What a store has under the name itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    /// What it should have.
    Right,
    /// Nothing, or nothing that can be read.
    Absent,
    /// Other bytes.
    Other,
}

/// What a listing of a store shows: lengths by name.
#[derive(Default)]
struct Listed {
    own: HashMap<ObjectName, u64>,
    pieces: HashMap<ObjectName, u64>,
}

impl StripedBackend {
    /// Removes an object of which too few stores know for it to be read, although none is missing: it
    /// was removed while these were away.
    fn drop_rest(&self, name: &ObjectName, pieces: &ObjectName) -> Result<(), BackendError> {
        let mut holders = Vec::new();
        for store in self.there() {
            match store.size(name) {
                Err(error) if error.is_not_found() => {}
                other => holders.push((store, other?).0),
            }
        }
        if self.missing() > 0 || holders.len() >= usize::from(self.shape.data) {
            return Ok(());
        }
        self.indexes().remove(name);
        holders.iter().try_for_each(|store| store.remove(name))?;
        self.remove_pieces(&holders, pieces)
    }

    /// The objects of which a store seems to lack something: their names alone, as all can be lacking. What has
    /// other bytes of the same length is found only if all are read.
    fn lacks(
        &self,
        store: &Store,
        number: usize,
        reads_all: bool,
    ) -> Result<Vec<ObjectName>, BackendError> {
        let lengths = |listed: Vec<ObjectInfo>| -> HashMap<ObjectName, u64> {
            listed.into_iter().map(|info| (info.name, info.bytes)).collect()
        };
        let mut lacks = Vec::new();
        let mut listed = Listed { pieces: lengths(store.list(PIECES)?), ..Listed::default() };
        for folder in FOLDERS {
            listed.own = lengths(store.list(folder)?);
            for ObjectInfo { name, .. } in self.list(folder)? {
                let lack = self.lack(store, number, name, &listed, reads_all)?;
                lacks.extend(lack.map(|lack| lack.name));
            }
        }
        Ok(lacks)
    }

    /// What a store lacks of an object now: since the listing it may have been removed, or a writer may have
    /// been on its way from store to store.
    fn lacks_still(
        &self,
        store: &Store,
        number: usize,
        name: ObjectName,
        reads_all: bool,
    ) -> Result<Option<Lack>, BackendError> {
        self.indexes().remove(&name);
        let found = match self.look(&name) {
            Err(error) if error.is_not_found() || error.is_withheld() => return Ok(None),
            other => other?,
        };
        let mut listed = Listed::default();
        if let Some(bytes) = size_in(store, &name)? {
            listed.own.insert(name.clone(), bytes);
        }
        let indexes = match &found {
            Found::Large(_) => self.indexes_of(&name).collect(),
            _ => Vec::new(),
        };
        for index in indexes {
            let piece = pieces_name(&name, &index);
            if let Some(bytes) = size_in(store, &piece)? {
                listed.pieces.insert(piece, bytes);
            }
        }
        self.lack(store, number, name, &listed, reads_all)
    }

    /// What a store lacks of an object, if anything.
    fn lack(
        &self,
        store: &Store,
        number: usize,
        name: ObjectName,
        listed: &Listed,
        reads_all: bool,
    ) -> Result<Option<Lack>, BackendError> {
        let mut found = match self.look(&name) {
            Err(error) if error.is_not_found() || error.is_withheld() => return Ok(None),
            other => other?,
        };
        // The one that was found may be what is damaged.
        if reads_all
            && let Found::Large(index) = &found
            && self.indexes_of(&name).any(|other| other != **index)
            && let Some(whole) = self.whole_index(&name)
        {
            found = Found::Large(whole);
        }
        let own = own_of(store, &name, &found, listed, reads_all)?;
        let has_piece = match &found {
            Found::Large(index) => {
                let piece = pieces_name(&name, index);
                listed.pieces.get(&piece) == Some(&index.piece_bytes())
                    && (!reads_all || is_right(store, &piece, index, number)?)
            }
            _ => true,
        };
        let lacks = own != Own::Right || !has_piece;
        Ok(lacks.then_some(Lack { name, found, own, has_piece }))
    }

    /// Makes again in a store what it lacks. Returns how many objects that were.
    fn fill(&self, store: &Store, number: usize) -> Result<u64, BackendError> {
        let mut made = 0;
        for name in self.lacks(store, number, true)? {
            let Some(lack) = self.lacks_still(store, number, name, true)? else { continue };
            let Lack { name, found, own, has_piece } = lack;
            if let Found::Large(index) = &found {
                let pieces = pieces_name(&name, index);
                let whole = match self.read_whole(&name, index) {
                    // What is left of one object does not keep the others from coming back.
                    Err(error) if error.is_not_found() || error.is_damage() => {
                        self.drop_rest(&name, &pieces)?;
                        continue;
                    }
                    Err(error) if error.is_withheld() => continue,
                    other => other?,
                };
                if !has_piece {
                    let (_, mut all) = cut(&whole, self.shape);
                    store.replace(&pieces, &all.swap_remove(number))?;
                    made += 1;
                }
            }
            let is_sure = match &found {
                Found::Large(_) => true,
                Found::Small(_, soundness) => {
                    self.judge.is_some() && *soundness == Soundness::Whole
                }
                Found::Long(..) => false,
            };
            let gets_it = match own {
                Own::Right => false,
                Own::Absent => true,
                // A copy is given up only for one that is known to be whole.
                Own::Other => is_sure,
            };
            if let (true, Some(kept)) = (gets_it, found.kept()) {
                store.replace(&name, &kept)?;
                made += 1;
            }
        }
        Ok(made)
    }
}

impl Stores for StripedBackend {
    /// Makes erased stores members again, and brings back what single stores have lost.
    fn mend(&self) -> Result<u64, BackendError> {
        let mut made = 0;
        let mut spare = self.spare.iter();
        for (number, store) in self.stores.iter().enumerate() {
            if let Some(store) = store {
                made += self.fill(store, number)?;
            } else if let Some(store) = spare.next() {
                let begun = ObjectName::new(PIECES, BEGUN);
                store.replace(&begun, &self.set)?;
                made += self.fill(store, number)?;
                let number = u8::try_from(number).expect("a shape has at most 32 stores");
                join(&**store, Member { set: self.set, shape: self.shape, number })?;
                store.remove(&begun)?;
            }
        }
        Ok(made)
    }

    fn lacking(&self, reads_all: bool) -> Result<u64, BackendError> {
        let mut lacking = 0;
        for (number, store) in self.stores.iter().enumerate() {
            let Some(store) = store else { continue };
            for name in self.lacks(store, number, reads_all)? {
                let lack = self.lacks_still(store, number, name, reads_all)?;
                lacking += u64::from(lack.is_some());
            }
        }
        Ok(lacking)
    }
}

/// What a store has under the name of an object.
fn own_of(
    store: &Store,
    name: &ObjectName,
    found: &Found,
    listed: &Listed,
    reads_all: bool,
) -> Result<Own, BackendError> {
    let Some(bytes) = listed.own.get(name) else { return Ok(Own::Absent) };
    let Some(kept) = found.kept() else { return Ok(Own::Right) };
    let has_length = *bytes == kept.len() as u64;
    if !reads_all {
        return Ok(if has_length { Own::Right } else { Own::Other });
    }
    match store.read(name, 0, kept.len() + 1) {
        Ok(own) if own == kept => Ok(Own::Right),
        Ok(_) => Ok(Own::Other),
        Err(error) if error.is_not_found() || error.is_damage() => Ok(Own::Absent),
        // That one store does not give it keeps no other from being mended.
        Err(error) if error.is_withheld() => Ok(if has_length { Own::Right } else { Own::Other }),
        Err(error) => Err(error),
    }
}

fn size_in(store: &Store, name: &ObjectName) -> Result<Option<u64>, BackendError> {
    match store.size(name) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_not_found() || error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the piece that a store has, which is as long as it should be, is the one that the index means. If the
/// store withholds it, its length counts.
fn is_right(
    store: &Store,
    piece: &ObjectName,
    index: &Index,
    number: usize,
) -> Result<bool, BackendError> {
    let length = usize::try_from(index.piece_bytes()).unwrap_or(usize::MAX);
    match store.read(piece, 0, length.saturating_add(1)) {
        Ok(bytes) => Ok(index.is_piece(number, &bytes)),
        Err(error) if error.is_not_found() || error.is_damage() => Ok(false),
        Err(error) if error.is_withheld() => Ok(true),
        Err(error) => Err(error),
    }
}
