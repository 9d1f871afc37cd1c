//! The tables of docs/json.md, from docs/json.schema.json.

use serde_json::{Map, Value};

/// Where the events are explained.
pub const DOCUMENT: &str = "docs/json.md";
/// What they are made from.
pub const SCHEMA: &str = "docs/json.schema.json";
/// Behind this line, all is made.
const MARK: &str = "<!-- Made by `cargo xtask json-docs`. -->";

/// The titles of the parts.
const EVENTS: &str = "Events";
const ENDS: &str = "Plans and summaries";
const NOTICES: &str = "Notices to webhooks";

/// The document with its tables as the schema has them.
///
/// # Errors
///
/// If the schema is not JSON, or has no definitions.
pub fn document(before: &str, schema: &str) -> Result<String, String> {
    let schema: Value = serde_json::from_str(schema).map_err(|error| error.to_string())?;
    let definitions = schema["$defs"].as_object().ok_or("it has no $defs")?;
    let by_hand = before.split(MARK).next().unwrap_or_default().trim_end();
    let mut text = format!("{by_hand}\n\n{MARK}\n");
    for title in [EVENTS, ENDS, NOTICES] {
        text.push_str(&format!("\n## {title}\n"));
        for (name, definition) in definitions.iter().filter(|(name, _)| part_of(name) == title) {
            text.push_str(&format!("\n### {}\n\n{}\n", title_of(name), said(definition)));
            let mut rows = Vec::new();
            add_rows(&mut rows, "", definition);
            if !rows.is_empty() {
                text.push_str("\n| field | type | meaning |\n|---|---|---|\n");
                text.extend(rows);
            }
        }
    }
    Ok(text)
}

/// In which part a definition is.
fn part_of(name: &str) -> &'static str {
    match name {
        "notice" => NOTICES,
        name if name.contains(" of ") => ENDS,
        _ => EVENTS,
    }
}

fn title_of(name: &str) -> String {
    match name.split_once(" of ") {
        Some((event, command)) => format!("`{event}` of `{command}`"),
        None => format!("`{name}`"),
    }
}

fn said(value: &Value) -> &str {
    value["description"].as_str().unwrap_or_default()
}

/// A row for each field, and for the fields of the objects in it.
fn add_rows(rows: &mut Vec<String>, path: &str, object: &Value) {
    let fields = object["properties"].as_object().cloned().unwrap_or_else(Map::new);
    let is_required = |name: &str| {
        object["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name))
    };
    for (name, field) in &fields {
        let is_of_all = path.is_empty() && matches!(name.as_str(), "event" | "command");
        if is_of_all {
            continue;
        }
        let missing = if is_required(name) { "" } else { "; can be missing" };
        let words = said(field);
        rows.push(format!("| `{path}{name}` | {}{missing} | {words} |\n", type_of(field)));
        for inner in [field, &field["items"], &field["anyOf"][0]] {
            if inner["properties"].is_object() {
                let list = if inner == &field["items"] { "[]" } else { "" };
                add_rows(rows, &format!("{path}{name}{list}."), inner);
            }
        }
    }
}

fn type_of(field: &Value) -> String {
    if let Some(choices) = field["enum"].as_array() {
        let texts: Vec<String> = choices.iter().map(|choice| format!("`{choice}`")).collect();
        return texts.join(", ");
    }
    if let Some(all) = field["anyOf"].as_array() {
        return all.iter().map(type_of).collect::<Vec<_>>().join(" or ");
    }
    let one = |name: &str| match name {
        "array" => format!("list of {}", type_of(&field["items"])),
        "integer" => "whole number".to_owned(),
        "boolean" => "true or false".to_owned(),
        "string" if field["format"] == "date-time" => "time".to_owned(),
        "string" if field["pattern"].is_string() => "digits".to_owned(),
        "string" => "text".to_owned(),
        name => name.to_owned(),
    };
    match &field["type"] {
        Value::Array(names) => {
            names.iter().filter_map(Value::as_str).map(one).collect::<Vec<_>>().join(" or ")
        }
        name => one(name.as_str().unwrap_or("any")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_a_row() {
        let schema = r#"{"$defs": {"summary of a b": {"description": "All.", "required": ["event", "list"],
            "properties": {"event": {"const": "summary"}, "list": {"type": "array", "description": "Them.",
            "items": {"required": [], "properties": {"end": {"type": ["string", "null"],
            "format": "date-time", "description": "When."}}}}}}}}"#;
        let text = document("# Title\n", schema).unwrap();
        for part in [
            "# Title\n\n<!-- Made",
            "### `summary` of `a b`\n\nAll.\n",
            "| `list` | list of any | Them. |\n",
            "| `list[].end` | time or null; can be missing | When. |\n",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        assert_eq!(document(&text, schema).unwrap(), text);
    }
}
