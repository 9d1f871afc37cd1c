//! `strongroom forget`

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use jiff::civil::Date;
use serde_json::json;
use strongroom_base::units::counted;
use strongroom_base::{Severity, Silent, SnapshotId};
use strongroom_catalog::Snapshot;
use strongroom_repository::{
    Collections, Repository, RepositoryError, SnapshotList, list_snapshots,
};
use strongroom_upkeep::{
    Alarm, ForgetOptions, Judged, Policy, RepairPlan, Series, accept, forget, judge, plan_recovery,
    remember,
};

use super::storing::parse_label;
use crate::calendar::{Mark, calendar, legend};
use crate::context::Context;
use crate::dates;
use crate::exit::{CliError, Exit};
use crate::paint::output_has_colours;
use crate::snapshot_arg::{NarrowingArgs, SHORTEST_ID, find_all, find_also_forgotten, find_surely};
use crate::spans;
use crate::terminal::{printable_bytes, printable_text, table};

/// Options that are about all snapshots, unless --host or --path leave some out.
const SOME: [&str; 10] = [
    "accept",
    "late",
    "keep_last",
    "keep_hourly",
    "keep_daily",
    "keep_weekly",
    "keep_monthly",
    "keep_yearly",
    "keep_within",
    "keep_label",
];

/// What cannot be used together with rules.
const NO_RULES: [&str; 4] = ["snapshots", "undo", "accept", "late"];

/// What is forgotten.
#[derive(Debug, Clone, clap::Args)]
#[command(group(clap::ArgGroup::new("some").args(SOME).multiple(true)))]
pub struct Args {
    /// These snapshots
    #[arg(value_name = "SNAPSHOT")]
    snapshots: Vec<OsString>,
    /// Keep them after all; works until a prune has taken them
    #[arg(long, requires = "snapshots", conflicts_with_all = ["rules", "dry_run"])]
    undo: bool,
    /// These, or all of --host, are right although an alarm was raised: rules work again
    #[arg(long, conflicts_with_all = ["rules", "undo"])]
    accept: bool,
    /// Those that do not count, because their domain has ended without them (`key end-domain`)
    #[arg(long, conflicts_with_all = ["snapshots", "rules", "accept"])]
    late: bool,
    /// Change nothing; show what would be forgotten
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Show which days have snapshots that stay, and which have some that go
    #[arg(long, requires = "rules", conflicts_with_all = NO_RULES)]
    calendar: bool,
    /// Forget even if no snapshot is left, of all or of a host and its paths
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    rules: Rules,
    /// Rules are for the snapshots of the same host and paths as this one; all others stay
    #[arg(long, value_name = "SNAPSHOT", requires = "rules", conflicts_with_all = NO_RULES)]
    series_of: Option<OsString>,
    /// In a profile: when it is run, its rules are for all hosts and paths, not only those of its backup
    #[arg(long, conflicts_with_all = NO_RULES, conflicts_with = "series_of")]
    all_series: bool,
    /// Keep what put-only keys stored for at least so long after it was first seen, such as 3d
    #[arg(long, value_name = "DURATION", requires = "rules", conflicts_with_all = NO_RULES, value_parser = spans::parse, default_value = "3d")]
    quarantine: i64,
    #[command(flatten)]
    narrowing: NarrowingArgs,
}

/// Rules: all others are forgotten, for each host and set of paths
#[derive(Debug, Clone, clap::Args)]
#[group(id = "rules", multiple = true, conflicts_with = "snapshots")]
struct Rules {
    /// Keep the newest COUNT
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    keep_last: u32,
    /// Keep the newest of each of the last COUNT hours that have one
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    keep_hourly: u32,
    /// The same for days
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    keep_daily: u32,
    /// The same for weeks
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    keep_weekly: u32,
    /// The same for months
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    keep_monthly: u32,
    /// The same for years
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    keep_yearly: u32,
    /// Keep all that are at most this much older than the newest, such as 36h, 14d, 6mo or 1y6mo; if
    /// that came after a longer pause, than the one before it
    #[arg(long, value_name = "DURATION", value_parser = spans::parse)]
    keep_within: Option<i64>,
    /// Keep all with this label
    #[arg(long, visible_alias = "keep-tag", value_name = "TEXT", value_parser = parse_label)]
    keep_label: Vec<String>,
}

