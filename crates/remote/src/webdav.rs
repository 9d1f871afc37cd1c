//! Objects as files of a WebDAV server.
//!
//! A PUT that is cut may leave a part of a file. So an object is sent under a temporary name and gets
//! its own by `MOVE`; with `Overwrite: F` the server refuses a name that is taken (RFC 4918, 9.9.4).
//! Many servers look whether it is free and then rename, so of two clients that ask at once both may
//! win. Therefore a new object is moved only while this client has a lock of the server ([`lock`]),
//! unless its name was drawn by chance. A server that locks nothing has no exclusive create.
//!
//! A writer that is killed may leave a temporary file. It is left alone: without a clock that both
//! machines share, it cannot be distinguished from that of a living writer.

mod client;
mod listing;
mod lock;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use strongroom_backend::{
    BackendError, ObjectInfo, ObjectName, Operation, Promises, Refusal, TRIAL_FOLDER,
};
use strongroom_base::Entropy;
use strongroom_base::entropy::random_array;
use ureq::http::StatusCode;
use zeroize::Zeroizing;

use crate::address::{Address, Scheme, percent_encode};
use crate::authority;
use crate::failure::Failure;
use crate::http::{Http, range_header};
use crate::secret;
use crate::service::{Service, read_within};
use crate::settings::Settings;
use client::Client;
use listing::Entry;
use lock::{LOCKED, Lock, Locks};

/// Requests in flight that are worth having: many such servers have few threads.
const IN_FLIGHT: usize = 8;
/// The longest answer about a folder: about 100,000 objects.
const LISTING_BYTES_MAX: usize = 64 << 20;
/// What has at most this many bytes is sent before its folder is known to exist.
const SHORT_BYTES: usize = 64 << 10;
/// What the names of temporary files begin with; no object's name does.
const TEMPORARY: &str = ".tmp-";
/// What is asked about the files of a folder.
const ASKED: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\
    <propfind xmlns=\"DAV:\"><prop><resourcetype/><getcontentlength/></prop></propfind>";

/// A collection of a WebDAV server.
pub(crate) struct WebDav {
    client: Arc<Client>,
    /// The collection's URL, with a slash at its end.
    url: String,
    locks: Locks,
    entropy: Arc<dyn Entropy>,
    is_drawn: fn(&ObjectName) -> bool,
    // A plain mutex: held for a look or an insertion, never during a request.
    /// Folders that this client has made, or found to exist.
    folders: Mutex<BTreeSet<String>>,
    /// Whether the server has ever shown something of the collection.
    was_seen: AtomicBool,
    description: String,
}

/// What becomes of a file whose name another is to get.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfTaken {
    /// It stays, and the other does not get the name.
    Fail,
    /// The other takes its place.
    Overwrite,
}

impl WebDav {
    /// The collection of an address. The password comes from `WEBDAV_PASSWORD`,
    /// `WEBDAV_PASSWORD_FILE` or `WEBDAV_PASSWORD_COMMAND`.
    pub(crate) fn new(address: &Address, settings: &Settings) -> Result<Self, BackendError> {
        let description = address.to_string();
        let authorization = authorization(address, settings)
            .map_err(|failure| failure.into_error(Operation::Open, None, &description))?;
        let authorities = authority::read(&settings.variables, &[])
            .map_err(|failure| failure.into_error(Operation::Open, None, &description))?;
        let scheme = if address.scheme == Scheme::Webdavs { "https" } else { "http" };
        let mut url = format!("{scheme}://{}/", address.authority());
        if !address.path.is_empty() {
            url = format!("{url}{}/", percent_encode(&address.path));
        }
        let http = Http::new(settings, &authorities);
        let client = Arc::new(Client { http, user: address.user.clone(), authorization });
        Ok(Self {
            locks: Locks::new(client.clone(), url.clone(), settings),
            client,
            url,
            is_drawn: settings.is_drawn,
            entropy: settings.entropy.clone(),
            folders: Mutex::default(),
            was_seen: AtomicBool::new(false),
            description,
        })
    }

    fn url(&self, path: &str) -> String {
        format!("{}{}", self.url, percent_encode(path))
    }

