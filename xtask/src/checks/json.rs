//! docs/json.md says what docs/json.schema.json says.

use super::Finding;
use crate::json_docs::{DOCUMENT, SCHEMA, document};
use crate::tree::Tree;

/// The tables are as `cargo xtask json-docs` makes them.
pub fn events_are_documented(tree: &Tree) -> Vec<Finding> {
    let (Some(text), Some(schema)) = (tree.text(DOCUMENT), tree.text(SCHEMA)) else {
        return Vec::new();
    };
    match document(text, schema) {
        Ok(expected) if expected == text => Vec::new(),
        Ok(_) => vec![Finding::new(DOCUMENT, 0, "`cargo xtask json-docs` makes another text")],
        Err(why) => vec![Finding::new(SCHEMA, 0, why)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_of_another_schema_is_found() {
        let schema = r#"{"$defs": {"a": {"description": "It is a."}}}"#;
        let right = document("", schema).unwrap();
        for (text, findings) in [(right.as_str(), 0), ("It is b.", 1)] {
            let tree = Tree::of(&[(DOCUMENT, text), (SCHEMA, schema)]);
            assert_eq!(events_are_documented(&tree).len(), findings, "{text}");
        }
    }
}
