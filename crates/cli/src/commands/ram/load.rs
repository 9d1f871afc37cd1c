//! `strongroom ram load`

mod place;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::FileType;
use serde_json::json;
use strongroom_base::units::{bytes_text, counted, duration_text};
use strongroom_catalog::Metadata;
use strongroom_engine::{StoredRegion, load_region, regions_of};

use crate::context::{Context, ReplicaArgs};
use crate::exit::{CliError, Exit};
use crate::progress::Words;
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg, check_complete};
use crate::terminal::{path_json, printable, printable_bytes};
use place::{Place, kind_of};

/// Which regions are put back, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The snapshot, and a region or folder of regions in it: `latest:/dev/shm/cache`
    #[arg(value_name = "SNAPSHOT[:REGION]")]
    what: OsString,
    /// A file for one region, a folder for several [default: where they were]
    target: Option<PathBuf>,
    /// Write over regions that exist: of those, only pages that differ are written
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    narrowing: NarrowingArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

/// Puts them back.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    let repository = context.open_to_read(&args.replicas)?;
    let what = SnapshotArg::from(args.what);
    let snapshot = what.find(context, &repository, &args.narrowing)?;
    let exit = check_complete(context, &snapshot);
    let regions = regions_of(&repository, &snapshot, &what.path, &context.cancel)?;
    if regions.is_empty() {
        let place = format!("{}:{}", snapshot.id.short(), printable_bytes(&what.path));
        let hint = "`strongroom snapshots` shows which snapshots have regions of memory";
        return Err(CliError::new(Exit::Failed, format!("{place} has no region"), hint));
    }
    let base = Path::new("/").join(OsStr::from_bytes(&what.path));
    let mut targets = Vec::new();
    for region in &regions {
        let place = match &args.target {
            None => {
                Place::of_snapshot(&region.path).map_err(|error| no_folder(&region.path, &error))?
            }
            Some(target) if regions.len() == 1 && !target.is_dir() => {
                Place::typed(target).map_err(|error| no_folder(target, &error))?
            }
            Some(target) => below(target, &region.path, &base)?,
        };
        targets.push(Target::open(place, region, args.overwrite)?);
    }
    let words = Words { new_and_known: Some(("written", "up to date")), ..Words::files("loaded") };
    let monitor = context.terminal.monitor(words);
    let (mut bytes, mut written, mut lost, mut is_damaged) = (0, 0, 0, false);
    for (region, target) in regions.iter().zip(targets) {
        let outcome = load_region(&repository, region, &target.file, &monitor, &context.cancel);
        let outcome = outcome.map_err(|error| target.explained(error.into()))?;
        target.finish(&region.metadata)?;
        bytes += outcome.bytes;
        written += outcome.bytes_written;
        lost += outcome.bytes_lost;
        is_damaged |= outcome.is_damaged();
    }
    monitor.finish();
    context.terminal.json(&json!({
        "event": "summary",
        "snapshot": snapshot.id.to_string(),
        "regions": regions.iter().map(|region| path_json(&region.path)).collect::<Vec<_>>(),
        "seconds": monitor.elapsed().as_secs_f64(),
        "bytes": bytes,
        "bytes_written": written,
        "bytes_lost": lost,
    }))?;
    context.terminal.line(format!(
        "loaded {} of snapshot {}: {}, of which {} written, in {}",
        counted(regions.len() as u64, "region", "regions"),
        snapshot.id.short(),
        bytes_text(bytes),
        bytes_text(written),
        duration_text(monitor.elapsed()),
    ))?;
    Ok(if is_damaged { Exit::Damaged } else { exit }.into())
}

fn no_folder(path: &Path, error: &std::io::Error) -> CliError {
    let message = format!("cannot load into {}: {error}", printable(path));
    CliError::new(Exit::Failed, message, "name a file in a folder that you may write to")
}

/// The place of a region in a folder, as it was below `base`. The folders on the way are made.
fn below(folder: &Path, region: &Path, base: &Path) -> Result<Place, CliError> {
    let rest = region.strip_prefix(base).unwrap_or(region);
    let rest =
        if rest.as_os_str().is_empty() { region.file_name() } else { Some(rest.as_os_str()) };
    let rest = Path::new(rest.unwrap_or_default());
    let rest = rest.strip_prefix("/").unwrap_or(rest);
    Place::below(folder, rest).map_err(|error| {
        let path = folder.join(rest);
        let message = format!("cannot make the folders of {}: {error}", printable(&path));
        let hint = "name a file, or a folder that you may write to; links in it are not followed";
        CliError::new(Exit::Failed, message, hint)
    })
}

/// Where a region is put back to.
struct Target {
    place: Place,
    file: File,
    /// It did not exist before.
    is_new: bool,
    /// All of the region is in it.
    is_loaded: bool,
}

impl Target {
    /// Opens it, or makes it.
    fn open(place: Place, region: &StoredRegion, overwrite: bool) -> Result<Self, CliError> {
        let failed = |why: String, hint: &str| {
            let message = format!("cannot load into {}: {why}", printable(place.path()));
            Err(CliError::new(Exit::Failed, message, hint))
        };
        let bytes = region.content.stream_bytes();
        let cannot = "name a file in a folder that you may write to";
        let stat = match place.stat() {
            Ok(stat) => stat,
            Err(error) => return failed(error.to_string(), cannot),
        };
        let length = stat.as_ref().map_or(0, |stat| stat.st_size.cast_unsigned());
        match stat.as_ref().map(kind_of) {
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Symlink) => {
                let hint = "remove it, or name the file that it leads to";
                return failed("it is a symbolic link, which is not followed".to_owned(), hint);
            }
            Some(_) => {
                return failed("it is no file".to_owned(), "name a file, or none for where it was");
            }
        }
        if length > 0 && !overwrite {
            let hint = "name a new file, or write over it with --overwrite";
            return failed("it exists".to_owned(), hint);
        }
        // A program that has mapped it would be killed where it is cut off.
        if length > 0 && length != bytes {
            let why = format!("it has {length} bytes, and the region {bytes}");
            return failed(why, "remove it first, if no program uses it, or name another file");
        }
        let is_new = stat.is_none();
        // A new one is its owner's alone until all of it is there, and has the rights that it had.
        match if is_new { place.create() } else { place.open() } {
            Ok(file) => Ok(Self { place, file, is_new, is_loaded: false }),
            Err(error) => failed(error.to_string(), cannot),
        }
    }

    /// Gives a new file the rights that the region had.
    fn finish(mut self, metadata: &Metadata) -> Result<(), CliError> {
        if self.is_new {
            let mode = Permissions::from_mode(u32::from(metadata.mode) & 0o777);
            self.file.set_permissions(mode)?;
            let (uid, gid) = (Some(metadata.uid), Some(metadata.gid));
            // Only root gives files away. Who loads it has it then.
            let _ = std::os::unix::fs::fchown(&self.file, uid, gid);
        }
        self.is_loaded = true;
        Ok(())
    }

    /// After a failure: of a file that existed is said what it is now.
    fn explained(&self, error: CliError) -> CliError {
        if self.is_new {
            return error;
        }
        let path = printable(self.place.path());
        error.with_hint(format!("{path} is partly loaded; the same command goes on from there"))
    }
}

/// A new file is removed unless the region is in it.
impl Drop for Target {
    fn drop(&mut self) {
        if self.is_new && !self.is_loaded {
            // Something else has failed, and is reported.
            let _ = self.place.remove();
        }
    }
}
