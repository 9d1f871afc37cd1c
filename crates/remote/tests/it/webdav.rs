//! Folders of a real WebDAV server.

use strongroom_backend::{BackendError, ObjectName, Refusal, Trial, try_exclusive};
use strongroom_base::{SeededEntropy, Stopwatch};
use strongroom_testkit::conformance;
use strongroom_testkit::http_faults::{FaultyHttp, HttpFault};
use strongroom_testkit::servers::{Fault, wsgidav, wsgidav_tls, wsgidav_with};

use crate::{place, settings};

#[test]
fn a_folder_of_wsgidav_conforms() {
    let server = wsgidav();
    let settings = settings(server.variables());
    for path in ["", "/a folder/of mine/ü"] {
        let text = server.url(server.server.address, path);
        let backend = place(&text).create(&settings).unwrap();
        assert!(backend.holds_at_most("keys").unwrap());
        conformance::check(&*backend);
        assert!(!backend.holds_at_most("keys").unwrap());
        assert!(backend.holds_at_most("arenas").is_ok());
        let (from, to) = (ObjectName::new("arenas", "race"), ObjectName::new("copies", "a"));
        backend.copy(&from, &to).unwrap();
        assert_eq!(backend.size(&to).unwrap(), 1000);
        for folder in ["", "arenas", "copies"] {
            for info in backend.list(folder).unwrap() {
                backend.remove(&info.name).unwrap();
            }
            let _ = std::fs::remove_dir(server.data().join(folder));
        }
    }
    assert!(
        place(&server.url(server.server.address, "/no/such")).open(&settings).unwrap().is_none()
    );
}

