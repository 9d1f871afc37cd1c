//! What all functions in C need: the client, why they fail, and arguments that may be null.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::client::Client;
use crate::config::Config;
use crate::error::VelocError;

pub const SUCCESS: c_int = 0;
pub const FAILURE: c_int = -1;

/// The client of this process.
static CLIENT: Mutex<Option<Client>> = Mutex::new(None);

/// Runs a function of a program that has begun.
pub fn begun(run: impl FnOnce(&mut Client) -> Result<c_int, VelocError>) -> c_int {
    guarded(|client| run(client.as_mut().ok_or(VelocError::NotBegun)?))
}

/// Runs a function, and writes why it failed.
pub fn guarded(run: impl FnOnce(&mut Option<Client>) -> Result<c_int, VelocError>) -> c_int {
    let mut client = CLIENT.lock().unwrap_or_else(PoisonError::into_inner);
    let ran = catch_unwind(AssertUnwindSafe(|| run(&mut client)));
    let reason = match ran {
        Ok(Ok(code)) => return code,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the library panicked: report it as a bug".to_owned(),
    };
    complain(client.as_ref().map(Client::rank), &reason);
    FAILURE
}

#[expect(clippy::print_stderr, reason = "VELOC has no function that says what failed")]
fn complain(rank: Option<u32>, reason: &str) {
    match rank {
        Some(rank) => eprintln!("strongroom, VELOC, rank {rank}: {reason}"),
        None => eprintln!("strongroom, VELOC: {reason}"),
    }
}

/// The configuration of a file; without one, of the environment.
///
/// # Safety
///
/// `cfg_file` is null or a string.
pub unsafe fn configured(cfg_file: *const c_char) -> Result<Config, VelocError> {
    if cfg_file.is_null() {
        return Config::read(None);
    }
    // SAFETY: the caller promises a string.
    let path = unsafe { CStr::from_ptr(cfg_file) };
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    Config::read(Some(path).filter(|path| !path.as_os_str().is_empty()))
}

/// A string that is UTF-8.
///
/// # Safety
///
/// It is null, or ends with a zero and does not change for as long as `'s`.
pub unsafe fn text<'s>(text: *const c_char, name: &'static str) -> Result<&'s str, VelocError> {
    if text.is_null() {
        return Err(VelocError::Argument(name));
    }
    // SAFETY: the caller promises it, and it is not null.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| VelocError::Argument(name))
}

/// The ids in an array.
///
/// # Safety
///
/// `start` is null, or has `count` numbers.
pub unsafe fn numbers(start: *const c_int, count: c_int) -> Result<BTreeSet<i32>, VelocError> {
    let count = usize::try_from(count).map_err(|_| VelocError::Argument("id_count"))?;
    if count == 0 {
        return Ok(BTreeSet::new());
    }
    if start.is_null() {
        return Err(VelocError::Argument("ids"));
    }
    // SAFETY: the caller promises that many numbers.
    Ok(unsafe { std::slice::from_raw_parts(start, count) }.iter().copied().collect())
}
