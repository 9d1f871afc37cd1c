//! `mount_folder SOURCE REPOSITORY` backs a folder up into a new repository; `mount_folder
//! REPOSITORY MOUNTPOINT mount` mounts it until it is unmounted. These are two runs of the program,
//! so that the memory and the time of the mount can be measured alone.
#![expect(clippy::disallowed_methods, reason = "an example is a program")]
#![expect(clippy::print_stdout, reason = "an example that prints the mountpoint")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_access::{MountOptions, mount};
use strongroom_backend::{Backend, LocalBackend};
use strongroom_base::{Cancel, OsEntropy, Silent, SystemClock};
use strongroom_engine::{BackupOptions, backup};
use strongroom_repository::keys::KdfCost;
use strongroom_repository::{InitOptions, PackOptions, Repository, Surroundings};
use strongroom_source::SourceOptions;

const PASSPHRASE: &[u8] = b"secret";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match arguments.as_slice() {
        [source, repository] => store(source, repository),
        [repository, mountpoint, verb] if verb.as_os_str() == "mount" => {
            show(repository, mountpoint)
        }
        _ => Err("usage: mount_folder SOURCE REPOSITORY | REPOSITORY MOUNTPOINT mount".into()),
    }
}

fn store(source: &Path, repository: &Path) -> Result<(), Box<dyn Error>> {
    let init = InitOptions { cost: Some(KdfCost::TYPED_MIN), ..InitOptions::default() };
    let surroundings = surroundings(LocalBackend::create(repository)?);
    let repository = Repository::init(surroundings, PASSPHRASE, &init)?;
    let outcome = backup(&repository, &options(source), &Silent, &Cancel::new())?;
    let root = Path::new("ids").join(outcome.snapshot.id.short());
    println!("{}", root.join(source.canonicalize()?.strip_prefix("/")?).display());
    Ok(())
}

fn show(repository: &Path, mountpoint: &Path) -> Result<(), Box<dyn Error>> {
    let surroundings = surroundings(LocalBackend::open(repository)?);
    let repository = Arc::new(Repository::open(surroundings, PASSPHRASE)?);
    let options = MountOptions::new(jiff::tz::TimeZone::system());
    Ok(mount(repository, mountpoint, &options, Arc::new(Silent))?.wait()?)
}

fn surroundings(backend: impl Backend + 'static) -> Surroundings {
    Surroundings {
        backend: Arc::new(backend),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(OsEntropy),
        cache: None,
    }
}

fn options(source: &Path) -> BackupOptions {
    BackupOptions {
        paths: vec![source.to_owned()],
        source: SourceOptions::default(),
        host: "here".to_owned(),
        user: "me".to_owned(),
        uid: 0,
        gid: 0,
        labels: Vec::new(),
        force: false,
        dry_run: false,
        parent: None,
        count_first: false,
        readers: 2,
        pack: PackOptions::default(),
        as_made: None,
        program: "mount_folder".to_owned(),
    }
}
