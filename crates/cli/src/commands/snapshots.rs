//! `strongroom snapshots`

use std::process::ExitCode;

use serde_json::json;
use strongroom_base::units::{bytes_text, count_text, counted};
use strongroom_catalog::Snapshot;
use strongroom_repository::{Wishes, list_snapshots};

use super::drill::{boot_json, boot_text, drill_json, drill_text};
use crate::columns::{output_columns, shorten};
use crate::context::{Context, ReplicaArgs};
use crate::dates;
use crate::exit::CliError;
use crate::paint::{Line, Style};
use crate::snapshot_arg::{NarrowingArgs, report_unread};
use crate::terminal::{name_json, printable_paths, printable_text, table};

/// Which snapshots are listed.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Only those that were forgotten, and that `forget --undo` can take back until the next prune
    #[arg(long)]
    forgotten: bool,
    /// Only those that do not count, because their domain has ended without them
    #[arg(long, conflicts_with = "forgotten")]
    late: bool,
    /// Only those that are held
    #[arg(long)]
    held: bool,
    #[command(flatten)]
    narrowing: NarrowingArgs,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

/// Lists them.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let repository = context.open_to_read(&args.replicas)?;
    let list = list_snapshots(&repository)?;
    let all = match () {
        () if args.forgotten => &list.forgotten,
        () if args.late => &list.late,
        () => &list.snapshots,
    };
    let narrowing = args.narrowing.resolve();
    let is_wanted = |snapshot: &&Snapshot| {
        narrowing.fits(snapshot) && (!args.held || list.wishes.hold(snapshot.id).is_some())
    };
    let wanted: Vec<&Snapshot> = all.iter().filter(is_wanted).collect();
    for snapshot in &wanted {
        let hold = list.wishes.hold(snapshot.id);
        context.terminal.json(&json!({
            "event": "snapshot",
            "id": snapshot.id.to_string(),
            "sequence": snapshot.sequence,
            "started": dates::rfc3339(snapshot.started),
            "ended": dates::rfc3339(snapshot.ended),
            "host": snapshot.host,
            "user": snapshot.user,
            "origin": snapshot.origin.as_ref().map(|origin| json!({
                "program": origin.program,
                "repository": origin.repository,
                "snapshot": origin.snapshot,
            })),
            "paths": snapshot.paths.iter().map(|path| name_json(path)).collect::<Vec<_>>(),
            "labels": snapshot.labels,
            "description": list.wishes.remarks().about(snapshot.id).description,
            "held": hold.map(|hold| json!({
                "reason": hold.reason,
                "until": hold.until.map(dates::rfc3339),
            })),
            "proved": list.wishes.remarks().about(snapshot.id).drill.as_ref().map(drill_json),
            "booted": list.wishes.remarks().about(snapshot.id).boot.as_ref().map(boot_json),
            "parent": snapshot.parent.map(|parent| parent.to_string()),
            "partial": snapshot.partial,
            "guarantee": snapshot.guarantee.map(|guarantee| guarantee.word()),
            "files": snapshot.stats.files,
            "bytes": snapshot.stats.bytes,
            "bytes_new": snapshot.stats.bytes_new,
            "bytes_stored": snapshot.stats.bytes_stored,
            "problems": snapshot.stats.problems,
            "program": snapshot.program,
        }))?;
    }
    if !context.json() {
        print(context, &wanted, all.len(), &list.wishes)?;
    }
    if !list.late.is_empty() && !args.late {
        let late = counted(list.late.len() as u64, "snapshot does", "snapshots do");
        context.terminal.note(format!(
            "{late} not count, because their domain has ended without them: `snapshots --late`"
        ));
    }
    if !list.forgotten.is_empty() && !args.forgotten {
        let forgotten = counted(list.forgotten.len() as u64, "snapshot is", "snapshots are");
        context.terminal.note(format!("{forgotten} forgotten: `snapshots --forgotten`"));
    }
    Ok(report_unread(context, &list).into())
}

/// The columns that are numbers.
const NUMBERS: [usize; 3] = [3, 4, 5];
/// The column of the paths.
const PATHS: usize = 6;

