//! What the papers behind Strongroom print about series of releases, and what Strongroom makes of
//! such series today, in one document.

mod printed;
mod series;
mod store;
mod text;

use std::path::{Path, PathBuf};

use self::series::Series;
use crate::peers::{Scale, absolute};
use crate::say;
use crate::shell::{Done, Failure, make_folder, write};

/// The arguments as typed.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Folder that series are fetched to and kept in [default: target/bench]
    #[arg(long, value_name = "DIR", value_parser = absolute)]
    data: Option<PathBuf>,
    /// Series to store [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = series::NAMES)]
    series: Vec<String>,
    /// Full, or parts of the first series
    #[arg(long, value_enum, default_value = "full")]
    scale: Scale,
    /// Strongroom [default: target/release/strongroom]
    #[arg(long, value_name = "PATH", value_parser = absolute)]
    program: Option<PathBuf>,
    /// The document [default: docs/papers.md]
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    out: Option<PathBuf>,
}

/// The arguments, resolved.
struct Options {
    data: PathBuf,
    series: Vec<String>,
    scale: Scale,
    program: PathBuf,
    out: PathBuf,
}

impl Options {
    fn resolve(args: Args, root: &Path) -> Self {
        let data = args.data.unwrap_or_else(|| root.join("target/bench"));
        let document =
            args.scale.pick(data.join("scale-small/papers.md"), root.join("docs/papers.md"));
        let mut series = args.series;
        if series.is_empty() {
            series = series::NAMES.map(str::to_owned).to_vec();
        }
        if args.scale == Scale::Small {
            series.retain(|name| name == series::NAMES[0]);
        }
        Self {
            data,
            series,
            scale: args.scale,
            program: args.program.unwrap_or_else(|| root.join("target/release/strongroom")),
            out: args.out.unwrap_or(document),
        }
    }
}

/// Stores every series, and writes the document. `root` is the repository's folder.
pub fn run(args: Args, root: &Path) -> Done {
    let options = Options::resolve(args, root);
    if !options.program.is_file() {
        let program = options.program.display();
        return Err(Failure::Other(format!(
            "{program} does not exist: build it, or name another with --program"
        )));
    }
    let root = options.scale.pick(options.data.join("scale-small"), options.data.clone());
    make_folder(&root)?;
    let mut measured = Vec::new();
    for name in &options.series {
        let series = Series::get(name, &options.data, &root, options.scale)?;
        say(&format!("{}: {} releases", series.name, series.releases.len()));
        let versions = store::store(&series, &options.program, &root.join("papers"))?;
        measured.push((series, versions));
    }
    write(&options.out, text::document(&measured))?;
    say(&format!("wrote {}", options.out.display()));
    Ok(())
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

    fn parse(typed: &[&str]) -> Result<Options, clap::Error> {
        let typed = Typed::try_parse_from(["papers"].iter().chain(typed))?;
        Ok(Options::resolve(typed.args, Path::new("/r")))
    }

    #[test]
    fn defaults_depend_on_the_scale() {
        let options = parse(&[]).unwrap();
        assert_eq!((options.series.len(), options.out), (3, "/r/docs/papers.md".into()));
        let options = parse(&["--scale", "small", "--data", "/d"]).unwrap();
        assert_eq!((options.series.len(), options.out), (1, "/d/scale-small/papers.md".into()));
        assert!(parse(&["--series", "emacs"]).is_err());
        assert!(parse(&["--data"]).is_err());
    }
}
