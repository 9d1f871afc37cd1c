//! Profiles: what would be typed each time, written once.
//!
//! ```toml
//! [default]                        # a profile
//! repo = "s3://backups/laptop"     # an option of every command, by its long name
//!
//! [default.backup]                 # options of one command, and what is typed without a name
//! paths = ["~/documents"]
//! exclude-caches = true
//! ```
//!
//! A profile has no words of its own: what can be typed can be written, and the same parser
//! checks it, because [`extend`] makes arguments of it. What is typed comes first, then the
//! environment, then the profile. `docs/design/0025-profiles.md` has the reasons.

mod doubts;
mod file;
mod setting;
mod trust;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use crate::exit::{CliError, Exit};
use crate::passphrase;
pub use doubts::{absent, exposed, mistyped};
pub use file::{Profiles, meant, wrong};
pub use setting::{Position, Setting, Value, at_home};

/// The profile that is used if none is named and no repository is given.
pub const DEFAULT: &str = "default";
/// Commands that use no profile.
const WITHOUT: [&str; 5] = ["profile", "serve", "token", "completions", "manpages"];
/// What says what is backed up: if one of them is typed, what a profile says of the others is not
/// meant.
const SOURCES: [&str; 3] = ["paths", "files_from", "files_from0"];
/// Options that a profile cannot have: they lead to it, or are questions.
const UNWRITTEN: [&str; 5] = ["profile", "config", "help", "version", "notify_test"];

/// Which profile is used, of which file.
#[derive(Debug, Clone, clap::Args)]
pub struct ProfileArgs {
    /// Use this profile [default: the profile "default", unless --repo is given]
    #[arg(
        long,
        global = true,
        env = "STRONGROOM_PROFILE",
        hide_env_values = true,
        value_name = "NAME",
        help_heading = "Profile"
    )]
    profile: Option<String>,
    /// Read profiles from this file instead of ~/.config/strongroom/config.toml or
    /// /etc/strongroom/config.toml
    #[arg(
        long,
        global = true,
        env = "STRONGROOM_CONFIG",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Profile"
    )]
    config: Option<PathBuf>,
}

impl ProfileArgs {
    /// The file with the profiles: the one that was named, or else the user's, or else the machine's,
    /// if there is one.
    pub fn file(&self) -> Option<PathBuf> {
        if self.config.is_some() {
            return self.config.clone();
        }
        let places = own_file().into_iter().chain([PathBuf::from("/etc/strongroom/config.toml")]);
        places.into_iter().find(|path| path.exists())
    }

    /// Where a new file belongs.
    pub fn new_file(&self) -> Option<PathBuf> {
        self.config.clone().or_else(own_file)
    }

    /// The profile that is used, if there is one.
    fn chosen(&self, has_repository: bool) -> Result<Option<Chosen>, CliError> {
        if has_repository && self.profile.is_none() {
            return Ok(None);
        }
        let Some(file) = self.file() else {
            let Some(name) = &self.profile else { return Ok(None) };
            let message = format!("there is no file with the profile `{name}`");
            let hint = "`strongroom profile init` writes an example; --config names another file";
            return Err(CliError::new(Exit::Failed, message, hint));
        };
        let profiles = Profiles::read(&file)?;
        let name = match &self.profile {
            Some(name) => name.clone(),
            None if profiles.names().any(|name| name == DEFAULT) => DEFAULT.to_owned(),
            None => return Ok(None),
        };
        profiles.get(&name)?;
        Ok(Some(Chosen { profiles, name, file, variables: Vec::new() }))
    }
}

/// The profile that is used.
pub struct Chosen {
    /// All that there are.
    pub profiles: Profiles,
    /// Its name.
    pub name: String,
    /// The file that it was found from.
    pub file: PathBuf,
    /// Variables that it sets, and that nothing else did.
    pub variables: Vec<(String, String)>,
}

fn own_file() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute())
    };
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(folder.join("strongroom/config.toml"))
}

/// The arguments of the program, with those that a profile adds.
pub struct Extended {
    /// All of them.
    pub arguments: Vec<OsString>,
    /// The settings that became arguments.
    settings: Vec<Setting>,
    /// The profile, if one is used.
    pub chosen: Option<Chosen>,
}

impl Extended {
    /// Where the option is written that an error of the command line is about, if that is in a
    /// profile.
    pub fn position_of(&self, error: &clap::Error) -> Option<&Position> {
        let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else {
            return None;
        };
        let name = arg.trim_start_matches('-').split([' ', '=']).next()?;
        let name = name.trim_matches(['<', '>', '[', ']', '.']).to_lowercase();
        let is_it = |setting: &&Setting| setting.name == name;
        self.settings.iter().find(is_it).map(|setting| &setting.position)
    }
}

