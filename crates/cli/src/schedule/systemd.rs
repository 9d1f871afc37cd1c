//! Timers of systemd, of the machine or of a user.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use strongroom_base::Printable;

use super::{Plan, text_of};
use crate::exit::{CliError, Exit};
use crate::replaced::{replace, replace_all};

/// How long systemd waits until it tries again what a machine was not ready for.
const RETRY: &str = "15min";

/// The folder of units that an administrator or a user makes.
pub fn folder(of_machine: bool) -> Result<PathBuf, CliError> {
    if of_machine {
        return Ok("/etc/systemd/system".into());
    }
    let absolute = |name| {
        std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute())
    };
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    let config = config
        .ok_or_else(|| CliError::new(Exit::Failed, "there is no folder for units", "set HOME"))?;
    Ok(config.join("systemd/user"))
}

/// Whether systemd runs this machine.
pub fn is_here() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// The unit that runs the profile.
pub fn service(plan: &Plan) -> String {
    let words = [
        text_of(&plan.program),
        "--profile".to_owned(),
        plan.profile.clone(),
        "--config".to_owned(),
        text_of(&plan.config),
        "run".to_owned(),
    ];
    let command: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let mut text = format!(
        "# Written by `strongroom schedule`, which also removes it.\n\
         [Unit]\n\
         Description=Strongroom, profile {}\n\
         Documentation=man:strongroom-run(1)\n\
         Wants=network-online.target\n\
         After=network-online.target\n\
         \n\
         [Service]\n\
         # Not oneshot: such a unit is not tried again by its exit code.\n\
         Type=exec\n\
         ExecStart={}\n\
         # 3: with warnings, which were said. 75: the machine is not ready for it, so try again.\n\
         SuccessExitStatus=3 75\n\
         RestartForceExitStatus=75\n\
         RestartSec={RETRY}\n\
         # The run itself asks its steps to stop, and waits for them.\n\
         KillMode=mixed\n\
         TimeoutStopSec=150\n\
         Nice=10\n\
         IOSchedulingClass=best-effort\n\
         IOSchedulingPriority=7\n",
        description(&plan.profile),
        command.join(" "),
    );
    if plan.of_machine {
        // So it has a home, and with it a cache.
        text.push_str("User=root\n");
    }
    for name in &plan.credentials {
        let encrypted = Path::new("/etc/credstore.encrypted").join(name).exists();
        let option = if encrypted { "LoadCredentialEncrypted" } else { "LoadCredential" };
        text.push_str(&format!("{option}={}\n", escaped(name)));
    }
    text
}

/// The timer for it.
pub fn timer(plan: &Plan) -> String {
    let calendars = plan.calendar.to_systemd();
    let calendars = calendars.lines().map(|line| format!("OnCalendar={}\n", escaped(line)));
    format!(
        "# Written by `strongroom schedule`, which also removes it.\n\
         [Unit]\n\
         Description=When Strongroom runs profile {}\n\
         \n\
         [Timer]\n\
         {}\
         # A run that was missed is made up for.\n\
         Persistent=true\n\
         RandomizedDelaySec={}\n\
         FixedRandomDelay=true\n\
         WakeSystem={}\n\
         \n\
         [Install]\n\
         WantedBy=timers.target\n",
        description(&plan.profile),
        calendars.collect::<String>(),
        plan.jitter / 1_000_000_000,
        plan.wake,
    )
}

fn description(profile: &str) -> String {
    escaped(&Printable::text(profile).to_string())
}

/// Without what systemd replaces.
fn escaped(text: &str) -> String {
    text.replace('%', "%%")
}

/// A word of a command line of systemd.
fn quoted(word: &str) -> String {
    let word = word.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{}\"", escaped(&word).replace('$', "$$"))
}

/// The file whose profile a unit runs that is there.
pub fn config(unit: &str, of_machine: bool) -> Option<PathBuf> {
    let service = folder(of_machine).ok()?.join(format!("{unit}.service"));
    config_in(&std::fs::read_to_string(service).ok()?)
}

fn config_in(service: &str) -> Option<PathBuf> {
    let (_, rest) = service.split_once(" \"--config\" \"")?;
    let (word, _) = rest.split_once("\" \"run\"")?;
    let word = word.replace("$$", "$").replace("%%", "%");
    Some(word.replace("\\\"", "\"").replace("\\\\", "\\").into())
}

