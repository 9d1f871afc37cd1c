//! Carries a plan out: puts the data where it belongs, warms what will be read, measures, counts
//! what is stored, and holds every restored tree against the one that was stored.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::attic::Attic;
use super::data::DataSet;
use super::measure::{Usage, measure};
use super::plan::{Act, Floor, Step};
use super::results::{ContenderInfo, FLOOR, Profile, Sample, SetResults, Trouble};
use super::tools::{Keeps, Place, SnapshotLabel, Tool};
use crate::say;
use crate::shell::{
    Doing, Done, Failure, Invocation, count_files, have_memory_free, last_lines, make_folder,
    touch_memory, warm,
};

/// A program at one level of compression, and what it has stored.
pub struct Contender {
    /// Its name in results.
    pub id: String,
    /// How it is asked.
    pub tool: Rc<dyn Tool>,
    /// Where it keeps what is its own.
    pub place: Place,
    /// Labels of its snapshots, oldest first.
    labels: Vec<String>,
    /// Bytes in its repository.
    stored: u64,
    /// Whether it failed and is asked no more.
    is_out: bool,
}

impl Contender {
    /// One that has nothing yet.
    pub fn new(id: String, tool: Rc<dyn Tool>, place: Place) -> Self {
        Self { id, tool, place, labels: Vec::new(), stored: 0, is_out: false }
    }

    /// What a report says of it.
    pub fn info(&self, version: &str) -> ContenderInfo {
        let home = PathBuf::from("HOME");
        let place = Place { home, ..self.place.clone() };
        let (source, target) = (Path::new("SOURCE"), Path::new("TARGET"));
        let newest = SnapshotLabel { label: "LABEL".to_owned(), newer: 0 };
        let tool = &self.tool;
        let mut commands = tool.init(&place);
        commands.push(tool.backup(&place, source, "LABEL"));
        commands.push(tool.restore(&place, source, &newest, target));
        commands.push(tool.verify(&place, &newest));
        commands.extend(tool.prune(&place, &["LABEL".to_owned()]));
        ContenderInfo {
            id: self.id.clone(),
            tool: tool.name().to_owned(),
            version: version.to_owned(),
            level: self.place.level.says.to_owned(),
            is_default: self.place.level.is_default,
            is_equal: self.place.level.is_equal,
            note: tool.note().unwrap_or_default().to_owned(),
            commands: commands.iter().map(ToString::to_string).collect(),
        }
    }

    fn snapshot(&self, label: &str) -> Done<SnapshotLabel> {
        let place = self.labels.iter().position(|known| known == label);
        let place = place.ok_or_else(|| Failure::Other(format!("{label} was not stored")))?;
        Ok(SnapshotLabel { label: label.to_owned(), newer: self.labels.len() - 1 - place })
    }

    fn newest(&self) -> Done<SnapshotLabel> {
        let label = self.labels.last().cloned().unwrap_or_default();
        self.snapshot(&label)
    }
}

/// One data set being measured.
pub struct Runner<'r> {
    set: &'r mut dyn DataSet,
    contenders: Vec<Contender>,
    /// A folder for restored trees and anything else that is in the way afterwards.
    scratch: PathBuf,
    attic: Attic,
    results: SetResults,
    results_path: PathBuf,
    /// From 1.
    round: u32,
}

impl<'r> Runner<'r> {
    /// What is backed up, and by whom; a folder for what is not kept; results, and where they are
    /// kept.
    pub fn new(
        set: &'r mut dyn DataSet,
        contenders: Vec<Contender>,
        scratch: PathBuf,
        results: SetResults,
        results_path: PathBuf,
    ) -> Self {
        let attic = Attic::new(scratch.join("attic"));
        Self { set, contenders, scratch, attic, results, results_path, round: 1 }
    }

    /// Carries out every step; gives the results. A contender that fails is asked no more.
    pub fn run(mut self, steps: &[Step]) -> Done<SetResults> {
        make_folder(&self.scratch)?;
        for step in steps {
            match *step {
                Step::Round(round) => {
                    say(&format!("{}: round {round}", self.results.name));
                    self.round = round;
                    self.attic.clear()?;
                }
                Step::PutVersion(version) => self.put_version(version)?,
                Step::Begin(contender) => {
                    let begun = self.begin(contender);
                    self.note_failure(contender, "init", begun);
                }
                Step::End(contender) => {
                    self.attic.remove(&self.contenders[contender].place.home)?;
                }
                Step::Floor(floor) => {
                    // A floor whose program is not installed is reported and left out.
                    if let Err(failure) = self.floor(floor) {
                        self.note_trouble(FLOOR.to_owned(), floor.name(), &failure);
                    }
                }
                Step::Act(contender, act) => {
                    if !self.contenders[contender].is_out {
                        let acted = self.act(contender, act);
                        self.note_failure(contender, &act.to_string(), acted);
                    }
                }
            }
            self.results.save(&self.results_path)?;
        }
        self.set.put_away()?;
        // Who comes next begins on a file system at rest.
        self.attic.remove(&self.scratch)?;
        self.attic.settle();
        Ok(self.results)
    }

