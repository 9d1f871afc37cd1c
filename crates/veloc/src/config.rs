//! What the program is configured to do: VELOC's own keys as far as they mean something here, and two
//! of ours. As in VELOC, `VELOC_KEY` in the environment comes before `key` in the file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::VelocError;

/// Bytes that a file's name may have (`strongroom-bucket`).
const FILE_NAME_BYTES_MAX: usize = 64;

/// What is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `strongroom_file`: the name of the file; otherwise that of the program.
    pub file: String,
    /// `strongroom_socket`: the agent's; otherwise as the library finds it.
    pub socket: Option<PathBuf>,
    /// `mode = sync`: a checkpoint ends when it is committed.
    pub is_sync: bool,
    /// `scratch`: where routed files are.
    pub scratch: Option<PathBuf>,
}

impl Config {
    /// Reads the configuration; without a path, the environment alone.
    pub fn read(path: Option<&Path>) -> Result<Self, VelocError> {
        let text = match path {
            Some(path) => fs::read_to_string(path)
                .map_err(|source| VelocError::Config { path: path.to_owned(), source })?,
            None => String::new(),
        };
        Self::of(&keys(&text), environment, program_name())
    }

    fn of(
        keys: &BTreeMap<String, String>,
        environment: impl Fn(&str) -> Option<String>,
        program: String,
    ) -> Result<Self, VelocError> {
        let value = |key: &str| {
            let named = environment(&format!("VELOC_{}", key.to_uppercase()));
            let value = named.or_else(|| keys.get(key).cloned());
            value.filter(|value| !value.is_empty())
        };
        let is_sync = match value("mode").as_deref() {
            None | Some("async") => false,
            Some("sync") => true,
            Some(other) => return Err(VelocError::Mode(other.to_owned())),
        };
        Ok(Self {
            file: value("strongroom_file").unwrap_or(program),
            socket: value("strongroom_socket").map(PathBuf::from),
            is_sync,
            scratch: value("scratch").map(PathBuf::from),
        })
    }
}

/// `key = value` in each line; `#` and `;` begin comments, sections mean nothing.
fn keys(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with(['#', ';', '[']));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs
        .map(|(key, value)| {
            let value = value.split_once(" ;").map_or(value, |(value, _)| value);
            (key.trim().to_lowercase(), value.trim().to_owned())
        })
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "VELOC is configured by the environment as well")]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The name of this program.
fn program_name() -> String {
    let program = fs::read_link("/proc/self/exe").unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let name = &name[..name.floor_char_boundary(FILE_NAME_BYTES_MAX)];
    if name.is_empty() { "veloc".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_comes_before_the_file() {
        let text =
            "# of a test\n[veloc]\nscratch = /tmp/scratch ; local\npersistent=/p\n\nmode = sync\n";
        let config = |environment: &[(&str, &str)]| {
            let named = |name: &str| {
                let found = environment.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            Config::of(&keys(text), named, "heat".to_owned())
        };
        let read = config(&[]).unwrap();
        let scratch = Some(PathBuf::from("/tmp/scratch"));
        let expected = Config { file: "heat".into(), socket: None, is_sync: true, scratch };
        assert_eq!(read, expected);
        let read = config(&[("VELOC_MODE", "async"), ("VELOC_STRONGROOM_FILE", "f")]).unwrap();
        assert_eq!((read.is_sync, read.file.as_str()), (false, "f"));
        assert!(matches!(config(&[("VELOC_MODE", "later")]), Err(VelocError::Mode(_))));
    }
}
