//! Why a call of a program failed.

use std::path::PathBuf;

use crate::name::NameError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// Nothing listens on the socket.
    #[error(
        "no agent listens on {}: {source}. Start `strongroom ram agent` on this node, or name its \
         socket in STRONGROOM_RAM_SOCKET",
        socket.display()
    )]
    NoAgent {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The agent does not take this bucket.
    #[error("the agent on {} refuses bucket {number} of {file}: {reason}", socket.display())]
    Refused {
        /// The socket.
        socket: PathBuf,
        /// The name of the file.
        file: String,
        /// The number of the bucket.
        number: u32,
        /// The agent's words.
        reason: String,
    },
    /// The connection ended during the call.
    #[error(
        "the agent ended during the call: it is not known whether the call was carried out. The next \
         call connects again and registers all areas"
    )]
    AgentGone,
    /// The agent could not do it.
    #[error("{what}: {reason}")]
    Failed {
        /// What was asked for.
        what: String,
        /// The agent's words.
        reason: String,
    },
    /// The areas of the bucket do not fit the call.
    #[error("area {area}: {fault}")]
    Area {
        /// The name of the area.
        area: String,
        /// What is wrong with it.
        fault: AreaFault,
    },
    /// There is nothing to store.
    #[error("no area is registered: register the areas of the bucket first")]
    NoAreas,
    /// Nothing has this name.
    #[error("there is no version {version} of {name}")]
    NoVersion {
        /// The name.
        name: String,
        /// The version.
        version: u64,
    },
    /// A name is not allowed.
    #[error("{name:?} is not allowed: {fault}")]
    Name {
        /// The name.
        name: String,
        /// Why.
        fault: NameError,
    },
    /// The range holds no key.
    #[error("a range ends before it begins, or a key is longer than 64 bytes")]
    Range,
    /// There are too many areas.
    #[error("a bucket has at most 512 areas: join some of them")]
    TooManyAreas,
    /// The call would wait for itself.
    #[error("a callback may not store, wait, test, load, evict or register callbacks")]
    WithinCallback,
    /// The system gave no thread.
    #[error("no thread could be started: {0}")]
    Thread(std::io::Error),
}

/// What is wrong with an area.
#[derive(Debug, thiserror::Error)]
pub enum AreaFault {
    /// It has no bytes, or more than a file can have.
    #[error("it must have at least 1 byte and fit into memory")]
    Length,
    /// No area has that name.
    #[error("it is not registered: register it first")]
    Unknown,
    /// It is longer or shorter than what is to be loaded.
    #[error(
        "it is registered with {registered} bytes, but {stored} bytes were stored: register it with \
         {stored} bytes, then load"
    )]
    Differs {
        /// Bytes that are registered.
        registered: u64,
        /// Bytes that were stored.
        stored: u64,
    },
    /// Its file ends before it.
    #[error(
        "its file has {file} bytes, and it is registered with {registered}: make the file longer"
    )]
    FileShort {
        /// Bytes that are registered.
        registered: u64,
        /// Bytes of the file.
        file: u64,
    },
    /// It is not in the version.
    #[error("it was not stored in this version")]
    NotStored,
    /// The memory file could not be made or written.
    #[error("its copy in memory failed: {0}. Free memory, or register it as shared memory")]
    Shadow(std::io::Error),
    /// The descriptor could not be looked at or duplicated.
    #[error("its descriptor is of no use: {0}")]
    Descriptor(std::io::Error),
    /// After the agent was started again it did not take the area.
    #[error("the agent that was started again refuses it: {0}. Register it again")]
    NotTaken(String),
}

impl BucketError {
    /// A fault of an area.
    pub(crate) fn area(area: &str, fault: AreaFault) -> Self {
        Self::Area { area: area.to_owned(), fault }
    }
}