impl Rules {
    fn policy(&self) -> Policy {
        Policy {
            last: self.keep_last,
            hourly: self.keep_hourly,
            daily: self.keep_daily,
            weekly: self.keep_weekly,
            monthly: self.keep_monthly,
            yearly: self.keep_yearly,
            within: self.keep_within,
            labels: self.keep_label.clone(),
        }
    }
}

impl Args {
    /// Whether they do not say what to forget.
    pub fn say_nothing(&self) -> bool {
        self.snapshots.is_empty() && !self.accept && !self.late && self.rules.policy().is_empty()
    }

    /// Whether they are rules, and do not say which snapshots these are for.
    pub fn are_rules_alone(&self) -> bool {
        !self.rules.policy().is_empty()
            && self.narrowing.is_none()
            && self.series_of.is_none()
            && !self.all_series
    }
}

/// Forgets them.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let policy = args.rules.policy();
    if args.accept {
        return accept_named(context, args);
    }
    if args.say_nothing() {
        let hint = "name snapshots to forget, or say which to keep, such as --keep-daily 7";
        return Err(CliError::new(Exit::Failed, "nothing says what to forget", hint));
    }
    let repository = context.open()?;
    let list = list_snapshots(&repository)?;
    // What is held has to be known.
    list.wishes.refuse_withheld().map_err(|folder| folder.error())?;
    if args.undo {
        let ids = find_all(&args.snapshots, &args.narrowing, &list.forgotten)?;
        let late = remember(&repository, &ids)?;
        for id in &late {
            context.terminal.result(too_late(*id))?;
        }
        let undone: Vec<_> = ids.iter().copied().filter(|id| !late.contains(id)).collect();
        context.terminal.json(&json!({
            "event": "summary", "undone": texts(&undone), "late": texts(&late),
        }))?;
        let kept = counted((ids.len() - late.len()) as u64, "snapshot", "snapshots");
        context.terminal.line(format!("{kept} kept after all"))?;
        return Ok(if late.is_empty() { Exit::Done } else { Exit::Failed }.into());
    }
    let (judged, unreadable) = match policy.is_empty() {
        true if args.late => (Vec::new(), late_ones(context, args, &list)?),
        true => named_ones(context, &repository, args, &list)?,
        false => {
            let options = ForgetOptions {
                policy: &policy,
                quarantine: args.quarantine,
                periods: &dates::periods,
                is_rehearsal: args.dry_run,
            };
            let mut meant = wanted(args, &list);
            if let Some(name) = &args.series_of {
                meant = series_of(name, args, &list, meant)?;
                report_others(context, list.snapshots.len() - meant.len())?;
            }
            (judge(&repository, &list, &meant, &options)?, Vec::new())
        }
    };
    let goes = |judged: &&Judged<'_>| judged.kept_by.is_empty();
    let mut going: Vec<SnapshotId> = judged.iter().filter(goes).map(|j| j.snapshot.id).collect();
    report(context, &judged)?;
    if args.calendar && !context.json() {
        print_calendars(context, &judged)?;
    }
    let kept = list.snapshots.len() - going.len();
    if !args.yes && !args.dry_run {
        refuse_to_leave_none(&judged, kept, !policy.is_empty())?;
    }
    going.extend(unreadable);
    let exit = report_alarms(context, &judged)?;
    let count = counted(going.len() as u64, "snapshot", "snapshots");
    if !args.dry_run {
        forget(&repository, &going)?;
    }
    context.terminal.json(&json!({
        "event": "summary",
        "dry_run": args.dry_run,
        "forgotten": texts(&going),
        "kept": kept,
    }))?;
    if args.dry_run {
        context.terminal.line(format!("{count} would be forgotten"))?;
        return Ok(exit.into());
    }
    // Of those that came back from another copy, a verdict has said already that they go.
    let collections = Collections::read(&repository)?;
    let are_gone = going.iter().any(|id| collections.took(*id));
    context.terminal.line(match going.is_empty() {
        true => "nothing to forget".to_owned(),
        false if are_gone => format!(
            "{count} forgotten; `strongroom prune` frees what only they need. What a prune had taken before \
             cannot be taken back; what else was forgotten can until then, by `strongroom forget --undo ID`"
        ),
        false => format!(
            "{count} forgotten; `strongroom prune` frees what only they need, and until then \
             `strongroom forget --undo ID` takes it back"
        ),
    })?;
    Ok(exit.into())
}

