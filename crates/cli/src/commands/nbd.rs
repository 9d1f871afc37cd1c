//! `strongroom nbd`

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use serde_json::json;
use strongroom_access::{Night, Nights, NightsOptions};
use strongroom_base::units::{bytes_text, counted};
use strongroom_nbd::{Listener, Server, ServerOptions};
use strongroom_repository::{Repository, list_snapshots};

use crate::context::{Context, ReplicaArgs};
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::scratch::ScratchFolder;
use crate::snapshot_arg::{NarrowingArgs, find_all};
use crate::terminal::{printable, printable_text, table};

/// What is offered, and where.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The snapshots whose disks are offered [default: all]
    #[arg(value_name = "SNAPSHOT")]
    snapshots: Vec<OsString>,
    /// Listen at this address of the loopback, where every user of this machine can connect
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10809")]
    listen: SocketAddr,
    /// Listen at a Unix socket, where only you can connect
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    socket: Option<PathBuf>,
    /// Let clients write; the repository keeps what it has
    #[arg(long)]
    writable: bool,
    /// Keep what clients write in this folder, for the next time [default: until the end]
    #[arg(long, value_name = "FOLDER", requires = "writable")]
    overlay: Option<PathBuf>,
    #[command(flatten)]
    narrowing: NarrowingArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

const HELP: &str = "\
The name of an export says which disk, and of which night:

  vm1/vda@2026-11-20   the disk /vm1/vda.raw of the newest snapshot of that day
  vm1/vda@0123abcd     of the snapshot whose id begins so
  vm1/vda              of the newest snapshot that has it; vm1/vda@latest means the same

Any file /FOLDER/NAME.raw of a snapshot is such a disk. New snapshots are offered as soon as they \
exist. It runs until Ctrl-C.";

/// How often the program looks if it was asked to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Disks that are shown, newest first.
const SHOWN_MAX: usize = 20;
/// Bytes of requests and answers in memory: with its caches, the server has 256 MiB at most.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// Offers them until the user asks to stop.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let repository = Arc::new(context.open_to_read(&args.replicas)?);
    let thrown_away = match (&args.overlay, args.writable) {
        (None, true) => Some(ScratchFolder::make(context)?),
        _ => None,
    };
    let overlays = thrown_away.as_ref().map(ScratchFolder::path).or(args.overlay.as_deref());
    if let Some(folder) = &args.overlay {
        make_overlays(folder)?;
    }
    let mut options = NightsOptions::new(TimeZone::system());
    options.narrowing = args.narrowing.resolve();
    options.overlays = overlays.map(Path::to_owned);
    options.only = only(&repository, args)?;
    let monitor = Arc::new(context.terminal.monitor_of_problems());
    let nights = Arc::new(Nights::open(repository, options, monitor)?);
    let disks = nights.list()?;
    if disks.is_empty() {
        return Err(CliError::new(
            Exit::Failed,
            "no snapshot has a disk: a file such as /vm1/vda.raw",
            "`strongroom image backup NAME IMAGE` stores the disks of a machine; `strongroom \
             snapshots` lists what there is",
        ));
    }
    let (listener, place) = listen(args)?;
    let server_options = ServerOptions { bytes_max: REQUEST_BYTES_MAX, ..ServerOptions::default() };
    let server = Server::start(listener, nights.clone(), server_options)?;
    show(context, &disks, &place, args.writable)?;
    while !context.cancel.is_cancelled() {
        std::thread::sleep(LOOK_EVERY);
    }
    let is_whole = server.stop();
    let flushed = nights.flush();
    if let (Some(folder), Err(error)) = (&args.overlay, flushed) {
        return Err(not_kept(folder, &error));
    }
    context.terminal.line("all that was asked for is answered")?;
    if !is_whole {
        context.terminal.note("a request was still waiting for the repository");
    }
    Ok(Exit::Done.into())
}

fn only(
    repository: &Repository,
    args: &Args,
) -> Result<Option<Vec<strongroom_base::SnapshotId>>, CliError> {
    if args.snapshots.is_empty() {
        return Ok(None);
    }
    let snapshots = list_snapshots(repository)?.snapshots;
    find_all(&args.snapshots, &args.narrowing, &snapshots).map(Some)
}

