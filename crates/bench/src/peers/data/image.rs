//! A raw disk image with a file system in it, changed three times as a running machine changes its
//! disk: through the file system. Needs the right to mount a loop device.

use std::path::{Path, PathBuf};

use strongroom_testkit::Random;

use super::sources::copy_changes;
use super::usr::{Usr, copy, thin_out};
use super::words::Words;
use super::{DataSet, Store, Swap, make_once};
use crate::shell::{Doing, Done, Failure, list_files, make_folder, remove, run, write};

const VERSIONS: u32 = 4;
/// So that the file system is the same wherever it is made.
const UUID: &str = "6d2f8f5c-2f0e-4f7e-9d5e-0c6f3a1b7e42";

/// The set.
pub struct Image {
    folder: PathBuf,
    at: PathBuf,
    swap: Option<Swap>,
    usr: Usr,
    mib: u64,
}

impl Image {
    /// Nothing is made yet.
    pub fn new(store: &Store) -> Self {
        let folder = store.set("image");
        let at = folder.join("at");
        let mib = store.scale.pick(96, 4096);
        Self { folder, at, swap: None, usr: Usr::new(store), mib }
    }

    fn file(&self, version: u32) -> PathBuf {
        self.folder.join(format!("version-{version}")).join("disk.img")
    }

    fn make_first(&self) -> Done {
        let file = self.file(1);
        make_folder(file.parent().unwrap_or(&self.folder))?;
        let extended =
            format!("hash_seed={UUID},root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0");
        let content = self.usr.version(1);
        let size = format!("{}M", self.mib);
        let (content, file) = (content.to_string_lossy(), file.to_string_lossy());
        run("mkfs.ext4", ["-q", "-F", "-U", UUID, "-E", &extended, "-d", &content, &file, &size])?;
        Ok(())
    }

    /// The version before, copied, mounted, changed.
    fn make_next(&self, version: u32) -> Done {
        let (before, file) = (self.file(version - 1), self.file(version));
        make_folder(file.parent().unwrap_or(&self.folder))?;
        let (from, to) = (before.to_string_lossy(), file.to_string_lossy());
        run("cp", ["--sparse=always", &*from, &*to])?;
        let mount = self.folder.join("mount");
        make_folder(&mount)?;
        let place = mount.to_string_lossy().into_owned();
        run("mount", ["-o", "loop,noatime", &*to, &place])?;
        let changed = self.change(version, &mount);
        let unmounted = run("umount", [&place]);
        changed?;
        unmounted.map(drop)
    }

    fn change(&self, version: u32, mount: &Path) -> Done {
        match version {
            2 => {
                // An upgrade; what mkfs made beside the files stays.
                for part in ["lib", "share"] {
                    copy_changes(&self.usr.version(2).join(part), &mount.join(part))?;
                }
                Ok(())
            }
            3 => {
                let folder = mount.join("srv");
                make_folder(&folder)?;
                copy(&mount.join("share"), &folder.join("copy"))?;
                thin_out(&mount.join("lib"), 20).map(drop)
            }
            _ => {
                let words = Words::new();
                for path in list_files(&mount.join("share"))?.iter().step_by(100) {
                    let path = mount.join("share").join(path);
                    let mut content = std::fs::read(&path).doing("read a file of the image")?;
                    content.extend(words.text(&mut Random::new(content.len() as u64), 4096));
                    write(&path, content)?;
                }
                thin_out(&mount.join("srv/copy"), 2)?;
                let log = words.text(&mut Random::new(4), (self.mib << 20) as usize / 200);
                write(&mount.join("srv/log"), log)
            }
        }
    }
}

impl DataSet for Image {
    fn about(&self) -> String {
        format!(
            "a raw ext4 image of {} MiB with a part of /usr in it, changed three times through its \
             file system: an upgrade; a folder copied and files removed; files appended to and a \
             log written",
            self.mib
        )
    }

    fn make(&mut self) -> Done {
        let mut swap = Swap::open(self.at.clone())?;
        self.usr.make()?;
        make_once(
            &self.folder,
            &format!("{VERSIONS} versions of an image of {} MiB with /usr in it", self.mib),
            || {
                self.make_first()?;
                (2..=VERSIONS).try_for_each(|version| self.make_next(version))?;
                remove(&self.folder.join("mount"))
            },
        )?;
        let home = |version| self.folder.join(format!("version-{version}"));
        swap.set_homes((1..=VERSIONS).map(home).collect());
        self.swap = Some(swap);
        Ok(())
    }

    fn versions(&self) -> u32 {
        VERSIONS
    }

    fn at(&self) -> &Path {
        &self.at
    }

    fn put_version(&mut self, version: u32) -> Done {
        let swap = self.swap.as_mut();
        swap.ok_or_else(|| Failure::Other("the image is not made".to_owned()))?.put_version(version)
    }
}
