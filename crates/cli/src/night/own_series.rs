//! The snapshots that a run's rules are for: those of the host and paths that its own backup has.
//!
//! The backup names the snapshot that it made in a pipe, and `forget` gets it as `--series-of`. What
//! the profile says of paths is not enough: only a backup knows which it found.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::process::Command;

use rustix::fs::{FileType, OFlags, fcntl_setfl, fstat};
use strongroom_base::{Printable, SnapshotId};

use super::{Night, Progress, StepRecord};
use crate::child::inherit;
use crate::exit::Exit;

/// The variable in which a backup that is a step finds the number of the pipe.
const PIPE_VARIABLE: &str = "STRONGROOM_STEP_PIPE";
/// What is read of the pipe: a few ids, if what a backup runs are backups too.
const BYTES_MAX: usize = 4096;

/// Says to the run, if this is a step of one, which snapshot was made.
pub fn report_snapshot(id: SnapshotId) {
    let number = std::env::var(PIPE_VARIABLE).ok().and_then(|text| text.parse::<u16>().ok());
    let Some(number) = number else { return };
    // SAFETY: it is borrowed for this function only, and a number without an open file is an error.
    let pipe = unsafe { BorrowedFd::borrow_raw(i32::from(number)) };
    let is_pipe =
        fstat(pipe).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
    if is_pipe {
        // If nothing takes it, nothing is forgotten.
        let _ = rustix::io::write(pipe, format!("{id}\n").as_bytes());
    }
}

impl Night<'_> {
    /// Has a step say which snapshot it makes. A backup is made also if there is no pipe for that.
    pub(super) fn listen(&self, step: &str, command: &mut Command) -> Option<PipeReader> {
        if step != "backup" {
            return None;
        }
        let (reader, writer) = io::pipe().ok()?;
        fcntl_setfl(&reader, OFlags::NONBLOCK).ok()?;
        command.env(PIPE_VARIABLE, writer.as_raw_fd().to_string());
        inherit(command, writer);
        Some(reader)
    }

    /// Says to a `forget` by rules which snapshots they are for.
    pub(super) fn narrow(&self, step: &str, progress: &Progress, command: &mut Command) {
        if step == "forget"
            && self.rules_are_for_own
            && let Some(id) = progress.snapshot
        {
            command.arg(format!("--series-of={id}"));
        }
    }

    /// Why a `forget` by rules is not even tried.
    pub(super) fn has_no_series(&self, step: &str, progress: &Progress) -> Option<StepRecord> {
        if step != "forget" || !self.rules_are_for_own || progress.snapshot.is_some() {
            return None;
        }
        let profile = Printable::text(&self.profile).to_string();
        Some(StepRecord {
            step: step.to_owned(),
            outcome: "failed".to_owned(),
            exit: Some(i32::from(Exit::Failed as u8)),
            seconds: 0.0,
            ended: None,
            output: format!(
                "not tried: its rules are for what the backup of the profile {profile} makes, and no \
                 run on this machine has made a snapshot yet: run `strongroom --profile {profile} run \
                 backup`, or write all-series = true below [{profile}.forget]\n"
            ),
        })
    }
}

/// The snapshot that a step named, which has ended: what it started may still have the pipe, and is
/// not waited for.
pub(super) fn reported(mut reader: PipeReader) -> Option<SnapshotId> {
    let mut bytes = vec![0; BYTES_MAX];
    let count = reader.read(&mut bytes).ok()?;
    // A backup names its own after all that it ran.
    std::str::from_utf8(&bytes[..count]).ok()?.lines().last()?.parse().ok()
}
