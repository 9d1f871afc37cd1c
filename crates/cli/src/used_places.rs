//! Places of repositories and replicas that this user's programs have used. Where one of them is gone,
//! its disk is most often not mounted; what is made there by itself would fill the wrong disk, and pass
//! for the one that is away.
//!
//! A place has a file whose name is a hash of it. Losing them loses no backup.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use strongroom_remote::Place;

use crate::machine::state_folder;
use crate::replaced::replace_private;

/// In the folder of what programs remember.
const FOLDER: &str = "places";

/// Remembers a place. One that cannot be is not.
pub fn remember(place: &Place) {
    let Some(file) = file_of(place).filter(|file| !file.exists()) else { return };
    let Some(folder) = file.parent() else { return };
    if DirBuilder::new().recursive(true).mode(0o700).create(folder).is_ok() {
        let _ = replace_private(&file, format!("{place}\n").as_bytes());
    }
}

/// Whether a place is remembered.
pub fn is_remembered(place: &Place) -> bool {
    file_of(place).is_some_and(|file| file.exists())
}

fn file_of(place: &Place) -> Option<PathBuf> {
    let whole = match place {
        Place::Folder(folder) => std::path::absolute(folder).ok()?.into_os_string(),
        other => other.to_string().into(),
    };
    let hash = blake3::hash(whole.as_encoded_bytes()).to_hex();
    Some(state_folder()?.join(FOLDER).join(&hash[..32]))
}
