//! `cargo xtask papers`: what the papers behind Strongroom print about series of releases, and what
//! Strongroom makes of such series today, in one document.

mod printed;
mod series;
mod store;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::series::Series;
use crate::bench::Scale;
use crate::shell::{Done, Failure, make_folder, write};
use crate::tell;

const USAGE: &str = "\
usage: cargo xtask papers [OPTIONS]

  --data DIR        where series are kept and fetched to (target/bench)
  --series A,B      linux,django,openssl (all)
  --scale S         full, or small: parts of the first series alone (full)
  --program PATH    Strongroom (target/release/strongroom)
  --out FILE        the document (docs/papers.md; at the small scale into DIR)";

/// The command line, resolved.
struct Options {
    data: PathBuf,
    series: Vec<String>,
    scale: Scale,
    program: PathBuf,
    out: PathBuf,
}

impl Options {
    fn parse(arguments: &[&str], root: &Path) -> Result<Self, String> {
        let mut options = Self {
            data: root.join("target/bench"),
            series: series::NAMES.map(str::to_owned).to_vec(),
            scale: Scale::Full,
            program: root.join("target/release/strongroom"),
            out: PathBuf::new(),
        };
        let absolute = |value: &str| {
            std::path::absolute(value).map_err(|error| format!("{value} is no path: {error}"))
        };
        for pair in arguments.chunks(2) {
            let [argument, value] = *pair else { return Err(format!("{} wants a value", pair[0])) };
            match (argument, value) {
                ("--data", _) => options.data = absolute(value)?,
                ("--series", _) => options.series = value.split(',').map(str::to_owned).collect(),
                ("--scale", "small") => options.scale = Scale::Small,
                ("--scale", "full") => options.scale = Scale::Full,
                ("--program", _) => options.program = absolute(value)?,
                ("--out", _) => options.out = absolute(value)?,
                _ => return Err(format!("nobody knows {argument} {value}")),
            }
        }
        if let Some(name) = options.series.iter().find(|name| !series::NAMES.contains(&&***name)) {
            return Err(format!("there is no series {name}"));
        }
        if options.scale == Scale::Small {
            options.series.retain(|name| name == series::NAMES[0]);
        }
        if options.out.as_os_str().is_empty() {
            let small = options.data.join("scale-small/papers.md");
            options.out = options.scale.pick(small, root.join("docs/papers.md"));
        }
        Ok(options)
    }
}

/// Does what was typed.
pub fn papers(arguments: &[&str], root: &Path) -> ExitCode {
    let options = match Options::parse(arguments, root) {
        Ok(options) => options,
        Err(what) => {
            tell(&format!("error: {what}\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell(&format!("error: {failure}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Done {
    if !options.program.is_file() {
        let program = options.program.display();
        return Err(Failure::Told(format!("there is no {program}: build it, or name it")));
    }
    let root = options.scale.pick(options.data.join("scale-small"), options.data.clone());
    make_folder(&root)?;
    let mut measured = Vec::new();
    for name in &options.series {
        let series = Series::get(name, &options.data, &root, options.scale)?;
        tell(&format!("{}: {} releases", series.name, series.releases.len()));
        let versions = store::store(&series, &options.program, &root.join("papers"))?;
        measured.push((series, versions));
    }
    write(&options.out, text::document(&measured))?;
    tell(&format!("wrote {}", options.out.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_understood() {
        let root = Path::new("/r");
        let options = Options::parse(&[], root).unwrap();
        assert_eq!((options.series.len(), options.out), (3, root.join("docs/papers.md")));
        let options = Options::parse(&["--scale", "small", "--data", "/d"], root).unwrap();
        assert_eq!((options.series.len(), options.out), (1, "/d/scale-small/papers.md".into()));
        assert!(Options::parse(&["--series", "emacs"], root).is_err());
        assert!(Options::parse(&["--data"], root).is_err());
    }
}
