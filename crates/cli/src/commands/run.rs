//! `strongroom run`

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::FromArgMatches;
use clap::parser::ValueSource;
use serde_json::json;
use strongroom_base::{Clock, Printable, Severity, SystemClock, Timestamp};
use strongroom_notice::{MailServer, Recipient, Verdict};
use strongroom_remote::Place;

use super::forget;
use super::profile::check_sections;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::manual;
use crate::night::{
    Hooks, Night, ONLY_AFTER_A_BACKUP, Records, STEPS, Told, Typed, Word, is_metered,
    is_on_battery, test_notice,
};
use crate::passphrase;
use crate::profile::{self, Chosen, Profiles, Value, exposed};
use crate::schedule::Calendar;
use crate::spans;
use crate::used_places;

/// The variable that names a repository.
const VARIABLE: &str = "STRONGROOM_REPOSITORY";

/// What a profile's run does, and who hears of it.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Only these steps of the profile, in their usual order
    #[arg(value_name = "STEP", value_parser = STEPS)]
    steps: Vec<String>,
    /// Change nothing; show the steps
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Do nothing unless a run is due by this calendar and its steps were not begun since; for cron
    #[arg(long, value_name = "CALENDAR", value_parser = Calendar::parse)]
    due: Option<Calendar>,
    /// With --due: be up to this much later, always the same on this machine
    #[arg(long, value_name = "DURATION", value_parser = spans::parse_jitter, default_value = "0s")]
    jitter: i64,
    /// Do nothing while the machine runs on a battery; exit code 75
    #[arg(long)]
    not_on_battery: bool,
    /// Do nothing while the line to the network costs by the byte, as NetworkManager says; exit
    /// code 75
    #[arg(long)]
    not_metered: bool,
    /// Write the result for Prometheus into this file
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    #[command(flatten)]
    hooks: HookArgs,
    #[command(flatten)]
    notices: NoticeArgs,
}

/// Commands around a run.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Hooks")]
struct HookArgs {
    /// Run this shell command before the first step; may be given several times, like all hooks
    #[arg(long, value_name = "COMMAND")]
    before: Vec<String>,
    /// Run this after the last step; like the next two it finds the report in its standard input
    #[arg(long, value_name = "COMMAND")]
    after: Vec<String>,
    /// Run this if there were warnings
    #[arg(long, value_name = "COMMAND")]
    on_warning: Vec<String>,
    /// Run this if something failed
    #[arg(long, value_name = "COMMAND")]
    on_failure: Vec<String>,
    /// End a hook that takes longer
    #[arg(long, value_name = "DURATION", value_parser = spans::parse, default_value = "1h")]
    hook_patience: i64,
}

/// Who hears of a run.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Notices")]
struct NoticeArgs {
    /// Send a notice to mailto:ADDRESS, https://WEBHOOK, ntfy:https://HOST/TOPIC or
    /// healthchecks:https://HOST/ID; may be given several times
    #[arg(long, value_name = "RECIPIENT")]
    notify: Vec<Recipient>,
    /// Of which runs: "failure", "warning" for these too, or "success" for all. Healthchecks hears
    /// of all
    #[arg(long, value_name = "VERDICT", value_parser = verdict, default_value = "warning")]
    notify_on: Verdict,
    /// Run no step; send each recipient a notice that is marked as a test. Healthchecks gets none: it
    /// would count as a run
    #[arg(long, conflicts_with_all = ["dry_run", "due"])]
    notify_test: bool,
    /// The server that takes mail: smtp://HOST, smtp://USER@HOST or smtps://USER@HOST
    #[arg(long, value_name = "SERVER", default_value = "smtp://localhost")]
    smtp: MailServer,
    /// Who writes, as an address of mail [default: the user on this machine]
    #[arg(long, value_name = "ADDRESS")]
    mail_from: Option<String>,
}

impl NoticeArgs {
    fn word(self) -> Word {
        Word {
            recipients: self.notify,
            from_verdict: self.notify_on,
            mail_server: self.smtp,
            sender: self.mail_from,
        }
    }
}

fn verdict(text: &str) -> Result<Verdict, String> {
    match text {
        "failure" => Ok(Verdict::Failed),
        "warning" => Ok(Verdict::Warning),
        "success" => Ok(Verdict::Good),
        _ => Err("write failure, warning or success".to_owned()),
    }
}

