//! Which regions are meant, and how they are stored.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use strongroom_base::Severity;
use strongroom_base::units::counted;
use strongroom_catalog::{Guarantee, Metadata};
use strongroom_engine::{
    BackupOptions, EngineError, Region, RegionOptions, RegionOutcome, Stillness, StillnessGuard,
    backup_regions,
};
use strongroom_repository::Repository;
use strongroom_source::memory::MemoryFile;
use strongroom_source::memory::freezer::{ControlGroup, Frozen};
use strongroom_source::memory::process::ProcessMemory;
use strongroom_source::memory::writers::{FileNumber, name_of, writers_of};

use crate::commands::storing::StoringArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::machine::host_name;
use crate::progress::Words;
use crate::terminal::printable;

/// How the progress is worded.
const WORDS: Words = Words { new_and_known: Some(("new", "known")), ..Words::files("stored") };

/// Regions, and how they are stored.
#[derive(Debug, Clone, clap::Args)]
pub struct RegionArgs {
    /// Files of shared memory, of huge pages, or that a program has mapped; folders of such;
    /// `cache=/proc/123/fd/7` names a memfd, `shop=pid:123` the private memory of a process
    #[arg(value_name = "[NAME=]REGION", required = true)]
    regions: Vec<OsString>,
    /// Record this host name instead of the machine's
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Stop the programs of this control group while the regions are read for the last time: a folder
    /// such as /sys/fs/cgroup/system.slice/memcached.service
    #[arg(long, value_name = "FOLDER")]
    freeze: Option<PathBuf>,
    /// How many seconds they may take to stop
    #[arg(long, value_name = "SECONDS", default_value = "5",
        value_parser = clap::value_parser!(u64).range(1..=600))]
    freeze_limit: u64,
    /// How often regions are read at most until nothing in them changes
    #[arg(long, value_name = "COUNT", default_value = "5",
        value_parser = clap::value_parser!(u32).range(2..))]
    passes: u32,
    /// Store them even if they change all the time: the snapshot is of no instant
    #[arg(long)]
    accept_fuzzy: bool,
    #[command(flatten)]
    pub storing: StoringArgs,
}

/// A region as it was typed.
struct Named {
    /// Its path in the snapshot.
    stored_as: PathBuf,
    path: PathBuf,
}

impl RegionArgs {
    /// Checks what was typed, before a repository is made or a passphrase asked for.
    pub fn check(&self) -> Result<(), CliError> {
        self.open(true)?;
        self.control_group()?;
        Ok(())
    }

    /// The repository, and the options of the backup.
    pub fn open_repository(
        &self,
        context: &Context,
    ) -> Result<(Repository, BackupOptions), CliError> {
        let repository = if self.storing.init {
            self.storing.open_or_init(context)?
        } else {
            context.open_for_backup(|_| ())?.0
        };
        let host = self.host.clone().unwrap_or_else(host_name);
        let options = self.storing.options(context, &repository, host)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let paths = self.named()?.into_iter().map(|named| named.stored_as).collect();
        Ok((repository, BackupOptions { paths, readers: threads, ..options }))
    }

    /// Stores them once.
    pub fn store(
        &self,
        context: &Context,
        repository: &Repository,
        options: &BackupOptions,
    ) -> Result<(RegionOutcome, Duration), CliError> {
        let group = self.control_group()?;
        let limit = Duration::from_secs(self.freeze_limit);
        let regions = self.open(group.is_some())?;
        let files = regions.iter().filter_map(|region| number_of(&region.memory.metadata()));
        let processes = self.named()?.iter().filter_map(Named::process).collect();
        let writers = Writers { files: files.collect(), processes };
        let stillness = group.as_ref().map(|group| Freezer { group, limit, writers });
        let shown = context.terminal.monitor(WORDS);
        let monitor = self.storing.recorded(context, &shown, &options.paths)?;
        let what = RegionOptions {
            passes_max: self.passes,
            accepts_fuzzy: self.accept_fuzzy,
            stillness: stillness.as_ref().map(|freezer| freezer as &dyn Stillness),
        };
        let outcome =
            backup_regions(repository, &regions, what, options, &monitor, &context.cancel);
        drop(monitor);
        shown.finish();
        let outcome = outcome.map_err(|error| self.explained(error))?;
        if outcome.healed > 0 {
            let message = format!(
                "{} of 64 KiB had changed although their marks had not, and were stored again: the \
                 memory of this machine may not keep what it holds",
                counted(outcome.healed, "chunk", "chunks")
            );
            context.terminal.problem(Severity::Warning, &message);
        }
        Ok((outcome, shown.elapsed()))
    }

