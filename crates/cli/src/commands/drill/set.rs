//! `strongroom drill --boot --set FILE`: machines that need one another are started together.
//!
//! ```toml
//! # In this order, each when the one before it lives.
//! [[machine]]
//! start = "latest:/db"
//! expect = "ready for connections"
//!
//! [[machine]]
//! start = "latest:/web"
//! expect-port = 80
//! address = "192.168.1.20"         # if it does not ask for one
//! ```
//!
//! A set has no words of its own besides these: what is typed after `drill --boot` can be written,
//! and the same parser checks it, as in a profile.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use serde_json::json;
use strongroom_base::SnapshotId;
use strongroom_base::units::counted;
use strongroom_catalog::Snapshot;
use strongroom_machine::boot::{PrivateNetwork, Running, SharedNetwork};
use strongroom_repository::{DrillVerdict, Repository};

use super::boot::{BootArgs, Found, boot_event, end, keep, picture_path, report, start};
use super::verdict_text;
use crate::boot::{Prepared, prepare};
use crate::context::{Context, ReplicaArgs};
use crate::exit::{CliError, Exit};
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg, check_complete};
use crate::terminal::{printable, printable_text};

/// A longer file is no list of machines.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// As many can ask for an address.
const MACHINES_MAX: usize = 200;

/// A machine of a set, as it would be typed.
#[derive(Debug, Clone, clap::Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Member {
    /// The snapshot, and the machine if it has several: `latest:/vm1`
    #[arg(long = "start", value_name = "SNAPSHOT[:/MACHINE]")]
    what: OsString,
    /// The address that it has, if it does not ask for one
    #[arg(long)]
    address: Option<Ipv4Addr>,
    #[command(flatten)]
    booting: BootArgs,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SetFile {
    #[serde(default)]
    machine: Vec<BTreeMap<String, Value>>,
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Value {
    Flag(bool),
    Number(u64),
    Text(String),
    List(Vec<Value>),
}

impl Value {
    /// The option as it would be typed.
    fn type_into(&self, option: &str, words: &mut Vec<String>) {
        match self {
            Self::Flag(false) => {}
            Self::Flag(true) => words.push(option.to_owned()),
            Self::Number(number) => words.push(format!("{option}={number}")),
            Self::Text(text) => words.push(format!("{option}={text}")),
            Self::List(values) => values.iter().for_each(|value| value.type_into(option, words)),
        }
    }
}

/// The machines that a file lists.
fn read(path: &Path, defaults: &BootArgs) -> Result<Vec<Member>, CliError> {
    let wrong = |what: String, hint: &str| {
        let message = format!("{}: {}", printable(path), printable_text(&what));
        Err(CliError::new(Exit::Usage, message, hint))
    };
    let mut text = String::new();
    let opened = File::open(path);
    match opened.and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)) {
        Ok(bytes) if bytes as u64 <= FILE_BYTES_MAX => {}
        Ok(_) => return wrong("it is too long".to_owned(), "name a file that lists machines"),
        Err(error) => return wrong(error.to_string(), "name a file that lists machines"),
    }
    let example = "write for each machine [[machine]] and start = \"latest:/NAME\"";
    let file: SetFile = match toml::from_str(&text) {
        Ok(file) => file,
        Err(error) => return wrong(error.to_string().trim_end().to_owned(), example),
    };
    if file.machine.is_empty() || file.machine.len() > MACHINES_MAX {
        let count = counted(file.machine.len() as u64, "machine", "machines");
        return wrong(format!("it lists {count}, of 1 to {MACHINES_MAX}"), example);
    }
    let mut members = Vec::new();
    for (number, table) in (1..).zip(&file.machine) {
        let mut words = vec!["--boot".to_owned()];
        for (name, value) in table {
            value.type_into(&format!("--{name}"), &mut words);
        }
        let member = Member::try_parse_from(words).map_err(|error| error.to_string());
        match member {
            Ok(member) if member.booting.machine().has_no_network() => {
                let what = format!("machine {number}: without a network it can be in no set");
                return wrong(what, "leave `no-network` out");
            }
            Ok(mut member) => {
                member.booting.complete(defaults);
                members.push(member);
            }
            Err(error) => {
                // What follows a blank line is about a command line.
                let lines = error.lines().map(str::trim).take_while(|line| !line.is_empty());
                let text = lines.collect::<Vec<_>>().join(" ");
                let what = text.strip_prefix("error: ").unwrap_or(&text);
                let hint = "what is typed after `drill --boot` can be written there, and start and \
                            address";
                return wrong(format!("machine {number}: {what}"), hint);
            }
        }
    }
    let mut addresses: Vec<Ipv4Addr> = members.iter().filter_map(|member| member.address).collect();
    addresses.sort_unstable();
    if let Some(twice) = addresses.windows(2).find(|pair| pair[0] == pair[1]) {
        return wrong(format!("two machines have the address {}", twice[0]), "give each its own");
    }
    Ok(members)
}

