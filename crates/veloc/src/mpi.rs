//! MPI as far as it is needed: the rank of this process, and what all ranks agree on. The functions
//! are those of the program, found when it runs.
//!
//! A communicator is a number in MPICH and those like it, and a pointer in Open MPI. Both fit a
//! register, and a function that takes a number does not look at the rest.

use std::ffi::{CStr, c_int, c_void};

use crate::error::VelocError;

/// `MPI_INT` and `MPI_MIN` of MPICH and all that are compatible with it: they cannot change there.
const MPICH_INT: usize = 0x4c00_0405;
const MPICH_MIN: usize = 0x5800_0002;

type CommRank = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
type Allreduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, c_int, usize, usize, usize) -> c_int;

/// A communicator of the program.
#[derive(Debug)]
pub struct Mpi {
    communicator: usize,
    allreduce: Allreduce,
    int: usize,
    min: usize,
}

/// MPI, and the rank of this process.
///
/// # Safety
///
/// `communicator` is one of the MPI that the program is linked with, for as long as the result is used.
pub unsafe fn open(communicator: usize) -> Result<(Mpi, u32), VelocError> {
    let comm_rank = find(c"MPI_Comm_rank").ok_or(VelocError::NoMpi)?;
    let allreduce = find(c"MPI_Allreduce").ok_or(VelocError::NoMpi)?;
    // SAFETY: the standard gives the functions of these names these arguments; see the head for the
    // communicator and other handles.
    let (comm_rank, allreduce) = unsafe {
        (
            std::mem::transmute::<*mut c_void, CommRank>(comm_rank),
            std::mem::transmute::<*mut c_void, Allreduce>(allreduce),
        )
    };
    let mut rank = 0;
    // SAFETY: the caller promises the communicator, and the rank is written to a number of ours.
    let code = unsafe { comm_rank(communicator, &raw mut rank) };
    let rank = u32::try_from(rank).map_err(|_| VelocError::Mpi(code))?;
    if code != 0 {
        return Err(VelocError::Mpi(code));
    }
    // In Open MPI handles are addresses of these.
    let int = find(c"ompi_mpi_int").map_or(MPICH_INT, <*mut c_void>::addr);
    let min = find(c"ompi_mpi_op_min").map_or(MPICH_MIN, <*mut c_void>::addr);
    Ok((Mpi { communicator, allreduce, int, min }, rank))
}

impl Mpi {
    /// The smallest of what all ranks say: each of them must call it.
    pub fn smallest(&self, number: i32) -> Result<i32, VelocError> {
        let mut smallest = number;
        let (from, to) = ((&raw const number).cast(), (&raw mut smallest).cast());
        // SAFETY: one number is read and one is written, and the handles are those of this MPI.
        let code = unsafe { (self.allreduce)(from, to, 1, self.int, self.min, self.communicator) };
        if code == 0 { Ok(smallest) } else { Err(VelocError::Mpi(code)) }
    }
}

/// What the program has under a name.
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero, and the default handle is always valid.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
