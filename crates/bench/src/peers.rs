//! Strongroom beside other backup programs, on the same data, in turn, in one run.
//!
//! It measures first backups, next versions, unchanged trees, restores and verification, compares
//! every restored tree with what was stored, and writes a report with tables and plots. It fetches
//! sources from the package archive and, by `setup`, peers from registries; nothing else.

mod attic;
mod data;
mod kernels;
mod measure;
mod options;
mod plan;
mod plot;
mod report;
mod results;
mod runner;
mod setup;
mod tools;
mod years;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use self::data::{SETS, Store};
use self::options::{KERNELS, Options, Verb};
use self::plan::{Course, Shape, Step, plan};
use self::results::{SetResults, Trouble};
use self::runner::{Contender, Runner};
use self::tools::{Place, Tool};
use crate::say;
use crate::shell::{
    Doing, Done, Failure, Invocation, count_files, find_program, free_bytes, make_folder, remove,
};

pub use self::data::{DataSet, Scale, Swap, linux_versions, smaller_copies};
pub use self::measure::{Usage, measure};
pub use self::options::{Args, absolute};
pub use self::years::{Args as YearsArgs, run as run_years};

/// Does what the arguments say. `root` is the repository's folder.
///
/// # Errors
///
/// Also if a restored tree differs from what was stored.
pub fn run(args: Args, root: &Path) -> Done {
    let options = Options::resolve(args, root);
    match options.verb {
        Verb::Setup => setup::set_up(&options.data, options.jobs),
        Verb::Report => write_report(&options, root),
        Verb::Measure => {
            let failed = measure_sets(&options, root)?;
            write_report(&options, root)?;
            failed.map_or(Ok(()), Err)
        }
    }
}

/// The data set of this name, of a scale.
pub fn open_set(name: &str, folder: &Path, scale: Scale) -> Done<Box<dyn DataSet>> {
    let store = Store::new(folder.to_owned(), scale);
    data::open(name, &store).ok_or_else(|| Failure::Other(format!("there is no set {name}")))
}

/// A program that is there.
struct Installed {
    tool: Rc<dyn Tool>,
    program: PathBuf,
    version: String,
}

/// Programs that are there, and names of those that are not.
///
/// `wanted` are names; none for all.
fn installed(
    data: &Path,
    program: &Path,
    wanted: &[String],
) -> Done<(Vec<Installed>, Vec<String>)> {
    let (mut found, mut absent) = (Vec::new(), Vec::new());
    let folders = setup::program_folders(data);
    for tool in tools::all() {
        let name = tool.name();
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let is_ours = name == "strongroom";
        let ours = is_ours.then(|| program.to_owned()).filter(|program| program.is_file());
        let theirs = || find_program(name, &folders).filter(|_| !is_ours);
        match ours.or_else(theirs) {
            Some(program) => {
                let version = tools::version_of(&*tool, &program)?;
                found.push(Installed { tool: Rc::from(tool), program, version });
            }
            None => absent.push(name.to_owned()),
        }
    }
    if found.is_empty() {
        return Err(Failure::Other("no program to measure is installed".to_owned()));
    }
    Ok((found, absent))
}

/// Measures every set; gives the last failure. A set that fails leaves the others alone.
fn measure_sets(options: &Options, root: &Path) -> Done<Option<Failure>> {
    let (tools, absent) = installed(&options.data, &options.program, &options.tools)?;
    for name in &absent {
        say(&format!("{name} is not installed; it is left out"));
    }
    let store = Store::new(options.data.clone(), options.scale);
    make_folder(&store.root)?;
    let _lock = Lock::take(&store.root)?;
    // What an interrupted run left behind.
    remove(&store.root.join("scratch"))?;
    let revision = revision(root);
    let mut failed = None;
    for name in &options.sets {
        let results = SetResults {
            name: name.clone(),
            rounds: options.rounds,
            revision: revision.clone(),
            absent: absent.clone(),
            ..SetResults::default()
        };
        let done = match data::open(name, &store) {
            Some(mut set) => measure_set(options, &store, &mut *set, &tools, results),
            None => measure_kernels(options, &store, root),
        };
        if let Err(failure) = done {
            say(&format!("error: {name}: {failure}"));
            failed = Some(failure);
        }
    }
    Ok(failed)
}

/// Which commit of this repository measures.
fn revision(root: &Path) -> String {
    let revision = Invocation::new("git").args(["describe", "--always", "--dirty"]).inside(root);
    revision.run().unwrap_or_default().trim().to_owned()
}

/// Keeps others from measuring with the same data, until it is dropped.
struct Lock(File);

