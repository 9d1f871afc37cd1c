//! What every command gets: the repository's place, the passphrase, the terminal.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use strongroom_backend::Backend;
use strongroom_base::{
    Cancel, OsEntropy, Printable, Severity, Silent, SizeLimits, SystemClock, Timestamp,
};
use strongroom_remote::{Past, Place, PlaceError, Settings};
use strongroom_repository::objects::ENDED_FOLDER;
use strongroom_repository::{
    ClosedRepository, Endings, InitOptions, Repository, RepositoryError, Surroundings,
    WithReplicas, check_vacant, exists, read_config, withheld_folders,
};
use strongroom_upkeep::{OwnGone, find_rolled_back};

use crate::connection::ConnectionArgs;
use crate::dates;
use crate::exit::{CliError, Exit, FORBIDDEN};
use crate::paint::When;
use crate::passphrase::{Passphrase, PassphraseArgs};
use crate::profile::{Chosen, ProfileArgs};
use crate::terminal::{Events, Terminal, printable};
use crate::used_places;

/// The options of every command.
#[derive(Debug, Clone, clap::Args)]
pub struct GlobalArgs {
    /// The repository: a folder, or a URL such as s3://BUCKET/FOLDER
    #[arg(
        long,
        short,
        alias = "repository",
        global = true,
        env = "STRONGROOM_REPOSITORY",
        hide_env_values = true,
        value_name = "PLACE",
        help_heading = "Repository"
    )]
    pub repo: Option<OsString>,
    /// Look at the repository as it was at this time, if its place keeps versions of objects
    #[arg(
        long,
        global = true,
        value_name = "TIME",
        value_parser = moment,
        help_heading = "Repository"
    )]
    pub as_of: Option<Timestamp>,
    #[command(flatten)]
    pub profile: ProfileArgs,
    #[command(flatten)]
    pub passphrase: PassphraseArgs,
    #[command(flatten)]
    pub connection: ConnectionArgs,
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
    /// Print colours always, never, or (auto) on a terminal unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true,
        help_heading = "Output"
    )]
    pub color: When,
    /// Print long lists without a pager
    #[arg(long, global = true, help_heading = "Output")]
    pub no_pager: bool,
    /// Print only errors and warnings
    #[arg(long, short, global = true, conflicts_with = "json", help_heading = "Output")]
    pub quiet: bool,
    /// Print more details
    #[arg(long, short, global = true, help_heading = "Output")]
    pub verbose: bool,
}

/// Where else a verb that reads looks for what is lost.
#[derive(Debug, Clone, clap::Args)]
pub struct ReplicaArgs {
    /// Read from this replica what is lost or damaged in the repository; may be repeated [env:
    /// STRONGROOM_REPLICAS, separated by commas]
    #[arg(long = "replica", value_name = "PLACE", help_heading = "Repository")]
    replicas: Vec<OsString>,
}

impl ReplicaArgs {
    /// Whether they are those of the command line.
    fn are_typed(&self) -> bool {
        !self.replicas.is_empty()
    }

    /// Those of the command line, or else of the environment.
    fn places(&self) -> Vec<OsString> {
        if !self.replicas.is_empty() {
            return self.replicas.clone();
        }
        let variable = std::env::var_os("STRONGROOM_REPLICAS").unwrap_or_default();
        let places = variable.as_bytes().split(|byte| *byte == b',');
        let places = places.filter(|place| !place.is_empty());
        places.map(|place| OsStr::from_bytes(place).to_owned()).collect()
    }
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
    /// The profile that is used.
    chosen: Option<Chosen>,
    /// Where output goes.
    pub terminal: Terminal,
    /// Set by Ctrl-C.
    pub cancel: Cancel,
    /// The repository with its replicas, once it was opened.
    together: OnceLock<Arc<WithReplicas>>,
    /// Whether a name such as `latest` was looked for among snapshots of which some cannot be read.
    pub passed_over: AtomicBool,
}

