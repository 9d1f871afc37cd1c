//! `strongroom manpages`

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;

use crate::context::Context;
use crate::exit::{CliError, EXIT_CODES, Exit};
use crate::manual::{ENVIRONMENT, command, examples};
use crate::terminal::printable;

/// Where they are written to.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The folder to write them into, such as /usr/local/share/man/man1
    folder: PathBuf,
}

/// Writes them.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let folder = printable(&args.folder);
    let mut command = command().disable_help_subcommand(true);
    command.build();
    write_pages(&args.folder, &command, "").map_err(|error| {
        let message = format!("cannot write into {folder}: {error}");
        CliError::new(Exit::Failed, message, "name a folder that exists and that you may write to")
    })?;
    context.terminal.line(format!("wrote the manual pages into {folder}"))?;
    Ok(Exit::Done.into())
}

/// Writes the page of a command, and those of the commands below it. `name` is empty for the
/// program itself, else such as `key-add`.
fn write_pages(folder: &std::path::Path, command: &Command, name: &str) -> std::io::Result<()> {
    let title =
        if name.is_empty() { "strongroom".to_owned() } else { format!("strongroom-{name}") };
    let mut page = Vec::new();
    // The help's own examples and exit codes get sections of their own here.
    let man = Man::new(command.clone().after_help("")).title(&title);
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if let Some(help) = command.get_after_help().filter(|_| !name.is_empty()) {
        let text = help.to_string();
        let text = text.split("Examples:").next().unwrap_or_default().trim_end();
        if !text.is_empty() {
            writeln!(page, ".PP\n.nf\n{}\n.fi", escaped(text))?;
        }
    }
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if !examples(name).is_empty() {
        writeln!(page, ".SH EXAMPLES")?;
    }
    for example in examples(name) {
        writeln!(page, ".TP\n{}\n\\fB{}\\fR", escaped(example.what), escaped(example.line))?;
    }
    write_list(&mut page, "ENVIRONMENT", &ENVIRONMENT)?;
    write_list(&mut page, "EXIT STATUS", &EXIT_CODES)?;
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

fn write_list(page: &mut Vec<u8>, title: &str, items: &[(&str, &str)]) -> std::io::Result<()> {
    writeln!(page, ".SH \"{title}\"")?;
    for (name, meaning) in items {
        writeln!(page, ".TP\n\\fB{}\\fR\n{}", escaped(name), escaped(meaning))?;
    }
    Ok(())
}

/// Text in which roff finds nothing to act on.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text.lines().map(|line| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}