    fn note_failure(&mut self, contender: usize, act: &str, done: Done) {
        let Err(failure) = done else { return };
        let contender = &mut self.contenders[contender];
        contender.is_out = true;
        let id = contender.id.clone();
        self.note_trouble(id, act, &failure);
    }

    fn note_trouble(&mut self, contender: String, act: &str, failure: &Failure) {
        say(&format!("error: {}: {contender}: {act}: {failure}", self.results.name));
        let (act, what) = (act.to_owned(), failure.to_string());
        self.results.troubles.push(Trouble { contender, act, what, is_unequal: false });
    }

    fn put_version(&mut self, version: u32) -> Done {
        self.set.put_version(version)?;
        if self.results.files.len() < version as usize {
            let (files, bytes) = count_files(self.set.at())?;
            self.results.files.push(files);
            self.results.bytes.push(bytes);
        }
        Ok(())
    }

    fn begin(&mut self, contender: usize) -> Done {
        let contender = &mut self.contenders[contender];
        (contender.is_out, contender.stored) = (false, 0);
        contender.labels.clear();
        self.attic.remove(&contender.place.home)?;
        make_folder(&contender.place.cache())?;
        for invocation in contender.tool.init(&contender.place) {
            invocation.run()?;
        }
        contender.stored = count_files(&contender.place.repository())?.1;
        Ok(())
    }

    fn act(&mut self, index: usize, act: Act) -> Done {
        match act {
            Act::First => self.back_up(index, act, "v1"),
            Act::Unchanged => self.back_up(index, act, "again"),
            Act::Next(version) => self.back_up(index, act, &format!("v{version}")),
            Act::Restore(version) => self.restore(index, act, version),
            Act::Verify => {
                let contender = &self.contenders[index];
                let calls = vec![contender.tool.verify(&contender.place, &contender.newest()?)];
                self.have_in_memory(&[&contender.place.repository()], Makes::Little)?;
                self.measure_contender(index, act, &calls)
            }
            Act::Prune => {
                let contender = &self.contenders[index];
                let calls = contender.tool.prune(&contender.place, &contender.labels);
                if calls.is_empty() {
                    return Ok(());
                }
                let repository = contender.place.repository();
                self.have_in_memory(&[&repository], Makes::Little)?;
                let before = count_files(&repository)?.0;
                self.measure_contender(index, act, &calls)?;
                let after = count_files(&repository)?.0;
                self.attic.note_removal(before.saturating_sub(after));
                Ok(())
            }
        }
    }

    fn back_up(&mut self, index: usize, act: Act, label: &str) -> Done {
        let contender = &mut self.contenders[index];
        let call = contender.tool.backup(&contender.place, self.set.at(), label);
        contender.labels.push(label.to_owned());
        let repository = contender.place.repository();
        self.attic.settle();
        self.have_in_memory(&[self.set.at(), &repository], Makes::Little)?;
        self.measure_contender(index, act, &[call])?;
        let said = std::fs::read(self.said()).doing("read what a backup said")?;
        let Contender { id, tool, .. } = &self.contenders[index];
        if let Some(line) = tool.profile(&String::from_utf8_lossy(&said)) {
            let (contender, act) = (id.clone(), act.to_string());
            let profiles = &mut self.results.profiles;
            profiles.retain(|old| old.contender != contender || old.act != act);
            profiles.push(Profile { contender, act, line });
        }
        Ok(())
    }

    /// Where the last command's words are.
    fn said(&self) -> PathBuf {
        self.scratch.join("said")
    }

    fn restore(&mut self, index: usize, act: Act, version: u32) -> Done {
        let target = self.empty_folder("restored")?;
        let contender = &self.contenders[index];
        let snapshot = contender.snapshot(&format!("v{version}"))?;
        let at = self.set.at().to_owned();
        let call = contender.tool.restore(&contender.place, &at, &snapshot, &target);
        self.have_in_memory(&[&contender.place.repository()], Makes::Tree)?;
        self.measure_contender(index, act, &[call])?;
        let contender = &self.contenders[index];
        let restored = contender.tool.restored_at(&at, &target);
        let truth = self.set.truth(version);
        let differences = differences(contender.tool.keeps(), &truth, &restored)?;
        if let Some(what) = differences {
            let id = contender.id.clone();
            say(&format!("ERROR: {id} did not restore what was stored: {what}"));
            let act = act.to_string();
            self.results.troubles.push(Trouble { contender: id, act, what, is_unequal: true });
        }
        self.attic.put(&target)
    }