fn texts(ids: &[SnapshotId]) -> Vec<String> {
    ids.iter().map(SnapshotId::to_string).collect()
}

/// The snapshots of each series.
fn by_series<'j, 's>(judged: &'j [Judged<'s>]) -> BTreeMap<Series<'s>, Vec<&'j Judged<'s>>> {
    let mut series: BTreeMap<Series<'s>, Vec<&Judged<'s>>> = BTreeMap::new();
    for one in judged {
        series.entry(Series::of(one.snapshot)).or_default().push(one);
    }
    series
}

/// Host and paths of a series. Two may look the same: a path may have a blank.
fn series_text(series: &Series<'_>) -> String {
    let paths: Vec<String> = series.paths.iter().map(|path| printable_bytes(path)).collect();
    format!("{}: {}", printable_text(series.host), paths.join(" "))
}

/// Fails if no snapshot at all would be left, or, by rules, none of a host and its paths.
fn refuse_to_leave_none(
    judged: &[Judged<'_>],
    kept: usize,
    is_by_rules: bool,
) -> Result<(), CliError> {
    let hint = "if that is what you want, add --yes; nothing was forgotten";
    if kept == 0 && !judged.is_empty() {
        return Err(CliError::new(Exit::Failed, "no snapshot would be left", hint));
    }
    let emptied: Vec<String> = by_series(judged)
        .into_iter()
        .filter(|(_, series)| series.iter().all(|judged| judged.kept_by.is_empty()))
        .map(|(series, _)| series_text(&series))
        .collect();
    if is_by_rules && !emptied.is_empty() {
        let left = counted(kept as u64, "snapshot", "snapshots");
        let emptied = emptied.join(", nor of ");
        let message = format!("none would be left of {emptied}; {left} of others would");
        return Err(CliError::new(Exit::Failed, message, hint));
    }
    Ok(())
}

/// A calendar of each host and set of paths.
fn print_calendars(context: &Context, judged: &[Judged<'_>]) -> Result<(), CliError> {
    for (series, snapshots) in by_series(judged) {
        let mut days: BTreeMap<Date, Mark> = BTreeMap::new();
        for judged in snapshots {
            let mark = mark_of(judged);
            let day = days.entry(dates::day(judged.snapshot.started)).or_insert(mark);
            *day = day.with(mark);
        }
        context.terminal.line("")?;
        context.terminal.line(series_text(&series))?;
        for line in calendar(&days, output_has_colours()) {
            context.terminal.safe_line(&line)?;
        }
    }
    Ok(context.terminal.line(legend())?)
}

fn mark_of(judged: &Judged<'_>) -> Mark {
    match judged {
        judged if judged.alarm.is_some() => Mark::Suspicious,
        judged if judged.kept_by.contains(&"held") => Mark::Held,
        judged if judged.kept_by.is_empty() => Mark::Goes,
        _ => Mark::Stays,
    }
}

/// Says that it may be too late to keep a snapshot.
pub fn too_late(id: SnapshotId) -> String {
    format!(
        "{}: a prune has taken it, or may still take it; `strongroom prune --undo` keeps what is only condemned",
        id.short()
    )
}

/// Records that snapshots are right: those that are named, or all of a host, or of a path.
fn accept_named(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    if args.snapshots.is_empty() && args.narrowing.is_none() {
        let hint = "name the snapshots that are right, or give --host to accept all of a machine";
        return Err(CliError::new(Exit::Failed, "nothing says what to accept", hint));
    }
    let repository = context.open()?;
    let list = list_snapshots(&repository)?;
    let ids: Vec<SnapshotId> = match args.snapshots.is_empty() {
        true => wanted(args, &list).iter().map(|snapshot| snapshot.id).collect(),
        false => find_surely(&args.snapshots, &args.narrowing, &list)?,
    };
    if !args.dry_run {
        accept(&repository, &list, &ids)?;
    }
    context.terminal.json(&json!({
        "event": "summary", "dry_run": args.dry_run, "accepted": texts(&ids),
    }))?;
    let accepted = counted(ids.len() as u64, "snapshot", "snapshots");
    context.terminal.line(format!("{accepted} accepted"))?;
    Ok(Exit::Done.into())
}

/// Names the snapshots that the owner has to look at; what the command ends with.
fn report_alarms(context: &Context, judged: &[Judged<'_>]) -> Result<Exit, CliError> {
    let mut exit = Exit::Done;
    for Judged { snapshot, alarm, .. } in judged {
        let Some(alarm) = alarm else { continue };
        exit = Exit::Incomplete;
        let (id, host) = (snapshot.id.short(), printable_text(&snapshot.host));
        let message = format!("snapshot {id} of {host} is suspicious: {}", alarm_text(*alarm));
        context.terminal.problem(Severity::Warning, &message);
    }
    if exit == Exit::Incomplete {
        context.terminal.line(
            "rules remove nothing beside a suspicious snapshot: look at it, then remove it with \
             `strongroom forget ID`, or keep it with `strongroom forget --accept ID`",
        )?;
    }
    Ok(exit)
}

fn alarm_text(alarm: Alarm) -> String {
    match alarm {
        Alarm::Dated { seen } => {
            format!("its time does not fit: it was first seen on {}", dates::text(seen))
        }
        Alarm::Shrunken => "it has far fewer files or bytes than those before it".to_owned(),
        Alarm::TooMany { count, usual } => {
            format!("there are {count} on its day, and {usual} is usual")
        }
        Alarm::Unknown => "a newer program found it so".to_owned(),
    }
}

/// One that cannot be read or does not count, by the beginning of its id: it can be forgotten all the
/// same.
fn out_of_use(name: &OsStr, list: &SnapshotList) -> Option<SnapshotId> {
    let name = name.to_str().filter(|name| name.len() >= SHORTEST_ID)?;
    let named = |id: &SnapshotId| id.starts_with(name);
    let late = list.late.iter().map(|late| late.id);
    let mut found =
        list.unreadable.iter().chain(&list.newer).map(|(id, _)| *id).chain(late).filter(named);
    let id = found.next()?;
    found.next().is_none().then_some(id)
}

/// The snapshots that do not count, because their domain has ended without them, and are not held.
fn late_ones(
    context: &Context,
    args: &Args,
    list: &SnapshotList,
) -> Result<Vec<SnapshotId>, CliError> {
    let narrowing = args.narrowing.resolve();
    let is_held = |late: &Snapshot| list.wishes.hold(late.id).is_some();
    let late = list.late.iter().filter(|late| narrowing.fits(late) && !is_held(late));
    let late: Vec<SnapshotId> = late.map(|late| late.id).collect();
    if !late.is_empty() {
        let count = counted(late.len() as u64, "snapshot does", "snapshots do");
        let short: Vec<String> = late.iter().map(SnapshotId::short).collect();
        context.terminal.line(format!(
            "{count} not count, because their domain has ended without them: {}",
            short.join(" ")
        ))?;
    }
    Ok(late)
}

/// The snapshots that are named, and those of them that cannot be read or do not count.
fn named_ones<'s>(
    context: &Context,
    repository: &Repository,
    args: &Args,
    list: &'s SnapshotList,
) -> Result<(Vec<Judged<'s>>, Vec<SnapshotId>), CliError> {
    let (lost, names): (Vec<_>, Vec<_>) =
        args.snapshots.iter().cloned().partition(|name| out_of_use(name, list).is_some());
    let (removed, names) = removed_ones(context, repository, names, list)?;
    let ids = find_surely(&names, &args.narrowing, list)?;
    let snapshots = list.snapshots.iter().filter(|snapshot| ids.contains(&snapshot.id));
    let judged: Vec<Judged<'s>> = snapshots.map(Judged::new).collect();
    for Judged { snapshot, .. } in &judged {
        if let Some(hold) = list.wishes.hold(snapshot.id) {
            return Err(RepositoryError::Held { snapshot: snapshot.id, reason: hold.reason }.into());
        }
    }
    let mut unreadable: Vec<_> = lost.iter().filter_map(|name| out_of_use(name, list)).collect();
    unreadable.extend(removed);
    Ok((judged, unreadable))
}

/// The snapshots that were removed without having been forgotten, of which a name is the whole id; and the
/// other names.
fn removed_ones(
    context: &Context,
    repository: &Repository,
    names: Vec<OsString>,
    list: &SnapshotList,
) -> Result<(Vec<SnapshotId>, Vec<OsString>), CliError> {
    let is_listed = |id: SnapshotId| list.all().any(|snapshot| snapshot.id == id);
    let as_removed = |name: &OsString| -> Option<SnapshotId> {
        name.to_str()?.parse().ok().filter(|id| !is_listed(*id))
    };
    if names.iter().all(|name| as_removed(name).is_none()) {
        return Ok((Vec::new(), names));
    }
    let mut plan = RepairPlan::default();
    plan_recovery(repository, &mut plan, &Silent, &context.cancel)?;
    let recognised = plan.lost_snapshots.iter().map(|lost| lost.id);
    let removed: HashSet<SnapshotId> =
        recognised.chain(plan.unrecognised.iter().map(|lost| lost.id)).collect();
    let is_removed = |id: &SnapshotId| removed.contains(id);
    let (removed, others): (Vec<OsString>, Vec<OsString>) =
        names.into_iter().partition(|name| as_removed(name).is_some_and(|id| is_removed(&id)));
    Ok((removed.iter().filter_map(as_removed).collect(), others))
}

fn wanted<'s>(args: &Args, list: &'s SnapshotList) -> Vec<&'s Snapshot> {
    let narrowing = args.narrowing.resolve();
    list.snapshots.iter().filter(|snapshot| narrowing.fits(snapshot)).collect()
}