/// Writes the units and starts the timer; gives their paths.
pub fn install(plan: &Plan) -> Result<Vec<PathBuf>, CliError> {
    check_calendar(plan)?;
    let folder = folder(plan.of_machine)?;
    let paths: Vec<PathBuf> = ["service", "timer"]
        .iter()
        .map(|kind| folder.join(format!("{}.{kind}", plan.unit())))
        .collect();
    let before: Vec<Option<Vec<u8>>> = paths.iter().map(|path| std::fs::read(path).ok()).collect();
    let installed = std::fs::create_dir_all(&folder)
        .and_then(|()| {
            let (service, timer) = (service(plan), timer(plan));
            replace_all(&[(&paths[0], service.as_bytes()), (&paths[1], timer.as_bytes())])
        })
        .map_err(|error| {
            let message = format!("cannot write {}: {error}", Printable::path(&folder));
            CliError::new(
                Exit::Failed,
                message,
                "run it as the user that it is for, and check the room on its disk",
            )
        })
        .and_then(|()| systemctl(plan.of_machine, &["daemon-reload"]))
        .and_then(|()| {
            let timer = format!("{}.timer", plan.unit());
            systemctl(plan.of_machine, &["enable", &timer])?;
            // A timer that runs already takes over what changed only so.
            systemctl(plan.of_machine, &["restart", &timer])
        });
    if let Err(error) = installed {
        for (path, before) in paths.iter().zip(before) {
            // As it was.
            let _ = match before {
                Some(bytes) => replace(path, &bytes),
                None => std::fs::remove_file(path),
            };
        }
        let _ = systemctl(plan.of_machine, &["daemon-reload"]);
        return Err(error);
    }
    Ok(paths)
}

/// Stops the timer and removes the units; gives the paths of those that were there.
pub fn remove(unit: &str, of_machine: bool) -> Result<Vec<PathBuf>, CliError> {
    let folder = folder(of_machine)?;
    let timer = format!("{unit}.timer");
    let paths = [folder.join(&timer), folder.join(format!("{unit}.service"))];
    let there: Vec<PathBuf> = paths.into_iter().filter(|path| path.exists()).collect();
    if there.is_empty() {
        return Ok(there);
    }
    // A run that is on goes on.
    systemctl(of_machine, &["disable", "--now", &timer])?;
    for path in &there {
        std::fs::remove_file(path).map_err(|error| {
            let message = format!("cannot remove {}: {error}", Printable::path(path));
            CliError::new(Exit::Failed, message, "run it as the user that it is of")
        })?;
    }
    systemctl(of_machine, &["daemon-reload"])?;
    Ok(there)
}

/// When the timer fires next, as systemd says it; none if it does not run.
pub fn next(unit: &str, of_machine: bool) -> Option<String> {
    let timer = format!("{unit}.timer");
    let mut command = Command::new("systemctl");
    command.args(scope(of_machine)).args(["list-timers", "--no-legend", "--no-pager", &timer]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words: Vec<&str> = text.split_whitespace().take(3).collect();
    (words.len() == 3 && words[0] != "-").then(|| words.join(" "))
}

/// Whether a user's timers also run while the user is not logged in.
pub fn lingers(user: &str) -> bool {
    Path::new("/var/lib/systemd/linger").join(user).exists()
}

fn check_calendar(plan: &Plan) -> Result<(), CliError> {
    for line in plan.calendar.to_systemd().lines() {
        let mut command = Command::new("systemd-analyze");
        command.args(["calendar", "--", line]).stdin(Stdio::null());
        match command.output() {
            Ok(output) if !output.status.success() => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                let hint = "write daily, 02:30, Mon,Thu 02:30, or what `man systemd.time` says";
                return Err(CliError::new(Exit::Failed, format!("--at: {said}"), hint));
            }
            // Without that program systemd itself says what is wrong.
            _ => {}
        }
    }
    Ok(())
}

fn scope(of_machine: bool) -> &'static [&'static str] {
    if of_machine { &["--system"] } else { &["--user"] }
}

fn systemctl(of_machine: bool, words: &[&str]) -> Result<(), CliError> {
    let fail = |why: String| {
        let message =
            format!("`systemctl {} {}` failed: {why}", scope(of_machine)[0], words.join(" "));
        let hint = "nothing is left half-written; --cron writes a line for cron instead";
        CliError::new(Exit::Failed, message, hint)
    };
    let mut command = Command::new("systemctl");
    let output = command.args(scope(of_machine)).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error: io::Error| fail(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(fail(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Calendar;

    #[test]
    fn a_unit_says_whose_profile_it_runs() {
        for file in ["/etc/strongroom/config.toml", "/a \"b\"/it's $1 100%\\.toml"] {
            let plan = Plan {
                profile: "default".to_owned(),
                config: file.into(),
                program: "/usr/bin/strongroom".into(),
                calendar: Calendar::parse("daily").unwrap(),
                jitter: 0,
                wake: false,
                of_machine: true,
                credentials: Vec::new(),
            };
            assert_eq!(config_in(&service(&plan)), Some(plan.config));
        }
    }
}
