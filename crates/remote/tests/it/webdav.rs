//! Folders of a real WebDAV server.

use strongroom_backend::{BackendError, ObjectName, Refusal};
use strongroom_testkit::conformance;
use strongroom_testkit::servers::{wsgidav, wsgidav_tls};

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
