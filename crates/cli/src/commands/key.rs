//! `strongroom key`

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;
use strongroom_base::entropy::random_array;
use strongroom_base::{OsEntropy, SlotId};
use strongroom_repository::RepositoryError;
use strongroom_repository::keys::{Access, generate_passphrase, is_domain_name};
use strongroom_upkeep::{NewAccess, add_key, change_key, list_keys, remove_key};
use zeroize::Zeroizing;

use super::init::{KEEP_THE_PASSPHRASE, KdfArgs};
use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::passphrase::new_passphrase;
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
            remove_key(&repository, wanted)?;
            report(context, "removed", wanted)?;
        }
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