/// Adds to what was typed what the profile says about the command.
pub fn extend(command: &Command, typed: Vec<OsString>) -> Result<Extended, CliError> {
    let as_typed = |arguments| Ok(Extended { arguments, settings: Vec::new(), chosen: None });
    // What is wrong with them is said when they are complete.
    let lenient = command.clone().ignore_errors(true).try_get_matches_from(&typed);
    let Ok(matches) = lenient else { return as_typed(typed) };
    let Some((name, matches)) = matches.subcommand() else { return as_typed(typed) };
    if WITHOUT.contains(&name) {
        return as_typed(typed);
    }
    let args = ProfileArgs {
        profile: matches.get_one("profile").cloned(),
        config: matches.get_one("config").cloned(),
    };
    let Some(mut chosen) = args.chosen(is_given("repo", matches))? else {
        return as_typed(typed);
    };
    let (profiles, profile) = (&chosen.profiles, &chosen.name);
    let all = built(command);
    let of = all.find_subcommand(name).expect("it was just matched");
    let (added, settings) = added(command, &typed, matches, resolve(profiles, profile, of)?);
    let is_meant = |(name, _): &(String, String)| {
        let is_said = passphrase::VARIABLES.contains(&&**name) && has_passphrase(matches);
        !is_said && std::env::var_os(name).is_none()
    };
    chosen.variables = profiles.variables(profile)?.into_iter().filter(is_meant).collect();
    let arguments = added.behind(&typed);
    Ok(Extended { arguments, settings, chosen: Some(chosen) })
}

/// What of the settings about a command is added to what was typed, which comes first.
fn added(
    command: &Command,
    typed: &[OsString],
    matches: &ArgMatches,
    resolved: Vec<(&Arg, &Setting)>,
) -> (Added, Vec<Setting>) {
    let mut added = Added::default();
    let mut settings = Vec::new();
    for (arg, setting) in resolved {
        let one = Added::from(arg, setting);
        let id = arg.get_id().as_str();
        let is_said = is_given(id, matches)
            || (SOURCES.contains(&id) && SOURCES.iter().any(|other| is_given(other, matches)))
            || (is_passphrase(id) && has_passphrase(matches));
        if is_said || is_excluded(command, typed, &one) {
            continue;
        }
        added.options.extend(one.options);
        added.words.extend(one.words);
        settings.push(setting.clone());
    }
    (added, settings)
}

/// Whether an option says where the passphrase is.
fn is_passphrase(id: &str) -> bool {
    passphrase::SOURCES.iter().any(|name| name.replace('-', "_") == id)
}

/// Whether something says where the passphrase is: then what a profile says of that is not meant, whichever
/// way it names.
fn has_passphrase(matches: &ArgMatches) -> bool {
    let mut sources = passphrase::SOURCES.iter().map(|name| name.replace('-', "_"));
    passphrase::is_in_environment() || sources.any(|id| is_given(&id, matches))
}

/// What the parser says of a command if it is typed alone and the profile adds all the rest, as in
/// the night.
pub fn try_alone(
    command: &Command,
    of: &Command,
    resolved: Vec<(&Arg, &Setting)>,
) -> Result<ArgMatches, clap::Error> {
    let typed: Vec<OsString> = vec![command.get_name().into(), of.get_name().into()];
    let lenient = command.clone().ignore_errors(true).try_get_matches_from(&typed)?;
    let Some((_, matches)) = lenient.subcommand() else { return Ok(lenient) };
    let (added, _) = added(command, &typed, matches, resolved);
    command.clone().try_get_matches_from(added.behind(&typed))
}

/// Arguments that a profile adds.
#[derive(Default)]
struct Added {
    options: Vec<OsString>,
    words: Vec<OsString>,
}

impl Added {
    fn from(arg: &Arg, setting: &Setting) -> Self {
        match arg.get_long() {
            Some(long) => Self { options: setting.as_options(long), words: Vec::new() },
            None => Self { options: Vec::new(), words: setting.as_words() },
        }
    }

    /// Options before, words behind the first `--`.
    fn behind(self, typed: &[OsString]) -> Vec<OsString> {
        let end = typed.iter().position(|word| word == "--").unwrap_or(typed.len());
        let (typed, typed_words) = typed.split_at(end);
        let mut arguments = [typed, &self.options].concat();
        if !typed_words.is_empty() || !self.words.is_empty() {
            arguments.push("--".into());
            arguments.extend(typed_words.iter().skip(1).cloned().chain(self.words));
        }
        arguments
    }
}

