//! The file that names the stores of a striped repository.
//!
//! ```text
//! strongroom stripes, parity 1
//! /media/disk/backup
//! s3://backups/laptop
//! webdavs://me@cloud/backup
//! ```
//!
//! It has no secret in it, and the order of the stores does not matter: each knows its number. So a
//! lost file is written again by hand.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How the first line begins.
const HEAD: &str = "strongroom stripes, parity ";
/// A file is at most this long.
const BYTES_MAX: u64 = 64 << 10;

/// What such a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stripes {
    /// How many stores may vanish.
    pub parity: usize,
    /// The places of the stores. Folders are relative to that of the file.
    pub places: Vec<OsString>,
}

impl Stripes {
    /// What a file says; none if the path is not that of such a file.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) if file.metadata()?.is_file() => file,
            // The folder itself says what is wrong with it.
            _ => return Ok(None),
        };
        let mut bytes = Vec::new();
        file.take(BYTES_MAX).read_to_end(&mut bytes)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        match Self::parse(&bytes, folder) {
            None => Ok(None),
            Some(stripes) => stripes.map(Some),
        }
    }

    fn parse(bytes: &[u8], folder: &Path) -> Option<io::Result<Self>> {
        let wrong = |why: &str| Some(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        let mut lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let parity = lines.next()?.strip_prefix(HEAD.as_bytes())?;
        let parity = std::str::from_utf8(parity).ok().and_then(|text| text.parse().ok());
        let Some(parity) = parity else {
            return wrong("the first line must end with the number of stores that may vanish");
        };
        let places: Vec<OsString> = lines
            .filter(|line| !line.is_empty() && !line.starts_with(b"#"))
            .map(|line| {
                let is_remote = line
                    .split(|byte| *byte == b'/')
                    .next()
                    .is_some_and(|part| part.contains(&b':'));
                let place = OsStr::from_bytes(line);
                if is_remote { place.to_owned() } else { folder.join(place).into_os_string() }
            })
            .collect();
        if places.len() < 2 {
            return wrong("it must name at least two stores, each in a line of its own");
        }
        Some(Ok(Self { parity, places }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Option<Stripes>> {
        Stripes::parse(text.as_bytes(), Path::new("/home/me")).map(Result::ok)
    }

    #[test]
    fn a_file_names_its_stores() {
        let text = "strongroom stripes, parity 1\n# ours\ndisk\n\n/other\ns3://bucket/x \n";
        let places = ["/home/me/disk", "/other", "s3://bucket/x"].map(OsString::from).to_vec();
        assert_eq!(parse(text), Some(Some(Stripes { parity: 1, places })));
        for other in ["", "letter\n", "strongroom stripes\n/one\n/two"] {
            assert_eq!(parse(other), None, "{other}");
        }
        for wrong in ["parity x\n/one\n/two", "parity 1\n/one", "parity -1\n/one\n/two"] {
            assert_eq!(parse(&format!("strongroom stripes, {wrong}")), Some(None), "{wrong}");
        }
    }
}
