//! Containers of Azurite.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use strongroom_backend::{BackendError, ObjectName, Refusal};
use strongroom_remote::Settings;
use strongroom_testkit::conformance;
use strongroom_testkit::servers::azurite;

use crate::{place, settings};

#[test]
fn a_container_of_azurite_conforms() {
    let server = azurite();
    let settings = settings(server.variables(server.server.address));
    assert!(place("azblob://container").open(&settings).unwrap().is_none());
    for text in ["azblob://container", "azblob://container/a folder/of mine/ü"] {
        let backend = place(text).create(&settings).unwrap();
        assert!(backend.holds_at_most("keys").unwrap());
        conformance::check(&*backend);
        assert!(!backend.holds_at_most("keys").unwrap());
        assert_eq!(backend.describe(), text);
        let (from, to) = (ObjectName::new("arenas", "race"), ObjectName::new("copies", "a"));
        backend.copy(&from, &to).unwrap();
        assert_eq!(backend.size(&to).unwrap(), 1000);
        for folder in ["", "arenas", "copies"] {
            for info in backend.list(folder).unwrap() {
                backend.remove(&info.name).unwrap();
            }
        }
    }
}

#[test]
fn listings_of_several_pages_are_whole() {
    let server = azurite();
    let settings = settings(server.variables(server.server.address));
    let backend = place("azblob://container").create(&settings).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let backend = &backend;
            scope.spawn(move || {
                for number in (thread..5100).step_by(8) {
                    backend.create(&ObjectName::new("keys", format!("{number:05}")), b"").unwrap();
                }
            });
        }
    });
    let names: Vec<_> =
        backend.list("keys").unwrap().iter().map(|info| info.name.to_string()).collect();
    let wanted: Vec<_> = (0..5100).map(|number| format!("keys/{number:05}")).collect();
    assert_eq!(names, wanted);
}

#[test]
fn what_is_wrong_with_a_container_is_named() {
    let server = azurite();
    let right = server.variables(server.server.address);
    place("azblob://container").create(&settings(right.clone())).unwrap();
    let refusal = |changed: &str, value: &str| {
        let mut variables = right.clone();
        variables
            .iter_mut()
            .filter(|(name, _)| name == changed)
            .for_each(|(_, v)| *v = value.into());
        match place("azblob://container").open(&settings(variables)) {
            Err(BackendError::Refused { refusal, .. }) => refusal,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("the container was opened"),
        }
    };
    assert_eq!(refusal("AZURE_STORAGE_KEY", "d3Jvbmc="), Refusal::Credentials);
    assert_eq!(refusal("AZURE_STORAGE_KEY", ""), Refusal::NoCredentials);
}

#[test]
fn a_token_lets_in_as_far_as_it_says() {
    let server = azurite();
    let right = server.variables(server.server.address);
    place("azblob://container").create(&settings(right.clone())).unwrap();
    let with = |rights: &str, until: &str| -> Settings {
        let mut variables: Vec<_> =
            right.iter().filter(|(name, _)| name != "AZURE_STORAGE_KEY").cloned().collect();
        let value = |wanted: &str| right.iter().find(|(name, _)| name == wanted).unwrap().1.clone();
        let (account, key) = (value("AZURE_STORAGE_ACCOUNT"), value("AZURE_STORAGE_KEY"));
        let token = format!("?{}", token(&account, &key, rights, until));
        variables.push(("AZURE_STORAGE_SAS_TOKEN".to_owned(), token));
        settings(variables)
    };
    let name = ObjectName::new("arenas", "a");
    let all = place("azblob://container").open(&with("rcwdl", "2099-01-01")).unwrap().unwrap();
    all.create(&name, b"1").unwrap();
    assert_eq!(all.read(&name, 0, 9).unwrap(), b"1");
    assert_eq!(all.list("arenas").unwrap().len(), 1);
    all.copy(&name, &ObjectName::new("arenas", "b")).unwrap();
    all.remove(&ObjectName::new("arenas", "b")).unwrap();

    let put_only = place("azblob://container").open(&with("c", "2099-01-01")).unwrap().unwrap();
    put_only.create(&ObjectName::new("arenas", "c"), b"1").unwrap();
    for error in [
        put_only.remove(&name).unwrap_err(),
        put_only.read(&name, 0, 9).unwrap_err(),
        put_only.list("arenas").unwrap_err(),
    ] {
        assert!(
            matches!(error, BackendError::Refused { refusal: Refusal::Right, .. }),
            "{error:?}"
        );
    }
    let expired = place("azblob://container").open(&with("rcwdl", "2020-01-01"));
    let expired = expired.and_then(|backend| backend.unwrap().list("arenas")).unwrap_err();
    assert!(matches!(expired, BackendError::Refused { .. }), "{expired:?}");
}

/// A shared access signature for the container, as Microsoft's documentation makes it.
fn token(account: &str, key: &str, rights: &str, until: &str) -> String {
    let (version, until) = ("2021-12-02", format!("{until}T00:00:00Z"));
    let text =
        format!("{rights}\n\n{until}\n/blob/{account}/container\n\n\n\n{version}\nc\n\n\n\n\n\n\n");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &BASE64.decode(key).unwrap());
    let signature = BASE64.encode(hmac::sign(&key, text.as_bytes()));
    let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let until = until.replace(':', "%3A");
    format!("sp={rights}&se={until}&sv={version}&sr=c&sig={signature}")
}
