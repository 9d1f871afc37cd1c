//! `strongroom boot`

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use strongroom_base::Monitor;
use strongroom_catalog::Snapshot;
use strongroom_machine::boot::Running;

use super::nbd::not_kept;
use crate::boot::{MachineArgs, Prepared, Purpose, prepare};
use crate::context::{Context, ReplicaArgs};
use crate::exit::CliError;
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg, check_complete};
use crate::terminal::{path_json, printable, printable_text};

/// Which machine is started, and how.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The snapshot, and the machine if it has several: `latest:/vm1`
    #[arg(value_name = "SNAPSHOT[:/MACHINE]", default_value = "latest")]
    what: OsString,
    /// Go on where the machine was at the instant of the snapshot, by its memory
    #[arg(long, conflicts_with_all = ["keep", "memory", "cpus", "no_network", "no_kvm"])]
    resume: bool,
    /// Keep what the machine writes in this folder, and go on with it the next time
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Show its screen: a value of QEMU's -display, such as gtk or vnc=127.0.0.1:1
    #[arg(long, value_name = "DISPLAY", default_value = "none")]
    display: String,
    /// Let connections to a port here reach this port of the machine; may be repeated
    #[arg(long = "forward", value_name = "PORT", conflicts_with = "no_network",
        value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    narrowing: NarrowingArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

const HELP: &str = "\
The machine runs under QEMU as it was described when it was stored. It writes to an overlay, so the \
snapshot stays as it is. Its network leads nowhere: it reaches no other machine, and is reached only \
by ports that are forwarded. What it says on its serial port is printed.

It runs until it is powered off, or until Ctrl-C. The first start records what the machine reads; \
later ones fetch that before it is asked for.";

/// How often the program looks if the machine or the user ended it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Starts it, and waits until it ends.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let repository = Arc::new(context.open_to_read(&args.replicas)?);
    let what = SnapshotArg::from(args.what.clone());
    let snapshot = what.find(context, &repository, &args.narrowing)?;
    what.report(context, &snapshot);
    let exit = check_complete(context, &snapshot);
    let purpose = Purpose {
        display: &args.display,
        keep: args.keep.as_deref(),
        ports: &args.ports,
        resumes: args.resume,
        has_agent: false,
        shared: None,
    };
    let mut prepared =
        prepare(context, repository, (&snapshot, &what.path), &args.machine, &purpose)?;
    let monitor = context.terminal.monitor_of_problems();
    monitor.detail(&format!("QEMU gets {}", prepared.plan.arguments.join(" ")));
    let lines = context.terminal;
    let on_line = move |line: &str| {
        // With `--json`, standard output is for events.
        let _ = lines.line(line);
    };
    let mut running = prepared.start(context, &[], on_line)?;
    announce(context, args, &prepared, &running, &snapshot)?;
    context.terminal.note("Ctrl-C ends it as if its power failed.");
    while !context.cancel.is_cancelled() && running.ended()?.is_none() {
        if prepared.emulate_if_kvm_failed(context, &mut running, &[], on_line)? {
            announce(context, args, &prepared, &running, &snapshot)?;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let complaint = running.end();
    let closed = prepared.close();
    if !complaint.is_empty() {
        context.terminal.note(format!("QEMU said: {}", printable_text(&complaint)));
    }
    if let Some(folder) = &args.keep {
        closed.map_err(|error| not_kept(folder, &error))?;
        context.terminal.line(format!("what it wrote is in {}", printable(folder)))?;
    }
    context.terminal.line("the machine has ended")?;
    Ok(exit.into())
}

/// Says that the machine runs, and how it is reached.
fn announce(
    context: &Context,
    args: &Args,
    prepared: &Prepared,
    running: &Running,
    snapshot: &Snapshot,
) -> Result<(), CliError> {
    let kvm = running.is_kvm();
    let mut ports = Vec::new();
    for port in &args.ports {
        ports.extend(running.forwarded(*port).ok().flatten().map(|here| (*port, here)));
    }
    context.terminal.json(&json!({
        "event": "machine",
        "machine": prepared.machine,
        "snapshot": snapshot.id.to_string(),
        "kvm": kvm,
        "notes": prepared.plan.notes,
        "ports": ports.iter().map(|(port, here)| json!({
            "port": port,
            "here": here,
        })).collect::<Vec<_>>(),
        "monitor": path_json(&prepared.plan.monitor),
        "kept": args.keep.as_deref().map(path_json),
    }))?;
    let how = if kvm { "with KVM" } else { "by emulation, which is slow" };
    context.terminal.line(format!("{} runs {how}", printable_text(&prepared.machine)))?;
    for (port, here) in &ports {
        context.terminal.line(format!("its port {port} is at 127.0.0.1:{here}"))?;
    }
    Ok(())
}
