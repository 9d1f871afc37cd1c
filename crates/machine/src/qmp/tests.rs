//! Monitors that are slow, that lie, and that go away.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;

use super::*;

const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 1, "minor": 2, "major": 7}, "package": "D"}, "capabilities": []}}"#;

/// A monitor that greets, and answers each line by `answer`, which is given the number of it.
fn monitor(
    greeting: impl Into<String>,
    answer: impl Fn(u64) -> String + Send + 'static,
) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("qmp");
    let listener = UnixListener::bind(&socket).unwrap();
    let greeting = greeting.into();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = writeln!(stream, "{greeting}");
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        for (line, number) in lines.zip(1..) {
            if line.is_err() || writeln!(stream, "{}", answer(number)).is_err() {
                return;
            }
        }
    });
    (folder, socket)
}

const SHORT: Duration = Duration::from_millis(100);

fn answers(number: u64) -> String {
    match number {
        1 => r#"{"return": {}, "id": 1}"#.to_owned(),
        2 => concat!(r#"{"event": "STOP", "timestamp": {}}"#, r#"{"return": [5], "id": 2}"#)
            .to_owned(),
        3 => r#"{"error": {"class": "DeviceNotFound", "desc": "no x"}, "id": 3}"#.to_owned(),
        4 => String::new(),
        5 => r#"{"return": 4, "id": 4}{"return": 5, "id": 5}"#.to_owned(),
        _ => r#"{"error": {"class": "GenericError", "desc": "JSON parse error"}}"#.to_owned(),
    }
}

#[test]
fn answers_belong_to_commands() {
    let (_folder, socket) = monitor(GREETING, answers);
    let qmp = Qmp::connect(&socket, COMMAND_LIMIT).unwrap();
    assert_eq!((qmp.version(), qmp.package()), ((7, 2, 1), "D"));
    assert_eq!(qmp.execute("a", Value::Null).unwrap(), json!([5]));
    assert_eq!(qmp.take_events(), [Event { name: "STOP".to_owned(), data: Value::Null }]);
    let refused = qmp.execute("b", json!({"x": 1})).unwrap_err();
    assert_eq!(refused.to_string(), "QEMU refused b: no x");
    let late = qmp.execute_within("c", Value::Null, SHORT).unwrap_err();
    assert!(matches!(&late, QmpError::Unanswered { error: Unanswered::TimedOut(_), .. }));
    assert_eq!(qmp.execute("d", Value::Null).unwrap(), json!(5), "the late answer is skipped");
    let broken = qmp.execute("e", Value::Null).unwrap_err();
    assert!(broken.to_string().contains("JSON parse error"), "{broken}");
    assert!(qmp.execute("f", Value::Null).unwrap_err().is_gone());
}

#[test]
fn what_is_no_monitor_is_refused() {
    let missing = Qmp::connect(Path::new("/does/not/exist"), SHORT).unwrap_err();
    assert!(missing.is_gone(), "{missing}");
    for greeting in ["{}", "[1,2]", "{\"QMP\": 3}", "{]", "{\"QMP\":{\"version\":{\"qemu\":1}}}"] {
        let (_folder, socket) = monitor(greeting, |_| String::new());
        let error = Qmp::connect(&socket, SHORT).unwrap_err();
        assert!(matches!(error, QmpError::NotQmp { .. }), "{greeting}: {error}");
    }
    let (_folder, socket) = monitor("", |_| String::new());
    let error = Qmp::connect(&socket, SHORT).unwrap_err();
    assert!(error.to_string().contains("a second monitor"), "{error}");
}

#[test]
fn what_was_meant_for_the_client_before_is_passed_over() {
    for rest in [
        r#"{"event": "STOP", "data": {}}"#,
        r#"{"return": {}, "id": 7}"#,
        r#"a string { that [ never ends, "id": 7}"#,
        r#"ends here", "QMP": {"a": "\"}, "id": 7}"#,
        "]}}\"",
    ] {
        let (_folder, socket) = monitor(format!("{rest}\r\n{GREETING}"), answers);
        let qmp = Qmp::connect(&socket, COMMAND_LIMIT).unwrap();
        assert_eq!(qmp.version(), (7, 2, 1), "{rest}");
    }
}

#[test]
fn a_monitor_that_floods_is_left() {
    let (_folder, socket) = monitor(GREETING, |number| match number {
        1 => r#"{"return": {}, "id": 1}"#.to_owned(),
        _ => "{\"event\":\"X\"}\n".repeat(200_000),
    });
    let qmp = Qmp::connect(&socket, COMMAND_LIMIT).unwrap();
    let error = qmp.execute("a", Value::Null).unwrap_err();
    assert!(error.to_string().contains("without end"), "{error}");
    assert_eq!(qmp.take_events().len(), EVENTS_MAX);
}
