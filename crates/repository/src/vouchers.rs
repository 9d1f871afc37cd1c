//! The objects in which the owner vouches for arenas of other domains.
//! The document: `docs/format/voucher.md`.

use strongroom_arena::envelope::format::ObjectKind;
use strongroom_arena::envelope::{self, Identity};
use strongroom_arena::{Origin, Voucher};
use strongroom_backend::ObjectName;
use strongroom_base::entropy::random_array;
use strongroom_base::keys::OwnerKeys;
use strongroom_base::keys::derive_object_key;
use strongroom_base::regimes::{Regime, reached_if};
use strongroom_base::seal::{SIGNATURE_BYTES, SealKey};
use strongroom_base::{RepositoryId, VoucherId};

use crate::error::RepositoryError;
use crate::folders::show;
use crate::objects::{VOUCHERS_FOLDER, read_small};
use crate::repository::Repository;

/// What the key of one object is derived as, and what its signature is made as.
const CONTEXT: &str = "strongroom v0 vouchers";

/// The vouchers that the owner made, for the owner: a machine that can only store names what it has
/// stored itself, and learns nothing of what others have. Those that are damaged, withheld or
/// forged are left out: they vouch for nothing.
pub fn read_vouchers(repository: &Repository) -> Result<Vec<Voucher>, RepositoryError> {
    let mut vouchers = Vec::new();
    let Some(owner) = repository.keys.owner.as_ref() else { return Ok(vouchers) };
    for info in show(repository.backend(), VOUCHERS_FOLDER)?.objects {
        let Ok(id) = info.name.file().parse::<VoucherId>() else { continue };
        match read_small(repository.backend(), &info.name, ObjectKind::Vouchers, Some(&id.0)) {
            Ok(sealed) => vouchers.extend(open(repository, owner, id, sealed).unwrap_or_default()),
            Err(RepositoryError::Backend(error)) if error.is_not_found() => {}
            Err(error) if error.is_damage() || error.is_withheld() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(vouchers)
}

/// Vouches for arenas, in as many objects as they need. Every chunk in them must have been compared
/// with its fingerprint.
pub fn write_vouchers(
    repository: &Repository,
    vouchers: &[Voucher],
) -> Result<Vec<VoucherId>, RepositoryError> {
    let parts = vouchers.chunks(repository.limits.vouchers_max);
    let written: Result<Vec<_>, _> = parts.map(|part| write_object(repository, part)).collect();
    reached_if(vouchers.len() > repository.limits.vouchers_max, Regime::VouchersCut);
    written
}

fn write_object(
    repository: &Repository,
    vouchers: &[Voucher],
) -> Result<VoucherId, RepositoryError> {
    let owner = repository.keys.owner.as_ref().ok_or(RepositoryError::PutOnly)?;
    let id = VoucherId(random_array(&*repository.surroundings.entropy));
    let mut records = Vec::with_capacity(vouchers.len() * Voucher::BYTES);
    vouchers.iter().for_each(|voucher| voucher.pack_to(&mut records));
    let place = place(repository.config.id, id);
    let signature = owner.authority.sign(CONTEXT, &[&place[..], &records].concat());
    let mut body = signature.to_vec();
    body.append(&mut records);
    key(owner, id).seal(0, &place, &mut body);
    let (kind, origin) = (ObjectKind::Vouchers, Origin::NONE);
    let identity = Identity { kind, id: id.0, generation: 0, origin };
    let object = envelope::seal_small(&body, identity);
    repository.backend().create(&ObjectName::new(VOUCHERS_FOLDER, id), &object)?;
    Ok(id)
}

/// What an object says, if the owner said it.
fn open(
    repository: &Repository,
    owner: &OwnerKeys,
    id: VoucherId,
    mut sealed: Vec<u8>,
) -> Option<Vec<Voucher>> {
    let place = place(repository.config.id, id);
    let opened = key(owner, id).open(0, &place, &mut sealed).ok()?;
    let (signature, records) = opened.split_first_chunk::<SIGNATURE_BYTES>()?;
    let message = [&place[..], records].concat();
    let authority = &repository.write_keys().authority;
    authority.verifies(CONTEXT, &message, signature).then_some(())?;
    Voucher::unpack_all(records).ok()
}

fn key(owner: &OwnerKeys, id: VoucherId) -> SealKey {
    SealKey::new(&derive_object_key(CONTEXT, &owner.voucher_key, &id.0))
}

/// What an object is bound to: its name in this repository.
fn place(repository: RepositoryId, id: VoucherId) -> Vec<u8> {
    [&repository.0[..], &id.0].concat()
}
