//! Forgetting every second snapshot, giving room back, and a backup beside that.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::history::copy;
use super::placement::measure_placement;
use super::{Contender, Pair, Round, forgotten, label};
use crate::peers::data::DataSet;
use crate::peers::measure::{Usage, measure};
use crate::peers::results::OURS;
use crate::peers::runner::differences;
use crate::peers::tools::SnapshotLabel;
use crate::say;
use crate::shell::{Done, Failure, Invocation, count_files, make_folder, remove, warm};

/// How long room is given back before the backup beside it begins: nearly all of its work is then
/// beside the backup.
const HEAD_START: Duration = Duration::from_millis(100);

/// How long after room was given back, or that was refused, it is tried again. Programs that refuse
/// at once would otherwise be started a hundred times a second.
const PAUSE: Duration = Duration::from_secs(1);

/// Pairs of a backup alone and one beside, for each round: two backups alone differ by more than the
/// tenth that is asked about.
const PAIRS: u32 = 3;

/// Measures all contenders in turn, in rounds; another one begins each round.
pub fn measure_all(
    set: &mut dyn DataSet,
    contenders: &mut [Contender],
    rounds: u32,
    scratch: &Path,
    oldest: &Path,
) -> Done {
    for contender in &mut *contenders {
        let results = &mut contender.results;
        (results.rounds, results.rounds_of_all) = (Vec::new(), Vec::new());
        (results.pairs, results.placement) = (Vec::new(), None);
        (results.compared, results.unequal) = (Vec::new(), Vec::new());
        results.failed = None;
    }
    let versions = set.versions();
    let course = Course { at: set.at().to_owned(), versions, scratch, oldest };
    make_folder(scratch)?;
    set.put_version(versions)?;
    for round in 1..=rounds {
        say(&format!("every second snapshot forgotten: round {round}"));
        for contender in &mut *contenders {
            let done = course.round(contender).and_then(|()| match round == rounds {
                true => course.compare(contender),
                false => Ok(()),
            });
            note(contender, "forget", done)?;
        }
        contenders.rotate_left(1);
    }
    for contender in &mut *contenders {
        let done = measure_placement(contender, versions, rounds, &course.at, scratch);
        note(contender, "restore", done)?;
    }
    set.put_version(versions + 1)?;
    for round in 1..=rounds * PAIRS {
        say(&format!("a backup beside it: round {round}"));
        // Of the others, what matters is whether they do both at once.
        let is_asked = |of: &&mut Contender| round == 1 || of.tool.name() == OURS;
        for contender in contenders.iter_mut().filter(is_asked) {
            let done = course.pair(contender);
            note(contender, "backup beside", done)?;
        }
    }
    remove(scratch)
}

/// Keeps what was measured. A contender that fails leaves the others alone.
fn note(contender: &mut Contender, doing: &str, done: Done) -> Done {
    if let Err(failure) = done {
        contender.fail(doing, &failure);
    }
    contender.save()
}

/// What is the same for all contenders.
struct Course<'c> {
    /// The tree that is backed up.
    at: PathBuf,
    versions: u32,
    scratch: &'c Path,
    /// What the oldest snapshot that stays holds.
    oldest: &'c Path,
}

