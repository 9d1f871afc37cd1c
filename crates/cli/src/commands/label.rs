//! `strongroom label`

use std::ffi::OsString;
use std::process::ExitCode;

use serde_json::json;
use strongroom_base::units::counted;
use strongroom_repository::{change_remark, list_snapshots};

use super::storing::parse_label;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::snapshot_arg::{NarrowingArgs, find_also_forgotten};

/// What is changed.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// These snapshots
    #[arg(value_name = "SNAPSHOT", required = true)]
    snapshots: Vec<OsString>,
    #[command(flatten)]
    change: Change,
    #[command(flatten)]
    narrowing: NarrowingArgs,
}

/// At least one change
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = true)]
struct Change {
    /// Add this label; can be given several times
    #[arg(long, value_name = "TEXT", value_parser = parse_label)]
    add: Vec<String>,
    /// Remove this label; can be given several times
    #[arg(long, value_name = "TEXT")]
    remove: Vec<String>,
    /// Have this label and no other; can be given several times, and '' alone means none
    #[arg(long, value_name = "TEXT", value_parser = parse_label,
        conflicts_with_all = ["add", "remove"])]
    set: Vec<String>,
    /// What the snapshots are; '' removes it
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

impl Change {
    fn labels(&self, old: &[String]) -> Option<Vec<String>> {
        if self.set.is_empty() && self.add.is_empty() && self.remove.is_empty() {
            return None;
        }
        let old = if self.set.is_empty() { old } else { &[] };
        let mut labels: Vec<String> = Vec::new();
        for label in old.iter().chain(&self.set).chain(&self.add) {
            if !label.is_empty() && !self.remove.contains(label) && !labels.contains(label) {
                labels.push(label.clone());
            }
        }
        Some(labels)
    }
}

/// Changes it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let repository = context.open()?;
    let list = list_snapshots(&repository)?;
    let named = find_also_forgotten(&args.snapshots, &args.narrowing, &list)?;
    let mut changed = Vec::new();
    for snapshot in &named {
        let is_changed = change_remark(&repository, snapshot.id, |remark| {
            // What another process has just set counts, if there is something.
            let old = remark.labels.as_ref().unwrap_or(&snapshot.labels);
            let labels = args.change.labels(old).filter(|labels| labels != old);
            let description = args.change.description.as_ref();
            let description = description.filter(|text| **text != remark.description);
            if let Some(labels) = labels {
                remark.labels = Some(labels);
            }
            if let Some(description) = description {
                remark.description.clone_from(description);
            }
        })?;
        if is_changed {
            changed.push(snapshot.id.to_string());
        }
    }
    context.terminal.json(&json!({ "event": "summary", "changed": changed }))?;
    let changed = counted(changed.len() as u64, "snapshot", "snapshots");
    context.terminal.line(format!("{changed} changed"))?;
    Ok(Exit::Done.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_added_removed_and_set() {
        let texts = |text: &str| -> Vec<String> {
            text.split(' ').filter(|text| !text.is_empty()).map(str::to_owned).collect()
        };
        for (add, remove, set, expected) in [
            ("c", "", "", Some("a b c")),
            ("a", "b", "", Some("a")),
            ("", "x", "", Some("a b")),
            ("", "", "z y z", Some("z y")),
            ("", "", "", None),
        ] {
            let [add, remove, set] = [add, remove, set].map(texts);
            let change = Change { add, remove, set, description: None };
            assert_eq!(change.labels(&texts("a b")), expected.map(texts));
        }
        let none = Change {
            add: Vec::new(),
            remove: Vec::new(),
            set: vec![String::new()],
            description: None,
        };
        assert_eq!(none.labels(&texts("a b")), Some(Vec::new()));
    }
}
