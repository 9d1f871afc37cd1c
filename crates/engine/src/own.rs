//! The folders of this machine that a repository and its caches lie in.

use strongroom_repository::Surroundings;
use strongroom_source::InodeId;

/// Neither backed up nor removed by a restore.
pub fn own_directories(surroundings: &Surroundings) -> Vec<InodeId> {
    let own = surroundings.backend.folders().into_iter().chain(surroundings.cache_folders());
    own.filter_map(|path| InodeId::of_path(&path).ok()).collect()
}
