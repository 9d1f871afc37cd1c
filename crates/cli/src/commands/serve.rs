//! `strongroom serve`

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::json;
use strongroom_backend::BackendError;
use strongroom_base::{Cancel, Printable, SystemClock};
use strongroom_serve::{
    AuditLog, Checks, Door, Entrance, House, HouseError, Identity, Limits, ListenOptions, Role,
    Room, Visitor, attend, check_log, listen,
};

use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::terminal::path_json;

/// How often standard input is left to see whether a stop was requested.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// What is served, and to whom.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Serve one repository to one client on standard input and output, as a command of ssh
    #[arg(long, requires = "path", conflicts_with_all = ["house", "listen"])]
    stdio: bool,
    /// The folder of that repository
    #[arg(long, value_name = "FOLDER", requires = "stdio")]
    path: Option<PathBuf>,
    /// What the client may do: put-only, append, restore, audit, keep or admin
    #[arg(long, value_name = "ROLE", requires = "stdio", default_value = "append")]
    role: Role,
    /// Refuse what would make the repository larger than this
    #[arg(long, value_name = "SIZE", requires = "stdio", value_parser = size)]
    quota: Option<u64>,
    /// Write what the client does to this file
    #[arg(long, value_name = "FILE", requires = "stdio")]
    log: Option<PathBuf>,

    /// Serve the rooms of this folder over TLS to the owners of its tokens
    #[arg(long, value_name = "FOLDER", required_unless_present = "stdio")]
    house: Option<PathBuf>,
    /// Listen at this address
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:8443")]
    listen: SocketAddr,
    /// The certificate (PEM) [default: one of its own, made at the first start]
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// A name or address of this machine for a certificate of its own; may be repeated
    #[arg(long = "name", value_name = "HOST", conflicts_with = "certificate")]
    names: Vec<String>,
    /// Verify all rooms this often, and repair from parity what is damaged
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "7d", conflicts_with = "stdio")]
    verify_every: Duration,
    /// Show numbers for Prometheus at this address, without encryption
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "stdio")]
    metrics: Option<SocketAddr>,
    /// Check that the log of the house was not changed, and do not serve
    #[arg(long, requires = "house")]
    check_log: bool,
}

fn size(text: &str) -> Result<u64, String> {
    strongroom_base::units::parse_bytes(text).map_err(|error| error.to_string())
}

fn span(text: &str) -> Result<Duration, String> {
    let nanos = crate::spans::parse(text)?;
    match u64::try_from(nanos) {
        Ok(nanos) if nanos > 0 => Ok(Duration::from_nanos(nanos)),
        _ => Err("it must be longer than nothing".to_owned()),
    }
}

impl Args {
    /// Whether standard output is for the protocol.
    pub fn is_stdio(&self) -> bool {
        self.stdio
    }
}

/// Serves.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    match (&args.house, &args.path) {
        (Some(house), _) if args.check_log => checked(context, house),
        (Some(house), _) => serve_house(context, house, args),
        (None, Some(path)) => serve_stdio(context, path, args),
        (None, None) => unreachable!("the command line asks for one of them"),
    }
}

fn checked(context: &Context, path: &Path) -> Result<ExitCode, CliError> {
    let house = House::open(path, Arc::new(SystemClock)).map_err(failed)?;
    let (lines, hash) = check_log(&house.log_path()).map_err(|error| failed(error.into()))?;
    let log = house.log_path();
    context.terminal.json(&json!({ "event": "summary", "lines": lines, "hash": hash }))?;
    context.terminal.line(format!(
        "{}: {lines} lines, each follows from the one before; the last hash is {hash}",
        Printable::path(&log)
    ))?;
    Ok(Exit::Done.into())
}

