//! Walks a tree and prints how long it took: `walk [--xattrs] PATH…`. For measuring by hand.
#![expect(clippy::disallowed_methods, reason = "an example is a program")]

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use strongroom_source::{SourceOptions, TreeSource, WalkEvent};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let with_xattrs = paths.first().is_some_and(|path| path.as_os_str() == "--xattrs");
    if with_xattrs {
        paths.remove(0);
    }
    let begun = Instant::now();
    let mut source = TreeSource::open(&paths, &SourceOptions::default())?;
    let (mut bytes, mut xattrs) = (0, 0);
    for event in source.by_ref() {
        let (WalkEvent::EnterDirectory { entry, .. } | WalkEvent::Leaf { entry, .. }) = &event
        else {
            continue;
        };
        if let WalkEvent::Leaf { .. } = &event {
            bytes += entry.size();
        }
        if with_xattrs {
            let found = entry.xattrs().xattrs;
            xattrs += found.len();
        }
    }
    let (counts, seconds) = (source.counts(), begun.elapsed().as_secs_f64());
    writeln!(std::io::stdout(), "{counts:?}, {bytes} bytes, {xattrs} xattrs in {seconds:.3} s")?;
    Ok(())
}
