//! Objects as block blobs in a container of Azure, or of Azurite.
//!
//! Exclusive create is `Put Blob` with `If-None-Match: *`, which is atomic there. Requests are
//! signed by the account's key (`SharedKey`), or have a token (SAS) in their URL.

mod access;
mod signature;

use std::time::Duration;

use roxmltree::{Document, ParsingOptions};
use strongroom_backend::{BackendError, ObjectInfo, ObjectName, Operation, Promises, Refusal};

use crate::address::{Address, percent_encode};
use crate::authority;
use crate::failure::Failure;
use crate::http::{Answer, Http, MESSAGE_BYTES_MAX, Request, range_header};
use crate::pages::{Pages, all_begin_with};
use crate::service::{Service, read_within};
use crate::settings::Settings;
use access::{Access, Keys};

/// The version of the protocol: the first with blobs of this size.
const VERSION: &str = "2021-12-02";
/// One `Put Blob` stores at most this.
const OBJECT_BYTES_MAX: u64 = 5000 << 20;
/// Requests in flight that are worth having at a store of objects.
const IN_FLIGHT: usize = 32;
/// The objects of one page, and its bytes: about a KiB for each.
const PAGE_OBJECTS: usize = 5000;
const PAGE_BYTES_MAX: usize = 16 << 20;
/// About twenty for each object of a page.
const PAGE_NODES_MAX: u32 = 400_000;
/// How long a copy within the account is awaited, and how often it is asked for.
const COPY_LOOKS: usize = 300;
const COPY_PAUSE: Duration = Duration::from_millis(200);

/// A container, or a part of one.
pub(crate) struct Azure {
    http: Http,
    access: Access,
    container: String,
    /// What names in the container begin with: empty, or with a slash at the end.
    prefix: String,
    settings: Settings,
    description: String,
}

/// What one request is about.
#[derive(Default)]
struct Call<'a> {
    method: &'a str,
    /// The path below the container: empty for the container itself.
    path: String,
    query: &'a [(&'a str, String)],
    headers: &'a [(&'a str, String)],
    body: &'a [u8],
    answer_bytes_max: usize,
}

impl Azure {
    /// The container of an address. Account and keys come from the variables that Microsoft's own
    /// programs read.
    pub(crate) fn new(address: &Address, settings: &Settings) -> Result<Self, BackendError> {
        let description = address.to_string();
        let refused = |failure: Failure| failure.into_error(Operation::Open, None, &description);
        let access = Access::find(&settings.variables).map_err(refused)?;
        let authorities = authority::read(&settings.variables, &[]).map_err(refused)?;
        let prefix =
            if address.path.is_empty() { String::new() } else { format!("{}/", address.path) };
        Ok(Self {
            http: Http::new(settings, &authorities),
            access,
            container: address.host.clone(),
            prefix,
            settings: settings.clone(),
            description,
        })
    }

    fn key(&self, name: &ObjectName) -> String {
        format!("{}{name}", self.prefix)
    }

    fn path(&self, key: &str) -> String {
        match key {
            "" => format!("/{}", self.container),
            key => format!("/{}/{}", self.container, percent_encode(key)),
        }
    }

    fn call(&self, call: &Call<'_>) -> Result<Answer, Failure> {
        let path = format!("{}{}", self.access.path, self.path(&call.path));
        let mut headers = call.headers.to_vec();
        headers.push(("x-ms-version", VERSION.to_owned()));
        headers.push(("x-ms-date", signature::date(self.settings.clock.now())));
        let mut url = format!("{}{path}", self.access.origin);
        let mut separator = '?';
        for (name, value) in call.query {
            url.push_str(&format!("{separator}{name}={}", encode_value(value)));
            separator = '&';
        }
        match &self.access.keys {
            Keys::Shared(key) => {
                let signed = signature::Signed {
                    method: call.method,
                    account: &self.access.account,
                    path: &path,
                    query: call.query,
                    headers: &headers,
                    body_bytes: call.body.len(),
                };
                headers.push(("authorization", signed.authorization(key)));
            }
            Keys::Token(token) => url.push_str(&format!("{separator}{}", token.as_str())),
        }
        self.http.call(&Request {
            method: call.method,
            url: &url,
            headers: &headers,
            body: call.body,
            answer_bytes_max: call.answer_bytes_max.max(MESSAGE_BYTES_MAX),
        })
    }

