//! bupstash. It checks nothing by itself: reading the newest snapshot is the nearest that it has.

use std::path::Path;

use super::{Keeps, Level, Place, SnapshotLabel, Tool, variables};
use crate::shell::Invocation;

/// bupstash.
pub struct Bupstash;

impl Bupstash {
    fn call(place: &Place) -> Invocation {
        let environment = variables([
            ("BUPSTASH_REPOSITORY", place.repository().into()),
            ("BUPSTASH_KEY", place.home.join("key").into()),
            ("BUPSTASH_SEND_LOG", place.cache().join("send-log").into()),
            ("BUPSTASH_QUERY_CACHE", place.cache().join("query-cache").into()),
            ("XDG_CACHE_HOME", place.cache().into()),
        ]);
        Invocation::new(&place.program).with(environment)
    }
}

impl Tool for Bupstash {
    fn name(&self) -> &'static str {
        "bupstash"
    }

    fn levels(&self, _program: &Path) -> Vec<Level> {
        vec![Level { says: "zstd 3", flags: Vec::new(), is_default: true, is_equal: true }]
    }

    fn keeps(&self) -> Keeps {
        Keeps::ContentAndTimes
    }

    fn note(&self) -> Option<&'static str> {
        Some(
            "stores no extended attributes by default and restores no owners, so its restores \
             are compared by content, modes and times alone; its verify is reading the newest \
             snapshot",
        )
    }

    fn init(&self, place: &Place) -> Vec<Invocation> {
        let key = Self::call(place).args(["new-key", "--output"]).arg(place.home.join("key"));
        vec![key, Self::call(place).arg("init")]
    }

    fn backup(&self, place: &Place, source: &Path, label: &str) -> Invocation {
        let call = Self::call(place).args(["put", "--quiet"]).args(&place.level.flags);
        call.arg(format!("name={label}")).arg(source)
    }

    fn restore(
        &self,
        place: &Place,
        _source: &Path,
        snapshot: &SnapshotLabel,
        target: &Path,
    ) -> Invocation {
        let call = Self::call(place).args(["restore", "--quiet", "--into"]).arg(target);
        call.arg(format!("name={}", snapshot.label))
    }

    fn verify(&self, place: &Place, newest: &SnapshotLabel) -> Invocation {
        let name = format!("name={}", newest.label);
        let mut call = Self::call(place).args(["get", "--quiet", &name]);
        call.prints_content = true;
        call
    }

    fn prune(&self, place: &Place, labels: &[String]) -> Vec<Invocation> {
        let old = labels.iter().take(labels.len().saturating_sub(1));
        let mut calls: Vec<Invocation> = old
            .map(|label| Self::call(place).args(["rm", "--quiet", &format!("name={label}")]))
            .collect();
        calls.push(Self::call(place).args(["gc", "--quiet"]));
        calls
    }

    fn forget(&self, place: &Place, names: &[String]) -> Option<Invocation> {
        // Each word of a query is an argument.
        let mut query: Vec<String> = Vec::new();
        for name in names {
            query.extend((!query.is_empty()).then(|| "or".to_owned()));
            query.push(format!("name={name}"));
        }
        Some(Self::call(place).args(["rm", "--quiet", "--allow-many"]).args(query))
    }

    fn free(&self, place: &Place) -> Option<Invocation> {
        Some(Self::call(place).args(["gc", "--quiet"]))
    }
}
