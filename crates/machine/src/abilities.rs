//! What this QEMU can do, by its own schema.
//!
//! The schema is a list of types that name each other. It is asked for once, and only the few types
//! that matter are looked at.

use std::collections::HashMap;

use serde_json::Value;

use crate::error::MachineError;
use crate::qmp::Qmp;

/// Commands without which no disk can be read while the machine runs.
const COMMANDS: [&str; 10] = [
    "blockdev-add",
    "blockdev-del",
    "block-export-add",
    "block-export-del",
    "block-dirty-bitmap-add",
    "block-dirty-bitmap-remove",
    "nbd-server-start",
    "nbd-server-stop",
    "qom-set",
    "x-debug-query-block-graph",
];

/// What was found in a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// The FUSE export.
    pub has_fuse: bool,
}

impl Abilities {
    /// Asks QEMU.
    ///
    /// # Errors
    ///
    /// It lacks something without which no disk can be read while the machine runs.
    pub fn ask(qmp: &Qmp) -> Result<Self, MachineError> {
        let answer = qmp.execute("query-qmp-schema", Value::Null)?;
        Self::of_schema(&answer)
    }

    fn of_schema(schema: &Value) -> Result<Self, MachineError> {
        let types = schema.as_array().into_iter().flatten();
        let named = types.filter_map(|entry| Some((entry["name"].as_str()?, entry)));
        let schema = Schema(named.collect());
        if let Some(missing) = COMMANDS.into_iter().find(|name| !schema.has_command(name)) {
            return Err(MachineError::Unable { missing });
        }
        let filter = schema.variant("blockdev-add", "copy-before-write");
        let filter = filter.map(|entry| schema.members(entry)).unwrap_or_default();
        if !filter.contains(&"on-cbw-error") || !filter.contains(&"cbw-timeout") {
            return Err(MachineError::Unable { missing: "the filter copy-before-write" });
        }
        if schema.variant("blockdev-add", "snapshot-access").is_none() {
            return Err(MachineError::Unable { missing: "the node snapshot-access" });
        }
        let export = schema.variant("block-export-add", "nbd");
        if !export.is_some_and(|entry| schema.members(entry).contains(&"bitmaps")) {
            return Err(MachineError::Unable { missing: "NBD exports with bitmaps" });
        }
        Ok(Self { has_fuse: schema.variant("block-export-add", "fuse").is_some() })
    }
}

/// Types by name. Those that are no commands have numbers as names.
struct Schema<'a>(HashMap<&'a str, &'a Value>);

impl<'a> Schema<'a> {
    fn has_command(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|entry| entry["meta-type"] == "command")
    }

    /// The type of a command's arguments in one of its cases.
    fn variant(&self, command: &str, case: &str) -> Option<&'a Value> {
        let arguments = self.0.get(command)?["arg-type"].as_str()?;
        let variants = self.0.get(arguments)?["variants"].as_array()?;
        let variant = variants.iter().find(|variant| variant["case"] == case)?;
        self.0.get(variant["type"].as_str()?).copied()
    }

    fn members(&self, entry: &'a Value) -> Vec<&'a str> {
        let members = entry["members"].as_array().into_iter().flatten();
        members.filter_map(|member| member["name"].as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(filter_members: &[&str]) -> Value {
        let mut types: Vec<Value> =
            COMMANDS.iter().map(|name| json!({"name": name, "meta-type": "command"})).collect();
        types[0] = json!({"name": "blockdev-add", "meta-type": "command", "arg-type": "1"});
        types[2] = json!({"name": "block-export-add", "meta-type": "command", "arg-type": "3"});
        let members: Vec<Value> =
            filter_members.iter().map(|name| json!({"name": name, "type": "str"})).collect();
        types.extend([
            json!({"name": "1", "variants": [
                {"case": "copy-before-write", "type": "2"}, {"case": "snapshot-access", "type": "2"}
            ]}),
            json!({"name": "2", "members": members}),
            json!({"name": "3", "variants": [{"case": "nbd", "type": "4"}]}),
            json!({"name": "4", "members": [{"name": "bitmaps"}]}),
        ]);
        Value::Array(types)
    }

    #[test]
    fn what_is_missing_is_named() {
        let enough = Abilities::of_schema(&schema(&["on-cbw-error", "cbw-timeout"])).unwrap();
        assert_eq!(enough, Abilities { has_fuse: false });
        let error = Abilities::of_schema(&schema(&["bitmap"])).unwrap_err();
        assert!(error.to_string().contains("copy-before-write"), "{error}");
        for odd in [json!(null), json!([1, {"name": 2}]), json!({"name": "qom-set"}), json!([])] {
            assert!(matches!(Abilities::of_schema(&odd), Err(MachineError::Unable { .. })));
        }
    }
}
