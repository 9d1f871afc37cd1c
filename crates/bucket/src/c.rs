//! The face of the library in C. `include/strongroom-bucket.h` documents it; the two are compared by
//! a test that compiles a program.
//!
//! No panic leaves a function: it becomes an error. What failed last is kept for each thread.

mod owner;
mod support;

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};

use owner::{Callbacks, Foreign};
use support::{Failure, bytes, code, guarded, last_error, opened, string, text};

use crate::bucket::Bucket;
use crate::error::{AreaFault, BucketError};
use crate::range::KeyRange;

/// Opens a bucket: [`Bucket::open`].
///
/// # Safety
///
/// `socket` is null or a string, `file` a string, and `bucket` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sr_open(
    socket: *const c_char,
    file: *const c_char,
    number: u32,
    bucket: *mut *mut Bucket,
) -> c_int {
    guarded(|| {
        let bucket = NonNull::new(bucket).ok_or(Failure::Null("bucket"))?;
        // SAFETY: the caller promises that it can be written.
        unsafe { bucket.write(ptr::null_mut()) };
        // SAFETY: the caller promises that it is null or a string.
        let socket = unsafe { string(socket) };
        let socket = socket.map(|socket| Path::new(OsStr::from_bytes(socket.to_bytes())));
        // SAFETY: the caller promises a string.
        let file = unsafe { text(file, "file") }?;
        let opened = Box::new(Bucket::open(socket, file, number)?);
        // SAFETY: as above.
        unsafe { bucket.write(Box::into_raw(opened)) };
        Ok(code::OK)
    })
}

/// Registers an area, or forgets it if its length is 0: [`Bucket::region`],
/// [`Bucket::private_region`], [`Bucket::forget`].
///
/// # Safety
///
/// `bucket` is open and `area` a string. If `length` is 0, nothing else is used. Otherwise `descriptor`
/// is open during the call, or it is negative, and what [`Bucket::private_region`] asks for holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sr_region(
    bucket: *const Bucket,
    area: *const c_char,
    descriptor: c_int,
    base: *mut c_void,
    length: u64,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises an open bucket and a string.
        let (bucket, area) = unsafe { (opened(bucket)?, text(area, "area")?) };
        if length == 0 {
            bucket.forget(area)?;
        } else if descriptor >= 0 {
            // SAFETY: it is not negative, so the caller promises that it is open.
            let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
            let address = Some(base.addr()).filter(|&address| address != 0);
            bucket.region(area, descriptor, address, length)?;
        } else {
            let memory = NonNull::new(base.cast()).ok_or(Failure::Null("base"))?;
            let bytes = usize::try_from(length);
            let bytes = bytes.map_err(|_| BucketError::area(area, AreaFault::Length))?;
            // SAFETY: the caller promises it.
            unsafe { bucket.private_region(area, memory, bytes)? };
        }
        Ok(code::OK)
    })
}

/// Says which keys the bucket holds: [`Bucket::range`].
///
/// # Safety
///
/// `bucket` is open, and the keys have their lengths. `high` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sr_range(
    bucket: *const Bucket,
    low: *const c_void,
    low_length: usize,
    high: *const c_void,
    high_length: usize,
    split_version: u64,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises an open bucket, and keys of these lengths.
        let (bucket, low, high) =
            unsafe { (opened(bucket)?, bytes(low, low_length), bytes(high, high_length)) };
        if low.is_none() && low_length > 0 {
            return Err(Failure::Null("low"));
        }
        let range = KeyRange { low: low.unwrap_or_default(), high };
        bucket.range(&range, split_version)?;
        Ok(code::OK)
    })
}

/// Registers callbacks: [`Bucket::on_quiesce`].
///
/// # Safety
///
/// `bucket` is open. The callbacks may be called from another thread until the bucket is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sr_on_quiesce(
    bucket: *const Bucket,
    callbacks: *const Callbacks,
) -> c_int {
    guarded(|| {
        let callbacks = NonNull::new(callbacks.cast_mut()).ok_or(Failure::Null("callbacks"))?;
        // SAFETY: the caller promises an open bucket and a structure of callbacks.
        let (bucket, callbacks) = unsafe { (opened(bucket)?, callbacks.read()) };
        if callbacks.quiesce.is_none() || callbacks.resume.is_none() {
            return Err(Failure::Null("quiesce or resume"));
        }
        bucket.on_quiesce(Box::new(Foreign(callbacks)))?;
        Ok(code::OK)
    })
}

/// Stores a version: [`Bucket::store`].
///
/// # Safety
///
/// `bucket` is open and `name` a string. No change of the areas is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sr_store(
    bucket: *const Bucket,
    name: *const c_char,
    version: u64,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises an open bucket and a string.
        let (bucket, name) = unsafe { (opened(bucket)?, text(name, "name")?) };
        bucket.store(name, version)?;
        Ok(code::OK)
    })
}

/// Waits until a version is committed: [`Bucket::wait`].
///
/// # Safety
///
/// `bucket` is open and `name` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sr_wait(
    bucket: *const Bucket,
    name: *const c_char,
    version: u64,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises an open bucket and a string.
        let (bucket, name) = unsafe { (opened(bucket)?, text(name, "name")?) };
        bucket.wait(name, version)?;
        Ok(code::OK)
    })
}

/// Finds the newest version: [`Bucket::test`].
///
/// # Safety
///
/// `bucket` is open, `name` a string, and `version` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sr_test(
    bucket: *const Bucket,
    name: *const c_char,
    version: *mut u64,
) -> c_int {
    guarded(|| {
        let found = NonNull::new(version).ok_or(Failure::Null("version"))?;
        // SAFETY: the caller promises an open bucket and a string.
        let (bucket, name) = unsafe { (opened(bucket)?, text(name, "name")?) };
        let Some(version) = bucket.test(name)? else { return Ok(code::NONE) };
        // SAFETY: the caller promises that it can be written.
        unsafe { found.write(version) };
        Ok(code::OK)
    })
}

/// Fills the areas from a version: [`Bucket::load`].
///
/// # Safety
///
/// `bucket` is open and `name` a string. No other thread uses the areas.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sr_load(
    bucket: *const Bucket,
    name: *const c_char,
    version: u64,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises an open bucket and a string.
        let (bucket, name) = unsafe { (opened(bucket)?, text(name, "name")?) };
        bucket.load(name, version)?;
        Ok(code::OK)
    })
}

/// Evicts the bucket: [`Bucket::evict`].
///
/// # Safety
///
/// `bucket` is open. No change of the areas is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sr_evict(bucket: *const Bucket) -> c_int {
    guarded(|| {
        // SAFETY: the caller promises an open bucket.
        unsafe { opened(bucket)? }.evict()?;
        Ok(code::OK)
    })
}

/// Closes a bucket. A callback that is under way ends first.
///
/// # Safety
///
/// `bucket` is null or open, and no thread uses it from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sr_close(bucket: *mut Bucket) {
    guarded(|| {
        if !bucket.is_null() {
            // SAFETY: `sr_open` made it of a box, and the caller gives it back.
            drop(unsafe { Box::from_raw(bucket) });
        }
        Ok(code::OK)
    });
}

/// What failed last in this thread: a text that lives until the next call of the thread.
#[unsafe(no_mangle)]
pub extern "C" fn sr_error() -> *const c_char {
    last_error()
}
