//! `strongroom machine emulator`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use strongroom_machine::emulator_files;

use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::terminal::printable;

/// Which emulator.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The emulator: a path, or a name in PATH
    #[arg(default_value = "qemu-system-x86_64")]
    program: PathBuf,
}

const HELP: &str = "\
It prints one path per line: the program, its libraries, modules and firmware. To store them, and to \
start a machine under that QEMU when this system has another:

  strongroom machine emulator | strongroom backup --files-from -
  strongroom boot latest:/vm1 --emulator latest:/usr/bin/qemu-system-x86_64";

/// Lists its files.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let failed = |error: std::io::Error| {
        let message = format!("cannot list the files of {}: {error}", printable(&args.program));
        CliError::new(Exit::Failed, message, "name the emulator by its path")
    };
    let program = in_path(&args.program).ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()));
    for path in emulator_files(&program?).map_err(failed)? {
        let text = path.to_string_lossy();
        context.terminal.json(&json!({"event": "text", "text": text}))?;
        context.terminal.line(text)?;
    }
    Ok(Exit::Done.into())
}

/// Where a program is that is named as in a shell.
fn in_path(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return Some(program.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}
