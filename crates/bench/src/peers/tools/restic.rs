//! restic. Its default compression, `auto`, is what the library of its language calls zstd 3.

use std::path::{Path, PathBuf};

use super::{Level, PASSPHRASE, Place, SnapshotLabel, Tool, below, names_in, variables};
use crate::shell::{Done, Invocation};

/// restic.
pub struct Restic;

impl Restic {
    fn call(place: &Place) -> Invocation {
        let environment = variables([
            ("RESTIC_REPOSITORY", place.repository().into()),
            ("RESTIC_CACHE_DIR", place.cache().into()),
            ("RESTIC_PASSWORD", PASSPHRASE.into()),
        ]);
        Invocation::new(&place.program).with(environment).arg("--quiet")
    }
}

impl Tool for Restic {
    fn name(&self) -> &'static str {
        "restic"
    }

    fn version(&self) -> &'static [&'static str] {
        &["version"]
    }

    fn levels(&self, _program: &Path) -> Vec<Level> {
        vec![Level { says: "auto: zstd 3", flags: Vec::new(), is_default: true, is_equal: true }]
    }

    fn init(&self, place: &Place) -> Vec<Invocation> {
        vec![Self::call(place).arg("init")]
    }

    fn backup(&self, place: &Place, source: &Path, label: &str) -> Invocation {
        Self::call(place).args(["backup", "--tag", label]).args(&place.level.flags).arg(source)
    }

    fn restore(
        &self,
        place: &Place,
        _source: &Path,
        snapshot: &SnapshotLabel,
        target: &Path,
    ) -> Invocation {
        let tag = &snapshot.label;
        Self::call(place).args(["restore", "latest", "--tag", tag, "--target"]).arg(target)
    }

    fn restored_at(&self, source: &Path, target: &Path) -> PathBuf {
        below(target, source)
    }

    fn verify(&self, place: &Place, _newest: &SnapshotLabel) -> Invocation {
        Self::call(place).args(["check", "--read-data"])
    }

    fn prune(&self, place: &Place, _labels: &[String]) -> Vec<Invocation> {
        vec![Self::call(place).args(["forget", "--keep-last", "1", "--prune"])]
    }

    fn names(&self, place: &Place, labels: &[String]) -> Done<Vec<String>> {
        let said = Self::call(place).args(["snapshots", "--json"]).run()?;
        let listed: Vec<serde_json::Value> = serde_json::from_str(&said).unwrap_or_default();
        names_in(&listed, ["tags", "id"], labels)
    }

    fn forget(&self, place: &Place, names: &[String]) -> Option<Invocation> {
        Some(Self::call(place).arg("forget").args(names))
    }

    fn free(&self, place: &Place) -> Option<Invocation> {
        Some(Self::call(place).arg("prune"))
    }
}
