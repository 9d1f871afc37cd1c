//! What a WebDAV server answers about files: RFC 4918's `multistatus`.

use roxmltree::{Document, Node, ParsingOptions};

use crate::address::percent_decode;
use crate::failure::Failure;

/// About ten for each of the objects that a listing may have.
const NODES_MAX: u32 = 2_000_000;

/// One file or collection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The path of its URL, without %XX.
    pub(crate) path: String,
    pub(crate) is_collection: bool,
    /// Its length, if the server gave it.
    pub(crate) bytes: Option<u64>,
}

impl Entry {
    /// The last part of its path.
    pub(crate) fn file(&self) -> &str {
        self.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }
}

/// The entries of an answer.
pub(crate) fn parse(body: &[u8]) -> Result<Vec<Entry>, Failure> {
    let unreadable = |reason: String| Failure::lost(format!("an unreadable listing: {reason}"));
    let text = std::str::from_utf8(body).map_err(|error| unreadable(error.to_string()))?;
    let options = ParsingOptions { nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text.trim_start_matches('\u{feff}'), options)
        .map_err(|error| unreadable(error.to_string()))?;
    let root = document.root_element();
    if !is(root, "multistatus") {
        return Err(unreadable("it is no `multistatus`".to_owned()));
    }
    Ok(root.children().filter(|node| is(*node, "response")).filter_map(entry).collect())
}

fn entry(response: Node<'_, '_>) -> Option<Entry> {
    let href = response.children().find(|node| is(*node, "href"))?.text()?.trim();
    let path = path_of(href);
    // Some servers list what exists no more.
    let status = response.children().find(|node| is(*node, "status")).and_then(|node| node.text());
    if status.is_some_and(|status| status.contains(" 404")) {
        return None;
    }
    // Properties that the server does not have come with a status of their own.
    let find = |name: &str| {
        response
            .children()
            .filter(|node| is(*node, "propstat"))
            .filter(|node| !is_missing(*node))
            .flat_map(|propstat| propstat.children().filter(|node| is(*node, "prop")))
            .flat_map(|prop| prop.children())
            .find(|node| is(*node, name))
    };
    let is_collection =
        find("resourcetype").is_some_and(|kind| kind.children().any(|node| is(node, "collection")));
    let bytes = find("getcontentlength").and_then(|node| node.text()?.trim().parse().ok());
    Some(Entry { path, is_collection, bytes })
}

fn is_missing(propstat: Node<'_, '_>) -> bool {
    let status = propstat.children().find(|node| is(*node, "status"));
    status.and_then(|node| node.text()).is_some_and(|text| !text.contains(" 200"))
}

fn is(node: Node<'_, '_>, name: &str) -> bool {
    node.tag_name().name() == name && node.tag_name().namespace() == Some("DAV:")
}

/// The path of a URL, or of a path alone, without %XX. What is no such thing stays as it is.
pub(crate) fn path_of(url: &str) -> String {
    let path = match url.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        None => url,
    };
    percent_decode(path).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_several_servers_are_read() {
        let body = r#"<?xml version="1.0"?>
            <D:multistatus xmlns:D="DAV:" xmlns:x="urn:x">
              <D:response><D:href>http://host:80/a%20b/</D:href><D:propstat><D:prop>
                <D:resourcetype><D:collection/></D:resourcetype></D:prop>
                <D:status>HTTP/1.1 200 OK</D:status></D:propstat>
                <D:propstat><D:prop><D:getcontentlength>7</D:getcontentlength></D:prop>
                <D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>
              <D:response><D:href>/a%20b/c</D:href><D:propstat><D:prop><D:resourcetype/>
                <x:getcontentlength>9</x:getcontentlength>
                <D:getcontentlength> 12 </D:getcontentlength></D:prop>
                <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
              <D:response><D:href>/a%20b/gone</D:href>
                <D:status>HTTP/1.1 404 Not Found</D:status></D:response>
            </D:multistatus>"#;
        let folder = Entry { path: "/a b/".to_owned(), is_collection: true, bytes: None };
        let file = Entry { path: "/a b/c".to_owned(), is_collection: false, bytes: Some(12) };
        let found = parse(body.as_bytes()).unwrap();
        assert_eq!(found, [folder, file]);
        assert_eq!((found[0].file(), found[1].file()), ("a b", "c"));
    }

    #[test]
    fn what_is_no_listing_is_an_error() {
        for body in [
            &b""[..],
            b"\xff\xfe",
            b"<html/>",
            b"<multistatus/>",
            b"<D:multistatus xmlns:D=\"DAV:\">",
            b"<!DOCTYPE a [<!ENTITY a \"b\">]><multistatus xmlns=\"DAV:\">&a;</multistatus>",
        ] {
            assert!(parse(body).is_err(), "{}", String::from_utf8_lossy(body));
        }
    }
}