    fn explained(&self, error: EngineError) -> CliError {
        let hint = match &error {
            EngineError::Fuzzy { .. } if self.freeze.is_none() => Some(
                "stop the programs that write to them for a moment with --freeze FOLDER, give more \
                 --passes, move them to XFS or Btrfs, or accept it with --accept-fuzzy",
            ),
            EngineError::Region { .. } => {
                Some("nothing was stored; the snapshot before is as it was")
            }
            EngineError::Still(_) => Some(
                "nothing was stored; --freeze takes the control group of all programs that write to the \
                 regions. If they do not go on, write 0 to cgroup.freeze in its folder",
            ),
            _ => None,
        };
        let error = CliError::from(error);
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }

    fn control_group(&self) -> Result<Option<ControlGroup>, CliError> {
        let Some(folder) = &self.freeze else { return Ok(None) };
        let opened = ControlGroup::open(folder).map_err(|error| {
            let message = format!("cannot freeze {}: {error}", printable(folder));
            let hint = "name the folder of a control group below /sys/fs/cgroup";
            CliError::new(Exit::Failed, message, hint)
        });
        opened.map(Some)
    }

    /// What was typed.
    fn named(&self) -> Result<Vec<Named>, CliError> {
        self.regions.iter().map(|text| Named::parse(text)).collect()
    }

    /// Opens the regions; of folders those that are in them now.
    fn open(&self, is_frozen: bool) -> Result<Vec<Region>, CliError> {
        let mut regions = Vec::new();
        for named in self.named()? {
            if let Some(process) = named.process() {
                regions.extend(named.mappings(process)?);
                continue;
            }
            let mut files = Vec::new();
            let metadata =
                fs::metadata(&named.path).map_err(|error| cannot_open(&named.path, &error))?;
            if metadata.is_dir() {
                named.list(&mut files)?;
            } else {
                files.push(named);
            }
            for file in files {
                regions.push(open(file, is_frozen)?);
            }
        }
        if regions.is_empty() {
            let message = "there is no region in these folders";
            let hint = "name files of shared memory, such as /dev/shm/cache";
            return Err(CliError::new(Exit::Failed, message, hint));
        }
        Ok(regions)
    }
}

impl Named {
    /// An equals sign ends a name, unless a slash is before it or a file is called so.
    fn parse(text: &OsStr) -> Result<Self, CliError> {
        let whole = || {
            let path =
                std::path::absolute(text).map_err(|error| cannot_open(text.as_ref(), &error))?;
            Ok(Self { stored_as: path.clone(), path })
        };
        let bytes = text.as_bytes();
        let Some(at) = bytes.iter().position(|byte| *byte == b'=') else { return whole() };
        let (name, path) = (&bytes[..at], &bytes[at + 1..]);
        if name.is_empty() || name.contains(&b'/') || fs::symlink_metadata(text).is_ok() {
            return whole();
        }
        let stored_as = Path::new("/").join(OsStr::from_bytes(name));
        Ok(Self { stored_as, path: PathBuf::from(OsString::from_vec(path.to_vec())) })
    }

    /// The number of the process that it is the memory of.
    fn process(&self) -> Option<u32> {
        let number = self.path.to_str()?.strip_prefix("pid:")?;
        number.parse().ok().filter(|_| fs::symlink_metadata(&self.path).is_err())
    }