/// Whether who started this program had it go on when its terminal goes away.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal_hook::consts::SIGHUP - 1) & 1 != 0)
}

impl Context {
    /// Installs the signal handlers; a second Ctrl-C ends the program at once. A terminal that goes away is
    /// like one Ctrl-C, unless that is to be passed over (`nohup`): the shell and the kernel both say it, and
    /// what ends a session asks once more.
    ///
    /// `command` is what was asked for, such as `key add`.
    pub fn new(
        args: GlobalArgs,
        chosen: Option<Chosen>,
        events: Events,
        command: &'static str,
    ) -> Result<Self, CliError> {
        let flag = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let exit = Exit::Interrupted as i32;
            signal_hook::flag::register_conditional_shutdown(signal, exit, asked.clone())?;
            signal_hook::flag::register(signal, asked.clone())?;
            signal_hook::flag::register(signal, flag.clone())?;
        }
        if !ignores_hangup() {
            signal_hook::flag::register(signal_hook::consts::SIGHUP, flag.clone())?;
        }
        let terminal =
            Terminal::new(args.json.then_some(events), command, args.quiet, args.verbose);
        let cancel = Cancel::from_flag(flag);
        args.passphrase.keep_from_children();
        Ok(Self {
            args,
            chosen,
            terminal,
            cancel,
            together: OnceLock::new(),
            passed_over: AtomicBool::new(false),
        })
    }

    /// Which profile is used, of which file.
    pub fn profile(&self) -> &ProfileArgs {
        &self.args.profile
    }

    /// The profile that is used, for a command that is about one.
    pub fn chosen_profile(&self) -> Result<&Chosen, CliError> {
        self.chosen.as_ref().ok_or_else(|| {
            let hint = "`strongroom profile init` writes an example, and --profile names one";
            CliError::new(Exit::Failed, "no profile is used", hint)
        })
    }

    /// Where the repository is.
    fn place(&self) -> Result<Place, CliError> {
        let text = self.args.repo.as_deref().ok_or_else(|| {
            CliError::new(
                Exit::Failed,
                "no repository was given",
                "give --repo PLACE, set STRONGROOM_REPOSITORY, or write it into a profile: `strongroom profile init`",
            )
        })?;
        parse_place(text)
    }

    /// The place of the repository, in words.
    pub fn place_text(&self) -> Result<String, CliError> {
        Ok(self.place()?.to_string())
    }

    /// How connections are made.
    fn settings(&self) -> Settings {
        self.args.connection.settings(&self.cancel)
    }

    /// Another place, such as a replica, which must exist.
    pub fn other_place(&self, text: &OsStr) -> Result<Arc<dyn Backend>, CliError> {
        let place = parse_place(text)?;
        let not_there = || RepositoryError::NotARepository { place: place.to_string() };
        Ok(place.open(&self.settings())?.ok_or_else(not_there)?)
    }

    /// Another place; none if it does not exist.
    pub fn other_or_none(&self, text: &OsStr) -> Result<Option<Arc<dyn Backend>>, CliError> {
        Ok(parse_place(text)?.open(&self.settings())?)
    }

    /// The place of a replica, which is made if it does not exist; unless one was there, except with
    /// `again`.
    pub fn replica_place(&self, text: &OsStr, again: bool) -> Result<Arc<dyn Backend>, CliError> {
        let place = parse_place(text)?;
        if !again && used_places::is_remembered(&place) {
            let there = place.open(&self.settings())?;
            if there.map(|backend| exists(&*backend)).transpose()? != Some(true) {
                let hint = "begin a new one with `strongroom replicate --init`";
                return Err(is_gone("replica", &place.to_string(), hint));
            }
        }
        Ok(place.create(&self.settings())?)
    }

    /// Remembers that a replica is at a place.
    pub fn remember_replica(&self, text: &OsStr) -> Result<(), CliError> {
        used_places::remember_replica(&parse_place(text)?, &self.place()?);
        Ok(())
    }

    /// The folders of replicas below these paths, as far as this user's programs know them: they are not
    /// backed up. What lies elsewhere is not looked at: it may be on a disk that does not answer.
    pub fn replicas_below(&self, paths: &[PathBuf]) -> Vec<PathBuf> {
        let Ok(place) = self.place() else { return Vec::new() };
        let absolute = paths.iter().filter_map(|path| std::path::absolute(path).ok());
        let leading_to = paths.iter().filter_map(|path| path.canonicalize().ok());
        let tops: Vec<PathBuf> = absolute.chain(leading_to).collect();
        let is_below = |place: &Place| match place {
            Place::Folder(folder) => tops.iter().any(|top| folder.starts_with(top)),
            Place::Remote(_) => false,
        };
        let replicas = used_places::replicas_of(&place).into_iter().filter(is_below);
        replicas.flat_map(|place| place.files()).filter(|path| path.is_dir()).collect()
    }

    /// The folders and files of this machine that the repository consists of, those of all places that this
    /// user's programs know, and of these replicas: a restore does not remove them.
    pub fn kept_files(&self, replicas: &ReplicaArgs) -> Vec<PathBuf> {
        let given = replicas.places();
        let given = given.iter().filter_map(|text| parse_place(text).ok());
        let places = self.place().into_iter().chain(used_places::all()).chain(given);
        places.flat_map(|place| place.files()).collect()
    }

    /// Fails if a text names the place of the repository itself, or a part of it.
    pub fn refuse_own_place(&self, text: &OsStr) -> Result<(), CliError> {
        let identity = |path: &PathBuf| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.dev(), metadata.ino()))
        };
        let (own, other) = (self.place()?, parse_place(text)?);
        let of_own: HashSet<_> = own.files().iter().filter_map(identity).collect();
        let is_own = own == other
            || own.to_string() == other.to_string()
            || other.files().iter().filter_map(identity).any(|file| of_own.contains(&file));
        if !is_own {
            return Ok(());
        }
        let message = match own == other {
            true => {
                format!("{} is the repository itself, not another place", printable(text.as_ref()))
            }
            false => {
                format!("{} is the repository itself, or a part of it", printable(text.as_ref()))
            }
        };
        Err(CliError::new(Exit::Failed, message, "name the place of the copy"))
    }

    /// The place of the repository, which must exist.
    pub fn backend(&self) -> Result<Arc<dyn Backend>, CliError> {
        let place = self.place()?;
        let not_there = RepositoryError::NotARepository { place: place.to_string() };
        let opened = match self.args.as_of {
            Some(time) => place.open_past(&self.settings(), Past::AsOf(time))?,
            None => place.open(&self.settings())?,
        };
        let backend = opened.ok_or(not_there)?;
        self.complain(&*backend);
        Ok(backend)
    }

    fn complain(&self, backend: &dyn Backend) {
        if let Some(complaint) = backend.complaint() {
            self.terminal.problem(Severity::Warning, &complaint);
        }
    }

    /// The place of the repository as it was, if it keeps versions of its objects.
    pub fn backend_past(&self, past: Past) -> Result<Arc<dyn Backend>, CliError> {
        let place = self.place()?;
        let not_there = RepositoryError::NotARepository { place: place.to_string() };
        Ok(place.open_past(&self.settings(), past)?.ok_or(not_there)?)
    }

    /// The place of the repository, which is made if it does not exist.
    pub fn backend_made(&self) -> Result<Arc<dyn Backend>, CliError> {
        self.check_present()?;
        Ok(self.place()?.create(&self.settings())?)
    }

    /// Opens the repository, and says whether the last snapshot that this machine made is missing.
    pub fn open(&self) -> Result<Repository, CliError> {
        let (repository, ()) = self.open_for_backup(|_| ())?;
        self.look_for_rollback(&repository);
        Ok(repository)
    }

    /// Opens the repository for a backup, which finds out by itself whether the last snapshot that
    /// this machine made is missing ([`Self::warn_of_rollback`]). What can begin before the place
    /// has answered does.
    pub fn open_for_backup<T>(
        &self,
        begin: impl Fn(&Surroundings) -> T,
    ) -> Result<(Repository, T), CliError> {
        if self.args.as_of.is_none()
            && let Some(backend) = self.place()?.reach(&self.settings())?
        {
            let surroundings = self.surroundings(backend.clone());
            let begun = begin(&surroundings);
            if let Ok(closed) = ClosedRepository::find(surroundings) {
                self.complain(&*backend);
                return Ok((self.open_closed(closed)?, begun));
            }
        }
        // The place itself says what is wrong.
        let backend = self.backend()?;
        let begun = begin(&self.surroundings(backend.clone()));
        Ok((self.open_at(backend)?, begun))
    }

    /// Opens the repository for a verb that only reads, and from these replicas what is lost in it.
    /// A replica that cannot be opened is left out, with a warning; so is the repository itself.
    pub fn open_to_read(&self, replicas: &ReplicaArgs) -> Result<Repository, CliError> {
        let places = replicas.places();
        if places.is_empty() {
            return self.open();
        }
        if self.args.as_of.is_some() {
            // They are as they are now: what they have would pass for what was.
            if replicas.are_typed() {
                let message =
                    "--as-of shows what the repository was, and replicas are as they are now";
                let hint =
                    "leave out --replica; or name the replica with --repo, if it keeps versions";
                return Err(CliError::new(Exit::Usage, message, hint));
            }
            self.terminal.note("replicas are not used: they are as they are now");
            return self.open();
        }
        let mut found = Vec::new();
        for place in places {
            match self.other_place(&place) {
                Ok(replica) => found.push(replica),
                Err(error) => self.left_out("replica", &place, &error),
            }
        }
        let main = self.backend().and_then(|backend| match exists(&*backend)? {
            true => Ok(backend),
            false => Err(RepositoryError::NotARepository { place: backend.describe() }.into()),
        });
        let main = match main {
            Ok(main) => main,
            // A replica is a repository itself.
            Err(error) if !found.is_empty() => {
                self.left_out("repository", self.place()?.to_string().as_ref(), &error);
                found.remove(0)
            }
            Err(error) => return Err(error),
        };
        let id = |backend: &dyn Backend| read_config(backend).ok().map(|(config, _)| config.id);
        let own = id(&*main);
        for replica in &found {
            let other = id(&**replica);
            if own.is_some() && other.is_some() && own != other {
                let place = replica.describe();
                return Err(RepositoryError::OtherRepository { place }.into());
            }
        }
        let together = Arc::new(WithReplicas::new(main, found));
        let _ = self.together.set(together.clone());
        let repository = self.open_at(together)?;
        self.look_for_rollback(&repository);
        Ok(repository)
    }

    /// Opens the repository as it will be when these replicas have given what it lacks.
    pub fn open_completed(
        &self,
        backend: Arc<dyn Backend>,
        replicas: &[Arc<dyn Backend>],
    ) -> Result<Repository, CliError> {
        self.open_at(Arc::new(WithReplicas::new(backend, replicas.to_vec())))
    }

    fn left_out(&self, what: &str, place: &OsStr, error: &CliError) {
        let message =
            format!("the {what} {} cannot be opened: {error}", Printable::path(place.as_ref()));
        self.terminal.problem(Severity::Warning, &message);
    }

    /// Says, at the end of a verb, whether replicas were needed.
    pub fn report_replicas(&self) {
        let helped = self.together.get().map_or(0, |together| together.helped());
        if helped > 0 {
            self.terminal.note(
                "objects that the repository does not have were read from a replica: \
                 `strongroom repair --from` brings them back",
            );
        }
    }

    fn open_at(&self, backend: Arc<dyn Backend>) -> Result<Repository, CliError> {
        self.open_closed(self.find(backend)?)
    }

    fn find(&self, backend: Arc<dyn Backend>) -> Result<ClosedRepository, CliError> {
        let place = backend.describe();
        let found = ClosedRepository::find(self.surroundings(backend));
        found.map_err(|error| {
            let is_of_backend = matches!(error, RepositoryError::Backend(_));
            let error = CliError::from(error);
            if is_of_backend { error.about(&place) } else { error }
        })
    }

    fn open_closed(&self, mut closed: ClosedRepository) -> Result<Repository, CliError> {
        let place = self.place()?.to_string();
        let passphrase = &self.args.passphrase;
        let repository = passphrase.open(&place, &self.cancel, |typed| Ok(closed.open(typed)?))?;
        let repository = within_test_limits(repository);
        for (name, error) in &repository.config_faults {
            let (severity, step) = match error.is_withheld() {
                true => (Severity::Warning, FORBIDDEN),
                false => (Severity::Damage, "run `strongroom repair`"),
            };
            self.terminal.problem(severity, &format!("{name}: {error}; its copy was used: {step}"));
        }
        self.name_withheld(&repository)?;
        Ok(repository)
    }

    /// Names folders that this user may not list. Of places far away that would cost requests, and those
    /// who may not list there know that.
    fn name_withheld(&self, repository: &Repository) -> Result<(), CliError> {
        if repository.backend().folders().is_empty() {
            return Ok(());
        }
        let endings = Endings::read(repository)?;
        let folders = withheld_folders(repository.backend()).map_err(RepositoryError::from)?;
        if let Some(withheld) = endings.withheld() {
            let message = format!(
                "{withheld}: a domain has ended, and what is shown of it may not count; give it to the user \
                 whom the repository belongs to"
            );
            self.terminal.problem(Severity::Warning, &message);
        }
        for folder in folders.iter().filter(|folder| folder.name().as_str() != ENDED_FOLDER) {
            let message = format!(
                "{folder}: until it may be read, what it may say counts as said, and nothing is \
                 removed; give it to the user whom the repository belongs to"
            );
            self.terminal.problem(Severity::Warning, &message);
        }
        Ok(())
    }

    fn look_for_rollback(&self, repository: &Repository) {
        if self.args.as_of.is_none()
            && let Some(gone) = find_rolled_back(repository, &Silent)
        {
            self.warn_of_rollback(gone);
        }
    }

    /// Says that the last snapshot that this machine made is missing or damaged.
    pub fn warn_of_rollback(&self, gone: OwnGone) {
        let OwnGone { id, sequence, is_damaged } = gone;
        let id = id.short();
        let what = match is_damaged {
            true => "is damaged, and `latest` is an older one: run `strongroom verify`",
            false => {
                "is not in the repository: it was removed, or an older copy of the repository is in \
                 its place"
            }
        };
        let message =
            format!("the last snapshot that this machine made ({id}, sequence {sequence}) {what}");
        self.terminal.problem(Severity::Warning, &message);
    }

    /// Refuses to change what was.
    pub fn check_present(&self) -> Result<(), CliError> {
        match self.args.as_of {
            None => Ok(()),
            Some(_) => Err(CliError::new(
                Exit::Failed,
                "an earlier time cannot be changed",
                "leave out --as-of; `strongroom repair --from-past TIME` brings back what was there",
            )),
        }
    }

    /// Creates the repository.
    pub fn init(&self, options: &InitOptions) -> Result<Repository, CliError> {
        self.check_present()?;
        let place = self.place()?;
        // Before a passphrase is asked for.
        if let Some(backend) = place.open(&self.settings())? {
            check_vacant(&*backend)?;
        }
        let passphrase = self.args.passphrase.new_repository(&self.cancel)?;
        let backend = place.create(&self.settings())?;
        let made = Repository::init(self.surroundings(backend), &passphrase, options)?;
        used_places::remember(&place);
        Ok(within_test_limits(made))
    }

    /// Opens the repository, or creates it if there is none and was none.
    pub fn open_or_init(&self, options: &InitOptions) -> Result<OpenedOrCreated, CliError> {
        let place = self.place()?;
        if self.has_repository()? {
            let repository = self.open_for_backup(|_| ())?.0;
            used_places::remember(&place);
            return Ok(OpenedOrCreated { repository, created: false });
        }
        if used_places::is_remembered(&place) {
            let hint = "begin a new one with `strongroom init`";
            return Err(is_gone("repository", &place.to_string(), hint));
        }
        match self.init(options) {
            Ok(repository) => Ok(OpenedOrCreated { repository, created: true }),
            // Another process created it in the meantime: theirs is as good.
            Err(_) if self.has_repository()? => {
                Ok(OpenedOrCreated { repository: self.open_for_backup(|_| ())?.0, created: false })
            }
            Err(error) => Err(error),
        }
    }

    /// The passphrase for the steps of a run; a new one, if there is no repository yet and it may be
    /// created.
    pub fn passphrase_of_run(&self, may_be_new: bool) -> Result<Passphrase, CliError> {
        let place = self.place()?;
        // If the place cannot be asked, the steps say so; and that what was there is gone.
        let may_be_new = may_be_new && !used_places::is_remembered(&place);
        match may_be_new && !self.has_repository().unwrap_or(true) {
            true => self.args.passphrase.new_repository(&self.cancel),
            false => self.args.passphrase.existing(&place.to_string(), &self.cancel),
        }
    }

    /// Whether there is one at the place.
    pub fn has_repository(&self) -> Result<bool, CliError> {
        self.check_present()?;
        match self.place()?.open(&self.settings())? {
            Some(backend) => Ok(exists(&*backend)?),
            None => Ok(false),
        }
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

    /// Where caches are kept, if they are.
    pub fn cache(&self) -> Option<PathBuf> {
        // Caches are of the present.
        if self.args.no_cache || self.args.as_of.is_some() {
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

/// With the small limits that `STRONGROOM_TEST_LIMITS` asks for, by a seed. Only programs for tests
/// look at it: those with assertions, and those with the feature `test-limits`.
fn within_test_limits(mut repository: Repository) -> Repository {
    if cfg!(any(debug_assertions, feature = "test-limits"))
        && let Ok(seed) = std::env::var("STRONGROOM_TEST_LIMITS")
    {
        let seed = seed.parse().expect("STRONGROOM_TEST_LIMITS is a number");
        repository.limits = SizeLimits::from_seed(seed);
    }
    repository
}

/// A date or time of day.
pub fn moment(text: &str) -> Result<Timestamp, String> {
    let wrong = "write a date such as 2026-11-20, or a time such as 2026-11-20T08:15";
    dates::last_moment(text).ok_or_else(|| wrong.to_owned())
}

/// A place that was used is empty, or not there.
fn is_gone(what: &str, place: &str, hint: &str) -> CliError {
    CliError::new(
        Exit::NoRepository,
        format!("the {what} that was at {place} is gone, and none is made in its place by itself"),
        format!("mount its disk if it is not mounted; otherwise {hint}"),
    )
}

fn parse_place(text: &OsStr) -> Result<Place, CliError> {
    Place::parse(text).map_err(|error| {
        let hint = match error {
            PlaceError::NotUrl { .. } => {
                "write it as a URL, such as sftp://HOST/FOLDER; a folder with a colon in its name is \
                 written ./NAME"
            }
            PlaceError::Scheme { .. } | PlaceError::Address { .. } => {
                "`strongroom --help` lists the places that a repository can be in"
            }
            PlaceError::Password { .. } => {
                "other users can read command lines: put it where `strongroom --help` says, and leave \
                 it out of the address"
            }
            PlaceError::Empty => "give a folder, or a URL such as s3://BUCKET/FOLDER",
        };
        CliError::new(Exit::Failed, error.to_string(), hint)
    })
}
