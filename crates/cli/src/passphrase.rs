//! Where the passphrase comes from.

use std::path::PathBuf;
use std::process::Command;

use strongroom_base::{Cancel, Cancelled};
use strongroom_repository::RepositoryError;
use zeroize::Zeroizing;

use crate::exit::{CliError, Exit};
use crate::prompt::{PromptError, ask};
use crate::terminal::{printable, write_wrapped};

/// A passphrase, wiped from memory after use.
pub type Passphrase = Zeroizing<Vec<u8>>;

/// How the passphrase is given.
#[derive(Debug, Clone, clap::Args)]
pub struct PassphraseArgs {
    /// Read the passphrase from the first line of this file
    #[arg(
        long,
        short = 'p',
        global = true,
        env = "STRONGROOM_PASSWORD_FILE",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Repository"
    )]
    password_file: Option<PathBuf>,
    /// Read the passphrase from the first line that this shell command prints
    #[arg(
        long,
        global = true,
        env = "STRONGROOM_PASSWORD_COMMAND",
        hide_env_values = true,
        value_name = "COMMAND",
        help_heading = "Repository"
    )]
    password_command: Option<String>,
    /// Read the passphrase from this credential of systemd: of the unit, or of the machine
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        conflicts_with_all = ["password_file", "password_command"],
        help_heading = "Repository"
    )]
    password_credential: Option<String>,
}

/// How many times a person is asked.
const ATTEMPTS_MAX: usize = 3;
const VARIABLE: &str = "STRONGROOM_PASSWORD";
/// The options that have a passphrase, by their names in a profile.
pub const SOURCES: [&str; 3] = ["password-file", "password-command", "password-credential"];
/// The variables.
pub const VARIABLES: [&str; 3] =
    [VARIABLE, "STRONGROOM_PASSWORD_FILE", "STRONGROOM_PASSWORD_COMMAND"];
const HINT: &str =
    "set STRONGROOM_PASSWORD, give --password-file or --password-command, or run it in a terminal";

impl PassphraseArgs {
    /// The passphrase of a repository that exists.
    pub fn existing(&self, place: &str, cancel: &Cancel) -> Result<Passphrase, CliError> {
        match self.given()? {
            Some(passphrase) => Ok(passphrase),
            None => prompt(&format!("Passphrase of {}: ", printable(place.as_ref())), cancel),
        }
    }

    /// Opens a repository with its passphrase. A person who types another one is asked again.
    pub fn open<T>(
        &self,
        place: &str,
        cancel: &Cancel,
        mut open: impl FnMut(&[u8]) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        if let Some(passphrase) = self.given()? {
            return open(&passphrase);
        }
        for _ in 1..ATTEMPTS_MAX {
            match open(&self.existing(place, cancel)?) {
                Err(error) if error.is_of_passphrase() => {
                    write_wrapped("", "This is not the passphrase; try again.");
                }
                other => return other,
            }
        }
        open(&self.existing(place, cancel)?)
    }

    /// A new passphrase for a new repository.
    pub fn new_repository(&self, cancel: &Cancel) -> Result<Passphrase, CliError> {
        match self.given()? {
            Some(passphrase) => not_empty(passphrase),
            None => prompt_twice("New passphrase: ", cancel),
        }
    }

