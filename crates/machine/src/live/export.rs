//! The disks at the instant, offered to this process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::image::{Instant, LiveImage, is_lost};
use super::reader::{Fuse, Nbd, Reach, Reader};
use super::recent::{KEPT_BYTES_MAX, Recent};
use super::released::CLUSTER_BYTES;
use super::started;
use super::{LiveDisk, Night, Undoing};
use crate::bitmaps::{self, RECENT, bitmap_name};
use crate::drives::{Bitmap, Drive, nodes};
use crate::error::{Broken, MachineError, file_error};
use crate::intent::create_for;
use crate::qmp::Qmp;
use crate::remains::Names;
use crate::runs;

/// The first version of QEMU that reads what was overwritten from the store in any case.
const ANY_REACH: u64 = 8;

/// Starts the server of the disks, which offers nothing yet.
pub fn start_server(undoing: &Undoing, owner: Option<(u32, u32)>) -> Result<(), MachineError> {
    let socket = undoing.state.prepare_socket(owner)?;
    let Some(path) = socket.to_str() else { return Err(MachineError::SocketPath(socket)) };
    let address = json!({"type": "unix", "data": {"path": path}});
    undoing.qmp.execute("nbd-server-start", json!({"addr": address}))?;
    Ok(())
}

/// Offers the disks, connects to them, and reads what the guest is going to write soon. The guest
/// may be frozen: nothing is done here that takes longer.
pub fn export(
    undoing: &Undoing,
    night: &Night<'_>,
    owner: Option<(u32, u32)>,
) -> Result<Vec<Offered>, MachineError> {
    let qmp = &*undoing.qmp;
    let socket = undoing.state.socket()?;
    let nodes = nodes(qmp)?;
    let exporting = Exporting {
        qmp,
        night,
        socket: &socket,
        owner,
        reach: if qmp.version().0 < ANY_REACH { Reach::Cluster } else { Reach::Any },
        room: KEPT_BYTES_MAX / CLUSTER_BYTES / undoing.drives.len().max(1) as u64 * CLUSTER_BYTES,
    };
    let offer = |(number, drive): (usize, &Drive)| {
        let names = Names::of(number);
        let marks = trusted(night, drive, &nodes);
        match started::kept_in(qmp, drive) {
            Some(iothread) => exporting.by_fuse(drive, &names, marks, iothread),
            None => exporting.by_nbd(drive, &names, marks),
        }
    };
    undoing.drives.iter().enumerate().map(offer).collect()
}

/// A disk that QEMU offers.
pub struct Offered {
    drive: Drive,
    reader: Arc<dyn Reader>,
    recent: Recent,
    marks: Option<Marks>,
    /// Says what is dirty.
    bitmaps: Arc<Nbd>,
    /// Says what is data, if anything does.
    data: Option<Arc<Nbd>>,
    /// The bitmap of what was written since the instant, where this must be taken for data.
    since: Option<String>,
}

impl Offered {
    /// Finds out what is data and what has changed.
    pub fn describe(self, instant: &Arc<Instant>) -> Result<LiveDisk, MachineError> {
        let ask = || {
            let marks = self.marks.as_ref();
            let changed = marks.map(|marks| self.bitmaps.dirty(&marks.name)).transpose()?.flatten();
            let everything = 0..self.reader.size();
            let Some(data) = &self.data else { return Ok((changed, vec![everything])) };
            let mut data = data.data(&self.recent.ranges())?;
            if let Some(since) = &self.since {
                runs::add(&mut data, self.bitmaps.dirty(since)?.unwrap_or_default());
            }
            Ok((changed, data))
        };
        let asked = ask();
        let (mut changed, data) =
            asked.map_err(|error| lost_or(&*self.reader, nbd_error(&self.drive)(error)))?;
        if let (Some(changed), Some(marks)) = (&mut changed, &self.marks) {
            runs::add_tail(changed, marks.bytes_before, self.drive.bytes);
        }
        let image = LiveImage::new(self.reader, data, self.recent, instant.clone());
        Ok(LiveDisk { name: self.drive.name, image, changed })
    }
}

/// That the instant is lost, if it is; otherwise the error.
fn lost_or(reader: &dyn Reader, error: MachineError) -> MachineError {
    if is_lost(reader) { Broken::Store.into() } else { error }
}

/// The bitmap of the parent.
struct Marks {
    name: String,
    granularity: u64,
    /// The size that the disk had.
    bytes_before: u64,
}

/// The bitmap of the parent, if there is one that can be trusted.
fn trusted(
    night: &Night<'_>,
    drive: &Drive,
    nodes: &BTreeMap<String, Vec<Bitmap>>,
) -> Option<Marks> {
    let parent = night.parent?;
    let bytes_before = *parent.disk_bytes.get(&drive.name)?;
    let name = bitmap_name(night.set, parent.snapshot, &drive.name);
    let bitmaps = nodes.get(&drive.node).map(Vec::as_slice).unwrap_or_default();
    let granularity = bitmaps::trusted(bitmaps, &name)?.granularity;
    Some(Marks { name, granularity, bytes_before })
}

