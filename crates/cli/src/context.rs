//! What every command gets: the repository's place, the passphrase, the terminal.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use strongroom_backend::{Backend, LocalBackend};
use strongroom_base::{Cancel, OsEntropy, SystemClock};
use strongroom_repository::{InitOptions, Repository, RepositoryError, Surroundings};

use crate::exit::{CliError, Exit};
use crate::passphrase::PassphraseArgs;
use crate::terminal::{Events, Terminal};

/// The options of every command.
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
    /// Keep caches in this folder instead of ~/.cache/strongroom
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
    /// Print one JSON object per line, for programs
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,
    /// Print only errors and warnings
    #[arg(long, short, global = true, conflicts_with = "json", help_heading = "Output")]
    pub quiet: bool,
    /// Print more details
    #[arg(long, short, global = true, help_heading = "Output")]
    pub verbose: bool,
}

/// A repository, and whether it was created just now.
pub struct OpenedOrCreated {
    /// The repository.
    pub repository: Repository,
    /// Whether this process created it.
    pub created: bool,
}

/// What every command gets.
pub struct Context {
    args: GlobalArgs,
    /// Where output goes.
    pub terminal: Terminal,
    /// Set by Ctrl-C.
    pub cancel: Cancel,
}

impl Context {
    /// Installs the signal handlers; a second Ctrl-C ends the program at once.
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
                "no repository was given",
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

    /// The place of the repository, which must exist.
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

    /// Creates the repository.
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

    /// Opens the repository, or creates it if there is none.
    pub fn open_or_init(&self, options: &InitOptions) -> Result<OpenedOrCreated, CliError> {
        if self.has_repository()? {
            return Ok(OpenedOrCreated { repository: self.open()?, created: false });
        }
        match self.init(options) {
            Ok(repository) => Ok(OpenedOrCreated { repository, created: true }),
            // Another process created it in the meantime: theirs is as good.
            Err(_) if self.has_repository()? => {
                Ok(OpenedOrCreated { repository: self.open()?, created: false })
            }
            Err(error) => Err(error),
        }
    }

    fn has_repository(&self) -> Result<bool, CliError> {
        let path = self.path()?;
        Ok(path.exists() && strongroom_repository::exists(&LocalBackend::open(&path)?)?)
    }

    /// Whether output is for programs.
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
