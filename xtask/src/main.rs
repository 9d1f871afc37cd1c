//! Checks of this repository: `cargo xtask check-docs`.
//!
//! It compares the documents with the tree: what they name must exist, and what ARCHITECTURE.md
//! promises must hold. Tests are run by `./test`, measurements by the crate `strongroom-bench`.

mod checks;
mod markdown;
mod tree;

use std::path::Path;
use std::process::ExitCode;

use tree::Tree;

const USAGE: &str = "usage: cargo xtask check-docs";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.expect("xtask is a folder of the repository");
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check-docs"] => check_docs(root),
        _ => {
            report(USAGE);
            ExitCode::from(2)
        }
    }
}

fn check_docs(root: &Path) -> ExitCode {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            report(&format!("error: cannot read the repository: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let findings = checks::check_docs(&tree);
    for finding in &findings {
        report(&finding.to_string());
    }
    match findings.len() {
        0 => return ExitCode::SUCCESS,
        1 => report("error: 1 finding"),
        count => report(&format!("error: {count} findings")),
    }
    ExitCode::FAILURE
}

#[expect(clippy::print_stderr, reason = "this program reports to a person")]
fn report(line: &str) {
    eprintln!("{line}");
}
