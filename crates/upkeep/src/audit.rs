//! `audit`: whether a replica still has what the repository has, for few bytes. Needs no key.
//!
//! Names and lengths of all objects are compared by listings. What follows depends on the replica:
//!
//! - If its place computes proofs ([`strongroom_arena::envelope::proof`]), each object is challenged.
//!   The answer is compared with the hash of the object here, which only a place that has every byte
//!   can know; or, if only signatures are wanted, with the object's own table, which reads no data
//!   here; or, for an object that is not here, with itself: the signatures of the parity must be the
//!   parity of the signatures, and the body's hash what the header says.
//! - If not, small objects and a sample of the arenas are read, and compared with the hash and the
//!   signatures in the object here. If the sample has no arena, one is drawn at random: one who asks
//!   often enough has read them all. Of the others only the length is known, which is no proof.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use strongroom_arena::ARENAS_FOLDER;
use strongroom_arena::envelope::format::{HEADER_BYTES, Header, unpack_table};
use strongroom_arena::envelope::proof::{CHALLENGE_BYTES, Challenge, Form, Proof, ShardProof};
use strongroom_backend::{Backend, BackendError, ObjectInfo, ObjectName, Withheld};
use strongroom_base::entropy::random_array;
use strongroom_base::{Cancel, Entropy, Monitor, Problem, Progress, Severity, SizeLimits};
use strongroom_repository::objects::{
    COLLECTIONS_FOLDER, FORGOTTEN_FOLDER, REMARKS_FOLDER, is_as_named,
};
use strongroom_repository::{RepositoryError, arena_bytes_of};

use crate::flight::{Flight, each_in_flight};
use crate::health::fault::{Fault, look_whole};
use crate::replicate::{FOLDERS_COPIED, LISTED_ALONE, list, listed_of, refuse_another};
use crate::verify::{VerifyDepth, is_in_sample};

/// Bytes of a request and its answer besides what they are about: an estimate.
const REQUEST_BYTES: u64 = 64;

/// How closely a replica is audited.
#[derive(Debug, Clone, Copy)]
pub struct AuditOptions {
    /// Which arenas are read of a place that computes no proofs.
    pub read: VerifyDepth,
    /// Compare signatures with the tables here, and read no data here.
    pub signatures: bool,
}

/// What is wrong with an object of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditFault {
    /// Its length is another.
    Length {
        /// Here.
        here: u64,
        /// In the replica.
        there: u64,
    },
    /// It has other bytes: in these shards, as far as that is known.
    Differs {
        /// The numbers of shards.
        shards: Vec<usize>,
    },
    /// It has another wish, remark or collection under this number, and that is whole: both copies were used.
    Another,
    /// It is damaged in itself.
    Damaged {
        /// What is wrong.
        why: String,
    },
    /// The place did not answer the challenge.
    NoProof,
    /// The place lists it, and says that it does not exist.
    NotGiven,
}

impl AuditFault {
    /// What is wrong with an object that has other bytes there, in these shards.
    fn between(name: &ObjectName, there: &ShardProof, shards: Vec<usize>) -> Self {
        match is_numbered(name) && fault_within(name, there).is_none() {
            true => Self::Another,
            false => Self::Differs { shards },
        }
    }

    /// Whether something is damaged, and not only another object.
    pub fn is_damage(&self) -> bool {
        *self != Self::Another
    }
}

/// Whether an object's name says what it is about and a number: each of two copies makes its own.
fn is_numbered(name: &ObjectName) -> bool {
    [FORGOTTEN_FOLDER, REMARKS_FOLDER, COLLECTIONS_FOLDER].contains(&name.folder())
}

