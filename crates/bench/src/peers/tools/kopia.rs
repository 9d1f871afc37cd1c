//! Kopia. Its default is no compression at all; it is measured with zstd named, which in its
//! library is zstd 3.

use std::path::Path;

use super::{Level, PASSPHRASE, Place, SnapshotLabel, Tool, variables};
use crate::shell::Invocation;

/// Kopia.
pub struct Kopia;

impl Kopia {
    fn call(place: &Place) -> Invocation {
        let environment = variables([
            ("KOPIA_CONFIG_PATH", place.home.join("config").into()),
            ("KOPIA_CACHE_DIRECTORY", place.cache().into()),
            ("KOPIA_LOG_DIR", place.cache().into()),
            ("KOPIA_PASSWORD", PASSPHRASE.into()),
            ("KOPIA_CHECK_FOR_UPDATES", "false".into()),
        ]);
        Invocation::new(&place.program).with(environment)
    }
}

impl Tool for Kopia {
    fn name(&self) -> &'static str {
        "kopia"
    }

    fn levels(&self, _program: &Path) -> Vec<Level> {
        vec![Level { says: "zstd, named", flags: Vec::new(), is_default: true, is_equal: true }]
    }

    fn note(&self) -> Option<&'static str> {
        Some("compresses nothing by default, so its policy names zstd")
    }

    fn init(&self, place: &Place) -> Vec<Invocation> {
        let create = ["repository", "create", "filesystem", "--path"];
        vec![
            Self::call(place).args(create).arg(place.repository()),
            Self::call(place).args(["policy", "set", "--global", "--compression=zstd"]),
        ]
    }

    fn backup(&self, place: &Place, source: &Path, label: &str) -> Invocation {
        let tag = format!("label:{label}");
        Self::call(place).args(["snapshot", "create", "--no-progress", "--tags", &tag]).arg(source)
    }

    /// It takes numbers of snapshots alone, so a shell asks it for them.
    fn restore(
        &self,
        place: &Place,
        source: &Path,
        snapshot: &SnapshotLabel,
        target: &Path,
    ) -> Invocation {
        let line = "id=$(\"$1\" snapshot list --tags \"label:$4\" --json \"$2\" | \
                    grep -o '\"id\":\"[0-9a-f]*\"' | tail -n 1 | cut -d '\"' -f 4); \
                    exec \"$1\" snapshot restore --no-progress \"$id\" \"$3\"";
        let mut call = Invocation::script(line, &[&place.program, source, target]);
        call.environment = Self::call(place).environment;
        call.arg(&snapshot.label)
    }

    fn verify(&self, place: &Place, _newest: &SnapshotLabel) -> Invocation {
        Self::call(place).args(["snapshot", "verify", "--verify-files-percent=100"])
    }

    fn prune(&self, place: &Place, _labels: &[String]) -> Vec<Invocation> {
        let keep = ["--keep-latest=1", "--keep-hourly=0", "--keep-daily=0", "--keep-weekly=0"];
        let keep_none = ["--keep-monthly=0", "--keep-annual=0"];
        vec![
            Self::call(place).args(["policy", "set", "--global"]).args(keep).args(keep_none),
            Self::call(place).args(["snapshot", "expire", "--all", "--delete"]),
            Self::call(place).args(["maintenance", "run", "--full", "--safety=none"]),
        ]
    }
}
