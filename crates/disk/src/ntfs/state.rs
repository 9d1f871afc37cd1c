//! Whether the volume is what Windows would show after a mount: its journal is empty, it is not marked
//! as damaged, and no hibernated machine uses it.

use crate::error::Result;
use crate::fields::{byte, le16, le32, part};
use crate::file_system::{State, Unclean};
use crate::understood::{NotUnderstood, ntfs as words};

use super::inode::Inode;
use super::mft::Mft;
use super::record::{fix_up, kind};
use super::stream::Stream;

const LOG_FILE: u64 = 2;
/// The file that describes the volume.
pub(super) const VOLUME: u64 = 3;

/// Of NT 4, of Windows 2000, and of all since.
const VERSIONS: [(u8, u8); 3] = [(1, 2), (3, 0), (3, 1)];
/// While Windows 8 and later have a volume mounted, its journal has version 2.
const LOG_VERSION: (u16, u16) = (1, 1);
/// The volume is to be checked.
const IS_DIRTY: u16 = 1;
/// The log has no client that is using it.
const NO_CLIENT: u16 = 0xffff;
/// The log was closed.
const IS_CLEAN: u16 = 2;
/// The size of a page of the log if its head does not say it.
const PAGE_BYTES: usize = 4096;

/// The state of the volume. `hibernation` is the content of its `hiberfil.sys`, if it has one.
pub(super) fn state(mft: &Mft<'_>, hibernation: Option<&Stream>) -> Result<State> {
    let volume = Inode::load(mft, VOLUME)?;
    let information = volume.value(mft, kind::VOLUME_INFORMATION, b"")?;
    Ok(if let Err(unknown) = understood(&information) {
        State::NotUnderstood(unknown)
    } else if is_hibernated(mft, hibernation)? {
        State::Dirty(Unclean::Hibernated)
    } else if information.len() < 12 || le16(&information, 10) & IS_DIRTY != 0 {
        State::Dirty(Unclean::Errors)
    } else if !is_log_empty(mft)? {
        State::Dirty(Unclean::JournalInUse)
    } else {
        State::Clean
    })
}

/// Checks the version and the flags of a volume.
fn understood(information: &[u8]) -> Result<(), NotUnderstood> {
    if information.len() >= 12 {
        if !VERSIONS.contains(&(byte(information, 8), byte(information, 9))) {
            return Err(NotUnderstood::Form("a version of NTFS other than 1.2, 3.0 and 3.1"));
        }
        words::VOLUME.check(le16(information, 10))?;
    }
    Ok(())
}

/// A hibernation file begins with four letters: `HIBR` while it has a machine's memory, `WAKE` after
/// the machine went on, and zeros if it was never used. Other letters count as a machine's memory.
fn is_hibernated(mft: &Mft<'_>, file: Option<&Stream>) -> Result<bool> {
    let Some(file) = file.filter(|file| file.bytes >= PAGE_BYTES as u64) else { return Ok(false) };
    let mut head = [0; 4];
    file.read(mft, 0, &mut head)?;
    Ok(!matches!(&head, b"\0\0\0\0" | b"wake" | b"WAKE"))
}

/// Whether nothing in the journal is still to be carried out.
fn is_log_empty(mft: &Mft<'_>) -> Result<bool> {
    let Some(log) = Inode::load(mft, LOG_FILE)?.stream(mft, kind::DATA, b"")? else {
        return Ok(false);
    };
    let mut head = vec![0; PAGE_BYTES];
    let read = log.read(mft, 0, &mut head)?;
    // ntfs-3g overwrites the journal with ones, after it has taken over what was in it.
    if read == PAGE_BYTES && head.iter().all(|byte| *byte == 0xff) {
        return Ok(true);
    }
    let page_bytes = match le32(&head, 16) as usize {
        bytes @ (512 | 1024 | 2048 | 4096 | 8192 | 16384 | 32768 | 65536) => bytes,
        _ => return Ok(false),
    };
    // The newer of two copies counts; one that is damaged may be the newer one.
    let mut newest: Option<(u64, bool)> = None;
    for copy in 0..2 {
        let mut page = vec![0; page_bytes];
        log.read(mft, copy * page_bytes as u64, &mut page)?;
        let Some(found) = restart(page) else { return Ok(false) };
        if newest.is_none_or(|newest| found.0 > newest.0) {
            newest = Some(found);
        }
    }
    Ok(newest.is_some_and(|newest| newest.1))
}

/// The number of a copy of the journal's head, and whether the journal was empty when it was written.
fn restart(mut page: Vec<u8>) -> Option<(u64, bool)> {
    let magic: [u8; 4] = *page.first_chunk()?;
    if !matches!(&magic, b"RSTR" | b"CHKD") {
        return None;
    }
    fix_up(&mut page, &magic, 0).ok()?;
    let area = part(&page, le16(&page, 24).into(), page.len());
    let number = u64::from(le32(area, 0)) | u64::from(le32(area, 4)) << 32;
    let (flags, version) = (le16(area, 14), (le16(&page, 28), le16(&page, 26)));
    let is_known = version == LOG_VERSION && words::LOG.check(flags).is_ok();
    let is_empty = is_known && (le16(area, 12) == NO_CLIENT || flags & IS_CLEAN != 0);
    (area.len() >= 48).then_some((number, is_empty))
}
