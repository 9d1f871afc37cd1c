//! Borg 1. Its default compression is lz4.

use std::path::{Path, PathBuf};

use super::{Level, PASSPHRASE, Place, SnapshotLabel, Tool, below, variables};
use crate::shell::Invocation;

/// Borg.
pub struct Borg;

impl Borg {
    fn call(place: &Place) -> Invocation {
        let environment = variables([
            ("BORG_REPO", place.repository().into()),
            ("BORG_BASE_DIR", place.cache().into()),
            ("BORG_PASSPHRASE", PASSPHRASE.into()),
            ("BORG_RELOCATED_REPO_ACCESS_IS_OK", "yes".into()),
        ]);
        Invocation::new(&place.program).with(environment)
    }
}

impl Tool for Borg {
    fn name(&self) -> &'static str {
        "borg"
    }

    fn levels(&self, _program: &Path) -> Vec<Level> {
        let level = |says, flags: &[&'static str], is_default| Level {
            says,
            flags: flags.to_vec(),
            is_default,
            is_equal: !is_default,
        };
        vec![level("lz4", &[], true), level("zstd 3", &["--compression", "zstd,3"], false)]
    }

    /// The fastest of its ciphers on machines without SHA instructions.
    fn init(&self, place: &Place) -> Vec<Invocation> {
        vec![Self::call(place).args(["init", "--encryption", "repokey-blake2"])]
    }

    fn backup(&self, place: &Place, source: &Path, label: &str) -> Invocation {
        let call = Self::call(place).arg("create").args(&place.level.flags);
        call.arg(format!("::{label}")).arg(source)
    }

    fn restore(
        &self,
        place: &Place,
        _source: &Path,
        snapshot: &SnapshotLabel,
        target: &Path,
    ) -> Invocation {
        let archive = format!("::{}", snapshot.label);
        Self::call(place).args(["extract", "--numeric-ids", &archive]).inside(target)
    }

    fn restored_at(&self, source: &Path, target: &Path) -> PathBuf {
        below(target, source)
    }

    fn verify(&self, place: &Place, _newest: &SnapshotLabel) -> Invocation {
        Self::call(place).args(["check", "--verify-data"])
    }

    fn prune(&self, place: &Place, _labels: &[String]) -> Vec<Invocation> {
        vec![
            Self::call(place).args(["prune", "--keep-last", "1"]),
            Self::call(place).arg("compact"),
        ]
    }

    fn forget(&self, place: &Place, names: &[String]) -> Option<Invocation> {
        let (first, others) = names.split_first()?;
        Some(Self::call(place).args(["delete", &format!("::{first}")]).args(others))
    }

    fn free(&self, place: &Place) -> Option<Invocation> {
        Some(Self::call(place).arg("compact"))
    }
}
