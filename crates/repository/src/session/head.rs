//! What a session's object says of its writer, to the machines of the writer's domain and to those
//! that can read: who is at work, and since when.
//!
//! ```text
//! domain (16) | AES-256-GCM( map )
//! ```
//!
//! The key is derived from the domain's session key and the session's name, so only machines of a
//! domain begin sessions in its name.

use minicbor::{Decoder, Encoder};
use strongroom_arena::Origin;
use strongroom_arena::envelope::format::ObjectKind;
use strongroom_arena::envelope::{self, Identity};
use strongroom_base::keys::derive_object_key;
use strongroom_base::seal::SealKey;
use strongroom_base::{DomainId, SnapshotId, Timestamp};
use strongroom_catalog::FormatError;
use strongroom_catalog::format::decode_map;

use crate::error::RepositoryError;
use crate::objects::{SESSIONS_FOLDER, read_small, session_name};
use crate::repository::Repository;

/// What the key of one session's object is derived as.
const CONTEXT: &str = "strongroom v0 session";

mod key {
    pub const STARTED: u64 = 0;
    pub const HOST: u64 = 1;
    pub const DOMAIN: u64 = 2;
}

/// What a writer says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionHead {
    /// When it began, for people: no decision is based on it.
    pub started: Timestamp,
    /// The machine.
    pub host: String,
    /// The name of its domain; empty for the owner's.
    pub domain: String,
}

/// A session that is open, or that a writer left when it died.
#[derive(Debug)]
pub struct ListedSession {
    /// Its name, which is that of the snapshot it will commit.
    pub id: SnapshotId,
    /// The domain that it says it is of; none if it cannot be read.
    pub domain: Option<DomainId>,
    /// What its writer says, or why that is not known: [`RepositoryError::PutOnly`] if it is of
    /// another domain than this key's, [`RepositoryError::Forged`] if its domain did not make it.
    pub head: Result<SessionHead, RepositoryError>,
}

impl SessionHead {
    /// Its bytes.
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut cbor = Encoder::new(&mut bytes);
        let mut encode = || -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
            cbor.map(2 + u64::from(!self.domain.is_empty()))?;
            cbor.u64(key::STARTED)?.i64(self.started.0)?;
            cbor.u64(key::HOST)?.str(&self.host)?;
            if !self.domain.is_empty() {
                cbor.u64(key::DOMAIN)?.str(&self.domain)?;
            }
            Ok(())
        };
        encode().expect("a vector takes all that is written to it");
        bytes
    }

    /// What is in `bytes`.
    pub fn unpack(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut head = Self::default();
        let mut cbor = Decoder::new(bytes);
        decode_map(&mut cbor, |cbor, number| {
            match number {
                key::STARTED => head.started = Timestamp(cbor.i64()?),
                key::HOST => head.host = cbor.str()?.to_owned(),
                key::DOMAIN => head.domain = cbor.str()?.to_owned(),
                _ => cbor.skip()?,
            }
            Ok(())
        })
        .map_err(|error| FormatError::damaged("session", error))?;
        if cbor.position() < bytes.len() {
            return Err(FormatError::damaged("session", "bytes are left over"));
        }
        Ok(head)
    }
}

/// The object of a session that begins now.
pub(super) fn seal_session(repository: &Repository, id: SnapshotId, host: &str) -> Vec<u8> {
    let domain = &repository.write_keys().domain;
    let head = SessionHead {
        started: repository.surroundings.clock.now(),
        host: host.to_owned(),
        domain: repository.secret.domain_name().to_owned(),
    };
    let mut sealed = head.pack();
    let place = place(repository, id, domain.id);
    seal_key(&domain.session_key, id).seal(0, &place, &mut sealed);
    // Which sequence it will have is known once the session has looked at what exists.
    let origin = Origin { session: id, sequence: 0 };
    let identity = Identity { kind: ObjectKind::Session, id: id.0, generation: 0, origin };
    envelope::seal_small(&[&domain.id.0[..], &sealed].concat(), identity)
}

/// The sessions that are open, and those whose writers died.
pub fn list_sessions(repository: &Repository) -> Result<Vec<ListedSession>, RepositoryError> {
    let mut sessions = Vec::new();
    for info in repository.backend().list(SESSIONS_FOLDER)? {
        let Ok(id) = info.name.file().parse::<SnapshotId>() else { continue };
        match read_small(repository.backend(), &info.name, ObjectKind::Session, Some(&id.0)) {
            // It ended between the listing and the reading.
            Err(RepositoryError::Backend(error)) if error.is_not_found() => {}
            Err(error) if !error.is_damage() && !error.is_withheld() => return Err(error),
            Err(error) => sessions.push(ListedSession { id, domain: None, head: Err(error) }),
            Ok(body) => sessions.push(open_session(repository, id, &body)),
        }
    }
    Ok(sessions)
}

fn open_session(repository: &Repository, id: SnapshotId, body: &[u8]) -> ListedSession {
    let Some((domain, sealed)) = body.split_first_chunk() else {
        return ListedSession { id, domain: None, head: Err(forged(id)) };
    };
    let domain = DomainId(*domain);
    ListedSession { id, domain: Some(domain), head: open_head(repository, id, domain, sealed) }
}

fn open_head(
    repository: &Repository,
    id: SnapshotId,
    domain: DomainId,
    sealed: &[u8],
) -> Result<SessionHead, RepositoryError> {
    let keys = repository.keys.domain(domain).ok_or(RepositoryError::PutOnly)?;
    let mut message = sealed.to_vec();
    let place = place(repository, id, domain);
    let opened = seal_key(&keys.session_key, id).open(0, &place, &mut message);
    let opened = opened.map_err(|_| forged(id))?;
    let wrong = |source| RepositoryError::Format { name: session_name(id), source };
    let head = SessionHead::unpack(opened).map_err(wrong)?;
    let owner = repository.keys.owner.as_ref();
    let is_named = owner.is_none_or(|owner| owner.domain_id(&head.domain) == domain);
    is_named.then_some(head).ok_or_else(|| forged(id))
}

fn forged(id: SnapshotId) -> RepositoryError {
    RepositoryError::Forged { name: session_name(id) }
}

fn seal_key(session_key: &[u8; 32], id: SnapshotId) -> SealKey {
    SealKey::new(&derive_object_key(CONTEXT, session_key, &id.0))
}

/// What an object is bound to: its name in this repository, and its domain.
fn place(repository: &Repository, id: SnapshotId, domain: DomainId) -> Vec<u8> {
    [&repository.config.id.0[..], &id.0, &domain.0].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_bytes_are_frozen_and_unknown_keys_are_skipped() {
        let head =
            SessionHead { started: Timestamp(-2), host: "h".to_owned(), domain: "web".to_owned() };
        let packed = head.pack();
        assert_eq!(packed, b"\xa3\x00\x21\x01\x61h\x02\x63web");
        assert_eq!(SessionHead::unpack(&packed), Ok(head.clone()));
        let newer = [b"\xa4", &packed[1..], b"\x03\x81\x07"].concat();
        assert_eq!(SessionHead::unpack(&newer), Ok(head));
        for length in 0..packed.len() {
            assert!(SessionHead::unpack(&packed[..length]).is_err(), "{length}");
        }
        assert!(SessionHead::unpack(&[&packed[..], b"\x00"].concat()).is_err());
    }
}
