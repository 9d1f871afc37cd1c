//! Where a repository is, as a person writes it.
//!
//! The one place that knows which kinds of places there are: a new one is a
//! [`Scheme`], an arm of [`Place::open`], and a [`Service`](crate::service::Service).

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use strongroom_backend::{
    Backend, BackendError, Judge, LocalBackend, Operation, Refusal, StripedBackend,
};
use strongroom_base::entropy::random_array;

use crate::address::{Address, PlaceError, Scheme};
use crate::azure::Azure;
use crate::ftp::Ftp;
use crate::own::Own;
use crate::past::Past;
use crate::remote::Remote;
use crate::s3::S3;
use crate::s3::past::S3Past;
use crate::service::Service;
use crate::settings::Settings;
use crate::sftp::Sftp;
use crate::stripes::Stripes;
use crate::webdav::WebDav;

/// Where a repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A folder of this machine, or a file that names several stores.
    Folder(PathBuf),
    /// A place on another machine.
    Remote(Address),
}

impl Place {
    /// The place that a text names.
    ///
    /// As with rsync and scp, a colon before the first slash makes it remote: `s3://bucket`,
    /// `sftp://host/folder`. A folder with such a name is written `./s3:bucket`.
    pub fn parse(text: &OsStr) -> Result<Self, PlaceError> {
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            return Err(PlaceError::Empty);
        }
        if let Some(path) = bytes.strip_prefix(b"file://") {
            return Ok(Self::Folder(PathBuf::from(OsStr::from_bytes(path))));
        }
        let first = bytes.split(|byte| *byte == b'/').next().unwrap_or_default();
        if !first.contains(&b':') {
            return Ok(Self::Folder(PathBuf::from(text)));
        }
        let not_url = || PlaceError::NotUrl { place: text.to_owned() };
        let address = Address::parse(text.to_str().ok_or_else(not_url)?)?;
        Ok(Self::Remote(address.ok_or_else(not_url)?))
    }

    /// Opens the place; none if nothing is there.
    pub fn open(&self, settings: &Settings) -> Result<Option<Arc<dyn Backend>>, BackendError> {
        if let Some(stripes) = self.stripes()? {
            return self.open_stripes(&stripes, settings.judge, |place| place.open(settings));
        }
        match self {
            Self::Folder(path) => match LocalBackend::open(path) {
                Ok(backend) => Ok(Some(Arc::new(backend))),
                Err(BackendError::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound =>
                {
                    Ok(None)
                }
                Err(error) => Err(error),
            },
            Self::Remote(address) => self.connect(address, settings, Entry::Asked),
        }
    }

    /// The same, without a question to a place on another machine: if nothing is there, no object
    /// is found.
    pub fn reach(&self, settings: &Settings) -> Result<Option<Arc<dyn Backend>>, BackendError> {
        match self {
            Self::Remote(address) => self.connect(address, settings, Entry::Unasked),
            Self::Folder(_) => self.open(settings),
        }
    }

    /// Opens a place that keeps versions of its objects as it was; nothing can be changed there.
    /// None if nothing is there.
    pub fn open_past(
        &self,
        settings: &Settings,
        past: Past,
    ) -> Result<Option<Arc<dyn Backend>>, BackendError> {
        if let Some(stripes) = self.stripes()? {
            return self
                .open_stripes(&stripes, settings.judge, |place| place.open_past(settings, past));
        }
        match self {
            Self::Remote(address) if matches!(address.scheme, Scheme::S3 | Scheme::B2) => {
                let s3 = S3::new(address, settings);
                enter(s3.map(|s3| S3Past::new(s3, past)), settings, Entry::Asked)
            }
            _ => Err(BackendError::Refused {
                operation: Operation::Open,
                what: format!("{self} {past}"),
                refusal: Refusal::NoVersions,
                answer: "only s3:// and b2:// show earlier versions".to_owned(),
            }),
        }
    }

    /// Makes the place if it does not exist, and opens it.
    pub fn create(&self, settings: &Settings) -> Result<Arc<dyn Backend>, BackendError> {
        if let Some(stripes) = self.stripes()? {
            let stores = stripes.places.iter().map(|place| self.part(place)?.create(settings));
            let stores = stores.collect::<Result<Vec<_>, _>>()?;
            let set = random_array(&*settings.entropy);
            let made = StripedBackend::create(stores, stripes.parity, set, &self.to_string())?;
            return Ok(Arc::new(made.with_judge(settings.judge)));
        }
        match self {
            Self::Folder(path) => Ok(Arc::new(LocalBackend::create(path)?)),
            Self::Remote(address) => {
                let made = self.connect(address, settings, Entry::Made)?;
                Ok(made.expect("a place that was made is there"))
            }
        }
    }

    /// The folders of this machine that it consists of, and the file that names them if they are several.
    pub fn files(&self) -> Vec<PathBuf> {
        let Self::Folder(path) = self else { return Vec::new() };
        let stripes = self.stripes().ok().flatten();
        let parts = stripes.iter().flat_map(|stripes| &stripes.places);
        let parts = parts.filter_map(|place| match Self::parse(place) {
            Ok(Self::Folder(part)) => Some(part),
            _ => None,
        });
        std::iter::once(path.clone()).chain(parts).collect()
    }

    /// The stores, if it is a file that names several.
    fn stripes(&self) -> Result<Option<Stripes>, BackendError> {
        let Self::Folder(path) = self else { return Ok(None) };
        Stripes::read(path).map_err(|source| self.not_opened(source))
    }

    fn open_stripes(
        &self,
        stripes: &Stripes,
        judge: Judge,
        open: impl Fn(&Self) -> Result<Option<Arc<dyn Backend>>, BackendError>,
    ) -> Result<Option<Arc<dyn Backend>>, BackendError> {
        let mut failed = None;
        let mut stores = Vec::new();
        for place in &stripes.places {
            // One that does not answer is missing, like one that was erased.
            stores.push(open(&self.part(place)?).unwrap_or_else(|error| {
                failed = failed.take().or(Some(error));
                None
            }));
        }
        match StripedBackend::open(stores, &self.to_string())? {
            Some(backend) => Ok(Some(Arc::new(backend.with_judge(judge)))),
            None => failed.map_or(Ok(None), Err),
        }
    }

    /// One of its stores.
    fn part(&self, place: &OsStr) -> Result<Self, BackendError> {
        let invalid =
            |why: String| self.not_opened(io::Error::new(io::ErrorKind::InvalidData, why));
        let part = Self::parse(place).map_err(|error| invalid(error.to_string()))?;
        match part.stripes()? {
            None => Ok(part),
            Some(_) => Err(invalid(format!("{part} names several stores itself"))),
        }
    }

    fn not_opened(&self, source: io::Error) -> BackendError {
        BackendError::Io { operation: Operation::Open, what: self.to_string(), source }
    }

    fn connect(
        &self,
        address: &Address,
        settings: &Settings,
        entry: Entry,
    ) -> Result<Option<Arc<dyn Backend>>, BackendError> {
        match address.scheme {
            Scheme::S3 | Scheme::Gs | Scheme::B2 => {
                enter(S3::new(address, settings), settings, entry)
            }
            Scheme::Azblob => enter(Azure::new(address, settings), settings, entry),
            Scheme::Webdav | Scheme::Webdavs => {
                enter(WebDav::new(address, settings), settings, entry)
            }
            Scheme::Sftp => enter(Sftp::new(address, settings), settings, entry),
            Scheme::Ssh | Scheme::Https => enter(Own::new(address, settings), settings, entry),
            Scheme::Ftp | Scheme::Ftps => enter(Ftp::new(address, settings), settings, entry),
        }
    }
}

