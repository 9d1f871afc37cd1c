//! One command, measured: time on the wall, time of the processors, peak memory, bytes it read and
//! wrote. What is asked of the kernel is the kernel's own account of the process and of all whom it
//! waited for.

use std::fs::File;
use std::io;
use std::ops::AddAssign;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Instant;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use serde::{Deserialize, Serialize};

use crate::shell::{Doing, Done, Failure, Invocation, last_lines};

/// What a command took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Seconds from its start to its end.
    pub wall: f64,
    /// Seconds of all processors, in the program and in the kernel.
    pub cpu: f64,
    /// The most memory that one of its processes had resident, in KiB.
    pub peak_kib: u64,
    /// Bytes it got from read calls, from memory or not.
    pub read_bytes: u64,
    /// Bytes it gave to write calls.
    pub written_bytes: u64,
}

/// One command after the other.
impl AddAssign for Usage {
    fn add_assign(&mut self, after: Self) {
        self.wall += after.wall;
        self.cpu += after.cpu;
        self.peak_kib = self.peak_kib.max(after.peak_kib);
        self.read_bytes += after.read_bytes;
        self.written_bytes += after.written_bytes;
    }
}

/// Runs a command to its end. What it says goes to the file `said`; one that ends badly fails.
pub fn measure(invocation: &Invocation, said: &Path) -> Done<Usage> {
    let (usage, status) = run(invocation, said).doing(format!("measure `{invocation}`"))?;
    if status.success() {
        return Ok(usage);
    }
    let text = String::from_utf8_lossy(&std::fs::read(said).unwrap_or_default()).into_owned();
    let said = format!("{status}: {}", last_lines(&text, 4));
    Err(Failure::Command { line: invocation.to_string(), said })
}

fn run(invocation: &Invocation, said: &Path) -> io::Result<(Usage, ExitStatus)> {
    let output = File::create(said)?;
    let mut command = invocation.command();
    command.stdin(Stdio::null()).stderr(output.try_clone()?);
    command.stdout(if invocation.prints_content { Stdio::null() } else { output.into() });
    let begin = Instant::now();
    // No other code waits for it: the handle is only asked for its number.
    let id = command.spawn()?.id();
    let pid = Pid::from_raw(id.cast_signed()).ok_or(io::ErrorKind::InvalidData)?;
    // It stays a zombie, so its account can still be read.
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let wall = begin.elapsed().as_secs_f64();
    let account = std::fs::read_to_string(format!("/proc/{id}/io")).unwrap_or_default();
    let (status, rusage) = reap(pid)?;
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let usage = Usage {
        wall,
        cpu: seconds(rusage.ru_utime) + seconds(rusage.ru_stime),
        peak_kib: rusage.ru_maxrss.max(0).cast_unsigned(),
        read_bytes: field(&account, "rchar"),
        written_bytes: field(&account, "wchar"),
    };
    Ok((usage, status))
}

/// Waits for a child that has ended, and takes its account.
fn reap(pid: Pid) -> io::Result<(ExitStatus, libc::rusage)> {
    let mut status = 0;
    let mut rusage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers lead to places of ours that live until the call is over, and the
    // kernel writes no more than their types hold.
    let reaped =
        unsafe { libc::wait4(pid.as_raw_nonzero().get(), &raw mut status, 0, rusage.as_mut_ptr()) };
    if reaped < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all its bytes were zero before the kernel wrote it, and a structure of numbers may
    // hold any bytes.
    Ok((ExitStatus::from_raw(status), unsafe { rusage.assume_init() }))
}

fn field(account: &str, name: &str) -> u64 {
    let line = account.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("bench-measure-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_command_is_accounted_for() {
        let said = said("work");
        let line = "sleep 0.05; head -c 3000000 /dev/zero | tail -c 1000000 | wc -c; echo said >&2";
        let usage = measure(&Invocation::script(line, &[]), &said).unwrap();
        assert!((0.05..20.0).contains(&usage.wall), "{usage:?}");
        assert!(usage.cpu > 0.0 && usage.cpu < 20.0, "{usage:?}");
        assert!(usage.peak_kib > 500 && usage.peak_kib < 1 << 20, "{usage:?}");
        assert!(usage.read_bytes > 6_000_000 && usage.written_bytes > 4_000_000, "{usage:?}");
        assert_eq!(std::fs::read_to_string(&said).unwrap(), "1000000\nsaid\n");
        std::fs::remove_file(&said).unwrap();
    }

    #[test]
    fn a_bad_end_is_told() {
        let said = said("bad");
        let failure = measure(&Invocation::script("echo why; exit 7", &[]), &said).unwrap_err();
        assert!(failure.to_string().contains("exit status: 7: why"), "{failure}");
        assert!(measure(&Invocation::new("/no/such/program"), &said).is_err());
        std::fs::remove_file(&said).unwrap();
    }

    #[test]
    fn one_after_the_other() {
        let one = Usage { wall: 1.0, cpu: 2.0, peak_kib: 30, read_bytes: 4, written_bytes: 5 };
        let mut both = one;
        both += Usage { peak_kib: 20, ..one };
        let expected =
            Usage { wall: 2.0, cpu: 4.0, peak_kib: 30, read_bytes: 8, written_bytes: 10 };
        assert_eq!(both, expected);
    }
}
