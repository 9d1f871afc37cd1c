//! The cut: a snapshot of all buckets of a file at one instant, made of what each agent has stored of
//! its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use strongroom_base::Cancel;
use strongroom_base::SnapshotId;
use strongroom_catalog::Guarantee;
use strongroom_cluster::{Acknowledgement, Description, Epoch, FileName, Part, State, StoredPart};
use strongroom_engine::{BackupOptions, CombinedPart, combine, folders_in};
use strongroom_repository::{list_snapshots, read_snapshot};

use crate::about::{About, RangeText};
use crate::keeper::{BucketName, KeepError, Keeper};

/// What is promised of a cut: each owner held still, and all at the same time.
const EXACT: Guarantee = Guarantee::new(Guarantee::EXACT, Guarantee::OWNER);

/// A cut that is looked into.
#[derive(Debug, Clone)]
pub struct StoredCut {
    /// Its snapshot.
    pub snapshot: SnapshotId,
    /// The round that it was made in.
    pub epoch: Epoch,
    /// Its buckets.
    pub buckets: Vec<About>,
}

impl Keeper {
    /// Commits the cut of a round. Nodes name the parts, and need not be right.
    ///
    /// # Errors
    ///
    /// A part is not there, or was not stored in this round with the keys that its node says; or the
    /// repository fails.
    pub fn commit_cut(
        &self,
        file: &FileName,
        epoch: Epoch,
        parts: &[StoredPart],
    ) -> Result<SnapshotId, KeepError> {
        let combined: Result<Vec<CombinedPart>, KeepError> = parts
            .iter()
            .map(|StoredPart { part, description }| {
                let snapshot = read_snapshot(&self.repository, part.snapshot)?;
                let bucket = BucketName { file: file.as_str().to_owned(), number: part.bucket.0 };
                let about = self.about_in(&bucket, &snapshot)?;
                check_part(&about, epoch, description).map_err(|why| KeepError::Another {
                    bucket: bucket.clone(),
                    snapshot: snapshot.id,
                    why,
                })?;
                Ok(CombinedPart { snapshot, path: bucket.path() })
            })
            .collect();
        let options = BackupOptions {
            paths: vec![Path::new("/").join(file.as_str())],
            labels: [self.options.labels.clone(), vec![format!("epoch {epoch}")]].concat(),
            ..self.options.clone()
        };
        let (repository, monitor) = (&self.repository, &*self.monitor);
        let outcome = combine(repository, &combined?, EXACT, &options, monitor, &self.cancel)?;
        Ok(outcome.snapshot.id)
    }

    /// The newest cut of a file, of those that can be read.
    ///
    /// # Errors
    ///
    /// The repository fails.
    pub fn newest_cut(&self, file: &FileName) -> Result<Option<SnapshotId>, KeepError> {
        let listed = list_snapshots(&self.repository)?;
        let domain = self.repository.secret.domain_name();
        let path = format!("/{file}").into_bytes();
        let cuts = listed.snapshots.iter().filter(|snapshot| {
            snapshot.domain == domain && snapshot.paths == [path.as_slice()] && !snapshot.partial
        });
        Ok(cuts.max_by_key(|snapshot| snapshot.sequence).map(|snapshot| snapshot.id))
    }

    /// Whether a file may have been stored before, also as a snapshot that cannot be read, or does not
    /// count.
    ///
    /// # Errors
    ///
    /// The repository fails.
    pub fn may_have_cut(&self, file: &FileName) -> Result<bool, KeepError> {
        let listed = list_snapshots(&self.repository)?;
        let path = format!("/{file}").into_bytes();
        let is_unknown = !listed.unreadable.is_empty() || !listed.newer.is_empty();
        Ok(is_unknown || listed.all().any(|snapshot| snapshot.paths == [path.as_slice()]))
    }

    /// Looks into a cut of a file.
    ///
    /// # Errors
    ///
    /// It is no cut of this file, or cannot be read.
    pub fn cut(&self, file: &FileName, snapshot: SnapshotId) -> Result<StoredCut, KeepError> {
        let stored = read_snapshot(&self.repository, snapshot)?;
        let folder = PathBuf::from(format!("/{file}"));
        let unfit =
            |why: &str| KeepError::NoCut { file: file.to_string(), snapshot, why: why.to_owned() };
        if stored.paths != [folder.as_os_str().as_encoded_bytes()] {
            return Err(unfit("it is a snapshot of something else"));
        }
        let (folder, cancel) = (folder.as_os_str().as_encoded_bytes(), Cancel::new());
        let mut buckets = Vec::new();
        // The areas of all buckets are more than a folder of regions has.
        for name in folders_in(&self.repository, &stored, folder, &cancel)? {
            let number = str::from_utf8(&name).ok().and_then(|text| text.parse().ok());
            if let Some(number) = number {
                let bucket = BucketName { file: file.as_str().to_owned(), number };
                buckets.push(self.about_in(&bucket, &stored)?);
            }
        }
        let epochs: Vec<Option<u64>> = buckets.iter().map(|about| about.epoch).collect();
        match epochs.first() {
            Some(Some(epoch)) if epochs.iter().all(|other| *other == Some(*epoch)) => {
                Ok(StoredCut { snapshot, epoch: Epoch(*epoch), buckets })
            }
            _ => Err(unfit("its buckets are not of one round")),
        }
    }
}

impl StoredCut {
    /// Its parts, each with a node that `fits` says of an answer, and the snapshot to use; and the
    /// buckets that no node fits. A node that has freed a bucket says so as long as its agent runs; it is
    /// not asked if the bucket is on another one.
    pub fn parts(
        &self,
        answers: &[Acknowledgement],
        fits: impl Fn(&Acknowledgement) -> Option<SnapshotId>,
    ) -> (Vec<Part>, Vec<u32>) {
        let is_elsewhere = |bucket| {
            let mut others = answers.iter().filter(|other| other.state != State::Evicted);
            others.any(|other| other.bucket == Some(bucket))
        };
        let mut found: BTreeMap<u32, Part> = BTreeMap::new();
        for answer in answers {
            let Some(bucket) = answer.bucket else { continue };
            if answer.state == State::Evicted && is_elsewhere(bucket) {
                continue;
            }
            let is_in_it = self.buckets.iter().any(|about| about.bucket == bucket.0);
            if let (true, Some(snapshot)) = (is_in_it, fits(answer)) {
                found.entry(bucket.0).or_insert(Part { bucket, node: answer.node, snapshot });
            }
        }
        let missing = self.buckets.iter().map(|about| about.bucket);
        let missing = missing.filter(|bucket| !found.contains_key(bucket)).collect();
        (found.into_values().collect(), missing)
    }
}

/// Whether a bucket was stored in this round, with the keys that its node says.
fn check_part(about: &About, epoch: Epoch, said: &Description) -> Result<(), String> {
    match about.epoch {
        Some(stored) if stored == epoch.0 => {}
        Some(stored) => return Err(format!("it was stored in epoch {stored}, not {epoch}")),
        None => return Err("it was stored in no round".to_owned()),
    }
    let range = about.range.as_ref().and_then(RangeText::range);
    if (range, about.split_version) != (said.range.clone(), said.split_version) {
        return Err("it was stored with other keys".to_owned());
    }
    Ok(())
}
