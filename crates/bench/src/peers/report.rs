//! The document: what was measured, on what, with what, and which targets are met.

mod acts;
mod machine;
mod targets;

use std::collections::BTreeMap;
use std::path::Path;

pub use self::machine::Machine;
use self::targets::{Verdict, verdicts};
use super::data::Scale;
use super::kernels::Kernel;
use super::results::{ContenderInfo, OURS, SetResults, Trouble};
use crate::shell::{Done, remove, write};
use crate::table::{counted, megabytes, row, table};

/// Everything that is reported.
pub struct Report {
    /// Data sets, as they were measured.
    pub sets: Vec<SetResults>,
    /// Inner loops alone.
    pub kernels: Vec<Kernel>,
    /// By heading: what is known of targets that are missed.
    pub notes: BTreeMap<String, String>,
    /// Where all that was measured.
    pub machine: Machine,
    /// How large the sets were.
    pub scale: Scale,
}

/// Texts by the headings of the second level above them.
pub fn parse_notes(text: &str) -> BTreeMap<String, String> {
    let mut notes = BTreeMap::new();
    for part in text.split("\n## ").skip(1) {
        let (heading, body) = part.split_once('\n').unwrap_or((part, ""));
        notes.insert(heading.trim().to_owned(), body.trim().to_owned());
    }
    notes
}

impl Report {
    /// Writes the document and, into the folder of its name, the plots.
    pub fn write(&self, out: &Path) -> Done {
        let plots = out.with_extension("");
        remove(&plots)?;
        for set in self.sets.iter().filter(|set| !set.samples.is_empty()) {
            write(&plots.join(format!("{}.svg", set.name)), acts::plot(set))?;
        }
        let folder = plots.file_name().unwrap_or_default().to_string_lossy().into_owned();
        write(out, self.text(&folder))
    }

    /// Who did not restore what was stored, and where.
    pub fn unequal(&self) -> Vec<String> {
        let all = self.sets.iter().flat_map(|set| {
            let unequal = set.troubles.iter().filter(|trouble| trouble.is_unequal);
            unequal.map(|trouble| {
                format!("{} ({}, {}: {})", trouble.contender, set.name, trouble.act, trouble.what)
            })
        });
        all.collect()
    }

    fn text(&self, plots: &str) -> String {
        let mut parts = vec![self.head()];
        let unequal = self.unequal();
        if !unequal.is_empty() {
            parts.push(format!("**Not restored as stored: {}.**", unequal.join("; ")));
        }
        parts.extend(["## Who".to_owned(), self.who()]);
        let verdicts = verdicts(&self.sets, &self.kernels);
        parts.extend(["## What must be shown".to_owned(), verdict_table(&verdicts)]);
        parts.extend(self.what_binds(&verdicts));
        for set in &self.sets {
            parts.push(format!("## {}", heading(&set.name)));
            parts.push(set_text(set, plots));
        }
        if !self.kernels.is_empty() {
            parts.push("## Kernels".to_owned());
            let mut rows = vec![row(["one thread", "GB/s"])];
            let speed =
                |kernel: &Kernel| row([kernel.name.clone(), format!("{:.2}", kernel.speed)]);
            rows.extend(self.kernels.iter().map(speed));
            parts.push(table(&rows));
        }
        parts.extend(["## Commands".to_owned(), self.commands()]);
        let trimmed: Vec<&str> = parts.iter().map(|part| part.trim_end()).collect();
        format!("{}\n", trimmed.join("\n\n"))
    }

    fn head(&self) -> String {
        let small = match self.scale {
            Scale::Full => "",
            Scale::Small => {
                " **At the small scale: these numbers say that all works, and no more.**"
            }
        };
        format!(
            "# Benchmarks\n\nMade by `cargo run -p strongroom-bench --release -- peers`; not \
             edited by hand.{small} Medians of \
             all rounds. In each round all programs do an act in turn before the next act \
             begins, and another one begins each time. Before each act what will be read is read \
             once, so it comes from memory, the kernel's cache of files is emptied where little \
             else is free, memory for what is written is touched, and `sync` is called. Encryption \
             is on everywhere. Times are seconds on the wall (and seconds of all processors). \
             Memory is the most that one process had resident. *Stored* is the sum of the lengths \
             of a repository's files; caches do not count; MB are 10⁶ bytes. Every restored tree was \
             compared with what was stored.\n\n\
             {}",
            self.machine.text()
        )
    }

    /// Every contender, once.
    fn contenders(&self) -> Vec<&ContenderInfo> {
        let mut all: Vec<&ContenderInfo> = Vec::new();
        for info in self.sets.iter().flat_map(|set| &set.contenders) {
            if !all.iter().any(|known| known.id == info.id) {
                all.push(info);
            }
        }
        all
    }