impl std::fmt::Display for AuditFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length { here, there } => {
                write!(f, "the replica has {there} bytes of it, instead of {here}")
            }
            Self::Differs { shards } => match shards.len() {
                0 => write!(f, "the replica has other bytes"),
                1 => write!(f, "the replica has other bytes in shard {}", shards[0]),
                count => write!(f, "the replica has other bytes in {count} of its shards"),
            },
            Self::Another => write!(f, "the replica has another of this number, which is whole"),
            Self::Damaged { why } => write!(f, "the replica's is damaged: {why}"),
            Self::NoProof => write!(f, "the replica's place gave no proof of it"),
            Self::NotGiven => write!(f, "{LISTED_ALONE}"),
        }
    }
}

/// What an audit found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditOutcome {
    /// Objects that both have: their lengths were compared.
    pub objects: u64,
    /// Their bytes in the replica.
    pub bytes: u64,
    /// Objects that were proved from what is here.
    pub proved: u64,
    /// Their bytes.
    pub proved_bytes: u64,
    /// Objects that were proved by their own algebra, because they are not here, or are damaged here.
    pub by_algebra: u64,
    /// Objects of the replica that were read, for want of proofs.
    pub read: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Objects of the replica that were neither proved nor read: only their lengths are known.
    pub unread: u64,
    /// Their bytes.
    pub unread_bytes: u64,
    /// Objects of the replica that wait in an archive there, or that this key may not read there.
    /// Nothing is known of their bytes.
    pub withheld: Vec<(ObjectName, Withheld)>,
    /// Bytes sent to and received from the replica: an estimate.
    pub wire_bytes: u64,
    /// What is wrong in the replica.
    pub faults: Vec<(ObjectName, AuditFault)>,
    /// Objects that the replica lacks.
    pub missing: Vec<ObjectName>,
    /// Objects that are damaged here.
    pub damaged_here: Vec<ObjectName>,
    /// Objects that only the replica has.
    pub only_there: u64,
}

impl AuditOutcome {
    /// Whether every byte of the replica was proved or read.
    pub fn is_complete(&self) -> bool {
        self.unread == 0 && self.withheld.is_empty()
    }
}

