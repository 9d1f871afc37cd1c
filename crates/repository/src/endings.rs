//! Domains that have ended: which of their snapshots count. What comes later, or is not among these,
//! is not the machine's, also if it has its key.
//!
//! ```text
//! ended/D.K         what the owner says of the end of the domain D; K depends on what is said
//! ended/D.K.copy    the same again
//! ```
//!
//! Each names those that were known when it was said, and replaces them. Those that none replaces count
//! together: two copies of a repository may each have said something. Objects are only added. The
//! document: `docs/format/ended.md`.

use std::collections::{BTreeMap, BTreeSet};

use minicbor::{Decoder, Encoder};
use strongroom_backend::ObjectName;
use strongroom_base::{DomainId, SnapshotId, Timestamp};
use strongroom_catalog::format::{decode_array, decode_map};
use strongroom_catalog::{FormatError, Snapshot};

use crate::error::RepositoryError;
use crate::folders::{Shown, WithheldFolder, show};
use crate::names::{ENDED_FOLDER, ending_name, ending_of};
use crate::objects::copy_of;
use crate::repository::Repository;
use crate::signed;

mod key {
    pub const TIME: u64 = 0;
    pub const DOMAIN: u64 = 1;
    pub const COUNTED: u64 = 2;
    pub const REPLACES: u64 = 3;
}

/// What the owner says of the end of a domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ending {
    /// When it was said.
    pub time: Timestamp,
    /// The name of the domain.
    pub domain: String,
    /// The snapshots of the domain that count.
    pub counted: BTreeSet<SnapshotId>,
    /// The numbers of what was said before, and does not count any more.
    pub replaces: BTreeSet<u32>,
}

impl Ending {
    /// Its bytes.
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut cbor = Encoder::new(&mut bytes);
        let mut encode = || -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
            cbor.map(4)?.u64(key::TIME)?.i64(self.time.0)?;
            cbor.u64(key::DOMAIN)?.str(&self.domain)?;
            cbor.u64(key::COUNTED)?.array(self.counted.len() as u64)?;
            for snapshot in &self.counted {
                cbor.bytes(&snapshot.0)?;
            }
            cbor.u64(key::REPLACES)?.array(self.replaces.len() as u64)?;
            for number in &self.replaces {
                cbor.u32(*number)?;
            }
            Ok(())
        };
        encode().expect("a vector takes all that is written to it");
        bytes
    }

    /// What is in `bytes`.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut ending = Self::default();
        let mut has_all = [false; 4];
        let mut cbor = Decoder::new(bytes);
        decode_map(&mut cbor, |cbor, number| {
            match number {
                key::TIME => ending.time = Timestamp(cbor.i64()?),
                key::DOMAIN => ending.domain = cbor.str()?.to_owned(),
                key::COUNTED => {
                    let id = |cbor: &mut Decoder<'_>| {
                        let wrong = |_| minicbor::decode::Error::message("a name has 16 bytes");
                        Ok(SnapshotId(cbor.bytes()?.try_into().map_err(wrong)?))
                    };
                    ending.counted.extend(decode_array(cbor, id)?);
                }
                key::REPLACES => {
                    ending.replaces.extend(decode_array(cbor, |cbor| cbor.u32())?);
                }
                _ => cbor.skip()?,
            }
            if let Some(has) = has_all.get_mut(usize::try_from(number).unwrap_or(usize::MAX)) {
                *has = true;
            }
            Ok(())
        })
        .map_err(|error| FormatError::damaged("end of a domain", error))?;
        match cbor.position() == bytes.len() && has_all == [true; 4] {
            true => Ok(ending),
            false => Err(FormatError::damaged("end of a domain", "a field or its end is missing")),
        }
    }
}

/// What is said of one domain, by number.
#[derive(Debug, Clone, Default)]
struct Said(BTreeMap<u32, Ending>);

impl Said {
    /// Whether one was read, or replaced by one that was.
    fn know(&self, number: u32) -> bool {
        self.0.contains_key(&number) || self.replaced().any(|replaced| replaced == number)
    }

    fn replaced(&self) -> impl Iterator<Item = u32> {
        self.0.values().flat_map(|ending| ending.replaces.iter().copied())
    }

    /// Those that no other replaces.
    fn last(&self) -> BTreeMap<u32, &Ending> {
        let replaced: BTreeSet<u32> = self.replaced().collect();
        let last = self.0.iter().filter(|(number, _)| !replaced.contains(number));
        last.map(|(number, ending)| (*number, ending)).collect()
    }

    /// Those that no other replaces, as one: it counts what any of them counts.
    fn united(&self) -> Option<Ending> {
        let last = self.last();
        let mut united = (*last.values().next()?).clone();
        for ending in last.into_values() {
            united.time = united.time.max(ending.time);
            united.counted.extend(&ending.counted);
        }
        united.replaces = self.0.keys().copied().chain(self.replaced()).collect();
        Some(united)
    }
}

