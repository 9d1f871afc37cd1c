//! Stores on bad days: answers that are wrong, late, cut or missing, and refusals of every kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use strongroom_backend::{Backend, BackendError, ObjectName, Refusal, read_all};
use strongroom_base::{FixedClock, Stopwatch, Timestamp};
use strongroom_remote::{Past, Settings};
use strongroom_testkit::conformance;
use strongroom_testkit::http_faults::{Asked, FaultyHttp, HttpFault};
use strongroom_testkit::servers::{azurite, moto, versitygw, wsgidav};

use crate::{place, settings};

/// Every sixth request or so meets a fault, each time another one. What was carried out and not answered
/// is asked again; the suite is the same as on good days.
#[test]
fn stores_conform_though_many_requests_fail() {
    let (gateway, blobs, folder) = (versitygw(), azurite(), wsgidav());
    let before = |server| FaultyHttp::start(Some(server), faults);
    let (a, b, c) = (
        before(gateway.server.address),
        before(blobs.server.address),
        before(folder.server.address),
    );
    std::thread::scope(|scope| {
        for (text, variables) in [
            ("s3://bucket/a".to_owned(), gateway.variables(a.address)),
            ("azblob://container/a".to_owned(), blobs.variables(b.address)),
            (folder.url(c.address, "/a"), folder.variables()),
        ] {
            scope.spawn(move || {
                let mut settings = settings(variables);
                settings.patience = Duration::from_secs(180);
                let backend = place(&text).create(&settings).unwrap();
                conformance::check(&*backend);
            });
        }
    });
}

fn faults(asked: &Asked) -> HttpFault {
    // Without a rhythm: some operations are three requests.
    let chance = scattered(asked.number);
    if !chance.is_multiple_of(6) {
        return HttpFault::None;
    }
    let wait = vec![("retry-after", "0".to_owned())];
    match chance / 6 % 7 {
        // Of a removal without an answer it cannot be known what it removed.
        _ if asked.method == "DELETE" => HttpFault::Instead(503, wait, String::new()),
        // One that was granted without an answer would keep all out until it ends.
        _ if asked.method == "LOCK" => HttpFault::Dropped,
        0 => HttpFault::Instead(500, Vec::new(), "<html>no</html>".to_owned()),
        1 => HttpFault::Instead(503, wait, String::new()),
        2 => HttpFault::Instead(429, wait, String::new()),
        3 => HttpFault::Dropped,
        4 if asked.method != "COPY" => HttpFault::Unanswered,
        5 if asked.method == "GET" => HttpFault::Short,
        _ => HttpFault::Half,
    }
}

/// A number that looks like chance.
fn scattered(number: usize) -> usize {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % 1000
}

#[test]
fn a_store_that_asks_to_wait_is_left_alone_for_that_time() {
    for (header, value) in [
        ("retry-after", "1".to_owned()),
        ("retry-after", "Tue, 24 Nov 2026 04:00:01 GMT".to_owned()),
    ] {
        let gateway = versitygw();
        let server = FaultyHttp::start(Some(gateway.server.address), move |asked| {
            if asked.number != 1 {
                return HttpFault::None;
            }
            let date = ("date", "Tue, 24 Nov 2026 04:00:00 GMT".to_owned());
            HttpFault::Instead(503, vec![(header, value.clone()), date], String::new())
        });
        let settings = settings(gateway.variables(server.address));
        let backend = place("s3://bucket").open(&settings).unwrap().unwrap();
        let waited = Stopwatch::start();
        backend.create(&ObjectName::top("one"), b"1").unwrap();
        assert!(waited.elapsed() >= Duration::from_secs(1), "{:?}", waited.elapsed());
    }
}

#[test]
fn a_store_that_is_late_is_waited_for() {
    let gateway = versitygw();
    let server = FaultyHttp::start(Some(gateway.server.address), |asked| {
        if asked.method == "PUT" {
            HttpFault::Late(Duration::from_secs(2))
        } else {
            HttpFault::None
        }
    });
    let settings = settings(gateway.variables(server.address));
    let backend = place("s3://bucket").open(&settings).unwrap().unwrap();
    backend.create(&ObjectName::top("one"), b"1").unwrap();
    assert_eq!(server.asked().iter().filter(|asked| asked.method == "PUT").count(), 1);
}

