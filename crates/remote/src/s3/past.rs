//! A bucket as it was: a bucket with versioning keeps what was overwritten and removed.
//!
//! Objects never change, so of several versions of a name the first is the true one. A thief with
//! the rights of a client can hide it behind later versions or remove the name, but not the version
//! itself (object lock protects versions, not names). Two views show what is behind: the bucket at a
//! time, and the versions of each name by their age.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp as Time;
use rusty_s3::S3Action;
use strongroom_backend::{ObjectInfo, ObjectName, Promises};

use super::{PAGE_BYTES_MAX, PAGE_NAMES, S3, Said};
use crate::failure::Failure;
use crate::http::range_header;
use crate::pages::{Pages, all_begin_with};
use crate::past::Past;
use crate::service::{Service, read_within};

/// The failure of everything that would change the past.
const FIXED: Failure = Failure::Unsupported("change what it was");
/// Versions that are remembered from listings: 200 bytes each.
const REMEMBERED_MAX: usize = 100_000;

/// A bucket, or a part of one, as it was.
pub(crate) struct S3Past {
    s3: S3,
    past: Past,
    // A plain mutex: held to look up or add one entry.
    /// What listings have shown: which version is shown of a name.
    known: Mutex<HashMap<ObjectName, Shown>>,
}

/// The version that is shown of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    version: String,
    bytes: u64,
}

/// A line of a listing: something that was written, or that the name was removed.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    key: String,
    version: String,
    written: Time,
    /// None if this removed the name.
    bytes: Option<u64>,
}

/// One page of a listing of versions, sorted by key, and of a key from the newest on.
#[derive(Debug, Default)]
struct Page {
    versions: Vec<Version>,
    /// The key and the version after which the next page begins.
    next: Option<(String, String)>,
}

impl S3Past {
    pub(crate) fn new(s3: S3, past: Past) -> Self {
        Self { s3, past, known: Mutex::default() }
    }

    /// One page of the versions of names that begin with `prefix`, up to the next slash.
    fn page(&self, prefix: &str, after: Option<&(String, String)>) -> Result<Page, Failure> {
        // Of the bucket itself: the empty key.
        let mut action = self.s3.bucket.get_object(None, "");
        let query = action.query_mut();
        query.insert("versions", "");
        query.insert("delimiter", "/");
        query.insert("prefix", prefix.to_owned());
        query.insert("max-keys", PAGE_NAMES.to_string());
        if let Some((key, version)) = after {
            query.insert("key-marker", key.clone());
            query.insert("version-id-marker", version.clone());
        }
        let answer = self.s3.call(&self.s3.sign(&action, &[])?, &[], PAGE_BYTES_MAX)?;
        if !answer.status.is_success() {
            return Err(Said::of(&answer).failure(&answer));
        }
        let page = Page::parse(&String::from_utf8_lossy(&answer.body))?;
        all_begin_with(prefix, page.versions.iter().map(|version| &version.key))?;
        Ok(page)
    }

    /// What is shown of all names that begin with `prefix`, up to the next slash, sorted.
    fn shown(&self, prefix: &str) -> Result<Vec<(String, Shown)>, Failure> {
        let mut all: Vec<Version> = Vec::new();
        let mut found = Vec::new();
        let mut pages = Pages::new();
        loop {
            let page = self.page(prefix, pages.begins())?;
            all.extend(page.versions);
            let is_last = !pages.turn(page.next)?;
            // The versions of one key may go on in the next page.
            let last_key = all.last().map(|version| version.key.clone());
            let whole = match &last_key {
                Some(key) if !is_last => all.partition_point(|version| version.key < *key),
                _ => all.len(),
            };
            let rest = all.split_off(whole);
            for versions in all.chunk_by(|a, b| a.key == b.key) {
                if let Some(shown) = choose(versions, &self.past_of(&versions[0].key)) {
                    found.push((versions[0].key.clone(), shown));
                }
            }
            all = rest;
            if is_last {
                return Ok(found);
            }
        }
    }

