//! `strongroom machine show`

use std::process::ExitCode;

use serde_json::json;
use strongroom_base::units::bytes_text;

use super::MachineArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::terminal::{printable_text, table};

/// The machine.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    machine: MachineArgs,
}

/// Shows it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let machine = args.machine.find()?;
    let head = ["Disk", "Size", "Format", "Notes writes", "Image"].map(ToString::to_string);
    let mut rows = vec![head.to_vec()];
    for drive in machine.disks() {
        let file = drive.file.clone().unwrap_or_default();
        context.terminal.json(&json!({
            "event": "drive",
            "name": drive.name,
            "bytes": drive.bytes,
            "format": drive.format,
            "file": file,
            "keeps_bitmaps": drive.keeps_bitmaps,
            "left_out": null,
        }))?;
        let notes = match (drive.notes_writes, drive.keeps_bitmaps) {
            (false, _) => "no",
            (true, false) => "while it runs",
            (true, true) => "also when it stops",
        };
        rows.push(vec![
            drive.name.clone(),
            drive.bytes.map(bytes_text).unwrap_or_default(),
            drive.format.clone(),
            notes.to_owned(),
            printable_text(&file),
        ]);
    }
    for drive in machine.left_out() {
        context.terminal.json(&json!({
            "event": "drive",
            "name": drive.name,
            "bytes": null,
            "format": null,
            "file": null,
            "keeps_bitmaps": null,
            "left_out": drive.why.to_string(),
        }))?;
        rows.push(vec![drive.name.clone(), String::new(), format!("left out: {}", drive.why)]);
    }
    for line in table(&rows, &[1]) {
        context.terminal.line(line)?;
    }
    Ok(Exit::Done.into())
}
