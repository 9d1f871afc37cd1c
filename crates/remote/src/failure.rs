//! How one attempt at a request fails, and which of these are worth another attempt.

use std::io;
use std::time::Duration;

use strongroom_backend::{BackendError, ObjectName, Operation, Refusal};

/// How one attempt at a request failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no such object.
    NotFound,
    /// The name is taken.
    Taken,
    /// The place is full.
    Full {
        /// Whether the object may exist all the same, or come to exist.
        may_exist: bool,
    },
    /// The place lacks the operation. The text completes "the place cannot".
    Unsupported(&'static str),
    /// The place understood the request and will not carry it out, now or later.
    Refused {
        /// Why, as far as it is known.
        refusal: Refusal,
        /// What the place answered.
        answer: String,
    },
    /// This object cannot be read; others may well be readable.
    Unreadable(io::Error),
    /// The place asks for fewer requests, and did not carry out this one.
    Busy {
        /// How long it asks the caller to wait.
        after: Option<Duration>,
        /// What the place answered.
        answer: String,
    },
    /// There was no answer, or only a part of one. The request may have been carried out.
    Lost(io::Error),
}

impl Failure {
    /// The place has no room for what this attempt, and only this one, would have stored.
    pub(crate) const FULL: Self = Self::Full { may_exist: false };

    /// A connection that ended in the middle, or an answer that is not one.
    pub(crate) fn lost(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Lost(io::Error::other(reason))
    }

    /// Whether the object itself cannot be had: others may be.
    pub(crate) fn is_of_the_object(&self) -> bool {
        matches!(
            self,
            Self::NotFound | Self::Unreadable(_) | Self::Refused { refusal: Refusal::Archived, .. }
        )
    }

    /// What was answered, for people.
    pub(crate) fn answer(self) -> String {
        match self {
            Self::Refused { answer, .. } | Self::Busy { answer, .. } => answer,
            Self::Unsupported(what) => format!("the place cannot {what}"),
            Self::Unreadable(error) | Self::Lost(error) => error.to_string(),
            Self::NotFound | Self::Taken | Self::Full { .. } => "the place refuses it".to_owned(),
        }
    }

    /// What the caller of a backend gets when no further attempt is made.
    pub(crate) fn into_error(
        self,
        operation: Operation,
        name: Option<&ObjectName>,
        place: &str,
    ) -> BackendError {
        let what = || name.map_or_else(|| place.to_owned(), |name| format!("{name} at {place}"));
        match (self, name) {
            (Self::NotFound, Some(name)) => BackendError::NotFound { name: name.clone() },
            (Self::NotFound, None) => BackendError::Refused {
                operation,
                what: place.to_owned(),
                refusal: Refusal::NoSuchPlace,
                answer: "it does not exist".to_owned(),
            },
            (Self::Taken, Some(name)) => BackendError::AlreadyExists { name: name.clone() },
            (Self::Full { may_exist }, Some(name)) => {
                BackendError::NoSpace { name: name.clone(), may_exist }
            }
            (Self::Unsupported(ability), Some(name)) => {
                BackendError::Unsupported { place: place.to_owned(), ability, name: name.clone() }
            }
            (Self::Unreadable(source), Some(name)) => {
                BackendError::Unreadable { name: name.clone(), source }
            }
            (Self::Refused { refusal, answer }, _) => {
                BackendError::Refused { operation, what: what(), refusal, answer }
            }
            (Self::Busy { answer, .. }, _) => {
                let source = io::Error::new(io::ErrorKind::ResourceBusy, answer);
                BackendError::Io { operation, what: what(), source }
            }
            (Self::Lost(source) | Self::Unreadable(source), _) => {
                BackendError::Io { operation, what: what(), source }
            }
            (Self::Taken, None) => Self::answered("it exists already", operation, what()),
            (Self::Full { .. }, None) => Self::answered("it is full", operation, what()),
            (Self::Unsupported(ability), None) => {
                Self::answered(&format!("it cannot {ability}"), operation, what())
            }
        }
    }

    fn answered(answer: &str, operation: Operation, what: String) -> BackendError {
        let answer = answer.to_owned();
        BackendError::Refused { operation, what, refusal: Refusal::Other, answer }
    }
}