impl Course<'_> {
    /// Puts a contender back to where all versions are stored; returns what forgets every second
    /// one, and what gives room back.
    fn begin(&self, contender: &Contender) -> Done<(Invocation, Invocation)> {
        let place = &contender.place;
        copy(&contender.kept, &place.home)?;
        let labels: Vec<String> = forgotten(self.versions).into_iter().map(label).collect();
        let names = contender.tool.names(place, &labels)?;
        let forget = contender.tool.forget(place, &names);
        let Some((forget, free)) = forget.zip(contender.tool.free(place)) else {
            return Err(Failure::Other("it cannot be asked to forget".to_owned()));
        };
        warm(&place.repository())?;
        rustix::fs::sync();
        Ok((forget, free))
    }

    fn said(&self) -> PathBuf {
        self.scratch.join("said")
    }

    fn round(&self, contender: &mut Contender) -> Done {
        let asked = contender.tool.forget(&contender.place, &["SNAPSHOT…".to_owned()]);
        let free = contender.tool.free(&contender.place);
        let free_all = contender.tool.free_all(&contender.place);
        let commands = asked.iter().chain(&free).chain(&free_all).map(ToString::to_string);
        contender.results.commands = commands.collect();
        if let Some(free_all) = free_all {
            let (forget, _) = self.begin(contender)?;
            let round = self.measure(contender, &forget, &free_all)?;
            contender.results.rounds_of_all.push(round);
        }
        let (forget, free) = self.begin(contender)?;
        let round = self.measure(contender, &forget, &free)?;
        contender.results.rounds.push(round);
        Ok(())
    }

    fn measure(
        &self,
        contender: &Contender,
        forget: &Invocation,
        free: &Invocation,
    ) -> Done<Round> {
        let forget = measure(forget, &self.said())?;
        let free = measure(free, &self.said())?;
        let stored = count_files(&contender.place.repository())?.1;
        tell(contender, "forget", &forget);
        tell(contender, "prune", &free);
        Ok(Round { forget, free, stored })
    }

    /// Restores the newest and the oldest snapshot that stayed. One that was forgotten must be gone.
    fn compare(&self, contender: &mut Contender) -> Done {
        let gone = SnapshotLabel { label: label(1), newer: self.versions as usize - 1 };
        let target = self.scratch.join("gone");
        make_folder(&target)?;
        let restore = contender.tool.restore(&contender.place, &self.at, &gone, &target);
        if restore.run().is_ok() {
            return Err(Failure::Other("a forgotten snapshot can still be restored".to_owned()));
        }
        let stay = self.versions - forgotten(self.versions).len() as u32;
        let newest = (self.versions, 0, &*self.at);
        for (version, newer, truth) in [newest, (2, stay as usize - 1, self.oldest)] {
            let target = self.scratch.join("restored");
            remove(&target)?;
            make_folder(&target)?;
            let snapshot = SnapshotLabel { label: label(version), newer };
            let (tool, place) = (&contender.tool, &contender.place);
            tool.restore(place, &self.at, &snapshot, &target).run()?;
            let found = differences(tool.keeps(), truth, &tool.restored_at(&self.at, &target))?;
            remove(&target)?;
            let results = &mut contender.results;
            results.compared.push(label(version));
            results.unequal.extend(found.map(|found| format!("{}: {found}", label(version))));
        }
        Ok(())
    }

    /// A backup alone, and one while room is given back.
    fn pair(&self, contender: &mut Contender) -> Done {
        let back_up = contender.tool.backup(&contender.place, &self.at, &label(self.versions + 1));
        let (forget, _) = self.begin(contender)?;
        forget.run()?;
        warm(&self.at)?;
        let alone = measure(&back_up, &self.said())?;
        tell(contender, "alone", &alone);

        let (forget, free) = self.begin(contender)?;
        forget.run()?;
        warm(&self.at)?;
        let is_over = AtomicBool::new(false);
        let (beside, freed) = thread::scope(|scope| {
            let said = self.scratch.join("freeing");
            let is_over = &is_over;
            let freeing = scope.spawn(move || free_until(&free, is_over, &said));
            thread::sleep(HEAD_START);
            let beside = measure(&back_up, &self.said());
            is_over.store(true, Ordering::Relaxed);
            (beside, freeing.join().expect("it does not panic"))
        });
        if let Ok(usage) = &beside {
            tell(contender, "beside", usage);
        }
        let (freed, failed): (Vec<_>, Vec<_>) = freed.into_iter().partition(Result::is_ok);
        let pair = Pair {
            alone,
            beside: beside.map_err(said_by),
            freeing: freed.into_iter().flatten().map(|usage| usage.wall).collect(),
            freeing_failed: failed.into_iter().filter_map(Result::err).map(said_by).collect(),
        };
        contender.results.pairs.push(pair);
        Ok(())
    }
}

/// Gives room back, again and again until something else is over, but once at least.
fn free_until(free: &Invocation, is_over: &AtomicBool, said: &Path) -> Vec<Done<Usage>> {
    let mut all = Vec::new();
    while all.is_empty() || !is_over.load(Ordering::Relaxed) {
        all.push(measure(free, said));
        thread::sleep(PAUSE);
    }
    all
}

fn said_by(failure: Failure) -> String {
    match failure {
        Failure::Command { said, .. } => said,
        other => other.to_string(),
    }
}

fn tell(contender: &Contender, act: &str, usage: &Usage) {
    let name = contender.tool.name();
    say(&format!(
        "  {name:12} {act:7} {:8.2} s {:8.2} s CPU {:6} MiB, {:.1} MB read, {:.1} MB written",
        usage.wall,
        usage.cpu,
        usage.peak_kib >> 10,
        usage.read_bytes as f64 / 1e6,
        usage.written_bytes as f64 / 1e6,
    ));
}
