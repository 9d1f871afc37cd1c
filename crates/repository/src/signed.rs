//! Small objects that only the owner makes and every holder of a key reads: what the owner decides
//! about the repository.
//!
//! ```text
//! salt (16) | AES-256-GCM( signature (64) | content )
//! ```
//!
//! The signature is of the authority key, over the object's place and the content. The key of one
//! object is derived from the voucher key, which every holder has, from the place, and from the
//! salt: two programs may make different objects for one name, and only one of them is kept. If
//! only the owner may read the content, it is sealed to the public key, too.

use strongroom_arena::Origin;
use strongroom_arena::envelope::format::ObjectKind;
use strongroom_arena::envelope::{self, EnvelopeError, Identity};
use strongroom_backend::{BackendError, ObjectName};
use strongroom_base::entropy::random_array;
use strongroom_base::keys::derive_object_key;
use strongroom_base::seal::{SIGNATURE_BYTES, SealKey};

use crate::error::RepositoryError;
use crate::objects::{expected, read_small};
use crate::repository::Repository;

const SALT_BYTES: usize = 16;

/// What the key of an object is derived as, and what its signature is made as.
const CONTEXT: &str = "strongroom v0 signed object";

/// What content that only the owner reads is sealed as.
const PRIVATE_INFO: &str = "strongroom v0 private content";

/// Creates an object. Returns false if its name is taken.
pub(crate) fn create(
    repository: &Repository,
    name: &ObjectName,
    content: &[u8],
) -> Result<bool, RepositoryError> {
    put(repository, name, &seal(repository, name, content)?)
}

/// An object for this name.
pub(crate) fn seal(
    repository: &Repository,
    name: &ObjectName,
    content: &[u8],
) -> Result<Vec<u8>, RepositoryError> {
    repository.check_mode()?;
    let owner = repository.keys.owner.as_ref().ok_or(RepositoryError::PutOnly)?;
    let place = place(repository, name);
    let mut sealed = owner.authority.sign(CONTEXT, &[&place[..], content].concat()).to_vec();
    sealed.extend_from_slice(content);
    let salt: [u8; SALT_BYTES] = random_array(&*repository.surroundings.entropy);
    key(repository, &place, &salt).seal(0, &place, &mut sealed);
    let (kind, id, generation) = identity(name);
    let identity = Identity { kind, id, generation, origin: Origin::NONE };
    Ok(envelope::seal_small(&[&salt[..], &sealed].concat(), identity))
}

/// Stores an object, or its copy, under its name. Returns false if that is taken.
pub(crate) fn put(
    repository: &Repository,
    at: &ObjectName,
    object: &[u8],
) -> Result<bool, RepositoryError> {
    match repository.backend().create(at, object) {
        Ok(()) => Ok(true),
        Err(BackendError::AlreadyExists { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The content of an object.
///
/// # Errors
///
/// [`RepositoryError::Forged`] if the owner did not make it; and errors of the backend, also if it
/// does not exist.
pub(crate) fn read(repository: &Repository, name: &ObjectName) -> Result<Vec<u8>, RepositoryError> {
    read_at(repository, name, name)
}

/// The content of the object of this name, or of its copy: whichever is at `at`.
pub(crate) fn read_at(
    repository: &Repository,
    at: &ObjectName,
    name: &ObjectName,
) -> Result<Vec<u8>, RepositoryError> {
    let (kind, id, _) = identity(name);
    let forged = || RepositoryError::Forged { name: at.clone() };
    match read_small(repository.backend(), at, kind, Some(&id)) {
        Ok(body) => open(repository, name, body).ok_or_else(forged),
        // Whole, and not what it should be: nothing that the owner made becomes that by damage.
        Err(RepositoryError::Object { source: EnvelopeError::Swapped { .. }, .. }) => Err(forged()),
        Err(error) => Err(error),
    }
}

/// Creates an object that only the owner reads. Returns false if its name is taken.
pub(crate) fn create_private(
    repository: &Repository,
    name: &ObjectName,
    content: &[u8],
) -> Result<bool, RepositoryError> {
    put(repository, name, &seal_private(repository, name, content)?)
}

/// An object for this name that only the owner reads.
pub(crate) fn seal_private(
    repository: &Repository,
    name: &ObjectName,
    content: &[u8],
) -> Result<Vec<u8>, RepositoryError> {
    let entropy = &*repository.surroundings.entropy;
    let public = &repository.write_keys().public_key;
    seal(repository, name, &public.seal(PRIVATE_INFO, &place(repository, name), content, entropy))
}

/// The content of an object that only the owner reads.
///
/// # Errors
///
/// Those of [`read`], and [`RepositoryError::PutOnly`].
pub(crate) fn read_private(
    repository: &Repository,
    name: &ObjectName,
) -> Result<Vec<u8>, RepositoryError> {
    read_private_at(repository, name, name)
}

/// The content of the object of this name that only the owner reads, or of its copy: whichever is at
/// `at`.
pub(crate) fn read_private_at(
    repository: &Repository,
    at: &ObjectName,
    name: &ObjectName,
) -> Result<Vec<u8>, RepositoryError> {
    let owner = repository.keys.owner.as_ref().ok_or(RepositoryError::PutOnly)?;
    let sealed = read_at(repository, at, name)?;
    let opened = owner.private_key.open(PRIVATE_INFO, &place(repository, name), &sealed);
    opened.map_err(|_| RepositoryError::Forged { name: at.clone() })
}

fn open(repository: &Repository, name: &ObjectName, body: Vec<u8>) -> Option<Vec<u8>> {
    let place = place(repository, name);
    let (salt, sealed) = body.split_first_chunk::<SALT_BYTES>()?;
    let mut sealed = sealed.to_vec();
    let opened = key(repository, &place, salt).open(0, &place, &mut sealed).ok()?;
    let (signature, content) = opened.split_first_chunk::<SIGNATURE_BYTES>()?;
    let message = [&place[..], content].concat();
    let authority = &repository.write_keys().authority;
    authority.verifies(CONTEXT, &message, signature).then(|| content.to_vec())
}

fn key(repository: &Repository, place: &[u8], salt: &[u8; SALT_BYTES]) -> SealKey {
    let naming = &repository.write_keys().naming;
    SealKey::new(&derive_object_key(CONTEXT, &naming.voucher_key, &[place, salt].concat()))
}

/// What an object is bound to: its name in this repository.
fn place(repository: &Repository, name: &ObjectName) -> Vec<u8> {
    [&repository.config.id.0[..], name.as_str().as_bytes()].concat()
}

fn identity(name: &ObjectName) -> (ObjectKind, [u8; 16], u32) {
    let expected = expected(name).expect("the name is one of ours");
    (expected.kind, expected.id.expect("its name says which it is"), expected.generation)
}
