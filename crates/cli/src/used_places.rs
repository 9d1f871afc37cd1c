//! Places of repositories and replicas that this user's programs have used. Where one of them is gone,
//! its disk is most often not mounted; what is made there by itself would fill the wrong disk, and pass
//! for the one that is away.
//!
//! A place has a file whose name is a hash of it: its first line is the place, and the second, of a replica,
//! that of the repository. Losing them loses no backup.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use strongroom_remote::Place;

use crate::machine::state_folder;
use crate::replaced::replace_private;

/// In the folder of what programs remember.
const FOLDER: &str = "places";

/// Remembers a place. One that cannot be is not.
pub fn remember(place: &Place) {
    write(place, None);
}

/// Remembers the place of a replica, and of which repository it is one.
pub fn remember_replica(place: &Place, of: &Place) {
    write(place, Some(of));
}

/// The places of the replicas of a repository.
pub fn replicas_of(repository: &Place) -> Vec<Place> {
    let is_one = |(_, of): &(Place, Option<Vec<u8>>)| {
        let of =
            of.as_deref().map(without_end).and_then(|of| Place::parse(OsStr::from_bytes(of)).ok());
        of.is_some_and(|of| is_same(&of, repository))
    };
    read_all().into_iter().filter(is_one).map(|(place, _)| place).collect()
}

/// All places that are remembered, of any repository.
pub fn all() -> Vec<Place> {
    read_all().into_iter().map(|(place, _)| place).collect()
}

/// Each place, and that of the repository of which it is a replica. Of a path with a line break, only that
/// it was used is known.
fn read_all() -> Vec<(Place, Option<Vec<u8>>)> {
    let folder = state_folder().map(|folder| folder.join(FOLDER));
    let files =
        folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| std::fs::read(file.path()).ok());
    let places = texts.filter_map(|text| {
        let mut lines = text.strip_suffix(b"\n")?.splitn(2, |byte| *byte == b'\n');
        let place = Place::parse(OsStr::from_bytes(lines.next()?)).ok()?;
        // Older programs wrote folders as they were typed.
        let is_relative = matches!(&place, Place::Folder(folder) if folder.is_relative());
        (!is_relative).then(|| (place, lines.next().map(<[u8]>::to_vec)))
    });
    places.collect()
}

fn write(place: &Place, replica_of: Option<&Place>) {
    let (Some(file), Some(mut text)) = (file_of(place), whole(place)) else { return };
    text.push(b'\n');
    if let Some(of) = replica_of.and_then(whole) {
        text.extend(of);
        text.push(b'\n');
    }
    let is_known = std::fs::read(&file)
        .is_ok_and(|found| found == text || (replica_of.is_none() && found.starts_with(&text)));
    let Some(folder) = file.parent().filter(|_| !is_known) else { return };
    if DirBuilder::new().recursive(true).mode(0o700).create(folder).is_ok() {
        let _ = replace_private(&file, &text);
    }
}

/// Whether a place is remembered.
pub fn is_remembered(place: &Place) -> bool {
    let Some(whole) = whole(place) else { return false };
    // Older programs took a slash at its end for a part of it.
    let names = [whole.clone(), [&whole[..], b"/"].concat()];
    names.iter().filter_map(|name| file_named(name)).any(|file| file.exists())
}

fn file_of(place: &Place) -> Option<PathBuf> {
    file_named(&whole(place)?)
}

fn file_named(whole: &[u8]) -> Option<PathBuf> {
    let hash = blake3::hash(whole).to_hex();
    Some(state_folder()?.join(FOLDER).join(&hash[..32]))
}

/// A line without what ends it.
fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// Whether two names are of one place.
pub fn is_same(one: &Place, other: &Place) -> bool {
    let is_one_folder = match (one, other) {
        (Place::Folder(one), Place::Folder(other)) => {
            one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
        }
        _ => false,
    };
    let one = whole(one);
    is_one_folder || (one.is_some() && one == whole(other))
}

/// A place, from wherever and however it was named.
fn whole(place: &Place) -> Option<Vec<u8>> {
    Some(match place {
        Place::Folder(folder) => {
            // A slash at its end is no other folder.
            let folder: PathBuf = std::path::absolute(folder).ok()?.components().collect();
            folder.into_os_string().into_vec()
        }
        other => other.to_string().into_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_many_names() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().display().to_string();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::os::unix::fs::symlink("a", folder.path().join("link")).unwrap();
        let place = |text: &str| Place::parse(OsStr::new(&text.replace("HERE", &here))).unwrap();
        for (one, other, is_one) in [
            ("HERE/a", "HERE/a/", true),
            ("HERE/a", "HERE/./a//", true),
            ("HERE/a", "file://HERE/a", true),
            ("HERE/a", "HERE/link", true),
            ("HERE/gone", "HERE/gone/", true),
            ("s3://a/b", "s3://a/b/", true),
            ("HERE/a", "HERE", false),
            ("HERE/gone", "HERE/a", false),
            ("s3://a/b", "s3://a/c", false),
            ("s3://a/b", "HERE/a", false),
        ] {
            assert_eq!(is_same(&place(one), &place(other)), is_one, "{one} {other}");
        }
        assert_eq!(whole(&place("HERE/gone")), whole(&place("HERE/gone/")));
    }
}
