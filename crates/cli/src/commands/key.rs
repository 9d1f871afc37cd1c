//! `strongroom key`

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;
use strongroom_base::entropy::random_array;
use strongroom_base::units::counted;
use strongroom_base::{OsEntropy, Severity, SlotId, SnapshotId};
use strongroom_catalog::{Snapshot, sort_oldest_first};
use strongroom_repository::keys::{Access, generate_passphrase, is_domain_name};
use strongroom_repository::{Endings, Repository, RepositoryError, list_snapshots};
use strongroom_upkeep::{
    EndingPlan, NewAccess, Since, Weighed, add_key, carry_out_ending, change_key, list_keys,
    plan_ending, remove_key,
};
use zeroize::Zeroizing;

use super::init::{KEEP_THE_PASSPHRASE, KdfArgs};
use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::passphrase::new_passphrase;
use crate::snapshot_arg::SnapshotArg;
use crate::terminal::{path_json, printable, printable_text, table};

/// What is done with keys.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// List the keys
    List,
    /// Generate a random passphrase for a machine, into a new file for --password-file
    Generate {
        /// The new file; only its owner may read it
        file: PathBuf,
    },
    /// Add a passphrase
    Add(AddArgs),
    /// Change the passphrase of the key in use
    Change(NewArgs),
    /// Remove a key
    Remove {
        /// Its id, as shown by `key list`
        slot: String,
    },
    /// End a domain: what its keys store from now on counts for nothing
    EndDomain(EndArgs),
}

#[derive(Debug, Clone, clap::Args)]
struct EndArgs {
    /// Its name; `snapshots` shows it as the host, up to the first `/`
    domain: String,
    /// Snapshots do not count that you saw first at this time or later, or that came with or after
    /// this one [default: all count that are there]
    #[arg(long, value_name = "TIME|SNAPSHOT")]
    since: Option<String>,
    /// This snapshot counts in any case; may be repeated
    #[arg(long, value_name = "SNAPSHOT")]
    keep: Vec<OsString>,
    /// End it; without this, only say which snapshots would count
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Clone, clap::Args)]
struct NewArgs {
    /// Read the new passphrase from the first line of this file
    #[arg(long, value_name = "FILE")]
    new_password_file: Option<PathBuf>,
    #[command(flatten)]
    kdf: KdfArgs,
}

#[derive(Debug, Clone, clap::Args)]
struct AddArgs {
    /// Name of the key in the list
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    label: String,
    /// The key can store new snapshots, but not read anything
    #[arg(long)]
    put_only: bool,
    /// The domain of a put-only key: machines of one domain share what they store and can speak for
    /// each other [default: the label, else a name of its own]
    #[arg(long, value_name = "NAME", requires = "put_only")]
    domain: Option<String>,
    #[command(flatten)]
    new: NewArgs,
}

impl AddArgs {
    /// The name of a put-only key's domain.
    fn domain(&self) -> String {
        let label = Some(&self.label).filter(|label| is_domain_name(label));
        let given = self.domain.as_ref().or(label).cloned();
        given.unwrap_or_else(|| format!("key-{}", SlotId(random_array(&OsEntropy))))
    }
}

/// Does it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    match args.what {
        What::List => list(context)?,
        What::Generate { file } => generate(context, &file)?,
        What::Add(args) => {
            let repository = context.open()?;
            let passphrase = new_passphrase(args.new.new_password_file.as_ref(), &context.cancel)?;
            let domain = args.put_only.then(|| args.domain());
            let access = domain.as_deref().map_or(NewAccess::Full, NewAccess::PutOnly);
            let cost = args.new.kdf.cost()?;
            let slot = add_key(&repository, &passphrase, &args.label, access, cost)?;
            report(context, "added", slot)?;
        }
        What::Change(args) => {
            let repository = context.open()?;
            let passphrase = new_passphrase(args.new_password_file.as_ref(), &context.cancel)?;
            let slot = change_key(&repository, &passphrase, args.kdf.cost()?)?;
            report(context, "changed; it is now", slot)?;
        }
        What::Remove { slot } => {
            let repository = context.open()?;
            let wanted =
                slot.trim_end_matches('*').parse::<SlotId>().map_err(RepositoryError::from)?;
            if !list_keys(&repository)?.iter().any(|slot| slot.id == wanted) {
                let hint = "`strongroom key list` shows them";
                return Err(CliError::new(Exit::Failed, format!("there is no key {wanted}"), hint));
            }
            let left = domain_that_stays_open(&repository, wanted)?;
            remove_key(&repository, wanted)?;
            report(context, "removed", wanted)?;
            if let Some(domain) = left {
                context.terminal.note(format!(
                    "copies of this key can still open the repository and store for {domain}: \
                     `strongroom key end-domain {domain}` makes what they store count for nothing"
                ));
            }
        }
        What::EndDomain(args) => end_domain(context, &args)?,
    }
    Ok(Exit::Done.into())
}

