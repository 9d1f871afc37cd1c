//! The address of a place on another machine: `SCHEME://[USER@]HOST[:PORT][/PATH]`.

use std::ffi::OsString;
use std::fmt;

/// The address of a place on another machine, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Which kind of place.
    pub scheme: Scheme,
    /// The user's name there.
    pub user: Option<String>,
    /// The machine, or the bucket.
    pub host: String,
    /// The port, if not that of the scheme.
    pub port: Option<u16>,
    /// The path without slashes at its ends; empty for the place's top. For `ssh` and `sftp` it
    /// begins with a slash if it is not in the user's home folder.
    pub path: String,
}

macro_rules! schemes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The kinds of places.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Scheme { $($(#[$doc])* $name,)* }

        impl Scheme {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What is written before `://`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

schemes! {
    /// Amazon's object store, and those that speak as it does.
    S3 = "s3",
    /// Azure's blobs.
    Azblob = "azblob",
    /// Google's object store.
    Gs = "gs",
    /// Backblaze's object store.
    B2 = "b2",
    /// Files by the SSH file transfer protocol.
    Sftp = "sftp",
    /// Our own program at the far end of SSH.
    Ssh = "ssh",
    /// Our own server.
    Https = "https",
    /// WebDAV without encryption.
    Webdav = "webdav",
    /// WebDAV over TLS.
    Webdavs = "webdavs",
    /// FTP without encryption.
    Ftp = "ftp",
    /// FTP over TLS.
    Ftps = "ftps",
}

/// Why a text names no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// It looks like a place on another machine, and is not written as a URL.
    #[error("{} looks like a place on another machine, but is not a URL", .place.display())]
    NotUrl {
        /// What was written.
        place: OsString,
    },
    /// There is no such kind of place.
    #[error("there are no places that begin with {scheme}://")]
    Scheme {
        /// What was written before `://`.
        scheme: String,
    },
    /// It is not an address.
    #[error("{place} is not an address: {reason}")]
    Address {
        /// What was written, without a password.
        place: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// It has a password, which every user of the machine could read.
    #[error("the address of {place} has a password in it")]
    Password {
        /// What was written, without the password.
        place: String,
    },
    /// It is empty.
    #[error("the name of the repository is empty")]
    Empty,
}

impl Address {
    /// The address that a text is; none if the text has no `://`.
    pub fn parse(text: &str) -> Result<Option<Self>, PlaceError> {
        let Some((scheme, rest)) = text.split_once("://") else { return Ok(None) };
        let invalid = |reason| PlaceError::Address { place: without_password(text), reason };
        let scheme = Scheme::ALL
            .iter()
            .copied()
            .find(|known| known.as_str() == scheme)
            .ok_or_else(|| PlaceError::Scheme { scheme: scheme.to_owned() })?;
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err(PlaceError::Password { place: without_password(text) });
        }
        let (host, port) = split_port(host).ok_or_else(|| invalid("the port is not a number"))?;
        if host.is_empty() {
            return Err(invalid("the machine or bucket is missing"));
        }
        let decode = |text: &str| percent_decode(text).ok_or_else(|| invalid("it has a bad %XX"));
        let path = decode(path)?;
        let path = match scheme {
            // As in other programs: one slash is the user's home folder, two are the top.
            Scheme::Ssh | Scheme::Sftp => {
                path.strip_prefix('/').unwrap_or_default().trim_end_matches('/')
            }
            _ => path.trim_matches('/'),
        };
        if path.split('/').any(|part| part == "..") {
            return Err(invalid("`..` in its path"));
        }
        Ok(Some(Self {
            scheme,
            user: user.filter(|user| !user.is_empty()).map(decode).transpose()?,
            host: host.to_owned(),
            port,
            path: path.to_owned(),
        }))
    }

    /// The host with its port, as in a URL.
    pub fn authority(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.as_str())?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        write!(f, "{}", self.authority())?;
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", self.path) }
    }
}

/// Splits the port off a host, which may be an IPv6 address in brackets.
fn split_port(host: &str) -> Option<(&str, Option<u16>)> {
    let after = host.rfind(']').map_or(0, |bracket| bracket + 1);
    match host[after..].rfind(':') {
        Some(colon) => {
            let (host, port) = host.split_at(after + colon);
            Some((host, Some(port[1..].parse().ok()?)))
        }
        None => Some((host, None)),
    }
}

/// An address for messages: without what may be a password.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    match rest.split('/').next().unwrap_or_default().rsplit_once('@') {
        Some((user, _)) => {
            let name = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{name}{}", &rest[user.len()..])
        }
        None => text.to_owned(),
    }
}

/// Bytes for a path in a URL: everything but letters, digits, `-._~/` is written as %XX.
pub(crate) fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// A text without %XX; none if one of these is not two digits, or if the result is no text.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let parse = |text: &str| Address::parse(text).unwrap().unwrap();
        let address = parse("sftp://me@[::1]:2222//srv/a%20b/");
        assert_eq!((address.user.as_deref(), address.host.as_str()), (Some("me"), "[::1]"));
        assert_eq!((address.port, address.path.as_str()), (Some(2222), "/srv/a b"));
        assert_eq!(parse("ssh://host/in/home").path, "in/home");
        assert_eq!(parse("s3://bucket//a/b/").path, "a/b");
        assert_eq!(parse("s3://bucket").to_string(), "s3://bucket");
        assert_eq!(parse("ftp://me@host:2121/a/").to_string(), "ftp://me@host:2121/a");
        assert_eq!(Address::parse("/a/b").unwrap(), None);
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_password() {
        for (text, says) in [
            ("s3:///a", "machine or bucket"),
            ("sftp://host:port/a", "port"),
            ("gopher://host/a", "gopher"),
            ("webdav://host/a/../b", ".."),
            ("ftp://host/%zz", "%XX"),
            ("ftp://me:secret@host/a", "password"),
            ("ftp://me:sec:ret@host:x/a", "password"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn percent_signs_come_back() {
        let text = "a b/ü%~";
        assert_eq!(percent_encode(text), "a%20b/%C3%BC%25~");
        assert_eq!(percent_decode(&percent_encode(text)).as_deref(), Some(text));
        assert_eq!(percent_decode("%ff"), None);
    }
}