fn serve_house(context: &Context, path: &Path, args: &Args) -> Result<ExitCode, CliError> {
    let house = House::serve(path, Checks::Envelopes, Arc::new(SystemClock)).map_err(failed)?;
    let identity = match (&args.certificate, &args.key) {
        (Some(certificate), Some(key)) => Identity::read(certificate, key),
        _ => Identity::of_house(&house, &names(&args.names)),
    }
    .map_err(failed)?;
    let listener = bind(args.listen)?;
    let metrics = args.metrics.map(bind).transpose()?;
    let address = listener.local_addr()?;
    context.terminal.json(&json!({
        "event": "serving",
        "house": path_json(path),
        "address": address.to_string(),
        "certificate": path_json(&identity.file),
    }))?;
    context.terminal.line(format!("serving {} at {address}", Printable::path(path)))?;
    if identity.is_own {
        context.terminal.line(format!(
            "clients trust this server if STRONGROOM_CA_FILE names a copy of {}",
            Printable::path(&identity.file)
        ))?;
    }
    let options = ListenOptions { metrics, verify_every: Some(args.verify_every) };
    listen(&house, &listener, identity, &options, &context.cancel).map_err(failed)?;
    context.terminal.line("all that was asked for is answered")?;
    Ok(Exit::Done.into())
}

/// The names in a certificate of its own.
fn names(given: &[String]) -> Vec<String> {
    if !given.is_empty() {
        return given.to_vec();
    }
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(Into::into).to_vec();
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if !machine.is_empty() && !names.contains(&machine) {
        names.push(machine);
    }
    names
}

fn bind(address: SocketAddr) -> Result<TcpListener, CliError> {
    TcpListener::bind(address).map_err(|error| {
        CliError::new(
            Exit::Failed,
            format!("cannot listen at {address}: {error}"),
            "choose another address, or end the program that uses it",
        )
    })
}

fn failed(error: HouseError) -> CliError {
    let hint = match &error {
        HouseError::Io { .. } | HouseError::NoHouse(_) => {
            "check the path, and who may read and write it"
        }
        HouseError::Log(_) => {
            "a house has one server; if its log was changed, keep it and begin a new one"
        }
        HouseError::Token(_) => "`strongroom token list` shows the tokens",
        HouseError::RoomName(_) => "such as `laptops` or `db-1.example`",
    };
    CliError::new(Exit::Failed, error.to_string(), hint)
}

/// A room with one door: who is here may enter.
struct OneRoom {
    room: Arc<Room>,
    visitor: Visitor,
}

impl Door for OneRoom {
    fn enter(&self, _token: &str, _room: &str) -> Result<Entrance, BackendError> {
        Ok(Entrance { room: self.room.clone(), visitor: self.visitor.clone() })
    }
}

fn serve_stdio(context: &Context, path: &Path, args: &Args) -> Result<ExitCode, CliError> {
    let log = match &args.log {
        Some(log) => {
            // The server of a client that is gone may still be there.
            let log = AuditLog::open_shared(log, Arc::new(SystemClock));
            Some(Arc::new(log.map_err(|error| failed(error.into()))?))
        }
        None => None,
    };
    let room = Arc::new(Room::new("-", path, Checks::Envelopes, log));
    let visitor = Visitor { name: "ssh".to_owned(), role: args.role, quota: args.quota };
    let door = OneRoom { room, visitor };
    let mut output = Unbuffered;
    let mut input = Watched { cancel: &context.cancel };
    let attended = attend(&mut input, &mut output, &door, &Limits::default(), |_| ());
    attended.map_err(|error| {
        CliError::new(
            Exit::Failed,
            format!("the connection broke: {error}"),
            "this command speaks to `strongroom --repo ssh://HOST/PATH` at the other end",
        )
    })?;
    Ok(Exit::Done.into())
}

/// Standard input, which ends when a stop is requested: what was asked for is answered then.
struct Watched<'a> {
    cancel: &'a Cancel,
}

impl Read for Watched<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let input = io::stdin();
        while !self.cancel.is_cancelled() {
            let mut wanted = [PollFd::new(&input, PollFlags::IN)];
            match poll(&mut wanted, Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(rustix::io::read(&input, into)?),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(0)
    }
}

/// Standard output without the standard library's buffer, which looks for ends of lines.
struct Unbuffered;

impl Write for Unbuffered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(io::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
