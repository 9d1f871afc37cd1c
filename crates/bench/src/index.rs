//! Fingerprint to location: our index beside other stores, on the same keys.
//!
//! Each store goes through the same phases, each in a process of its own. What a phase prints is
//! kept in the folder, so a run that was stopped continues there, and a report can combine several
//! runs.

mod keys;
mod stores;

mod linear;
mod pages;
mod process;
mod venti;

pub mod phase;

mod report;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use phase::Phase;

/// The result of anything here. The error is read by the developer who ran it.
pub type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// What to compare.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// How many keys; more than once for several sizes.
    #[arg(long, default_value = "10000000")]
    keys: Vec<u64>,
    /// Which stores, with commas between them.
    #[arg(long, value_delimiter = ',', default_value = "ours,redb,fjall,linear,venti")]
    stores: Vec<String>,
    /// Where the stores are made. [default: a folder in the system's temporary one]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Writes the report there as well.
    #[arg(long)]
    out: Option<PathBuf>,
    /// How many keys are inserted before they are committed.
    #[arg(long, default_value_t = 1_000_000)]
    flush_keys: u64,
    /// How many look-ups of each kind.
    #[arg(long, default_value_t = 1_000_000)]
    lookups: u64,
    /// How many look-ups of each kind with an empty page cache.
    #[arg(long, default_value_t = 100_000)]
    cold_lookups: u64,
    /// A store that takes longer to insert its keys is stopped.
    #[arg(long, default_value_t = 1200)]
    limit_seconds: u64,
    /// A store that takes more GiB on the medium is stopped.
    #[arg(long, default_value_t = 12)]
    limit_gib: u64,
    /// Measures again what was measured before in the same folder.
    #[arg(long)]
    again: bool,
}

/// The measurements of a store, by phase and name.
#[derive(Debug, Default)]
struct Measured {
    values: BTreeMap<(Phase, String), f64>,
}

impl Measured {
    fn get(&self, phase: Phase, name: &str) -> Option<f64> {
        self.values.get(&(phase, name.to_owned())).copied()
    }

    fn add(&mut self, phase: Phase, lines: &str) -> Result<()> {
        for line in lines.lines() {
            let (name, value) = line.split_once(' ').ok_or("a phase prints names and values")?;
            self.values.insert((phase, name.to_owned()), value.parse()?);
        }
        Ok(())
    }
}

/// Measures, and returns the report.
pub fn run(args: &Args) -> Result<String> {
    let folder = args.dir.clone().unwrap_or_else(|| std::env::temp_dir().join("strongroom-bench"));
    fs::create_dir_all(&folder)?;
    let mut report = report::head(args);
    for &keys in &args.keys {
        let mut rows = Vec::new();
        for store in &args.stores {
            rows.push((store.as_str(), measure(args, &folder, store, keys)?));
        }
        report += &report::tables(keys, &rows);
    }
    if let Some(out) = &args.out {
        fs::write(out, &report)?;
    }
    Ok(report)
}

/// Takes a store through its phases.
fn measure(args: &Args, folder: &Path, store: &str, keys: u64) -> Result<Measured> {
    let place = folder.join(format!("{store}-{keys}"));
    let mut measured = Measured::default();
    for &phase in Phase::value_variants() {
        if measured.get(Phase::Insert, "inserted").is_some_and(|inserted| inserted < keys as f64) {
            // It was stopped: what is there is not what the others are asked for.
            break;
        }
        let output = folder.join(format!("{store}-{keys}-{}.txt", phase.name()));
        if args.again || !output.exists() {
            if !phase.begins_anew() && !place.exists() {
                // An earlier run has removed it.
                measure_phase(args, &place, store, keys, Phase::Insert)?;
            }
            fs::write(&output, measure_phase(args, &place, store, keys, phase)?)?;
        }
        measured.add(phase, &fs::read_to_string(&output)?)?;
    }
    phase::remove(&place)?;
    Ok(measured)
}

/// Runs a phase in a process of its own; returns what it prints.
fn measure_phase(
    args: &Args,
    place: &Path,
    store: &str,
    keys: u64,
    phase: Phase,
) -> Result<String> {
    match phase {
        Phase::Insert | Phase::Rebuild => phase::remove(place)?,
        Phase::Lookup => process::warm(place)?,
        Phase::Cold => process::cool(place)?,
        Phase::Merge => {}
    }
    let lookups = if phase == Phase::Cold { args.cold_lookups } else { args.lookups };
    let numbers = [
        ("--keys", keys),
        ("--flush-keys", args.flush_keys),
        ("--lookups", lookups),
        ("--limit-seconds", args.limit_seconds),
        ("--limit-bytes", args.limit_gib << 30),
    ];
    let output = Command::new(std::env::current_exe()?)
        .args(["index-phase", "--phase", phase.name(), "--store", store, "--folder"])
        .arg(place)
        .args(numbers.iter().flat_map(|(name, number)| [(*name).to_owned(), number.to_string()]))
        .output()?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{store}, {}: {}, {said}", phase.name(), output.status).into())
}
