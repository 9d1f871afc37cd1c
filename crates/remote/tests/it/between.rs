//! What is between us and a store: proxies that answer in its place, and answers that are cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use strongroom_backend::{BackendError, ObjectName, Refusal};
use strongroom_testkit::http_faults::{FaultyHttp, HttpFault};
use strongroom_testkit::servers::{azurite, versitygw, wsgidav};

use crate::bad_days::{EMPTY_LISTING, variables_of};
use crate::{place, settings};

const LISTING: &str = "<?xml version=\"1.0\"?>\
    <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bucket</Name>\
    <Prefix>keys/</Prefix><KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>\
    <Contents><Key>keys/a</Key><Size>1</Size></Contents>\
    <Contents><Key>keys/b</Key><Size>12</Size></Contents></ListBucketResult>";

fn answer(text: &str) -> HttpFault {
    HttpFault::Instead(200, Vec::new(), text.to_owned())
}

/// A body whose length was not said may end anywhere.
#[test]
fn a_listing_that_was_cut_is_asked_for_again() {
    let ends = ["<Contents>", "</Contents>", "keys/b", "<Size>1", "</Size>", "</ListBucketResult>"];
    for end in ends.iter().flat_map(|words| {
        let at = LISTING.rfind(words).unwrap();
        [at, at + words.len()].into_iter().filter(|end| *end < LISTING.len())
    }) {
        let asked = AtomicUsize::new(0);
        let server =
            FaultyHttp::start(None, move |_| match asked.fetch_add(1, Ordering::Relaxed) {
                0 => answer(EMPTY_LISTING),
                1 => answer(&LISTING[..end]),
                _ => answer(LISTING),
            });
        let backend = place("s3://bucket").open(&settings(variables_of(&server))).unwrap().unwrap();
        let listed = backend.list("keys").unwrap();
        let sizes: Vec<_> = listed.iter().map(|info| info.bytes).collect();
        assert_eq!(sizes, [1, 12], "cut behind {}", &LISTING[..end]);
    }
}

/// It may be the answer to another question.
#[test]
fn a_listing_of_another_folder_is_no_listing() {
    let blobs = "<EnumerationResults><Blobs><Blob><Name>other/a</Name><Properties><Content-Length>1\
        </Content-Length></Properties></Blob></Blobs><NextMarker/></EnumerationResults>";
    for (text, listing) in [
        ("s3://bucket", LISTING.replace("keys/b", "other/b")),
        ("azblob://container", blobs.to_owned()),
    ] {
        let server = FaultyHttp::start(None, move |asked| match asked.number {
            0 => answer(EMPTY_LISTING),
            _ => answer(&listing),
        });
        let mut variables = variables_of(&server);
        variables.extend([
            ("AZURE_STORAGE_ACCOUNT".to_owned(), "me".to_owned()),
            ("AZURE_STORAGE_KEY".to_owned(), "a2V5".to_owned()),
            ("AZURE_STORAGE_ENDPOINT".to_owned(), format!("http://{}/me", server.address)),
        ]);
        let mut settings = settings(variables);
        settings.patience = Duration::from_millis(300);
        let backend = place(text).open(&settings).unwrap().unwrap();
        let listed = backend.list("keys");
        assert!(matches!(listed, Err(BackendError::Io { .. })), "{text}: {listed:?}");
    }
}

/// The last request of an upload in parts, and a copy, may fail after the answer has begun.
#[test]
fn a_success_without_its_document_is_none() {
    let begun = "<InitiateMultipartUploadResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
        <Bucket>bucket</Bucket><Key>arenas/a</Key><UploadId>one</UploadId>\
        </InitiateMultipartUploadResult>";
    let done = "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>";
    let copied = "<CopyObjectResult><ETag>x</ETag></CopyObjectResult>";
    for cut in ["", "<CompleteMultipartUploadResult><ETag>x", "<html></html>"] {
        let (ends, copies) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let server = FaultyHttp::start(None, move |asked| {
            let none = || {
                let text = "<Error><Code>NoSuchKey</Code></Error>".to_owned();
                HttpFault::Instead(404, Vec::new(), text)
            };
            match asked.method.as_str() {
                "GET" if asked.target.contains("list-type") => answer(EMPTY_LISTING),
                "POST" if asked.target.contains("uploads") => answer(begun),
                "POST" if ends.fetch_add(1, Ordering::Relaxed) == 0 => answer(cut),
                "POST" => answer(done),
                "PUT" if asked.target.contains("partNumber=") => {
                    HttpFault::Instead(200, vec![("etag", "x".to_owned())], String::new())
                }
                "PUT" if copies.fetch_add(1, Ordering::Relaxed) == 0 => answer(&copied[..20]),
                "PUT" => answer(copied),
                "DELETE" => HttpFault::Instead(204, Vec::new(), String::new()),
                _ => none(),
            }
        });
        let backend = place("s3://bucket").open(&settings(variables_of(&server))).unwrap().unwrap();
        let name = ObjectName::new("arenas", "a");
        backend.create(&name, &vec![1; 65 << 20]).unwrap();
        backend.copy(&name, &ObjectName::new("arenas", "b")).unwrap();
        let count = |is: &dyn Fn(&str, &str) -> bool| {
            let asked = server.asked();
            asked.iter().filter(|asked| is(&asked.method, &asked.target)).count()
        };
        assert_eq!(count(&|method, target| method == "POST" && target.contains("uploadId=")), 2);
        let is_copy = |method: &str, target: &str| method == "PUT" && target.contains("/arenas/b");
        assert_eq!(count(&is_copy), 2, "{cut}");
    }
}

