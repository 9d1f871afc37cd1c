//! `strongroom machine undo`

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use super::{MonitorArgs, failed, state_folder};
use crate::context::Context;
use crate::exit::{CliError, Exit};

/// The machine.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    monitor: MonitorArgs,
    /// The socket of the guest agent, to thaw a guest that was left frozen
    #[arg(long, value_name = "SOCKET")]
    agent: Option<PathBuf>,
}

/// Undoes it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let monitor = &args.monitor.monitor;
    let (state, agent) = (state_folder(monitor)?, args.agent.as_deref());
    let undone = strongroom_machine::undo(Some(monitor), agent, &state).map_err(failed)?;
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
    for removed in &undone.removed {
        context.terminal.line(format!("removed {removed}"))?;
    }
    Ok(Exit::Done.into())
}
