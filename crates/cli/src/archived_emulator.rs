//! An emulator out of a snapshot: its files are put into a folder, and run from there.
//!
//! Its loader learns where the libraries are, and the program where its modules and firmware are,
//! so nothing of this system is used but the kernel and a shell.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use strongroom_engine::{RestoreOptions, RestorePlace, restore};
use strongroom_repository::Repository;
use strongroom_source::TargetOptions;

use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::machine::restore_threads;
use crate::scratch::ScratchFolder;
use crate::snapshot_arg::{NarrowingArgs, SnapshotArg};
use crate::terminal::printable_text;

/// More than this is stored with other things than an emulator.
const EMULATOR_BYTES_MAX: u64 = 4 << 30;
/// The folder of an emulator's modules.
const MODULES: &str = "qemu";
/// How the files of firmware end.
const FIRMWARE: [&str; 3] = ["bin", "rom", "fd"];

/// Puts the emulator that a snapshot has into a folder. Returns what runs it.
pub fn unpack(
    context: &Context,
    repository: &Repository,
    named: &OsString,
) -> Result<(ScratchFolder, PathBuf), CliError> {
    let what = SnapshotArg::from(named.clone());
    let snapshot = what.find(context, repository, &NarrowingArgs::default())?;
    let id = snapshot.id.short();
    let stored_alone = "`strongroom machine emulator --help` says how an emulator is stored";
    if snapshot.stats.bytes > EMULATOR_BYTES_MAX {
        let message = format!("snapshot {id} holds more than an emulator");
        return Err(CliError::new(Exit::Failed, message, stored_alone));
    }
    let folder = ScratchFolder::make(context)?;
    let root = folder.path().join("root");
    let options = RestoreOptions {
        path: Vec::new(),
        filter: None,
        place: RestorePlace::Into(root.clone()),
        target: TargetOptions { owner: false, xattrs: false, ..TargetOptions::default() },
        kept: Vec::new(),
        dry_run: false,
        verify: false,
        workers: restore_threads(),
    };
    let monitor = context.terminal.monitor_of_problems();
    let outcome = restore(repository, &snapshot, &options, &monitor, &context.cancel)?;
    let of_root = what.path.strip_prefix(b"/").unwrap_or(&what.path);
    let program = root.join(std::ffi::OsStr::from_bytes(of_root));
    if outcome.problems > 0 || !outcome.withheld.is_empty() {
        let message =
            format!("the emulator of snapshot {id} cannot be put into a folder as a whole");
        return Err(CliError::new(Exit::Failed, message, "see the warnings above"));
    }
    if of_root.is_empty() || !program.is_file() {
        let named = printable_text(&String::from_utf8_lossy(&what.path));
        let message = format!("snapshot {id} has no emulator {named}");
        let hint = "write SNAPSHOT:/PROGRAM, such as latest:/usr/bin/qemu-system-x86_64";
        return Err(CliError::new(Exit::Failed, message, format!("{hint}; {stored_alone}")));
    }
    let mut parts = Parts::default();
    parts.find(&root)?;
    let run = folder.path().join("run");
    fs::write(&run, parts.script(&program))?;
    fs::set_permissions(&run, fs::Permissions::from_mode(0o700))?;
    Ok((folder, run))
}

/// What an emulator needs, by what it looks like.
#[derive(Debug, Default)]
struct Parts {
    loader: Option<PathBuf>,
    libraries: Vec<PathBuf>,
    modules: Option<PathBuf>,
    firmware: Vec<PathBuf>,
}

impl Parts {
    /// Looks through a folder, and those in it.
    fn find(&mut self, folder: &Path) -> io::Result<()> {
        let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        let (mut has_libraries, mut has_firmware) = (false, false);
        for entry in entries {
            let (name, path) = (entry.file_name(), entry.path());
            let name = name.to_string_lossy();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.find(&path)?;
            } else if name.starts_with("ld-") || name.starts_with("ld64.") {
                // A link may lead to the loader of this system.
                self.loader = Some(path).filter(|_| kind.is_file()).or(self.loader.take());
                has_libraries = true;
            } else if name.contains(".so") {
                has_libraries = true;
            } else {
                let end = path.extension().and_then(std::ffi::OsStr::to_str);
                has_firmware = has_firmware || end.is_some_and(|end| FIRMWARE.contains(&end));
            }
        }
        if has_libraries && folder.file_name().is_some_and(|name| name == MODULES) {
            self.modules = Some(folder.to_owned());
        } else if has_libraries {
            self.libraries.push(folder.to_owned());
        }
        if has_firmware {
            self.firmware.push(folder.to_owned());
        }
        Ok(())
    }

    /// A script that runs the program with the arguments that the script gets.
    fn script(&self, program: &Path) -> Vec<u8> {
        let mut words: Vec<Vec<u8>> = Vec::new();
        if let Some(modules) = &self.modules {
            words.push([b"QEMU_MODULE_DIR=", &quoted(modules.as_os_str().as_bytes())[..]].concat());
        }
        words.push(b"exec".to_vec());
        if let Some(loader) = &self.loader {
            let folders: Vec<&[u8]> =
                self.libraries.iter().map(|folder| folder.as_os_str().as_bytes()).collect();
            words.push(quoted(loader.as_os_str().as_bytes()));
            words.push(b"--library-path".to_vec());
            words.push(quoted(&folders.join(&b':')));
        }
        words.push(quoted(program.as_os_str().as_bytes()));
        for folder in &self.firmware {
            words.extend([b"-L".to_vec(), quoted(folder.as_os_str().as_bytes())]);
        }
        [b"#!/bin/sh\n", &words.join(&b' ')[..], b" \"$@\"\n"].concat()
    }
}

/// A word as a shell reads it.
fn quoted(word: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in word {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_those_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        let loader = put("usr/lib/x/ld-linux.so.2");
        put("usr/lib/x/libc.so.6");
        put("usr/lib/x/qemu/accel.so");
        put("usr/share/qemu/bios.bin");
        let program = put("usr/bin/it's");
        fs::create_dir(folder.path().join("usr/lib64")).unwrap();
        let link = folder.path().join("usr/lib64/ld-linux.so.2");
        std::os::unix::fs::symlink("/lib/x/ld-linux.so.2", link).unwrap();
        let mut parts = Parts::default();
        parts.find(folder.path()).unwrap();
        assert_eq!(parts.loader, Some(loader));
        let script = String::from_utf8(parts.script(&program)).unwrap();
        let root = folder.path().display();
        assert_eq!(
            script,
            format!(
                "#!/bin/sh\nQEMU_MODULE_DIR='{root}/usr/lib/x/qemu' exec \
                 '{root}/usr/lib/x/ld-linux.so.2' --library-path \
                 '{root}/usr/lib/x:{root}/usr/lib64' '{root}/usr/bin/it'\\''s' \
                 -L '{root}/usr/share/qemu' \"$@\"\n"
            )
        );
    }
}
