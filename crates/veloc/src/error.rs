//! Why a function returned `VELOC_FAILURE`: it is written to the standard error.

use std::path::PathBuf;

use strongroom_bucket::BucketError;

/// Why a function failed.
#[derive(Debug, thiserror::Error)]
pub enum VelocError {
    #[error("call VELOC_Init or VELOC_Init_single first")]
    NotBegun,
    #[error("`{0}` is null, or not UTF-8")]
    Argument(&'static str),
    #[error("the configuration {} cannot be read: {source}", path.display())]
    Config { path: PathBuf, source: std::io::Error },
    #[error("the mode of operation is {0:?}: write `mode = sync` or `mode = async`")]
    Mode(String),
    #[error("no scratch folder is named for routed files: write `scratch = FOLDER`")]
    NoScratch,
    #[error("MPI is not there: link the program with it, or call VELOC_Init_single")]
    NoMpi,
    #[error("MPI_Comm_rank failed with {0}")]
    Mpi(i32),
    #[error(transparent)]
    Bucket(#[from] BucketError),
    #[error(
        "a checkpoint's name has letters, digits, `_` and `.`, and its version is not negative"
    )]
    Name,
    #[error("a checkpoint is under way: call VELOC_Checkpoint_end first")]
    CheckpointUnderWay,
    #[error("no checkpoint is under way: call VELOC_Checkpoint_begin first")]
    NoCheckpoint,
    #[error("no restart is under way: call VELOC_Restart_begin first")]
    NoRestart,
    #[error("no region is chosen: call VELOC_Mem_protect first, and check the ids")]
    NothingChosen,
    #[error("the region {id} in group {group:?} is not protected")]
    NotProtected { group: String, id: i32 },
    #[error("the region {id} has {bytes} bytes, but {stored} bytes were stored: protect as many")]
    Short { id: i32, bytes: usize, stored: u64 },
    #[error("the region {0} is longer than memory, or has no address")]
    Region(i32),
    #[error("the mode {0} is none of ALL, SOME and REST")]
    Selection(i32),
    #[error("there is no version {version} of {name} in all ranks")]
    NoVersion { name: String, version: i32 },
    #[error("version {version} of {name} has no file: it was made of regions")]
    NoFile { name: String, version: i32 },
    #[error("a checkpoint is made of regions or of a file, not of both")]
    Mixed,
    #[error("the routed file {} cannot be used: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("the routed file {} is empty: write the checkpoint before VELOC_Checkpoint_end", .0.display())]
    EmptyFile(PathBuf),
    #[error("the path of the routed file {} is longer than 1023 bytes", .0.display())]
    LongPath(PathBuf),
    #[error("the id {0} is longer than the size of a region can be said: more than 2 GiB")]
    Size(i32),
}
