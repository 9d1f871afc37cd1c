//! Floor 1: word to people and to monitors.
//!
//! A [`Notice`] says how something ended. A [`Recipient`] is who hears of it, as a person writes it:
//! an address of mail, a webhook, a topic of ntfy, a check of Healthchecks. A [`Courier`] delivers,
//! a few times if it must, and says what failed. It keeps nothing and decides nothing: who hears
//! of what is for its caller to know.

mod courier;
mod mail;
mod recipient;
mod web;

use std::time::Duration;

pub use courier::{Courier, Means};
pub use mail::{MailServer, MailServerError};
pub use recipient::{Recipient, RecipientError};

/// How something ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// All of it was done.
    Good,
    /// Done, but something deserves a look.
    Warning,
    /// Not done.
    Failed,
}

impl Verdict {
    /// `good`, `warning` or `failed`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// What is said.
#[derive(Debug, Clone)]
pub struct Notice {
    /// How it ended.
    pub verdict: Verdict,
    /// One line.
    pub subject: String,
    /// Text of several lines.
    pub text: String,
    /// The same for programs: an object.
    pub details: serde_json::Value,
}

/// Why a notice did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum NoticeError {
    /// The mail could not be written.
    #[error("{0}")]
    Message(String),
    /// The server refuses it, now and later.
    #[error("{0}")]
    Refused(String),
    /// The server did not answer, or not now.
    #[error("{0}")]
    Away(String),
}

/// How long a server may take for one attempt.
const ATTEMPT: Duration = Duration::from_secs(20);