/// All domains that have ended, as the owner reads them.
#[derive(Debug, Clone, Default)]
pub struct Endings {
    /// By the name of the domain, what counts.
    of: BTreeMap<String, Ending>,
    said: BTreeMap<DomainId, Said>,
    /// The folder may be withheld, or what is said in it of a domain.
    withheld: Option<WithheldFolder>,
}

impl Endings {
    /// Reads them. What the owner did not make does not count, and what cannot be read ends no verb:
    /// `verify` names it. A key that can only store reads none.
    pub fn read(repository: &Repository) -> Result<Self, RepositoryError> {
        let Some(owner) = &repository.keys.owner else { return Ok(Self::default()) };
        let shown = show(repository.backend(), ENDED_FOLDER)?;
        let mut endings = Self { withheld: shown.withheld.clone(), ..Self::default() };
        for (domain, numbers) in numbers_in(shown) {
            let mut withheld = None;
            let mut said = Said::default();
            for number in numbers {
                let ending = read_one(repository, ending_name(domain, number), &mut withheld);
                if let Some(ending) = ending.filter(|it| owner.domain_id(&it.domain) == domain) {
                    said.0.insert(number, ending);
                }
            }
            // It may say that what is here does not count, or that it does.
            endings.withheld = endings.withheld.or(withheld);
            if let Some(united) = said.united() {
                endings.of.insert(united.domain.clone(), united);
            }
            endings.said.insert(domain, said);
        }
        Ok(endings)
    }

    /// That not all of them are known: a snapshot may seem to count that does not.
    pub fn withheld(&self) -> Option<&WithheldFolder> {
        self.withheld.as_ref()
    }

