//! Passwords and keys: from a variable, from a file that it names, or from a command's output.
//!
//! Never from the command line or from an address: every user of the machine can read these.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use strongroom_backend::Refusal;
use strongroom_base::Stopwatch;
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
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// How long the output of a command is waited for that has ended: what it started may hold it open.
const LAST_WORDS: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(10);

fn from_command(command: &str, variable: &str) -> Result<Zeroizing<String>, Failure> {
    let failed = |reason: String| missing(format!("the command in {variable} failed: {reason}"));
    let output = output_of(command, PATIENCE).map_err(failed)?;
    first_line(output.as_slice()).map_err(failed)
}

/// What a command of the shell prints. One that waits for an answer that does not come must not keep
/// all else waiting.
///
/// # Errors
///
/// If it fails, prints too much or takes too long: in words for people.
pub(crate) fn output_of(command: &str, patience: Duration) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let output = child.stdout.take().expect("its output is a pipe");
    let collected = Arc::new(Mutex::new(Zeroizing::new(Vec::with_capacity(1024))));
    let shared = collected.clone();
    let reading = std::thread::spawn(move || collect(output, &shared));
    let began = Stopwatch::start();
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if began.elapsed() < patience => std::thread::sleep(LOOK),
            None => {
                // It may have ended by itself.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it has not ended after {} s", patience.as_secs()));
            }
        }
    };
    let ended = Stopwatch::start();
    while !reading.is_finished() && ended.elapsed() < LAST_WORDS {
        std::thread::sleep(LOOK);
    }
    if !status.success() {
        return Err(status.to_string());
    }
    let bytes = std::mem::take(&mut *collected.lock().unwrap_or_else(PoisonError::into_inner));
    match bytes.len() as u64 > SECRET_BYTES_MAX {
        true => Err(format!("it is longer than {SECRET_BYTES_MAX} bytes")),
        false => Ok(bytes),
    }
}

/// Keeps what comes, up to a byte too much; the rest is read and dropped, so that the command ends.
fn collect(mut source: impl Read, into: &Mutex<Zeroizing<Vec<u8>>>) {
    let mut buffer = Zeroizing::new([0; 1024]);
    while let Ok(count @ 1..) = source.read(&mut *buffer) {
        let mut into = into.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = (SECRET_BYTES_MAX as usize + 1).saturating_sub(into.len());
        into.extend_from_slice(&buffer[..count.min(rest)]);
    }
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

    #[test]
    fn a_command_keeps_nothing_waiting_for_longer_than_it_may() {
        let began = Stopwatch::start();
        let slow = output_of("echo x; exec sleep 600", Duration::from_millis(200));
        assert!(slow.as_ref().is_err_and(|why| why.contains("has not ended")), "{slow:?}");
        // What it leaves running has its output too.
        let left = output_of("sleep 30 2>/dev/null & echo x", PATIENCE).unwrap();
        assert_eq!(left.as_slice(), b"x\n");
        assert!(output_of("head -c 100000 /dev/zero", PATIENCE).unwrap_err().contains("longer"));
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
