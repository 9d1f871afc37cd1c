//! Containers of Azurite.

use strongroom_backend::{BackendError, ObjectName, Refusal};
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