    fn put(
        &self,
        name: &ObjectName,
        bytes: &[u8],
        condition: &[(&str, String)],
    ) -> Result<(), Failure> {
        let mut headers = vec![("x-ms-blob-type", "BlockBlob".to_owned())];
        headers.extend_from_slice(condition);
        let answer = self.call(&Call {
            method: "PUT",
            path: self.key(name),
            headers: &headers,
            body: bytes,
            ..Call::default()
        })?;
        if answer.status.is_success() { Ok(()) } else { Err(failure(&answer)) }
    }

    /// One page of the blobs that begin with `prefix`, up to the next slash.
    fn page(&self, prefix: &str, after: Option<&String>) -> Result<Page, Failure> {
        let query = [
            ("comp", "list".to_owned()),
            ("delimiter", "/".to_owned()),
            ("marker", after.cloned().unwrap_or_default()),
            ("maxresults", PAGE_OBJECTS.to_string()),
            ("prefix", prefix.to_owned()),
            ("restype", "container".to_owned()),
        ];
        let used: Vec<_> = query.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let answer = self.call(&Call {
            method: "GET",
            query: &used,
            answer_bytes_max: PAGE_BYTES_MAX,
            ..Call::default()
        })?;
        if !answer.status.is_success() {
            return Err(failure(&answer));
        }
        let page = Page::parse(&answer.body)?;
        let blobs = page.blobs.iter().map(|(key, _)| key);
        all_begin_with(prefix, blobs.chain(&page.folders))?;
        Ok(page)
    }

    fn copy_status(&self, name: &ObjectName) -> Result<String, Failure> {
        let call = Call { method: "HEAD", path: self.key(name), ..Call::default() };
        let answer = self.call(&call)?;
        if !answer.status.is_success() {
            return Err(failure(&answer));
        }
        Ok(answer.header("x-ms-copy-status").unwrap_or("success").to_owned())
    }
}

impl Service for Azure {
    fn is_there(&self) -> Result<bool, Failure> {
        let query = [("restype", "container".to_owned())];
        // Not HEAD: its errors have no text.
        let answer = self.call(&Call { method: "GET", query: &query, ..Call::default() })?;
        if answer.status.is_success() {
            return Ok(true);
        }
        match failure(&answer) {
            // Tokens for blobs alone may not ask for the container.
            Failure::Refused { refusal: Refusal::Right, .. } => Ok(true),
            Failure::NotFound => Ok(false),
            Failure::Refused { refusal: Refusal::NoSuchPlace, .. } => Ok(false),
            failure => Err(failure),
        }
    }

    fn make(&self) -> Result<(), Failure> {
        if self.is_there()? {
            return Ok(());
        }
        let query = [("restype", "container".to_owned())];
        let answer = self.call(&Call { method: "PUT", query: &query, ..Call::default() })?;
        match answer.header("x-ms-error-code") {
            _ if answer.status.is_success() => Ok(()),
            Some("ContainerAlreadyExists") => Ok(()),
            _ => Err(failure(&answer)),
        }
    }

    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, Failure> {
        let Some(range) = range_header(offset, length) else {
            return read_within(self, name, offset, length);
        };
        let mut answer = self.call(&Call {
            method: "GET",
            path: self.key(name),
            headers: &[("range", range)],
            answer_bytes_max: length,
            ..Call::default()
        })?;
        answer.part(offset, length).unwrap_or_else(|| Err(failure(&answer)))
    }

    fn size(&self, name: &ObjectName) -> Result<u64, Failure> {
        let call = Call { method: "HEAD", path: self.key(name), ..Call::default() };
        let answer = self.call(&call)?;
        if !answer.status.is_success() {
            return Err(failure(&answer));
        }
        let length = answer.header("content-length").and_then(|text| text.parse().ok());
        length.ok_or_else(|| Failure::lost("an answer without the object's length"))
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        self.put(name, bytes, &[("if-none-match", "*".to_owned())])
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        self.put(name, bytes, &[])
    }