#[test]
fn one_of_many_creators_wins_where_looking_and_moving_are_two_steps() {
    let server = wsgidav_with(Fault::MovesLate);
    let text = server.url(server.server.address, "/a");
    // Each has its own connections, as other programs have.
    let backends: Vec<_> =
        (0..4).map(|_| place(&text).create(&settings(server.variables())).unwrap()).collect();
    for round in 0..5 {
        let name = ObjectName::new("snapshots", format!("{round}"));
        let created = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8_u8)
                .map(|creator| {
                    let (backend, name) = (&backends[usize::from(creator) % 4], &name);
                    scope.spawn(move || backend.create(name, &[creator]))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let winners: Vec<_> = (0..8_u8).filter(|at| created[usize::from(*at)].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{created:?}");
        assert_eq!(backends[0].read(&name, 0, 10).unwrap(), winners);
    }
}

#[test]
fn a_server_without_locks_or_with_false_ones_is_not_exclusive() {
    for (fault, expected) in [
        (Fault::None, Trial::Exclusive),
        (Fault::ForgetsLocks, Trial::NotExclusive),
        (Fault::LocksNothing, Trial::NotExclusive),
        (Fault::LocksLate, Trial::NotExclusive),
        (Fault::LocksLong, Trial::NotExclusive),
    ] {
        let server = wsgidav_with(fault);
        let text = server.url(server.server.address, "/a");
        let backend = place(&text).create(&settings(server.variables())).unwrap();
        let found = try_exclusive(&*backend, &SeededEntropy::new(1)).unwrap();
        assert_eq!(found, expected, "{fault:?}");
        assert_eq!(backend.list("trial").unwrap(), []);
        // At most the file that is locked, and the folder of the trial.
        let left = std::fs::read_dir(server.data().join("a")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(backend.holds_at_most("trial").unwrap(), "{fault:?}: {left:?}");
    }
}

#[test]
fn the_lock_of_a_client_that_died_ends() {
    let server = wsgidav();
    let text = server.url(server.server.address, "");
    let backend = place(&text).create(&settings(server.variables())).unwrap();
    let password = &server.variables()[0].1;
    let lock = std::process::Command::new("python3")
        .args(["-c", LOCK, &server.server.address.to_string(), password])
        .status();
    assert!(lock.unwrap().success());
    let began = Stopwatch::start();
    backend.create(&ObjectName::new("snapshots", "one"), b"1").unwrap();
    let waited = began.elapsed().as_secs_f64();
    assert!((1.0..10.0).contains(&waited), "{waited} s");
}

/// Takes the lock for two seconds, and dies.
const LOCK: &str = r#"
import base64, http.client, sys
server = http.client.HTTPConnection(sys.argv[1])
body = ('<lockinfo xmlns="DAV:"><lockscope><exclusive/></lockscope>'
        '<locktype><write/></locktype></lockinfo>')
password = base64.b64encode(b'me:' + sys.argv[2].encode()).decode()
headers = {'Depth': '0', 'Timeout': 'Second-2', 'Content-Type': 'application/xml',
           'Authorization': 'Basic ' + password}
server.request('LOCK', '/.lock', body, headers)
sys.exit(server.getresponse().status != 201)
"#;

#[test]
fn a_folder_behind_tls_is_reached_with_its_own_authority_only() {
    let server = wsgidav_tls();
    let text = server.url(server.server.address, "/a");
    let mut variables = server.variables();
    let backend = place(&text).create(&settings(variables.clone())).unwrap();
    backend.create(&ObjectName::top("one"), b"1").unwrap();
    assert_eq!(backend.list("").unwrap().len(), 1);
    variables.pop();
    assert_eq!(refusal(&text, &variables), Refusal::Identity);
}

#[test]
fn what_is_wrong_with_a_folder_is_named() {
    let server = wsgidav();
    let address = server.server.address;
    let right = server.variables();
    let wrong = [("WEBDAV_PASSWORD".to_owned(), "wrong".to_owned())];
    assert_eq!(refusal(&server.url(address, ""), &wrong), Refusal::Credentials);
    assert_eq!(refusal(&server.url(address, ""), &[]), Refusal::NoCredentials);
    assert_eq!(refusal(&format!("webdav://{address}/a"), &right), Refusal::NoCredentials);
    let backend = place(&server.url(address, "/a")).create(&settings(right)).unwrap();
    std::fs::create_dir_all(server.data().join("a/arenas/folder")).unwrap();
    assert_eq!(backend.list("arenas").unwrap().len(), 1);
    let folder = ObjectName::new("arenas", "folder");
    assert!(backend.size(&folder).unwrap_err().is_unreadable());
    let taken = backend.create(&folder, b"x");
    assert!(matches!(taken, Err(BackendError::AlreadyExists { .. })), "{taken:?}");
    let left = std::fs::read_dir(server.data().join("a/arenas")).unwrap().count();
    assert_eq!(left, 1, "a temporary file was left");
}

/// A server removes a collection with all that is in it, if it is asked to.
#[test]
fn a_folder_in_the_place_of_an_object_stays_with_what_is_in_it() {
    let server = wsgidav();
    let text = server.url(server.server.address, "/a");
    let backend = place(&text).create(&settings(server.variables())).unwrap();
    let (name, object) = (ObjectName::new("arenas", "folder"), ObjectName::new("arenas", "one"));
    let file = server.data().join("a/arenas/folder/letter");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, b"to a friend").unwrap();
    backend.create(&object, b"1").unwrap();
    for (what, outcome) in [
        ("size", backend.size(&name).map(drop)),
        ("read", backend.read(&name, 0, 10).map(drop)),
        ("read far", backend.read(&name, 100_000, 10).map(drop)),
        ("remove", backend.remove(&name)),
        ("discard", backend.discard(&name)),
        ("replace", backend.replace(&name, b"x")),
        ("copy to", backend.copy(&object, &name)),
        ("copy from", backend.copy(&name, &ObjectName::new("arenas", "two"))),
    ] {
        let error = outcome.expect_err(what);
        assert!(error.is_directory(), "{what}: {error:?}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"to a friend");
    let left = std::fs::read_dir(server.data().join("a/arenas")).unwrap().count();
    assert_eq!(left, 2, "a temporary file was left");
}

/// Other servers answer a GET of a collection by the address with a slash at its end.
#[test]
fn a_redirection_to_a_folder_is_no_reason_to_stop() {
    let server = wsgidav();
    let before = FaultyHttp::start(Some(server.server.address), |asked| match &*asked.method {
        "GET" => {
            let location = vec![("location", format!("{}/", asked.target))];
            HttpFault::Instead(301, location, String::new())
        }
        _ => HttpFault::None,
    });
    let text = server.url(before.address, "/a");
    let backend = place(&text).create(&settings(server.variables())).unwrap();
    std::fs::create_dir_all(server.data().join("a/arenas/folder")).unwrap();
    let name = ObjectName::new("arenas", "folder");
    assert!(backend.read(&name, 0, 10).unwrap_err().is_directory());
    // Of an object it is one: the address is wrong.
    let object = ObjectName::new("arenas", "one");
    backend.create(&object, b"1").unwrap();
    let refused = backend.read(&object, 0, 1);
    let expected =
        matches!(&refused, Err(BackendError::Refused { refusal: Refusal::NoSuchPlace, .. }));
    assert!(expected, "{refused:?}");
}

fn refusal(text: &str, variables: &[(String, String)]) -> Refusal {
    match place(text).open(&settings(variables.to_vec())) {
        Err(BackendError::Refused { refusal, answer, .. }) => {
            assert!(!answer.contains("wrong"), "{answer}");
            refusal
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("{text} was opened"),
    }
}
