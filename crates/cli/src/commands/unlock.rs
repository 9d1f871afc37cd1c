//! `strongroom unlock`

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use strongroom_base::units::{counted, duration_text};
use strongroom_base::{Clock, SystemClock, Timestamp};
use strongroom_repository::{ListedSession, Repository, list_sessions, snapshot_object};

use crate::context::{Context, ReplicaArgs};
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::terminal::{printable_text, table};

/// What is listed.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    replicas: ReplicaArgs,
}

const HELP: &str = "\
Nothing in a repository is locked, so nothing has to be unlocked, and this removes nothing: a \
backup that died stops no other command. `prune` removes what it stored, after its --patience.";

/// Lists the backups that have not ended.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let repository = context.open_to_read(&args.replicas)?;
    let mut open = open_sessions(&repository)?;
    open.sort_by_key(|session| session.head.as_ref().ok().map(|head| head.started));
    let now = SystemClock.now();
    for session in &open {
        let head = session.head.as_ref().ok();
        context.terminal.json(&json!({
            "event": "session",
            "id": session.id.to_string(),
            "started": head.map(|head| dates::rfc3339(head.started)),
            "host": head.map(|head| &head.host),
        }))?;
    }
    context.terminal.json(&json!({ "event": "summary", "locks": 0, "sessions": open.len() }))?;
    context.terminal.line("there are no locks: no command waits for another")?;
    if open.is_empty() {
        return Ok(Exit::Done.into());
    }
    let count = counted(open.len() as u64, "backup is", "backups are");
    context.terminal.line(format!("{count} running, or died:"))?;
    let mut rows = vec![["id", "began", "ago", "host"].map(str::to_owned).to_vec()];
    rows.extend(open.iter().map(|session| row(session, now)));
    for line in table(&rows, &[2]) {
        context.terminal.line(format!("  {line}"))?;
    }
    context.terminal.note(
        "those that died harm nothing; `strongroom prune --patience 1d` ends what began more than \
         a day ago",
    );
    Ok(Exit::Done.into())
}

/// The sessions whose writers are at work, or died: one that committed may still have its object.
fn open_sessions(repository: &Repository) -> Result<Vec<ListedSession>, CliError> {
    let mut open = list_sessions(repository)?;
    let backend = repository.backend();
    open.retain(|session| backend.size(&snapshot_object(session.id)).is_err());
    Ok(open)
}

fn row(session: &ListedSession, now: Timestamp) -> Vec<String> {
    let Ok(head) = &session.head else {
        // Of a domain that this key cannot read.
        return [&session.id.short(), "unknown", "", "unknown"].map(str::to_owned).to_vec();
    };
    let ago = u64::try_from(now.0.saturating_sub(head.started.0)).unwrap_or_default();
    vec![
        session.id.short(),
        dates::text(head.started),
        duration_text(Duration::from_nanos(ago)),
        printable_text(&head.host),
    ]
}
