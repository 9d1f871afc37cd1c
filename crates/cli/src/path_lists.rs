//! Lists of paths to back up, in files or on standard input.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::exit::{CliError, Exit};
use crate::terminal::printable;

/// Files that list what is stored.
#[derive(Debug, Clone, clap::Args)]
#[group(id = "lists", multiple = true, conflicts_with = "stdin")]
pub struct PathLists {
    /// Store the paths that this file lists, one per line; blank lines and those that begin with #
    /// are ignored; - is standard input
    #[arg(long, value_name = "FILE")]
    files_from: Vec<PathBuf>,
    /// Store the paths that this file lists, each with a NUL behind it, as `find -print0` writes
    /// them; - is standard input
    #[arg(long, visible_alias = "files-from-raw", value_name = "FILE")]
    files_from0: Vec<PathBuf>,
}

impl PathLists {
    /// The paths in all of them. It is an error if there are lists and all are empty.
    pub fn read(&self) -> Result<Vec<PathBuf>, CliError> {
        let lists = || self.files_from.iter().chain(&self.files_from0);
        let from_input = lists().filter(|list| is_input(list)).count();
        if from_input > 1 {
            let message = "standard input can be only one list";
            return Err(CliError::new(Exit::Failed, message, "give \"-\" once"));
        }
        let mut paths = Vec::new();
        for list in &self.files_from {
            paths.extend(of_lines(&contents(list)?));
        }
        for list in &self.files_from0 {
            paths.extend(names(&contents(list)?, 0).map(PathBuf::from));
        }
        let bytes: usize = paths.iter().map(|path| path.as_os_str().len()).sum();
        match lists().next() {
            Some(list) if bytes > PATH_BYTES_MAX => {
                let message = format!("{} lists too many paths for a snapshot", shown(list));
                let hint = "list directories rather than the files in them, or several lists for \
                            several snapshots";
                Err(CliError::new(Exit::Failed, message, hint))
            }
            Some(list) if paths.is_empty() => {
                let message = format!("no path is listed in {}", shown(list));
                Err(CliError::new(Exit::Failed, message, "nothing was stored; check the list"))
            }
            _ => Ok(paths),
        }
    }
}

/// A snapshot, of 4 MiB at most, names its paths.
const PATH_BYTES_MAX: usize = 3 << 20;

fn is_input(list: &Path) -> bool {
    list.as_os_str() == OsStr::new("-")
}

fn shown(list: &Path) -> String {
    if is_input(list) { "standard input".to_owned() } else { printable(list) }
}

fn contents(list: &Path) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = match is_input(list) {
        true => std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes),
        false => std::fs::read(list),
    };
    read.map_err(|error| {
        let message = format!("cannot read the list of paths {}: {error}", shown(list));
        CliError::new(Exit::Failed, message, "check --files-from; nothing was stored")
    })
}

fn of_lines(text: &[u8]) -> impl Iterator<Item = PathBuf> {
    names(text, b'\n').filter(|line| line.as_encoded_bytes()[0] != b'#').map(PathBuf::from)
}

/// What is between these bytes, if it is something.
fn names(text: &[u8], between: u8) -> impl Iterator<Item = OsString> {
    let names = text.split(move |byte| *byte == between).filter(|name| !name.is_empty());
    names.map(|name| OsString::from_vec(name.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_path_and_all_bytes_but_nul_are_of_one() {
        let lines = |text: &str| of_lines(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(lines("/a\n\n# note\n b \n\n/c d"), ["/a", " b ", "/c d"].map(PathBuf::from));
        assert_eq!(lines(""), Vec::<PathBuf>::new());
        let raw: Vec<OsString> = names(b"#a\nb\0\0/c\0", 0).collect();
        assert_eq!(raw, ["#a\nb", "/c"].map(OsString::from));
    }
}
