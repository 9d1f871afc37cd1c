//! `strongroom image restore`

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use strongroom_base::units::{bytes_text, duration_text};
use strongroom_base::{Cancel, Monitor};
use strongroom_catalog::Snapshot;
use strongroom_disk::{Format, Qcow2Writer, container_of, is_in_use};
use strongroom_engine::{DiskOutcome, EngineError, disks_of, read_disk, restore_disk};
use strongroom_repository::{Repository, StoredDisk};

use crate::context::{Context, ReplicaArgs};
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg, check_complete};
use crate::terminal::{path_json, printable, printable_bytes};

/// Which disk is put back, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The snapshot, and the disk in it: `latest:/vm1/vda.raw`; only the snapshot, if it has one disk
    #[arg(value_name = "SNAPSHOT[:DISK]")]
    what: OsString,
    /// A file, which is made if there is none, or a block device
    target: PathBuf,
    /// Its format: raw, or qcow2 for a new file
    #[arg(long, value_name = "FORMAT", default_value = "raw", value_parser = parse_format)]
    format: Format,
    /// Write over what the target holds: of that, only what differs is written
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    narrowing: NarrowingArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

/// Puts it back.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    let repository = context.open_to_read(&args.replicas)?;
    let what = SnapshotArg::from(args.what);
    let snapshot = what.find(context, &repository, &args.narrowing)?;
    let exit = check_complete(context, &snapshot);
    let disk = one_disk(&repository, &snapshot, &what.path)?;
    let target = Target::open(&args.target, args.overwrite, args.format)?;
    let words =
        Words { new_and_known: Some(("written", "up to date")), ..Words::files("restored") };
    let monitor = context.terminal.monitor(words);
    let outcome = target.fill(&repository, &disk, &monitor, &context.cancel);
    monitor.finish();
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return Err(target.give_up(error.into())),
    };
    if is_in_use(&args.target) {
        let message = format!("a machine was started from {} meanwhile", printable(&args.target));
        let hint = "shut it down and restore again: it has read a mixture, and written to it";
        return Err(CliError::new(Exit::Failed, message, hint));
    }
    context.terminal.json(&json!({
        "event": "summary",
        "snapshot": snapshot.id.to_string(),
        "path": path_json(Path::new(OsStr::from_bytes(&disk.path))),
        "seconds": monitor.elapsed().as_secs_f64(),
        "bytes": outcome.bytes,
        "bytes_written": outcome.bytes_written,
        "bytes_lost": outcome.bytes_lost,
    }))?;
    context.terminal.line(format!(
        "restored {} of snapshot {} to {}: {}, of which {} written, in {}",
        printable_bytes(&disk.path),
        snapshot.id.short(),
        printable(&args.target),
        bytes_text(outcome.bytes),
        bytes_text(outcome.bytes_written),
        duration_text(monitor.elapsed()),
    ))?;
    Ok(if outcome.is_damaged() { Exit::Damaged } else { exit }.into())
}

fn parse_format(text: &str) -> Result<Format, String> {
    match text.parse() {
        Ok(format @ (Format::Raw | Format::Qcow2)) => Ok(format),
        _ => Err("give raw or qcow2; qemu-img converts them to others".to_owned()),
    }
}

/// The disk that is meant: a path that is one, or the only one below the path.
fn one_disk(
    repository: &Repository,
    snapshot: &Snapshot,
    path: &[u8],
) -> Result<StoredDisk, CliError> {
    let mut disks = disks_of(repository, snapshot, path)?;
    if disks.len() == 1 {
        return Ok(disks.remove(0));
    }
    let place = format!("{}:{}", snapshot.id.short(), printable_bytes(path));
    if disks.is_empty() {
        let message = format!("{place} has no disk");
        let hint = "name one such as `latest:/vm1/disk0.raw`; `strongroom find '*.raw'` lists them";
        return Err(CliError::new(Exit::Failed, message, hint));
    }
    let names: Vec<String> = disks.iter().map(|disk| printable_bytes(&disk.path)).collect();
    let message = format!("{place} has {} disks: {}", names.len(), names.join(", "));
    let hint = format!("name one: `{}:{}`", snapshot.id.short(), names[0]);
    Err(CliError::new(Exit::Failed, message, hint))
}