    /// Sees that commands that this one starts do not inherit a file descriptor that has it.
    pub fn keep_from_children(&self) {
        let name = self.password_file.as_ref().and_then(|path| path.to_str());
        let number = name.and_then(|name| name.strip_prefix("/dev/fd/")?.parse::<i32>().ok());
        if let Some(number) = number.filter(|number| *number > 2) {
            // SAFETY: no memory is touched; if there is no such descriptor, nothing happens.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }

    fn given(&self) -> Result<Option<Passphrase>, CliError> {
        if let Some(name) = &self.password_credential {
            return from_credential(name).map(Some);
        }
        // What was typed comes before what a variable says.
        let typed_command = self.password_command.as_ref().filter(|command| {
            std::env::var_os("STRONGROOM_PASSWORD_COMMAND").as_deref() != Some(command.as_ref())
        });
        let of_variable = |path: &PathBuf| {
            std::env::var_os("STRONGROOM_PASSWORD_FILE").as_deref() == Some(path.as_os_str())
        };
        let is_outdone = |path: &&PathBuf| typed_command.is_some() && of_variable(path);
        if let Some(path) = self.password_file.as_ref().filter(|path| !is_outdone(path)) {
            let text = std::fs::read(path).map_err(|error| {
                let message =
                    format!("cannot read the passphrase file {}: {error}", path.display());
                CliError::new(Exit::Passphrase, message, "check --password-file")
            })?;
            return Ok(Some(first_line(text)));
        }
        if let Some(command) = &self.password_command {
            return from_command(command, "check --password-command").map(Some);
        }
        Ok(std::env::var_os(VARIABLE)
            .map(|value| Zeroizing::new(std::os::unix::ffi::OsStringExt::into_vec(value))))
    }
}

/// Whether a variable says where the passphrase is.
pub fn is_in_environment() -> bool {
    VARIABLES.iter().any(|name| std::env::var_os(name).is_some())
}

/// A new passphrase for a further or changed key: from a file, or asked for twice.
pub fn new_passphrase(file: Option<&PathBuf>, cancel: &Cancel) -> Result<Passphrase, CliError> {
    match file {
        Some(path) => {
            let text = std::fs::read(path).map_err(|error| {
                let message = format!("cannot read {}: {error}", path.display());
                CliError::new(Exit::Passphrase, message, "check --new-password-file")
            })?;
            not_empty(first_line(text))
        }
        None => prompt_twice("New passphrase: ", cancel),
    }
}

/// The passphrase of another program's repository, from a file or from what a command prints. None
/// if neither is given.
pub fn foreign_passphrase(
    file: Option<&PathBuf>,
    command: Option<&str>,
) -> Result<Option<Passphrase>, CliError> {
    match (file, command) {
        (Some(path), _) => {
            let text = std::fs::read(path).map_err(|error| {
                let message =
                    format!("cannot read the passphrase file {}: {error}", path.display());
                CliError::new(Exit::Passphrase, message, "check --from-password-file")
            })?;
            Ok(Some(first_line(text)))
        }
        (None, Some(command)) => from_command(command, "check --from-password-command").map(Some),
        (None, None) => Ok(None),
    }
}

/// Asks for the passphrase of another program's repository.
pub fn ask_foreign(place: &str, cancel: &Cancel) -> Result<Passphrase, CliError> {
    prompt(&format!("Passphrase of {}: ", printable(place.as_ref())), cancel)
}

/// A credential of systemd: `strongroom schedule` has the unit load it; at a shell, root finds it
/// where the machine keeps it.
fn from_credential(name: &str) -> Result<Passphrase, CliError> {
    let fail = |what: String| {
        let hint = "`systemd-creds encrypt FILE /etc/credstore.encrypted/NAME` makes one, as root";
        CliError::new(Exit::Passphrase, what, hint)
    };
    if name.is_empty() || name.contains('/') {
        return Err(fail(format!("\"{name}\" is no name of a credential")));
    }
    let of_unit = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let places = of_unit.into_iter().chain([PathBuf::from("/etc/credstore")]);
    for path in places.map(|folder| folder.join(name)) {
        match std::fs::read(&path) {
            Ok(text) => return Ok(first_line(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(format!("cannot read {}: {error}", path.display()))),
        }
    }
    let sealed = PathBuf::from("/etc/credstore.encrypted").join(name);
    if !sealed.exists() {
        return Err(fail(format!("there is no credential \"{name}\"")));
    }
    let mut command = Command::new("systemd-creds");
    command.arg("decrypt").arg(format!("--name={name}")).arg(sealed).arg("-");
    let output = command.stdin(std::process::Stdio::null()).output();
    let output = output.map_err(|error| fail(format!("cannot run systemd-creds: {error}")))?;
    match output.status.success() {
        true => Ok(first_line(output.stdout)),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(fail(format!("systemd-creds cannot open the credential \"{name}\": {said}")))
        }
    }
}

fn from_command(command: &str, hint: &str) -> Result<Passphrase, CliError> {
    let fail = |what: String| CliError::new(Exit::Passphrase, what, hint);
    let output = Command::new("/bin/sh")
        .args(["-c", command])
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| fail(format!("cannot run the passphrase command: {error}")))?;
    if output.status.success() {
        Ok(first_line(output.stdout))
    } else {
        Err(fail(format!("the passphrase command failed: {}", output.status)))
    }
}

fn first_line(text: Vec<u8>) -> Passphrase {
    let mut text = Zeroizing::new(text);
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    text.truncate(end);
    if text.last() == Some(&b'\r') {
        text.pop();
    }
    text
}

fn prompt(question: &str, cancel: &Cancel) -> Result<Passphrase, CliError> {
    ask(question, cancel).map_err(|error| match error {
        PromptError::Cancelled => RepositoryError::Cancelled(Cancelled).into(),
        PromptError::NoTerminal => CliError::new(Exit::Passphrase, "no passphrase was given", HINT),
    })
}

/// Asks until the same passphrase was typed twice.
fn prompt_twice(question: &str, cancel: &Cancel) -> Result<Passphrase, CliError> {
    for _ in 0..ATTEMPTS_MAX {
        let first = prompt(question, cancel)?;
        if first.is_empty() {
            write_wrapped("", "An empty passphrase protects nothing; try again.");
            continue;
        }
        if first == prompt("The same again: ", cancel)? {
            return Ok(first);
        }
        write_wrapped("", "The two passphrases differ; try again.");
    }
    Err(CliError::new(Exit::Passphrase, "no passphrase was given", HINT))
}

fn not_empty(passphrase: Passphrase) -> Result<Passphrase, CliError> {
    if passphrase.is_empty() {
        let message = "an empty passphrase protects nothing";
        return Err(CliError::new(Exit::Passphrase, message, "choose one that is hard to guess"));
    }
    Ok(passphrase)
}
