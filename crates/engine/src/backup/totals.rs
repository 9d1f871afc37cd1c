//! How much a backup has still to do, for its progress reports.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use strongroom_base::Progress;
use strongroom_catalog::Snapshot;
use strongroom_source::{LeafKind, SourceOptions, TreeSource, WalkEvent};

/// How much there is to do, as far as known: at first estimated by the parent, then counted.
pub struct Totals {
    counted: Arc<Counted>,
    estimate: Option<(u64, u64)>,
}

#[derive(Default)]
struct Counted {
    files: AtomicU64,
    bytes: AtomicU64,
    done: AtomicBool,
    stop: AtomicBool,
}

impl Totals {
    /// Estimates by the parent, or counts on a separate thread if that is wanted.
    pub fn start(
        paths: &[PathBuf],
        source: SourceOptions,
        parent: Option<&Snapshot>,
        count_first: bool,
    ) -> Self {
        let counted = Arc::new(Counted::default());
        let estimate = parent.map(|parent| (parent.stats.files, parent.stats.bytes));
        if count_first && estimate.is_none() {
            let (counted, paths) = (counted.clone(), paths.to_vec());
            // Detached: it only counts, ends soon after the backup, and nothing depends on it.
            std::thread::spawn(move || count(&paths, &source, &counted));
        }
        Self { counted, estimate }
    }

    /// This is what there is to do.
    pub fn of(files: u64, bytes: u64) -> Self {
        Self { counted: Arc::default(), estimate: Some((files, bytes)) }
    }

    /// Enters what is known into the progress.
    pub fn apply(&self, progress: &mut Progress) {
        if self.counted.done.load(Ordering::Acquire) {
            progress.files_total = Some(self.counted.files.load(Ordering::Relaxed));
            progress.bytes_total = Some(self.counted.bytes.load(Ordering::Relaxed));
        } else if let Some((files, bytes)) = self.estimate {
            progress.files_total = Some(files.max(progress.files));
            progress.bytes_total = Some(bytes.max(progress.bytes));
        }
    }
}

impl Drop for Totals {
    fn drop(&mut self) {
        self.counted.stop.store(true, Ordering::Relaxed);
    }
}

fn count(paths: &[PathBuf], options: &SourceOptions, counted: &Counted) {
    let Ok(source) = TreeSource::open(paths, options) else { return };
    for event in source {
        if counted.stop.load(Ordering::Relaxed) {
            return;
        }
        if let WalkEvent::Leaf { entry, kind } = event {
            counted.files.fetch_add(1, Ordering::Relaxed);
            if kind == LeafKind::File {
                counted.bytes.fetch_add(entry.size(), Ordering::Relaxed);
            }
        }
    }
    counted.done.store(true, Ordering::Release);
}