#[test]
fn a_store_that_never_answers_well_is_given_up_in_time() {
    let server = FaultyHttp::start(None, |_| HttpFault::Instead(500, Vec::new(), String::new()));
    let gateway_like = variables_of(&server);
    let waited = Stopwatch::start();
    let error = place("s3://bucket").open(&settings(gateway_like)).map(|_| ()).unwrap_err();
    assert!(matches!(error, BackendError::Io { .. }), "{error}");
    assert!(waited.elapsed() < Duration::from_secs(15), "{:?}", waited.elapsed());
    assert!(server.asked().len() >= 3);
}

/// What stores say, and what each of it is to the user.
#[test]
fn refusals_are_named() {
    for (status, code, message, refusal) in [
        (403, "SignatureDoesNotMatch", "", Refusal::Credentials),
        (403, "InvalidAccessKeyId", "", Refusal::Credentials),
        (400, "ExpiredToken", "The provided token has expired.", Refusal::Credentials),
        (403, "RequestTimeTooSkewed", "", Refusal::Clock),
        (403, "AccessDenied", "Request has expired", Refusal::Clock),
        (404, "NoSuchBucket", "", Refusal::NoSuchPlace),
        (301, "PermanentRedirect", "", Refusal::Region),
        (400, "AuthorizationHeaderMalformed", "the region 'x' is wrong", Refusal::Region),
        (403, "AccessDenied", "Access Denied", Refusal::Right),
        (403, "InvalidObjectState", "not valid for its class", Refusal::Archived),
        (
            403,
            "AccessDenied",
            "Access Denied because object protected by object lock.",
            Refusal::Locked,
        ),
    ] {
        let text = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
        let server = FaultyHttp::start(None, move |asked| match asked.number {
            0 => HttpFault::Instead(200, Vec::new(), EMPTY_LISTING.to_owned()),
            _ => HttpFault::Instead(status, Vec::new(), text.clone()),
        });
        let backend = place("s3://bucket").open(&settings(variables_of(&server)));
        let error = backend.unwrap().unwrap().put_now().unwrap_err();
        assert!(
            matches!(&error, BackendError::Refused { refusal: found, .. } if *found == refusal),
            "{code} {message}: {error:?}"
        );
    }
}

#[test]
fn a_full_store_is_named() {
    for (status, code) in [(403, "QuotaExceeded"), (507, "XMinioStorageFull"), (507, "")] {
        let text = format!("<Error><Code>{code}</Code></Error>");
        let server = FaultyHttp::start(None, move |asked| match asked.number {
            0 => HttpFault::Instead(200, Vec::new(), EMPTY_LISTING.to_owned()),
            _ => HttpFault::Instead(status, Vec::new(), text.clone()),
        });
        let backend = place("s3://bucket").open(&settings(variables_of(&server))).unwrap().unwrap();
        let error = backend.put_now().unwrap_err();
        assert!(matches!(error, BackendError::NoSpace { .. }), "{code}: {error:?}");
    }
}

/// What was sent before may still arrive, so only a first answer says that nothing exists.
#[test]
fn a_store_that_is_full_after_a_lost_answer_may_have_the_object() {
    for (fault, may_exist) in [
        (None, false),
        (Some(HttpFault::Dropped), true),
        (Some(HttpFault::Instead(504, Vec::new(), String::new())), true),
        (Some(HttpFault::Instead(503, Vec::new(), String::new())), true),
    ] {
        let puts = AtomicUsize::new(0);
        let first = fault.clone();
        let server = FaultyHttp::start(None, move |asked| match asked.method.as_str() {
            "GET" => HttpFault::Instead(200, Vec::new(), EMPTY_LISTING.to_owned()),
            "PUT" => match puts.fetch_add(1, Ordering::Relaxed) % 2 {
                0 if first.is_some() => first.clone().unwrap(),
                _ => HttpFault::Instead(507, Vec::new(), String::new()),
            },
            _ => HttpFault::Instead(404, Vec::new(), String::new()),
        });
        let backend = place("s3://bucket").open(&settings(variables_of(&server))).unwrap().unwrap();
        let name = ObjectName::new("snapshots", "one");
        for (what, outcome) in
            [("create", backend.create(&name, b"1")), ("replace", backend.replace(&name, b"1"))]
        {
            let expected = matches!(&outcome, Err(BackendError::NoSpace { may_exist: found, .. })
                if *found == may_exist);
            assert!(expected, "{what} after {fault:?}: {outcome:?}");
        }
    }
}