/// Where a disk is put back to.
struct Target<'p> {
    path: &'p Path,
    file: File,
    format: Format,
    /// It did not exist before.
    is_new: bool,
}

impl<'p> Target<'p> {
    /// Opens it, or makes it.
    fn open(path: &'p Path, overwrite: bool, format: Format) -> Result<Self, CliError> {
        let failed = |why: &str, hint: &str| {
            let message = format!("cannot restore to {}: {why}", printable(path));
            Err(CliError::new(Exit::Failed, message, hint))
        };
        let cannot = |error: std::io::Error| {
            let message = format!("cannot open {}: {error}", printable(path));
            CliError::new(Exit::Failed, message, "name a file or a block device that you may write")
        };
        let mut options = OpenOptions::new();
        // A disk has files of which its machine lets not everybody read.
        options.read(true).write(true).mode(0o600);
        let is_new = match fs::metadata(path) {
            Ok(metadata) => {
                let kind = metadata.file_type();
                if !kind.is_file() && !kind.is_block_device() {
                    return failed("it is neither a file nor a block device", "name another");
                }
                if is_in_use(path) {
                    return failed("a machine runs from it", "shut the machine down first");
                }
                let has_content = kind.is_block_device() || metadata.len() > 0;
                if format == Format::Qcow2 && has_content {
                    let hint = "name a new file, or remove this one first";
                    return failed("an image in qcow2 is made in a new file", hint);
                }
                // Where QEMU looks for an image in this format would be the bytes of the disk.
                if let Some(container) = container_of(path).map_err(cannot)? {
                    let why = format!("it is an image in {container}, and --format is raw");
                    return failed(&why, "name a new file, or remove this one first");
                }
                if has_content && !overwrite {
                    let hint = "name a new file, or write over it with --overwrite";
                    return failed("it exists", hint);
                }
                if kind.is_block_device() {
                    // Linux refuses it for a device that is in use.
                    options.custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed());
                }
                false
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                options.create_new(true);
                true
            }
            Err(error) => return Err(cannot(error)),
        };
        match options.open(path) {
            Ok(file) => Ok(Self { path, file, format, is_new }),
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                failed("it is in use", "unmount what is on it first")
            }
            Err(error) => Err(cannot(error)),
        }
    }

    /// Writes a disk into it.
    fn fill(
        &self,
        repository: &Repository,
        disk: &StoredDisk,
        monitor: &dyn Monitor,
        cancel: &Cancel,
    ) -> Result<DiskOutcome, EngineError> {
        if self.format != Format::Qcow2 {
            return restore_disk(repository, disk, &self.file, monitor, cancel);
        }
        let file = self.file.try_clone().map_err(EngineError::Output)?;
        let bytes = disk.content.stream_bytes();
        let mut image = Qcow2Writer::create(file, bytes).map_err(EngineError::Output)?;
        let mut write = |offset: u64, bytes: &[u8]| image.write_at(offset, bytes);
        let outcome = read_disk(repository, disk, &mut write, monitor, cancel)?;
        let file = image.finish().map_err(EngineError::Output)?;
        file.sync_data().map_err(EngineError::Output)?;
        Ok(outcome)
    }

    /// After a failure: a new file is removed, and of another is said what it is now.
    fn give_up(self, error: CliError) -> CliError {
        if self.is_new {
            // The failure is what is reported.
            let _ = fs::remove_file(self.path);
            return error;
        }
        error.with_hint(format!(
            "{} is partly restored; the same command goes on where it stopped",
            printable(self.path)
        ))
    }
}