    /// These files in the kernel's cache, and memory at hand for an act.
    fn have_in_memory(&self, folders: &[&Path], makes: Makes) -> Done {
        let tree = self.tree_bytes();
        let memory = match makes {
            Makes::Little => tree.min(MEMORY_OF_ACT),
            Makes::Tree => MEMORY_MAX.min(2 * tree + tree.min(MEMORY_OF_ACT)),
        };
        have_memory_free(MEMORY_MAX.min(4 * tree) + memory);
        folders.iter().try_for_each(|folder| warm(folder))?;
        touch_memory(memory)
    }

    /// The largest version.
    fn tree_bytes(&self) -> u64 {
        self.results.bytes.iter().copied().max().unwrap_or_default()
    }

    /// An empty folder with room for the data set, on a file system that has come to rest.
    fn empty_folder(&mut self, name: &str) -> Done<PathBuf> {
        let folder = self.scratch.join(name);
        self.attic.put(&folder)?;
        self.attic.make_room(self.tree_bytes())?;
        self.attic.settle();
        make_folder(&folder)?;
        Ok(folder)
    }

    fn measure_contender(&mut self, index: usize, act: Act, calls: &[Invocation]) -> Done {
        let usage = self.measure_all(calls)?;
        let contender = &mut self.contenders[index];
        let stored = count_files(&contender.place.repository())?.1;
        let added = stored.cast_signed() - contender.stored.cast_signed();
        contender.stored = stored;
        let subject = contender.id.clone();
        self.keep(subject, act.to_string(), usage, Some(stored), Some(added));
        Ok(())
    }

    fn measure_all(&self, calls: &[Invocation]) -> Done<Usage> {
        rustix::fs::sync();
        let mut total = Usage::default();
        for call in calls {
            total += measure(call, &self.said())?;
        }
        Ok(total)
    }

    fn keep(
        &mut self,
        subject: String,
        act: String,
        usage: Usage,
        stored: Option<u64>,
        added: Option<i64>,
    ) {
        say(&format!(
            "  {subject:12} {act:10} {:8.2} s {:8.2} s CPU {:6} MiB {}",
            usage.wall,
            usage.cpu,
            usage.peak_kib >> 10,
            added.map_or(String::new(), |bytes| format!("{:+.3} MB", bytes as f64 / 1e6)),
        ));
        let round = self.round;
        self.results.samples.push(Sample { round, subject, act, usage, stored, added });
    }

    fn floor(&mut self, floor: Floor) -> Done {
        let at = self.set.at().to_owned();
        let target = self.empty_folder("floor")?;
        self.have_in_memory(&[&at], Makes::Tree)?;
        let usage = self.measure_all(&[floor_call(floor, &at, &target)])?;
        let stream = std::fs::metadata(target.join(STREAM)).ok().map(|file| file.len());
        self.attic.put(&target)?;
        self.keep(FLOOR.to_owned(), floor.name().to_owned(), usage, stream, None);
        Ok(())
    }
}

/// Memory for a program and what it stores, of a large set.
const MEMORY_OF_ACT: u64 = 1 << 30;
/// More takes longer to touch than what it saves is worth.
const MEMORY_MAX: u64 = 8 << 30;

/// What an act leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Makes {
    /// At most something in its repository.
    Little,
    /// A tree like the one that was stored.
    Tree,
}

/// The file that a compressed stream goes to.
const STREAM: &str = "stream.tar.zst";

fn floor_call(floor: Floor, at: &Path, target: &Path) -> Invocation {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let stream =
        |level: u32| format!("tar -C \"$1\" -cf - . | zstd -q -{level} -T{cores} >\"$2/{STREAM}\"");
    let line = match floor {
        Floor::Cat => "find \"$1\" -type f -print0 | xargs -0 -r cat >/dev/null".to_owned(),
        Floor::Find => {
            "exec find \"$1\" -printf '%p %y %s %m %U %G %T@ %C@ %i %n %D\\n' >/dev/null".to_owned()
        }
        Floor::TarOne => stream(1),
        Floor::TarThree => stream(3),
        Floor::Copy => "exec cp -a \"$1/.\" \"$2\"".to_owned(),
        Floor::CopySync => "cp -a \"$1/.\" \"$2\" && sync -f \"$2\"".to_owned(),
    };
    Invocation::script(&line, &[at, target])
}

/// The differences between two trees, in one line; empty if they are equal.
pub fn differences(keeps: Keeps, truth: &Path, restored: &Path) -> Done<Option<String>> {
    let slashed = |path: &Path| format!("{}/", path.display());
    let found = Invocation::new("rsync")
        .args(keeps.comparison())
        .args(["--delete", "--itemize-changes", &slashed(truth), &slashed(restored)])
        .run()?;
    let count = found.lines().count();
    Ok((count > 0).then(|| format!("{count} differences, such as {}", last_lines(&found, 3))))
}

#[cfg(test)]
mod tests;