/// A machine of the set. It ends before what it runs on.
struct Machine<'m> {
    running: Option<Running>,
    prepared: Prepared,
    member: &'m Member,
    snapshot: Snapshot,
}

/// Starts the machines one after the other, and ends them together.
pub fn run(
    context: &Context,
    file: &Path,
    args: &BootArgs,
    (narrowing, replicas, record): (&NarrowingArgs, &ReplicaArgs, bool),
) -> Result<ExitCode, CliError> {
    let members = read(file, args)?;
    if record {
        context.check_present()?;
    }
    let repository = Arc::new(context.open_to_read(replicas)?);
    let mut exit = Exit::Done;
    let mut network = PrivateNetwork::default();
    let mut machines: Vec<Machine<'_>> = Vec::new();
    // What is wrong with one of them is said before any is started.
    for (place, member) in (0..).zip(&members) {
        let what = SnapshotArg::from(member.what.clone());
        let snapshot = what.find(context, &repository, narrowing)?;
        if check_complete(context, &snapshot) != Exit::Done {
            exit = Exit::Incomplete;
        }
        let taken = machines.iter().flat_map(|other| other.prepared.plan.card_addresses.clone());
        let shared = SharedNetwork {
            wire: network.wire()?,
            place,
            address: member.address,
            neighbours: members.iter().filter_map(|member| member.address).collect(),
            taken: taken.collect(),
        };
        let purpose = member.booting.purpose(Some(shared));
        let part = (&snapshot, &what.path[..]);
        let prepared =
            prepare(context, repository.clone(), part, member.booting.machine(), &purpose)?;
        machines.push(Machine { running: None, prepared, member, snapshot });
    }
    let mut found = start_in_order(context, &repository, &mut machines)?;
    for (machine, found) in machines.iter_mut().zip(&mut found) {
        let Some(running) = &mut machine.running else { continue };
        if found.verdict == DrillVerdict::Proved && running.ended()?.is_some() {
            found.fail("it ended while others started");
        }
    }
    let mut snapshots = Vec::new();
    for Machine { running, prepared, snapshot, .. } in machines.into_iter().rev() {
        if let Some(running) = running {
            end(context, running);
        }
        // What it wrote is thrown away.
        let _ = prepared.close();
        snapshots.push(snapshot);
    }
    snapshots.reverse();
    let mut recorded = record;
    let deciding = deciding(snapshots.iter().map(|snapshot| snapshot.id).zip(&found));
    let mut kept = BTreeMap::new();
    for snapshot in &snapshots {
        let one = deciding.get(&snapshot.id).filter(|_| record && !kept.contains_key(&snapshot.id));
        if let Some(one) = one {
            kept.insert(snapshot.id, keep(context, &repository, snapshot, one));
        }
    }
    for (snapshot, found) in snapshots.iter().zip(&found) {
        let is_kept = is_tried(found) && kept.get(&snapshot.id) == Some(&true);
        recorded = recorded && is_kept;
        context.terminal.json(&boot_event("booted", snapshot, found, is_kept))?;
        report(context, snapshot, found)?;
    }
    let worst = found.iter().find(|found| found.verdict != DrillVerdict::Proved);
    summarize(context, &found, worst, recorded)?;
    Ok(worst.map_or(exit, Found::exit).into())
}

