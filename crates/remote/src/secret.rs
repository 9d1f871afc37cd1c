//! Passwords and keys: from a variable, from a file that it names, or from a command's output.
//!
//! Never from the command line or from an address: every user of the machine can read these.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use strongroom_backend::Refusal;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::settings::Variables;

/// Files and answers of more bytes hold no password.
const SECRET_BYTES_MAX: u64 = 64 << 10;

impl Variables {
    /// The secret `NAME`: in the variable `NAME`, or in the first line of the file that `NAME_FILE`
    /// names, or in the first line that the command in `NAME_COMMAND` prints.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or the command fails: in words for people.
    pub fn secret(&self, name: &str) -> Result<Option<Zeroizing<String>>, String> {
        find(self, name).map_err(|failure| failure.answer())
    }
}

/// The secret `NAME`: the variable `NAME`, the first line of the file in `NAME_FILE`, or the first
/// line that the command in `NAME_COMMAND` prints. None if none of these is set.
pub(crate) fn find(
    variables: &Variables,
    name: &str,
) -> Result<Option<Zeroizing<String>>, Failure> {
    if let Some(secret) = variables.get(name) {
        let text = secret.to_str().ok_or_else(|| missing(format!("{name} is not UTF-8")))?;
        return Ok(Some(Zeroizing::new(text.to_owned())));
    }
    let (file, command) = (format!("{name}_FILE"), format!("{name}_COMMAND"));
    if let Some(path) = variables.get(&file) {
        return from_file(Path::new(path), &file).map(Some);
    }
    let Some(text) = variables.get(&command) else { return Ok(None) };
    let text = text.to_str().ok_or_else(|| missing(format!("{command} is not UTF-8")))?;
    from_command(text, &command).map(Some)
}

fn from_file(path: &Path, variable: &str) -> Result<Zeroizing<String>, Failure> {
    let failed = |reason: String| missing(format!("{} ({variable}): {reason}", path.display()));
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    first_line(file).map_err(failed)
}

/// How long a command may take to give a secret: a person may have to type something.
const PATIENCE: Duration = Duration::from_secs(120);

fn from_command(command: &str, variable: &str) -> Result<Zeroizing<String>, Failure> {
    let failed = |reason: String| missing(format!("the command in {variable} failed: {reason}"));
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    // One that waits for an answer that does not come must not keep all else waiting. What it started may hold its
    // output open, so that is read beside.
    let output = child.stdout.take().expect("its output is a pipe");
    let (give, line) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || give.send(first_line(output)));
    let Ok(line) = line.recv_timeout(PATIENCE) else {
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed(format!("it has not ended after {} s", PATIENCE.as_secs())));
    };
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    line.map_err(failed)
}

fn first_line(source: impl Read) -> Result<Zeroizing<String>, String> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(1024));
    source.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > SECRET_BYTES_MAX {
        return Err(format!("it is longer than {SECRET_BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(Zeroizing::new(line.to_owned())),
        _ => Err("its first line is empty".to_owned()),
    }
}

fn missing(answer: String) -> Failure {
    Failure::Refused { refusal: Refusal::NoCredentials, answer }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        Variables::new(pairs.iter().map(|(name, value)| (name.into(), value.into())))
    }

    fn found(pairs: &[(&str, &str)]) -> Option<String> {
        find(&variables(pairs), "WORD").unwrap().map(|secret| secret.to_string())
    }

    #[test]
    fn a_secret_comes_from_each_of_its_three_sources() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("word");
        std::fs::write(&file, "from a file\r\nsecond line\n").unwrap();
        let file = file.to_str().unwrap();
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("WORD", "x"), ("WORD_FILE", file)]).as_deref(), Some("x"));
        assert_eq!(found(&[("WORD", ""), ("WORD_FILE", file)]).as_deref(), Some("from a file"));
        assert_eq!(found(&[("WORD_COMMAND", "printf 'a b'")]).as_deref(), Some("a b"));
    }

    #[test]
    fn a_source_without_a_secret_is_named() {
        for (name, value, says) in [
            ("WORD_FILE", "/dev/null", "first line is empty"),
            ("WORD_FILE", "/dev/zero", "longer"),
            ("WORD_FILE", "/does/not/exist", "No such file"),
            ("WORD_COMMAND", "echo x; exit 3", "exit status: 3"),
            ("WORD_COMMAND", "true", "first line is empty"),
        ] {
            let failure = find(&variables(&[(name, value)]), "WORD").unwrap_err();
            let Failure::Refused { answer, .. } = failure else { panic!("{failure:?}") };
            assert!(answer.contains(says) && answer.contains(name), "{answer}");
        }
    }
}
