//! The inner loops alone, on one thread: what the examples of their crates print.

use std::path::Path;

use crate::shell::{Done, Failure, Invocation};

/// Crates whose example `speed` prints lines that end in GB/s.
const CRATES: [&str; 2] = ["strongroom-chunk", "strongroom-galois"];

/// One loop's speed.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// In the example's words.
    pub name: String,
    /// 10⁹ bytes a second.
    pub speed: f64,
}

/// Builds and runs the examples.
pub fn measure(root: &Path) -> Done<Vec<Kernel>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut kernels = Vec::new();
    for package in CRATES {
        let flags = ["run", "--release", "--quiet", "--package", package, "--example", "speed"];
        let said = Invocation::new(&cargo).args(flags).inside(root).run()?;
        kernels.extend(said.lines().filter_map(parse));
    }
    if kernels.is_empty() {
        return Err(Failure::Other("no example printed a speed".to_owned()));
    }
    Ok(kernels)
}

fn parse(line: &str) -> Option<Kernel> {
    let (before, _) = line.split_once(" GB/s")?;
    let (name, speed) = before.rsplit_once(' ')?;
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(Kernel { name, speed: speed.parse().ok()? })
}

/// As kept in a file.
pub fn to_text(kernels: &[Kernel]) -> String {
    kernels.iter().map(|kernel| format!("{} {:.3} GB/s\n", kernel.name, kernel.speed)).collect()
}

/// What [`to_text`] made.
pub fn from_text(text: &str) -> Vec<Kernel> {
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_speeds_are_understood() {
        let kernel =
            parse("random   anywhere, memory     6.25 GB/s, mean chunk  64.0 KiB").unwrap();
        assert_eq!(kernel, Kernel { name: "random anywhere, memory".to_owned(), speed: 6.25 });
        let kernel = parse("encode 256+8                                 2.50 GB/s").unwrap();
        assert_eq!((&*kernel.name, kernel.speed), ("encode 256+8", 2.5));
        assert_eq!(parse("Chunker { … }"), None);
        let kernels = vec![kernel];
        assert_eq!(from_text(&to_text(&kernels)), kernels);
    }
}
