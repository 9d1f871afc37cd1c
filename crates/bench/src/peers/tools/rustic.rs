//! rustic: restic's format, written in Rust. Its default compression is zstd's default, 3.

use std::path::Path;

use super::{Level, PASSPHRASE, Place, SnapshotLabel, Tool, variables};
use crate::shell::Invocation;

/// rustic.
pub struct Rustic;

impl Rustic {
    fn call(place: &Place) -> Invocation {
        let environment = variables([
            ("RUSTIC_REPOSITORY", place.repository().into()),
            ("RUSTIC_CACHE_DIR", place.cache().into()),
            ("RUSTIC_PASSWORD", PASSPHRASE.into()),
            ("RUSTIC_NO_PROGRESS", "true".into()),
        ]);
        Invocation::new(&place.program).with(environment)
    }
}

impl Tool for Rustic {
    fn name(&self) -> &'static str {
        "rustic"
    }

    fn levels(&self, _program: &Path) -> Vec<Level> {
        vec![Level { says: "zstd 3", flags: Vec::new(), is_default: true, is_equal: true }]
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
        source: &Path,
        snapshot: &SnapshotLabel,
        target: &Path,
    ) -> Invocation {
        let what = format!("latest:{}", source.display());
        let call = Self::call(place).args(["restore", "--filter-tags", &snapshot.label, &what]);
        call.arg(target)
    }

    fn verify(&self, place: &Place, _newest: &SnapshotLabel) -> Invocation {
        Self::call(place).args(["check", "--read-data"])
    }

    fn prune(&self, place: &Place, _labels: &[String]) -> Vec<Invocation> {
        vec![Self::call(place).args(["forget", "--keep-last", "1", "--prune"])]
    }
}
