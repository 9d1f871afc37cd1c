//! A program that is run to its end, or until it takes too long, with the end of what it writes kept.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, setsid, waitid};
use strongroom_base::Cancel;

/// How often is looked whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A longer line is broken.
const LINE_BYTES_MAX: usize = 8 << 10;
/// At most this much of what it writes last is kept.
const KEPT_BYTES_MAX: usize = 32 << 10;
/// How long is waited for what a program that has ended still writes: it may have left others that
/// never end, nor are ever quiet for as long as this.
const LAST_WORDS: Duration = Duration::from_secs(1);
const LAST_WORDS_MAX: Duration = Duration::from_secs(10);

/// Which of its two outputs a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It took too long, and was ended.
    TookTooLong,
    /// We were asked to stop, and so it was.
    Stopped,
}

impl fmt::Display for Ending {
    /// In words, behind the name of the program.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with exit code {code}"),
            Self::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Self::TookTooLong => f.write_str("took too long and was ended"),
            Self::Stopped => f.write_str("was stopped"),
        }
    }
}

/// What became of a program.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub ending: Ending,
    /// The end of what it wrote to both outputs.
    pub output: String,
    /// How long it took.
    pub took: Duration,
}

/// How long a program may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until it is asked to end; none is for ever.
    pub whole: Option<Duration>,
    /// From then until it is killed.
    pub grace: Duration,
}

/// A command that a person wrote, for the shell. It has no need of the passphrase.
pub fn shell(text: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", text]).env_remove("STRONGROOM_PASSWORD");
    command
}

/// Has a program inherit a file, under the same number, which no other program does.
pub fn inherit(command: &mut Command, file: impl AsFd + Send + Sync + 'static) {
    // SAFETY: between fork and exec, the new process makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(move || Ok(rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())?));
    }
}

/// Runs a program, with all that it starts, in a session of its own: Ctrl-C reaches it only through
/// us, and it finds no terminal at which it could wait for an answer. `each` sees every line that it
/// writes.
pub fn run(
    mut command: Command,
    input: &[u8],
    patience: Patience,
    cancel: &Cancel,
    each: &mut dyn FnMut(Stream, &str),
) -> io::Result<Ended> {
    let started = Instant::now();
    let stdin = if input.is_empty() { Stdio::null() } else { Stdio::piped() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: between fork and exec, the new process makes one system call and allocates nothing.
    unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
    let mut child = command.spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        let input = input.to_vec();
        // Detached: a program that does not read its input does not keep us.
        std::thread::spawn(move || pipe.write_all(&input));
    }
    let (sender, lines) = sync_channel(256);
    let out = child.stdout.take().expect("it was asked for");
    let err = child.stderr.take().expect("it was asked for");
    let second = sender.clone();
    std::thread::spawn(move || read_lines(out, Stream::Out, &sender));
    std::thread::spawn(move || read_lines(err, Stream::Err, &second));
    let mut kept = Kept::default();
    let mut on_line = |stream, line: &str| {
        each(stream, line);
        kept.push(line);
    };
    let ending = attend(&mut child, &lines, patience, cancel, started, &mut on_line)?;
    let ended = Instant::now();
    let mut quiet_since = ended;
    let may_wait = || {
        let is_left = started.elapsed() < patience.longest() && ended.elapsed() < LAST_WORDS_MAX;
        is_left && !cancel.is_cancelled()
    };
    while quiet_since.elapsed() < LAST_WORDS {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok((stream, line)) if may_wait() => {
                on_line(stream, &line);
                quiet_since = Instant::now();
            }
            Err(RecvTimeoutError::Timeout) => {}
            _ => break,
        }
    }
    Ok(Ended { ending, output: kept.text(), took: started.elapsed() })
}

impl Patience {
    fn longest(self) -> Duration {
        self.whole.map_or(Duration::MAX, |whole| whole + self.grace)
    }
}

fn attend(
    child: &mut Child,
    lines: &Receiver<(Stream, String)>,
    patience: Patience,
    cancel: &Cancel,
    started: Instant,
    on_line: &mut dyn FnMut(Stream, &str),
) -> io::Result<Ending> {
    let group = Pid::from_child(child);
    let mut asked: Option<(Instant, Ending)> = None;
    loop {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok((stream, line)) => on_line(stream, &line),
            Err(RecvTimeoutError::Timeout) => {}
            // It closed both outputs, and may still run.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK_EVERY),
        }
        if asked.is_some() && has_ended(group) {
            // What it started and did not take along.
            let _ = kill_process_group(group, Signal::KILL);
        }
        if let Some(status) = child.try_wait()? {
            let own = match (status.code(), status.signal()) {
                (Some(code), _) => Ending::Code(code),
                (None, signal) => Ending::Signal(signal.unwrap_or(0)),
            };
            return Ok(asked.map_or(own, |(_, why)| why));
        }
        match asked {
            None => {
                let is_late = patience.whole.is_some_and(|whole| started.elapsed() > whole);
                let why = match (cancel.is_cancelled(), is_late) {
                    (true, _) => Ending::Stopped,
                    (_, true) => Ending::TookTooLong,
                    _ => continue,
                };
                asked = Some((Instant::now(), why));
                // If the group is gone, the next look sees it.
                let _ = kill_process_group(group, Signal::TERM);
            }
            Some((since, _)) if since.elapsed() > patience.grace => {
                let _ = kill_process_group(group, Signal::KILL);
            }
            Some(_) => {}
        }
    }
}