/// Runs the steps.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    let chosen = context.chosen_profile()?;
    let profile = chosen.name.clone();
    if args.notices.notify_test {
        return try_notices(context, &profile, &args.notices.word());
    }
    let (steps, mistake) = sure_steps(&chosen.profiles, &profile, &args.steps)?;
    let rules_are_for_own = rules_are_for_own(&chosen.profiles, &profile)?;
    let typed = typed_for_all();
    let steps_elsewhere = steps_elsewhere(chosen, &steps, &typed)?;
    let elsewhere = (!steps_elsewhere.is_empty()).then(|| another_repository(&profile));
    if args.dry_run {
        if let Some(error) = elsewhere {
            return Err(error);
        }
        let plan = json!({ "event": "plan", "profile": profile, "steps": steps });
        context.terminal.json(&plan)?;
        for step in &steps {
            let narrowed = match *step == "forget" && rules_are_for_own {
                true => " --series-of SNAPSHOT",
                false => "",
            };
            context.terminal.line(format!("strongroom --profile {profile} {step}{narrowed}"))?;
        }
        return Ok(Exit::Done.into());
    }
    if let Some(calendar) = &args.due
        && !is_due(calendar, args.jitter, &profile, &steps)?
    {
        return Ok(Exit::Done.into());
    }
    if let Some(why) = hindrance(&args) {
        let hint = "run it later, or leave out the condition";
        return Err(CliError::new(Exit::NotNow, format!("not now: {why}"), hint));
    }
    let typed_passphrase = match passphrase::is_in_environment() || has_source(&typed) {
        true => Typed::default(),
        false => {
            let is_tried = |step: &&&str| !steps_elsewhere.contains(*step);
            let tried: Vec<&str> = steps.iter().filter(is_tried).copied().collect();
            without_source(&chosen.profiles, &profile, &tried)?
        }
    };
    let warnings = mistake.into_iter().chain(elsewhere.map(|error| error.in_full()));
    let warnings = warnings.chain(exposed(&chosen.profiles, &chosen.name)?).collect();
    let night = Night {
        context,
        profile,
        config: chosen.file.clone(),
        typed,
        variables: chosen.variables.iter().map(|(name, _)| name.clone()).collect(),
        steps,
        is_due: args.due.is_some(),
        steps_elsewhere,
        rules_are_for_own,
        typed_passphrase,
        hooks: Hooks {
            before: args.hooks.before,
            after: args.hooks.after,
            on_warning: args.hooks.on_warning,
            on_failure: args.hooks.on_failure,
            patience: Duration::from_nanos(args.hooks.hook_patience.unsigned_abs()),
        },
        word: args.notices.word(),
        warnings,
        metrics: args.metrics,
    };
    Ok(ExitCode::from(night.run()?))
}

/// The steps to run, and which section of the profile is none. Then nothing is removed: it may be the one that says
/// which snapshots the rules are for. A backup is made all the same. What else is wrong is said by its step, which
/// then does nothing.
fn sure_steps(
    profiles: &Profiles,
    profile: &str,
    wanted: &[String],
) -> Result<(Vec<&'static str>, Option<String>), CliError> {
    let mut steps = steps_of(profiles, profile, wanted)?;
    let Err(error) = check_sections(profiles, profile, &profile::built(&manual::command())) else {
        return Ok((steps, None));
    };
    let before = steps.len();
    steps.retain(|step| !ONLY_AFTER_A_BACKUP.contains(step));
    if steps.is_empty() {
        return Err(error);
    }
    let left_out = if steps.len() < before {
        ": nothing is forgotten or removed until it is right"
    } else {
        ""
    };
    Ok((steps, Some(format!("{error}{left_out}"))))
}

