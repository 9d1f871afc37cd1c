//! What a key slot holds once it is opened, and its bytes.
//!
//! ```text
//! full      0 | master secret (32) | naming secret (32)
//! put-only  1 | domain (16) | domain secret (32) | naming secret (32) | public key (32)
//!             | authority's public half (32) | name of the domain
//! ```

use std::ops::RangeInclusive;

use strongroom_base::keys::{RepositoryKeys, WriteKeys};
use strongroom_base::le::LeReader;
use strongroom_base::seal::{AuthorityPublicKey, PublicKey, TAG_BYTES};
use strongroom_base::{DomainId, DomainSecret, MasterSecret, NamingSecret};

use super::{Access, access_of};

/// A domain's name has at most this many bytes.
pub const DOMAIN_NAME_BYTES_MAX: usize = 255;

const FULL_BYTES: usize = 1 + 2 * 32;
const PUT_ONLY_BYTES: usize = 1 + DomainId::BYTES + 4 * 32;

/// Lengths that a sealed secret can have.
pub(super) const SEALED_BYTES: RangeInclusive<usize> =
    FULL_BYTES + TAG_BYTES..=PUT_ONLY_BYTES + DOMAIN_NAME_BYTES_MAX + TAG_BYTES;

/// What a slot holds, once it is opened.
#[derive(Clone)]
pub enum SlotSecret {
    /// All.
    Full {
        /// Opens everything that is sealed.
        master: MasterSecret,
        /// Names chunks.
        naming: NamingSecret,
    },
    /// Enough to store, for one domain.
    PutOnly(PutOnlySecret),
}

/// What a put-only slot holds.
#[derive(Clone)]
pub struct PutOnlySecret {
    /// The domain.
    pub domain: DomainId,
    /// Its name, from which its id was derived.
    pub name: String,
    secret: DomainSecret,
    naming: NamingSecret,
    public_key: PublicKey,
    authority: AuthorityPublicKey,
}

/// True for what a domain can be called. The owner's domain has no name. Names are shown like
/// hosts, and `host:path@date` and `domain/host` must stay readable.
pub fn is_domain_name(name: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace() && !"/:@".contains(c);
    (1..=DOMAIN_NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain)
}

impl SlotSecret {
    /// The repository's keys.
    pub fn keys(&self) -> RepositoryKeys {
        match self {
            Self::Full { master, naming } => master.keys(naming),
            Self::PutOnly(secret) => RepositoryKeys {
                write: WriteKeys {
                    naming: secret.naming.keys(),
                    domain: secret.secret.keys(secret.domain),
                    public_key: secret.public_key.clone(),
                    authority: secret.authority.clone(),
                },
                owner: None,
            },
        }
    }

    /// The secret of a put-only slot of the domain of this name. A put-only holder can give that
    /// of its own domain alone.
    pub fn put_only(&self, name: &str) -> Option<SlotSecret> {
        match self {
            Self::Full { .. } if !is_domain_name(name) => None,
            Self::Full { master, naming } => {
                let write = master.keys(naming).write;
                let domain = master.domain_id(name);
                Some(Self::PutOnly(PutOnlySecret {
                    domain,
                    name: name.to_owned(),
                    secret: master.domain_secret(domain),
                    naming: naming.clone(),
                    public_key: write.public_key.clone(),
                    authority: write.authority,
                }))
            }
            Self::PutOnly(secret) => (secret.name == name).then(|| Self::PutOnly(secret.clone())),
        }
    }

    /// The name of its domain; empty for the owner's.
    pub fn domain_name(&self) -> &str {
        match self {
            Self::Full { .. } => "",
            Self::PutOnly(secret) => &secret.name,
        }
    }

    /// The domain of a put-only slot.
    pub fn domain(&self) -> Option<DomainId> {
        match self {
            Self::Full { .. } => None,
            Self::PutOnly(secret) => Some(secret.domain),
        }
    }

    /// What it allows.
    pub fn access(&self) -> Access {
        match self {
            Self::Full { .. } => Access::Full,
            Self::PutOnly(_) => Access::PutOnly,
        }
    }

    /// Its bytes, before sealing.
    pub(super) fn pack(&self) -> Vec<u8> {
        // With room for all, and for the tag: a vector that grows leaves a part of the secret
        // behind.
        let mut bytes = Vec::with_capacity(*SEALED_BYTES.end());
        bytes.push(self.access() as u8);
        match self {
            Self::Full { master, naming } => {
                bytes.extend_from_slice(&master.0);
                bytes.extend_from_slice(&naming.0);
            }
            Self::PutOnly(secret) => {
                bytes.extend_from_slice(&secret.domain.0);
                bytes.extend_from_slice(&secret.secret.0);
                bytes.extend_from_slice(&secret.naming.0);
                bytes.extend_from_slice(&secret.public_key.0);
                bytes.extend_from_slice(&secret.authority.0);
                bytes.extend_from_slice(secret.name.as_bytes());
            }
        }
        bytes
    }

    /// The secret in opened bytes.
    pub(super) fn unpack(bytes: &[u8]) -> Option<SlotSecret> {
        let mut fields = LeReader::new(bytes);
        match access_of(fields.u8().ok()?)? {
            Access::Full => {
                let master = MasterSecret(fields.array().ok()?);
                let naming = NamingSecret(fields.array().ok()?);
                fields.finish().ok()?;
                Some(Self::Full { master, naming })
            }
            Access::PutOnly => {
                let domain = DomainId(fields.array().ok()?);
                let secret = DomainSecret(fields.array().ok()?);
                let naming = NamingSecret(fields.array().ok()?);
                let public_key = PublicKey(fields.array().ok()?);
                let authority = AuthorityPublicKey(fields.array().ok()?);
                let name = fields.take(fields.remaining()).ok()?;
                let name = std::str::from_utf8(name).ok()?.to_owned();
                let secret = PutOnlySecret { domain, name, secret, naming, public_key, authority };
                Some(Self::PutOnly(secret))
            }
        }
    }
}
