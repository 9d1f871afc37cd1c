//! Releases of one project, one folder each: from the package archive, PyPI, the crate registry,
//! by their own clients.

use std::path::{Path, PathBuf};

use crate::peers::{Scale, linux_versions, open_set, smaller_copies};
use crate::shell::{Doing, Done, Failure, Invocation, make_folder, remove, write};

/// All series, in the order of the document.
pub const NAMES: [&str; 3] = ["linux", "django", "openssl"];

/// Feature releases of one project on PyPI, which are to it what 2.6.10 to 2.6.25 were to Linux.
const DJANGO: [&str; 8] = ["2.2", "3.0", "3.2", "4.0", "4.2", "5.0", "5.1", "5.2"];
/// Releases of a crate that holds the sources of another project.
const OPENSSL: [&str; 4] = ["300.2.3", "300.3.2", "300.4.2", "300.5.0"];
const OPENSSL_CRATE: &str = "openssl-src";

/// Releases of one project.
pub struct Series {
    /// Its name.
    pub name: String,
    /// What it is, in a sentence's part.
    pub about: String,
    /// Names and folders, oldest first.
    pub releases: Vec<(String, PathBuf)>,
}

impl Series {
    /// The series of this name, fetched if it is missing.
    pub fn get(name: &str, data: &Path, root: &Path, scale: Scale) -> Done<Self> {
        let folder = data.join("series").join(name);
        let (about, releases) = match name {
            "linux" => {
                ("stable releases of Linux 6.1, as Debian packs them", linux(data, root, scale)?)
            }
            "django" => ("feature releases of Django, wheels of PyPI", django(&folder)?),
            "openssl" => {
                ("feature releases of OpenSSL 3, in the crate openssl-src", openssl(&folder)?)
            }
            _ => return Err(Failure::Other(format!("there is no series {name}"))),
        };
        Ok(Self { name: name.to_owned(), about: about.to_owned(), releases })
    }
}

fn named(paths: Vec<PathBuf>) -> Vec<(String, PathBuf)> {
    let name = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.trim_start_matches("linux-").to_owned()
    };
    paths.into_iter().map(|path| (name(&path), path)).collect()
}

/// All that are unpacked; the benchmark's where there are none.
fn linux(data: &Path, root: &Path, scale: Scale) -> Done<Vec<(String, PathBuf)>> {
    let mut full = linux_versions(data)?;
    if full.len() < 2 {
        open_set("sources", data, scale)?.make()?;
        full = linux_versions(data)?;
    }
    Ok(named(match scale {
        Scale::Full => full,
        Scale::Small if full.len() < 2 => linux_versions(&root.join("sources/versions"))?,
        Scale::Small => {
            full.truncate(3);
            smaller_copies(&full, &root.join("sources/versions"))?
        }
    }))
}

fn django(folder: &Path) -> Done<Vec<(String, PathBuf)>> {
    let fetch = |version: &str, target: &Path| {
        let wheels = target.join("wheel");
        let flags = ["download", "--quiet", "--no-deps", "--only-binary", ":all:"];
        Invocation::new("python3")
            .args(["-m", "pip"])
            .args(flags)
            .args(["--ignore-requires-python", "--dest"])
            .arg(&wheels)
            .arg(format!("Django=={version}"))
            .run()?;
        let line = "python3 -m zipfile -e \"$1\"/*.whl \"$2\"";
        Invocation::script(line, &[&wheels, target]).run()?;
        // Its name has the version in it, so nothing in it would be the same file.
        let line = "rm -r \"$1\"/*.dist-info";
        Invocation::script(line, &[target]).run()?;
        remove(&wheels)
    };
    DJANGO.iter().map(|version| fetched(folder, version, &fetch)).collect()
}

fn openssl(folder: &Path) -> Done<Vec<(String, PathBuf)>> {
    let fetch = |version: &str, target: &Path| {
        let package = target.join("package");
        let manifest = format!(
            "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
             [dependencies]\n{OPENSSL_CRATE} = \"={version}\"\n[workspace]\n"
        );
        write(&package.join("Cargo.toml"), manifest)?;
        write(&package.join("src/lib.rs"), "")?;
        let vendor = ["vendor", "--quiet", "vendored"];
        Invocation::new("cargo").args(vendor).inside(&package).run()?;
        let crate_folder = package.join("vendored").join(OPENSSL_CRATE);
        std::fs::remove_file(crate_folder.join(".cargo-checksum.json"))
            .doing("remove what the client added")?;
        std::fs::rename(&crate_folder, target.join(OPENSSL_CRATE)).doing("keep the crate")?;
        remove(&package)
    };
    OPENSSL.iter().map(|version| fetched(folder, version, &fetch)).collect()
}

/// A release's name and folder; whole or not at all.
fn fetched(
    folder: &Path,
    version: &str,
    fetch: &dyn Fn(&str, &Path) -> Done,
) -> Done<(String, PathBuf)> {
    let target = folder.join(version);
    if !target.exists() {
        crate::say(&format!("fetching {} {version}", folder.display()));
        let unfinished = folder.join(format!("{version}.unfinished"));
        remove(&unfinished)?;
        make_folder(&unfinished)?;
        fetch(version, &unfinished)?;
        std::fs::rename(&unfinished, &target).doing(format!("name {}", target.display()))?;
    }
    Ok((version.to_owned(), target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fetched_is_whole_or_not_there() {
        let folder = std::env::temp_dir().join(format!("bench-series-{}", std::process::id()));
        let fails = |_: &str, target: &Path| {
            write(&target.join("half"), "")?;
            Err(Failure::Other("no".to_owned()))
        };
        assert!(fetched(&folder, "1.0", &fails).is_err());
        let works = |version: &str, target: &Path| write(&target.join("whole"), version);
        let (name, path) = fetched(&folder, "1.0", &works).unwrap();
        assert_eq!((&*name, path.join("whole").exists()), ("1.0", true));
        assert!(!path.join("half").exists());
        fetched(&folder, "1.0", &fails).unwrap();
        remove(&folder).unwrap();
    }

    #[test]
    fn releases_are_named_by_their_folders() {
        let named = named(vec![PathBuf::from("/d/linux-6.1.170-3"), PathBuf::from("/d/5.0")]);
        assert_eq!(named.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["6.1.170-3", "5.0"]);
    }
}
