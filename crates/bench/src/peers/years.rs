//! `years`: each program stores sixty versions of a tree once. Then, in rounds and in turn, every
//! second snapshot is forgotten and its room given back, on a copy of what was stored; and a backup
//! runs beside that.
//!
//! What was stored is kept, so only the first run takes long.

mod history;
mod placement;
mod report;
mod rounds;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::data::{self, Scale, Store};
use super::measure::Usage;
use super::options::absolute;
use super::report::Machine;
use super::tools::{Place, Tool};
use super::{Lock, installed, results_folder, revision};
use crate::say;
use crate::shell::{Doing, Done, Failure, make_folder, write};

/// The programs that are asked to forget.
const TOOLS: [&str; 4] = ["strongroom", "restic", "borg", "bupstash"];

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Verb {
    /// Store the versions, unless they are stored, then measure, then write the report
    Measure,
    /// Only store the versions that are not stored yet
    Build,
    /// Only write the report of what was measured before
    Report,
}

/// The arguments as typed.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What to do
    #[arg(value_enum, default_value = "measure")]
    verb: Verb,
    /// Folder of data sets, results and tools [default: target/bench]
    #[arg(long, value_name = "DIR", value_parser = absolute)]
    data: Option<PathBuf>,
    /// Programs to measure [default: all that are installed]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = TOOLS)]
    tools: Vec<String>,
    /// How often it is measured
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Size of the tree: small takes minutes and shows that all works
    #[arg(long, value_enum, default_value = "full")]
    scale: Scale,
    /// Strongroom [default: target/release/strongroom]
    #[arg(long, value_name = "PATH", value_parser = absolute)]
    program: Option<PathBuf>,
    /// The report [default: docs/years.md]
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    out: Option<PathBuf>,
}

/// One program, what it has stored, and what was measured.
struct Contender {
    tool: Rc<dyn Tool>,
    /// Where it works. Always the same folder, because programs remember where a repository is.
    place: Place,
    /// Its folder as it was when all versions were stored.
    kept: PathBuf,
    results_path: PathBuf,
    results: Results,
}

/// What was measured of one program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Results {
    tool: String,
    version: String,
    /// Which commit of this repository measured.
    revision: String,
    /// How it is asked to forget and to give room back.
    commands: Vec<String>,
    /// What the tree is.
    about: String,
    /// Files and bytes of its last version.
    files: u64,
    bytes: u64,
    /// All backups together.
    backups: Usage,
    /// Bytes of the repository then.
    stored: u64,
    rounds: Vec<Round>,
    /// The same, with all room given back, however much is to be rewritten.
    #[serde(default)]
    rounds_of_all: Vec<Round>,
    pairs: Vec<Pair>,
    #[serde(default)]
    placement: Option<placement::Placement>,
    /// Snapshots that stayed, and were compared with what was stored; and how they differed.
    compared: Vec<String>,
    unequal: Vec<String>,
    /// Why it could not be measured.
    failed: Option<String>,
}

/// Every second snapshot forgotten, once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Round {
    forget: Usage,
    free: Usage,
    /// Bytes of the repository afterwards.
    stored: u64,
}

/// A backup of the next version alone, and one while room is given back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pair {
    alone: Usage,
    /// What it took, or what the program said when it failed.
    beside: Result<Usage, String>,
    /// Seconds that giving room back took, beside it: once, or as often as it was needed to last as
    /// long as the backup.
    freeing: Vec<f64>,
    /// What was said by those that failed.
    freeing_failed: Vec<String>,
}

