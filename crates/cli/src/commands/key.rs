//! `strongroom key`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;
use strongroom_base::SlotId;
use strongroom_engine::EngineError;
use strongroom_engine::key_slot::Access;
use strongroom_engine::keys::{add_key, change_key, list_keys, remove_key};

use super::init::kdf_cost;
use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::passphrase::new_passphrase;
use crate::terminal::table;

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
    /// Add a passphrase
    Add(AddArgs),
    /// Give the key that is used now another passphrase
    Change(NewArgs),
    /// Remove a key
    Remove {
        /// Its id, as `key list` shows it
        slot: String,
    },
}

#[derive(Debug, Clone, clap::Args)]
struct NewArgs {
    /// Read the new passphrase from the first line of this file
    #[arg(long, value_name = "FILE")]
    new_password_file: Option<PathBuf>,
    /// Memory that guessing the passphrase takes (Argon2id)
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    kdf_memory: String,
}

#[derive(Debug, Clone, clap::Args)]
struct AddArgs {
    /// What the key is called in the list
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    label: String,
    /// The key may store, but not read
    #[arg(long)]
    put_only: bool,
    #[command(flatten)]
    new: NewArgs,
}

/// Does it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    let repository = context.open()?;
    match args.what {
        What::List => {
            let slots = list_keys(&repository)?;
            let mut rows = vec![["id", "made", "may", "label"].map(str::to_owned).to_vec()];
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
                    slot.label.clone(),
                ]);
            }
            if !context.json() {
                for line in table(&rows, &[]) {
                    context.terminal.result(line)?;
                }
            }
        }
        What::Add(args) => {
            let passphrase = new_passphrase(args.new.new_password_file.as_ref(), &context.cancel)?;
            let access = if args.put_only { Access::PutOnly } else { Access::Full };
            let cost = kdf_cost(&args.new.kdf_memory)?;
            let slot = add_key(&repository, &passphrase, &args.label, access, cost)?;
            told(context, "added", slot)?;
        }
        What::Change(args) => {
            let passphrase = new_passphrase(args.new_password_file.as_ref(), &context.cancel)?;
            let slot = change_key(&repository, &passphrase, kdf_cost(&args.kdf_memory)?)?;
            told(context, "changed; it is now", slot)?;
        }
        What::Remove { slot } => {
            let wanted = slot.trim_end_matches('*').parse::<SlotId>().map_err(EngineError::from)?;
            if !list_keys(&repository)?.iter().any(|slot| slot.id == wanted) {
                let hint = "`strongroom key list` shows them";
                return Err(CliError::new(Exit::Failed, format!("there is no key {wanted}"), hint));
            }
            remove_key(&repository, wanted)?;
            told(context, "removed", wanted)?;
        }
    }
    Ok(Exit::Done.into())
}

fn told(context: &Context, what: &str, slot: SlotId) -> Result<(), CliError> {
    context.terminal.json(&json!({ "event": "summary", "key": slot.to_string() }))?;
    Ok(context.terminal.line(format!("key {what} {slot}"))?)
}
