//! `strongroom ram cluster add`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use strongroom_base::OsEntropy;
use strongroom_base::units::counted;
use strongroom_ram::files::ControllerFile;

use super::super::cluster_failed;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::terminal::{path_json, printable};

/// The nodes, and where their files go.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The folder of the cluster; it has secrets and is for this user alone
    folder: PathBuf,
    /// The nodes: a name, and the address at which its agent listens for datagrams
    #[arg(value_name = "NODE=ADDRESS:PORT", required = true, value_parser = node)]
    nodes: Vec<(String, SocketAddr)>,
    /// Send commands to this group instead of to each node
    #[arg(long, value_name = "ADDRESS:PORT")]
    multicast: Option<SocketAddr>,
}

fn node(text: &str) -> Result<(String, SocketAddr), String> {
    let (name, address) = text.split_once('=').ok_or("write NODE=ADDRESS:PORT")?;
    let is_plain = !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !name.starts_with('.')
        && name != "controller";
    if !is_plain {
        return Err("name the node with letters, digits, \"-\", \"_\" and \".\"".to_owned());
    }
    let address =
        address.parse().map_err(|_| "write its address as in 10.0.0.1:7420 or [fd00::1]:7420")?;
    Ok((name.to_owned(), address))
}

/// Makes the files.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    if let Some(group) = args.multicast.filter(|group| !group.ip().is_multicast()) {
        let message = format!("{group} is no multicast address");
        return Err(CliError::new(
            Exit::Failed,
            message,
            "choose one such as 239.195.7.1:7420 or [ff05::7420]:7420",
        ));
    }
    let Args { folder, nodes, multicast } = args;
    let written =
        ControllerFile::add(folder, nodes, *multicast, &OsEntropy).map_err(cluster_failed)?;
    context.terminal.line(format!(
        "added {} to the cluster in {}",
        counted(written.len() as u64, "node", "nodes"),
        printable(folder)
    ))?;
    for path in &written {
        context.terminal.line(format!("  {}", printable(path)))?;
    }
    context.terminal.note(
        "move each of these files to its node, and start `strongroom ram agent --node FILE` there",
    );
    context.terminal.json(&json!({
        "event": "summary",
        "cluster": path_json(folder),
        "files": written.iter().map(|path| path_json(path)).collect::<Vec<_>>(),
    }))?;
    Ok(Exit::Done.into())
}