/// Audits a replica.
pub fn audit_replica(
    backend: &dyn Backend,
    replica: &dyn Backend,
    options: AuditOptions,
    entropy: &dyn Entropy,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<AuditOutcome, RepositoryError> {
    refuse_another(backend, replica)?;
    let arena_bytes = arena_bytes_of(backend);
    let wire = AtomicU64::new(0);
    let mut audit = Audit { backend, replica, options, entropy, arena_bytes, wire, drawn: None };
    let mut outcome = AuditOutcome::default();
    let (mut asked, mut gone) = (Vec::new(), Vec::new());
    let mut here = BTreeMap::new();
    for folder in FOLDERS_COPIED {
        let listed = list(replica, folder)?;
        let names: usize = listed.iter().map(|info| info.name.as_str().len() + 8).sum();
        audit.count(names as u64);
        let there: BTreeMap<_, _> =
            listed.into_iter().map(|info| (info.name, info.bytes)).collect();
        let own: BTreeMap<_, _> =
            list(backend, folder)?.into_iter().map(|info| (info.name, info.bytes)).collect();
        outcome.missing.extend(own.keys().filter(|name| !there.contains_key(name)).cloned());
        for (name, bytes) in there {
            match own.get(&name) {
                None => outcome.only_there += 1,
                Some(_) => {
                    outcome.objects += 1;
                    outcome.bytes += bytes;
                }
            }
            asked.push(ObjectInfo { name, bytes });
        }
        here.extend(own);
    }
    let mut progress = Progress {
        files_total: Some(asked.len() as u64),
        bytes_total: Some(asked.iter().map(|info| info.bytes).sum()),
        ..Progress::default()
    };
    audit.draw(&asked);
    let flight = Flight::between(backend, replica, &SizeLimits::DEFAULT);
    let work = |info: &ObjectInfo| audit.ask(info, here.get(&info.name).copied());
    let mut take = |info: &ObjectInfo, found: Found| {
        monitor.working_on(info.name.as_str().as_ref());
        match found.how {
            How::Proved => {
                outcome.proved += 1;
                outcome.proved_bytes += info.bytes;
            }
            How::Algebra => outcome.by_algebra += 1,
            How::Read => {
                outcome.read += 1;
                outcome.read_bytes += info.bytes;
            }
            How::Length => {
                outcome.unread += 1;
                outcome.unread_bytes += info.bytes;
            }
            How::Withheld(why) => outcome.withheld.push((info.name.clone(), why)),
            How::Gone => gone.push(info.name.clone()),
        }
        let path = Some(info.name.as_str().as_ref());
        if let Some(why) = found.damaged_here {
            let message = format!("damaged here: {why}");
            monitor.problem(Problem { severity: Severity::Damage, path, message: &message });
            outcome.damaged_here.push(info.name.clone());
        }
        if let Some(fault) = found.fault {
            let message = fault.to_string();
            let severity = if fault.is_damage() { Severity::Damage } else { Severity::Warning };
            monitor.problem(Problem { severity, path, message: &message });
            outcome.faults.push((info.name.clone(), fault));
        }
        progress.files += 1;
        progress.bytes += info.bytes;
        monitor.progress(&progress);
    };
    each_in_flight(&asked, flight, cancel, &work, &mut take)?;
    // A collector may have removed it meanwhile, there or here; a place that lists it again does not have it.
    let still_there = listed_of(replica, &gone)?;
    let still_here = listed_of(backend, &gone)?;
    for name in gone {
        if still_there.contains(&name) {
            let path = Some(name.as_str().as_ref());
            monitor.problem(Problem { severity: Severity::Damage, path, message: LISTED_ALONE });
            outcome.faults.push((name, AuditFault::NotGiven));
        } else if still_here.contains(&name) {
            outcome.missing.push(name);
        }
    }
    outcome.faults.sort_by(|one, other| one.0.cmp(&other.0));
    outcome.withheld.sort();
    outcome.wire_bytes = audit.wire.into_inner();
    Ok(outcome)
}

/// How an object was audited.
enum How {
    /// Only by its length.
    Length,
    Proved,
    Algebra,
    Read,
    /// Not at all: the place withholds it.
    Withheld(Withheld),
    /// Removed since it was listed.
    Gone,
}

struct Found {
    how: How,
    fault: Option<AuditFault>,
    damaged_here: Option<String>,
}

impl Found {
    fn new(how: How, fault: Option<AuditFault>) -> Self {
        Self { how, fault, damaged_here: None }
    }
}

struct Audit<'a> {
    backend: &'a dyn Backend,
    replica: &'a dyn Backend,
    options: AuditOptions,
    entropy: &'a dyn Entropy,
    arena_bytes: u32,
    wire: AtomicU64,
    /// An arena that is read although it is not in the sample.
    drawn: Option<ObjectName>,
}

