//! `strongroom token`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Subcommand;
use serde_json::json;
use strongroom_base::units::{bytes_text, parse_bytes};
use strongroom_base::{OsEntropy, SystemClock};
use strongroom_serve::{House, HouseError, NewToken, Role, Token};

use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::terminal::{printable_text, table};

/// What is done with the tokens of a house.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The folder that `strongroom serve --house` serves
    #[arg(long, global = true, value_name = "FOLDER", default_value = ".")]
    house: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// Make a token and print it: it is shown only now
    Add {
        /// The room that it opens; made if it does not exist
        room: String,
        /// Whose it is: a machine or a person
        #[arg(long, value_name = "TEXT")]
        name: String,
        /// What may be done: put-only, append, restore, audit, keep or admin
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// Refuse what would make the room larger than this
        #[arg(long, value_name = "SIZE", value_parser = size)]
        quota: Option<u64>,
        /// The token ends at this time
        #[arg(long, value_name = "DATE")]
        until: Option<String>,
    },
    /// List the tokens
    List,
    /// Remove a token; who came in by it is sent away
    Remove {
        /// Its id, as shown by `token list`
        id: String,
    },
}

fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| error.to_string())
}

/// Does it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    let clock = Arc::new(SystemClock);
    let house = match args.what {
        What::Add { .. } => House::open(&args.house, clock),
        What::List | What::Remove { .. } => House::find(&args.house, clock),
    };
    let house = house.map_err(failed)?;
    match args.what {
        What::Add { room, name, role, quota, until } => {
            let until = until.map(|text| moment(&text)).transpose()?;
            let new = NewToken { name, room, role, quota, until };
            let (token, text) = house.add_token(new, &OsEntropy).map_err(failed)?;
            context.terminal.json(&json!({
                "event": "summary",
                "id": token.id,
                "token": text.as_str(),
                "room": token.room,
                "role": token.role.as_str(),
            }))?;
            if !context.json() {
                context.terminal.result(text.as_str())?;
            }
        }
        What::List => list(context, &house.list_tokens().map_err(failed)?)?,
        What::Remove { id } => {
            house.remove_token(&id).map_err(failed)?;
            context.terminal.json(&json!({ "event": "summary", "id": id }))?;
            context.terminal.line(format!("removed {}", printable_text(&id)))?;
        }
    }
    Ok(Exit::Done.into())
}

fn moment(text: &str) -> Result<strongroom_base::Timestamp, CliError> {
    dates::last_moment(text).ok_or_else(|| {
        CliError::new(
            Exit::Failed,
            format!("{} is no date", printable_text(text)),
            "write a date such as 2027-01-31",
        )
    })
}

fn list(context: &Context, tokens: &[Token]) -> Result<(), CliError> {
    let mut rows =
        vec![["id", "room", "name", "role", "quota", "until"].map(str::to_owned).to_vec()];
    for token in tokens {
        let until = token.until.map(dates::text);
        context.terminal.json(&json!({
            "event": "token",
            "id": token.id,
            "room": token.room,
            "name": token.name,
            "role": token.role.as_str(),
            "quota": token.quota,
            "until": token.until.map(dates::rfc3339),
        }))?;
        rows.push(vec![
            token.id.clone(),
            token.room.clone(),
            printable_text(&token.name),
            token.role.to_string(),
            token.quota.map(bytes_text).unwrap_or_default(),
            until.unwrap_or_default(),
        ]);
    }
    if !context.json() {
        for line in table(&rows, &[]) {
            context.terminal.result(line)?;
        }
    }
    Ok(())
}

fn failed(error: HouseError) -> CliError {
    let hint = match &error {
        HouseError::RoomName(_) => "such as `laptops` or `db-1.example`",
        HouseError::Token(_) => "`strongroom token list --house FOLDER` shows the tokens",
        HouseError::NoHouse(_) => {
            "give the folder that is served with --house; `strongroom token add` makes one"
        }
        HouseError::Io { .. } | HouseError::Log(_) => {
            "check the path, and who may read and write it"
        }
    };
    CliError::new(Exit::Failed, error.to_string(), hint)
}
