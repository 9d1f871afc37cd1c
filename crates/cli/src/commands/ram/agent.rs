//! `strongroom ram agent`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use strongroom_ram::agent::{AgentOptions, run as run_agent};
use strongroom_ram::files::NodeFile;
use strongroom_ram::keeper::Keeper;

use crate::commands::storing::PlainStoringArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::machine::state_folder;
use crate::terminal::{path_json, printable};

/// Whom it serves, and how.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Programs connect to this socket
    #[arg(
        long,
        value_name = "FILE",
        env = "STRONGROOM_RAM_SOCKET",
        default_value = "/run/strongroom/ram.sock"
    )]
    socket: PathBuf,
    /// Who may connect: 600 only this user, 660 its group, 666 all
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = mode)]
    socket_mode: u32,
    /// Be a node of a cluster: the file that `strongroom ram cluster add` has made for it
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
    /// Remember rounds of the cluster here [default: below the folder of this user's state]
    #[arg(long, value_name = "FOLDER", requires = "node")]
    state: Option<PathBuf>,
    #[command(flatten)]
    storing: PlainStoringArgs,
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "give three octal digits, such as 660".to_owned())
}

/// Serves until it is stopped.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let node = match &args.node {
        None => None,
        Some(path) => Some((NodeFile::read(path).map_err(super::cluster_failed)?, args.state()?)),
    };
    if let Some(folder) = args.socket.parent() {
        std::fs::create_dir_all(folder).map_err(|error| {
            let message = format!("cannot make the folder {}: {error}", printable(folder));
            CliError::new(Exit::Failed, message, "choose another socket with --socket FILE")
        })?;
    }
    let (repository, ()) = context.open_for_backup(|_| ())?;
    let keeper = Keeper {
        options: args.storing.options(context),
        repository,
        monitor: Box::new(context.terminal.monitor_of_problems()),
        cancel: context.cancel.clone(),
    };
    let name = node.as_ref().map(|(node, _)| (node.name.clone(), node.address));
    let options = AgentOptions { socket: args.socket.clone(), socket_mode: args.socket_mode, node };
    let mut ready = || {
        let at = match &name {
            Some((name, address)) => format!("node {name} at {address}, "),
            None => String::new(),
        };
        // A reader that is gone is noticed when the agent ends.
        let _ = context.terminal.line(format!("{at}serving {}", printable(&args.socket)));
        let _ = context.terminal.json(&json!({
            "event": "attending",
            "socket": path_json(&args.socket),
            "node": name.as_ref().map(|(name, _)| name),
            "address": name.as_ref().map(|(_, address)| address.to_string()),
        }));
    };
    run_agent(Arc::new(keeper), options, &mut ready).map_err(|error| {
        let hint = "programs that are connected to another agent are not touched";
        CliError::new(Exit::Failed, error.to_string(), hint)
    })?;
    context.terminal.line("the agent has ended; programs go on")?;
    context.terminal.json(&json!({ "event": "summary", "socket": path_json(&args.socket) }))?;
    Ok(Exit::Done.into())
}

impl Args {
    fn state(&self) -> Result<PathBuf, CliError> {
        let folder = self.state.clone().or_else(|| Some(state_folder()?.join("ram")));
        folder.ok_or_else(|| {
            let message = "there is no folder in which to remember rounds";
            CliError::new(Exit::Failed, message, "name one with --state FOLDER")
        })
    }
}
