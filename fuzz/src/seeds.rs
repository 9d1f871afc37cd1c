//! Writing a target's seeds: few, small, made by the target itself, never committed.

use std::path::PathBuf;

/// Where `fuzz/run` wants the seeds written.
const FOLDER_VARIABLE: &str = "STRONGROOM_FUZZ_SEEDS";

/// Writes the seeds and ends the process, if the environment names a folder for them.
pub fn write_seeds_if_asked(seeds: impl FnOnce() -> Vec<Vec<u8>>) {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else { return };
    for (number, seed) in seeds().into_iter().enumerate() {
        let path = folder.join(format!("seed-{number:02}"));
        std::fs::write(&path, seed).expect("the folder for seeds can be written");
    }
    std::process::exit(0);
}
