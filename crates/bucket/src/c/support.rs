//! What all functions of the face in C need: errors, and arguments that may be null.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bucket::Bucket;
use crate::error::{AreaFault, BucketError};

/// What functions return.
pub mod code {
    use std::ffi::c_int;

    pub const OK: c_int = 0;
    pub const NONE: c_int = 1;
    pub const INVALID: c_int = -1;
    pub const NO_AGENT: c_int = -2;
    pub const REFUSED: c_int = -3;
    pub const AGENT_GONE: c_int = -4;
    pub const FAILED: c_int = -5;
    pub const MISMATCH: c_int = -6;
    pub const NO_VERSION: c_int = -7;
    pub const SYSTEM: c_int = -8;
    pub const IN_CALLBACK: c_int = -9;
    pub const INTERNAL: c_int = -10;
}

thread_local! {
    /// What failed last in this thread.
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Why a function failed.
pub enum Failure {
    Bucket(BucketError),
    Null(&'static str),
    Text(&'static str),
}

impl From<BucketError> for Failure {
    fn from(error: BucketError) -> Self {
        Self::Bucket(error)
    }
}

/// Runs a function, keeps what failed, and returns its code.
pub fn guarded(run: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    let (code, reason) = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(code)) => return code,
        Ok(Err(Failure::Bucket(error))) => (code_of(&error), error.to_string()),
        Ok(Err(Failure::Null(name))) => (code::INVALID, format!("`{name}` is null")),
        Ok(Err(Failure::Text(name))) => (code::INVALID, format!("`{name}` is not UTF-8")),
        Err(_) => (code::INTERNAL, "the library panicked: report it as a bug".to_owned()),
    };
    let reason = CString::new(reason.replace('\0', " ")).unwrap_or_default();
    // At the end of a thread its text may be gone already.
    drop(LAST_ERROR.try_with(|last| last.replace(reason)));
    code
}

/// What failed last in this thread.
pub fn last_error() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

fn code_of(error: &BucketError) -> c_int {
    match error {
        BucketError::NoAgent { .. } => code::NO_AGENT,
        BucketError::Refused { .. } => code::REFUSED,
        BucketError::AgentGone => code::AGENT_GONE,
        BucketError::Failed { .. } => code::FAILED,
        BucketError::NoVersion { .. } => code::NO_VERSION,
        BucketError::WithinCallback => code::IN_CALLBACK,
        BucketError::Thread(_) => code::SYSTEM,
        BucketError::Name { .. } | BucketError::Range | BucketError::TooManyAreas => code::INVALID,
        BucketError::NoAreas => code::MISMATCH,
        BucketError::Area { fault, .. } => match fault {
            AreaFault::Length | AreaFault::FileShort { .. } => code::INVALID,
            AreaFault::Unknown | AreaFault::Differs { .. } | AreaFault::NotStored => code::MISMATCH,
            AreaFault::Shadow(_) | AreaFault::Descriptor(_) => code::SYSTEM,
            AreaFault::NotTaken(_) => code::REFUSED,
        },
    }
}

/// An open bucket.
///
/// # Safety
///
/// It is null, or open for as long as `'b`.
pub unsafe fn opened<'b>(bucket: *const Bucket) -> Result<&'b Bucket, Failure> {
    // SAFETY: the caller promises it.
    unsafe { bucket.as_ref() }.ok_or(Failure::Null("bucket"))
}

/// A string; `None` if it is null.
///
/// # Safety
///
/// It is null, or ends with a zero and does not change for as long as `'s`.
pub unsafe fn string<'s>(text: *const c_char) -> Option<&'s CStr> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller promises it, and it is not null.
    Some(unsafe { CStr::from_ptr(text) })
}

/// A string that is UTF-8.
///
/// # Safety
///
/// As [`string`].
pub unsafe fn text<'s>(text: *const c_char, name: &'static str) -> Result<&'s str, Failure> {
    // SAFETY: the caller promises it.
    let text = unsafe { string(text) }.ok_or(Failure::Null(name))?;
    text.to_str().map_err(|_| Failure::Text(name))
}

/// A copy of some bytes; `None` if they are at null.
///
/// # Safety
///
/// They are at null, or `length` bytes can be read.
pub unsafe fn bytes(start: *const c_void, length: usize) -> Option<Vec<u8>> {
    if start.is_null() {
        return None;
    }
    // SAFETY: the caller promises it, and the start is not null.
    Some(unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) }.to_vec())
}
