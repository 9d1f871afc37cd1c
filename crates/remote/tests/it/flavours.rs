//! Stores that speak S3 in their own way: imitations, liars, and other dialects.

use strongroom_backend::{Backend, BackendError, ObjectName, read_all};
use strongroom_testkit::conformance;
use strongroom_testkit::http_faults::{FaultyHttp, HttpFault};
use strongroom_testkit::servers::{moto, s3proxy, swift, versitygw};

use crate::{place, settings};

#[test]
fn a_bucket_of_moto_conforms() {
    let store = moto();
    let settings = settings(store.variables(store.server.address));
    conformance::check(&*place("s3://bucket/a").create(&settings).unwrap());
}

/// It says that it created the object twice. The race at `init` finds such stores.
#[test]
fn s3proxy_lies_about_exclusive_create() {
    let store = s3proxy();
    let settings = settings(store.variables(store.server.address));
    let backend = place("s3://bucket/a").create(&settings).unwrap();
    everything_but_create(&*backend);
    let name = ObjectName::new("arenas", "lie");
    backend.create(&name, b"1").unwrap();
    backend.create(&name, b"2").unwrap();
    assert_eq!(backend.read(&name, 0, 2).unwrap(), b"2");
}

#[test]
fn swift_has_no_exclusive_create_and_says_so() {
    let store = swift();
    let settings = settings(store.variables(store.server.address));
    let backend = place("s3://bucket/a").create(&settings).unwrap();
    everything_but_create(&*backend);
    assert_eq!(backend.promises().is_consistent, Some(false));
    let created = backend.create(&ObjectName::new("arenas", "a"), b"1");
    assert!(matches!(created, Err(BackendError::Unsupported { .. })), "{created:?}");
}

/// Backblaze's own service answers 501 to conditions, and this program sends it none.
#[test]
fn a_bucket_of_backblaze_has_no_exclusive_create() {
    let gateway = versitygw();
    let server = FaultyHttp::start(Some(gateway.server.address), |asked| {
        if asked.headers.iter().any(|(name, _)| name == "if-none-match") {
            let text = "<Error><Code>NotImplemented</Code><Message>A header you provided implies \
                        functionality that is not implemented.</Message></Error>";
            return HttpFault::Instead(501, Vec::new(), text.to_owned());
        }
        HttpFault::None
    });
    let mut variables = vec![("B2_ENDPOINT".to_owned(), format!("http://{}", server.address))];
    for (name, value) in gateway.variables(server.address) {
        match name.as_str() {
            "AWS_ACCESS_KEY_ID" => variables.push(("B2_APPLICATION_KEY_ID".to_owned(), value)),
            "AWS_SECRET_ACCESS_KEY" => variables.push(("B2_APPLICATION_KEY".to_owned(), value)),
            _ => {}
        }
    }
    let backend = place("b2://bucket/a").create(&settings(variables)).unwrap();
    everything_but_create(&*backend);
    let created = backend.create(&ObjectName::new("arenas", "a"), b"1");
    assert!(matches!(created, Err(BackendError::Unsupported { .. })), "{created:?}");
}

/// moto knows neither Google's signature nor its conditions, but all else; the words of the
/// requests are compared with those of Google's documentation.
#[test]
fn a_bucket_of_google_is_asked_in_its_own_words() {
    let store = moto();
    let server = FaultyHttp::start(Some(store.server.address), |_| HttpFault::None);
    let variables = [
        ("GS_ENDPOINT", format!("http://{}", server.address)),
        ("GS_ACCESS_KEY_ID", "GOOG1key".to_owned()),
        ("GS_SECRET_ACCESS_KEY_COMMAND", "echo secret".to_owned()),
        ("STRONGROOM_S3_STORAGE_CLASS", "NEARLINE".to_owned()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let backend = place("gs://bucket/a b").create(&settings(variables)).unwrap();
    backend.create(&ObjectName::new("arenas", "one"), &vec![7; 65 << 20]).unwrap();
    everything_but_create(&*backend);
    let asked = server.asked();
    for request in &asked {
        let has = |part: &str| request.target.contains(part);
        assert!(request.target.starts_with("/bucket"), "{}", request.target);
        assert!(has("X-Goog-Algorithm=GOOG4-HMAC-SHA256"), "{}", request.target);
        assert!(has("X-Goog-Credential=GOOG1key%2F") && has("%2Fauto%2Fstorage%2Fgoog4_request"));
        assert!(!has("X-Amz-"), "{}", request.target);
        assert!(!request.headers.iter().any(|(name, _)| name.starts_with("x-amz-")));
        // Each header of its own must be signed.
        for (name, _) in request.headers.iter().filter(|(name, _)| name.starts_with("x-goog-")) {
            let signed = request.target.split("X-Goog-SignedHeaders=").nth(1).unwrap();
            assert!(signed.split('&').next().unwrap().contains(name.as_str()), "{name}");
        }
    }
    let created =
        asked.iter().find(|request| request.target.contains("/a%20b/arenas/one")).unwrap();
    let header = |wanted: &str| {
        let found = created.headers.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(created.method, "PUT");
    assert_eq!(header("x-goog-if-generation-match"), Some("0"));
    assert_eq!(header("x-goog-storage-class"), Some("NEARLINE"));
    assert!(header("x-goog-hash").is_some_and(|value| value.starts_with("crc32c=")));
}

/// What every store does that keeps objects at all.
fn everything_but_create(backend: &dyn Backend) {
    let name = |file: &str| ObjectName::new("keys", file);
    assert!(backend.read(&name("a"), 0, 1).unwrap_err().is_not_found());
    backend.replace(&name("a"), b"0123456789").unwrap();
    backend.replace(&name("b"), b"old").unwrap();
    backend.replace(&name("b"), b"new!").unwrap();
    assert_eq!(backend.size(&name("a")).unwrap(), 10);
    assert_eq!(backend.read(&name("a"), 8, 4).unwrap(), b"89");
    assert_eq!(backend.read(&name("a"), 10, 4).unwrap(), b"");
    assert_eq!(read_all(backend, &name("b")).unwrap(), b"new!");
    if backend.describe().starts_with("gs:") {
        // moto does not know Google's word for it, and stores an empty object.
        let copied = backend.copy(&name("b"), &name("c"));
        assert!(matches!(copied, Err(BackendError::Unsupported { .. })), "{copied:?}");
        assert!(backend.size(&name("c")).unwrap_err().is_not_found());
        backend.replace(&name("c"), b"new!").unwrap();
    } else {
        backend.copy(&name("b"), &name("c")).unwrap();
    }
    // Stores that know no locks take such a request for one that replaces the object.
    let locked = backend.retain(&name("b"), strongroom_base::Timestamp(i64::MAX / 2));
    assert!(matches!(locked, Err(BackendError::Unsupported { .. })), "{locked:?}");
    assert_eq!(read_all(backend, &name("b")).unwrap(), b"new!");
    assert_eq!(read_all(backend, &name("c")).unwrap(), b"new!");
    let listed: Vec<_> = backend.list("keys").unwrap();
    let listed: Vec<_> = listed.iter().map(|info| (info.name.file(), info.bytes)).collect();
    assert_eq!(listed, [("a", 10), ("b", 4), ("c", 4)]);
    backend.remove(&name("c")).unwrap();
    assert!(backend.remove(&name("c")).unwrap_err().is_not_found());
    assert_eq!(backend.list("keys").unwrap().len(), 2);
}