/// Does what the arguments say. `root` is the repository's folder.
///
/// # Errors
///
/// Also if a restored tree differs from what was stored.
pub fn run(args: Args, root: &Path) -> Done {
    let data = args.data.unwrap_or_else(|| root.join("target/bench"));
    let store = Store::new(data, args.scale);
    let document = args.scale.pick(store.root.join("years.md"), root.join("docs/years.md"));
    let document = args.out.unwrap_or(document);
    let tools = if args.tools.is_empty() { TOOLS.map(str::to_owned).to_vec() } else { args.tools };
    if args.verb != Verb::Report {
        let program = args.program.unwrap_or_else(|| root.join("target/release/strongroom"));
        make_folder(&store.root)?;
        let _lock = Lock::take(&store.root)?;
        let mut contenders = contenders(&store, &program, &tools)?;
        let mut set = data::open("sixty", &store)
            .ok_or_else(|| Failure::Other("there is no set sixty".to_owned()))?;
        set.make()?;
        history::build(&mut *set, &mut contenders, &truth(&store))?;
        if args.verb == Verb::Build {
            return Ok(());
        }
        let revision = revision(root);
        contenders
            .iter_mut()
            .for_each(|contender| contender.results.revision.clone_from(&revision));
        let scratch = store.root.join("years/scratch");
        rounds::measure_all(&mut *set, &mut contenders, args.rounds, &scratch, &truth(&store))?;
    }
    write_report(&store, &document)
}

/// A copy of the oldest version that stays.
fn truth(store: &Store) -> PathBuf {
    store.root.join("years/oldest")
}

fn results_path(store: &Store, tool: &str) -> PathBuf {
    results_folder(store).join(format!("years-{tool}.json"))
}

fn contenders(store: &Store, program: &Path, tools: &[String]) -> Done<Vec<Contender>> {
    let (found, absent) = installed(&store.folder, program, tools)?;
    for name in &absent {
        say(&format!("{name} is not installed; it is left out"));
    }
    let contender = |installed: super::Installed| {
        let name = installed.tool.name();
        let folder = store.root.join("years").join(name);
        let level = installed.tool.levels(&installed.program).swap_remove(0);
        let place = Place { program: installed.program, home: folder.join("home"), level };
        let results_path = results_path(store, name);
        let mut results = Results::load(&results_path).unwrap_or_default();
        name.clone_into(&mut results.tool);
        results.version = installed.version;
        Contender { tool: installed.tool, place, kept: folder.join("kept"), results_path, results }
    };
    Ok(found.into_iter().map(contender).collect())
}

impl Results {
    fn load(path: &Path) -> Option<Self> {
        serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
    }
}

impl Contender {
    fn save(&self) -> Done {
        let text = serde_json::to_string_pretty(&self.results).map_err(std::io::Error::other);
        write(&self.results_path, text.doing("write results")?)
    }

    fn fail(&mut self, doing: &str, failure: &Failure) {
        say(&format!("error: {}: {doing}: {failure}", self.tool.name()));
        self.results.failed = Some(format!("{doing}: {failure}"));
    }
}

/// The label of a version.
fn label(version: u32) -> String {
    format!("v{version}")
}

/// Every second version, the last of which stays.
fn forgotten(versions: u32) -> Vec<u32> {
    (1..versions).rev().step_by(2).collect::<Vec<_>>().into_iter().rev().collect()
}

fn write_report(store: &Store, document: &Path) -> Done {
    let load = |tool: &&str| Results::load(&results_path(store, tool));
    let results: Vec<Results> = TOOLS
        .iter()
        .filter_map(load)
        .filter(|of| !of.rounds.is_empty() || of.failed.is_some())
        .collect();
    write(document, report::text(&results, &Machine::this(&store.root), store.scale))?;
    say(&format!("wrote {}", document.display()));
    let unequal: Vec<String> = results
        .iter()
        .flat_map(|of| of.unequal.iter().map(move |what| format!("{}: {what}", of.tool)))
        .collect();
    if unequal.is_empty() {
        return Ok(());
    }
    Err(Failure::Other(format!("NOT RESTORED AS STORED: {}", unequal.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_goes_and_the_newest_stays() {
        assert_eq!(forgotten(6), [1, 3, 5]);
        assert_eq!(forgotten(5), [2, 4]);
        assert_eq!(forgotten(60).len(), 30);
    }
}