    fn remove(&self, name: &ObjectName) -> Result<(), Failure> {
        let call = Call { method: "DELETE", path: self.key(name), ..Call::default() };
        let answer = self.call(&call)?;
        if answer.status.is_success() { Ok(()) } else { Err(failure(&answer)) }
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, Failure> {
        let prefix = match folder {
            "" => self.prefix.clone(),
            folder => format!("{}{folder}/", self.prefix),
        };
        let mut objects = Vec::new();
        let mut pages = Pages::new();
        loop {
            let page = self.page(&prefix, pages.begins())?;
            objects.extend(page.blobs.iter().filter_map(|(key, bytes)| {
                let name = ObjectName::parse(key.strip_prefix(&self.prefix)?)?;
                Some(ObjectInfo { name, bytes: *bytes })
            }));
            if !pages.turn(page.next)? {
                return Ok(objects);
            }
        }
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, Failure> {
        let allowed = format!("{}{folder}/", self.prefix);
        let mut pages = Pages::new();
        loop {
            let page = self.page(&self.prefix, pages.begins())?;
            // Some programs make an empty blob for a folder.
            if !page.blobs.iter().all(|(key, _)| *key == self.prefix)
                || !page.folders.iter().all(|found| *found == allowed)
            {
                return Ok(false);
            }
            // A page may have nothing, and say that there is more.
            if !pages.turn(page.next)? {
                return Ok(true);
            }
        }
    }

    fn copy(&self, from: &ObjectName, to: &ObjectName) -> Result<(), Failure> {
        let access = &self.access;
        let source = format!("{}{}{}", access.origin, access.path, self.path(&self.key(from)));
        let source = match &access.keys {
            Keys::Shared(_) => source,
            Keys::Token(token) => format!("{source}?{}", token.as_str()),
        };
        let answer = self.call(&Call {
            method: "PUT",
            path: self.key(to),
            headers: &[("x-ms-copy-source", source)],
            ..Call::default()
        })?;
        if !answer.status.is_success() {
            return Err(failure(&answer));
        }
        let mut status = answer.header("x-ms-copy-status").unwrap_or("success").to_owned();
        for _ in 0..COPY_LOOKS {
            if status != "pending" {
                break;
            }
            std::thread::sleep(COPY_PAUSE);
            status = self.copy_status(to)?;
        }
        match status.as_str() {
            "success" => Ok(()),
            other => Err(Failure::lost(format!("the copy is {other}"))),
        }
    }

    fn promises(&self) -> Promises {
        Promises {
            is_exclusive: None,
            is_consistent: Some(true),
            is_durable: true,
            in_flight: IN_FLIGHT,
            sends_parts: true,
            object_bytes_max: OBJECT_BYTES_MAX,
            copies: true,
            locks: false,
            proves: false,
        }
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

/// A page of a listing.
#[derive(Debug, Default)]
struct Page {
    blobs: Vec<(String, u64)>,
    folders: Vec<String>,
    /// Where the next page begins.
    next: Option<String>,
}

impl Page {
    fn parse(body: &[u8]) -> Result<Self, Failure> {
        let unreadable = |reason: String| Failure::lost(format!("an unreadable listing: {reason}"));
        let text = std::str::from_utf8(body).map_err(|error| unreadable(error.to_string()))?;
        let options = ParsingOptions { nodes_limit: PAGE_NODES_MAX, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text.trim_start_matches('\u{feff}'), options)
            .map_err(|error| unreadable(error.to_string()))?;
        let root = document.root_element();
        if !root.has_tag_name("EnumerationResults") {
            return Err(unreadable("it is no `EnumerationResults`".to_owned()));
        }
        let mut page = Self::default();
        let found = root.children().filter(|node| node.has_tag_name("Blobs"));
        for item in found.flat_map(|blobs| blobs.children()) {
            let text_of = |tag: &str| {
                let node = item.descendants().find(|node| node.has_tag_name(tag))?;
                Some(node.text().unwrap_or_default().to_owned())
            };
            let Some(name) = text_of("Name") else { continue };
            if item.has_tag_name("BlobPrefix") {
                page.folders.push(name);
            } else if item.has_tag_name("Blob") {
                let bytes = text_of("Content-Length").and_then(|text| text.parse().ok());
                page.blobs.push((name, bytes.unwrap_or(0)));
            }
        }
        let next = root.children().find(|node| node.has_tag_name("NextMarker"));
        let next = next.and_then(|node| node.text()).filter(|next| !next.is_empty());
        page.next = next.map(str::to_owned);
        Ok(page)
    }
}

/// How a request failed, by the code that the service gives.
fn failure(answer: &Answer) -> Failure {
    let (in_body, detail) = said(answer);
    let code = answer.header("x-ms-error-code").map_or(in_body, str::to_owned);
    let text = match (code.as_str(), detail.as_str()) {
        ("", _) => answer.message(),
        (code, "") => code.to_owned(),
        (code, detail) => format!("{detail} ({code})"),
    };
    let refused = |refusal| Failure::Refused { refusal, answer: text.clone() };
    match code.as_str() {
        "BlobAlreadyExists" | "ConditionNotMet" | "UnauthorizedBlobOverwrite" => Failure::Taken,
        "BlobNotFound" => Failure::NotFound,
        "ContainerNotFound" | "AccountNotFound" | "InvalidResourceName" => {
            refused(Refusal::NoSuchPlace)
        }
        "AuthenticationFailed" | "InvalidAuthenticationInfo" => {
            let is_of_another_time = ["date header", "Date header", "not within the valid time"]
                .iter()
                .any(|part| detail.contains(part));
            refused(if is_of_another_time { Refusal::Clock } else { Refusal::Credentials })
        }
        // Azurite's code for a wrong key.
        "AuthorizationFailure" if detail.contains("failed to authenticate") => {
            refused(Refusal::Credentials)
        }
        "NoAuthenticationInformation" => refused(Refusal::NoCredentials),
        "AuthorizationFailure"
        | "AuthorizationPermissionMismatch"
        | "AuthorizationResourceTypeMismatch"
        | "AuthorizationServiceMismatch"
        | "InsufficientAccountPermissions"
        | "AccountIsDisabled" => refused(Refusal::Right),
        "BlobArchived" | "BlobBeingRehydrated" => refused(Refusal::Archived),
        "BlobImmutableDueToPolicy" | "LeaseIdMissing" | "SnapshotsPresent" => {
            refused(Refusal::Locked)
        }
        "ServerBusy" | "ContainerBeingDeleted" | "AccountBeingCreated" | "PendingCopyOperation" => {
            Failure::Busy { after: answer.retry_after(), answer: text }
        }
        "InternalError" | "OperationTimedOut" | "Md5Mismatch" => Failure::lost(text),
        // The service names what it does not have, in a header too: this is of a proxy on the way.
        "" if matches!(answer.status.as_u16(), 404 | 410) => Failure::lost(text),
        _ => answer.failure_saying(text),
    }
}

/// Code and message of an error's body, if it has them.
fn said(answer: &Answer) -> (String, String) {
    let text = String::from_utf8_lossy(&answer.body);
    let Ok(document) = Document::parse(text.trim_start_matches('\u{feff}').trim()) else {
        return (String::new(), String::new());
    };
    let find = |tag: &str| {
        let node = document.root_element().children().find(|node| node.has_tag_name(tag))?;
        node.text().map(str::to_owned)
    };
    let message = find("AuthenticationErrorDetail").or_else(|| find("Message"));
    // After its first line come an identifier of the request and the time.
    let line = message.as_deref().and_then(|text| text.lines().next()).unwrap_or_default();
    (find("Code").unwrap_or_default(), line.chars().take(200).collect())
}

/// A value in a URL's query.
fn encode_value(text: &str) -> String {
    percent_encode(text).replace('/', "%2F")
}