/// The table as lines. If the terminal is too narrow for some paths, the paths of each snapshot get
/// a line of their own.
fn laid_out(mut rows: Vec<Vec<String>>, columns: Option<usize>) -> Vec<String> {
    let lines = table(&rows, &NUMBERS);
    let Some(columns) = columns else { return lines };
    if lines.iter().all(|line| line.chars().count() <= columns) {
        return lines;
    }
    let paths: Vec<String> = rows.iter_mut().filter_map(|row| row.drain(PATHS..).next()).collect();
    let indent = " ".repeat(SHORT_ID_COLUMNS + 2);
    let room = columns.saturating_sub(indent.len());
    let pairs = table(&rows, &NUMBERS).into_iter().zip(paths);
    pairs.flat_map(|(line, paths)| [line, format!("{indent}{}", shorten(&paths, room))]).collect()
}

/// How wide the column of ids is.
const SHORT_ID_COLUMNS: usize = 8;

fn print(
    context: &Context,
    snapshots: &[&Snapshot],
    all: usize,
    wishes: &Wishes,
) -> Result<(), CliError> {
    if snapshots.is_empty() {
        context.terminal.note(match all {
            0 => "there are no snapshots yet".to_owned(),
            1 => "the only snapshot does not match".to_owned(),
            all => format!("none of {} snapshots matches", count_text(all as u64)),
        });
        return Ok(());
    }
    let head = ["id", "time", "host", "files", "size", "added", "paths and [labels]"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for snapshot in snapshots {
        let mut what = vec![printable_paths(&snapshot.paths, " ")];
        what.extend(snapshot.labels.iter().map(|label| format!("[{}]", printable_text(label))));
        if wishes.hold(snapshot.id).is_some() {
            what.push("(held)".to_owned());
        }
        let remark = wishes.remarks().about(snapshot.id);
        what.extend(remark.drill.as_ref().map(|drill| format!("({})", drill_text(drill))));
        what.extend(remark.boot.as_ref().map(|boot| format!("({})", boot_text(boot))));
        let description = remark.description;
        if !description.is_empty() {
            what.push(format!("\"{}\"", printable_text(&description)));
        }
        what.extend(snapshot.guarantee.map(|kept| format!("(memory: {})", kept.word())));
        if !snapshot.missing.is_empty() {
            what.insert(0, format!("(lacks {})", printable_paths(snapshot.missing.keys(), ", ")));
        }
        if snapshot.partial {
            what.insert(0, "(incomplete)".to_owned());
        }
        rows.push(vec![
            snapshot.id.short(),
            dates::text(snapshot.started),
            printable_text(&snapshot.host),
            count_text(snapshot.stats.files),
            bytes_text(snapshot.stats.bytes),
            bytes_text(snapshot.stats.bytes_stored),
            what.join(" "),
        ]);
    }
    for line in laid_out(rows, output_columns()) {
        let (id, rest) = line.split_at_checked(SHORT_ID_COLUMNS).unwrap_or((&line, ""));
        let style = id.chars().all(|digit| digit.is_ascii_hexdigit()).then_some(Style::Id);
        context.terminal.painted(&Line::default().styled(style, id).then(rest))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_get_a_line_of_their_own_on_a_narrow_terminal() {
        let row = |cells: [&str; 7]| cells.map(str::to_owned).to_vec();
        let rows = vec![
            row(["id", "time", "host", "files", "size", "added", "paths and [labels]"]),
            row(["1234abcd", "now", "me", "7", "1 B", "2 B", "/home/me/documents/thesis"]),
        ];
        assert_eq!(laid_out(rows.clone(), None).len(), 2);
        assert_eq!(laid_out(rows.clone(), Some(200)).len(), 2);
        let narrow = laid_out(rows, Some(40));
        assert_eq!(narrow.len(), 4);
        assert_eq!(narrow[2], "1234abcd  now   me        7   1 B    2 B");
        assert_eq!(narrow[3], "          /home/me/documents/thesis");
    }
}