/// Those of the same series as the snapshot that a name means, which may itself be forgotten.
fn series_of<'s>(
    name: &OsString,
    args: &Args,
    list: &SnapshotList,
    mut snapshots: Vec<&'s Snapshot>,
) -> Result<Vec<&'s Snapshot>, CliError> {
    for one in find_also_forgotten(std::slice::from_ref(name), &args.narrowing, list)? {
        snapshots.retain(|other| Series::of(other) == Series::of(&one));
    }
    Ok(snapshots)
}

fn report_others(context: &Context, count: usize) -> Result<(), CliError> {
    if count > 0 {
        let others = counted(count as u64, "snapshot stays", "snapshots stay");
        context.terminal.line(format!("{others}: these rules are not for their host or paths"))?;
    }
    Ok(())
}

fn report(context: &Context, judged: &[Judged<'_>]) -> Result<(), CliError> {
    for Judged { snapshot, kept_by, alarm } in judged {
        context.terminal.json(&json!({
            "event": "retention",
            "snapshot": snapshot.id.to_string(),
            "started": dates::rfc3339(snapshot.started),
            "kept_by": kept_by,
            "alarm": alarm.map(alarm_text),
        }))?;
    }
    let rows: Vec<Vec<String>> = judged
        .iter()
        .map(|Judged { snapshot, kept_by, .. }| {
            let paths: Vec<String> = snapshot.paths.iter().map(|p| printable_bytes(p)).collect();
            let what = match kept_by.is_empty() {
                true => "forget".to_owned(),
                false => format!("keep: {}", kept_by.join(", ")),
            };
            let time = dates::text(snapshot.started);
            let host = printable_text(&snapshot.host);
            vec![snapshot.id.short(), time, host, what, paths.join(" ")]
        })
        .collect();
    for line in table(&rows, &[]) {
        context.terminal.line(line)?;
    }
    Ok(())
}