fn list(context: &Context) -> Result<(), CliError> {
    let repository = context.open()?;
    let slots = list_keys(&repository)?;
    let mut rows = vec![["id", "created", "can", "label"].map(str::to_owned).to_vec()];
    for slot in &slots {
        let may = match slot.access {
            Access::Full => "read and store",
            Access::PutOnly => "store only",
        };
        let used = if slot.id == repository.slot { "*" } else { "" };
        context.terminal.json(&json!({
            "event": "key",
            "id": slot.id.to_string(),
            "created": dates::rfc3339(slot.created),
            "put_only": slot.access == Access::PutOnly,
            "label": slot.label,
            "used": slot.id == repository.slot,
        }))?;
        rows.push(vec![
            format!("{}{used}", slot.id),
            dates::text(slot.created),
            may.to_owned(),
            printable_text(&slot.label),
        ]);
    }
    if !context.json() {
        for line in table(&rows, &[]) {
            context.terminal.result(line)?;
        }
    }
    for ending in Endings::read(&repository)?.all() {
        context.terminal.json(&json!({
            "event": "ended_domain",
            "domain": ending.domain,
            "ended": dates::rfc3339(ending.time),
            "snapshots": ending.counted.len(),
        }))?;
        let counted = counted(ending.counted.len() as u64, "snapshot counted", "snapshots counted");
        context.terminal.line(format!(
            "the domain {} has ended ({}): {counted} then",
            printable_text(&ending.domain),
            dates::text(ending.time),
        ))?;
    }
    Ok(())
}

/// The domain of a key that can only store, if it is the last one of it in the repository, and the
/// domain has not ended.
fn domain_that_stays_open(
    repository: &Repository,
    slot: SlotId,
) -> Result<Option<String>, CliError> {
    let Some(owner) = &repository.keys.owner else { return Ok(None) };
    let slots = list_keys(repository)?;
    let Some(going) = slots.iter().find(|of| of.id == slot) else { return Ok(None) };
    let others = || slots.iter().filter(|other| other.id != slot);
    if going.access == Access::Full
        || (going.domain.is_some() && others().any(|other| other.domain == going.domain))
    {
        return Ok(None);
    }
    let list = list_snapshots(repository)?;
    let mut names = list.all().map(|snapshot| &snapshot.domain).chain([&going.label]);
    let is_of = |name: &&String| going.domain.is_none_or(|of| owner.domain_id(name) == of);
    let known = match going.domain {
        Some(_) => names.find(is_of).cloned(),
        // It does not say; without a name of its own, a key's domain has that of its label.
        None => Some(going.label.clone()),
    };
    let name = known.filter(|name| is_domain_name(name)).unwrap_or_else(|| "NAME".to_owned());
    Ok(list.endings.of(&name).is_none().then_some(name))
}

