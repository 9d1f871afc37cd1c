//! Objects in a bucket of Amazon S3, or of a store that speaks as it does.
//!
//! Exclusive create is a PUT with `If-None-Match: *`. Not every store that answers as if it knew
//! this header keeps the promise, so `init` tries it ([`Promises::is_exclusive`] is none).
//! Requests are signed by `rusty-s3` in their URL; headers that change what a request does are
//! signed too. Uploads have a CRC-32C that the store compares, unless it does not know the header.

mod credentials;
mod dialect;
mod large;
pub(crate) mod past;
mod profile;
mod said;
mod signature;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp as Time;
use rusty_s3::actions::{ListObjectsV2, ListObjectsV2Response};
use rusty_s3::{Bucket, Credentials, Method, S3Action, signing};
use strongroom_backend::{BackendError, ObjectInfo, ObjectName, Operation, Promises, Refusal};
use strongroom_base::Timestamp;

use crate::address::{Address, Scheme, percent_encode};
use crate::authority;
use crate::failure::Failure;
use crate::http::{Answer, Http, MESSAGE_BYTES_MAX, Request, range_header};
use crate::pages::{Pages, all_begin_with};
use crate::service::{Service, read_within};
use crate::settings::Settings;
use credentials::Provider;
use dialect::{Dialect, Store};
use large::LARGE_BYTES;
use said::{Said, is_whole};
use signature::Unsigned;

/// How long a signed request is valid.
const SIGNED_FOR: Duration = Duration::from_secs(900);
/// One PUT stores at most this.
const OBJECT_BYTES_MAX: u64 = 5 << 30;
/// Requests in flight that are worth having at a store of objects.
const IN_FLIGHT: usize = 32;
/// Names in a page of a listing: as many as stores give.
const PAGE_NAMES: usize = 1000;
/// A page of a listing: a thousand objects of at most a KiB each.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// The folder whose objects get the storage class that the user chose: all others are small, and
/// are read often.
const CLASSED_FOLDER: &str = "arenas";

/// Classes whose objects have to be brought back before they can be read.
const ARCHIVES: [&str; 2] = ["GLACIER", "DEEP_ARCHIVE"];

/// Headers by which stores number their answers. No proxy has them.
const IDS: [&str; 3] = ["x-amz-request-id", "x-guploader-uploadid", "x-trans-id"];

/// The mode of a lock that no user can lift before its end.
const COMPLIANCE: &str = "COMPLIANCE";

/// The failure of a lock in a bucket that was not made for them.
const NOT_ENABLED: Failure =
    Failure::Unsupported("lock objects: object lock is not enabled for the bucket");

/// A bucket, or a part of one.
pub(crate) struct S3 {
    http: Http,
    dialect: Dialect,
    bucket: Bucket,
    /// What names in the bucket begin with: empty, or with a slash at the end.
    prefix: String,
    provider: Provider,
    settings: Settings,
    /// False once the store has shown that it does not know checksums.
    uses_checksums: AtomicBool,
    /// The storage class of arenas.
    class: Option<String>,
    /// Whether the service promises that what was written is seen at once.
    is_known: bool,
    /// True once the store has shown that it is one whose listings lag behind.
    is_eventual: AtomicBool,
    description: String,
}

/// How a request is answered: with its URL and the headers that are sent.
struct Signed {
    method: Method,
    url: String,
    headers: Vec<(&'static str, String)>,
}

impl S3 {
    /// The bucket of an address. Region, end point and credentials come from the variables and
    /// files that the service's own programs read.
    pub(crate) fn new(address: &Address, settings: &Settings) -> Result<Self, BackendError> {
        let description = address.to_string();
        let refused = |failure: Failure| failure.into_error(Operation::Open, None, &description);
        let variables = &settings.variables;
        let authorities = authority::read(variables, &["AWS_CA_BUNDLE"]).map_err(refused)?;
        let http = Http::new(settings, &authorities);
        let store = match address.scheme {
            Scheme::Gs => Store::google(address, settings),
            Scheme::B2 => Store::backblaze(address, settings, &http),
            _ => Store::amazon(address, settings),
        };
        let Store { dialect, bucket, provider, is_known } = store.map_err(refused)?;
        let prefix =
            if address.path.is_empty() { String::new() } else { format!("{}/", address.path) };
        Ok(Self {
            http,
            dialect,
            bucket,
            prefix,
            provider,
            settings: settings.clone(),
            uses_checksums: AtomicBool::new(true),
            class: variables.text("STRONGROOM_S3_STORAGE_CLASS").map(str::to_owned),
            is_known,
            is_eventual: AtomicBool::new(false),
            description,
        })
    }