struct Exporting<'a> {
    qmp: &'a Qmp,
    night: &'a Night<'a>,
    socket: &'a Path,
    owner: Option<(u32, u32)>,
    reach: Reach,
    /// How much of each disk is read first, at most: whole clusters.
    room: u64,
}

impl Exporting<'_> {
    /// The usual way.
    fn by_nbd(
        &self,
        drive: &Drive,
        names: &Names,
        marks: Option<Marks>,
    ) -> Result<Offered, MachineError> {
        let since = bitmap_name(self.night.set, self.night.snapshot, &drive.name);
        let of_parent = marks.as_ref().map(|marks| marks.name.as_str());
        let bitmaps: Vec<&str> = of_parent.into_iter().chain([RECENT, &since]).collect();
        let shown: Vec<Value> =
            bitmaps.iter().map(|name| json!({"node": drive.node, "name": name})).collect();
        // Writable, so that ranges can be released; QEMU refuses to write to the image.
        let export = json!({
            "type": "nbd",
            "id": names.export,
            "node-name": names.image,
            "name": drive.name,
            "writable": true,
            "bitmaps": shown,
        });
        self.qmp.execute("block-export-add", export)?;
        let open = || {
            let disk = Nbd::connect(
                self.socket,
                &drive.name,
                &bitmaps,
                (self.night.connections, self.reach),
            )?;
            let recent = Recent::take(&disk, &disk.dirty(RECENT)?.unwrap_or_default(), self.room);
            Ok((Arc::new(disk), recent))
        };
        let (disk, recent) = open().map_err(|error| {
            let error = nbd_error(drive)(error);
            // Did the server leave or refuse because the instant is lost?
            let again = Nbd::connect(self.socket, &drive.name, &[], (1, self.reach));
            match again {
                Ok(again) => lost_or(&again, error),
                Err(_) => error,
            }
        })?;
        Ok(Offered {
            drive: drive.clone(),
            reader: disk.clone(),
            recent,
            marks,
            bitmaps: disk.clone(),
            data: Some(disk),
            since: (self.reach == Reach::Cluster).then_some(since),
        })
    }

    /// The way for a disk in an iothread: a file for its bytes. Its bitmaps are copied to a node that
    /// is in no iothread. What of it is data is not asked.
    fn by_fuse(
        &self,
        drive: &Drive,
        names: &Names,
        marks: Option<Marks>,
        iothread: &str,
    ) -> Result<Offered, MachineError> {
        let of_parent = marks.as_ref().map(|marks| (marks.name.as_str(), marks.granularity));
        let all = of_parent.into_iter().chain([(RECENT, CLUSTER_BYTES)]);
        let bitmaps = self.copied(drive, names, &all.collect::<Vec<_>>())?;
        let path = self.mount_point(&names.image);
        create_for(&path, self.owner).map_err(file_error(&path))?;
        let mut export = json!({
            "type": "fuse",
            "id": names.export,
            "node-name": names.image,
            "mountpoint": path,
            "writable": true,
        });
        started::keep_in(&mut export, iothread);
        // The guest may have restarted since it was waited for.
        self.qmp.execute("block-export-add", export).map_err(|error| match error.is_refused() {
            true => MachineError::NotStarted { disk: drive.name.clone() },
            false => error.into(),
        })?;
        let disk = Fuse::open(&path, self.reach).map_err(file_error(&path))?;
        let ranges = bitmaps.dirty(RECENT).map_err(nbd_error(drive))?.unwrap_or_default();
        Ok(Offered {
            drive: drive.clone(),
            recent: Recent::take(&disk, &ranges, self.room),
            reader: Arc::new(disk),
            marks,
            bitmaps: Arc::new(bitmaps),
            data: None,
            since: None,
        })
    }

    fn mount_point(&self, name: &str) -> PathBuf {
        self.socket.with_file_name(name)
    }

    /// Bitmaps of a disk, with their granularities, by way of a node that has nothing else.
    fn copied(
        &self,
        drive: &Drive,
        names: &Names,
        bitmaps: &[(&str, u64)],
    ) -> Result<Nbd, MachineError> {
        let qmp = self.qmp;
        let (node, size) = (&names.marks, drive.bytes);
        qmp.execute("blockdev-add", json!({"driver": "null-co", "node-name": node, "size": size}))?;
        for (name, granularity) in bitmaps {
            let empty = json!({
                "node": node, "name": name, "disabled": true, "granularity": granularity
            });
            qmp.execute("block-dirty-bitmap-add", empty)?;
            let source = json!({"node": drive.node, "name": name});
            let merge = json!({"node": node, "target": name, "bitmaps": [source]});
            qmp.execute("block-dirty-bitmap-merge", merge)?;
        }
        let copies: Vec<&str> = bitmaps.iter().map(|(name, _)| *name).collect();
        let export = json!({
            "type": "nbd",
            "id": names.marks_export,
            "node-name": node,
            "name": names.marks,
            "bitmaps": copies,
        });
        qmp.execute("block-export-add", export)?;
        Nbd::connect(self.socket, &names.marks, &copies, (1, Reach::Any)).map_err(nbd_error(drive))
    }
}

fn nbd_error(drive: &Drive) -> impl FnOnce(strongroom_nbd::NbdError) -> MachineError {
    let disk = drive.name.clone();
    move |error| MachineError::Nbd { disk, error }
}
