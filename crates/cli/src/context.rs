//! What every command is given: the repository's place, the passphrase, the terminal.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use strongroom_backend::{Backend, LocalBackend};
use strongroom_base::{Cancel, OsEntropy, SystemClock};
use strongroom_repository::{InitOptions, Repository, RepositoryError, Surroundings};

use crate::exit::{CliError, Exit};
use crate::passphrase::PassphraseArgs;
use crate::terminal::{Events, Terminal};

/// What every command takes.
#[derive(Debug, Clone, clap::Args)]
pub struct GlobalArgs {
    /// The repository: a folder
    #[arg(
        long,
        short,
        global = true,
        env = "STRONGROOM_REPOSITORY",
        hide_env_values = true,
        value_name = "PLACE",
        help_heading = "Repository"
    )]
    pub repo: Option<String>,
    #[command(flatten)]
    pub passphrase: PassphraseArgs,
    /// Keep caches in this folder instead of the user's cache folder
    #[arg(
        long,
        global = true,
        env = "STRONGROOM_CACHE",
        hide_env_values = true,
        value_name = "FOLDER",
        help_heading = "Repository"
    )]
    pub cache: Option<PathBuf>,
    /// Keep no caches
    #[arg(long, global = true, conflicts_with = "cache", help_heading = "Repository")]
    pub no_cache: bool,
    /// Print a JSON object a line, for programs
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,
    /// Print nothing but errors and warnings
    #[arg(long, short, global = true, conflicts_with = "json", help_heading = "Output")]
    pub quiet: bool,
    /// Print details
    #[arg(long, short, global = true, help_heading = "Output")]
    pub verbose: bool,
}

/// What every command is given.
pub struct Context {
    args: GlobalArgs,
    /// Where people, or programs, are told things.
    pub terminal: Terminal,
    /// Set by Ctrl-C.
    pub cancel: Cancel,
}

impl Context {
    /// Takes over signals; a second Ctrl-C ends the program at once.
    pub fn new(args: GlobalArgs, events: Events) -> Result<Self, CliError> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let exit = Exit::Interrupted as i32;
            signal_hook::flag::register_conditional_shutdown(signal, exit, flag.clone())?;
            signal_hook::flag::register(signal, flag.clone())?;
        }
        let terminal = Terminal::new(args.json.then_some(events), args.quiet, args.verbose);
        Ok(Self { args, terminal, cancel: Cancel::from_flag(flag) })
    }

    /// Where the repository is, as the user wrote it.
    pub fn place(&self) -> Result<&str, CliError> {
        self.args.repo.as_deref().ok_or_else(|| {
            CliError::new(
                Exit::Failed,
                "no repository was named",
                "give --repo FOLDER, or set STRONGROOM_REPOSITORY",
            )
        })
    }

    fn path(&self) -> Result<PathBuf, CliError> {
        let place = self.place()?;
        match place.split_once("://") {
            None => Ok(PathBuf::from(place)),
            Some(("file", path)) => Ok(PathBuf::from(path)),
            Some((scheme, _)) => Err(CliError::new(
                Exit::Failed,
                format!("this version cannot keep a repository at {scheme}://"),
                "name a folder",
            )),
        }
    }

    /// The place that keeps the repository, which must exist.
    pub fn backend(&self) -> Result<Arc<dyn Backend>, CliError> {
        let path = self.path()?;
        if !path.exists() {
            let place = self.place()?.to_owned();
            return Err(RepositoryError::NotARepository { place }.into());
        }
        Ok(Arc::new(LocalBackend::open(&path)?))
    }

    /// Opens the repository.
    pub fn open(&self) -> Result<Repository, CliError> {
        let backend = self.backend()?;
        if !strongroom_repository::exists(&*backend)? {
            return Err(RepositoryError::NotARepository { place: backend.describe() }.into());
        }
        let passphrase = self.args.passphrase.existing(self.place()?, &self.cancel)?;
        Ok(Repository::open(self.surroundings(backend), &passphrase)?)
    }

    /// Makes the repository.
    pub fn init(&self, options: &InitOptions) -> Result<Repository, CliError> {
        let path = self.path()?;
        if path.exists() {
            let backend = LocalBackend::open(&path)?;
            if strongroom_repository::exists(&backend)? {
                return Err(RepositoryError::RepositoryExists { place: backend.describe() }.into());
            }
            if std::fs::read_dir(&path)?.next().is_some() && backend.list("keys")?.is_empty() {
                return Err(RepositoryError::PlaceNotEmpty { place: backend.describe() }.into());
            }
        }
        let passphrase = self.args.passphrase.new_repository(&self.cancel)?;
        let backend: Arc<dyn Backend> = Arc::new(LocalBackend::create(&path)?);
        Ok(Repository::init(self.surroundings(backend), &passphrase, options)?)
    }

    /// Opens the repository, or makes it where there is none. The flag tells that it was made.
    pub fn open_or_init(&self, options: &InitOptions) -> Result<(Repository, bool), CliError> {
        let path = self.path()?;
        let stands = path.exists() && strongroom_repository::exists(&LocalBackend::open(&path)?)?;
        if stands { Ok((self.open()?, false)) } else { Ok((self.init(options)?, true)) }
    }

    /// True where output is for programs.
    pub fn json(&self) -> bool {
        self.args.json
    }

    fn surroundings(&self, backend: Arc<dyn Backend>) -> Surroundings {
        Surroundings {
            backend,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            cache: self.cache(),
        }
    }

    fn cache(&self) -> Option<PathBuf> {
        if self.args.no_cache {
            return None;
        }
        if let Some(cache) = &self.args.cache {
            return Some(cache.clone());
        }
        let absolute = |path: PathBuf| path.is_absolute().then_some(path);
        let xdg = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).and_then(absolute);
        let home = std::env::var_os("HOME").map(PathBuf::from).and_then(absolute);
        let base = xdg.or_else(|| Some(home?.join(".cache")))?;
        Some(base.join("strongroom"))
    }
}
