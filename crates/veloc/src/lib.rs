//! For programs that use VELOC (<https://github.com/ECP-VeloC/VELOC>, the functions of version 1.8):
//! a `libveloc-client.so` whose checkpoints are buckets, stored by the agent of the node.
//!
//! | VELOC | here |
//! |---|---|
//! | a rank | the bucket of that number |
//! | a program's checkpoints | the file named by `strongroom_file`, otherwise by the program |
//! | a protected region | a private area, named by its id |
//! | a routed file | an area named `file` |
//! | a checkpoint's name and version | the same of the bucket |
//!
//! There is no backend beside the agent, and no second place for checkpoints: what is stored is kept
//! as the repository says. `include/veloc.h` is the header; programs that were compiled with VELOC's
//! own need not be compiled again. The interface for C++ (`veloc.hpp`) is not offered: its classes are
//! of one compiler and one version.
//!
//! MPI is found when the program runs (`mpi.rs`), so nothing of it is needed to build the library.

mod c;
mod client;
mod config;
mod error;
mod mpi;
mod pending;
mod regions;
mod routed;
