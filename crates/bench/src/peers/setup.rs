//! `peers setup`: installs the peers that package registries offer, into a folder.
//!
//! Borg from PyPI, rustic and bupstash from the crate registry, built here; restic and Borg of the
//! system's packages if there is no newer one. Kopia and newer restics are on no registry as
//! programs: put them into `tools/bin` below the data folder, and they are used.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::say;
use crate::shell::{Done, Failure, Invocation, make_folder};

const BORG: &str = "borgbackup==1.4.5";
const RUSTIC: [&str; 4] = ["rustic-rs", "--version", "0.11.4", "--no-default-features"];
const BUPSTASH: [&str; 3] = ["bupstash", "--version", "0.12.0"];

/// The system's packages: peers, what the others are built with, and what the harness calls.
const PACKAGES: [&str; 16] = [
    "borgbackup",
    "build-essential",
    "e2fsprogs",
    "libacl1-dev",
    "liblz4-dev",
    "libsodium-dev",
    "libssl-dev",
    "libxxhash-dev",
    "libzstd-dev",
    "pkg-config",
    "python3-dev",
    "python3-venv",
    "restic",
    "rsync",
    "xz-utils",
    "zstd",
];

/// Where programs are looked for before the system's own.
pub fn program_folders(data: &Path) -> Vec<PathBuf> {
    let tools = data.join("tools");
    vec![tools.join("bin"), tools.join("venv/bin")]
}

/// Does every step, also after one has failed.
pub fn set_up(data: &Path, jobs: u32) -> Done {
    let jobs = &jobs.to_string();
    let steps: [(&str, &dyn Fn() -> Done); 4] = [
        ("system packages", &system_packages),
        ("borg", &|| borg(data)),
        ("rustic", &|| cargo_install(data, jobs, &RUSTIC)),
        ("bupstash", &|| cargo_install(data, jobs, &BUPSTASH)),
    ];
    let mut failed = 0;
    for (name, step) in steps {
        let begin = Instant::now();
        match step() {
            Ok(()) => say(&format!("{name}: done in {} s", begin.elapsed().as_secs())),
            Err(failure) => {
                say(&format!("error: {name}: {failure}"));
                failed += 1;
            }
        }
    }
    match failed {
        0 => Ok(()),
        1 => Err(Failure::Other("1 step failed".to_owned())),
        failed => Err(Failure::Other(format!("{failed} steps failed"))),
    }
}

fn system_packages() -> Done {
    let is_there = |package: &&str| Invocation::new("dpkg").args(["-s", *package]).run().is_ok();
    let missing: Vec<&str> = PACKAGES.into_iter().filter(|package| !is_there(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let flags = ["install", "-y", "-qq", "--no-install-recommends"];
    let install = Invocation::new("apt-get").args(flags).args(missing);
    install.with(vec![("DEBIAN_FRONTEND", "noninteractive".into())]).run().map(drop)
}

fn borg(data: &Path) -> Done {
    let venv = data.join("tools/venv");
    if venv.join("bin/borg").is_file() {
        return Ok(());
    }
    make_folder(&venv)?;
    Invocation::new("python3").args(["-m", "venv"]).arg(&venv).run()?;
    Invocation::new(venv.join("bin/pip")).args(["install", "--quiet", BORG]).run().map(drop)
}

fn cargo_install(data: &Path, jobs: &str, what: &[&str]) -> Done {
    let tools = data.join("tools");
    make_folder(&tools)?;
    // Not in the repository: its settings are not theirs.
    Invocation::new("cargo")
        .args(["install", "--quiet", "--locked", "--jobs", jobs, "--root"])
        .arg(&tools)
        .args(what)
        .with(vec![("CARGO_TARGET_DIR", tools.join("build").into())])
        .inside(&tools)
        .run()
        .map(drop)
}