fn end_domain(context: &Context, args: &EndArgs) -> Result<(), CliError> {
    let repository = context.open()?;
    let list = list_snapshots(&repository)?;
    let mut of_domain: Vec<Snapshot> =
        list.all().filter(|snapshot| snapshot.domain == args.domain).cloned().collect();
    // Those that are forgotten or late are listed behind the others, and `latest` is the last.
    sort_oldest_first(&mut of_domain);
    let find = |name: OsString| -> Result<SnapshotId, CliError> {
        Ok(SnapshotArg::from(name).find_in(&of_domain)?.id)
    };
    let since = match &args.since {
        None => None,
        Some(text) => match dates::first_moment(text) {
            Some(time) => Some(Since::Time(time)),
            None => Some(Since::Snapshot(find(text.into())?)),
        },
    };
    let keep: Vec<SnapshotId> = args.keep.iter().cloned().map(find).collect::<Result<_, _>>()?;
    let plan = plan_ending(&repository, &args.domain, since, &keep)?;
    print_plan(context, &plan)?;
    let domain = printable_text(&plan.domain);
    if !args.yes {
        let message = format!("the domain {domain} was not ended");
        let hint = "if this is what you want, add --yes; --since and --keep say what counts";
        return Err(CliError::new(Exit::Failed, message, hint));
    }
    let outcome = carry_out_ending(&repository, &plan)?;
    let counts = plan.snapshots.iter().filter(|weighed| weighed.counts);
    let counts: Vec<String> = counts.map(|weighed| weighed.snapshot.id.to_string()).collect();
    let texts = |ids: &[SnapshotId]| ids.iter().map(SnapshotId::to_string).collect::<Vec<_>>();
    context.terminal.json(&json!({
        "event": "summary",
        "domain": plan.domain,
        "counted": counts,
        "late": texts(&outcome.late),
        "keys": outcome.keys.iter().map(SlotId::to_string).collect::<Vec<_>>(),
        "unknown_keys": plan.unknown_keys.iter().map(|key| key.id.to_string()).collect::<Vec<_>>(),
    }))?;
    let keys = counted(outcome.keys.len() as u64, "key was", "keys were");
    context.terminal.line(format!(
        "the domain {domain} has ended: {} of it, and {keys} removed",
        counted(counts.len() as u64, "snapshot counts", "snapshots count"),
    ))?;
    if !outcome.late.is_empty() {
        let late = counted(outcome.late.len() as u64, "snapshot does", "snapshots do");
        context.terminal.line(format!(
            "{late} not count: `strongroom snapshots --late` lists them, `strongroom forget --late` \
             forgets them"
        ))?;
    }
    for key in &plan.unknown_keys {
        context.terminal.problem(
            Severity::Warning,
            &format!(
                "key {} ({}) does not say of which domain it is: if it is of {domain}, \
                 `strongroom key remove {}`",
                key.id,
                printable_text(&key.label),
                key.id,
            ),
        );
    }
    context.terminal.note(format!(
        "a server or bucket does not know that {domain} has ended: remove its token or credentials there \
         too (`strongroom token remove`), or who has them goes on filling it"
    ));
    Ok(())
}

fn print_plan(context: &Context, plan: &EndingPlan) -> Result<(), CliError> {
    let mut rows = vec![["id", "began", "first seen", "counts"].map(str::to_owned).to_vec()];
    for Weighed { snapshot, seen, counts } in &plan.snapshots {
        rows.push(vec![
            snapshot.id.short(),
            dates::text(snapshot.started),
            dates::text(*seen),
            if *counts { "yes" } else { "no" }.to_owned(),
        ]);
    }
    if !context.json() && !plan.snapshots.is_empty() {
        for line in table(&rows, &[]) {
            context.terminal.line(line)?;
        }
    }
    Ok(())
}

fn generate(context: &Context, file: &Path) -> Result<(), CliError> {
    let passphrase = generate_passphrase(&OsEntropy);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let written = options.open(file).and_then(|mut opened| {
        let line = Zeroizing::new(format!("{}\n", *passphrase));
        opened.write_all(line.as_bytes()).and_then(|()| opened.sync_all()).inspect_err(|_| {
            // Best effort: the error that matters is the first one.
            let _ = std::fs::remove_file(file);
        })
    });
    written.map_err(|error| {
        let message = format!("cannot write a passphrase to {}: {error}", printable(file));
        CliError::new(
            Exit::Failed,
            message,
            "name a file that does not exist yet, in a folder that does",
        )
    })?;
    context.terminal.json(&json!({ "event": "summary", "path": path_json(file) }))?;
    context.terminal.line(format!(
        "wrote a passphrase to {}: use it as --password-file for a new repository, or as --new-password-file for `key add`",
        printable(file)
    ))?;
    context.terminal.note(KEEP_THE_PASSPHRASE);
    Ok(())
}

fn report(context: &Context, what: &str, slot: SlotId) -> Result<(), CliError> {
    context.terminal.json(&json!({ "event": "summary", "key": slot.to_string() }))?;
    Ok(context.terminal.line(format!("key {what} {slot}"))?)
}