impl Lock {
    fn take(folder: &Path) -> Done<Lock> {
        let path = folder.join("lock");
        let file = File::create(&path).doing(format!("write {}", path.display()))?;
        let used = |_| Failure::Other(format!("another run uses {}", folder.display()));
        file.try_lock().map_err(used)?;
        Ok(Lock(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would leave the lock to a child that another thread has forked and that
        // has not called `exec` yet.
        let _ = self.0.unlock();
    }
}

fn measure_kernels(options: &Options, store: &Store, root: &Path) -> Done {
    if options.dry_run {
        return Ok(());
    }
    let kernels = kernels::measure(root)?;
    crate::shell::write(&results_folder(store).join(KERNELS), kernels::to_text(&kernels))
}

fn results_folder(store: &Store) -> PathBuf {
    store.root.join("results")
}

fn measure_set(
    options: &Options,
    store: &Store,
    set: &mut dyn DataSet,
    tools: &[Installed],
    mut results: SetResults,
) -> Done {
    let name = results.name.clone();
    results.about = set.about();
    let results_path = results_folder(store).join(format!("{name}.jsonl"));
    if let Err(failure) = set.make() {
        // If there is no loop device, for example; the report says so.
        let (contender, act) = ("the data set".to_owned(), "left out".to_owned());
        let what = failure.to_string();
        results.troubles.push(Trouble { contender, act, what, is_unequal: false });
        results.save(&results_path)?;
        return Err(failure);
    }
    let course = if name == "thirty" { Course::Long } else { Course::Whole };
    let scratch = store.root.join("scratch");
    let mut contenders = Vec::new();
    let mut in_every_round = 0;
    let is_once =
        |installed: &&Installed| options.once.iter().any(|once| once == installed.tool.name());
    let (once, often): (Vec<_>, Vec<_>) = tools.iter().partition(is_once);
    for installed in often.iter().chain(&once) {
        for level in installed.tool.levels(&installed.program) {
            if course == Course::Long && !level.is_default {
                continue;
            }
            let tool = installed.tool.name();
            let id = if level.is_default { tool.to_owned() } else { format!("{tool}-equal") };
            let home = scratch.join(&id);
            let place = Place { program: installed.program.clone(), home, level };
            let contender = Contender::new(id, Rc::clone(&installed.tool), place);
            results.contenders.push(contender.info(&installed.version));
            contenders.push(contender);
            in_every_round += usize::from(!is_once(installed));
        }
    }
    set.put_version(1)?;
    let bytes = count_files(set.at())?.1;
    let room = room_for(bytes, contenders.len(), set.is_bulky(), &store.root)?;
    let shape = Shape {
        course,
        versions: set.versions(),
        apart: room == Room::ForOne,
        rounds: options.rounds,
        contenders: contenders.len(),
        in_every_round,
    };
    let steps = plan(shape);
    if options.dry_run {
        print_plan(&name, &steps, &contenders);
        return set.put_away();
    }
    results.apart = shape.apart;
    Runner::new(set, contenders, scratch.join("own"), results, results_path).run(&steps).map(drop)
}

/// For how many repositories the disk has room at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    ForAll,
    ForOne,
}

/// A repository may become as large as what is stored, and half as much again with all versions;
/// beside them there is one restored tree.
fn room_for(bytes: u64, contenders: usize, is_bulky: bool, folder: &Path) -> Done<Room> {
    let free = free_bytes(folder)?;
    let wanted = |repositories: u64| bytes + repositories * bytes / 2 * 3;
    if !is_bulky && wanted(contenders as u64) < free {
        return Ok(Room::ForAll);
    }
    if wanted(1) < free {
        return Ok(Room::ForOne);
    }
    let (wanted, free) = (wanted(1) >> 20, free >> 20);
    let place = folder.display();
    Err(Failure::Other(format!("{wanted} MiB are wanted below {place}; {free} MiB are free")))
}

fn print_plan(name: &str, steps: &[Step], contenders: &[Contender]) {
    say(&format!("{name}:"));
    for step in steps {
        say(&match *step {
            Step::Round(round) => format!(" round {round}"),
            Step::PutVersion(version) => format!("  put version {version} in its place"),
            Step::Begin(contender) => {
                format!("  {}: an empty repository", contenders[contender].id)
            }
            Step::End(contender) => format!("  {}: its repository goes", contenders[contender].id),
            Step::Floor(floor) => format!("  floor: {}", floor.name()),
            Step::Act(contender, act) => format!("  {}: {act}", contenders[contender].id),
        });
    }
}

fn write_report(options: &Options, root: &Path) -> Done {
    if options.dry_run {
        return Ok(());
    }
    let store = Store::new(options.data.clone(), options.scale);
    let folder = results_folder(&store);
    let mut sets = Vec::new();
    for name in SETS {
        let path = folder.join(format!("{name}.jsonl"));
        if path.exists() {
            sets.push(SetResults::load(&path)?);
        }
    }
    let kernels = std::fs::read_to_string(folder.join(KERNELS)).unwrap_or_default();
    let notes = std::fs::read_to_string(root.join("docs/benchmarks-notes.md")).unwrap_or_default();
    let report = report::Report {
        sets,
        kernels: kernels::from_text(&kernels),
        notes: report::parse_notes(&notes),
        machine: report::Machine::this(&store.root),
        scale: options.scale,
    };
    report.write(&options.out)?;
    say(&format!("wrote {}", options.out.display()));
    let unequal = report.unequal();
    if unequal.is_empty() {
        return Ok(());
    }
    let what = format!("NOT RESTORED AS STORED: {}", unequal.join("; "));
    Err(Failure::Other(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let folder = std::env::temp_dir().join(format!("bench-lock-{}", std::process::id()));
        make_folder(&folder).unwrap();
        let first = Lock::take(&folder).unwrap();
        // As a child has it between `fork` and `exec`.
        let inherited = first.0.try_clone().unwrap();
        assert!(Lock::take(&folder).is_err());
        drop(first);
        drop(Lock::take(&folder).unwrap());
        drop(inherited);
        remove(&folder).unwrap();
    }

    #[test]
    fn rooms() {
        let folder = std::env::temp_dir();
        let free = free_bytes(&folder).unwrap();
        let room = |bytes, contenders, is_bulky| room_for(bytes, contenders, is_bulky, &folder);
        assert_eq!(room(1, 6, false).unwrap(), Room::ForAll);
        assert_eq!(room(1, 6, true).unwrap(), Room::ForOne);
        assert_eq!(room(free / 4, 6, false).unwrap(), Room::ForOne);
        assert!(room(free, 6, false).is_err());
    }
}
