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
    let is_one = |(_, of): &(Place, Option<Vec<u8>>)| of.is_some() && *of == whole(repository);
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
    file_of(place).is_some_and(|file| file.exists())
}

fn file_of(place: &Place) -> Option<PathBuf> {
    let hash = blake3::hash(&whole(place)?).to_hex();
    Some(state_folder()?.join(FOLDER).join(&hash[..32]))
}

/// A place, from wherever it was named.
fn whole(place: &Place) -> Option<Vec<u8>> {
    Some(match place {
        Place::Folder(folder) => std::path::absolute(folder).ok()?.into_os_string().into_vec(),
        other => other.to_string().into_bytes(),
    })
}
