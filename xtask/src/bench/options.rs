//! What was typed behind `cargo xtask bench`.

use std::path::{Path, PathBuf};

use super::data::{SETS, Scale};

/// How it is used.
pub const USAGE: &str = "\
usage: cargo xtask bench [OPTIONS]          measure, then write the report
       cargo xtask bench report [OPTIONS]   write the report of what was measured before
       cargo xtask bench setup [OPTIONS]    get the peers that package registries have

  --data DIR        where data sets, results and tools are kept (target/bench)
  --sets A,B        sources,thirty,usr,image,small,large,random,kernels (all)
  --tools A,B       strongroom,restic,borg,rustic,bupstash,kopia (all that are installed)
  --rounds N        how often each set is measured (3)
  --once A,B        tools that are measured in the first round alone (none)
  --scale S         full, or small to see that all works (full)
  --program PATH    Strongroom (target/release/strongroom)
  --out FILE        the report; plots go into a folder of its name
                    (docs/benchmarks.md; at the small scale into DIR)
  --jobs N          for setup: how many compilers at once (1)
  --dry-run         print the plan, and measure nothing";

/// The set that is not a data set.
pub const KERNELS: &str = "kernels";

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Measure and report.
    Measure,
    /// Report alone.
    Report,
    /// Get the peers.
    SetUp,
}

/// The command line, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What is to be done.
    pub verb: Verb,
    /// Where data is kept.
    pub data: PathBuf,
    /// Names of sets, as they are measured.
    pub sets: Vec<String>,
    /// Names of tools; all where none is named.
    pub tools: Vec<String>,
    /// At least one.
    pub rounds: u32,
    /// Names of tools for which the first round is enough.
    pub once: Vec<String>,
    /// How large the sets are.
    pub scale: Scale,
    /// Strongroom.
    pub program: PathBuf,
    /// The report.
    pub out: PathBuf,
    /// Compilers at once.
    pub jobs: String,
    /// Print the plan alone.
    pub dry_run: bool,
}

impl Options {
    /// Reads arguments; `root` is the repository. The error is what was wrong.
    pub fn parse(arguments: &[&str], root: &Path) -> Result<Self, String> {
        let (verb, arguments) = match arguments {
            ["setup", rest @ ..] => (Verb::SetUp, rest),
            ["report", rest @ ..] => (Verb::Report, rest),
            rest => (Verb::Measure, rest),
        };
        let mut options = Self {
            verb,
            data: root.join("target/bench"),
            sets: SETS.iter().map(|name| (*name).to_owned()).collect(),
            tools: Vec::new(),
            rounds: 3,
            once: Vec::new(),
            scale: Scale::Full,
            program: root.join("target/release/strongroom"),
            out: root.join("docs/benchmarks.md"),
            jobs: "1".to_owned(),
            dry_run: false,
        };
        options.sets.push(KERNELS.to_owned());
        let mut out = None;
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if *argument == "--dry-run" {
                options.dry_run = true;
                continue;
            }
            let value = rest.next().ok_or_else(|| format!("{argument} wants a value"))?;
            match *argument {
                "--data" => options.data = absolute(value)?,
                "--sets" => options.sets = known(value, &options.sets, "set")?,
                "--tools" => options.tools = names(value),
                "--rounds" => options.rounds = positive(value)?,
                "--once" => options.once = names(value),
                "--scale" => options.scale = scale(value)?,
                "--program" => options.program = absolute(value)?,
                "--out" => out = Some(absolute(value)?),
                "--jobs" => options.jobs = positive(value)?.to_string(),
                _ => return Err(format!("nobody knows {argument}")),
            }
        }
        if options.scale == Scale::Small {
            options.out = options.data.join("scale-small/benchmarks.md");
        }
        options.out = out.unwrap_or(options.out);
        Ok(options)
    }
}

fn names(list: &str) -> Vec<String> {
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn known(list: &str, all: &[String], what: &str) -> Result<Vec<String>, String> {
    let names = names(list);
    match names.iter().find(|name| !all.contains(name)) {
        Some(name) => Err(format!("there is no {what} {name}: {}", all.join(", "))),
        None => Ok(names),
    }
}

fn positive(value: &str) -> Result<u32, String> {
    value.parse().ok().filter(|number| *number > 0).ok_or(format!("{value} is no positive number"))
}

fn scale(value: &str) -> Result<Scale, String> {
    let all = [Scale::Small, Scale::Full];
    all.into_iter().find(|scale| scale.name() == value).ok_or(format!("there is no scale {value}"))
}

fn absolute(value: &str) -> Result<PathBuf, String> {
    std::path::absolute(value).map_err(|error| format!("{value} is no path: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_typed_is_understood() {
        let root = Path::new("/r");
        let options = Options::parse(&[], root).unwrap();
        assert_eq!((options.verb, options.rounds, options.sets.len()), (Verb::Measure, 3, 8));
        assert_eq!(options.out, Path::new("/r/docs/benchmarks.md"));
        let typed = ["report", "--data", "/d", "--scale", "small", "--sets", "usr,kernels"];
        let options = Options::parse(&typed, root).unwrap();
        assert_eq!(
            (options.verb, &*options.sets),
            (Verb::Report, &["usr", "kernels"].map(str::to_owned)[..])
        );
        assert_eq!(options.out, Path::new("/d/scale-small/benchmarks.md"));
        let typed =
            ["setup", "--jobs", "2", "--dry-run", "--tools", "borg,restic", "--out", "/o.md"];
        let options = Options::parse(&typed, root).unwrap();
        assert_eq!((&*options.jobs, options.dry_run, options.tools.len()), ("2", true, 2));
        assert_eq!(options.out, Path::new("/o.md"));
        let options = Options::parse(&["--once", "borg,rustic"], root).unwrap();
        assert_eq!(options.once, ["borg", "rustic"]);
    }

    #[test]
    fn what_is_mistyped_is_told() {
        let wrong = |typed: &[&str]| Options::parse(typed, Path::new("/r")).unwrap_err();
        assert_eq!(wrong(&["--rounds"]), "--rounds wants a value");
        assert_eq!(wrong(&["--rounds", "0"]), "0 is no positive number");
        assert_eq!(wrong(&["--scale", "huge"]), "there is no scale huge");
        assert!(wrong(&["--sets", "usr,etc"]).starts_with("there is no set etc"));
        assert_eq!(wrong(&["--fast", "1"]), "nobody knows --fast");
    }
}