/// What is done about a place before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// It is made if it does not exist.
    Made,
    /// It is asked whether it is there.
    Asked,
    /// Nothing: the first object shows it.
    Unasked,
}

/// Makes a backend of a service whose place is there, or was made.
fn enter(
    service: Result<impl Service + 'static, BackendError>,
    settings: &Settings,
    entry: Entry,
) -> Result<Option<Arc<dyn Backend>>, BackendError> {
    let remote = Remote::new(service?, settings);
    match entry {
        Entry::Made => remote.make()?,
        Entry::Asked if !remote.is_there()? => return Ok(None),
        Entry::Asked | Entry::Unasked => {}
    }
    Ok(Some(Arc::new(remote)))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "{}", path.display()),
            Self::Remote(address) => write!(f, "{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_before_the_first_slash_is_remote() {
        for (text, path) in [
            ("/room", Some("/room")),
            ("room", Some("room")),
            ("./s3:bucket", Some("./s3:bucket")),
            ("/mnt/10:30", Some("/mnt/10:30")),
            ("file:///room", Some("/room")),
            ("s3:bucket/x", None),
            ("sftp:host:/x", None),
            ("me@host:room", None),
            ("", None),
        ] {
            let parsed = Place::parse(text.as_ref()).ok();
            assert_eq!(parsed, path.map(|path| Place::Folder(path.into())), "{text:?}");
        }
        for scheme in Scheme::ALL {
            let text = format!("{}://host/x", scheme.as_str());
            assert_eq!(Place::parse(text.as_ref()).unwrap().to_string(), text);
        }
    }
}
