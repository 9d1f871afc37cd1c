//! The commands, in the order in which the help shows them.

mod audit;
mod backup;
mod boot;
mod cat;
mod completions;
mod debug;
mod diff;
mod drill;
mod dump;
mod find;
mod forget;
mod hold;
mod image;
mod import;
mod init;
mod key;
mod label;
mod lock;
mod ls;
mod machine;
mod manpages;
mod mount;
mod nbd;
mod profile;
mod prune;
mod ram;
mod repair;
mod replicate;
mod restore;
mod run;
mod schedule;
mod serve;
mod share;
mod snapshots;
mod stats;
mod stats_plot;
mod status;
mod storing;
mod token;
mod tui;
mod unlock;
mod verify;

use std::process::ExitCode;

use clap::Subcommand;

use crate::context::Context;
use crate::exit::CliError;
use crate::terminal::Events;

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a new repository
    Init(init::Args),
    /// Store files and directories as a new snapshot
    Backup(Box<backup::Args>),
    /// Take over the snapshots of a restic or Borg repository
    Import(import::Args),
    /// Store the disks of a machine, put a disk back, show what is on one
    Image(Box<image::Args>),
    /// Store the disks of a machine while it runs
    Machine(Box<machine::Args>),
    /// Store regions of memory while they are in use, put them back
    Ram(Box<ram::Args>),
    /// List the snapshots
    Snapshots(snapshots::Args),
    /// List the files of a snapshot
    Ls(ls::Args),
    /// Find files by name in all snapshots
    Find(find::Args),
    /// Show what differs between two snapshots, or a snapshot and a directory
    Diff(diff::Args),
    /// Write a file of a snapshot to standard output
    Cat(cat::Args),
    /// Restore a snapshot, or a part of it
    Restore(restore::Args),
    /// Write a part of a snapshot to standard output as a tar or zip archive
    Dump(dump::Args),
    /// Mount all snapshots as a read-only file system
    Mount(mount::Args),
    /// Write a configuration by which Samba offers mounted snapshots, as previous versions
    Share(share::Args),
    /// Offer the disks of machines, as they were in any night, to QEMU and other programs
    Nbd(Box<nbd::Args>),
    /// Start the machine of a snapshot under QEMU, and throw away what it writes
    Boot(Box<boot::Args>),
    /// Browse, compare and restore snapshots on the whole terminal
    Tui(tui::Args),
    /// Forget snapshots: by name, or all that no rule keeps
    Forget(forget::Args),
    /// Hold snapshots, so that no rule and no `forget` removes them
    Hold(hold::Args),
    /// Change the labels and the description of snapshots
    #[command(visible_alias = "tag")]
    Label(label::Args),
    /// Remove what no snapshot needs
    Prune(prune::Args),
    /// Check that everything that was stored can still be read
    #[command(visible_alias = "check")]
    Verify(verify::Args),
    /// Prove that a snapshot can be restored: restore a sample of it and compare
    Drill(drill::Args),
    /// Repair damage: from parity, from copies, from what is left
    Repair(repair::Args),
    /// Copy what is new to replicas of the repository
    #[command(visible_alias = "copy")]
    Replicate(replicate::Args),
    /// Prove that a replica still has what the repository has, for few bytes
    Audit(audit::Args),
    /// Lock everything in the place for a time, so that no credentials can remove it
    Lock(lock::Args),
    /// List the backups that have not ended: a repository has no locks to remove
    Unlock(unlock::Args),
    /// Show how much is stored, and how much each snapshot takes
    Stats(stats::Args),
    /// List, generate, add, change and remove passphrases
    Key(key::Args),
    /// Serve repositories to other machines
    Serve(serve::Args),
    /// Make, list and remove the tokens that open what `serve` serves
    Token(token::Args),
    /// Write, check and show the file with profiles: what need not be typed each time
    Profile(profile::Args),
    /// Run a profile: all that it says, from the backup to the drill, with one report
    Run(Box<run::Args>),
    /// Have a profile run by itself: by a timer of systemd, or by cron
    Schedule(schedule::Args),
    /// Show how the runs of a profile ended, for people and for monitors
    Status(status::Args),
    /// Show a structure of the repository
    Debug(debug::Args),
    /// Print completions for a shell
    Completions(completions::Args),
    /// Write the manual pages into a folder
    Manpages(manpages::Args),
}

impl Command {
    /// Where events for programs go.
    pub fn events(&self) -> Events {
        match self {
            // Standard output is for the content alone.
            Self::Cat(_) | Self::Dump(_) => Events::StandardError,
            Self::Serve(args) if args.is_stdio() => Events::StandardError,
            _ => Events::StandardOutput,
        }
    }

    /// Whether it stores, or is of a family of commands of which one does.
    pub fn may_store(&self) -> bool {
        matches!(self, Self::Backup(_) | Self::Image(_) | Self::Machine(_) | Self::Ram(_))
    }

    /// Whether it prints a list that may be longer than a screen.
    pub fn is_list(&self) -> bool {
        matches!(self, Self::Snapshots(_) | Self::Ls(_) | Self::Find(_) | Self::Diff(_))
    }

    /// Runs it.
    pub fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        match self {
            Self::Init(args) => init::run(context, &args),
            Self::Backup(args) => backup::run(context, *args),
            Self::Image(args) => image::run(context, *args),
            Self::Machine(args) => machine::run(context, *args),
            Self::Ram(args) => ram::run(context, *args),
            Self::Share(args) => share::run(context, &args),
            Self::Import(args) => import::run(context, &args),
            Self::Snapshots(args) => snapshots::run(context, &args),
            Self::Ls(args) => ls::run(context, args),
            Self::Find(args) => find::run(context, &args),
            Self::Diff(args) => diff::run(context, args),
            Self::Cat(args) => cat::run(context, args),
            Self::Restore(args) => restore::run(context, args),
            Self::Dump(args) => dump::run(context, args),
            Self::Mount(args) => mount::run(context, &args),
            Self::Nbd(args) => nbd::run(context, &args),
            Self::Boot(args) => boot::run(context, &args),
            Self::Tui(args) => tui::run(context, &args),
            Self::Forget(args) => forget::run(context, &args),
            Self::Hold(args) => hold::run(context, &args),
            Self::Label(args) => label::run(context, &args),
            Self::Prune(args) => prune::run(context, &args),
            Self::Verify(args) => verify::run(context, &args),
            Self::Drill(args) => drill::run(context, &args),
            Self::Repair(args) => repair::run(context, &args),
            Self::Replicate(args) => replicate::run(context, &args),
            Self::Audit(args) => audit::run(context, &args),
            Self::Lock(args) => lock::run(context, &args),
            Self::Unlock(args) => unlock::run(context, &args),
            Self::Stats(args) => stats::run(context, &args),
            Self::Key(args) => key::run(context, args),
            Self::Serve(args) => serve::run(context, &args),
            Self::Token(args) => token::run(context, args),
            Self::Profile(args) => profile::run(context, &args),
            Self::Run(args) => run::run(context, *args),
            Self::Schedule(args) => schedule::run(context, &args),
            Self::Status(args) => status::run(context, &args),
            Self::Debug(args) => debug::run(context, args),
            Self::Completions(args) => completions::run(context, &args),
            Self::Manpages(args) => manpages::run(context, &args),
        }
    }
}