/// The steps for which a variable names another repository than the profile, whose steps and rules are not made
/// for it. What was typed is meant.
fn steps_elsewhere(
    chosen: &Chosen,
    steps: &[&'static str],
    typed: &[OsString],
) -> Result<Vec<&'static str>, CliError> {
    let is_typed = typed.iter().any(|word| word.as_bytes().starts_with(b"--repo="));
    let is_own = chosen.variables.iter().any(|(name, _)| name == VARIABLE);
    let variable = std::env::var_os(VARIABLE).filter(|_| !is_typed && !is_own);
    let Some(variable) = variable else { return Ok(Vec::new()) };
    let is_it = |place: &String| {
        let place = OsString::from(profile::at_home(place));
        let both = (Place::parse(&place), Place::parse(&variable));
        place == variable
            || matches!(both, (Ok(place), Ok(named)) if used_places::is_same(&place, &named))
    };
    let mut elsewhere = Vec::new();
    for step in steps {
        let settings = chosen.profiles.settings(&chosen.name, step)?;
        let own = settings.iter().find(|setting| setting.name == "repo");
        if let Some(Value::Words(places)) = own.map(|setting| &setting.value)
            && !places.iter().any(is_it)
        {
            elsewhere.push(*step);
        }
    }
    Ok(elsewhere)
}

/// What is wrong if a variable names another repository than a profile.
fn another_repository(profile: &str) -> CliError {
    let profile = Printable::text(profile);
    let message =
        format!("the variable {VARIABLE} names another repository than the profile {profile}");
    let hint = format!(
        "run `env -u {VARIABLE} strongroom --profile {profile} run`; or type --repo, if its steps and \
         rules are for that one"
    );
    CliError::new(Exit::Usage, message, hint)
}

/// Sends each recipient a notice, and says what became of it.
fn try_notices(context: &Context, profile: &str, word: &Word) -> Result<ExitCode, CliError> {
    let is_told = |recipient: &Recipient| !matches!(recipient, Recipient::Healthchecks(_));
    if !word.recipients.iter().any(is_told) {
        let message = format!("the profile {profile} has no recipient that a test can be sent to");
        let hint = format!("write notify = [\"mailto:ADDRESS\"] below a line [{profile}.run]");
        return Err(CliError::new(Exit::Failed, message, hint));
    }
    let notice = test_notice(profile, SystemClock.now());
    let told = word.tell(context, |recipient| is_told(recipient).then(|| notice.clone()));
    for one in &told {
        context.terminal.json(&json!({
            "event": "notified",
            "recipient": one.recipient,
            "delivered": one.has_arrived(),
        }))?;
        match &one.trouble {
            None => context.terminal.line(format!("a test was sent to {}", one.recipient))?,
            Some(trouble) => context.terminal.problem(Severity::Warning, trouble),
        }
    }
    Ok(if told.iter().all(Told::has_arrived) { Exit::Done } else { Exit::Failed }.into())
}

/// The steps that a profile has sections for; of these, those that were asked for.
pub fn steps_of(
    profiles: &Profiles,
    profile: &str,
    wanted: &[String],
) -> Result<Vec<&'static str>, CliError> {
    let sections = profiles.sections(profile)?;
    let example = |step: &str| format!("write a line [{profile}.{step}], with its options below");
    if let Some(missing) = wanted.iter().find(|step| !sections.contains_key(step.as_str())) {
        let message = format!("the profile {profile} does not say how to {missing}");
        return Err(CliError::new(Exit::Failed, message, example(missing)));
    }
    let is_wanted = |step: &&str| wanted.is_empty() || wanted.iter().any(|one| one == step);
    let steps: Vec<&str> = STEPS.into_iter().filter(|step| sections.contains_key(step)).collect();
    if steps.is_empty() {
        let message = format!("the profile {profile} has no step to run");
        return Err(CliError::new(Exit::Failed, message, example("backup")));
    }
    Ok(steps.into_iter().filter(is_wanted).collect())
}

/// Whether the rules of a profile's `forget` are for the snapshots alone that its backup makes: it has
/// a backup, and does not say itself which snapshots are meant.
fn rules_are_for_own(profiles: &Profiles, profile: &str) -> Result<bool, CliError> {
    if !profiles.sections(profile)?.contains_key("backup") {
        return Ok(false);
    }
    let command = profile::built(&manual::command());
    let of = command.find_subcommand("forget").expect("the program has this command");
    // What is wrong in its section is said by the step, which then forgets nothing.
    let Ok(resolved) = profile::resolve(profiles, profile, of) else { return Ok(true) };
    let Ok(matches) = profile::try_alone(&command, of, resolved) else { return Ok(true) };
    let Some((_, matches)) = matches.subcommand() else { return Ok(true) };
    Ok(forget::Args::from_arg_matches(matches).is_ok_and(|args| args.are_rules_alone()))
}

/// For how long behind the moment when a run is due one of before that is still on is a failure: it is
/// said once, by the first look after that moment.
const OVERLAP: Duration = Duration::from_secs(15 * 60);

