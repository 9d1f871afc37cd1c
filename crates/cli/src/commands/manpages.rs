//! `strongroom manpages`: a page for each command, from the same definition as its help, and one
//! for the file with profiles, from the document about it.

mod markdown;
mod synopsis;

use std::io::{Error, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;

use crate::context::Context;
use crate::exit::{CliError, EXIT_CODES, Exit};
use crate::manual::{ENVIRONMENT, FILES, PLACES, command, examples};
use crate::terminal::printable;
use synopsis::synopsis;

/// The document that becomes `strongroom-profile(5)`.
const PROFILES: &str = include_str!("../../../../docs/profiles.md");

/// Where they are written to.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The folder to write them into, in its folders man1 and man5, such as /usr/local/share/man
    folder: PathBuf,
}

/// Writes them.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let folder = printable(&args.folder);
    let mut command = command().disable_help_subcommand(true);
    command.build();
    write_manual(&args.folder, &command).map_err(|error| {
        let message = format!("cannot write into {folder}: {error}");
        CliError::new(Exit::Failed, message, "name a folder that exists and that you may write to")
    })?;
    context.terminal.line(format!("wrote the manual pages into {folder}"))?;
    Ok(Exit::Done.into())
}

fn write_manual(folder: &Path, command: &Command) -> Result<(), Error> {
    let sections = [folder.join("man1"), folder.join("man5")];
    for section in &sections {
        match std::fs::create_dir(section) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    write_pages(&sections[0], command, "")?;
    let mut page = Vec::new();
    write_title(&mut page, "strongroom-profile", 5)?;
    let name = "strongroom-profile - the file with profiles: what need not be typed each time";
    writeln!(page, ".SH NAME\n{}\n.SH DESCRIPTION", escaped(name))?;
    page.extend(markdown::to_roff(PROFILES).into_bytes());
    write_list(&mut page, "FILES", &FILES)?;
    write_also(&mut page, &["strongroom(1)", "strongroom-profile(1)"])?;
    std::fs::write(sections[1].join("strongroom-profile.5"), page)
}

/// Writes the page of a command, and those of the commands below it. `name` is empty for the
/// program itself, else such as `key-add`.
fn write_pages(folder: &Path, command: &Command, name: &str) -> Result<(), Error> {
    let title = title_of(name);
    let mut page = Vec::new();
    write_title(&mut page, &title, 1)?;
    // The help's own examples and exit codes get sections of their own here.
    let man = Man::new(command.clone().after_help("")).title(&title);
    man.render_name_section(&mut page)?;
    writeln!(page, ".SH SYNOPSIS\n{}", synopsis(command))?;
    man.render_description_section(&mut page)?;
    if let Some(help) = command.get_after_help().filter(|_| !name.is_empty()) {
        let text = help.to_string();
        let text = text.split("Examples:").next().unwrap_or_default().trim_end();
        if !text.is_empty() {
            writeln!(page, ".PP\n.nf\n{}\n.fi", escaped(text))?;
        }
    }
    let mut options = Vec::new();
    man.render_options_section(&mut options)?;
    // Where the values of an option are listed, an empty line is between two breaks.
    page.extend(String::from_utf8_lossy(&options).replace(".br\n\n.br\n", ".br\n").into_bytes());
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if name.is_empty() {
        write_places(&mut page)?;
    }
    let above = name_above(name);
    writeln!(page, ".SH EXAMPLES")?;
    // Its own, or those of the command above that has some: the program itself does.
    let mut above_all = std::iter::successors(Some(name), |name| Some(name_above(name)));
    let with_examples = above_all.find(|name| !examples(name).is_empty()).unwrap_or_default();
    for example in examples(with_examples) {
        writeln!(page, ".TP\n{}\n\\fB{}\\fR", escaped(example.what), escaped(example.line))?;
    }
    write_list(&mut page, "ENVIRONMENT", &ENVIRONMENT)?;
    write_list(&mut page, "FILES", &FILES)?;
    write_list(&mut page, "EXIT STATUS", &EXIT_CODES)?;
    let above = format!("{}(1)", title_of(above));
    match name {
        "" => write_also(&mut page, &["strongroom-profile(5)"])?,
        _ => write_also(&mut page, &[&above, "strongroom-profile(5)"])?,
    }
    std::fs::write(folder.join(format!("{title}.1")), page)?;
    for subcommand in command.get_subcommands() {
        let below = match name {
            "" => subcommand.get_name().to_owned(),
            name => format!("{name}-{}", subcommand.get_name()),
        };
        write_pages(folder, subcommand, &below)?;
    }
    Ok(())
}

fn title_of(name: &str) -> String {
    if name.is_empty() { "strongroom".to_owned() } else { format!("strongroom-{name}") }
}

/// The first line, and what an apostrophe is. It has no date: two builds give the same page.
fn write_title(page: &mut Vec<u8>, title: &str, section: u8) -> Result<(), Error> {
    let title = escaped(&title.to_uppercase());
    let version = env!("CARGO_PKG_VERSION");
    writeln!(page, ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '")?;
    writeln!(page, ".TH {title} {section} \"\" \"strongroom {version}\" \"Strongroom\"")
}

fn write_places(page: &mut Vec<u8>) -> Result<(), Error> {
    writeln!(
        page,
        ".SH PLACES\nWhere a repository can be, and the variables that let a client in."
    )?;
    for (place, variables) in PLACES {
        let variables = if variables.is_empty() { "none" } else { variables };
        writeln!(page, ".TP\n\\fB{}\\fR\n{}", escaped(place), escaped(variables))?;
    }
    Ok(())
}

/// `ram-cluster` of `ram-cluster-store`; empty for the program itself.
fn name_above(name: &str) -> &str {
    name.rsplit_once('-').map_or("", |(above, _)| above)
}

fn write_list(page: &mut Vec<u8>, title: &str, items: &[(&str, &str)]) -> Result<(), Error> {
    writeln!(page, ".SH \"{title}\"")?;
    for (name, meaning) in items {
        writeln!(page, ".TP\n\\fB{}\\fR\n{}", escaped(name), escaped(meaning))?;
    }
    Ok(())
}

fn write_also(page: &mut Vec<u8>, pages: &[&str]) -> Result<(), Error> {
    let pages: Vec<String> = pages
        .iter()
        .map(|page| {
            let (name, section) = page.split_once('(').unwrap_or((page, ""));
            format!("\\fB{}\\fR({section}", escaped(name))
        })
        .collect();
    writeln!(page, ".SH \"SEE ALSO\"\n{}", pages.join(", "))
}

/// Text in which roff finds nothing to act on.
fn escaped(text: &str) -> String {
    let text = part_escaped(text);
    let lines = text.lines().map(|line| match line.starts_with('.') {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// As [`escaped`], for text that does not begin a line.
fn part_escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq")
}
