//! Strongroom.

use std::path::Path;

use super::{Level, Place, SnapshotLabel, Tool, names_in, variables};
use crate::shell::{Done, Invocation};

/// How the line begins that `--stages` prints.
const STAGES: &str = "stages busy: ";

/// Ours.
pub struct Strongroom;

impl Strongroom {
    fn call(place: &Place) -> Invocation {
        let environment = variables([
            ("STRONGROOM_REPOSITORY", place.repository().into()),
            ("STRONGROOM_CACHE", place.cache().into()),
            ("STRONGROOM_PASSWORD_FILE", place.home.join("key").into()),
        ]);
        Invocation::new(&place.program).with(environment)
    }
}

impl Tool for Strongroom {
    fn name(&self) -> &'static str {
        "strongroom"
    }

    /// The default is what the program's help says.
    fn levels(&self, program: &Path) -> Vec<Level> {
        let help = Invocation::new(program).args(["backup", "--help"]).run().unwrap_or_default();
        let mut levels = match default_of(&help, "--compression").as_deref() {
            Some("3") => vec![level("zstd 3", &[], true, true)],
            default => vec![
                level(
                    match default {
                        Some("auto") => "auto",
                        Some("4") => "zstd 4",
                        _ => "its default",
                    },
                    &[],
                    true,
                    false,
                ),
                level("zstd 3", &["--compression", "3"], false, true),
            ],
        };
        if help.contains(" --stages") {
            levels.iter_mut().for_each(|level| level.flags.push("--stages"));
        }
        levels
    }

    fn profile(&self, said: &str) -> Option<String> {
        said.lines().rev().find(|line| line.starts_with(STAGES)).map(str::to_owned)
    }

    fn note(&self) -> Option<&'static str> {
        Some("its passphrase is drawn at random (`key generate`), as bupstash's key is")
    }

    fn init(&self, place: &Place) -> Vec<Invocation> {
        let key = Self::call(place).args(["--quiet", "key", "generate"]);
        vec![key.arg(place.home.join("key")), Self::call(place).args(["--quiet", "init"])]
    }

    fn backup(&self, place: &Place, source: &Path, label: &str) -> Invocation {
        let call = Self::call(place).args(["backup", "--label", label]);
        call.args(&place.level.flags).arg(source)
    }

    fn restore(
        &self,
        place: &Place,
        source: &Path,
        snapshot: &SnapshotLabel,
        target: &Path,
    ) -> Invocation {
        let what = match snapshot.newer {
            0 => format!("latest:{}", source.display()),
            newer => format!("latest~{newer}:{}", source.display()),
        };
        Self::call(place).args(["--quiet", "restore", &what, "--target"]).arg(target)
    }

    fn verify(&self, place: &Place, _newest: &SnapshotLabel) -> Invocation {
        Self::call(place).args(["--quiet", "verify", "--data"])
    }

    fn prune(&self, place: &Place, _labels: &[String]) -> Vec<Invocation> {
        vec![
            Self::call(place).args(["--quiet", "forget", "--keep-last", "1"]),
            Self::call(place).args(["--quiet", "prune"]),
        ]
    }

    fn names(&self, place: &Place, labels: &[String]) -> Done<Vec<String>> {
        let said = Self::call(place).args(["--json", "snapshots"]).run()?;
        let listed: Vec<serde_json::Value> =
            said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        names_in(&listed, ["labels", "id"], labels)
    }

    fn forget(&self, place: &Place, names: &[String]) -> Option<Invocation> {
        Some(Self::call(place).args(["--quiet", "forget"]).args(names))
    }

    fn free(&self, place: &Place) -> Option<Invocation> {
        Some(Self::call(place).args(["--quiet", "prune"]))
    }

    fn free_all(&self, place: &Place) -> Option<Invocation> {
        Some(Self::call(place).args(["--quiet", "prune", "--max-unused", "0"]))
    }

    fn fragmentation(&self, place: &Place) -> Option<Invocation> {
        Some(Self::call(place).args(["--json", "stats", "--fragmentation"]))
    }

    fn gather(&self, place: &Place) -> Option<Invocation> {
        Some(Self::call(place).args(["--quiet", "prune", "--defragment"]))
    }
}

fn level(says: &'static str, flags: &[&'static str], is_default: bool, is_equal: bool) -> Level {
    Level { says, flags: flags.to_vec(), is_default, is_equal }
}

/// What a help text calls the default of a flag.
fn default_of(help: &str, flag: &str) -> Option<String> {
    let behind = &help[help.find(flag)? + flag.len()..];
    let own = behind.find("\n      --").map_or(behind, |end| &behind[..end]);
    let words: Vec<&str> = own.split_whitespace().collect();
    let joined = words.join(" ");
    let (_, default) = joined.split_once("[default: ")?;
    default.split_once(']').map(|(value, _)| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_a_line() {
        let said = "snapshot 1\nstages busy: read 9 %; bottleneck: read\n";
        let line = Strongroom.profile(said);
        assert_eq!(line.as_deref(), Some("stages busy: read 9 %; bottleneck: read"));
        assert_eq!(Strongroom.profile("snapshot 1"), None);
    }

    #[test]
    fn the_default_is_in_the_help() {
        let help = "      --compression <LEVEL>  How hard to compress\n              \
                    [default:\n      3]\n      --threads <COUNT>  Threads [default: 4]\n";
        assert_eq!(default_of(help, "--compression").as_deref(), Some("3"));
        assert_eq!(default_of(help, "--threads").as_deref(), Some("4"));
        assert_eq!(default_of(help, "--other"), None);
        assert_eq!(
            default_of("      --compression\n      --x [default: 1]", "--compression"),
            None
        );
    }
}
