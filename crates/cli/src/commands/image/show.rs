//! `strongroom image show`

use std::process::ExitCode;

use serde_json::json;
use strongroom_base::units::bytes_text;
use strongroom_disk::{FileSystem, ReadAt, Volume, VolumeReader, open_swap};
use strongroom_engine::Disk;

use super::ImagesArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::terminal::{printable_bytes, printable_text, table};

/// The disks.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    images: ImagesArgs,
}

/// What is on a volume.
struct Found {
    what: String,
    label: String,
    state: String,
    /// Bytes that a backup leaves out.
    free: Option<u64>,
}

/// Shows them.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let opened = args.images.open()?;
    let formats: Vec<_> = opened.iter().map(|disk| disk.format).collect();
    let disks: Vec<Disk> = opened.into_iter().map(|opened| opened.disk).collect();
    let readers: Vec<&dyn ReadAt> = disks.iter().map(|disk| &*disk.image as &dyn ReadAt).collect();
    let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
    let layout = strongroom_disk::volumes(&readers);
    let mut rows = vec![
        ["Volume", "Size", "Holds", "Label", "Left out", "State"].map(ToString::to_string).to_vec(),
    ];
    for (disk, format) in disks.iter().zip(formats) {
        let size = bytes_text(disk.image.size());
        rows.push(vec![disk.name.clone(), size, format!("disk ({format})")]);
    }
    for volume in &layout.volumes {
        let found = look(volume, &readers);
        context.terminal.json(&event(&disks, volume, &found))?;
        rows.push(vec![
            name_of(&disks, volume),
            bytes_text(volume.bytes),
            found.what,
            printable_text(&found.label),
            found.free.map(bytes_text).unwrap_or_default(),
            found.state,
        ]);
    }
    for line in table(&rows, &[1, 4]) {
        context.terminal.line(line)?;
    }
    for finding in &layout.findings {
        let message = finding.describe(&names);
        context.terminal.problem(strongroom_base::Severity::Warning, &message);
    }
    Ok(if layout.findings.is_empty() { Exit::Done } else { Exit::Incomplete }.into())
}

/// The folder that a backup makes of it.
fn name_of(disks: &[Disk], volume: &Volume) -> String {
    let folder = volume.disk.map_or("lvm", |disk| &disks[disk].name);
    format!("{folder}/{}", volume.name)
}

fn event(disks: &[Disk], volume: &Volume, found: &Found) -> serde_json::Value {
    json!({
        "event": "volume",
        "name": name_of(disks, volume),
        "bytes": volume.bytes,
        "holds": found.what,
        "label": found.label,
        "state": found.state,
        "bytes_free": found.free,
    })
}

fn look(volume: &Volume, disks: &[&dyn ReadAt]) -> Found {
    let reader = VolumeReader::new(volume, disks);
    let nothing = |what: &str, state: String| Found {
        what: what.to_owned(),
        label: String::new(),
        state,
        free: None,
    };
    if let Ok(Some(swap)) = open_swap(&reader) {
        let free = (!volume.is_shared).then(|| swap.free.end - swap.free.start);
        return Found { free, ..nothing("swap", String::new()) };
    }
    match strongroom_disk::open(&reader) {
        Ok(Some(files)) => {
            let facts = files.facts();
            Found {
                what: facts.kind.to_string(),
                label: printable_bytes(&facts.label),
                state: facts.state.to_string(),
                free: free_of(&*files, volume),
            }
        }
        Ok(None) => nothing("", String::new()),
        Err(error) => nothing("", error.to_string()),
    }
}

/// The bytes that a backup leaves out, unless the machine is suspended: what the file system calls
/// free, and what was swapped to a file. None are known of a volume that cannot be trusted.
fn free_of(files: &dyn FileSystem, volume: &Volume) -> Option<u64> {
    if volume.is_shared || !files.facts().state.is_trusted() {
        return None;
    }
    let swapped = strongroom_disk::swap_files(files).unwrap_or_default().into_iter().map(|file| {
        let bytes = files.node(file.inode).map_or(0, |node| node.metadata.size);
        file.free.end.min(bytes) - file.free.start.min(bytes)
    });
    files.free().ok().map(|free| free.bytes() + swapped.sum::<u64>())
}
