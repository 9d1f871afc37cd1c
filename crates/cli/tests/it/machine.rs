//! What programs read.

use std::fs;

use serde_json::Value;

use crate::world::World;

/// Every line is an object that says what it is.
#[track_caller]
fn events(text: &str) -> Vec<Value> {
    let parse = |line: &str| -> Value {
        let value: Value = serde_json::from_str(line).expect(line);
        assert!(value["event"].is_string(), "{line}");
        value
    };
    text.lines().map(parse).collect()
}

#[test]
fn every_line_is_an_event() {
    let world = World::empty();
    fs::create_dir(world.tree()).unwrap();
    fs::write(world.tree().join("a\nb"), "text").unwrap();
    let tree = world.tree().display().to_string();
    let out = world.path("out").display().to_string();
    let file = world.path("new");
    fs::write(&file, "new passphrase").unwrap();
    let commands = [
        "init --kdf-memory 32KiB".to_owned(),
        format!("backup {tree}"),
        format!("backup --force --dry-run -v {tree}"),
        format!("backup --label x {tree}"),
        "snapshots".to_owned(),
        "ls -R latest".to_owned(),
        "find *".to_owned(),
        "diff latest~1 latest".to_owned(),
        "diff latest".to_owned(),
        format!("restore -v latest --target {out}"),
        "verify".to_owned(),
        "verify --data --keyless".to_owned(),
        "repair --dry-run".to_owned(),
        "repair".to_owned(),
        "stats".to_owned(),
        "stats --snapshots".to_owned(),
        "key list".to_owned(),
        format!("key add --new-password-file {} --kdf-memory 8MiB", file.display()),
        "debug --help".to_owned(),
    ];
    for words in &commands[..commands.len() - 1] {
        let run = world.say(&format!("--json {words}")).exits(0);
        assert!(run.err.is_empty(), "{words}: {}", run.err);
        assert!(!events(&run.out).is_empty(), "{words}");
    }
    let backup = world.say(&format!("--json backup {tree}")).summary();
    assert_eq!((&backup["files"], &backup["problems"]), (&Value::from(1), &Value::from(0)));
    assert_eq!(backup["files_unchanged"], Value::from(1));
}

#[test]
fn errors_are_events_too() {
    let world = World::empty();
    let run = world.say("--json snapshots").exits(6);
    let events = events(&run.out);
    assert_eq!((&events[0]["event"], &events[0]["exit"]), (&"error".into(), &6.into()));
    assert!(events[0]["hint"].is_string() && run.err.is_empty());
    // Where standard output is for the file, they go beside it.
    let run = world.say("--json cat latest:file").exits(6);
    assert!(run.out.is_empty() && run.err.starts_with('{'), "{}", run.err);
}

#[test]
fn quiet_is_quiet() {
    let world = World::with_tree(12);
    let tree = world.tree().display().to_string();
    for words in [
        format!("-q backup {tree}"),
        format!("-q backup --dry-run {tree}"),
        format!("-q restore latest --target {}", world.path("out").display()),
        "-q verify --data".to_owned(),
        "-q repair".to_owned(),
    ] {
        let run = world.say(&words).exits(0);
        assert_eq!((run.out.as_str(), run.err.as_str()), ("", ""), "{words}");
    }
    // Requested output is printed nevertheless.
    assert_eq!(world.say("-q snapshots").exits(0).out.lines().count(), 2);
}