    /// How a name is looked at. What is at the top says whose the objects are, so of versions by
    /// their age it is always the first: each view is a repository.
    fn past_of(&self, key: &str) -> Past {
        let is_top = key.strip_prefix(&self.s3.prefix).is_some_and(|name| !name.contains('/'));
        match self.past {
            Past::Version(_) if is_top => Past::Version(0),
            past => past,
        }
    }

    /// What is shown of one name.
    fn find(&self, name: &ObjectName) -> Result<Shown, Failure> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shown) = known().get(name) {
            return Ok(shown.clone());
        }
        let key = self.s3.key(name);
        let found = self.shown(&key)?.into_iter().find(|(found, _)| *found == key);
        let (_, shown) = found.ok_or(Failure::NotFound)?;
        self.remember(name, &shown);
        Ok(shown)
    }

    fn remember(&self, name: &ObjectName, shown: &Shown) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < REMEMBERED_MAX {
            known.insert(name.clone(), shown.clone());
        }
    }
}

/// Which of the versions of one key is shown; they are sorted from the newest on.
fn choose(versions: &[Version], past: &Past) -> Option<Shown> {
    let chosen = match past {
        Past::AsOf(time) => {
            versions.iter().find(|version| version.written.as_nanosecond() <= i128::from(time.0))
        }
        Past::Version(number) => {
            let written = versions.iter().rev().filter(|version| version.bytes.is_some());
            written.take(number.saturating_add(1)).last()
        }
    }?;
    Some(Shown { version: chosen.version.clone(), bytes: chosen.bytes? })
}

impl Page {
    fn parse(text: &str) -> Result<Self, Failure> {
        let unreadable = |why: String| {
            Failure::lost(format!("a listing of versions that cannot be read: {why}"))
        };
        let document = roxmltree::Document::parse(text.trim())
            .map_err(|error| unreadable(error.to_string()))?;
        let root = document.root_element();
        if root.tag_name().name() != "ListVersionsResult" {
            return Err(Failure::Unsupported("show earlier versions of its objects"));
        }
        let mut page = Self::default();
        let child = |node: roxmltree::Node<'_, '_>, tag: &str| {
            let found = node.children().find(|child| child.tag_name().name() == tag);
            found.and_then(|found| found.text()).map(|text| text.trim().to_owned())
        };
        for node in root.children() {
            let is_removal = match node.tag_name().name() {
                "Version" => false,
                "DeleteMarker" => true,
                _ => continue,
            };
            let missing = |tag: &str| unreadable(format!("a version without {tag}"));
            let written = child(node, "LastModified").and_then(|text| text.parse().ok());
            let bytes = child(node, "Size").and_then(|text| text.parse().ok());
            page.versions.push(Version {
                key: child(node, "Key").ok_or_else(|| missing("a key"))?,
                // The version of what was written before the bucket had versions is "null".
                version: child(node, "VersionId").unwrap_or_else(|| "null".to_owned()),
                written: written.ok_or_else(|| missing("a time"))?,
                bytes: match is_removal {
                    true => None,
                    false => Some(bytes.ok_or_else(|| missing("a size"))?),
                },
            });
        }
        // Stores group what was written and what was removed, so the order is made again; of equal
        // times it stays as it was.
        page.versions.sort_by(|a, b| a.key.cmp(&b.key).then(b.written.cmp(&a.written)));
        if child(root, "IsTruncated").as_deref() == Some("true") {
            let key = child(root, "NextKeyMarker").filter(|key| !key.is_empty());
            let version = child(root, "NextVersionIdMarker").unwrap_or_default();
            let key = key.ok_or_else(|| unreadable("it has no end".to_owned()))?;
            page.next = Some((key, version));
        }
        Ok(page)
    }
}

impl Service for S3Past {
    fn is_there(&self) -> Result<bool, Failure> {
        self.s3.is_there()
    }

    fn make(&self) -> Result<(), Failure> {
        Err(FIXED)
    }

    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, Failure> {
        let Some(range) = range_header(offset, length) else {
            return read_within(self, name, offset, length);
        };
        let key = self.s3.key(name);
        let mut action = self.s3.bucket.get_object(None, &key);
        action.query_mut().insert("versionId", self.find(name)?.version);
        let mut signed = self.s3.sign(&action, &[])?;
        signed.headers.push(("range", range));
        let mut answer = self.s3.call(&signed, &[], length)?;
        answer.part(offset, length).unwrap_or_else(|| match Said::of(&answer) {
            // A rule of the bucket has removed it since it was listed.
            said if said.code == "NoSuchVersion" => Err(Failure::NotFound),
            said => Err(said.failure(&answer)),
        })
    }

