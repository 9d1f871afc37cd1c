//! One phase of one store, in a process of its own, so that memory and bytes are those of the
//! phase. What was measured goes to standard output, a line `name value` each.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ValueEnum;

use super::Result;
use super::keys::Record;
use super::process::{self, AnonymousPeak, Usage};
use super::stores::{self, Store};

/// The seed of all keys.
const SEED: u64 = 0x5374_726f_6e67_726f;
/// How many keys are looked at before the clock is.
const CLOCK_KEYS: u64 = 1 << 12;
/// How many keys are looked at before the bytes on the medium are counted.
const DISK_KEYS: u64 = 1 << 20;

/// What is measured at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Phase {
    /// Inserts, committed again and again.
    Insert,
    /// Look-ups with what was written in the page cache.
    Lookup,
    /// Look-ups with an empty page cache; emptied again between those of absent keys and those of
    /// present ones.
    Cold,
    /// Everything brought into its best form.
    Merge,
    /// Inserts into a new store, committed once.
    Rebuild,
}

impl Phase {
    /// How it is called on the command line and in the names of results.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Insert => "insert",
            Phase::Lookup => "lookup",
            Phase::Cold => "cold",
            Phase::Merge => "merge",
            Phase::Rebuild => "rebuild",
        }
    }

    /// Whether it makes the store that it works on.
    pub fn begins_anew(self) -> bool {
        matches!(self, Phase::Insert | Phase::Rebuild)
    }
}

/// What to measure.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Which phase.
    #[arg(long)]
    pub phase: Phase,
    /// Which store.
    #[arg(long)]
    pub store: String,
    /// Where it is.
    #[arg(long)]
    pub folder: PathBuf,
    /// How many keys are in it, or will be.
    #[arg(long)]
    pub keys: u64,
    /// How many keys are inserted before they are committed.
    #[arg(long)]
    pub flush_keys: u64,
    /// How many look-ups of each kind.
    #[arg(long)]
    pub lookups: u64,
    /// Inserting stops after this many seconds.
    #[arg(long)]
    pub limit_seconds: u64,
    /// Inserting stops at this many bytes on the medium.
    #[arg(long)]
    pub limit_bytes: u64,
}

/// Measures, and returns the lines to print.
pub fn run(args: &Args) -> Result<String> {
    let anonymous = AnonymousPeak::begin();
    let mut figures = Figures::default();
    let mut store = stores::open(&args.store, &args.folder, args.keys)?;
    match args.phase {
        Phase::Insert => insert(store.as_mut(), args, args.flush_keys, &mut figures)?,
        Phase::Rebuild => insert(store.as_mut(), args, args.keys, &mut figures)?,
        Phase::Lookup | Phase::Cold => lookup(store.as_mut(), args, &mut figures)?,
        Phase::Merge => {
            let merged = figures.measure("", args.keys, || store.merge())?;
            figures.record("merged", u64::from(merged));
        }
    }
    drop(store);
    figures.record("disk_bytes", process::disk_bytes(&args.folder)?);
    figures.record("anonymous_bytes", anonymous.end()?);
    figures.record("resident_bytes", process::resident_bytes_peak()?);
    Ok(figures.lines)
}

fn insert(
    store: &mut dyn Store,
    args: &Args,
    flush_keys: u64,
    figures: &mut Figures,
) -> Result<()> {
    let mut feed = Feed { args, begin: Instant::now(), next: 0, stopped: false };
    figures.measure("", args.keys, || {
        while feed.next < args.keys && !feed.stopped {
            let end = (feed.next + flush_keys).min(args.keys);
            store.insert(&mut feed.until(end))?;
        }
        store.settle()
    })?;
    figures.record("inserted", feed.next);
    Ok(())
}

/// The records in turn, until a limit is reached.
struct Feed<'a> {
    args: &'a Args,
    begin: Instant,
    next: u64,
    stopped: bool,
}

impl Feed<'_> {
    fn until(&mut self, end: u64) -> impl Iterator<Item = Record> {
        std::iter::from_fn(move || {
            self.stopped |= self.is_over();
            if self.stopped || self.next == end {
                return None;
            }
            self.next += 1;
            Some(Record::nth(SEED, self.next - 1))
        })
    }

    fn is_over(&self) -> bool {
        let args = self.args;
        self.next.is_multiple_of(CLOCK_KEYS) && self.begin.elapsed().as_secs() >= args.limit_seconds
            || self.next.is_multiple_of(DISK_KEYS)
                && process::disk_bytes(&args.folder).is_ok_and(|bytes| bytes > args.limit_bytes)
    }
}

/// Looks up keys that were never inserted, then keys that were.
fn lookup(store: &mut dyn Store, args: &Args, figures: &mut Figures) -> Result<()> {
    let absent = args.keys..args.keys + args.lookups;
    figures.measure("absent_", args.lookups, || ask(store, absent, |n| n, false))?;
    if args.phase == Phase::Cold {
        process::cool(&args.folder)?;
    }
    // Every key as likely as any other: the order of keys says nothing about the order of insertion.
    let step = args.keys / args.lookups.min(args.keys);
    let present = |n| n * step % args.keys;
    figures.measure("present_", args.lookups, || ask(store, 0..args.lookups, present, true))
}

fn ask(
    store: &mut dyn Store,
    range: Range<u64>,
    number: impl Fn(u64) -> u64,
    is_present: bool,
) -> Result<()> {
    for n in range {
        let record = Record::nth(SEED, number(n));
        let expected = is_present.then_some(record.location);
        let found = store.lookup(&record.key)?;
        if found != expected {
            let location = record.location;
            return Err(format!("key {location}: {found:?} instead of {expected:?}").into());
        }
    }
    Ok(())
}

/// The lines that are printed.
#[derive(Default)]
struct Figures {
    lines: String,
}

impl Figures {
    fn record(&mut self, name: &str, value: impl ToString) {
        self.lines += &format!("{name} {}\n", value.to_string());
    }

    fn measure<T>(
        &mut self,
        prefix: &str,
        count: u64,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (begin, before) = (Instant::now(), process::usage()?);
        let done = run()?;
        let Usage { cpu_seconds, read_bytes, written_bytes } = process::usage()?;
        self.record(&format!("{prefix}count"), count);
        self.record(&format!("{prefix}seconds"), begin.elapsed().as_secs_f64());
        self.record(&format!("{prefix}cpu_seconds"), cpu_seconds - before.cpu_seconds);
        self.record(&format!("{prefix}read_bytes"), read_bytes - before.read_bytes);
        self.record(&format!("{prefix}written_bytes"), written_bytes - before.written_bytes);
        Ok(done)
    }
}

/// Empties the folder of a store.
pub fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => Ok(removed?),
    }
}