/// Whether a run of these steps is due and was not begun.
pub fn is_due(
    calendar: &Calendar,
    jitter: i64,
    profile: &str,
    steps: &[&str],
) -> Result<bool, CliError> {
    let later = crate::schedule::offset(jitter, profile);
    let now = SystemClock.now();
    let due = calendar.last_due(now.0.saturating_sub(later)).ok_or_else(|| {
        let hint = "write hourly, daily, weekly, monthly, 02:30 or Mon,Thu 02:30";
        CliError::new(Exit::Failed, "only systemd understands this calendar", hint)
    })?;
    // What cannot be read is said by the run itself.
    let Ok(records) = Records::of(profile) else { return Ok(true) };
    let record = records.read().unwrap_or_default();
    let due = Timestamp(due.saturating_add(later));
    let is_late = now.0.saturating_sub(due.0) > OVERLAP.as_nanos() as i64;
    if records.runs_since().is_some_and(|since| since.0 >= due || is_late) {
        return Ok(false);
    }
    Ok(!record.has_begun(steps, due, records.noted(), now))
}

/// Whether what was typed says where the passphrase is.
fn has_source(typed: &[OsString]) -> bool {
    let is_one = |word: &str| {
        let name = word.trim_start_matches("--").split('=').next().unwrap_or_default();
        passphrase::SOURCES.contains(&name)
    };
    typed.iter().filter_map(|word| word.to_str()).any(is_one)
}

/// The steps that need a passphrase and for which nothing of the profile, which is all that there is
/// at night, says where it is.
pub fn steps_without_passphrase(
    profiles: &Profiles,
    profile: &str,
    steps: &[&'static str],
) -> Result<Vec<&'static str>, CliError> {
    let variables = profiles.variables(profile)?;
    if variables.iter().any(|(name, _)| passphrase::VARIABLES.contains(&&**name)) {
        return Ok(Vec::new());
    }
    let is_set = |step: &str, name: &str| -> Result<bool, CliError> {
        let settings = profiles.settings(profile, step)?;
        Ok(settings.iter().any(|one| one.name == name && one.value == Value::Flag(true)))
    };
    let mut without = Vec::new();
    for step in without_source(profiles, profile, steps)?.steps {
        let needs_one = match step {
            "audit" | "lock" => false,
            "replicate" => is_set(step, "mirror")?,
            "verify" => !is_set(step, "keyless")?,
            _ => true,
        };
        if needs_one {
            without.push(step);
        }
    }
    Ok(without)
}

/// The steps for which the profile does not say where the passphrase is.
fn without_source(
    profiles: &Profiles,
    profile: &str,
    steps: &[&'static str],
) -> Result<Typed, CliError> {
    let mut typed = Typed::default();
    for step in steps {
        let settings = profiles.settings(profile, step)?;
        if !settings.iter().any(|one| one.is_passphrase()) {
            typed.steps.insert(step);
            typed.may_be_new |= settings.iter().any(|one| one.name == "init");
        }
    }
    Ok(typed)
}

fn hindrance(args: &Args) -> Option<&'static str> {
    if args.not_on_battery && is_on_battery() {
        return Some("the machine runs on a battery");
    }
    if args.not_metered && is_metered() {
        return Some("the line to the network costs by the byte");
    }
    None
}

/// What was typed for every command, for the steps. What the profile and the environment say they
/// read themselves.
fn typed_for_all() -> Vec<OsString> {
    let command = manual::command();
    let Ok(matches) = command.clone().ignore_errors(true).try_get_matches_from(std::env::args_os())
    else {
        return Vec::new();
    };
    let Some((_, matches)) = matches.subcommand() else { return Vec::new() };
    let mut typed = Vec::new();
    for arg in command.get_arguments().filter(|arg| arg.is_global_set()) {
        let (id, Some(long)) = (arg.get_id().as_str(), arg.get_long()) else { continue };
        let is_own = matches!(long, "json" | "quiet" | "profile" | "config");
        if is_own || matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        if !arg.get_action().takes_values() {
            typed.push(format!("--{long}").into());
            continue;
        }
        for value in matches.get_raw(id).into_iter().flatten() {
            let mut option = OsString::from(format!("--{long}="));
            option.push(value);
            typed.push(option);
        }
    }
    typed
}
