//! The arguments of `peers`: as typed, and resolved.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::PossibleValuesParser;

use super::data::{SETS, Scale};

/// The set that is not a data set: the inner loops alone.
pub const KERNELS: &str = "kernels";

/// The programs that are measured.
const TOOLS: [&str; 6] = ["strongroom", "restic", "borg", "rustic", "bupstash", "kopia"];

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Verb {
    /// Measure, then write the report
    Measure,
    /// Write the report of what was measured before
    Report,
    /// Install the peers that package registries offer
    Setup,
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
    /// Sets to measure [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = set_names())]
    sets: Vec<String>,
    /// Programs to measure [default: all that are installed]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = tool_names())]
    tools: Vec<String>,
    /// How often each set is measured
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Programs to measure in the first round only
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = tool_names())]
    once: Vec<String>,
    /// Size of the sets: small takes minutes and shows that all works
    #[arg(long, value_enum, default_value = "full")]
    scale: Scale,
    /// Strongroom [default: target/release/strongroom]
    #[arg(long, value_name = "PATH", value_parser = absolute)]
    program: Option<PathBuf>,
    /// The report; its plots go into a folder of the same name [default: docs/benchmarks.md]
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    out: Option<PathBuf>,
    /// For setup: how many compilers run at once
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Print the plan, and measure nothing
    #[arg(long)]
    dry_run: bool,
}

fn set_names() -> PossibleValuesParser {
    SETS.into_iter().chain([KERNELS]).into()
}

fn tool_names() -> PossibleValuesParser {
    TOOLS.into()
}

/// A path that holds in any folder.
pub fn absolute(path: &str) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| error.to_string())
}

/// The arguments, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What is to be done.
    pub verb: Verb,
    /// Where data is kept.
    pub data: PathBuf,
    /// Names of sets, in the order in which they are measured.
    pub sets: Vec<String>,
    /// Names of tools; empty for all.
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
    pub jobs: u32,
    /// Print the plan alone.
    pub dry_run: bool,
}

impl Options {
    /// Fills in defaults; `root` is the repository's folder.
    pub fn resolve(args: Args, root: &Path) -> Self {
        let data = args.data.unwrap_or_else(|| root.join("target/bench"));
        let small_report = data.join("scale-small/benchmarks.md");
        let report = args.scale.pick(small_report, root.join("docs/benchmarks.md"));
        let all_sets = || SETS.into_iter().chain([KERNELS]).map(str::to_owned).collect();
        Self {
            verb: args.verb,
            data,
            sets: if args.sets.is_empty() { all_sets() } else { args.sets },
            tools: args.tools,
            rounds: args.rounds,
            once: args.once,
            scale: args.scale,
            program: args.program.unwrap_or_else(|| root.join("target/release/strongroom")),
            out: args.out.unwrap_or(report),
            jobs: args.jobs,
            dry_run: args.dry_run,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        args: Args,
    }

    fn resolved(typed: &[&str]) -> Options {
        let words = ["peers"].iter().chain(typed);
        Options::resolve(Typed::try_parse_from(words).unwrap().args, Path::new("/r"))
    }

    #[test]
    fn defaults_depend_on_the_scale() {
        let options = resolved(&[]);
        assert_eq!((options.verb, options.rounds, options.sets.len()), (Verb::Measure, 3, 8));
        assert_eq!(options.out, Path::new("/r/docs/benchmarks.md"));
        let options =
            resolved(&["report", "--data", "/d", "--scale", "small", "--sets", "usr,kernels"]);
        assert_eq!(
            (options.verb, &*options.sets),
            (Verb::Report, &["usr", "kernels"].map(str::to_owned)[..])
        );
        assert_eq!(options.out, Path::new("/d/scale-small/benchmarks.md"));
        let options = resolved(&["setup", "--scale", "small", "--out", "/o.md", "--jobs", "2"]);
        assert_eq!((options.jobs, options.out), (2, "/o.md".into()));
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        for typed in
            [["--rounds", "0"], ["--scale", "huge"], ["--sets", "usr,etc"], ["--once", "tar"]]
        {
            assert!(Typed::try_parse_from(["peers"].iter().chain(&typed)).is_err(), "{typed:?}");
        }
    }
}
