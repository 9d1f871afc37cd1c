//! A command line that is not understood: what is wrong with it, and for words of other backup
//! programs what is meant here.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use strongroom_base::Printable;

use crate::Cli;
use crate::exit::{CliError, Exit};
use crate::profile::Position;
use crate::terminal::{Events, write_wrapped};

/// Commands with the path of a file behind a snapshot, as one word.
const OF_FILES: [&str; 6] = ["cat", "drill", "dump", "ls", "mount", "restore"];

/// Reports an invalid command line, or prints the help that was asked for.
/// `position` is where a profile has what is wrong.
pub fn explain(
    error: &clap::Error,
    words: &[OsString],
    position: Option<&Position>,
    json: Option<Events>,
) -> ExitCode {
    if let Some((message, hint)) = familiar(error, words) {
        return CliError::new(Exit::Usage, message, hint).report(json);
    }
    if let Some(events) = json.filter(|_| error.use_stderr()) {
        return explain_json(error, position, events);
    }
    // If the stream is closed, there is nowhere left to report to.
    let _ = error.print();
    if let Some(position) = position {
        write_wrapped("\n hint: ", &format!("it is written in {position}"));
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// The same for a program.
fn explain_json(error: &clap::Error, position: Option<&Position>, events: Events) -> ExitCode {
    let text = error.render().to_string();
    // Behind the first empty line is how the command is used.
    let message = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    let hint = match position {
        Some(position) => format!("it is written in {position}"),
        None => "`strongroom COMMAND --help` shows how it is used".to_owned(),
    };
    CliError::new(Exit::Usage, message.trim_end(), hint).report(Some(events))
}

/// What is wrong, and what is meant, if the word is known from elsewhere.
fn familiar(error: &clap::Error, words: &[OsString]) -> Option<(String, String)> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let command = command_in(words);
    let of = command.as_deref().unwrap_or_default();
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let name = text(ContextKind::InvalidSubcommand)?;
            let hint = if of.is_empty() { for_command(name)? } else { for_act(of, name)? };
            let name = [of, name].join(" ");
            Some((format!("there is no command `{}`", name.trim_start()), hint.to_owned()))
        }
        ErrorKind::UnknownArgument => {
            let word = text(ContextKind::InvalidArg)?;
            let shown = Printable::text(word);
            if word.starts_with('-') {
                let of_help = || format!("`strongroom {of} --help` lists its options");
                let is_unlike =
                    text(ContextKind::SuggestedArg).is_some_and(|arg| !is_like(word, arg));
                let hint = for_option(of, word).map(str::to_owned);
                let hint = hint.or_else(|| (is_unlike && !of.is_empty()).then(of_help))?;
                return Some((format!("`{of}` has no option `{shown}`"), hint));
            }
            let is_path = word.contains('/') && OF_FILES.contains(&of);
            let hint = format!("a path is typed behind its snapshot and a colon: `latest:{shown}`");
            is_path.then(|| (format!("`{of}` takes no further word, and here is `{shown}`"), hint))
        }
        _ => None,
    }
}

/// Whether an option can be what was meant by a word. clap takes a few letters anywhere in a long option for
/// likeness.
fn is_like(word: &str, option: &str) -> bool {
    let word = word.split('=').next().unwrap_or_default();
    option.starts_with(word) || word.len().abs_diff(option.len()) <= 3
}

/// The command of a command line, by its own name.
fn command_in(words: &[OsString]) -> Option<String> {
    let program = Cli::command();
    let words = words.iter().skip(1).filter_map(|word| word.to_str());
    let mut commands = words.filter_map(|word| program.find_subcommand(word));
    commands.next().map(|command| command.get_name().to_owned())
}