impl Audit<'_> {
    /// Draws an arena to be read, if the sample has none and the place computes no proofs.
    fn draw(&mut self, asked: &[ObjectInfo]) {
        let arenas = asked.iter().map(|info| &info.name);
        let arenas: Vec<_> = arenas.filter(|name| name.folder() == ARENAS_FOLDER).collect();
        let has_sample = arenas.iter().any(|name| is_in_sample(self.options.read, name));
        if self.replica.promises().proves || has_sample {
            return;
        }
        let drawn = u64::from_le_bytes(random_array(self.entropy));
        let place = drawn.checked_rem(arenas.len() as u64).unwrap_or(0) as usize;
        self.drawn = arenas.get(place).map(|name| (*name).clone());
    }

    fn count(&self, bytes: u64) {
        self.wire.fetch_add(REQUEST_BYTES + bytes, Ordering::Relaxed);
    }

    /// Audits one object of the replica.
    fn ask(&self, info: &ObjectInfo, here: Option<u64>) -> Result<Found, RepositoryError> {
        match self.ask_listed(info, here) {
            Err(RepositoryError::Backend(error)) if error.is_not_found() => {
                Ok(Found::new(How::Gone, None))
            }
            Err(RepositoryError::Backend(error)) => match error.withheld() {
                Some(why) => Ok(Found::new(How::Withheld(why), None)),
                None => Err(error.into()),
            },
            other => other,
        }
    }

    fn ask_listed(&self, info: &ObjectInfo, here: Option<u64>) -> Result<Found, RepositoryError> {
        let name = &info.name;
        let proves = self.replica.promises().proves;
        let is_read = name.folder() != ARENAS_FOLDER
            || is_in_sample(self.options.read, name)
            || self.drawn.as_ref() == Some(name);
        let Some(own_bytes) = here else {
            return match proves {
                true => self.by_algebra(name),
                false if is_read => self.by_reading(name, None),
                false => Ok(Found::new(How::Length, None)),
            };
        };
        if own_bytes != info.bytes {
            return self.other_length(name, own_bytes, info.bytes);
        }
        if !proves {
            return match is_read {
                true => self.by_reading(name, self.own_table(name)?),
                false => Ok(Found::new(How::Length, None)),
            };
        }
        if self.options.signatures {
            return match self.own_table(name)? {
                Some(own) => self.by_signatures(name, &own),
                None => self.by_algebra(name),
            };
        }
        let (object, fault) = match look_whole(self.backend, name, self.arena_bytes) {
            // It is known by nothing here.
            Err(error) if error.is_withheld() => return self.by_algebra(name),
            other => other?,
        };
        if let Some(fault) = fault.filter(|fault| *fault != Fault::Unknown) {
            let found = self.by_algebra(name)?;
            return Ok(Found { damaged_here: Some(fault.to_string()), ..found });
        }
        let challenge = self.challenge(Form::Hash);
        let fault = match self.challenged(name, challenge)? {
            Some(proof) if proof == Proof::of(&object, challenge) => None,
            Some(_) => {
                // Which shards, for one more question.
                let parts = self.challenged(name, self.challenge(Form::Signatures))?;
                let parts = parts.and_then(|proof| proof.shards);
                let own = Proof::of(&object, self.challenge(Form::Signatures)).shards;
                let fault = parts.zip(own).map(|(there, own)| {
                    AuditFault::between(name, &there, there.differing(&own.signatures))
                });
                Some(fault.unwrap_or(AuditFault::Differs { shards: Vec::new() }))
            }
            None => Some(AuditFault::NoProof),
        };
        Ok(Found::new(How::Proved, fault))
    }

    /// One of the two is damaged: the one here, if it is not as long as it says.
    fn other_length(
        &self,
        name: &ObjectName,
        here: u64,
        there: u64,
    ) -> Result<Found, RepositoryError> {
        let own = match look_whole(self.backend, name, self.arena_bytes) {
            Err(error) if error.is_withheld() => None,
            other => other?.1,
        };
        let own = own.filter(|fault| *fault != Fault::Unknown);
        let alone = || match self.replica.promises().proves {
            true => self.by_algebra(name),
            false => self.by_reading(name, None),
        };
        let mut found = match &own {
            None if is_numbered(name) => {
                let found = alone()?;
                Found { fault: found.fault.or(Some(AuditFault::Another)), ..found }
            }
            None => Found::new(How::Length, Some(AuditFault::Length { here, there })),
            Some(_) => alone()?,
        };
        found.damaged_here = own.map(|fault| fault.to_string());
        Ok(found)
    }

    fn challenge(&self, form: Form) -> Challenge {
        Challenge { form, nonce: random_array(self.entropy) }
    }

    fn challenged(
        &self,
        name: &ObjectName,
        challenge: Challenge,
    ) -> Result<Option<Proof>, BackendError> {
        let answer = self.replica.prove(name, &challenge.pack())?;
        self.count((CHALLENGE_BYTES + name.as_str().len() + answer.len()) as u64);
        Ok(Proof::unpack(&answer, challenge.form))
    }

    /// Header and signatures of an object here, without its data; none if they are damaged.
    fn own_table(&self, name: &ObjectName) -> Result<Option<OwnTable>, RepositoryError> {
        let read =
            |offset: usize, length: usize| match self.backend.read(name, offset as u64, length) {
                Err(error) if error.is_damage() || error.is_not_found() || error.is_withheld() => {
                    Ok(Vec::new())
                }
                other => other,
            };
        let header = Header::unpack(&read(0, HEADER_BYTES)?).ok();
        let Some(header) = header.filter(|header| is_as_named(name, header)) else {
            return Ok(None);
        };
        let layout = header.layout();
        for at in [layout.first_table, layout.second_table] {
            if let Some(signatures) = unpack_table(&read(at, layout.table_bytes)?)
                && signatures.len() == header.shards()
            {
                return Ok(Some(OwnTable { header, signatures }));
            }
        }
        Ok(None)
    }

    /// By the table here.
    fn by_signatures(&self, name: &ObjectName, own: &OwnTable) -> Result<Found, RepositoryError> {
        let proof = self.challenged(name, self.challenge(Form::Signatures))?;
        let fault = match proof.map(|proof| proof.shards) {
            None => Some(AuditFault::NoProof),
            Some(None) => Some(no_header()),
            Some(Some(there)) => own.fault_of(name, &there).or_else(|| fault_within(name, &there)),
        };
        Ok(Found::new(How::Proved, fault))
    }

    /// By what the object says of itself.
    fn by_algebra(&self, name: &ObjectName) -> Result<Found, RepositoryError> {
        let proof = self.challenged(name, self.challenge(Form::Signatures))?;
        let fault = match proof.map(|proof| proof.shards) {
            None => Some(AuditFault::NoProof),
            Some(None) => Some(no_header()),
            Some(Some(there)) => fault_within(name, &there),
        };
        Ok(Found::new(How::Algebra, fault))
    }

    /// By reading it, and comparing it with itself and with what is here.
    fn by_reading(
        &self,
        name: &ObjectName,
        own: Option<OwnTable>,
    ) -> Result<Found, RepositoryError> {
        let (object, fault) = look_whole(self.replica, name, self.arena_bytes)?;
        self.count((name.as_str().len() + object.len()) as u64);
        let fault = match fault.filter(|fault| *fault != Fault::Unknown) {
            Some(fault) => Some(AuditFault::Damaged { why: fault.to_string() }),
            None => {
                let proof = Proof::of(&object, self.challenge(Form::Signatures)).shards;
                own.zip(proof).and_then(|(own, there)| own.fault_of(name, &there))
            }
        };
        Ok(Found::new(How::Read, fault))
    }
}

fn no_header() -> AuditFault {
    AuditFault::Damaged { why: "it has no header that can be read".to_owned() }
}

/// What is wrong with an object in itself: its name, its hash, its parity.
fn fault_within(name: &ObjectName, there: &ShardProof) -> Option<AuditFault> {
    let damaged = |why: &str| Some(AuditFault::Damaged { why: why.to_owned() });
    if !there.header.is_unknown() && !is_as_named(name, &there.header) {
        return damaged("another object is in its place");
    }
    match (there.is_body_right(), there.is_parity_right()) {
        (true, true) => None,
        (true, false) => damaged("its parity is not that of its data"),
        (false, _) => damaged("its data is not what was stored"),
    }
}

/// What is kept here of an object's proofs.
struct OwnTable {
    header: Header,
    signatures: Vec<strongroom_arena::envelope::proof::ShardSignature>,
}

impl OwnTable {
    fn fault_of(&self, name: &ObjectName, there: &ShardProof) -> Option<AuditFault> {
        let shards = there.differing(&self.signatures);
        let is_equal = there.header == self.header && shards.is_empty();
        (!is_equal).then(|| AuditFault::between(name, there, shards))
    }
}