/// The answer alone was lost, and what was stored has used up the room.
#[test]
fn an_object_that_was_stored_is_stored_though_the_next_attempt_is_refused() {
    for (status, code) in [(507, ""), (403, "QuotaExceeded"), (403, "AccessDenied")] {
        let gateway = versitygw();
        let puts = AtomicUsize::new(0);
        let text = format!("<Error><Code>{code}</Code></Error>");
        let server = FaultyHttp::start(Some(gateway.server.address), move |asked| {
            match asked.method.as_str() {
                "PUT" if puts.fetch_add(1, Ordering::Relaxed) == 0 => HttpFault::Unanswered,
                "PUT" => HttpFault::Instead(status, Vec::new(), text.clone()),
                _ => HttpFault::None,
            }
        });
        let settings = settings(gateway.variables(server.address));
        let backend = place("s3://bucket").open(&settings).unwrap().unwrap();
        backend.create(&ObjectName::new("snapshots", "one"), b"1").unwrap();
    }
}

/// Keys that may put and not get, and arenas in an archive: of a name that was drawn by chance, the
/// length says enough.
#[test]
fn what_may_not_be_read_back_is_known_by_its_name_and_length() {
    for code in ["AccessDenied", "InvalidObjectState"] {
        let gateway = versitygw();
        let puts = AtomicUsize::new(0);
        let text = format!("<Error><Code>{code}</Code><Message>Access Denied</Message></Error>");
        let server = FaultyHttp::start(Some(gateway.server.address), move |asked| {
            match asked.method.as_str() {
                "PUT" if puts.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => {
                    HttpFault::Unanswered
                }
                "GET" if asked.headers.iter().any(|(name, _)| name == "range") => {
                    HttpFault::Instead(403, Vec::new(), text.clone())
                }
                _ => HttpFault::None,
            }
        });
        let mut settings = settings(gateway.variables(server.address));
        settings.is_drawn = |name| name.folder() == "arenas";
        let backend = place("s3://bucket").open(&settings).unwrap().unwrap();
        for bytes in [vec![7; 300 << 10], vec![7; 100]] {
            let drawn = ObjectName::new("arenas", format!("a{}", bytes.len()));
            backend.create(&drawn, &bytes).unwrap();
            let other = backend.create(&drawn, &bytes[1..]);
            assert!(matches!(other, Err(BackendError::AlreadyExists { .. })), "{other:?}");
        }
        // Of a name that several may take, the bytes matter.
        backend.create(&ObjectName::new("snapshots", "a"), b"1").unwrap_err();
    }
}