    fn who(&self) -> String {
        let mut rows = vec![row(["version", "compression", ""])];
        for info in self.contenders() {
            let what = match (info.is_default, info.is_equal) {
                (true, true) => "its default, and the level at which all are compared",
                (true, false) => "its default",
                _ => "the level at which all are compared",
            };
            let note =
                if info.note.is_empty() { String::new() } else { format!("; {}", info.note) };
            rows.push(row([info.version.clone(), info.level.clone(), format!("{what}{note}")]));
        }
        // Texts are aligned to the left.
        let mut text = table(&rows).replace("---:", "---");
        let mut absent: Vec<&str> =
            self.sets.iter().flat_map(|set| &set.absent).map(String::as_str).collect();
        absent.sort_unstable();
        absent.dedup();
        if !absent.is_empty() {
            text += &format!("\nLeft out, as not installed: {}.\n", absent.join(", "));
        }
        text
    }

    /// A place for each target that is missed, with what is known of it.
    fn what_binds(&self, verdicts: &[Verdict]) -> Vec<String> {
        let mut parts: Vec<String> = Vec::new();
        let mut seen: Vec<String> = Vec::new();
        for verdict in verdicts.iter().filter(|verdict| verdict.is_met == Some(false)) {
            let key = format!("{} {}", verdict.number, verdict.set);
            if seen.contains(&key) {
                continue;
            }
            let note = self.notes.get(&key).or_else(|| self.notes.get(&verdict.number.to_string()));
            let missing =
                || format!("Not looked into yet: `benchmarks-notes.md` has no `## {key}`.");
            parts.push(format!("### What binds: {key}"));
            parts.push(note.cloned().unwrap_or_else(missing));
            parts.extend(self.profiles(verdict));
            seen.push(key);
        }
        parts
    }

    /// What our backups, as far as they are judged here, said of where their time went, in the last
    /// round.
    fn profiles(&self, verdict: &Verdict) -> Option<String> {
        let set = self.sets.iter().find(|known| known.name == verdict.set)?;
        let is_judged = |act: &str| match verdict.number {
            1 => act == "first",
            2 => act != "first",
            _ => false,
        };
        let ours = set.profiles.iter().filter(|profile| profile.contender == OURS);
        let judged = ours.filter(|profile| is_judged(&profile.act));
        let lines: String =
            judged.map(|profile| format!("- {}: {}\n", profile.act, profile.line)).collect();
        (!lines.is_empty()).then_some(lines)
    }

    fn commands(&self) -> String {
        let mut text =
            "Repository, caches and passphrase are given by variables of the environment. \
                        In order: init, backup, restore, verify, prune where there is one.\n"
                .to_owned();
        for info in self.contenders() {
            text += &format!("\n{}:\n\n```text\n{}\n```\n", info.id, info.commands.join("\n"));
        }
        text
    }
}

fn heading(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn verdict_table(verdicts: &[Verdict]) -> String {
    let mut rows = vec![row(["", "data", "what", "wanted", "measured", "met"])];
    for verdict in verdicts {
        let met = match verdict.is_met {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "?",
        };
        let number = verdict.number.to_string();
        let (what, wanted) = (verdict.what.clone(), verdict.wanted.clone());
        let set = verdict.set.clone();
        rows.push(row([number, set, what, wanted, verdict.measured.clone(), met.to_owned()]));
    }
    table(&rows).replace("---:", "---")
}

fn set_text(set: &SetResults, plots: &str) -> String {
    let mut text = format!("{}.\n\n", heading(&set.about));
    let troubles: String = set.troubles.iter().map(trouble_line).collect();
    if set.samples.is_empty() {
        return text + &troubles;
    }
    let sizes = set.files.iter().zip(&set.bytes).map(|(files, bytes)| {
        format!("{}, {} MB", counted(*files, "file"), megabytes(*bytes as f64))
    });
    let mut sizes: Vec<String> = sizes.collect();
    if sizes.len() > 4 {
        sizes.drain(2..sizes.len() - 1);
        sizes.insert(2, "…".to_owned());
    }
    text += &format!("Versions: {}.", sizes.join("; "));
    if !set.revision.is_empty() {
        let rounds = counted(u64::from(set.rounds), "round");
        text += &format!(" Measured at revision {}, in {rounds}.", set.revision);
    }
    let once = set.measured_once();
    if !once.is_empty() {
        text += &format!(" In the first round alone: {}.", once.join(", "));
    }
    if set.apart {
        text +=
            " Each program went through all acts alone: two repositories have no room together.";
    }
    text += &format!("\n\n{}\n", acts::main_table(set, |info| info.is_default));
    if set.contenders.iter().any(|info| !info.is_default) {
        text += "All at one level:\n\n";
        text += &format!("{}\n", acts::main_table(set, |info| info.is_equal));
    }
    text += &format!("{}\n\n", acts::floors(set));
    text += &format!("![{0}]({plots}/{0}.svg)\n\n", set.name);
    text += "MB read and written by system calls:\n\n";
    text += &acts::traffic_table(set);
    text + "\n" + &troubles
}

fn trouble_line(trouble: &Trouble) -> String {
    format!("- {}, {}: {}\n", trouble.contender, trouble.act, trouble.what)
}

#[cfg(test)]
mod tests;
