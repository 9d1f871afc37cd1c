//! A setting: an option as it is written in a profile.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::{Arg, ArgAction};

use crate::passphrase;

/// Where something is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The file.
    pub file: PathBuf,
    /// Counted from one.
    pub line: usize,
    /// Counted from one, in characters.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column } = self;
        write!(f, "{}, line {line}, column {column}", strongroom_base::Printable::path(file))
    }
}

/// What a setting says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// An option without a value: given, or not.
    Flag(bool),
    /// The values, each as it would be typed.
    Words(Vec<String>),
}

/// An option as it is written in a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The long name of the option.
    pub name: String,
    /// The command whose section it is in, if it is not about all.
    pub section: Option<String>,
    /// What it is set to.
    pub value: Value,
    /// The value as TOML writes it, on one line.
    pub written: String,
    /// Where its name is written.
    pub position: Position,
}

impl Setting {
    /// Whether it says where the passphrase is.
    pub fn is_passphrase(&self) -> bool {
        passphrase::SOURCES.contains(&&*self.name)
    }

    /// As arguments with this long name.
    pub fn as_options(&self, long: &str) -> Vec<OsString> {
        match &self.value {
            Value::Flag(true) => vec![format!("--{long}").into()],
            Value::Flag(false) => Vec::new(),
            Value::Words(words) => {
                words.iter().map(|word| format!("--{long}={}", at_home(word)).into()).collect()
            }
        }
    }

    /// As arguments without a name.
    pub fn as_words(&self) -> Vec<OsString> {
        match &self.value {
            Value::Flag(_) => Vec::new(),
            Value::Words(words) => words.iter().map(|word| at_home(word).into()).collect(),
        }
    }

    /// Why an option cannot have this value, if it cannot.
    pub fn misfit(&self, arg: &Arg) -> Option<&'static str> {
        let takes_value = arg.get_action().takes_values();
        let takes_several = matches!(arg.get_action(), ArgAction::Append)
            || arg.get_num_args().is_some_and(|count| count.max_values() > 1);
        match &self.value {
            Value::Flag(_) if takes_value => Some("it needs a value"),
            Value::Words(_) if !takes_value => Some("it is true or false"),
            Value::Words(words) if words.len() > 1 && !takes_several => Some("it has one value"),
            _ => None,
        }
    }
}

/// No shell replaces `~` in a file.
pub fn at_home(word: &str) -> String {
    match (word.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => word.to_owned(),
    }
}
