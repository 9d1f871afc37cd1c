//! Lines for cron, on machines without systemd: of the machine in `/etc/cron.d`, of a user in the
//! user's table.
//!
//! Cron knows neither missed runs nor jitter. So it starts `run --due` four times an hour, which does
//! nothing unless a run is due and was not begun.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use strongroom_base::Printable;

use super::{Calendar, Plan, shell_word, text_of};
use crate::exit::{CliError, Exit};
use crate::replaced::replace;

/// Where cron looks for tables of programs.
const FOLDER: &str = "/etc/cron.d";

/// The command of the line.
fn command(plan: &Plan) -> Result<String, CliError> {
    if let Calendar::Systemd(text) = &plan.calendar {
        let message = format!("only systemd understands \"{}\"", Printable::text(text));
        let hint = "write hourly, daily, weekly, monthly, 02:30 or Mon,Thu 02:30";
        return Err(CliError::new(Exit::Failed, message, hint));
    }
    let jitter = match plan.jitter / 1_000_000_000 {
        seconds if seconds % 60 == 0 => format!("{}min", seconds / 60),
        seconds => format!("{seconds}s"),
    };
    let due = plan.calendar.to_string();
    let words = [
        &text_of(&plan.program),
        "--quiet",
        "--profile",
        &plan.profile,
        "--config",
        &text_of(&plan.config),
        "run",
        "--due",
        &due,
        "--jitter",
        &jitter,
    ];
    // In a table of cron, `%` is a new line.
    Ok(words.map(|word| shell_word(word).replace('%', "\\%")).join(" "))
}

/// The table for the machine.
pub fn table(plan: &Plan) -> Result<String, CliError> {
    Ok(format!(
        "# Written by `strongroom schedule`, which also removes it.\n*/15 * * * * root {}\n",
        command(plan)?
    ))
}

fn path(unit: &str) -> PathBuf {
    // Names with a dot are not read.
    Path::new(FOLDER).join(unit)
}

/// What marks a user's line as ours.
fn mark(unit: &str) -> String {
    format!(" # {unit}")
}

/// Writes it; says where.
pub fn install(plan: &Plan) -> Result<String, CliError> {
    let unit = plan.unit();
    if plan.of_machine {
        let path = path(&unit);
        let failed = |error| {
            let message = format!("cannot write {}: {error}", Printable::path(&path));
            CliError::new(
                Exit::Failed,
                message,
                "install cron, run it as root, and check the room on its disk",
            )
        };
        replace(&path, table(plan)?.as_bytes()).map_err(failed)?;
        return Ok(text_of(&path));
    }
    let line = format!("*/15 * * * * {}{}", command(plan)?, mark(&unit));
    let mut lines = own_lines()?;
    lines.retain(|line| !line.ends_with(mark(&unit).as_bytes()));
    lines.push(line.into_bytes());
    replace_own(&lines)?;
    Ok("your table of cron".to_owned())
}

/// Removes it; says where it was, if it was anywhere.
pub fn remove(unit: &str, of_machine: bool) -> Result<Option<String>, CliError> {
    if of_machine {
        let path = path(unit);
        return match std::fs::remove_file(&path) {
            Ok(()) => Ok(Some(text_of(&path))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let message = format!("cannot remove {}: {error}", Printable::path(&path));
                Err(CliError::new(Exit::Failed, message, "run it as root"))
            }
        };
    }
    let Ok(mut lines) = own_lines() else { return Ok(None) };
    let count = lines.len();
    lines.retain(|line| !line.ends_with(mark(unit).as_bytes()));
    if lines.len() == count {
        return Ok(None);
    }
    replace_own(&lines)?;
    Ok(Some("your table of cron".to_owned()))
}

/// The line that is there.
pub fn shown(unit: &str, of_machine: bool) -> Option<String> {
    let lines: Vec<String> = match of_machine {
        true => std::fs::read_to_string(path(unit)).ok()?.lines().map(str::to_owned).collect(),
        false => {
            let lines = own_lines().ok()?;
            lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect()
        }
    };
    lines.into_iter().find(|line| match of_machine {
        true => line.starts_with("*/15"),
        false => line.ends_with(&mark(unit)),
    })
}

