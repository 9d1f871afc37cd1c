//! Objects in a bucket of Amazon S3, or of a store that speaks as it does.
//!
//! Exclusive create is a PUT with `If-None-Match: *`. Not every store that answers as if it knew
//! this header keeps the promise, so `init` tries it ([`Promises::is_exclusive`] is none).
//! Requests are signed by `rusty-s3` in their URL; headers that change what a request does are
//! signed too. Uploads have a CRC-32C that the store compares, unless it does not know the header.

mod credentials;
mod profile;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp as Time;
use rusty_s3::actions::{ListObjectsV2, ListObjectsV2Response};
use rusty_s3::{Bucket, Credentials, Method, S3Action, UrlStyle};
use strongroom_backend::{BackendError, ObjectInfo, ObjectName, Operation, Promises, Refusal};
use strongroom_base::Timestamp;

use crate::address::{Address, percent_encode};
use crate::authority;
use crate::failure::Failure;
use crate::http::{Answer, Http, MESSAGE_BYTES_MAX, Request, range_header};
use crate::service::{Service, read_within};
use crate::settings::Settings;
use credentials::Provider;
use profile::Profile;

/// How long a signed request is valid.
const SIGNED_FOR: Duration = Duration::from_secs(900);
/// One PUT stores at most this.
const OBJECT_BYTES_MAX: u64 = 5 << 30;
/// Requests in flight that a store of objects bears.
const IN_FLIGHT: usize = 32;
/// Names in a page of a listing: as many as stores give.
const PAGE_NAMES: usize = 1000;
/// A page of a listing: a thousand objects of at most a KiB each.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// A bucket, or a part of one.
pub(crate) struct S3 {
    http: Http,
    bucket: Bucket,
    /// What names in the bucket begin with: empty, or with a slash at the end.
    prefix: String,
    provider: Provider,
    settings: Settings,
    /// False once the store has shown that it does not know checksums.
    uses_checksums: AtomicBool,
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
    /// files that Amazon's own programs read.
    pub(crate) fn new(address: &Address, settings: &Settings) -> Result<Self, BackendError> {
        let description = address.to_string();
        let refused = |refusal, answer: String| BackendError::Refused {
            operation: Operation::Open,
            what: description.clone(),
            refusal,
            answer,
        };
        let variables = &settings.variables;
        let profile = Profile::read(variables);
        let region = ["AWS_REGION", "AWS_DEFAULT_REGION"]
            .iter()
            .find_map(|name| variables.text(name))
            .or_else(|| profile.get("region"))
            .unwrap_or("us-east-1");
        let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]
            .iter()
            .find_map(|name| variables.text(name))
            .or_else(|| profile.get("endpoint_url"));
        // A bucket with a dot in its name has no certificate of its own.
        let style = match endpoint {
            None if !address.host.contains('.') => UrlStyle::VirtualHost,
            _ => UrlStyle::Path,
        };
        let amazon = format!("https://s3.{region}.amazonaws.com");
        let endpoint = endpoint.unwrap_or(&amazon);
        let url = endpoint.parse().map_err(|error| {
            refused(Refusal::NoSuchPlace, format!("the end point {endpoint:?} is no URL: {error}"))
        })?;
        let bucket = Bucket::new(url, style, address.host.clone(), region.to_owned())
            .map_err(|error| refused(Refusal::NoSuchPlace, error.to_string()))?;
        let authorities = authority::read(variables, &["AWS_CA_BUNDLE"])
            .map_err(|failure| failure.into_error(Operation::Open, None, &description))?;
        let prefix =
            if address.path.is_empty() { String::new() } else { format!("{}/", address.path) };
        Ok(Self {
            http: Http::new(settings, &authorities),
            bucket,
            prefix,
            provider: Provider::new(&profile, settings),
            settings: settings.clone(),
            uses_checksums: AtomicBool::new(true),
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

    fn sign<'a, A: S3Action<'a>>(
        &self,
        action: &mut A,
        headers: &[(&'static str, String)],
    ) -> Signed {
        for (name, value) in headers {
            action.headers_mut().insert(*name, value.clone());
        }
        let url = action.sign_with_time(SIGNED_FOR, &self.now());
        Signed { method: A::METHOD, url: url.into(), headers: headers.to_vec() }
    }

    fn call(&self, signed: &Signed, body: &[u8], max: usize) -> Result<Answer, Failure> {
        self.http.call(&Request {
            method: signed.method.to_str(),
            url: &signed.url,
            headers: &signed.headers,
            body,
            answer_bytes_max: max.max(MESSAGE_BYTES_MAX),
        })
    }

    fn put(
        &self,
        name: &ObjectName,
        bytes: &[u8],
        mut headers: Vec<(&'static str, String)>,
    ) -> Result<(), Failure> {
        let with_checksum = self.uses_checksums.load(Ordering::Relaxed);
        if with_checksum {
            let sum = BASE64.encode(crc32c::crc32c(bytes).to_be_octets());
            headers.push(("x-amz-checksum-crc32c", sum));
        }
        let (credentials, key) = (self.credentials()?, self.key(name));
        let mut action = self.bucket.put_object(Some(&credentials), &key);
        let answer = self.call(&self.sign(&mut action, &headers), bytes, 0)?;
        if answer.status.is_success() {
            return Ok(());
        }
        let error = Said::of(&answer);
        let is_unknown = matches!(error.code.as_str(), "NotImplemented" | "InvalidArgument")
            && (error.message.contains("checksum") || error.message.contains("Checksum"));
        if with_checksum && is_unknown {
            self.uses_checksums.store(false, Ordering::Relaxed);
            return Err(Failure::lost(error.text(&answer)));
        }
        Err(error.failure(&answer))
    }

    /// One page of the names that begin with `prefix`, up to the next slash.
    fn page(
        &self,
        prefix: &str,
        after: Option<&str>,
        names_max: usize,
    ) -> Result<ListObjectsV2Response, Failure> {
        let credentials = self.credentials()?;
        let mut action = self.bucket.list_objects_v2(Some(&credentials));
        action.with_prefix(prefix.to_owned());
        action.with_delimiter("/");
        action.with_max_keys(names_max);
        if let Some(token) = after {
            action.with_continuation_token(token.to_owned());
        }
        let answer = self.call(&self.sign(&mut action, &[]), &[], PAGE_BYTES_MAX)?;
        if !answer.status.is_success() {
            return Err(Said::of(&answer).failure(&answer));
        }
        let unreadable = |error| Failure::lost(format!("a listing that cannot be read: {error}"));
        let text = String::from_utf8(answer.body).map_err(|error| unreadable(error.to_string()))?;
        ListObjectsV2::parse_response(&text).map_err(|error| unreadable(error.to_string()))
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
        let (credentials, key) = (self.credentials()?, self.key(name));
        let mut action = self.bucket.get_object(Some(&credentials), &key);
        let mut signed = self.sign(&mut action, &[]);
        signed.headers.push(("range", range));
        let mut answer = self.call(&signed, &[], length)?;
        answer.part(offset, length).unwrap_or_else(|| Err(Said::of(&answer).failure(&answer)))
    }

    fn size(&self, name: &ObjectName) -> Result<u64, Failure> {
        let (credentials, key) = (self.credentials()?, self.key(name));
        let mut action = self.bucket.head_object(Some(&credentials), &key);
        let answer = self.call(&self.sign(&mut action, &[]), &[], 0)?;
        if !answer.status.is_success() {
            return Err(Said::of(&answer).failure(&answer));
        }
        let length = answer.header("content-length").and_then(|text| text.parse().ok());
        length.ok_or_else(|| Failure::lost("an answer without the object's length"))
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        match self.put(name, bytes, vec![("if-none-match", "*".to_owned())]) {
            Err(Failure::Unsupported(_)) => {
                Err(Failure::Unsupported("create an object exclusively"))
            }
            other => other,
        }
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        self.put(name, bytes, Vec::new())
    }

    fn remove(&self, name: &ObjectName) -> Result<(), Failure> {
        let (credentials, key) = (self.credentials()?, self.key(name));
        let mut action = self.bucket.delete_object(Some(&credentials), &key);
        let answer = self.call(&self.sign(&mut action, &[]), &[], 0)?;
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
        let mut after = None;
        loop {
            let page = self.page(&prefix, after.as_deref(), PAGE_NAMES)?;
            objects.extend(page.contents.iter().filter_map(|object| {
                let name = object.key.strip_prefix(&self.prefix)?;
                let name = ObjectName::parse(name)?;
                Some(ObjectInfo { name, bytes: object.size.unwrap_or(0) })
            }));
            let next = page.next_continuation_token;
            // A store that gives the same page again would keep us here.
            if next.is_none() || next == after {
                return Ok(objects);
            }
            after = next;
        }
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, Failure> {
        let page = self.page(&self.prefix, None, PAGE_NAMES)?;
        let allowed = format!("{}{folder}/", self.prefix);
        // Some consoles make an empty object for a folder.
        let is_empty = page.contents.iter().all(|object| object.key == self.prefix);
        Ok(is_empty && page.common_prefixes.iter().all(|found| found.prefix == allowed))
    }

    fn copy(&self, from: &ObjectName, to: &ObjectName) -> Result<(), Failure> {
        let source = format!("{}/{}", self.bucket.name(), self.key(from));
        let headers = [("x-amz-copy-source", percent_encode(&source))];
        let (credentials, key) = (self.credentials()?, self.key(to));
        let mut action = self.bucket.put_object(Some(&credentials), &key);
        let answer = self.call(&self.sign(&mut action, &headers), &[], 0)?;
        let said = Said::of(&answer);
        // It may fail after it has answered with success.
        match answer.status.is_success() && said.code.is_empty() {
            true => Ok(()),
            false if answer.status.is_success() => Err(Failure::lost(said.text(&answer))),
            false => Err(said.failure(&answer)),
        }
    }

    fn retain(&self, name: &ObjectName, until: Timestamp) -> Result<(), Failure> {
        let until = Time::from_nanosecond(i128::from(until.0)).map_err(Failure::lost)?;
        let body = format!(
            "<Retention xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Mode>COMPLIANCE</Mode>\
             <RetainUntilDate>{until:.0}</RetainUntilDate></Retention>"
        );
        let sum = BASE64.encode(digest::digest(&digest::SHA256, body.as_bytes()));
        let headers = [("x-amz-checksum-sha256", sum)];
        let (credentials, key) = (self.credentials()?, self.key(name));
        let mut action = self.bucket.put_object(Some(&credentials), &key);
        action.query_mut().insert("retention", "");
        let answer = self.call(&self.sign(&mut action, &headers), body.as_bytes(), 0)?;
        let said = Said::of(&answer);
        match said.code.as_str() {
            "InvalidRequest" | "ObjectLockConfigurationNotFoundError" => {
                Err(Failure::Unsupported("lock objects: object lock is not enabled for the bucket"))
            }
            _ if answer.status.is_success() => Ok(()),
            _ => Err(said.failure(&answer)),
        }
    }

    fn promises(&self) -> Promises {
        Promises {
            is_exclusive: None,
            is_consistent: None,
            is_durable: true,
            in_flight: IN_FLIGHT,
            object_bytes_max: OBJECT_BYTES_MAX,
            copies: true,
            locks: true,
            proves: false,
        }
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

/// An error as the store says it.
struct Said {
    code: String,
    message: String,
}

impl Said {
    /// The error in an answer; empty if there is none.
    fn of(answer: &Answer) -> Self {
        let text = String::from_utf8_lossy(&answer.body);
        let document = roxmltree::Document::parse(text.trim()).ok();
        let find = |tag: &str| {
            let root = document.as_ref()?.root_element();
            if root.tag_name().name() != "Error" {
                return None;
            }
            let found = root.children().find(|node| node.tag_name().name() == tag)?;
            found.text().map(str::to_owned)
        };
        Self {
            code: find("Code").unwrap_or_default(),
            message: find("Message").unwrap_or_default(),
        }
    }

    fn text(&self, answer: &Answer) -> String {
        match (self.code.as_str(), self.message.as_str()) {
            ("", _) => answer.message(),
            (code, "") => code.to_owned(),
            (code, message) => format!("{message} ({code})"),
        }
    }

    fn failure(&self, answer: &Answer) -> Failure {
        let text = self.text(answer);
        let refused = |refusal| Failure::Refused { refusal, answer: text.clone() };
        match self.code.as_str() {
            "NoSuchBucket" => refused(Refusal::NoSuchPlace),
            "NoSuchKey" => Failure::NotFound,
            "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "ExpiredToken" | "InvalidToken"
            | "TokenRefreshRequired" => refused(Refusal::Credentials),
            "RequestTimeTooSkewed" | "RequestExpired" => refused(Refusal::Clock),
            "AccessDenied" if text.contains("xpired") => refused(Refusal::Clock),
            "AccessDenied" if text.contains("WORM") || text.contains("lock") => {
                refused(Refusal::Locked)
            }
            "AuthorizationHeaderMalformed" | "AuthorizationQueryParametersError"
            | "PermanentRedirect" | "IllegalLocationConstraintException" => {
                refused(Refusal::Region)
            }
            "SlowDown" | "ServiceUnavailable" | "RequestLimitExceeded"
            // Two conditional requests at once: one of them wins, and the next answer says which.
            | "ConditionalRequestConflict" | "OperationAborted" => {
                Failure::Busy { after: None, answer: text }
            }
            "BadDigest" | "XAmzContentChecksumMismatch" | "RequestTimeout" | "IncompleteBody"
            | "InternalError" => Failure::lost(text),
            "PreconditionFailed" => Failure::Taken,
            "NotImplemented" => Failure::Unsupported("do this"),
            "QuotaExceeded" | "XMinioStorageFull" | "InsufficientCapacity" => Failure::Full,
            _ => match answer.status.as_u16() {
                412 => Failure::Taken,
                301 | 307 => refused(Refusal::Region),
                // Of an object there is `NoSuchKey`; other things that are missing are the user's.
                404 if !self.code.is_empty() => refused(Refusal::Credentials),
                _ => answer.failure_saying(text),
            },
        }
    }
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
