//! `strongroom profile`

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;

use clap::{Command, Subcommand};
use serde_json::json;
use strongroom_base::units::counted;
use strongroom_base::{Printable, Severity};

use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::manual;
use crate::profile::{self, DEFAULT, Profiles, Setting};
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
    let (mut settings, mut warnings) = (0, Vec::new());
    for name in profiles.names() {
        settings += check_one(&profiles, name, &command)?;
        warnings.extend(profile::exposed(&profiles, name)?);
    }
    warnings.dedup();
    for warning in &warnings {
        context.terminal.problem(Severity::Warning, warning);
    }
    let count = profiles.names().count() as u64;
    context
        .terminal
        .json(&json!({ "event": "summary", "profiles": count, "settings": settings }))?;
    context.terminal.line(format!("{} in order", counted(count, "profile is", "profiles are")))?;
    Ok(if warnings.is_empty() { Exit::Done } else { Exit::Incomplete }.into())
}

/// Checks a profile, and counts its settings.
pub fn check_one(profiles: &Profiles, name: &str, command: &Command) -> Result<u64, CliError> {
    let mut settings = 0;
    profiles.variables(name)?;
    for section in sections_of(profiles, name, command)? {
        for (arg, setting) in profile::resolve(profiles, name, section)? {
            profile::try_out(command, section, arg, setting)?;
            settings += 1;
        }
    }
    Ok(settings)
}

fn show(context: &Context, name: &str) -> Result<ExitCode, CliError> {
    let profiles = profiles_of(context)?;
    let command = profile::built(&manual::command());
    let mut shown: Vec<(&str, &Setting)> = Vec::new();
    for section in sections_of(&profiles, name, &command)? {
        for (_, setting) in profile::resolve(&profiles, name, section)? {
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
    let mut last = None;
    for (section, setting) in shown {
        context.terminal.json(&json!({
            "event": "setting",
            "command": setting.section,
            "name": setting.name,
            "value": setting.value.to_string(),
            "path": path_json(&setting.position.file),
            "line": setting.position.line,
        }))?;
        if last != Some(section) {
            let dot = if section.is_empty() { "" } else { "." };
            context.terminal.line(format!("[{name}{dot}{section}]"))?;
            last = Some(section);
        }
        let Setting { name, value, position, .. } = setting;
        context.terminal.line(format!("{name} = {value}    # {position}"))?;
    }
    Ok(Exit::Done.into())
}

/// The commands that a profile has something to say about; one at least, for what is about all.
fn sections_of<'c>(
    profiles: &Profiles,
    profile: &str,
    command: &'c Command,
) -> Result<Vec<&'c Command>, CliError> {
    let known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    let any = command.find_subcommand("snapshots").expect("the program has this command");
    let mut sections = vec![any];
    for (name, position) in profiles.sections(profile)? {
        let found = command.find_subcommand(name).map(Command::get_name);
        let hint = match found {
            Some(found) if found == name => {
                sections.extend(command.find_subcommand(name));
                continue;
            }
            // One thing has one name in a file.
            Some(found) => format!("write `{found}`, of which `{name}` is another name"),
            None => profile::meant(name, &known),
        };
        let what = format!("there is no section `{name}`");
        return Err(profile::wrong(position, what, hint));
    }
    Ok(sections)
}