/// What was written into overlays that are kept did not all reach the disk.
pub fn not_kept(folder: &Path, error: &std::io::Error) -> CliError {
    let message = format!("not all that was written is in {}: {error}", printable(folder));
    let hint = "see that its disk is well and has room. What these overlays hold may be no state that the \
                disks ever had: begin with an empty folder";
    CliError::new(Exit::Failed, message, hint)
}

fn make_overlays(folder: &Path) -> Result<(), CliError> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
        let message = format!("cannot make the folder {}: {error}", printable(folder));
        CliError::new(Exit::Failed, message, "choose another folder with --overlay FOLDER")
    })
}

/// Where clients connect.
enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Place {
    /// How other programs name an export.
    fn uri(&self, name: &str) -> String {
        let name = percent_encoded(name.as_bytes());
        match self {
            Self::Tcp(address) => format!("nbd://{address}/{name}"),
            Self::Unix(path) => {
                let path = percent_encoded(path.as_os_str().as_bytes());
                format!("nbd+unix:///{name}?socket={path}")
            }
        }
    }
}

fn percent_encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b'@' => {
                text.push(char::from(byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn listen(args: &Args) -> Result<(Listener, Place), CliError> {
    if let Some(socket) = &args.socket {
        let listener = Listener::unix(socket).map_err(|error| {
            let message = format!("cannot listen at {}: {error}", printable(socket));
            let hint = if error.kind() == std::io::ErrorKind::AddrInUse {
                "something is at this path: choose another, or remove it if no server uses it"
            } else {
                "choose a short path in a folder of yours"
            };
            CliError::new(Exit::Failed, message, hint)
        })?;
        return Ok((listener, Place::Unix(std::path::absolute(socket)?)));
    }
    let listener = Listener::tcp(args.listen).map_err(|error| {
        let message = format!("cannot listen at {}: {error}", args.listen);
        let hint = match error.kind() {
            std::io::ErrorKind::InvalidInput => {
                "use --socket PATH or an address such as 127.0.0.1:10809; for clients on other \
                 machines, forward it with `ssh -L`"
            }
            _ => "choose another address, or end the program that uses it",
        };
        CliError::new(Exit::Failed, message, hint)
    })?;
    // Port 0 became any that was free.
    let address = listener.address().unwrap_or(args.listen);
    Ok((listener, Place::Tcp(address)))
}

/// Shows the newest disks, and how all are listed.
fn show(context: &Context, disks: &[Night], place: &Place, writable: bool) -> Result<(), CliError> {
    let mut machines: BTreeMap<&str, ()> = BTreeMap::new();
    for disk in disks {
        machines.insert(disk.name.rsplit_once('@').map_or(&*disk.name, |(name, _)| name), ());
        context.terminal.json(&json!({
            "event": "disk",
            "name": disk.name,
            "uri": place.uri(&disk.name),
            "snapshot": disk.snapshot.to_string(),
            "host": disk.host,
            "time": dates::rfc3339(disk.started),
            "bytes": disk.bytes,
            "writable": writable,
        }))?;
    }
    let rows = disks.iter().take(SHOWN_MAX).map(|disk| {
        vec![
            printable_text(&place.uri(&disk.name)),
            bytes_text(disk.bytes),
            dates::text(disk.started),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    for line in table(&rows, &[1]) {
        context.terminal.line(line)?;
    }
    if disks.len() > SHOWN_MAX {
        context.terminal.line(format!(
            "and {} more; `nbdinfo --list '{}'` shows them",
            disks.len() - SHOWN_MAX,
            place.uri("")
        ))?;
    }
    context.terminal.line(format!(
        "serving {} of {}",
        counted(disks.len() as u64, "night", "nights"),
        counted(machines.len() as u64, "disk", "disks"),
    ))?;
    context.terminal.note("Ctrl-C ends it.");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_can_be_given_to_other_programs() {
        let unix = Place::Unix(PathBuf::from("/run/my socket"));
        let uri = unix.uri("vm 1/vda@2026-11-20");
        assert_eq!(uri, "nbd+unix:///vm%201/vda@2026-11-20?socket=/run/my%20socket");
        let tcp = Place::Tcp("[::1]:10809".parse().unwrap());
        assert_eq!(tcp.uri("vm1/vda"), "nbd://[::1]:10809/vm1/vda");
    }
}
