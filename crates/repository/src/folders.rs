//! Folders that the place does not show to this user, key or token: one `sudo` may leave one behind.
//!
//! Such a folder is withheld, like an object that may not be read (`docs/design/0041-withheld.md`):
//! it may have anything in it, and nothing is known to be wrong. Of the folders of small objects each
//! reader takes what counts if nothing of them can be read; no verb ends by it but those that change what
//! is in it, or remove something.

use std::fmt;
use std::sync::Arc;

use strongroom_backend::{Backend, BackendError, ObjectInfo, ObjectName, Withheld};

use crate::error::RepositoryError;
use crate::names::{
    ARRIVALS_FOLDER, COLLECTIONS_FOLDER, ENDED_FOLDER, FORGOTTEN_FOLDER, REMARKS_FOLDER,
    SESSIONS_FOLDER, VOUCHERS_FOLDER,
};

/// Those without which every reader and every backup goes on.
const DISPENSABLE: [&str; 7] = [
    SESSIONS_FOLDER,
    VOUCHERS_FOLDER,
    COLLECTIONS_FOLDER,
    FORGOTTEN_FOLDER,
    REMARKS_FOLDER,
    ARRIVALS_FOLDER,
    ENDED_FOLDER,
];

/// A folder that is not shown, or not all of it.
#[derive(Debug, Clone)]
pub struct WithheldFolder(Arc<Refusal>);

#[derive(Debug)]
struct Refusal {
    folder: String,
    why: Withheld,
    answer: Arc<BackendError>,
}

/// What a place shows of a folder.
#[derive(Debug, Default)]
pub struct Shown {
    /// The objects in it; none if it is withheld.
    pub objects: Vec<ObjectInfo>,
    /// That it is withheld.
    pub withheld: Option<WithheldFolder>,
}

impl WithheldFolder {
    /// Of a folder in which an object is withheld; none if the error says anything else.
    pub(crate) fn of_object(folder: &str, error: RepositoryError) -> Option<Self> {
        let RepositoryError::Backend(error) = error else { return None };
        let why = error.withheld()?;
        let (folder, answer) = (folder.to_owned(), Arc::new(error));
        Some(Self(Arc::new(Refusal { folder, why, answer })))
    }

    /// Its name, where those of objects are listed.
    pub fn name(&self) -> ObjectName {
        ObjectName::top(&self.0.folder)
    }

    /// In which way it is withheld.
    pub fn why(&self) -> Withheld {
        self.0.why
    }

    /// That what is in it is needed.
    pub fn error(&self) -> RepositoryError {
        RepositoryError::FolderWithheld(self.0.answer.clone())
    }

    /// That nothing may be collected, because it may say what is to stay.
    pub fn not_collectable(&self) -> RepositoryError {
        RepositoryError::not_collectable(self.0.folder.clone(), &self.error())
    }
}

impl fmt::Display for WithheldFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.answer.fmt(f)
    }
}

/// Lists a folder that may be withheld.
pub fn show(backend: &dyn Backend, folder: &str) -> Result<Shown, BackendError> {
    let error = match backend.list(folder) {
        Ok(objects) => return Ok(Shown { objects, withheld: None }),
        Err(error) => error,
    };
    match error.withheld() {
        None => Err(error),
        Some(why) => {
            let (folder, answer) = (folder.to_owned(), Arc::new(error));
            let withheld = Some(WithheldFolder(Arc::new(Refusal { folder, why, answer })));
            Ok(Shown { objects: Vec::new(), withheld })
        }
    }
}

/// The folders of small objects that are withheld, so that a person hears of them.
pub fn withheld_folders(backend: &dyn Backend) -> Result<Vec<WithheldFolder>, BackendError> {
    let mut withheld = Vec::new();
    for folder in DISPENSABLE {
        withheld.extend(show(backend, folder)?.withheld);
    }
    Ok(withheld)
}
