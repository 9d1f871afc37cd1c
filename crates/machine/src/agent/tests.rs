//! Agents that are slow, hang, lie, and go away.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;

/// An agent whose file systems are this.
#[derive(Default)]
struct Guest {
    is_frozen: AtomicBool,
    thaws: AtomicU32,
}

/// How an agent behaves.
#[derive(Clone, Copy)]
struct Habit {
    /// How long it takes to freeze.
    freezing: Duration,
    /// It answers other things first.
    is_stale: bool,
    /// It closes its connection instead of answering to freeze.
    leaves: bool,
    refuses: bool,
}

const GOOD: Habit =
    Habit { freezing: Duration::ZERO, is_stale: false, leaves: false, refuses: false };

fn agent(habit: Habit) -> (tempfile::TempDir, PathBuf, Arc<Guest>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("agent");
    let listener = UnixListener::bind(&socket).unwrap();
    let guest = Arc::new(Guest::default());
    let inside = guest.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if habit.is_stale {
                let _ = stream.write_all(b"{\"return\":\"thawed\"}\xff{\"return\": 7}\n{\"ret");
            }
            let lines = BufReader::new(stream.try_clone().unwrap()).split(b'\n');
            for line in lines.map_while(Result::ok) {
                let start = line.iter().position(|&byte| byte == b'{').unwrap();
                let asked: Value = serde_json::from_slice(&line[start..]).unwrap();
                let answer = match asked["execute"].as_str().unwrap() {
                    "guest-sync-delimited" => {
                        let _ = stream.write_all(&[SENTINEL]);
                        asked["arguments"]["id"].clone()
                    }
                    "guest-fsfreeze-status" if inside.is_frozen.load(Ordering::SeqCst) => {
                        json!("frozen")
                    }
                    "guest-fsfreeze-status" => json!("thawed"),
                    "guest-fsfreeze-freeze" if habit.refuses => {
                        let error = json!({"error": {"class": "X", "desc": "disabled"}});
                        let _ = writeln!(stream, "{error}");
                        continue;
                    }
                    "guest-fsfreeze-freeze" => {
                        std::thread::sleep(habit.freezing);
                        inside.is_frozen.store(true, Ordering::SeqCst);
                        if habit.leaves {
                            break;
                        }
                        json!(3)
                    }
                    "guest-fsfreeze-thaw" => {
                        inside.is_frozen.store(false, Ordering::SeqCst);
                        inside.thaws.fetch_add(1, Ordering::SeqCst);
                        json!(3)
                    }
                    other => panic!("{other}"),
                };
                let _ = writeln!(stream, "{}", json!({"return": answer}));
            }
        }
    });
    (folder, socket, guest)
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_guest_is_frozen_and_thawed() {
    for is_stale in [false, true] {
        let (_folder, socket, guest) = agent(Habit { is_stale, ..GOOD });
        let freezer = Freezer::begin(&socket, LONG);
        assert_eq!(freezer.wait(LONG).unwrap(), 3);
        assert!(guest.is_frozen.load(Ordering::SeqCst));
        assert!(matches!(freezer.thaw(LONG), Thaw::Thawed));
        assert!(!guest.is_frozen.load(Ordering::SeqCst));
        drop(freezer);
        assert!(!thaw_if_frozen(&socket, LONG).unwrap());
        guest.is_frozen.store(true, Ordering::SeqCst);
        assert!(thaw_if_frozen(&socket, LONG).unwrap());
        assert_eq!(guest.thaws.load(Ordering::SeqCst), 2);
    }
}

#[test]
fn what_another_froze_stays_frozen() {
    let (_folder, socket, guest) = agent(GOOD);
    guest.is_frozen.store(true, Ordering::SeqCst);
    let freezer = Freezer::begin(&socket, LONG);
    assert!(matches!(freezer.wait(LONG), Err(AgentError::AlreadyFrozen)));
    assert!(matches!(freezer.thaw(LONG), Thaw::Thawed));
    assert_eq!(guest.thaws.load(Ordering::SeqCst), 0);
}

#[test]
fn a_slow_guest_is_thawed_later() {
    let (_folder, socket, guest) = agent(Habit { freezing: Duration::from_millis(800), ..GOOD });
    let limit = Duration::from_millis(200);
    let freezer = Freezer::begin(&socket, limit);
    let error = freezer.wait(LONG).unwrap_err();
    assert!(matches!(error, AgentError::TimedOut(_)), "{error}");
    assert!(matches!(freezer.thaw(Duration::ZERO), Thaw::Unknown));
    assert!(matches!(freezer.thaw(LONG), Thaw::Thawed));
    assert!(!guest.is_frozen.load(Ordering::SeqCst));
    assert_eq!(guest.thaws.load(Ordering::SeqCst), 1);
}

#[test]
fn an_agent_that_leaves_is_found_again() {
    let (_folder, socket, guest) = agent(Habit { leaves: true, ..GOOD });
    let freezer = Freezer::begin(&socket, LONG);
    assert!(matches!(freezer.wait(LONG), Err(AgentError::Unanswered { .. })));
    assert!(matches!(freezer.thaw(LONG), Thaw::Thawed));
    assert_eq!(guest.thaws.load(Ordering::SeqCst), 1);
}

#[test]
fn an_agent_that_is_none_changes_nothing() {
    let (_folder, socket, guest) = agent(Habit { refuses: true, ..GOOD });
    let error = Freezer::begin(&socket, LONG).wait(LONG).unwrap_err();
    assert_eq!(error.to_string(), "the guest agent refused guest-fsfreeze-freeze: disabled");
    assert_eq!(guest.thaws.load(Ordering::SeqCst), 0);

    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none");
    let freezer = Freezer::begin(&missing, LONG);
    assert!(matches!(freezer.wait(LONG), Err(AgentError::Connect { .. })));
    assert!(matches!(freezer.thaw(LONG), Thaw::Thawed));

    // The socket takes connections, and no agent is behind it.
    let deaf = folder.path().join("deaf");
    let _listener = UnixListener::bind(&deaf).unwrap();
    let freezer = Freezer::begin(&deaf, Duration::from_millis(50));
    let error = freezer.wait(LONG).unwrap_err();
    assert!(error.to_string().contains("is it running in the guest?"), "{error}");
}
