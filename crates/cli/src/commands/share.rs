//! `strongroom share`: a configuration by which Samba offers a mount to Windows and others, with every
//! snapshot as a previous version.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use strongroom_base::Severity;

use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::terminal::printable;

/// What is shared, and with whom.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Where the snapshots are mounted: `strongroom mount --allow-other DIR`
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Let this user of Samba read; may be given several times [default: all that log in]
    #[arg(long, value_name = "NAME")]
    user: Vec<String>,
    /// Let everybody read, without a password
    #[arg(long, conflicts_with = "user")]
    guest: bool,
    /// Write a whole configuration, for a server of its own that keeps its files in this folder
    #[arg(long, value_name = "FOLDER")]
    standalone: Option<PathBuf>,
    /// Where that server listens
    #[arg(long, value_name = "ADDRESS", requires = "standalone", default_value = "127.0.0.1:4450")]
    listen: SocketAddr,
}

/// What a server keeps, and in which folder.
const FOLDERS: [(&str, &str); 6] = [
    ("lock directory", "lock"),
    ("state directory", "state"),
    ("cache directory", "cache"),
    ("private dir", "private"),
    ("pid directory", "pid"),
    ("ncalrpc dir", "ncalrpc"),
];

/// A host and the paths that were backed up: a share.
struct Share {
    name: String,
    folder: PathBuf,
}

/// Writes it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let folder = std::path::absolute(&args.folder)?;
    let shares = find_shares(&folder).map_err(|error| {
        let message = format!("there is no mount of snapshots at {}: {error}", printable(&folder));
        let hint =
            format!("mount them first: `strongroom mount --allow-other {}`", printable(&folder));
        CliError::new(Exit::Failed, message, hint)
    })?;
    if shares.is_empty() {
        let message = format!("no snapshots are mounted at {}", printable(&folder));
        return Err(CliError::new(Exit::Failed, message, "store something first"));
    }
    let mut text = String::new();
    if let Some(own) = &args.standalone {
        let own = std::path::absolute(own)?;
        make_folders(&own).map_err(|error| {
            let message = format!("cannot make Samba's folders in {}: {error}", printable(&own));
            CliError::new(Exit::Failed, message, "name a folder that you may write")
        })?;
        text.push_str(&global(&own, args.listen));
    }
    let mut exit = Exit::Done;
    for share in &shares {
        match section(share, args) {
            Some(section) => text.push_str(&section),
            None => {
                let message = format!(
                    "{} is not shared: Samba would take signs in its path for its own",
                    printable(&share.folder)
                );
                context.terminal.problem(Severity::Warning, &message);
                exit = Exit::Incomplete;
            }
        }
    }
    for line in text.lines() {
        context.terminal.line(line)?;
    }
    Ok(exit.into())
}

/// The shares of a mount: `hosts/HOST/PATHS` with a `latest`, called by the host if it has one alone.
fn find_shares(folder: &Path) -> io::Result<Vec<Share>> {
    let mut shares = Vec::new();
    for host in sorted(&folder.join("hosts"))? {
        let mut paths = sorted(&host)?;
        paths.retain(|path| path.join("latest").exists());
        let is_alone = paths.len() == 1;
        for path in paths {
            let words = [&host, &path].map(|path| path.file_name().unwrap_or_default());
            let [host, what] = words.map(|word| word.to_string_lossy().into_owned());
            let name = if is_alone { host } else { format!("{host}-{what}") };
            // Samba takes these for its own signs.
            let is_good = |letter: char| letter.is_alphanumeric() || "._-".contains(letter);
            let name = name.replace(|letter| !is_good(letter), "_");
            shares.push(Share { name, folder: path });
        }
    }
    Ok(shares)
}

fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
    paths.sort();
    Ok(paths)
}

/// The settings of a server of its own.
fn global(folder: &Path, listen: SocketAddr) -> String {
    let (own, address, port) = (folder.display(), listen.ip(), listen.port());
    let mut text = format!(
        "[global]\n  server role = standalone server\n  interfaces = {address}\n  \
         bind interfaces only = yes\n  smb ports = {port}\n  map to guest = Bad User\n  \
         disable spoolss = yes\n  load printers = no\n  log file = {own}/log\n"
    );
    for (option, name) in FOLDERS {
        // Writing to a text does not fail.
        let _ = writeln!(text, "  {option} = {own}/{name}");
    }
    text
}

/// Samba starts only if they exist.
fn make_folders(own: &Path) -> io::Result<()> {
    let make = |name: &str| DirBuilder::new().recursive(true).mode(0o755).create(own.join(name));
    FOLDERS.iter().try_for_each(|(_, name)| make(name))
}

/// Whether Samba leaves a path as it is: what it puts in place of a `%` and what follows never begins
/// with a digit, as what a mount writes of signs in names does.
fn is_plain(path: &str) -> bool {
    let is_code = |rest: &str| rest.starts_with(|sign: char| sign.is_ascii_digit());
    !path.contains('\n') && path.split('%').skip(1).all(is_code)
}

/// A share whose previous versions are the snapshots beside the newest; none if its path cannot be
/// written into Samba's file.
fn section(share: &Share, args: &Args) -> Option<String> {
    let folder = share.folder.to_str().filter(|path| is_plain(path))?;
    let mut text = format!(
        "[{name}]\n  path = {folder}/latest\n  read only = yes\n  \
         vfs objects = shadow_copy2\n  shadow:snapdir = {folder}\n  \
         shadow:basedir = {folder}/latest\n  shadow:format = %Y-%m-%dT%H-%M-%S\n  \
         shadow:localtime = yes\n  shadow:sort = desc\n",
        name = share.name,
    );
    if args.guest {
        text.push_str("  guest ok = yes\n");
    } else if !args.user.is_empty() {
        let _ = writeln!(text, "  valid users = {}", args.user.join(", "));
    }
    Some(text)
}