    /// What is at a URL: the entries of a listing of this depth.
    fn look(&self, url: &str, depth: &str) -> Result<Vec<Entry>, Failure> {
        let headers = [
            ("depth", depth.to_owned()),
            ("content-type", "application/xml; charset=utf-8".to_owned()),
        ];
        let answer = self.client.call("PROPFIND", url, &headers, ASKED, LISTING_BYTES_MAX)?;
        match answer.status {
            StatusCode::MULTI_STATUS => {
                self.was_seen.store(true, Ordering::Relaxed);
                listing::parse(&answer.body)
            }
            StatusCode::OK | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
                Err(Failure::Refused {
                    refusal: Refusal::NoSuchPlace,
                    answer: "a web server answers there that has no WebDAV".to_owned(),
                })
            }
            _ => Err(answer.failure()),
        }
    }

    /// Asks for something, and believes that it is not there only if the collection itself is: a proxy
    /// whose server is away finds nothing.
    fn find<T>(&self, ask: impl Fn() -> Result<T, Failure>) -> Result<T, Failure> {
        match ask() {
            Err(Failure::NotFound) => {}
            found => return found,
        }
        match self.look(&self.url, "0") {
            // It may have come back only now.
            Ok(_) => ask(),
            Err(Failure::NotFound) if self.was_seen.load(Ordering::Relaxed) => {
                Err(Failure::lost("the server finds nothing, not the place itself either"))
            }
            Err(failure) => Err(failure),
        }
    }

    /// The entries of a folder, or of the collection itself; none if there is no such folder.
    fn entries(&self, folder: &str) -> Result<Vec<Entry>, Failure> {
        let url = match folder {
            "" => self.url.clone(),
            folder => format!("{}/", self.url(folder)),
        };
        match self.find(|| self.look(&url, "1")) {
            // Another client may have made it since.
            Err(Failure::NotFound) if folder.is_empty() => Err(Failure::Refused {
                refusal: Refusal::NoSuchPlace,
                answer: "the place itself is not there".to_owned(),
            }),
            Err(Failure::NotFound) => Ok(Vec::new()),
            found => {
                let entries = found?;
                self.folders().insert(folder.to_owned());
                Ok(entries)
            }
        }
    }

    /// One request for a part of a file, by its header `range`.
    fn read_part(
        &self,
        name: &ObjectName,
        range: &str,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, Failure> {
        let url = self.url(name.as_str());
        let headers = [("range", range.to_owned())];
        let (is_part, read) = match self.client.call("GET", &url, &headers, &[], length) {
            Ok(mut answer) => {
                let is_part = answer.status == StatusCode::PARTIAL_CONTENT;
                self.was_seen.fetch_or(is_part, Ordering::Relaxed);
                (is_part, answer.part(offset, length).unwrap_or_else(|| Err(answer.failure())))
            }
            Err(failure) => (false, Err(failure)),
        };
        match read {
            read if is_part => read,
            Err(failure @ (Failure::NotFound | Failure::Busy { .. } | Failure::Lost(_))) => {
                Err(failure)
            }
            // Of a collection, servers give a page for people, or say that it is elsewhere.
            read => match self.file(&url) {
                Err(failure) if failure.is_of_the_object() => Err(failure),
                _ => read,
            },
        }
    }

    /// Makes a collection whose parent exists. It may exist already.
    fn make_collection(&self, url: &str) -> Result<(), Failure> {
        let answer = self.client.call("MKCOL", url, &[], &[], 0)?;
        match answer.status {
            status if status.is_success() => Ok(()),
            // It exists, or something else has its name; what follows shows which.
            StatusCode::METHOD_NOT_ALLOWED => Ok(()),
            // Another client makes it at this moment.
            _ if self.look(url, "0").is_ok() => Ok(()),
            _ => Err(answer.failure()),
        }
    }

    fn make_folder(&self, folder: &str) -> Result<(), Failure> {
        if !folder.is_empty() {
            self.make_collection(&format!("{}/", self.url(folder)))?;
        }
        self.folders().insert(folder.to_owned());
        Ok(())
    }

    fn folders(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A temporary file's URL, in the folder where the object will be.
    fn temporary(&self, name: &ObjectName) -> String {
        let chance: [u8; 16] = random_array(&*self.entropy);
        let file = format!("{TEMPORARY}{:032x}", u128::from_le_bytes(chance));
        match name.folder() {
            "" => self.url(&file),
            folder => self.url(&format!("{folder}/{file}")),
        }
    }

    /// Sends a new object under a temporary name, and moves it to its own while no other client may.
    fn put_alone(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        if name.folder() == TRIAL_FOLDER && !self.locks.are_kept()? {
            return Err(Failure::Unsupported(lock::EXCLUDE));
        }
        let (temporary, target) = (self.temporary(name), self.url(name.as_str()));
        let outcome = match self.send_and_lock(name.folder(), &temporary, &target, bytes) {
            Ok(lock) => {
                let outcome = match lock.is_fresh() {
                    true => self.rename(&temporary, &target, IfTaken::Fail),
                    false => Err(Failure::lost("the server's lock came too late to be used")),
                };
                // As long as the file is there, a move without an answer may still come.
                if outcome.is_err() && !self.removes_temporary(&temporary) {
                    lock.leave();
                }
                return outcome;
            }
            Err(failure) => Err(failure),
        };
        self.removes_temporary(&temporary);
        outcome
    }

    /// Sends a temporary file and takes the lock: at a time, if that takes little room and time.
    fn send_and_lock(
        &self,
        folder: &str,
        temporary: &str,
        target: &str,
        bytes: &[u8],
    ) -> Result<Lock, Failure> {
        let is_sent = AtomicBool::new(true);
        let look = || match is_sent.load(Ordering::Relaxed) {
            true if self.is_taken(target)? => Err(Failure::Taken),
            true => Ok(()),
            false => Err(Failure::lost("nothing was sent")),
        };
        if bytes.len() > SHORT_BYTES {
            self.send(folder, temporary, bytes)?;
            return self.locks.take(look);
        }
        let (lock, sent) = std::thread::scope(|scope| {
            let lock = scope.spawn(|| self.locks.take(look));
            let sent = self.send(folder, temporary, bytes);
            is_sent.store(sent.is_ok(), Ordering::Relaxed);
            (lock.join().expect("it does not panic"), sent)
        });
        sent?;
        lock
    }

    /// Sends a file into a folder. Mostly that is there, so it is made when a short file finds that
    /// it is not.
    fn send(&self, folder: &str, url: &str, bytes: &[u8]) -> Result<(), Failure> {
        let is_known = || self.folders().contains(folder);
        if bytes.len() > SHORT_BYTES && !is_known() {
            self.make_folder(folder)?;
        }
        let binary = [("content-type", "application/octet-stream".to_owned())];
        let mut answer = self.client.call("PUT", url, &binary, bytes, 0)?;
        if !answer.status.is_success() && !is_known() {
            self.make_folder(folder)?;
            answer = self.client.call("PUT", url, &binary, bytes, 0)?;
        }
        match answer.status {
            status if status.is_success() => {
                self.folders().insert(folder.to_owned());
                Ok(())
            }
            // The folder vanished, or so it seems: the next attempt makes it.
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => {
                self.folders().clear();
                Err(Failure::lost(answer.message()))
            }
            _ => Err(answer.failure()),
        }
    }

    /// The length of a file, if the server says it. A collection is none.
    fn file(&self, url: &str) -> Result<Option<u64>, Failure> {
        match self.look(url, "0")?.as_slice() {
            [Entry { is_collection: true, .. }] => {
                Err(Failure::Unreadable(std::io::ErrorKind::IsADirectory.into()))
            }
            [Entry { bytes, .. }] => Ok(*bytes),
            _ => Err(Failure::lost("an answer about another file")),
        }
    }

    /// The headers of a request whose result gets this URL. What has it is kept or overwritten: a
    /// collection would be removed with all that is in it (RFC 4918, 9.8.4 and 9.9.3), so it is
    /// looked for.
    fn destination(
        &self,
        url: &str,
        taken: IfTaken,
    ) -> Result<[(&'static str, String); 2], Failure> {
        let overwrite = match taken {
            IfTaken::Fail => "F",
            IfTaken::Overwrite => match self.file(url) {
                Ok(_) | Err(Failure::NotFound) => "T",
                Err(failure) => return Err(failure),
            },
        };
        Ok([("destination", url.to_owned()), ("overwrite", overwrite.to_owned())])
    }

    /// Gives a temporary file its name.
    fn rename(&self, temporary: &str, target: &str, taken: IfTaken) -> Result<(), Failure> {
        let headers = self.destination(target, taken)?;
        let answer = self.client.call("MOVE", temporary, &headers, &[], 0)?;
        match answer.status {
            StatusCode::CREATED | StatusCode::NO_CONTENT | StatusCode::OK => Ok(()),
            StatusCode::PRECONDITION_FAILED => Err(Failure::Taken),
            StatusCode::BAD_GATEWAY => Err(Failure::Refused {
                refusal: Refusal::Other,
                answer: "the server does not know itself by this address (502 to a MOVE): use the \
                         address that it is configured with"
                    .to_owned(),
            }),
            // A server that two clients ask at once may answer the loser with any error.
            _ if taken == IfTaken::Fail && self.is_taken(target)? => Err(Failure::Taken),
            // The temporary file vanished, or a folder did.
            StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::LOCKED => {
                Err(Failure::lost(answer.message()))
            }
            // Some of the moves failed: the body says which, and why.
            StatusCode::MULTI_STATUS => Err(Failure::lost("the server moved nothing")),
            _ => Err(answer.failure()),
        }
    }

    /// Sends an object under a temporary name and moves it to its own.
    fn put(&self, name: &ObjectName, bytes: &[u8], taken: IfTaken) -> Result<(), Failure> {
        let temporary = self.temporary(name);
        let outcome = self
            .send(name.folder(), &temporary, bytes)
            .and_then(|()| self.rename(&temporary, &self.url(name.as_str()), taken));
        if outcome.is_err() {
            self.removes_temporary(&temporary);
        }
        outcome
    }

    /// Removes a temporary file after a failure, which is what matters. True if it is gone for sure.
    fn removes_temporary(&self, temporary: &str) -> bool {
        let answer = self.client.call("DELETE", temporary, &[], &[], 0);
        answer.is_ok_and(|answer| {
            answer.status == StatusCode::NOT_FOUND
                || answer.status.is_success() && answer.status != StatusCode::MULTI_STATUS
        })
    }

    fn is_taken(&self, url: &str) -> Result<bool, Failure> {
        match self.look(url, "0") {
            Ok(_) => Ok(true),
            Err(Failure::NotFound) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

impl Service for WebDav {
    fn is_there(&self) -> Result<bool, Failure> {
        self.is_taken(&self.url)
    }

    fn make(&self) -> Result<(), Failure> {
        // From the last collection that exists on; the server's top always does.
        let top = self.url.find("://").map_or(0, |colon| colon + 3);
        let slashes: Vec<usize> =
            self.url[top..].match_indices('/').map(|(at, _)| top + at + 1).collect();
        let mut missing = Vec::new();
        for end in slashes.into_iter().rev() {
            match self.look(&self.url[..end], "0") {
                Ok(_) => break,
                Err(Failure::NotFound) => missing.push(end),
                // It may well be that only what is below it is ours.
                Err(Failure::Refused { refusal: Refusal::Right, .. }) if !missing.is_empty() => {
                    break;
                }
                Err(failure) => return Err(failure),
            }
        }
        for end in missing.into_iter().rev() {
            self.make_collection(&self.url[..end])?;
        }
        Ok(())
    }

    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, Failure> {
        let Some(range) = range_header(offset, length) else {
            return read_within(self, name, offset, length);
        };
        self.find(|| self.read_part(name, &range, offset, length))
    }

    fn size(&self, name: &ObjectName) -> Result<u64, Failure> {
        let bytes = self.find(|| self.file(&self.url(name.as_str())))?;
        bytes.ok_or_else(|| Failure::lost("an answer without the object's length"))
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        match (self.is_drawn)(name) {
            true => self.put(name, bytes, IfTaken::Fail),
            false => self.put_alone(name, bytes),
        }
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Failure> {
        self.put(name, bytes, IfTaken::Overwrite)
    }

    fn check_removable(&self, name: &ObjectName) -> Result<(), Failure> {
        // A collection would go with all that is in it (RFC 4918, 9.6.1).
        self.find(|| self.file(&self.url(name.as_str()))).map(drop)
    }

    fn remove(&self, name: &ObjectName) -> Result<(), Failure> {
        let answer = self.client.call("DELETE", &self.url(name.as_str()), &[], &[], 0)?;
        match answer.status {
            // The removal of some parts failed.
            StatusCode::MULTI_STATUS => Err(Failure::lost("the server removed nothing")),
            status if status.is_success() => Ok(()),
            // Another client was faster, or a proxy has not asked the server.
            StatusCode::NOT_FOUND => {
                self.check_removable(name)?;
                Err(Failure::Busy { after: None, answer: answer.message() })
            }
            _ => Err(answer.failure()),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, Failure> {
        let slash = if folder.is_empty() { "" } else { "/" };
        let (url, prefix) = (self.url(&format!("{folder}{slash}")), format!("{folder}{slash}"));
        let entries = self.entries(folder)?;
        let own = listing::path_of(&url);
        Ok(entries
            .iter()
            .filter(|entry| entry.path.trim_end_matches('/') != own.trim_end_matches('/'))
            // At the top, collections are folders of objects.
            .filter(|entry| !entry.is_collection || !folder.is_empty())
            .filter_map(|entry| {
                let name = ObjectName::parse(&format!("{prefix}{}", entry.file()))?;
                Some(ObjectInfo { name, bytes: entry.bytes.unwrap_or(0) })
            })
            .collect())
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, Failure> {
        let entries = self.entries("")?;
        let own = listing::path_of(&self.url);
        Ok(entries.iter().all(|entry| {
            entry.path.trim_end_matches('/') == own.trim_end_matches('/')
                || entry.is_collection && entry.file() == folder
                || entry.file() == LOCKED
        }))
    }

    fn copy(&self, from: &ObjectName, to: &ObjectName) -> Result<(), Failure> {
        let from = self.url(from.as_str());
        // The copy of a collection would be one.
        self.file(&from)?;
        self.make_folder(to.folder())?;
        let headers = self.destination(&self.url(to.as_str()), IfTaken::Overwrite)?;
        let answer = self.client.call("COPY", &from, &headers, &[], 0)?;
        match answer.status {
            StatusCode::CREATED | StatusCode::NO_CONTENT | StatusCode::OK => Ok(()),
            StatusCode::MULTI_STATUS | StatusCode::CONFLICT => {
                Err(Failure::lost("the server copied nothing"))
            }
            _ => Err(answer.failure()),
        }
    }

    fn promises(&self) -> Promises {
        Promises {
            is_exclusive: None,
            is_consistent: Some(true),
            // The protocol does not say so, and common servers do not flush.
            is_durable: false,
            in_flight: IN_FLIGHT,
            sends_parts: true,
            object_bytes_max: u64::MAX,
            copies: true,
            locks: false,
            proves: false,
        }
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

fn authorization(
    address: &Address,
    settings: &Settings,
) -> Result<Option<Zeroizing<String>>, Failure> {
    let Some(user) = &address.user else { return Ok(None) };
    let password =
        secret::find(&settings.variables, "WEBDAV_PASSWORD")?.ok_or_else(|| Failure::Refused {
            refusal: Refusal::NoCredentials,
            answer: format!(
                "there is no password of {user}: set WEBDAV_PASSWORD, WEBDAV_PASSWORD_FILE or \
                 WEBDAV_PASSWORD_COMMAND"
            ),
        })?;
    let plain = Zeroizing::new(format!("{user}:{}", password.as_str()));
    let encoded = Zeroizing::new(BASE64.encode(plain.as_bytes()));
    Ok(Some(Zeroizing::new(format!("Basic {}", encoded.as_str()))))
}