/// Whether a process has ended; it stays known by its number until it is waited for.
fn has_ended(process: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(process), options).is_ok_and(|ended| ended.is_some())
}

fn read_lines(mut from: impl Read, stream: Stream, to: &SyncSender<(Stream, String)>) {
    let mut buffer = [0; LINE_BYTES_MAX];
    let mut line = Vec::new();
    loop {
        let count = from.read(&mut buffer).unwrap_or(0);
        for piece in buffer[..count].split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || line.len() >= LINE_BYTES_MAX {
                let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
                if to.send((stream, text)).is_err() {
                    return;
                }
                line.clear();
            }
        }
        if count == 0 {
            if !line.is_empty() {
                let _ = to.send((stream, String::from_utf8_lossy(&line).into_owned()));
            }
            return;
        }
    }
}

/// The last lines.
#[derive(Default)]
struct Kept {
    lines: VecDeque<String>,
    bytes: usize,
    left_out: u64,
}

impl Kept {
    fn push(&mut self, line: &str) {
        self.bytes += line.len() + 1;
        self.lines.push_back(line.to_owned());
        while self.bytes > KEPT_BYTES_MAX {
            let Some(first) = self.lines.pop_front() else { break };
            self.bytes -= first.len() + 1;
            self.left_out += 1;
        }
    }

    fn text(self) -> String {
        let lines = self.lines.into_iter().map(|line| format!("{line}\n")).collect::<String>();
        match self.left_out {
            0 => lines,
            count => format!("… ({count} lines before are left out)\n{lines}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(text: &str, input: &[u8], milliseconds: u64) -> Ended {
        let whole = Some(Duration::from_millis(milliseconds));
        let patience = Patience { whole, grace: Duration::from_millis(300) };
        run(shell(text), input, patience, &Cancel::new(), &mut |_, _| {}).unwrap()
    }

    #[test]
    fn a_program_ends_as_it_ends() {
        let good = ended("cat; echo b >&2; exit 7", b"a\n", 10_000);
        assert_eq!(good.ending, Ending::Code(7));
        assert!(good.output.contains("a\n") && good.output.contains("b\n"), "{}", good.output);
        assert_eq!(ended("kill -9 $$", b"", 10_000).ending, Ending::Signal(9));
        // It does not read its input, which is larger than a pipe.
        assert_eq!(ended("exit 0", &vec![b'x'; 1 << 20], 10_000).ending, Ending::Code(0));
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_all_that_it_started() {
        let started = Instant::now();
        assert_eq!(ended("sleep 60 & sleep 60", b"", 200).ending, Ending::TookTooLong);
        assert_eq!(ended("trap '' TERM; sleep 60", b"", 200).ending, Ending::TookTooLong);
        // What it started is not spared because it pays no heed to a request.
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let child = format!("(trap '' TERM; while :; do date +%N >{}; done)", file.display());
        assert_eq!(ended(&format!("{child} & sleep 60"), b"", 200).ending, Ending::TookTooLong);
        let content = std::fs::read(&file).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(std::fs::read(&file).unwrap(), content);
        // What it leaves behind keeps its output open.
        assert_eq!(ended("sleep 20 & exit 0", b"", 10_000).ending, Ending::Code(0));
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    }

    #[test]
    fn what_a_program_leaves_and_never_is_quiet_keeps_nobody() {
        let (started, patience) =
            (Instant::now(), Patience { whole: None, grace: Duration::from_millis(300) });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let left = format!("(while sleep 0.2; do echo on; done) & echo $! >{}", file.display());
        let ended = run(shell(&left), b"", patience, &Cancel::new(), &mut |_, _| {}).unwrap();
        assert_eq!(ended.ending, Ending::Code(0));
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
        let pid: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn a_flood_is_cut_and_its_end_is_kept() {
        let flood = ended(
            "yes $(head -c 9000 /dev/zero | tr '\\0' y) | head -c 50000000; echo end",
            b"",
            60_000,
        );
        assert_eq!(flood.ending, Ending::Code(0));
        assert!(flood.output.len() < KEPT_BYTES_MAX + 100, "{}", flood.output.len());
        assert!(flood.output.ends_with("end\n") && flood.output.starts_with('…'));
        assert_eq!(ended("yes", b"", 300).ending, Ending::TookTooLong);
    }

    #[test]
    fn a_request_to_stop_reaches_it() {
        let cancel = Cancel::new();
        cancel.cancel();
        let patience = Patience { whole: None, grace: Duration::from_millis(300) };
        let ended = run(shell("sleep 60"), b"", patience, &cancel, &mut |_, _| {}).unwrap();
        assert_eq!(ended.ending, Ending::Stopped);
    }
}