/// Whether a machine was started. One that was not says nothing of its snapshot.
fn is_tried(found: &Found) -> bool {
    found.verdict != DrillVerdict::Incomplete
}

/// The machine of each snapshot whose result is that of the snapshot: one that failed, if any did.
fn deciding<'f>(
    machines: impl Iterator<Item = (SnapshotId, &'f Found)>,
) -> BTreeMap<SnapshotId, &'f Found> {
    let mut deciding: BTreeMap<SnapshotId, &Found> = BTreeMap::new();
    for (snapshot, found) in machines.filter(|(_, found)| is_tried(found)) {
        let one = deciding.entry(snapshot).or_insert(found);
        if one.verdict == DrillVerdict::Proved {
            *one = found;
        }
    }
    deciding
}

/// Starts each when the one before it lives. What comes after one that does not is not tried.
fn start_in_order(
    context: &Context,
    repository: &Repository,
    machines: &mut [Machine<'_>],
) -> Result<Vec<Found>, CliError> {
    let mut found: Vec<Found> = Vec::new();
    for (place, machine) in machines.iter_mut().enumerate() {
        let name = machine.prepared.machine.clone();
        if let Some(dead) = found.iter().find(|found| found.verdict != DrillVerdict::Proved) {
            let why = format!("{} does not live", dead.machine);
            found.push(Found::untried(name, why));
            continue;
        }
        context.terminal.note(format!("{} starts", printable_text(&name)));
        let picture = picture_path(repository, &machine.snapshot, &format!("-{}", place + 1));
        match start(context, &mut machine.prepared, &machine.member.booting, picture) {
            Ok((running, one)) => {
                machine.running = Some(running);
                found.push(one);
            }
            Err(error) if context.cancel.is_cancelled() => return Err(error),
            // What is known of the others is reported.
            Err(error) => found.push(Found::failed(name, error.to_string())),
        }
    }
    Ok(found)
}

fn summarize(
    context: &Context,
    found: &[Found],
    worst: Option<&Found>,
    recorded: bool,
) -> Result<(), CliError> {
    let verdict = worst.map_or(DrillVerdict::Proved, |found| found.verdict);
    let proved = found.iter().filter(|found| found.verdict == DrillVerdict::Proved).count();
    context.terminal.json(&json!({
        "event": "summary",
        "verdict": verdict_text(verdict),
        "machines": found.len(),
        "machines_proved": proved,
        "recorded": recorded,
    }))?;
    let count = counted(found.len() as u64, "machine", "machines");
    let line = match worst {
        None => format!("proved: the set of {count} started in order"),
        Some(_) => format!("FAILED: of the set of {count}, {proved} showed signs of life"),
    };
    Ok(context.terminal.line(line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_has_failed_if_one_of_its_machines_has() {
        let of = |byte| SnapshotId([byte; 16]);
        let name = |name: &str| name.to_owned();
        let proved = |text: &str| {
            let mut found = Found::untried(name(text), String::new());
            found.verdict = DrillVerdict::Proved;
            found
        };
        let mut ended = proved("db");
        ended.fail("it ended while others started");
        let found = [ended, proved("web"), proved("mail"), proved("news")];
        let untried = Found::untried(name("dns"), String::new());
        let snapshots = [of(1), of(1), of(2), of(2), of(2), of(3)];
        let all = found.iter().chain([&untried, &untried]);
        let deciding = deciding(snapshots.into_iter().zip(all));
        let names: Vec<_> = deciding.values().map(|found| found.machine.as_str()).collect();
        assert_eq!(names, ["db", "news"]);
    }
}
