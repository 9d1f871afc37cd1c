//! Checks of this repository.
//!
//! `cargo xtask check-docs` compares the documents with the tree: what they name must exist, and
//! what ARCHITECTURE.md and docs/style.md promise must hold. `cargo xtask assemble-changelog` moves
//! the files of `changes/` into CHANGELOG.md, and `cargo xtask json-docs` makes the tables of
//! docs/json.md. Tests are run by `./test`, measurements by the crate `strongroom-bench`.
#![expect(clippy::disallowed_methods, reason = "a program reads its arguments")]

mod changelog;
mod checks;
mod json_docs;
mod markdown;
mod rust;
mod tree;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use tree::Tree;

const USAGE: &str = "usage: cargo xtask check-docs | assemble-changelog | json-docs";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.expect("xtask is a folder of the repository");
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            report(&format!("error: cannot read the repository: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check-docs"] => check_docs(&tree),
        ["json-docs"] => write_json_docs(root, &tree),
        ["assemble-changelog"] => done(assemble_changelog(root, &tree)),
        _ => {
            report(USAGE);
            ExitCode::from(2)
        }
    }
}

fn assemble_changelog(root: &Path, tree: &Tree) -> io::Result<()> {
    let changes: Vec<_> =
        changelog::changes(tree).filter(|change| change.heading.is_some()).collect();
    let before = tree.text(changelog::CHANGELOG).unwrap_or_default();
    std::fs::write(root.join(changelog::CHANGELOG), changelog::assemble(before, &changes))?;
    changes.iter().try_for_each(|change| std::fs::remove_file(root.join(change.path)))
}

/// Makes the tables of docs/json.md again.
fn write_json_docs(root: &Path, tree: &Tree) -> ExitCode {
    let text = |path| tree.text(path).unwrap_or_default();
    match json_docs::document(text(json_docs::DOCUMENT), text(json_docs::SCHEMA)) {
        Ok(made) => done(std::fs::write(root.join(json_docs::DOCUMENT), made)),
        Err(why) => {
            report(&format!("error: {}: {why}", json_docs::SCHEMA));
            ExitCode::FAILURE
        }
    }
}

fn done(result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&format!("error: cannot write the repository: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn check_docs(tree: &Tree) -> ExitCode {
    let findings = checks::check_docs(tree);
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
