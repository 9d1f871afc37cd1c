//! The functions of VELOC in C. What they do is in `client.rs`; what they are for, in
//! `include/veloc.h`.
//!
//! There is one client in a process, as in VELOC. No panic leaves a function.

mod support;

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;

use support::{FAILURE, SUCCESS, begun, configured, guarded, numbers, text};

use crate::client::Client;
use crate::error::VelocError;
use crate::mpi;
use crate::regions::{Chosen, DEFAULT_GROUP, Region};
use crate::routed::PATH_BYTES_MAX;

/// Begins, with a bucket for the rank of this process in a communicator.
///
/// # Safety
///
/// `comm` is a communicator of the MPI that the program is linked with; `cfg_file` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Init(comm: usize, cfg_file: *const c_char) -> c_int {
    guarded(|client| {
        if client.is_some() {
            return Ok(SUCCESS);
        }
        // SAFETY: the caller promises a communicator and a string.
        let (config, (mpi, rank)) = unsafe { (configured(cfg_file)?, mpi::open(comm)?) };
        *client = Some(Client::open(config, rank, Some(mpi))?);
        Ok(SUCCESS)
    })
}

/// Begins, with the bucket of a number.
///
/// # Safety
///
/// `cfg_file` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Init_single(id: c_uint, cfg_file: *const c_char) -> c_int {
    guarded(|client| {
        if client.is_none() {
            // SAFETY: the caller promises a string.
            let config = unsafe { configured(cfg_file)? };
            *client = Some(Client::open(config, id, None)?);
        }
        Ok(SUCCESS)
    })
}

/// Ends. With `drain` it waits for the checkpoints first.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Finalize(drain: c_int) -> c_int {
    guarded(|client| {
        let mut client = client.take().ok_or(VelocError::NotBegun)?;
        if drain != 0 {
            client.wait()?;
        }
        Ok(SUCCESS)
    })
}

/// Protects a region of the default group.
///
/// # Safety
///
/// The memory is valid until it is given up, and does not change within functions of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Mem_protect(
    id: c_int,
    ptr: *mut c_void,
    count: usize,
    base_size: usize,
) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { VELOC_Region_protect(id, ptr, count, base_size, c"default".as_ptr()) }
}

/// Protects a region of a group.
///
/// # Safety
///
/// As [`VELOC_Mem_protect`], and `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Region_protect(
    id: c_int,
    ptr: *mut c_void,
    count: usize,
    base_size: usize,
    name: *const c_char,
) -> c_int {
    begun(|client| {
        // SAFETY: the caller promises a string.
        let group = unsafe { text(name, "name")? };
        let bytes = count.checked_mul(base_size).ok_or(VelocError::Region(id))?;
        if ptr.is_null() && bytes > 0 {
            return Err(VelocError::Region(id));
        }
        let address = ptr.expose_provenance();
        client.regions.protect(group, id, Region { address, bytes });
        Ok(SUCCESS)
    })
}

/// Gives a region of the default group up.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Mem_unprotect(id: c_int) -> c_int {
    begun(|client| client.unprotect(DEFAULT_GROUP, id).map(|()| SUCCESS))
}

/// Gives all regions of the default group up.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Mem_clear() -> c_int {
    begun(|client| client.clear(DEFAULT_GROUP).map(|()| SUCCESS))
}

/// Gives a region of a group up.
///
/// # Safety
///
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Region_unprotect(id: c_int, name: *const c_char) -> c_int {
    // SAFETY: the caller promises a string.
    begun(|client| client.unprotect(unsafe { text(name, "name")? }, id).map(|()| SUCCESS))
}

/// Gives all regions of a group up.
///
/// # Safety
///
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Region_clear(name: *const c_char) -> c_int {
    // SAFETY: the caller promises a string.
    begun(|client| client.clear(unsafe { text(name, "name")? }).map(|()| SUCCESS))
}

/// The file of the checkpoint or restart that is under way. `original` means nothing: the repository
/// has the file, and VELOC would also put it there.
///
/// # Safety
///
/// `routed` has `VELOC_MAX_NAME` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Route_file(_original: *const c_char, routed: *mut c_char) -> c_int {
    begun(|client| {
        if routed.is_null() {
            return Err(VelocError::Argument("routed"));
        }
        let path = client.route()?;
        let bytes = path.as_os_str().as_bytes();
        assert!(bytes.len() < PATH_BYTES_MAX, "longer paths are refused");
        // SAFETY: the caller promises as much room, the path and its zero are no longer, and they are
        // of the library.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), routed.cast(), bytes.len());
            routed.add(bytes.len()).write(0);
        }
        Ok(SUCCESS)
    })
}

