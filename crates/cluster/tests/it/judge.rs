//! What must hold, by plain looks at everything that no node or client sees.

use std::collections::BTreeMap;

use strongroom_base::SnapshotId;
use strongroom_cluster::{BucketNumber, Epoch, Node, NodeEffect, StoredPart};

use crate::programs::{KEYS, Program};
use crate::world::World;

/// A bucket as it was captured.
#[derive(Debug, Clone)]
pub struct Image {
    pub low: u8,
    pub high: u8,
    version: u64,
    pub data: BTreeMap<u8, i64>,
    /// When the stop began that lasted until the capture; `None` if it was not stopped.
    since: Option<u64>,
    at: u64,
}

/// A cut that was committed, whether or not its client heard of it.
#[derive(Debug, Clone)]
pub struct Cut {
    pub epoch: Epoch,
    pub id: SnapshotId,
    pub parts: Vec<StoredPart>,
}

impl Image {
    pub fn of(program: &Program, at: u64) -> Self {
        Self {
            low: program.low,
            high: program.high,
            version: program.version,
            data: program.data.clone(),
            since: program.stop.map(|(since, _)| since),
            at,
        }
    }

    pub fn equals(&self, program: &Program) -> bool {
        self.data == program.data
            && (self.low, self.high, self.version) == (program.low, program.high, program.version)
    }

    pub fn to_program(&self, host: usize, stamp: u64) -> Program {
        Program {
            host,
            low: self.low,
            high: self.high,
            version: self.version,
            data: self.data.clone(),
            moving: None,
            copied_from: None,
            stop: None,
            token: stamp << 32,
            stale: None,
        }
    }
}

impl World {
    /// (4) Nothing is asked for in an epoch that is not on the disk.
    pub fn judge_order(&mut self, host: usize, effect: &NodeEffect) {
        let epoch = match effect {
            NodeEffect::Quiesce { epoch, .. }
            | NodeEffect::Capture { epoch, .. }
            | NodeEffect::Load { epoch, .. }
            | NodeEffect::Free { epoch, .. } => *epoch,
            NodeEffect::Acknowledge { acknowledgement, .. } => acknowledgement.highest,
            _ => return,
        };
        let on_disk = self.hosts[host].disk.epoch;
        if epoch > on_disk {
            self.blame(format!("host {host} acts in epoch {epoch}, its disk has {on_disk}"));
        }
        self.hosts[host].acted = self.hosts[host].acted.max(epoch);
    }

    /// (4) Epochs never fall.
    pub fn judge_restart(&mut self, host: usize, node: &Node) {
        let acted = self.hosts[host].acted;
        if node.highest() < acted {
            self.blame(format!("host {host} fell from epoch {acted} to {}", node.highest()));
        }
    }

    /// (1) What is evicted is what a committed cut holds, at this moment.
    pub fn judge_eviction(&mut self, bucket: u32) {
        let program = &self.programs[&bucket];
        let holds = |part: &StoredPart| {
            let image = &self.images[&part.part.snapshot];
            part.part.bucket == BucketNumber(bucket) && image.equals(program)
        };
        let is_kept = self.cuts.iter().any(|cut| cut.parts.iter().any(holds));
        if program.stop.is_none() {
            self.blame(format!("bucket {bucket} is evicted while its program runs"));
        }
        if !is_kept {
            self.blame(format!("bucket {bucket} is evicted, and no committed cut holds it"));
        }
    }

    pub fn judge_load(&mut self, bucket: u32, snapshot: SnapshotId) {
        let is_part = |part: &StoredPart| part.part.snapshot == snapshot;
        if !self.cuts.iter().any(|cut| cut.parts.iter().any(is_part)) {
            self.blame(format!("bucket {bucket} is loaded from what was never committed"));
        }
    }

    /// (2) A cut has each key once, and is of one instant.
    pub fn judge_cut(&mut self, epoch: Epoch, parts: &[StoredPart]) {
        let images = parts.iter().map(|part| self.images[&part.part.snapshot].clone());
        let images: Vec<Image> = images.collect();
        for key in 0..KEYS {
            let holders = images.iter().filter(|image| image.data.contains_key(&key)).count();
            let claims = images.iter().filter(|image| (image.low..image.high).contains(&key));
            let claims = claims.count();
            if (holders, claims) != (1, 1) {
                self.blame(format!(
                    "cut {epoch} has key {key} {holders} times, and claims it {claims} times"
                ));
            }
        }
        let since = images.iter().map(|image| image.since.unwrap_or(u64::MAX)).max();
        let until = images.iter().map(|image| image.at).min();
        let (Some(since), Some(until)) = (since, until) else {
            return self.blame(format!("cut {epoch} is empty"));
        };
        if since >= until {
            return self.blame(format!("cut {epoch} is of no single instant"));
        }
        let sum: i64 = images.iter().flat_map(|image| image.data.values()).sum();
        let before = self.totals.iter().rfind(|(stamp, _)| *stamp <= since);
        let within = self.totals.iter().filter(|(stamp, _)| (since..=until).contains(stamp));
        if !before.into_iter().chain(within).any(|(_, total)| *total == sum) {
            self.blame(format!("cut {epoch} sums up to {sum}, which no instant did"));
        }
    }

    /// What the last cut has, by key.
    pub fn last_cut(&self) -> BTreeMap<u8, i64> {
        let images = self.cuts.last().into_iter().flat_map(|cut| &cut.parts);
        let data = images.map(|part| self.images[&part.part.snapshot].data.clone());
        data.flatten().collect()
    }

    /// (3) No program is stopped.
    pub fn judge_rest(&mut self) {
        let stopped = self.programs.iter().find(|(_, program)| program.stop.is_some());
        if let Some((bucket, program)) = stopped {
            let what = format!("bucket {bucket} on host {} is still stopped", program.host);
            self.blame(what);
        }
    }
}