/// What to use instead of a command of another backup program.
fn for_command(name: &str) -> Option<&'static str> {
    Some(match name {
        "break-lock" => "a repository has no locks; `strongroom unlock` lists open backups",
        "delete" => {
            "`strongroom forget` forgets snapshots; `strongroom prune` then frees their room"
        }
        "compact" | "gc" => "`strongroom prune` removes what no snapshot needs",
        "migrate" | "convert" => {
            "`strongroom import` takes over the snapshots of a restic or Borg repository"
        }
        "pin" | "protect" => "`strongroom hold` keeps a snapshot, also if no rule does",
        "create" => "`strongroom backup` makes a snapshot, `strongroom init` a repository",
        "list" => "`strongroom snapshots` lists the snapshots, `strongroom ls` the files of one",
        "extract" => "`strongroom restore` restores files, `strongroom cat` prints one",
        "umount" => "`fusermount3 -u DIR` unmounts, and so does Ctrl-C in the mounting terminal",
        "sync" | "mirror" => "`strongroom replicate` copies what is new to another place",
        "rebuild-index" | "recover" => "`strongroom repair` does this, and builds the index again",
        _ => return None,
    })
}

/// What to use instead of an act of a command that has several.
fn for_act(command: &str, act: &str) -> Option<&'static str> {
    Some(match (command, act) {
        ("profile", "list" | "ls") => "`strongroom profile check` names all profiles",
        ("profile", "edit") => "`strongroom profile show` says which file to edit",
        ("profile", "run") => "`strongroom --profile NAME run` runs one",
        _ => return None,
    })
}

/// What to use instead of an option of another backup program.
fn for_option(command: &str, option: &str) -> Option<&'static str> {
    Some(match (command, option) {
        ("forget", "--prune") => {
            "`strongroom prune` is a command of its own; `strongroom run` does both for a profile"
        }
        ("forget", "--group-by" | "-g") => {
            "rules count for each host and set of paths by themselves; --host, --path and --label \
             choose some of them"
        }
        ("snapshots", "--latest" | "-l" | "--last") => {
            "the newest is listed last, and every command takes it as `latest`; --host, --path and \
             --label narrow the list"
        }
        ("replicate", "--from-repo" | "--from-repository-file") => {
            "the repository is what is copied, and where to is the next word: \
             `strongroom --repo FROM copy TO`"
        }
        ("replicate", "--to" | "--target" | "--dest" | "--destination") => {
            "the place is typed by itself: `strongroom replicate PLACE`"
        }
        ("unlock", "--remove-all") => {
            "nothing is locked, and no lock has to be removed; `strongroom unlock` lists open backups"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hint_hides_what_exists() {
        let mut program = crate::manual::command();
        program.build();
        for command in program.get_subcommands() {
            for name in command.get_all_aliases().chain([command.get_name()]) {
                assert_eq!(for_command(name), None, "{name}");
            }
            for act in command.get_subcommands() {
                assert_eq!(for_act(command.get_name(), act.get_name()), None);
            }
            for arg in command.get_arguments() {
                let long = arg.get_long().map(|long| format!("--{long}"));
                let short = arg.get_short().map(|short| format!("-{short}"));
                for option in long.into_iter().chain(short) {
                    assert_eq!(for_option(command.get_name(), &option), None, "{option}");
                }
            }
        }
    }

    #[test]
    fn what_others_say_is_explained() {
        for (line, hint) in [
            ("ls latest /etc", "`latest:/etc`"),
            ("restore latest etc/passwd --in-place", "`latest:etc/passwd`"),
            ("check --frob", ""),
            ("forget --keep-daily 3 --prune", "`strongroom prune`"),
            ("snapshots --latest 1", "`latest`"),
            ("copy --from-repo other", "`strongroom --repo FROM copy TO`"),
            ("replicate --to other", "`strongroom replicate PLACE`"),
            ("mount --to /mnt", "`strongroom mount --help`"),
            ("backup --exlude a b", ""),
            ("forget --keep 3", ""),
            ("profile list", "`strongroom profile check`"),
            ("list", "`strongroom snapshots`"),
            ("backup --help", ""),
        ] {
            let words: Vec<OsString> =
                ["strongroom"].into_iter().chain(line.split(' ')).map(Into::into).collect();
            let error = crate::manual::command().try_get_matches_from(&words).unwrap_err();
            let said = familiar(&error, &words);
            let said = said.map(|(_, hint)| hint).unwrap_or_default();
            assert!(said.contains(hint) && said.is_empty() == hint.is_empty(), "{line}: {said}");
        }
    }
}