/// Proxies have codes of their own for a server that does not answer them.
#[test]
fn what_a_proxy_answers_while_the_server_is_away_is_tried_again() {
    for status in [500, 502, 504, 509, 520, 521, 522, 523, 524, 525, 527, 530, 561, 598, 599] {
        let server = FaultyHttp::start(None, move |asked| match asked.number {
            0 => answer(EMPTY_LISTING),
            1 => HttpFault::Instead(status, Vec::new(), "error code".to_owned()),
            _ => answer(""),
        });
        let backend = place("s3://bucket").open(&settings(variables_of(&server))).unwrap().unwrap();
        let put = backend.replace(&ObjectName::top("one"), b"1");
        assert!(put.is_ok(), "{status}: {put:?}");
    }
    for status in [505, 508, 511] {
        let server = FaultyHttp::start(None, move |asked| match asked.number {
            0 => answer(EMPTY_LISTING),
            _ => HttpFault::Instead(status, Vec::new(), String::new()),
        });
        let backend = place("s3://bucket").open(&settings(variables_of(&server))).unwrap().unwrap();
        let put = backend.replace(&ObjectName::top("one"), b"1");
        assert!(matches!(put, Err(BackendError::Refused { .. })), "{status}: {put:?}");
        assert_eq!(server.asked().len(), 2);
    }
}

/// No prune makes room for what a proxy finds too long.
#[test]
fn a_body_that_a_proxy_finds_too_long_is_not_a_full_store() {
    let server = FaultyHttp::start(None, move |asked| match asked.number {
        0 => answer(EMPTY_LISTING),
        _ => HttpFault::Instead(413, Vec::new(), "<html>too large</html>".to_owned()),
    });
    let backend = place("s3://bucket").open(&settings(variables_of(&server))).unwrap().unwrap();
    let error = backend.replace(&ObjectName::top("one"), b"1").unwrap_err();
    let is_named = matches!(&error, BackendError::Refused { refusal: Refusal::Other, answer, .. }
        if answer.contains("413") && answer.contains("proxy"));
    assert!(is_named, "{error:?}");
}

/// A proxy such as Traefik answers by itself while the container behind it starts again.
#[test]
fn what_a_proxy_does_not_find_may_be_there() {
    let (gateway, blobs, folder) = (versitygw(), azurite(), wsgidav());
    let name = ObjectName::new("keys", "a");
    for (text, server, variables) in [
        ("s3://bucket/x", gateway.server.address, &(|a| gateway.variables(a)) as &dyn Fn(_) -> _),
        ("azblob://container/x", blobs.server.address, &|a| blobs.variables(a)),
        ("", folder.server.address, &|_| folder.variables()),
    ] {
        let away = Arc::new(AtomicUsize::new(0));
        let left = away.clone();
        let proxy = FaultyHttp::start(Some(server), move |_| {
            let is_away =
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            match is_away {
                Ok(_) => HttpFault::Instead(404, Vec::new(), "404 page not found\n".to_owned()),
                Err(_) => HttpFault::None,
            }
        });
        let text = match text {
            "" => folder.url(proxy.address, "/x"),
            text => text.to_owned(),
        };
        let backend = place(&text).create(&settings(variables(proxy.address))).unwrap();
        backend.replace(&name, b"x").unwrap();
        for requests in 1..4 {
            away.store(requests, Ordering::Relaxed);
            assert_eq!(backend.read(&name, 0, 9).unwrap(), b"x", "{text}");
            away.store(requests, Ordering::Relaxed);
            assert_eq!(backend.size(&name).unwrap(), 1, "{text}");
            away.store(requests, Ordering::Relaxed);
            assert_eq!(backend.list("keys").unwrap().len(), 1, "{text}");
            away.store(requests, Ordering::Relaxed);
            assert!(!backend.holds_at_most("arenas").unwrap(), "{text}");
        }
        away.store(0, Ordering::Relaxed);
        // What is not there costs at most two further requests.
        let other = ObjectName::new("keys", "b");
        let before = proxy.asked().len();
        assert!(backend.size(&other).unwrap_err().is_not_found(), "{text}");
        assert!(backend.read(&other, 0, 9).unwrap_err().is_not_found(), "{text}");
        assert!(backend.list("arenas").unwrap().is_empty(), "{text}");
        let asked = proxy.asked();
        assert!(asked.len() - before <= 9, "{text}: {:?}", &asked[before..]);
        // What is there costs none.
        let before = proxy.asked().len();
        backend.read(&name, 0, 9).unwrap();
        backend.size(&name).unwrap();
        backend.list("keys").unwrap();
        assert_eq!(proxy.asked().len() - before, 3, "{text}");
    }
}
