//! The program of today reads repositories of every version of the format that ever existed. They
//! are in `testdata/old-repos`, whose README describes how they are made.

use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_arena::envelope::format::VERSION;

fn old_repositories() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/old-repos")
}

fn shell(folder: &Path, command: &str) -> String {
    let output = Command::new("bash").args(["-c", command]).current_dir(folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The folders: of each version a repository that compares by hash, and one by value.
fn folders() -> impl Iterator<Item = String> {
    (0..=VERSION).flat_map(|version| [format!("v{version}"), format!("v{version}-location")])
}

#[test]
fn every_version_has_its_repositories() {
    for name in folders() {
        let folder = old_repositories().join(&name);
        assert!(folder.is_dir(), "{folder:?} is missing: testdata/old-repos/make {name} PROGRAM");
    }
}

#[test]
fn old_repositories_are_read() {
    for name in folders() {
        let old = old_repositories().join(&name).canonicalize().unwrap();
        let out = tempfile::tempdir().unwrap();
        let path = std::fs::read_to_string(old.join("path")).unwrap();
        let run = |arguments: &[&str]| {
            let status = Command::new(env!("CARGO_BIN_EXE_strongroom"))
                .args(["--quiet", "--no-cache", "--repo"])
                .arg(old.join("room"))
                .arg("--password-file")
                .arg(old.join("passphrase"))
                .args(arguments)
                .status()
                .unwrap();
            assert!(status.success(), "{name} {arguments:?}: {status}");
        };
        run(&["verify", "--data"]);
        let target = out.path().join("tree");
        run(&["restore", &format!("latest:{}", path.trim()), "--target", target.to_str().unwrap()]);
        let listing = r"find . -type d -printf '%P %y %m %T@\n' -o -printf '%P %y %m %T@ %s %n %l\n' | LC_ALL=C sort";
        let kept =
            String::from_utf8_lossy(&std::fs::read(old.join("listing")).unwrap()).into_owned();
        assert_eq!(shell(&target, listing), kept, "{name}");
        shell(&target, &format!("sha256sum --quiet -c '{}'", old.join("sums").display()));
        let before = out.path().join("before");
        let first = format!("latest~1:{}", path.trim());
        run(&["restore", &first, "--target", before.to_str().unwrap()]);
        assert_eq!(std::fs::read(before.join("sub/file")).unwrap(), b"first", "{name}");
    }
}
