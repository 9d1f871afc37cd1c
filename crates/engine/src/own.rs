//! The folders of this machine that a repository and its caches lie in.

use std::path::Path;

use strongroom_repository::Repository;
use strongroom_source::InodeId;

/// Neither backed up nor removed by a restore.
pub fn own_directories(repository: &Repository) -> Vec<InodeId> {
    let own = [repository.backend().folder().map(Path::to_owned), repository.cache_folder()];
    own.into_iter().flatten().filter_map(|path| InodeId::of_path(&path).ok()).collect()
}
