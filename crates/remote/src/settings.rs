//! What a person chose for connections, and what this machine lends to them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strongroom_backend::{Judge, ObjectName};
use strongroom_base::{Cancel, Clock, Entropy};

use crate::rate::Rate;

/// The environment's variables as the command line read them: some have credentials.
#[derive(Clone, Default)]
pub struct Variables(BTreeMap<OsString, OsString>);

/// What a person chose for connections, and what this machine lends to them.
#[derive(Clone)]
pub struct Settings {
    /// The environment's variables.
    pub variables: Variables,
    /// Limits of bytes a second.
    pub rate: Rate,
    /// At most this many requests at a time, instead of what suits the kind of place.
    pub connections: Option<usize>,
    /// For how long a request is repeated that gets no answer.
    pub patience: Duration,
    /// A request to stop: it ends what is waiting.
    pub cancel: Cancel,
    /// The time, for signatures and for certificates.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for temporary names and for waiting times.
    pub entropy: Arc<dyn Entropy>,
    /// Whether a name was drawn by chance. Only one creator knows it, so some places need fewer
    /// requests.
    pub is_drawn: fn(&ObjectName) -> bool,
    /// Says which of several copies of an object is whole.
    pub judge: Judge,
}

impl Settings {
    /// For how long a request is repeated by default. A router starts again within this time.
    pub const PATIENCE: Duration = Duration::from_secs(300);
}

impl Variables {
    /// These variables.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self(variables.into_iter().collect())
    }

    /// A variable that is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// A variable that is text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.to_str()
    }

    /// A file in the user's home folder.
    pub(crate) fn in_home(&self, path: &str) -> Option<PathBuf> {
        Some(PathBuf::from(self.get("HOME")?).join(path))
    }
}

impl std::fmt::Debug for Variables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may be secrets.
        f.debug_set().entries(self.0.keys()).finish()
    }
}