/// What a line says: when a run is due, and up to how much later it begins, in nanoseconds.
pub fn terms(line: &str) -> Option<(Calendar, i64)> {
    let (_, rest) = line.split_once(" --due ")?;
    let (due, rest) = rest.split_once(" --jitter ")?;
    let calendar = Calendar::parse(due.trim_matches('\'')).ok()?;
    Some((calendar, crate::spans::parse_jitter(rest.split_whitespace().next()?).ok()?))
}

/// The file whose profile a line runs.
pub fn config(line: &str) -> Option<PathBuf> {
    let (_, rest) = line.split_once(" --config ")?;
    let (word, _) = rest.split_once(" run --due ")?;
    let word = word.replace("\\%", "%");
    let bare = word.strip_prefix('\'').and_then(|word| word.strip_suffix('\''));
    Some(bare.map_or_else(|| word.clone(), |bare| bare.replace("'\\''", "'")).into())
}

/// The first time from a moment on at which cron starts our line, both in nanoseconds since 1970.
pub fn tick(from: i64) -> i64 {
    const QUARTER: i64 = 900_000_000_000;
    from.saturating_add(QUARTER - 1).div_euclid(QUARTER).saturating_mul(QUARTER)
}

/// Whether a program that reads tables of cron runs on this machine.
pub fn is_here() -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| {
        let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        matches!(name.trim_end(), "cron" | "crond" | "fcron")
    })
}

fn failed(why: String) -> CliError {
    let message = format!("`crontab` failed: {why}");
    CliError::new(Exit::Failed, message, "install cron, or systemd, and run it again")
}

/// The lines of the user's table as they are: all of them are written again.
fn own_lines() -> Result<Vec<Vec<u8>>, CliError> {
    let mut command = Command::new("crontab");
    let output = command.arg("-l").env("LC_ALL", "C").stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // The second is what busybox says.
    let is_empty = ["no crontab", "No such file"].iter().any(|words| said.contains(words));
    if !output.status.success() && !is_empty {
        return Err(failed(said.trim().to_owned()));
    }
    let table = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
    match table {
        b"" => Ok(Vec::new()),
        table => Ok(table.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()),
    }
}

fn replace_own(lines: &[Vec<u8>]) -> Result<(), CliError> {
    let text = lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect::<Vec<u8>>();
    let mut command = Command::new("crontab");
    command.arg("-").stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let mut pipe = child.stdin.take().expect("it was asked for");
    let written = pipe.write_all(&text);
    drop(pipe);
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    written.map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(at: &str) -> Plan {
        Plan {
            profile: "two words".to_owned(),
            config: "/etc/strongroom/config.toml".into(),
            program: "/usr/bin/strongroom".into(),
            calendar: Calendar::parse(at).unwrap(),
            jitter: 3_600_000_000_000,
            wake: false,
            of_machine: true,
            credentials: Vec::new(),
        }
    }

    #[test]
    fn a_line_for_cron_says_when_it_is_due() {
        let table = table(&plan("Mon,Thu 02:30,14:00")).unwrap();
        assert!(table.contains("'two words'") && table.contains("--jitter 60min"), "{table}");
        assert!(table.contains("--due 'Mon,Thu 02:30,14:00'"), "{table}");
        for at in ["hourly", "daily", "weekly", "monthly", "02:30", "Mon..Fri 1:00,2:00"] {
            let line = command(&plan(at)).unwrap();
            let due = line.split(" --due ").nth(1).and_then(|rest| rest.split(" --jitter").next());
            let due = Calendar::parse(due.unwrap().trim_matches('\'')).unwrap();
            assert_eq!(due, Calendar::parse(at).unwrap(), "{at}: {line}");
            assert_eq!(terms(&line), Some((due, 3_600_000_000_000)), "{line}");
        }
        for file in ["/etc/strongroom/config.toml", "/a b/it's 100%.toml"] {
            let plan = Plan { config: file.into(), ..plan("daily") };
            assert_eq!(config(&command(&plan).unwrap()), Some(plan.config));
        }
        assert!(command(&plan("*-*-01 04:00")).is_err());
        let short = command(&Plan { jitter: 30_000_000_000, ..plan("daily") }).unwrap();
        assert!(short.ends_with(" --jitter 30s"), "{short}");
        assert_eq!(terms("*/15 * * * * other"), None);
        assert_eq!((tick(1), tick(900_000_000_000)), (900_000_000_000, 900_000_000_000));
    }
}