/// A listing of which a part is missing must not be taken for the whole.
#[test]
fn a_listing_that_goes_in_a_circle_is_no_listing() {
    let of_s3 = |token: &str| {
        format!(
            "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bucket</Name>\
             <Prefix></Prefix><KeyCount>1</KeyCount><MaxKeys>1</MaxKeys>\
             <IsTruncated>true</IsTruncated><Contents><Key>keys/a</Key><Size>1</Size></Contents>\
             <NextContinuationToken>{token}</NextContinuationToken></ListBucketResult>"
        )
    };
    let of_azure = |token: &str| {
        format!(
            "<EnumerationResults><Blobs><Blob><Name>keys/a</Name><Properties><Content-Length>1\
             </Content-Length></Properties></Blob></Blobs><NextMarker>{token}</NextMarker>\
             </EnumerationResults>"
        )
    };
    let of_versions = |token: &str| {
        format!(
            "<ListVersionsResult><IsTruncated>true</IsTruncated><NextKeyMarker>{token}</NextKeyMarker>\
             <Version><Key>keys/a</Key><VersionId>1</VersionId><Size>9</Size>\
             <LastModified>1970-01-01T00:00:30.000Z</LastModified></Version></ListVersionsResult>"
        )
    };
    let (of_s3, of_azure, of_versions) = (of_s3("again"), of_azure("again"), of_versions("again"));
    // A store that says that there is more, and not where.
    let without = of_versions.replace("NextKeyMarker", "X");
    for (text, listing, past) in [
        ("s3://bucket", of_s3, None),
        ("azblob://container", of_azure, None),
        ("s3://bucket", of_versions, Some(Past::Version(0))),
        ("s3://bucket", without, Some(Past::Version(0))),
    ] {
        let server = FaultyHttp::start(None, move |asked| {
            let opens = asked.number == 0;
            let listing = if opens { EMPTY_LISTING } else { &listing };
            HttpFault::Instead(200, Vec::new(), listing.to_owned())
        });
        let mut variables = variables_of(&server);
        variables.extend(
            [
                ("AZURE_STORAGE_ENDPOINT", format!("http://{}/a", server.address)),
                ("AZURE_STORAGE_ACCOUNT", "a".to_owned()),
                ("AZURE_STORAGE_KEY", "a2V5".to_owned()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        let mut settings = settings(variables);
        settings.patience = Duration::from_secs(1);
        let backend = match past {
            None => place(text).open(&settings),
            Some(past) => place(text).open_past(&settings, past),
        };
        let listed = backend.unwrap().unwrap().list("keys");
        assert!(matches!(listed, Err(BackendError::Io { .. })), "{text}: {listed:?}");
    }
}

/// A lock that its owner can lift is none. What the store says of a better one is reported.
#[test]
fn a_lock_of_the_weaker_kind_is_not_enough() {
    for (mode, until, code, asks) in [
        ("GOVERNANCE", "2099-01-01T00:00:00Z", "AccessDenied", true),
        ("COMPLIANCE", "2099-01-01T00:00:00Z", "AccessDenied", false),
        ("COMPLIANCE", "2001-01-01T00:00:00Z", "AccessDenied", true),
        ("", "2099-01-01T00:00:00Z", "AccessDenied", true),
    ] {
        let server = FaultyHttp::start(None, move |asked| match asked.method.as_str() {
            "GET" if asked.target.contains("retention") => {
                let text = format!(
                    "<Retention><Mode>{mode}</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>"
                );
                HttpFault::Instead(200, Vec::new(), text)
            }
            "GET" => HttpFault::Instead(200, Vec::new(), EMPTY_LISTING.to_owned()),
            _ => {
                let text = format!(
                    "<Error><Code>{code}</Code><Message>protected by object lock</Message></Error>"
                );
                HttpFault::Instead(403, Vec::new(), text)
            }
        });
        let backend = place("s3://bucket").open(&settings(variables_of(&server))).unwrap().unwrap();
        let name = ObjectName::new("arenas", "a");
        let outcome = backend.retain(&name, Timestamp(1_900_000_000_000_000_000));
        let is_refused =
            matches!(&outcome, Err(BackendError::Refused { refusal: Refusal::Locked, .. }));
        assert_eq!((outcome.is_err(), is_refused), (asks, asks), "{mode} {until}: {outcome:?}");
        let puts = server.asked().iter().filter(|asked| asked.method == "PUT").count();
        assert_eq!(puts, usize::from(asks), "{mode} {until}");
    }
}

/// Real stores ask for the right to get before they say how long an object is, and some also before they say
/// that there is none.
#[test]
fn what_may_not_even_be_looked_at_is_known_by_its_name() {
    let gateway = versitygw();
    let text = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>";
    for (round, is_first_stored) in [true, false].into_iter().enumerate() {
        let puts = AtomicUsize::new(0);
        let server = FaultyHttp::start(Some(gateway.server.address), move |asked| {
            let is_object = asked.target.contains("/arenas/");
            match asked.method.as_str() {
                "PUT" if is_object && puts.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) => {
                    match is_first_stored {
                        true => HttpFault::Unanswered,
                        false => HttpFault::Instead(500, Vec::new(), String::new()),
                    }
                }
                "HEAD" if is_object => HttpFault::Instead(403, Vec::new(), String::new()),
                "GET" if is_object => HttpFault::Instead(403, Vec::new(), text.to_owned()),
                _ => HttpFault::None,
            }
        });
        let of = |address| settings(gateway.variables(address));
        let plain = place("s3://bucket").open(&of(gateway.server.address)).unwrap().unwrap();
        let limited = Settings { is_drawn: |name| name.folder() == "arenas", ..of(server.address) };
        let backend = place("s3://bucket").open(&limited).unwrap().unwrap();
        for bytes in [vec![7; 300 << 10], vec![7; 100]] {
            let drawn = ObjectName::new("arenas", format!("{round}-{}", bytes.len()));
            backend.create(&drawn, &bytes).unwrap();
            assert!(read_all(&*plain, &drawn).unwrap() == bytes);
            // It was not this writer's attempt that was lost.
            assert!(backend.create(&drawn, &bytes[1..]).is_err());
        }
    }
}

/// A part that is lost or turned away costs that part, and an upload that is given up is ended.
#[test]
fn a_lost_part_is_sent_again_alone() {
    let gateway = versitygw();
    let server = FaultyHttp::start(Some(gateway.server.address), |asked| {
        let is_part = asked.method == "PUT" && asked.target.contains("partNumber=");
        match asked.number {
            3 if is_part => HttpFault::Dropped,
            4 if is_part => HttpFault::Instead(503, Vec::new(), String::new()),
            5 if is_part => HttpFault::Unanswered,
            _ => HttpFault::None,
        }
    });
    let backend = place("s3://bucket").open(&settings(gateway.variables(server.address))).unwrap();
    let backend = backend.unwrap();
    let bytes: Vec<u8> = (0..(65_u32 << 20)).map(|place| (place % 253) as u8).collect();
    backend.create(&ObjectName::new("arenas", "long"), &bytes).unwrap();
    let asked = server.asked();
    let count = |part: &str| asked.iter().filter(|asked| asked.target.contains(part)).count();
    assert_eq!(asked.iter().filter(|asked| asked.target.contains("uploads")).count(), 1);
    assert_eq!(count("partNumber="), 5 + 3);
    let back = read_all(&*backend, &ObjectName::new("arenas", "long"));
    assert!(back.unwrap() == bytes);

    let full = FaultyHttp::start(Some(gateway.server.address), |asked| {
        if asked.target.contains("partNumber=3") {
            let text = "<Error><Code>QuotaExceeded</Code></Error>".to_owned();
            return HttpFault::Instead(403, Vec::new(), text);
        }
        HttpFault::None
    });
    let backend = place("s3://bucket").open(&settings(gateway.variables(full.address))).unwrap();
    let error = backend.unwrap().create(&ObjectName::new("arenas", "full"), &bytes).unwrap_err();
    assert!(matches!(error, BackendError::NoSpace { .. }), "{error:?}");
    let asked = full.asked();
    let last = asked.last().unwrap();
    assert!(last.method == "DELETE" && last.target.contains("uploadId="), "{last:?}");
}

/// Proxies are those of the variables, not of the process, and not for hosts in `NO_PROXY`.
#[test]
fn a_proxy_is_asked_unless_the_host_is_excepted() {
    let (gateway, proxy) = (versitygw(), FaultyHttp::start(None, |_| HttpFault::None));
    let mut variables = gateway.variables(gateway.server.address);
    variables.push(("http_proxy".to_owned(), format!("http://{}", proxy.address)));
    let mut impatient = settings(variables.clone());
    impatient.patience = Duration::ZERO;
    assert!(place("s3://bucket").open(&impatient).is_err());
    let asked = proxy.asked();
    assert!(asked[0].target.contains(&gateway.server.address.to_string()), "{:?}", asked[0]);
    variables.push(("NO_PROXY".to_owned(), "localhost, 127.0.0.1".to_owned()));
    assert!(place("s3://bucket").open(&settings(variables)).unwrap().is_some());
    assert_eq!(proxy.asked().len(), asked.len());
}

/// Neither a head without an end nor an endless body takes memory or time without a bound.
#[test]
fn an_endless_answer_is_cut() {
    let server = FaultyHttp::start(None, |asked| match asked.number {
        0 => HttpFault::Instead(200, Vec::new(), EMPTY_LISTING.to_owned()),
        _ if asked.number % 2 == 1 => {
            HttpFault::Instead(200, vec![("x-long", "x".repeat(64 << 20))], String::new())
        }
        _ => HttpFault::Instead(206, Vec::new(), "x".repeat(64 << 20)),
    });
    let mut settings = settings(variables_of(&server));
    settings.patience = Duration::from_secs(2);
    let backend = place("s3://bucket").open(&settings).unwrap().unwrap();
    let waited = Stopwatch::start();
    let error = backend.read(&ObjectName::top("one"), 0, 10).unwrap_err();
    assert!(matches!(error, BackendError::Io { .. }), "{error:?}");
    assert!(waited.elapsed() < Duration::from_secs(10), "{:?}", waited.elapsed());
}

/// Keys that may put but not delete: what was put stays, and the refusal is a right.
#[test]
fn keys_that_may_not_delete_still_put() {
    let gateway = versitygw();
    let server = FaultyHttp::start(Some(gateway.server.address), |asked| {
        if asked.method != "DELETE" {
            return HttpFault::None;
        }
        let text = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>";
        HttpFault::Instead(403, Vec::new(), text.to_owned())
    });
    let settings = settings(gateway.variables(server.address));
    let backend = place("s3://bucket").open(&settings).unwrap().unwrap();
    let name = ObjectName::new("sessions", "one");
    backend.create(&name, b"1").unwrap();
    let error = backend.remove(&name).unwrap_err();
    assert!(matches!(error, BackendError::Refused { refusal: Refusal::Right, .. }), "{error:?}");
    assert_eq!(backend.read(&name, 0, 1).unwrap(), b"1");
}

#[test]
fn a_clock_that_is_years_off_is_named() {
    let (gateway, blobs) = (versitygw(), azurite());
    for (text, variables) in [
        ("s3://bucket", gateway.variables(gateway.server.address)),
        ("azblob://container", blobs.variables(blobs.server.address)),
    ] {
        place(text).create(&settings(variables.clone())).unwrap();
        let mut settings = settings(variables);
        // In 2017.
        settings.clock = Arc::new(FixedClock(Timestamp(1_500_000_000_000_000_000)));
        match place(text).open(&settings) {
            Err(BackendError::Refused { refusal: Refusal::Clock, .. }) => {}
            // Azurite does not look at the time.
            Ok(_) if text.starts_with("azblob") => {}
            Err(error) => panic!("{text}: {error:?}"),
            Ok(_) => panic!("{text} was opened"),
        }
    }
}

#[test]
fn arenas_have_the_storage_class_that_the_user_chose() {
    let store = moto();
    let server = FaultyHttp::start(Some(store.server.address), |_| HttpFault::None);
    let mut variables = store.variables(server.address);
    variables.push(("STRONGROOM_S3_STORAGE_CLASS".to_owned(), "STANDARD_IA".to_owned()));
    let backend = place("s3://bucket/a").create(&settings(variables.clone())).unwrap();
    backend.create(&ObjectName::new("snapshots", "a"), b"x").unwrap();
    backend.create(&ObjectName::new("arenas", "a"), b"x").unwrap();
    let long = vec![1; 65 << 20];
    backend.create(&ObjectName::new("arenas", "b"), &long).unwrap();
    for (part, class) in [
        ("/snapshots/a?", None),
        ("/arenas/a?", Some("STANDARD_IA")),
        ("/arenas/b?", Some("STANDARD_IA")),
    ] {
        let asked = server.asked();
        let found = asked.iter().find(|asked| asked.target.contains(part)).unwrap();
        let header = found.headers.iter().find(|(name, _)| name == "x-amz-storage-class");
        assert_eq!(header.map(|(_, value)| value.as_str()), class, "{part}");
    }
    variables.last_mut().unwrap().1 = "NO_SUCH_CLASS".to_owned();
    let backend = place("s3://bucket/a").create(&settings(variables)).unwrap();
    let refused = backend.create(&ObjectName::new("arenas", "c"), b"x").unwrap_err();
    assert!(refused.to_string().contains("storage class"), "{refused}");
}

/// A store that gives the whole object instead of a part would cost the whole object each time.
#[test]
fn a_store_without_parts_of_objects_is_named() {
    let server = FaultyHttp::start(None, |asked| match asked.method.as_str() {
        "GET" if asked.target.contains("list-type") => {
            HttpFault::Instead(200, Vec::new(), EMPTY_LISTING.to_owned())
        }
        _ => HttpFault::Instead(200, Vec::new(), "x".repeat(100_000)),
    });
    let backend = place("s3://bucket").open(&settings(variables_of(&server))).unwrap().unwrap();
    for offset in [0, 10] {
        let error = backend.read(&ObjectName::top("one"), offset, 10).unwrap_err();
        assert!(matches!(error, BackendError::Unsupported { .. }), "{error:?}");
    }
}

#[test]
fn a_swift_by_any_name_has_listings_that_lag() {
    let server = FaultyHttp::start(None, |_| {
        let id = vec![("x-trans-id", "tx1".to_owned())];
        HttpFault::Instead(200, id, EMPTY_LISTING.to_owned())
    });
    let backend = place("s3://bucket").open(&settings(variables_of(&server))).unwrap().unwrap();
    assert_eq!(backend.promises().is_consistent, Some(false));
}

pub const EMPTY_LISTING: &str = "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
    <Name>bucket</Name><Prefix></Prefix><KeyCount>0</KeyCount><MaxKeys>1</MaxKeys>\
    <IsTruncated>false</IsTruncated></ListBucketResult>";

pub fn variables_of(server: &FaultyHttp) -> Vec<(String, String)> {
    [
        ("AWS_ENDPOINT_URL", format!("http://{}", server.address)),
        ("AWS_ACCESS_KEY_ID", "key".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// One request of each kind that is not repeated if it is refused.
trait Refusable {
    fn put_now(&self) -> Result<(), BackendError>;
}

impl Refusable for Arc<dyn Backend> {
    fn put_now(&self) -> Result<(), BackendError> {
        self.create(&ObjectName::top("one"), b"1")
    }
}
