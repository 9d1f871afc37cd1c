//! What can go wrong in an RP* file.

use std::io;
use std::net::SocketAddr;

/// Why a bucket could not do something with its records.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The bytes of the memory are not those of a tree.
    #[error("page {page} of the bucket {what}: load the bucket from its last snapshot")]
    Damaged {
        /// The page.
        page: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// There is no page left. Nothing was changed.
    #[error("the bucket is full: it has to be split")]
    Full,
    /// The bucket holds no range.
    #[error("the bucket is empty: it is given a range by a split or a load")]
    Empty,
    /// A key or value is longer than it may be.
    #[error("the {what} has {bytes} bytes, of at most {bytes_max}")]
    TooLong {
        /// Key or value.
        what: &'static str,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        bytes_max: usize,
    },
}

/// Why a client or a server could not do something.
#[derive(Debug, thiserror::Error)]
pub enum RpError {
    /// The bucket of this process has a fault.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The memory of a bucket could not be made or mapped.
    #[error("cannot make the memory of a bucket: {0}")]
    Memory(#[source] io::Error),
    /// This process cannot listen, or cannot start a thread.
    #[error("cannot serve at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A server could not be reached, or ended the connection.
    #[error("the server at {address} does not answer: {source}")]
    Unreachable {
        /// The server.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A server sent what it must not.
    #[error("the server at {address} broke the protocol: {what}")]
    Protocol {
        /// The server.
        address: SocketAddr,
        /// What it did.
        what: &'static str,
    },
    /// A server could not do what was asked.
    #[error("the server at {address} answers: {reason}")]
    Refused {
        /// The server.
        address: SocketAddr,
        /// Its words.
        reason: String,
    },
    /// A server was busy for as long as the client waits.
    #[error("the server at {address} is busy: {reason}. Try again later")]
    Busy {
        /// The server.
        address: SocketAddr,
        /// What it does.
        reason: String,
    },
    /// No server that answers has this key.
    #[error("no server has the range with the key {}: load its bucket on a spare{}", .key.escape_ascii(), in_brackets(.silent))]
    NoServer {
        /// The key.
        key: Vec<u8>,
        /// The servers that do not answer.
        silent: Vec<SocketAddr>,
    },
    /// The agent of the node refused.
    #[error("the agent of this node refuses: {0}")]
    Agent(String),
}

fn in_brackets(servers: &[SocketAddr]) -> String {
    if servers.is_empty() {
        return String::new();
    }
    let names: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
    format!(" (no answer from {})", names.join(", "))
}
