//! SFTP, on OpenSSH's own server.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use strongroom_backend::{BackendError, ObjectName, Refusal, read_all};
use strongroom_base::Stopwatch;
use strongroom_testkit::conformance;
use strongroom_testkit::relay::{LineOptions, Relay};
use strongroom_testkit::servers::sshd;

use crate::{place, settings};

#[test]
fn a_folder_behind_ssh_conforms() {
    let server = sshd(None);
    let folder = server.server.folder.path().join("a folder/of mine/ü");
    let settings = settings(server.variables());
    let text = server.url("sftp", server.server.address, &format!("/{}", folder.display()));
    assert!(place(&text).open(&settings).unwrap().is_none());
    let backend = place(&text).create(&settings).unwrap();
    assert!(backend.holds_at_most("keys").unwrap());
    conformance::check(&*backend);
    assert!(!backend.holds_at_most("keys").unwrap());
    let left = std::fs::read_dir(folder.join("arenas")).unwrap();
    let temporary = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(".tmp");
    assert_eq!(left.filter(|entry| temporary(&entry.as_ref().unwrap().file_name())).count(), 0);
    let large: Vec<u8> = (0..9_000_001_u32).map(|n| n as u8).collect();
    let name = ObjectName::new("arenas", "large");
    backend.create(&name, &large).unwrap();
    assert!(read_all(&*backend, &name).unwrap() == large);
    assert_eq!(backend.read(&name, 5, 100_000).unwrap(), large[5..100_005]);
    for number in 0..700 {
        std::fs::write(folder.join(format!("snapshots-{number}")), b"x").unwrap();
    }
    assert_eq!(backend.list("").unwrap().len(), 701);
}

#[test]
fn what_is_wrong_with_ssh_is_named() {
    let mut server = sshd(None);
    let address = server.server.address;
    let text = server.url("sftp", address, "//tmp");
    let right = server.variables();
    let with = |line: &str| vec![("STRONGROOM_SSH".to_owned(), line.to_owned())];
    let right_line = right[0].1.clone();
    assert_eq!(refusal(&text, &with("/no/such/ssh")), Refusal::Other);
    let wrong_key = right_line.replace("/user", "/no-such-key");
    assert_eq!(refusal(&text, &with(&wrong_key)), Refusal::Credentials);
    let nowhere = "sftp://no-such-host.invalid/x";
    assert_eq!(refusal(nowhere, &right), Refusal::NoSuchPlace);
    let unknown = right_line.replace("/known", "/unknown");
    assert_eq!(refusal(&text, &with(&unknown)), Refusal::Identity);
    server.change_host_key();
    assert_eq!(refusal(&text, &right), Refusal::Identity);
    // A program that speaks something else, and one that says nothing at all.
    let stranger = refusal_or_lost(&text, &with("echo hello"));
    assert!(stranger.contains("sftp://"), "{stranger}");
    refusal_or_lost(&text, &with("true"));
}

#[test]
fn an_object_that_is_no_file_is_unreadable() {
    let server = sshd(None);
    let folder = server.server.folder.path().join("place");
    let text = server.url("sftp", server.server.address, &format!("/{}", folder.display()));
    let backend = place(&text).create(&settings(server.variables())).unwrap();
    std::fs::create_dir_all(folder.join("arenas/folder")).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(backend.list("arenas").unwrap().len(), 1);
    let name = ObjectName::new("arenas", "folder");
    assert!(backend.size(&name).unwrap_err().is_unreadable());
    assert!(backend.read(&name, 0, 10).unwrap_err().is_unreadable());
    let taken = backend.create(&name, b"x");
    assert!(matches!(taken, Err(BackendError::AlreadyExists { .. })), "{taken:?}");
    let left = std::fs::read_dir(folder.join("arenas")).unwrap().count();
    assert_eq!(left, 1, "a temporary file was left");
}

#[test]
fn a_connection_that_is_cut_is_made_again() {
    let server = sshd(None);
    let relay = Relay::start(server.server.address, LineOptions::default());
    server.trust(relay.address);
    let folder = server.server.folder.path().join("place");
    let text = server.url("sftp", relay.address, &format!("/{}", folder.display()));
    let backend = place(&text).create(&settings(server.variables())).unwrap();
    let bytes = vec![1; 3 << 20];
    for number in 0..5 {
        let name = ObjectName::new("arenas", format!("a{number}"));
        std::thread::scope(|scope| {
            let creating = scope.spawn(|| backend.create(&name, &bytes));
            std::thread::sleep(Duration::from_millis(8 * number));
            relay.cut();
            creating.join().unwrap().unwrap();
        });
        assert!(read_all(&*backend, &name).unwrap() == bytes);
    }
}

#[test]
fn a_long_line_is_filled() {
    let server = sshd(None);
    let options = LineOptions { delay: Duration::from_millis(50), ..LineOptions::default() };
    let relay = Relay::start(server.server.address, options);
    server.trust(relay.address);
    let folder = server.server.folder.path().join("place");
    let text = server.url("sftp", relay.address, &format!("/{}", folder.display()));
    let backend = place(&text).create(&settings(server.variables())).unwrap();
    let bytes = vec![7; 16 << 20];
    let name = ObjectName::new("arenas", "a");
    backend.create(&name, &bytes).unwrap();
    let started = Stopwatch::start();
    assert!(read_all(&*backend, &name).unwrap() == bytes);
    // 512 requests of 100 ms each would take 51 s one after the other.
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn what_ssh_says_at_its_end_is_always_heard() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("ssh");
    let starts = folder.path().join("starts");
    let text = format!(
        "#!/bin/sh\necho x >> {}\necho 'Host key verification failed.' >&2\nexit 255\n",
        starts.display()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let variables = [("STRONGROOM_SSH".to_owned(), program.display().to_string())];
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(refusal("sftp://host/x", &variables), Refusal::Identity);
                }
            });
        }
    });
    // A refusal is not repeated: a second start means that it was taken for a lost connection.
    assert_eq!(std::fs::read_to_string(&starts).unwrap().lines().count(), 160);
}

fn refusal(text: &str, variables: &[(String, String)]) -> Refusal {
    match place(text).open(&settings(variables.to_vec())) {
        Err(BackendError::Refused { refusal, .. }) => refusal,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("{text} was opened"),
    }
}

fn refusal_or_lost(text: &str, variables: &[(String, String)]) -> String {
    match place(text).open(&settings(variables.to_vec())) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{text} was opened"),
    }
}
