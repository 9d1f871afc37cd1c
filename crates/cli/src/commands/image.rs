//! `strongroom image`: disks of machines that do not run.

mod backup;
mod restore;
mod show;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use strongroom_disk::{AtRest, Format, ImageOptions, OpenedImage, UnknownFormat, open_image};
use strongroom_engine::Disk;

use crate::context::Context;
use crate::exit::{CliError, Exit};

/// What to do about an image that cannot be opened.
const HINT: &str = "name a file or a block device that holds a disk";

/// What is done with images.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// Store the disks of a machine as a new snapshot, with the files on them
    Backup(Box<backup::Args>),
    /// Put a disk back into a file or onto a device, writing only what differs
    Restore(restore::Args),
    /// Show what is on disks, and what a backup would leave out
    Show(show::Args),
}

/// Does it.
pub fn run(context: &Context, args: Args) -> Result<ExitCode, CliError> {
    match args.what {
        What::Backup(args) => backup::run(context, &args),
        What::Restore(args) => restore::run(context, args),
        What::Show(args) => show::run(context, &args),
    }
}

/// A disk as it was typed: `IMAGE`, or `NAME=IMAGE`.
#[derive(Debug, Clone)]
struct DiskArg {
    name: Option<String>,
    path: PathBuf,
}

impl DiskArg {
    /// An equals sign ends a name, unless a slash is before it or a file is called so.
    fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        let whole = || Self { name: None, path: PathBuf::from(text) };
        let Some(at) = bytes.iter().position(|byte| *byte == b'=') else { return whole() };
        match std::str::from_utf8(&bytes[..at]) {
            Ok(name) if !name.contains('/') && fs::symlink_metadata(text).is_err() => Self {
                name: Some(name.to_owned()),
                path: PathBuf::from(OsString::from_vec(bytes[at + 1..].to_vec())),
            },
            _ => whole(),
        }
    }
}

/// Images of the disks of one machine.
#[derive(Debug, Clone, clap::Args)]
struct ImagesArgs {
    /// The disks: files or block devices that do not change meanwhile; `vda=disk.raw` names one
    /// [names otherwise: disk0, disk1, …]
    #[arg(value_name = "[NAME=]IMAGE", required = true)]
    images: Vec<OsString>,
    /// Their format: raw, qcow2, vmdk, vhdx or vhd, or that of one of them: `vda=qcow2` [default: as
    /// they begin; but the guest of a raw disk can make it begin as it likes, so an image that needs
    /// other files is opened only if its format is named]
    #[arg(long = "format", value_name = "[NAME=]FORMAT", value_parser = parse_disk_format)]
    formats: Vec<DiskFormat>,
}

/// The format of all disks, or of one.
#[derive(Debug, Clone)]
struct DiskFormat {
    disk: Option<String>,
    format: Format,
}

fn parse_disk_format(text: &str) -> Result<DiskFormat, UnknownFormat> {
    let (disk, format) = match text.rsplit_once('=') {
        Some((disk, format)) => (Some(disk.to_owned()), format),
        None => (None, text),
    };
    Ok(DiskFormat { disk, format: format.parse()? })
}

/// A disk, and where its image is.
struct OpenedDisk {
    disk: Disk,
    path: PathBuf,
    format: Format,
}

impl ImagesArgs {
    fn open(&self) -> Result<Vec<OpenedDisk>, CliError> {
        let name_of = |(number, text): (usize, &OsString)| {
            let DiskArg { name, path } = DiskArg::parse(text);
            (name.unwrap_or_else(|| format!("disk{number}")), path)
        };
        let disks: Vec<(String, PathBuf)> = self.images.iter().enumerate().map(name_of).collect();
        let mut named = self.formats.iter().filter_map(|format| format.disk.as_ref());
        if let Some(name) = named.find(|name| disks.iter().all(|(disk, _)| disk != *name)) {
            let message = format!("--format names the disk {name}, and there is none of that name");
            let hint = "name the disk before its image as well: `vda=disk.qcow2`";
            return Err(CliError::new(Exit::Usage, message, hint));
        }
        disks.into_iter().map(|(name, path)| self.open_one(name, path)).collect()
    }

    fn open_one(&self, name: String, path: PathBuf) -> Result<OpenedDisk, CliError> {
        let of = |disk: Option<&str>| self.formats.iter().rfind(|it| it.disk.as_deref() == disk);
        let format = of(Some(&name)).or_else(|| of(None)).map(|named| named.format);
        let OpenedImage { image, format } =
            open_image(&path, ImageOptions { format, ..ImageOptions::default() })
                .map_err(|error| CliError::new(Exit::Failed, error.to_string(), HINT))?;
        let image = Box::new(AtRest::new(image, &path));
        Ok(OpenedDisk { disk: Disk::new(name, image), path, format })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_at_an_equals_sign_but_a_path_may_have_one() {
        let parsed = |text: &str| {
            let DiskArg { name, path } = DiskArg::parse(OsStr::new(text));
            (name, path.display().to_string())
        };
        assert_eq!(parsed("/a/b.raw"), (None, "/a/b.raw".to_owned()));
        assert_eq!(parsed("vda=/a/b=c.raw"), (Some("vda".to_owned()), "/a/b=c.raw".to_owned()));
        assert_eq!(parsed("/a=b"), (None, "/a=b".to_owned()));
        let file = tempfile::Builder::new().prefix("x=").tempfile_in(".").unwrap();
        let name = file.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(parsed(name), (None, name.to_owned()));
    }
}