/// Removes the routed files of a name.
///
/// # Safety
///
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Cleanup(name: *const c_char) -> c_int {
    // SAFETY: the caller promises a string.
    begun(|client| client.clean(unsafe { text(name, "name")? }).map(|()| SUCCESS))
}

/// Begins a checkpoint.
///
/// # Safety
///
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Checkpoint_begin(name: *const c_char, version: c_int) -> c_int {
    begun(|client| {
        // SAFETY: the caller promises a string.
        client.begin_checkpoint(unsafe { text(name, "name")? }, version).map(|()| SUCCESS)
    })
}

/// Captures the chosen regions.
///
/// # Safety
///
/// `ids` has `id_count` numbers. The protected regions are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Checkpoint_selective(
    mode: c_int,
    ids: *const c_int,
    id_count: c_int,
) -> c_int {
    begun(|client| {
        // SAFETY: the caller promises that many numbers.
        let chosen = Chosen::of(mode, unsafe { numbers(ids, id_count)? })?;
        client.store_regions(&chosen).map(|()| SUCCESS)
    })
}

/// Captures all regions.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Checkpoint_mem() -> c_int {
    begun(|client| client.store_regions(&Chosen::All).map(|()| SUCCESS))
}

/// Ends a checkpoint.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Checkpoint_end(success: c_int) -> c_int {
    begun(|client| client.end_checkpoint(success != 0).map(|()| SUCCESS))
}

/// Waits until all checkpoints are committed.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Checkpoint_wait() -> c_int {
    begun(|client| client.wait().map(|()| SUCCESS))
}

/// Whether no checkpoint is left to wait for: success if so. VELOC does so, and its header says the
/// opposite.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Checkpoint_finished() -> c_int {
    begun(|client| Ok(if client.are_finished() { SUCCESS } else { FAILURE }))
}

/// Waits for the checkpoint before, and makes one of all regions.
///
/// # Safety
///
/// `name` is a string. The protected regions are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Checkpoint(name: *const c_char, version: c_int) -> c_int {
    // SAFETY: the caller promises a string.
    begun(|client| client.checkpoint(unsafe { text(name, "name")? }, version).map(|()| SUCCESS))
}

/// The newest version up to `version`, or of all if that is 0, that all ranks have.
///
/// # Safety
///
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Restart_test(name: *const c_char, version: c_int) -> c_int {
    begun(|client| {
        // SAFETY: the caller promises a string.
        let newest = client.newest(unsafe { text(name, "name")? }, version)?;
        Ok(newest.unwrap_or(FAILURE))
    })
}

/// Begins a restart.
///
/// # Safety
///
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Restart_begin(name: *const c_char, version: c_int) -> c_int {
    begun(|client| {
        // SAFETY: the caller promises a string.
        client.begin_restart(unsafe { text(name, "name")? }, version).map(|()| SUCCESS)
    })
}

/// Fills the chosen regions.
///
/// # Safety
///
/// `ids` has `id_count` numbers. The protected regions are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Recover_selective(
    mode: c_int,
    ids: *const c_int,
    id_count: c_int,
) -> c_int {
    begun(|client| {
        // SAFETY: the caller promises that many numbers.
        let chosen = Chosen::of(mode, unsafe { numbers(ids, id_count)? })?;
        client.load_regions(&chosen).map(|()| SUCCESS)
    })
}

/// How many bytes a region had when it was stored, or failure.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Recover_size(id: c_int) -> c_int {
    begun(|client| client.stored_bytes(id))
}

/// Fills all regions.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Recover_mem() -> c_int {
    begun(|client| client.load_regions(&Chosen::All).map(|()| SUCCESS))
}

/// Ends a restart.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Restart_end(_success: c_int) -> c_int {
    begun(|client| client.end_restart().map(|()| SUCCESS))
}

/// Restarts from a version with all regions.
///
/// # Safety
///
/// `name` is a string. The protected regions are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Restart(name: *const c_char, version: c_int) -> c_int {
    // SAFETY: the caller promises a string.
    begun(|client| client.restart(unsafe { text(name, "name")? }, version).map(|()| SUCCESS))
}