    /// The end of a domain, if it has ended.
    pub fn of(&self, domain: &str) -> Option<&Ending> {
        self.of.get(domain)
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = &Ending> {
        self.of.values()
    }

    /// The domain and number of each ending that none replaces.
    pub fn last(&self) -> impl Iterator<Item = (DomainId, u32)> {
        let of_domain = |(domain, said): (&DomainId, &Said)| {
            let domain = *domain;
            said.last().into_keys().map(move |number| (domain, number)).collect::<Vec<_>>()
        };
        self.said.iter().flat_map(of_domain)
    }

    /// Whether an ending was read, or replaced by one that was.
    pub fn know(&self, domain: DomainId, number: u32) -> bool {
        self.said.get(&domain).is_some_and(|said| said.know(number))
    }

    /// Whether a snapshot does not count, because its domain has ended without it.
    pub fn is_late(&self, snapshot: &Snapshot) -> bool {
        let ending = self.of(&snapshot.domain);
        ending.is_some_and(|ending| !ending.counted.contains(&snapshot.id))
    }
}

/// The numbers of what is said of each domain.
fn numbers_in(shown: Shown) -> BTreeMap<DomainId, BTreeSet<u32>> {
    let mut numbers: BTreeMap<DomainId, BTreeSet<u32>> = BTreeMap::new();
    for info in shown.objects {
        if let Some((domain, number)) = ending_of(info.name.file()) {
            numbers.entry(domain).or_default().insert(number);
        }
    }
    numbers
}

/// From the object or its copy; if it is neither, whether one of them is withheld.
fn read_one(
    repository: &Repository,
    name: ObjectName,
    withheld: &mut Option<WithheldFolder>,
) -> Option<Ending> {
    let mut refused = None;
    for at in [name.clone(), copy_of(&name)] {
        match signed::read_private_at(repository, &at, &name) {
            Ok(content) => {
                if let Ok(ending) = Ending::unpack(&content) {
                    return Some(ending);
                }
            }
            Err(error) => {
                refused = refused.or(WithheldFolder::of_object(ENDED_FOLDER, error));
            }
        }
    }
    *withheld = withheld.take().or(refused);
    None
}

/// Says of a domain that it has ended, and which of its snapshots count. What was said of it before
/// does not count any more; nor do the endings with these numbers, which were lost.
///
/// # Errors
///
/// Only the owner may. The owner's own domain does not end.
pub fn end_domain(
    repository: &Repository,
    domain: &str,
    counted: BTreeSet<SnapshotId>,
    lost: BTreeSet<u32>,
) -> Result<Ending, RepositoryError> {
    let owner = repository.keys.owner.as_ref().ok_or(RepositoryError::PutOnly)?;
    if domain.is_empty() {
        return Err(RepositoryError::DomainName { name: domain.to_owned() });
    }
    let id = owner.domain_id(domain);
    let time = repository.surroundings.clock.now();
    let mut said = Endings::read(repository)?;
    // What it would replace is not known.
    if let Some(withheld) = said.withheld() {
        return Err(withheld.error());
    }
    let known = said.of.remove(domain).map(|known| known.replaces);
    let replaces = known.into_iter().flatten().chain(lost).collect();
    let ending = Ending { time, domain: domain.to_owned(), counted, replaces };
    let content = ending.pack();
    let mut number = number_of(&content);
    loop {
        let name = ending_name(id, number);
        let object = signed::seal_private(repository, &name, &content)?;
        if signed::put(repository, &name, &object)? {
            // If it is taken, someone has planted it; `verify` names it, and `repair` writes it again.
            signed::put(repository, &copy_of(&name), &object)?;
            return Ok(ending);
        }
        number = number.wrapping_add(1).max(1);
    }
}

/// The number of an object with this content: two copies of a repository, in each of which something
/// is said, do not give one name to both.
fn number_of(content: &[u8]) -> u32 {
    let hash = blake3::hash(content);
    let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash is longer");
    u32::from_le_bytes(*first).max(1)
}

/// Whether the owner has said that the domain of this key has ended. What cannot be read says nothing.
pub(crate) fn own_has_ended(repository: &Repository) -> Result<bool, RepositoryError> {
    let own = repository.write_keys().domain.id;
    let shown = show(repository.backend(), ENDED_FOLDER)?;
    let numbers = numbers_in(shown).remove(&own).unwrap_or_default();
    Ok(numbers.iter().any(|number| {
        let name = ending_name(own, *number);
        let of = |at| signed::read_at(repository, &at, &name).is_ok();
        of(name.clone()) || of(copy_of(&name))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending() -> Ending {
        let counted = [SnapshotId([2; 16]), SnapshotId([1; 16])].into();
        let replaces = [7, 300].into();
        Ending { time: Timestamp(-7), domain: "laptop".to_owned(), counted, replaces }
    }

    #[test]
    fn the_end_of_a_domain_comes_back_whole_or_not_at_all() {
        for ending in [ending(), Ending::default()] {
            let bytes = ending.pack();
            assert_eq!(Ending::unpack(&bytes).unwrap(), ending);
            for length in 0..bytes.len() {
                assert!(Ending::unpack(&bytes[..length]).is_err(), "{length}");
            }
            assert!(Ending::unpack(&[&bytes[..], &[0]].concat()).is_err());
        }
        assert!(Ending::unpack(&[0xa1, 0x00, 0x00]).is_err(), "three fields are missing");
    }

    /// Frozen bytes.
    #[test]
    fn the_end_of_a_domain_that_was_made_is_read() {
        let packed: String = ending().pack().iter().map(|byte| format!("{byte:02x}")).collect();
        let ids = format!("50{}50{}", "01".repeat(16), "02".repeat(16));
        assert_eq!(packed, format!("a400260166{}0282{ids}03820719012c", "6c6170746f70"));
    }

    #[test]
    fn endings_that_none_replaces_count_together() {
        let ending = |byte, replaces: &[u32]| Ending {
            time: Timestamp(i64::from(byte)),
            domain: "laptop".to_owned(),
            counted: [SnapshotId([byte; 16])].into(),
            replaces: replaces.iter().copied().collect(),
        };
        let united = |endings: &[(u32, Ending)]| Said(endings.iter().cloned().collect()).united();
        let counted = |endings: &[(u32, Ending)]| -> Vec<u8> {
            let united = united(endings).unwrap();
            united.counted.iter().map(|id| id.0[0]).collect()
        };
        assert_eq!(united(&[]), None);
        let (first, second) = ((70, ending(1, &[])), (5, ending(2, &[70])));
        assert_eq!(counted(&[first.clone(), second.clone()]), [2], "the second replaces the first");
        // Said in another copy, which knew the first alone.
        let beside = (9, ending(3, &[70]));
        let all = [first, second, beside];
        assert_eq!(counted(&all), [2, 3]);
        let united = united(&all).unwrap();
        assert_eq!((united.time, united.replaces), (Timestamp(3), [5, 9, 70].into()));
        let said = Said([(6, ending(4, &[5, 9, 70]))].into());
        assert!(said.know(6) && said.know(70) && !said.know(71));
    }

    #[test]
    fn only_what_does_not_count_is_late() {
        let of = |domain: &str, byte| Snapshot {
            domain: domain.to_owned(),
            ..Snapshot::empty(SnapshotId([byte; 16]))
        };
        let mut endings = Endings::default();
        assert!(!endings.is_late(&of("laptop", 9)), "it has not ended");
        endings.of.insert("laptop".to_owned(), ending());
        for (snapshot, is_late) in [
            (of("laptop", 1), false),
            (of("laptop", 9), true),
            (of("server", 9), false),
            (of("", 9), false),
        ] {
            assert_eq!(endings.is_late(&snapshot), is_late, "{snapshot:?}");
        }
    }
}