    fn key(&self, name: &ObjectName) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The time for signatures.
    fn now(&self) -> Time {
        Time::from_nanosecond(i128::from(self.settings.clock.now().0))
            .expect("a clock's years are within those of a calendar")
    }

    fn credentials(&self) -> Result<Credentials, Failure> {
        self.provider.get(&self.http, self.settings.clock.now())
    }

    fn is_cancelled(&self) -> bool {
        self.settings.cancel.is_cancelled()
    }

    /// Signs an action that was made without credentials, with these headers.
    fn sign<'a, A: S3Action<'a>>(
        &self,
        action: &A,
        headers: &[(&'static str, String)],
    ) -> Result<Signed, Failure> {
        let keys = self.credentials()?;
        let now = self.now();
        let mut url = action.sign_with_time(SIGNED_FOR, &now);
        let mut query: Vec<(String, String)> =
            url.query_pairs().map(|(name, value)| (name.into(), value.into())).collect();
        query.sort();
        url.set_query(None);
        let mut sorted = headers.to_vec();
        sorted.sort();
        let url = if self.dialect == Dialect::Google {
            let host = url.host_str().unwrap_or_default();
            let host = url.port().map_or(host.to_owned(), |port| format!("{host}:{port}"));
            let owned = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone());
            let unsigned = Unsigned {
                method: A::METHOD.to_str(),
                host: &host,
                path: url.path(),
                query,
                headers: sorted.iter().map(owned).collect(),
                region: self.bucket.region(),
                time: now,
                seconds: SIGNED_FOR.as_secs(),
            };
            let query = unsigned.sign(signature::GOOGLE, keys.key(), keys.secret());
            format!("{url}?{query}")
        } else {
            signing::sign(
                &now,
                A::METHOD,
                url,
                keys.key(),
                keys.secret(),
                keys.token(),
                self.bucket.region(),
                SIGNED_FOR.as_secs(),
                query.iter().map(|(name, value)| (name.as_str(), value.as_str())),
                sorted.iter().map(|(name, value)| (*name, value.as_str())),
            )
            .into()
        };
        Ok(Signed { method: A::METHOD, url, headers: sorted })
    }

    fn call(&self, signed: &Signed, body: &[u8], max: usize) -> Result<Answer, Failure> {
        let answer = self.http.call(&Request {
            method: signed.method.to_str(),
            url: &signed.url,
            headers: &signed.headers,
            body,
            answer_bytes_max: max.max(MESSAGE_BYTES_MAX),
        })?;
        // OpenStack's Swift, which says so in each answer, lists what it has heard of so far.
        if answer.header("x-trans-id").or(answer.header("x-openstack-request-id")).is_some() {
            self.is_eventual.store(true, Ordering::Relaxed);
        }
        Ok(answer)
    }

    /// Why a request without a text in its answer did not find an object: it may not have come to the
    /// store, and other requests get a text.
    fn why_missing(&self, key: &str) -> Failure {
        let action = self.bucket.get_object(None, key);
        let asked = self.sign(&action, &[]).and_then(|mut signed| {
            signed.headers.push(("range", "bytes=0-0".to_owned()));
            self.call(&signed, &[], 1)
        });
        match asked {
            Ok(answer) if answer.status.is_success() || answer.status.as_u16() == 416 => {
                Failure::lost("the answer was that there is no such object, and there is one")
            }
            Ok(answer) => Said::of(&answer).failure(&answer),
            // What gives the whole object has one.
            Err(Failure::Unsupported(_)) => Failure::lost("the object was not found, and is there"),
            Err(failure) => failure,
        }
    }

    /// When the lock of an object ends, if it has one that no user can lift: of the other mode,
    /// `GOVERNANCE`, a right is enough.
    fn locked_until(&self, name: &ObjectName) -> Result<Option<Time>, Failure> {
        let key = self.key(name);
        let mut action = self.bucket.get_object(None, &key);
        action.query_mut().insert("retention", "");
        let mut signed = self.sign(&action, &[])?;
        // A store that knows no locks gives the object itself: not more of it than this.
        signed.headers.push(("range", format!("bytes=0-{}", MESSAGE_BYTES_MAX - 1)));
        let answer = self.call(&signed, &[], 0)?;
        let said = Said::of(&answer);
        match said.code.as_str() {
            "NoSuchObjectLockConfiguration" => return Ok(None),
            "InvalidRequest" | "ObjectLockConfigurationNotFoundError" => return Err(NOT_ENABLED),
            _ if !answer.status.is_success() => return Err(said.failure(&answer)),
            _ => {}
        }
        let text = String::from_utf8_lossy(&answer.body);
        let document = roxmltree::Document::parse(text.trim()).ok();
        // Stores give its root several names.
        let find = |tag: &str| {
            let mut nodes = document.as_ref()?.descendants();
            let found = nodes.find(|node| node.tag_name().name() == tag)?;
            Some(found.text().unwrap_or_default().trim().to_owned())
        };
        let end = find("RetainUntilDate").ok_or(Failure::Unsupported("lock objects"))?;
        let is_final = find("Mode").is_some_and(|mode| mode == COMPLIANCE);
        Ok(end.parse().ok().filter(|_| is_final))
    }

    /// The header with the storage class of an object, if it has one.
    fn class_of(&self, name: &ObjectName) -> Vec<(&'static str, String)> {
        let class = self.class.iter().filter(|_| name.folder() == CLASSED_FOLDER);
        class.map(|class| (self.dialect.storage_class(), class.clone())).collect()
    }

    /// How a request failed that may have had checksums, which not every store knows.
    fn fails(&self, answer: &Answer, with_checksums: bool) -> Failure {
        let said = Said::of(answer);
        if with_checksums && said.is_about_checksums() {
            self.uses_checksums.store(false, Ordering::Relaxed);
            return Failure::lost(said.text(answer));
        }
        said.failure(answer)
    }

    fn put(
        &self,
        name: &ObjectName,
        bytes: &[u8],
        condition: Option<(&'static str, String)>,
    ) -> Result<(), Failure> {
        if bytes.len() > LARGE_BYTES && self.dialect.has_parts() {
            return self.put_large(name, bytes, condition);
        }
        let mut headers = self.class_of(name);
        headers.extend(condition);
        let with_checksum = self.uses_checksums.load(Ordering::Relaxed);
        if with_checksum {
            headers.push(self.dialect.checksum(&checksum(bytes)));
        }
        let key = self.key(name);
        let action = self.bucket.put_object(None, &key);
        let answer = self.call(&self.sign(&action, &headers)?, bytes, 0)?;
        if answer.status.is_success() { Ok(()) } else { Err(self.fails(&answer, with_checksum)) }
    }

    /// One page of the names that begin with `prefix`, up to the next slash.
    fn page(
        &self,
        prefix: &str,
        after: Option<&str>,
        names_max: usize,
    ) -> Result<ListObjectsV2Response, Failure> {
        let mut action = self.bucket.list_objects_v2(None);
        action.with_prefix(prefix.to_owned());
        action.with_delimiter("/");
        action.with_max_keys(names_max);
        if let Some(token) = after {
            action.with_continuation_token(token.to_owned());
        }
        let answer = self.call(&self.sign(&action, &[])?, &[], PAGE_BYTES_MAX)?;
        if !answer.status.is_success() {
            return Err(Said::of(&answer).failure(&answer));
        }
        let unreadable = |why| Failure::lost(format!("a listing that cannot be read: {why}"));
        // What parses it takes the end of the text for the end of the listing.
        if !is_whole(&answer, "ListBucketResult") {
            return Err(unreadable("it has no end".to_owned()));
        }
        let text = String::from_utf8(answer.body).map_err(|error| unreadable(error.to_string()))?;
        let page =
            ListObjectsV2::parse_response(&text).map_err(|error| unreadable(error.to_string()))?;
        let keys = page.contents.iter().map(|object| &object.key);
        let folders = page.common_prefixes.iter().map(|found| &found.prefix);
        all_begin_with(prefix, keys.chain(folders))?;
        Ok(page)
    }
}

impl Service for S3 {
    fn is_there(&self) -> Result<bool, Failure> {
        // A listing of one name, because its refusal says what is wrong, unlike that of a HEAD.
        match self.page(&self.prefix, None, 1) {
            Ok(_) => Ok(true),
            // Credentials that may only read and write objects may not list the bucket.
            Err(Failure::Refused { refusal: Refusal::Right, .. }) => Ok(true),
            Err(Failure::NotFound) => Err(Failure::Refused {
                refusal: Refusal::NoSuchPlace,
                answer: "the bucket does not exist".to_owned(),
            }),
            Err(failure) => Err(failure),
        }
    }

    fn make(&self) -> Result<(), Failure> {
        // A bucket belongs to an account and costs money: its owner creates it.
        self.is_there().map(|_| ())
    }

    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, Failure> {
        let Some(range) = range_header(offset, length) else {
            return read_within(self, name, offset, length);
        };
        let key = self.key(name);
        let action = self.bucket.get_object(None, &key);
        let mut signed = self.sign(&action, &[])?;
        signed.headers.push(("range", range));
        let mut answer = self.call(&signed, &[], length)?;
        answer.part(offset, length).unwrap_or_else(|| Err(Said::of(&answer).failure(&answer)))
    }

    fn size(&self, name: &ObjectName) -> Result<u64, Failure> {
        let key = self.key(name);
        let action = self.bucket.head_object(None, &key);
        let answer = self.call(&self.sign(&action, &[])?, &[], 0)?;
        match answer.status.as_u16() {
            404 | 410 if IDS.iter().any(|id| answer.header(id).is_some()) => Err(Failure::NotFound),
            404 | 410 => Err(self.why_missing(&key)),
            _ if !answer.status.is_success() => Err(Said::of(&answer).failure(&answer)),
            _ => {
                let length = answer.header("content-length").and_then(|text| text.parse().ok());
                length.ok_or_else(|| Failure::lost("an answer without the object's length"))
            }
        }
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        match self.put(name, bytes, Some(self.dialect.only_if_new())) {
            Err(Failure::Unsupported(_)) => {
                Err(Failure::Unsupported("create an object exclusively"))
            }
            other => other,
        }
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        self.put(name, bytes, None)
    }

    fn remove(&self, name: &ObjectName) -> Result<(), Failure> {
        let key = self.key(name);
        let action = self.bucket.delete_object(None, &key);
        let answer = self.call(&self.sign(&action, &[])?, &[], 0)?;
        if answer.status.is_success() { Ok(()) } else { Err(Said::of(&answer).failure(&answer)) }
    }

    fn says_what_it_removed(&self) -> bool {
        false
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, Failure> {
        let prefix = match folder {
            "" => self.prefix.clone(),
            folder => format!("{}{folder}/", self.prefix),
        };
        let mut objects = Vec::new();
        let mut pages = Pages::new();
        loop {
            let after = pages.begins().map(String::as_str);
            let page = self.page(&prefix, after, PAGE_NAMES)?;
            objects.extend(page.contents.iter().filter_map(|object| {
                let name = object.key.strip_prefix(&self.prefix)?;
                let name = ObjectName::parse(name)?;
                Some(ObjectInfo { name, bytes: object.size.unwrap_or(0) })
            }));
            if !pages.turn(page.next_continuation_token)? {
                return Ok(objects);
            }
        }
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, Failure> {
        let allowed = format!("{}{folder}/", self.prefix);
        let mut pages = Pages::new();
        loop {
            let after = pages.begins().map(String::as_str);
            let page = self.page(&self.prefix, after, PAGE_NAMES)?;
            // Some consoles make an empty object for a folder.
            if !page.contents.iter().all(|object| object.key == self.prefix)
                || !page.common_prefixes.iter().all(|found| found.prefix == allowed)
            {
                return Ok(false);
            }
            // A page may have nothing, and say that there is more.
            if !pages.turn(page.next_continuation_token)? {
                return Ok(true);
            }
        }
    }

    fn copy(&self, from: &ObjectName, to: &ObjectName) -> Result<(), Failure> {
        let source = format!("{}/{}", self.bucket.name(), self.key(from));
        let headers = [(self.dialect.copy_source(), percent_encode(&source))];
        let key = self.key(to);
        let action = self.bucket.put_object(None, &key);
        let answer = self.call(&self.sign(&action, &headers)?, &[], 0)?;
        let said = Said::of(&answer);
        // It may fail after it has answered with success.
        match answer.status.is_success() {
            true if !said.code.is_empty() => Err(Failure::lost(said.text(&answer))),
            true if is_whole(&answer, "CopyObjectResult") => Ok(()),
            true if String::from_utf8_lossy(&answer.body).contains("CopyObjectResult") => {
                Err(Failure::lost("an answer about a copy that has no end"))
            }
            true => {
                // It has stored the empty body of the request, and ignored what it does not know.
                let _ = self.remove(to);
                Err(Failure::Unsupported("copy objects"))
            }
            false => Err(said.failure(&answer)),
        }
    }

    fn retain(&self, name: &ObjectName, until: Timestamp) -> Result<(), Failure> {
        // Locks end at whole seconds.
        let second = until.0.div_euclid(1_000_000_000);
        let until = Time::from_second(second).map_err(Failure::lost)?;
        // Asked first, because a store that does not know locks would take the request below for
        // one that replaces the object. And a lock that is long enough cannot be shortened. One of
        // the weaker mode becomes one of this, or the store says why not.
        if self.locked_until(name)?.is_some_and(|end| end >= until) {
            return Ok(());
        }
        let body = format!(
            "<Retention xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Mode>{COMPLIANCE}</Mode>\
             <RetainUntilDate>{until:.0}</RetainUntilDate></Retention>"
        );
        let sum = base64(digest::digest(&digest::SHA256, body.as_bytes()).as_ref());
        let headers = [("x-amz-checksum-sha256", sum)];
        let key = self.key(name);
        let mut action = self.bucket.put_object(None, &key);
        action.query_mut().insert("retention", "");
        let answer = self.call(&self.sign(&action, &headers)?, body.as_bytes(), 0)?;
        let said = Said::of(&answer);
        match said.code.as_str() {
            "InvalidRequest" | "ObjectLockConfigurationNotFoundError" => Err(NOT_ENABLED),
            _ if answer.status.is_success() => Ok(()),
            _ => Err(said.failure(&answer)),
        }
    }

    fn complaint(&self) -> Option<String> {
        let class = self.class.as_deref().filter(|class| ARCHIVES.contains(class))?;
        Some(format!(
            "STRONGROOM_S3_STORAGE_CLASS is {class}: arenas in that class have to be brought back \
             before they can be restored from, verified or pruned"
        ))
    }

    fn promises(&self) -> Promises {
        Promises {
            is_exclusive: None,
            is_consistent: if self.is_eventual.load(Ordering::Relaxed) {
                Some(false)
            } else {
                self.is_known.then_some(true)
            },
            is_durable: true,
            in_flight: IN_FLIGHT,
            sends_parts: true,
            object_bytes_max: OBJECT_BYTES_MAX,
            copies: true,
            locks: self.dialect != Dialect::Google,
            proves: false,
        }
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

/// A body's CRC-32C as the headers want it.
fn checksum(bytes: &[u8]) -> String {
    base64(&crc32c::crc32c(bytes).to_be_octets())
}

fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// The bytes of a checksum in the order that the header wants.
trait BigEndian {
    fn to_be_octets(self) -> [u8; 4];
}

impl BigEndian for u32 {
    #[expect(clippy::big_endian_bytes, reason = "the header's order, not ours")]
    fn to_be_octets(self) -> [u8; 4] {
        self.to_be_bytes()
    }
}
