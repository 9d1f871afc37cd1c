//! `strongroom profile`

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
use serde_json::json;
use strongroom_base::units::counted;
use strongroom_base::{Printable, Severity};

use super::forget;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::manual;
use crate::night::STEPS;
use crate::profile::{self, DEFAULT, Position, Profiles, Setting};
use crate::terminal::path_json;

/// What `profile init` writes.
const EXAMPLE: &str = include_str!("../profile/example.toml");

/// What is done with the file of profiles.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, Clone, Subcommand)]
enum Act {
    /// Write an example into the file, if there is none
    Init,
    /// Check the file: every profile, and all that it includes
    Check,
    /// Show what a profile says, and where
    Show {
        /// The profile
        #[arg(default_value = DEFAULT)]
        name: String,
    },
}

/// Does it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    match &args.act {
        Act::Init => init(context),
        Act::Check => check(context),
        Act::Show { name } => show(context, name),
    }
}

fn init(context: &Context) -> Result<ExitCode, CliError> {
    let no_home = || {
        let hint = "set HOME, or name a file with --config";
        CliError::new(Exit::Failed, "there is no folder for the file with profiles", hint)
    };
    let path = context.profile().new_file().ok_or_else(no_home)?;
    let failed = |error: std::io::Error| {
        let message = format!("cannot write {}: {error}", Printable::path(&path));
        CliError::new(Exit::Failed, message, "edit it, or name another file with --config")
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut options = std::fs::File::options();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
    file.write_all(EXAMPLE.as_bytes()).map_err(failed)?;
    context.terminal.json(&json!({ "event": "summary", "path": path_json(&path) }))?;
    let path = Printable::path(&path);
    context
        .terminal
        .line(format!("{path} is written: edit it, then run `strongroom profile check`"))?;
    Ok(Exit::Done.into())
}

fn profiles_of(context: &Context) -> Result<Profiles, CliError> {
    let none = || {
        let hint = "`strongroom profile init` writes an example; --config names another file";
        CliError::new(Exit::Failed, "there is no file with profiles", hint)
    };
    Profiles::read(&context.profile().file().ok_or_else(none)?)
}

fn check(context: &Context) -> Result<ExitCode, CliError> {
    let profiles = profiles_of(context)?;
    let command = profile::built(&manual::command());
    let (mut settings, mut warnings, mut errors) = (0, Vec::new(), Vec::new());
    for name in profiles.names() {
        let wrong_before = errors.len();
        settings += check_settings(&profiles, name, &command, &mut errors)?;
        if errors.len() > wrong_before {
            continue;
        }
        // One that others take over may leave to them what a step needs.
        if name == DEFAULT || !profiles.is_extended(name) {
            errors.extend(check_night(&profiles, name, &command).err());
        }
        for warning in doubts(&profiles, name)? {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    for warning in &warnings {
        context.terminal.problem(Severity::Warning, warning);
    }
    if let Some(last) = errors.pop() {
        // The same setting may be of several profiles.
        let mut told = vec![last.to_string()];
        for error in errors {
            if !told.contains(&error.to_string()) {
                told.push(error.to_string());
                error.report(context.terminal.events());
            }
        }
        return Err(last);
    }
    let count = profiles.names().count() as u64;
    context
        .terminal
        .json(&json!({ "event": "summary", "profiles": count, "settings": settings }))?;
    let names: Vec<String> =
        profiles.names().map(|name| Printable::text(name).to_string()).collect();
    context.terminal.line(match names.is_empty() {
        true => "there is no profile in the file".to_owned(),
        false => format!(
            "{} in order: {}",
            counted(count, "profile is", "profiles are"),
            names.join(", ")
        ),
    })?;
    Ok(if warnings.is_empty() { Exit::Done } else { Exit::Incomplete }.into())
}

/// Checks a profile.
pub fn check_one(profiles: &Profiles, name: &str, command: &Command) -> Result<(), CliError> {
    let mut errors = Vec::new();
    check_settings(profiles, name, command, &mut errors)?;
    errors.into_iter().next().map_or(Ok(()), Err)
}

/// Checks that each section of a profile is about a command.
pub fn check_sections(profiles: &Profiles, name: &str, command: &Command) -> Result<(), CliError> {
    sections_of(profiles, name, command)?.into_iter().try_for_each(|section| section.map(drop))
}

/// Checks each setting of a profile, and counts them.
fn check_settings(
    profiles: &Profiles,
    name: &str,
    command: &Command,
    errors: &mut Vec<CliError>,
) -> Result<u64, CliError> {
    let mut settings = 0;
    profiles.variables(name)?;
    for section in sections_of(profiles, name, command)? {
        let section = match section {
            Ok(section) => section,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        for resolved in profile::resolve_each(profiles, name, section)? {
            let tried = resolved
                .and_then(|(arg, setting)| profile::try_out(command, section, arg, setting));
            errors.extend(tried.err());
            settings += 1;
        }
    }
    Ok(settings)
}

/// What in a profile is no error, but will hardly do what was meant.
pub fn doubts(profiles: &Profiles, name: &str) -> Result<Vec<String>, CliError> {
    let mut doubts: Vec<String> = profile::mistyped(profiles, name)?.into_iter().collect();
    doubts.extend(profile::absent(profiles, name)?);
    doubts.extend(profile::exposed(profiles, name)?);
    Ok(doubts)
}

/// Checks that each step of a profile's night has what it needs.
pub fn check_night(profiles: &Profiles, name: &str, command: &Command) -> Result<(), CliError> {
    for (section, position) in profiles.sections(name)? {
        let (true, Some(of)) = (STEPS.contains(&section), command.find_subcommand(section)) else {
            continue;
        };
        let lacks = |what: &str, example: &str| {
            let hint = format!(
                "write {example} below [{name}.{section}], or leave the section out; `strongroom \
                 {section} --help` explains it"
            );
            profile::wrong(position, format!("the step `{section}` needs {what}"), hint)
        };
        match profile::try_alone(command, of, profile::resolve(profiles, name, of)?) {
            Ok(matches) if forgets_nothing(&matches) => {
                return Err(lacks("a rule of what to keep", "keep-daily = 7"));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => {
                let names = missing(&error, of).join(", ");
                return Err(lacks(&format!("`{names}`"), "it"));
            }
            Err(error) if error.kind() == ErrorKind::ArgumentConflict => {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default();
                let what = first.strip_prefix("error: ").unwrap_or(first);
                return Err(profile::wrong(position, what, "leave one of them out"));
            }
            // Each value by itself was checked before.
            Err(_) => {}
        }
    }
    Ok(())
}

fn forgets_nothing(matches: &ArgMatches) -> bool {
    let Some(("forget", matches)) = matches.subcommand() else { return false };
    forget::Args::from_arg_matches(matches).is_ok_and(|args| args.say_nothing())
}

/// What the parser misses, by the names that it has in a profile.
fn missing(error: &clap::Error, of: &Command) -> Vec<String> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return Vec::new();
    };
    let bare = |text: &str| text.trim_matches(['<', '>', '[', ']', '.']).to_owned();
    let name_of = |text: &String| {
        let found = of.get_arguments().find(|arg| bare(&arg.to_string()) == bare(text));
        found.map_or_else(|| text.clone(), |arg| profile::written_name(arg).to_owned())
    };
    missing.iter().map(name_of).collect()
}

fn show(context: &Context, name: &str) -> Result<ExitCode, CliError> {
    let profiles = profiles_of(context)?;
    let command = profile::built(&manual::command());
    let mut shown: Vec<(&str, &Setting)> = Vec::new();
    for section in sections_of(&profiles, name, &command)? {
        for (_, setting) in profile::resolve(&profiles, name, section?)? {
            let of = setting.section.as_deref().unwrap_or("");
            if !shown.iter().any(|(known, other)| (*known, &other.name) == (of, &setting.name)) {
                shown.push((of, setting));
            }
        }
    }
    shown.sort_by_key(|(section, _)| *section);
    let variables = profiles.variables(name)?;
    if !variables.is_empty() {
        context.terminal.line(format!("[{name}.environment]"))?;
    }
    for (variable, _) in variables {
        // Its value may be a secret.
        context.terminal.json(&json!({ "event": "variable", "name": variable }))?;
        context.terminal.line(format!("{variable} = …"))?;
    }
    // An empty section is a step, too.
    let mut empty = profiles.sections(name)?;
    empty.retain(|section, _| !shown.iter().any(|(of, _)| of == section));
    let mut last = None;
    for (section, setting) in shown {
        context.terminal.json(&json!({
            "event": "setting",
            "command": setting.section,
            "name": setting.name,
            "value": setting.written,
            "path": path_json(&setting.position.file),
            "line": setting.position.line,
        }))?;
        if last != Some(section) {
            let dot = if section.is_empty() { "" } else { "." };
            context.terminal.line(format!("[{name}{dot}{section}]"))?;
            last = Some(section);
        }
        let Setting { name, written, position, .. } = setting;
        context.terminal.line(format!("{name} = {written}    # {position}"))?;
    }
    for (section, position) in empty {
        context.terminal.line(format!("[{name}.{section}]    # {position}"))?;
    }
    Ok(Exit::Done.into())
}

/// The commands that a profile has something to say about; one at least, for what is about all.
fn sections_of<'c>(
    profiles: &Profiles,
    profile: &str,
    command: &'c Command,
) -> Result<Vec<Result<&'c Command, CliError>>, CliError> {
    let known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    let any = command.find_subcommand("snapshots").expect("the program has this command");
    let section = |(name, position): (&str, &Position)| {
        let found = command.find_subcommand(name);
        let hint = match found.map(Command::get_name) {
            Some(own) if own == name => return Ok(found.unwrap_or(any)),
            // One thing has one name in a file.
            Some(own) => format!("write `{own}`, of which `{name}` is another name"),
            None => profile::meant(name, &known),
        };
        Err(profile::wrong(position, format!("there is no section `{name}`"), hint))
    };
    let sections = profiles.sections(profile)?.into_iter().map(section);
    Ok(std::iter::once(Ok(any)).chain(sections).collect())
}
