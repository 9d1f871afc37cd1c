//! `strongroom machine undo`

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use strongroom_base::Severity;
use strongroom_machine::MachineError;

use super::memory::was_killed;
use super::{MachineArgs, Way, failed};
use crate::context::Context;
use crate::exit::{CliError, Exit};

/// The machine.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    machine: MachineArgs,
    /// The socket of the guest agent, to thaw a guest that was left frozen; libvirt knows its own
    #[arg(long, value_name = "SOCKET")]
    agent: Option<PathBuf>,
    /// Wait until standard input ends, and do nothing if something was written to it
    #[arg(long, hide = true)]
    when_input_ends: bool,
}

/// How often it is tried while the process that was killed is still ending.
const TRIES: u32 = 20;

/// Undoes it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    if args.when_input_ends && !was_killed() {
        return Ok(Exit::Done.into());
    }
    let (state, agent) = (args.machine.state_folder()?, args.agent.as_deref());
    let undo = || match args.machine.way() {
        Way::Monitor(monitor) => strongroom_machine::undo(Some(monitor), agent, &state),
        Way::Libvirt { uri, name } => strongroom_machine::undo_libvirt(uri, name, &state),
    };
    let mut undone = undo();
    for _ in 0..if args.when_input_ends { TRIES } else { 0 } {
        if !matches!(undone, Err(MachineError::Running(_))) {
            break;
        }
        undone = undo();
    }
    let undone = undone.map_err(failed)?;
    context.terminal.json(&json!({
        "event": "summary",
        "removed": undone.removed,
        "resumed": undone.is_resumed,
        "thawed": undone.is_thawed,
        "gone": undone.is_gone,
    }))?;
    if undone.is_nothing() {
        context.terminal.line("nothing of ours is in the machine")?;
    }
    if undone.is_gone {
        context.terminal.line("QEMU has ended, and what was in it with it")?;
    }
    if undone.is_resumed {
        context.terminal.line("the machine was paused, and runs again")?;
    }
    if undone.is_thawed {
        context.terminal.line("the guest's file systems were frozen, and are thawed")?;
    }
    for exchanged in &undone.exchanged {
        context.terminal.problem(Severity::Warning, &exchanged.to_string());
    }
    for removed in &undone.removed {
        context.terminal.line(format!("removed {removed}"))?;
    }
    let is_by_monitor = matches!(args.machine.way(), Way::Monitor(_));
    if undone.is_of_unknown_run() && is_by_monitor && args.agent.is_none() {
        let message = "nothing is written down of the backup that left it: if its guest hangs, name the \
            socket of its agent (--agent), which thaws it";
        context.terminal.problem(Severity::Warning, message);
    }
    if undone.is_paused {
        let message = "the machine is paused, and nothing is written down of who paused it";
        let hint = "if it was not paused on purpose, have it go on: `cont` in its monitor";
        return Err(CliError::new(Exit::Failed, message, hint));
    }
    Ok(Exit::Done.into())
}
