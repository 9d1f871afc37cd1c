//! The synopsis of a manual page: what can be typed, with the arguments of options. (That of
//! `clap_mangen` has options without them.)

use clap::{Arg, ArgAction, Command};

use super::escaped;

/// The line. Options that every command has are one word: they have headings of their own below.
pub fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut words = vec![format!("\\fB{}\\fR", escaped(name))];
    let shown = |arg: &&Arg| !arg.is_hide_set() && !arg.is_global_set();
    let options = command.get_arguments().filter(shown).filter(|arg| !arg.is_positional());
    words.extend(options.filter(|arg| !is_question(arg)).map(|arg| bracketed(arg, &option(arg))));
    words.push("[\\fICOMMON\\ OPTION\\fR]...".to_owned());
    if command.has_subcommands() {
        words.push("\\fICOMMAND\\fR".to_owned());
    }
    let positionals = command.get_positionals().filter(shown);
    words.extend(positionals.map(|arg| bracketed(arg, &format!("\\fI{}\\fR", value(arg)))));
    words.join("\n")
}

fn is_question(arg: &Arg) -> bool {
    let kinds = [ArgAction::Help, ArgAction::HelpLong, ArgAction::HelpShort, ArgAction::Version];
    kinds
        .iter()
        .any(|kind| std::mem::discriminant(kind) == std::mem::discriminant(arg.get_action()))
}

fn option(arg: &Arg) -> String {
    let long = arg.get_long().map(|long| format!("\\fB\\-\\-{}\\fR", escaped(long)));
    let short = arg.get_short().map(|short| format!("\\fB\\-{short}\\fR"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let names = names.join("|");
    if !arg.get_action().takes_values() {
        return names;
    }
    let range = arg.get_num_args().unwrap_or_default();
    let equals = if arg.is_require_equals_set() { "=" } else { "\\ " };
    match range.min_values() {
        0 => format!("{names}[{equals}\\fI{}\\fR]", value(arg)),
        _ => format!("{names}{equals}\\fI{}\\fR", value(arg)),
    }
}

fn value(arg: &Arg) -> String {
    let names = arg.get_value_names().map(|names| names.join("\\ "));
    escaped(&names.unwrap_or_else(|| arg.get_id().to_string())).replace("\\e ", "\\ ")
}

/// In brackets if it may be left out, with dots if it may be given several times.
fn bracketed(arg: &Arg, text: &str) -> String {
    let many = arg.is_positional() && arg.get_num_args().is_some_and(|n| n.max_values() > 1)
        || matches!(arg.get_action(), ArgAction::Append | ArgAction::Count) && !arg.is_positional();
    let dots = if many { "..." } else { "" };
    match arg.is_required_set() {
        true => format!("{text}{dots}"),
        false => format!("[{text}]{dots}"),
    }
}