/// Whether what was typed excludes what a profile says, by the rules of the parser.
fn is_excluded(command: &Command, typed: &[OsString], one: &Added) -> bool {
    let one = Added { options: one.options.clone(), words: one.words.clone() };
    let tried = command.clone().try_get_matches_from(one.behind(typed));
    tried.is_err_and(|error| error.kind() == ErrorKind::ArgumentConflict)
}

/// The command with the options of every command in each of its subcommands.
pub fn built(command: &Command) -> Command {
    let mut command = command.clone();
    command.build();
    command
}

/// What a profile says, and the option that it is about.
pub type Resolved<'c, 'p> = (&'c Arg, &'p Setting);

/// What a profile says about a command, and the options that it is about.
pub fn resolve<'c, 'p>(
    profiles: &'p Profiles,
    profile: &str,
    command: &'c Command,
) -> Result<Vec<Resolved<'c, 'p>>, CliError> {
    resolve_each(profiles, profile, command)?.into_iter().collect()
}

/// The same, and of each setting that is wrong why.
pub fn resolve_each<'c, 'p>(
    profiles: &'p Profiles,
    profile: &str,
    command: &'c Command,
) -> Result<Vec<Result<Resolved<'c, 'p>, CliError>>, CliError> {
    let can_be_written = |arg: &&Arg| !UNWRITTEN.contains(&arg.get_id().as_str());
    let args: Vec<&Arg> = command.get_arguments().filter(can_be_written).collect();
    let settings = profiles.settings(profile, command.get_name())?;
    Ok(settings
        .into_iter()
        .map(|setting| Ok((arg_of(setting, profile, command, &args)?, setting)))
        .collect())
}

/// The option, among those of a command, that a setting is about.
fn arg_of<'c>(
    setting: &Setting,
    profile: &str,
    command: &Command,
    args: &[&'c Arg],
) -> Result<&'c Arg, CliError> {
    let is_it = |arg: &&&'c Arg| {
        written_name(arg) == setting.name
            || arg.get_all_aliases().is_some_and(|all| all.contains(&&*setting.name))
    };
    let names =
        |args: Vec<&&'c Arg>| args.into_iter().map(|arg| written_name(arg)).collect::<Vec<_>>();
    let found = args.iter().find(is_it).copied();
    let arg = match (found, &setting.section) {
        (Some(arg), Some(_)) => arg,
        (Some(arg), None) if arg.is_global_set() => arg,
        (_, None) => {
            let known = names(args.iter().filter(|arg| arg.is_global_set()).collect());
            let what = format!("`{}` is no option of every command", setting.name);
            let hint = match found {
                Some(_) => format!("write it below a line [{profile}.{}]", command.get_name()),
                None => meant(&setting.name, &known),
            };
            return Err(wrong(&setting.position, what, hint));
        }
        (None, Some(section)) => {
            let known = names(args.iter().collect());
            let what = format!("`{section}` has no option `{}`", setting.name);
            return Err(wrong(&setting.position, what, meant(&setting.name, &known)));
        }
    };
    match setting.misfit(arg) {
        Some(why) => {
            let what = format!("`{}`: {why}", setting.name);
            let hint = format!("`strongroom {} --help` explains it", command.get_name());
            Err(wrong(&setting.position, what, hint))
        }
        None => Ok(arg),
    }
}

/// The name of an option or argument in a profile.
pub fn written_name(arg: &Arg) -> &str {
    arg.get_long().unwrap_or(arg.get_id().as_str())
}

/// Tries what a setting says as it would be typed.
///
/// # Errors
///
/// If the option cannot have this value.
pub fn try_out(
    command: &Command,
    of: &Command,
    arg: &Arg,
    setting: &Setting,
) -> Result<(), CliError> {
    let mut words: Vec<OsString> = vec![command.get_name().into(), of.get_name().into()];
    match arg.get_long() {
        Some(long) => words.extend(setting.as_options(long)),
        None => words.extend(std::iter::once("--".into()).chain(setting.as_words())),
    }
    let Err(error) = command.clone().try_get_matches_from(words) else { return Ok(()) };
    if !matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) {
        // Alone it lacks others.
        return Ok(());
    }
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let what = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    let hint = format!("`strongroom {} --help` explains it", of.get_name());
    Err(wrong(&setting.position, what, hint))
}

/// Whether it was typed, or a variable says it.
fn is_given(id: &str, matches: &ArgMatches) -> bool {
    // Each subcommand has its own options.
    let is_known = matches.try_contains_id(id).is_ok();
    let source = if is_known { matches.value_source(id) } else { None };
    matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}
