//! What a program and the agent of its node say to each other. The bytes are in `format.rs`, and the
//! order in `docs/format/bucket.md`.

use crate::range::KeyRange;

/// The version of the messages, in the first of each side.
pub const PROTOCOL: u32 = 1;

/// What a program asks and answers. `request` is a number of its choice, which the answer repeats.
/// `epoch` is the number of the agent's own question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromProgram {
    /// The first message: who speaks.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The name of the file.
        file: String,
        /// The number of the bucket in it.
        bucket: u32,
    },
    /// An area, with its descriptor. It replaces the area of that name. Answer: done or failed.
    Region {
        /// Its number.
        request: u32,
        /// The name of the area.
        area: String,
        /// How long it is, at least one.
        bytes: u64,
        /// The address at which the program maps it, if that matters.
        base: Option<u64>,
        /// The descriptor is that of a shadow.
        is_private: bool,
    },
    /// An area is no more. Answer: done or failed.
    Forget {
        /// Its number.
        request: u32,
        /// The name of the area.
        area: String,
    },
    /// Whether the program can be asked to hold still. Without this message it cannot. No answer.
    Callbacks {
        /// It can.
        has_callbacks: bool,
    },
    /// The keys that the bucket holds now. No answer.
    Range {
        /// The keys.
        range: KeyRange,
        /// How many times the bucket was split or merged: of two that overlap, the higher is right.
        split_version: u64,
    },
    /// Answers [`ToProgram::Quiesce`].
    Quiesced {
        /// The number of the question.
        epoch: u64,
        /// All areas are private and copied: their shadows stay as they are until the agent is done.
        is_copy: bool,
        /// Why the program does not hold still.
        outcome: Result<(), String>,
    },
    /// Answers [`ToProgram::Load`].
    Loaded {
        /// The number of the question.
        epoch: u64,
        /// Why the program cannot use what was loaded.
        outcome: Result<(), String>,
    },
    /// Answers [`ToProgram::Evict`].
    Evicted {
        /// The number of the question.
        epoch: u64,
        /// Why the memory was not freed.
        outcome: Result<(), String>,
    },
    /// Store a version; the program holds still until it is captured. Answer: captured or failed.
    Store {
        /// Its number.
        request: u32,
        /// The name under which it is stored.
        name: String,
        /// Which version of that name.
        version: u64,
        /// All areas of it are private and copied, and the program goes on already.
        is_copy: bool,
        /// The areas to be stored; all if there are none.
        areas: Vec<String>,
    },
    /// Answer when a version is stored and committed: done, or failed with the reason.
    Wait {
        /// Its number.
        request: u32,
        /// Its name.
        name: String,
        /// Which version of that name.
        version: u64,
    },
    /// Which versions are there? Answer: found or failed.
    Test {
        /// Its number.
        request: u32,
        /// The name.
        name: String,
        /// The newest version up to this one; without it, the newest of all.
        at_most: Option<u64>,
    },
    /// Fill the areas from a version; the program holds still. Answer: done or failed.
    Load {
        /// Its number.
        request: u32,
        /// Its name.
        name: String,
        /// Which version of that name.
        version: u64,
        /// The areas to be filled; all that were stored if there are none.
        areas: Vec<String>,
    },
    /// Store, commit, compare, then ask for the memory to be freed ([`ToProgram::Evict`]). The program
    /// holds still meanwhile. Answer: done or failed.
    Evict {
        /// Its number.
        request: u32,
        /// All areas are private and copied.
        is_copy: bool,
    },
}

/// What the agent asks and answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToProgram {
    /// Answers [`FromProgram::Hello`].
    Welcome {
        /// [`PROTOCOL`].
        protocol: u32,
    },
    /// Answers [`FromProgram::Hello`] instead: the connection ends.
    Refused {
        /// Why.
        reason: String,
    },
    /// Hold still. The answer is [`FromProgram::Quiesced`].
    Quiesce {
        /// The number of the question; it rises.
        epoch: u64,
    },
    /// The areas of the program, which holds still, have been filled. The answer is
    /// [`FromProgram::Loaded`].
    Load {
        /// The epoch in which it holds still.
        epoch: u64,
        /// The keys with which the bucket was stored, and the split version. It has them from here on, if
        /// its program can use what is there and has said none.
        keys: Option<(KeyRange, u64)>,
    },
    /// Go on.
    Resume {
        /// The epoch in which it held still.
        epoch: u64,
        /// The shadows are still read, and must not change until [`ToProgram::EpochCaptured`].
        is_reading: bool,
    },
    /// The shadows are no longer read.
    EpochCaptured {
        /// The epoch in which they were copied.
        epoch: u64,
    },
    /// Free the memory of all areas. The answer is [`FromProgram::Evicted`].
    Evict {
        /// The epoch in which the program holds still, or any number if it asked for the eviction.
        epoch: u64,
    },
    /// A store is captured: memory and shadows may change again. It is not committed yet.
    Captured {
        /// The number of the store.
        request: u32,
    },
    /// A request is carried out.
    Done {
        /// Its number.
        request: u32,
    },
    /// A request is not carried out.
    Failed {
        /// Its number.
        request: u32,
        /// Why, and what to do next.
        reason: String,
    },
    /// Answers [`FromProgram::Test`].
    Found {
        /// The number of the test.
        request: u32,
        /// The version, if there is one.
        version: Option<u64>,
        /// Its areas.
        areas: Vec<AreaSize>,
    },
}

/// An area of a stored version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AreaSize {
    /// Its name.
    pub area: String,
    /// How long it was.
    pub bytes: u64,
}