    /// The private memory of a process: a region for each mapping, by where it begins.
    fn mappings(&self, process: u32) -> Result<Vec<Region>, CliError> {
        let mappings = ProcessMemory::of(process).map_err(|error| {
            let message = format!("cannot read the memory of the process {process}: {error}");
            let hint = match error.kind() {
                std::io::ErrorKind::NotFound => "there is no process of this number",
                _ => {
                    "it takes the right to trace the process: be root, or its user where \
                     kernel.yama.ptrace_scope is 0"
                }
            };
            CliError::new(Exit::Failed, message, hint)
        })?;
        let region = |memory: ProcessMemory| Region {
            path: self.stored_as.join(format!("{:x}", memory.start())),
            memory: Box::new(memory),
            is_held: false,
        };
        Ok(mappings.into_iter().map(region).collect())
    }

    /// The regular files in a folder and in those below it, by name.
    fn list(&self, regions: &mut Vec<Self>) -> Result<(), CliError> {
        let failed = |error: std::io::Error| cannot_open(&self.path, &error);
        let mut entries: Vec<_> =
            fs::read_dir(&self.path).and_then(Iterator::collect).map_err(failed)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let inner =
                Self { stored_as: self.stored_as.join(entry.file_name()), path: entry.path() };
            // One that is gone meanwhile is none.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => inner.list(regions)?,
                Ok(kind) if kind.is_file() => regions.push(inner),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Opens a region. If its file system can hold on to it, it is read once.
fn open(named: Named, is_frozen: bool) -> Result<Region, CliError> {
    let Named { stored_as, path } = named;
    let memory = MemoryFile::open(&path).map_err(|error| cannot_open(&path, &error))?;
    if !is_frozen && let Ok(held) = memory.hold_on() {
        return Ok(Region { path: stored_as, memory: Box::new(held), is_held: true });
    }
    Ok(Region { path: stored_as, memory: Box::new(memory), is_held: false })
}

fn cannot_open(path: &Path, error: &std::io::Error) -> CliError {
    let message = format!("cannot read the region {}: {error}", printable(path));
    let hint = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "run it as the user whom the region belongs to, or as root"
        }
        _ => "name a file of shared memory, such as /dev/shm/cache, or a folder of such",
    };
    CliError::new(Exit::Failed, message, hint)
}

/// A control group that is frozen while regions are read.
struct Freezer<'g> {
    group: &'g ControlGroup,
    limit: Duration,
    writers: Writers,
}

/// Who may write to the regions.
struct Writers {
    /// All that have one of these files open for writing, or mapped so.
    files: Vec<FileNumber>,
    /// These, whose private memory is stored.
    processes: Vec<u32>,
}

impl Writers {
    /// Checks that none of them goes on while a group is frozen.
    fn check(&self, group: &ControlGroup) -> Result<(), String> {
        let mut writers =
            writers_of(&self.files).map_err(|error| format!("cannot look into /proc: {error}"))?;
        writers.extend(&self.processes);
        let stopped = group.processes();
        match writers.iter().find(|process| !stopped.contains(process)) {
            None => Ok(()),
            Some(process) => Err(format!(
                "the process {process} ({}) can write to the regions, and is not in the control group",
                printable(Path::new(&name_of(*process)))
            )),
        }
    }
}

/// The number of a region that is a file.
fn number_of(metadata: &Metadata) -> Option<FileNumber> {
    let Metadata { device, inode, .. } = *metadata;
    (inode > 0).then_some(FileNumber { device, inode })
}

struct FrozenGroup<'g>(Frozen<'g>);

impl Stillness for Freezer<'_> {
    fn begin(&self) -> Result<Box<dyn StillnessGuard + '_>, String> {
        let frozen = self.group.freeze(self.limit);
        let frozen = frozen.map_err(|error| format!("cannot freeze the control group: {error}"))?;
        self.writers.check(self.group)?;
        Ok(Box::new(FrozenGroup(frozen)))
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::new(Guarantee::FROZEN, Guarantee::CONTROL_GROUP)
    }

    fn may_miss_writers(&self) -> bool {
        true
    }
}

impl StillnessGuard for FrozenGroup<'_> {
    fn end(self: Box<Self>) -> Result<(), String> {
        self.0.thaw().map_err(|error| format!("the control group: {error}"))
    }
}
