//! `strongroom backup`

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value;
use strongroom_base::units::parse_bytes;
use strongroom_engine::{BackupOptions, BegunWalk, EngineError, backup, backup_walk};
use strongroom_source::{InodeId, SourceOptions, TreeSource};

use super::storing::{StoringArgs, threads_that_read};
use crate::command_output::CommandOutput;
use crate::context::Context;
use crate::exit::CliError;
use crate::filter_args::pattern;
use crate::machine::host_name;
use crate::path_lists::PathLists;
use crate::progress::Words;

/// How the progress is worded.
const WORDS: Words = Words { new_and_known: Some(("new", "known")), ..Words::files("stored") };

/// What is stored, and how.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Files and directories to store
    #[arg(required_unless_present_any = ["stdin", "lists"], conflicts_with = "stdin")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    lists: PathLists,
    /// Store standard input as a file of this name
    #[arg(long, value_name = "NAME")]
    stdin: Option<OsString>,
    /// Run this command with a shell and store what it writes, or nothing if it fails
    #[arg(long, value_name = "COMMAND", requires = "stdin")]
    stdin_from_command: Option<String>,
    /// Read every file, even those that did not change since the last snapshot
    #[arg(long)]
    force: bool,
    /// Record this host name instead of the machine's
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// How many files are read at a time [default: 2 on a spinning disk, else two per core]
    #[arg(long, value_name = "COUNT")]
    readers: Option<usize>,
    #[command(flatten)]
    storing: StoringArgs,
    #[command(flatten)]
    exclude: ExcludeArgs,
}

/// What is excluded.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Excluding")]
struct ExcludeArgs {
    /// Exclude what matches this gitignore pattern; with a leading slash it is an absolute path
    #[arg(long, short = 'e', value_name = "PATTERN", value_parser = pattern)]
    exclude: Vec<String>,
    /// As --exclude, but upper and lower case are the same
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    iexclude: Vec<String>,
    /// Exclude what matches a pattern in this file, one per line
    #[arg(long, visible_alias = "exclude-from", value_name = "FILE")]
    exclude_file: Vec<PathBuf>,
    /// As --exclude-file, but upper and lower case are the same
    #[arg(long, value_name = "FILE")]
    iexclude_file: Vec<PathBuf>,
    /// Exclude the content of directories that hold a file of this name, such as .nobackup
    #[arg(long, value_name = "NAME")]
    exclude_if_present: Vec<OsString>,
    /// Exclude the content of caches: directories with a CACHEDIR.TAG
    #[arg(long)]
    exclude_caches: bool,
    /// Exclude files larger than this, such as 500MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    exclude_larger_than: Option<u64>,
    /// Exclude other file systems mounted below the given paths
    #[arg(long, short = 'x')]
    one_file_system: bool,
}

impl ExcludeArgs {
    fn resolve(self) -> SourceOptions {
        let names = self.exclude_if_present.into_iter().map(OsStringExt::into_vec);
        SourceOptions {
            excludes: self.exclude,
            exclude_files: self.exclude_file,
            iexcludes: self.iexclude,
            iexclude_files: self.iexclude_file,
            exclude_if_present: names.collect(),
            cachedir_tag: self.exclude_caches,
            one_file_system: self.one_file_system,
            file_bytes_max: self.exclude_larger_than,
            skip_inodes: Vec::new(),
            root: None,
            file_system: None,
        }
    }
}

/// Stores it.
pub fn run(context: &Context, mut args: Args) -> Result<ExitCode, CliError> {
    let mut source = args.exclude.clone().resolve();
    args.paths.extend(args.lists.read()?);
    let replicas = context.replicas_below(&args.paths).into_iter();
    source.skip_inodes.extend(replicas.filter_map(|path| InodeId::of_path(&path).ok()));
    // Before a repository is made for it, or a passphrase asked for.
    if args.stdin.is_none() {
        check_paths(&args.paths, &source)?;
    }
    let (repository, walk) = if args.storing.init {
        (args.storing.open_or_init(context)?, None)
    } else if args.stdin.is_some() {
        (context.open_for_backup(|_| ())?.0, None)
    } else {
        let begin = |surroundings: &_| BegunWalk::begin(surroundings, &args.paths, &source);
        let (repository, walk) = context.open_for_backup(begin)?;
        (repository, Some(walk?))
    };
    let host = args.host.clone().unwrap_or_else(host_name);
    let options = BackupOptions {
        paths: args.paths.clone(),
        source,
        force: args.force,
        readers: args.readers.unwrap_or_else(|| readers_for(&args.paths)),
        ..args.storing.options(context, &repository, host)?
    };
    let shown = context.terminal.monitor(WORDS);
    let monitor = args.storing.recorded(context, &shown, &args.paths)?;
    let outcome = match args.stdin {
        Some(name) => {
            let mut input = input(args.stdin_from_command.as_deref())?;
            let name = name.into_vec();
            strongroom_engine::backup_reader(
                &repository,
                &name,
                &mut *input,
                &options,
                &monitor,
                &context.cancel,
            )
        }
        None => match walk {
            Some(walk) => backup_walk(&repository, walk, &options, &monitor, &context.cancel),
            None => backup(&repository, &options, &monitor, &context.cancel),
        },
    };
    drop(monitor);
    shown.finish();
    args.storing.report(context, &outcome?, shown.elapsed(), Value::Null)
}

/// Fails if none of the paths exists, or an exclude pattern is invalid.
fn check_paths(paths: &[PathBuf], source: &SourceOptions) -> Result<(), CliError> {
    let exists = |path: &&PathBuf| TreeSource::find(std::slice::from_ref(*path)).is_ok();
    let found: Vec<PathBuf> = paths.iter().filter(exists).cloned().collect();
    let paths = if found.is_empty() { paths } else { &found };
    TreeSource::open(paths, source).map_err(EngineError::from)?;
    Ok(())
}

/// Standard input, or what a command writes to its own.
fn input(command: Option<&str>) -> Result<Box<dyn Read>, CliError> {
    Ok(match command {
        Some(command) => Box::new(CommandOutput::start(command)?),
        None => Box::new(std::io::stdin().lock()),
    })
}

/// How many threads read files, for the disks that these paths are on.
fn readers_for(paths: &[PathBuf]) -> usize {
    if paths.iter().any(|path| strongroom_source::seeks(path)) {
        return 2;
    }
    threads_that_read()
}
