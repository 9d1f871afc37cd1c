//! The files that an emulator consists of, besides the kernel under which it runs.
//!
//! QEMU drops types of machines after some years, and its packages vanish from the mirrors. Stored
//! beside the machines, these files start them also then.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of an emulator's modules, beside the libraries.
const MODULES: &str = "qemu";

/// The paths of an emulator's files and folders: the program, the libraries and the loader that it
/// needs, its modules and what they need, its firmware.
///
/// # Errors
///
/// The program is not there, or cannot be run, or `ldd` cannot.
pub fn emulator_files(program: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let program = program.canonicalize()?;
    let mut paths = BTreeSet::from([program.clone()]);
    let mut folders: BTreeSet<PathBuf> = BTreeSet::new();
    add_libraries(&program, &mut paths, &mut folders)?;
    for folder in &folders {
        let Ok(modules) = std::fs::read_dir(folder.join(MODULES)) else { continue };
        for module in modules {
            // Modules are where the program's own libraries are, not where a module's are.
            add_libraries(&module?.path(), &mut paths, &mut BTreeSet::new())?;
        }
        paths.insert(folder.join(MODULES));
    }
    let said = said_by(Command::new(&program).args(["-L", "help"]))?;
    // A program without firmware says so in other words.
    let firmware = said.lines().filter_map(|line| Path::new(line).canonicalize().ok());
    paths.extend(firmware.filter(|path| path.is_dir()));
    Ok(paths)
}

/// Adds what the loader loads with a program or a module. A library is found by the name that it is
/// asked for, which is often a link to the file.
fn add_libraries(
    of: &Path,
    paths: &mut BTreeSet<PathBuf>,
    folders: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    for library in libraries(&said_by(Command::new("ldd").arg(of))?) {
        let (Some(folder), Some(name)) = (library.parent(), library.file_name()) else { continue };
        let folder = folder.canonicalize()?;
        paths.insert(folder.join(name));
        paths.insert(library.canonicalize()?);
        folders.insert(folder);
    }
    Ok(())
}

/// The paths in the words of `ldd`: `NAME => PATH (ADDRESS)`, and `PATH (ADDRESS)` for the loader.
fn libraries(said: &str) -> impl Iterator<Item = &Path> {
    said.lines().filter_map(|line| {
        let path = line.rsplit_once(" (")?.0.rsplit(" => ").next()?.trim();
        path.starts_with('/').then(|| Path::new(OsStr::from_bytes(path.as_bytes())))
    })
}

/// What a program says. That it fails is no error: `ldd` does for a program without libraries.
fn said_by(command: &mut Command) -> io::Result<String> {
    let output = command.output().map_err(|error| {
        let program = command.get_program().to_string_lossy().into_owned();
        io::Error::new(error.kind(), format!("cannot run {program}: {error}"))
    })?;
    String::from_utf8(output.stdout).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_ldd_are_understood() {
        let said = "\tlinux-vdso.so.1 (0x00007ffd)\n\
            \tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f)\n\
            \tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\
            \tnot a dynamic executable\n";
        let found: Vec<&Path> = libraries(said).collect();
        let expected = ["/lib/x86_64-linux-gnu/libz.so.1", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(found, expected.map(Path::new));
    }

    #[test]
    fn the_emulator_that_is_here_has_libraries_and_firmware() {
        let program = Path::new("/usr/bin/qemu-system-x86_64");
        let paths = emulator_files(program).unwrap();
        let has = |part: &str| paths.iter().any(|path| path.to_string_lossy().contains(part));
        for part in ["bin/qemu-system-x86_64", "/libc.so.6", "/ld-linux", "share/seabios"] {
            assert!(has(part), "{part}\n{paths:?}");
        }
        assert!(paths.iter().all(|path| path.is_absolute() && path.exists()), "{paths:?}");
    }
}
