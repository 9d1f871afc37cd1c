//! What the papers behind Strongroom print, beside what Strongroom makes of it: their series of
//! releases, stored today, in one document; Foundation's evaluation, simulated, in another; and that of
//! SDDS-2002, measured, in a third.

mod foundation;
mod memory;
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
    /// Documents to make [default: all]
    #[arg(long, value_enum, value_name = "A,B", value_delimiter = ',')]
    part: Vec<Part>,
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
    /// Folder of the documents, papers.md, sdds.md and foundation.md [default: docs]
    #[arg(long, value_name = "DIR", value_parser = absolute)]
    out: Option<PathBuf>,
}

/// A document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Series of releases, stored: papers.md
    Series,
    /// Buckets in memory, stored by what changed: sdds.md
    Memory,
    /// Foundation's simulator and nights: foundation.md, which needs nothing but time
    Foundation,
}

/// The arguments, resolved.
struct Options {
    parts: Vec<Part>,
    data: PathBuf,
    series: Vec<String>,
    scale: Scale,
    program: PathBuf,
    out: PathBuf,
}

impl Options {
    fn resolve(args: Args, root: &Path) -> Self {
        let data = args.data.unwrap_or_else(|| root.join("target/bench"));
        let documents = args.scale.pick(data.join("scale-small"), root.join("docs"));
        let mut parts = args.part;
        if parts.is_empty() {
            parts = vec![Part::Foundation, Part::Memory, Part::Series];
        }
        let mut series = args.series;
        if series.is_empty() {
            series = series::NAMES.map(str::to_owned).to_vec();
        }
        if args.scale == Scale::Small {
            series.retain(|name| name == series::NAMES[0]);
        }
        Self {
            parts,
            data,
            series,
            scale: args.scale,
            program: args.program.unwrap_or_else(|| root.join("target/release/strongroom")),
            out: args.out.unwrap_or(documents),
        }
    }
}

/// Makes the documents. `root` is the repository's folder.
pub fn run(args: Args, root: &Path) -> Done {
    let options = Options::resolve(args, root);
    let is_wanted = |part| options.parts.contains(&part);
    // Before the nights are simulated, which takes minutes.
    let is_stored = is_wanted(Part::Series) || is_wanted(Part::Memory);
    if is_stored && !options.program.is_file() {
        let program = options.program.display();
        return Err(Failure::Other(format!(
            "{program} does not exist: build it, or name another with --program"
        )));
    }
    make_folder(&options.out)?;
    if is_wanted(Part::Foundation) {
        let document = foundation::document(options.scale);
        write_document(&options.out.join("foundation.md"), document)?;
    }
    if is_wanted(Part::Memory) {
        let folder = options.data.join("memory");
        let document = memory::document(&options.program, &folder, options.scale)?;
        write_document(&options.out.join("sdds.md"), document)?;
    }
    if is_wanted(Part::Series) {
        let document = store_series(&options)?;
        write_document(&options.out.join("papers.md"), document)?;
    }
    Ok(())
}

fn write_document(path: &Path, document: String) -> Done {
    write(path, document)?;
    say(&format!("wrote {}", path.display()));
    Ok(())
}

/// Stores every series.
fn store_series(options: &Options) -> Done<String> {
    let root = options.scale.pick(options.data.join("scale-small"), options.data.clone());
    make_folder(&root)?;
    let mut measured = Vec::new();
    for name in &options.series {
        let series = Series::get(name, &options.data, &root, options.scale)?;
        say(&format!("{}: {} releases", series.name, series.releases.len()));
        let versions = store::store(&series, &options.program, &root.join("papers"))?;
        measured.push((series, versions));
    }
    Ok(text::document(&measured))
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
        assert_eq!((options.series.len(), options.out), (3, "/r/docs".into()));
        let options = parse(&["--scale", "small", "--data", "/d"]).unwrap();
        assert_eq!((options.series.len(), options.out), (1, "/d/scale-small".into()));
        assert_eq!(options.parts, [Part::Foundation, Part::Memory, Part::Series]);
        let options = parse(&["--part", "foundation"]).unwrap();
        assert_eq!(options.parts, [Part::Foundation]);
        assert!(parse(&["--part", "yuru"]).is_err());
        assert!(parse(&["--series", "emacs"]).is_err());
        assert!(parse(&["--data"]).is_err());
    }
}
