//! Chores of this repository: its table of contents.
//!
//! `cargo xtask check-docs` holds the documents against the tree: what they name must exist, and
//! what the house promises of its floors must be so. `cargo xtask bench` measures Strongroom beside
//! its peers, `cargo xtask papers` beside the papers; both write documents. Tests are `./test`'s
//! work.

mod bench;
mod checks;
mod markdown;
mod papers;
mod shell;
mod table;
mod tree;

use std::path::Path;
use std::process::ExitCode;

use tree::Tree;

const USAGE: &str = "usage: cargo xtask check-docs | bench | papers [OPTIONS]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.expect("xtask stands in the repository's top folder");
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check-docs"] => check_docs(root),
        ["bench", rest @ ..] => bench::bench(rest, root),
        ["papers", rest @ ..] => papers::papers(rest, root),
        _ => {
            tell(USAGE);
            ExitCode::from(2)
        }
    }
}

fn check_docs(root: &Path) -> ExitCode {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            tell(&format!("error: cannot read the repository: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let findings = checks::check_docs(&tree);
    for finding in &findings {
        tell(&finding.to_string());
    }
    if findings.is_empty() {
        return ExitCode::SUCCESS;
    }
    tell(&format!("error: {} findings in the documents", findings.len()));
    ExitCode::FAILURE
}

#[expect(clippy::print_stderr, reason = "this program talks to whoever runs it")]
fn tell(line: &str) {
    eprintln!("{line}");
}