    fn size(&self, name: &ObjectName) -> Result<u64, Failure> {
        Ok(self.find(name)?.bytes)
    }

    fn create(&self, _name: &ObjectName, _bytes: &[u8]) -> Result<(), Failure> {
        Err(FIXED)
    }

    fn replace(&self, _name: &ObjectName, _bytes: &[u8]) -> Result<(), Failure> {
        Err(FIXED)
    }

    fn remove(&self, _name: &ObjectName) -> Result<(), Failure> {
        Err(FIXED)
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, Failure> {
        let prefix = match folder {
            "" => self.s3.prefix.clone(),
            folder => format!("{}{folder}/", self.s3.prefix),
        };
        let mut objects = Vec::new();
        for (key, shown) in self.shown(&prefix)? {
            let name = key.strip_prefix(&self.s3.prefix).and_then(ObjectName::parse);
            let Some(name) = name else { continue };
            self.remember(&name, &shown);
            objects.push(ObjectInfo { name, bytes: shown.bytes });
        }
        Ok(objects)
    }

    fn holds_at_most(&self, _folder: &str) -> Result<bool, Failure> {
        Ok(false)
    }

    fn promises(&self) -> Promises {
        Promises { copies: false, locks: false, ..self.s3.promises() }
    }

    fn describe(&self) -> String {
        format!("{} {}", self.s3.description, self.past)
    }
}

#[cfg(test)]
mod tests {
    use strongroom_base::Timestamp;

    use super::*;

    const LISTING: &str = r#"<?xml version="1.0"?>
        <ListVersionsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
          <IsTruncated>true</IsTruncated><NextKeyMarker>a</NextKeyMarker>
          <NextVersionIdMarker>1</NextVersionIdMarker>
          <Version><Key>a</Key><VersionId>3</VersionId><Size>9</Size>
            <LastModified>1970-01-01T00:00:30.000Z</LastModified></Version>
          <Version><Key>a</Key><VersionId>1</VersionId><Size>7</Size>
            <LastModified>1970-01-01T00:00:10.000Z</LastModified></Version>
          <DeleteMarker><Key>a</Key><VersionId>2</VersionId>
            <LastModified>1970-01-01T00:00:20.000Z</LastModified></DeleteMarker>
        </ListVersionsResult>"#;

    #[test]
    fn of_a_name_the_version_of_the_time_or_the_age_is_shown() {
        let page = Page::parse(LISTING).unwrap();
        assert_eq!(page.next, Some(("a".to_owned(), "1".to_owned())));
        let shown = |past| choose(&page.versions, &past).map(|shown| shown.version);
        let at = |second: i64| shown(Past::AsOf(Timestamp(second * 1_000_000_000)));
        assert_eq!(at(9), None);
        assert_eq!(at(10).as_deref(), Some("1"));
        assert_eq!(at(20), None, "it was removed");
        assert_eq!(at(30).as_deref(), Some("3"));
        assert_eq!(shown(Past::AsOf(Timestamp::LATEST)).as_deref(), Some("3"));
        assert_eq!(shown(Past::Version(0)).as_deref(), Some("1"));
        assert_eq!(shown(Past::Version(1)).as_deref(), Some("3"));
        assert_eq!(shown(Past::Version(2)).as_deref(), Some("3"));
    }

    #[test]
    fn listings_of_other_kinds_are_refused() {
        let without = |tag: &str| {
            let begin = LISTING.replace(&format!("<{tag}>"), "<X>");
            begin.replace(&format!("</{tag}>"), "</X>")
        };
        for text in [
            String::new(),
            "<ListBucketResult/>".to_owned(),
            without("Key"),
            without("Size"),
            without("LastModified"),
            LISTING[..LISTING.len() / 2].to_owned(),
        ] {
            assert!(Page::parse(&text).is_err(), "{text}");
        }
    }
}
