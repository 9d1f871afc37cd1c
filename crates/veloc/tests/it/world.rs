//! An agent, a configuration, and programs that are compiled with the library as it is installed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::agent::{Archive, FakeAgent};

/// Whether a program uses MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Single,
    Mpi,
}

pub struct World {
    pub archive: Arc<Archive>,
    _agent: FakeAgent,
    folder: TempDir,
}

impl World {
    /// With a configuration for programs of the file `plate`.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let archive = Arc::new(Archive::default());
        let socket = folder.path().join("ram.sock");
        let agent = FakeAgent::start(&socket, archive.clone()).unwrap();
        let configuration = format!(
            "# of a test\nscratch = {}\npersistent = /nowhere\nmode = async\nmax_versions = 3\n\
             strongroom_file = plate\nstrongroom_socket = {}\n",
            folder.path().join("scratch").display(),
            socket.display()
        );
        fs::write(folder.path().join("veloc.cfg"), configuration).unwrap();
        fs::create_dir(folder.path().join("lib")).unwrap();
        let library = folder.path().join("lib/libveloc-client.so");
        symlink(built().join("libveloc_client.so"), library).unwrap();
        Self { archive, _agent: agent, folder }
    }

    pub fn configuration(&self) -> PathBuf {
        self.folder.path().join("veloc.cfg")
    }

    /// The folder with the library.
    pub fn library(&self) -> PathBuf {
        self.folder.path().join("lib")
    }

    pub fn compile(&self, program: &str, kind: Kind) -> PathBuf {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let output = self.folder.path().join(program);
        let mut compiler = match kind {
            Kind::Single => Command::new("cc"),
            Kind::Mpi => Command::new("mpicc"),
        };
        if kind == Kind::Single && program == "heat" {
            compiler.arg("-DVELOC_NO_MPI");
        }
        let compiled = compiler
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
            .arg(&output)
            .arg("-I")
            .arg(here.join("include"))
            .arg(here.join("tests/it/programs").join(format!("{program}.c")))
            .arg("-L")
            .arg(self.library())
            .arg("-lveloc-client")
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        output
    }
}

/// The folder with the library that Cargo built for this test.
#[expect(clippy::disallowed_methods, reason = "the library is beside the test")]
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Waits until something is so, at most 30 seconds.
pub fn eventually(is: impl Fn() -> bool) -> bool {
    (0..1500).any(|_| {
        let so = is();
        if !so {
            thread::sleep(Duration::from_millis(20));
        }
        so
    })
}
