//! `serve_nights IMAGE REPOSITORY` stores a raw image as `vm1/vda` in a new repository; `serve_nights
//! REPOSITORY SOCKET serve` offers it over a Unix socket until its standard input ends. These are two
//! runs of the program, so that the memory and the time of the server can be measured alone.
#![expect(clippy::disallowed_methods, reason = "an example is a program")]

use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_access::{Nights, NightsOptions};
use strongroom_backend::{Backend, LocalBackend};
use strongroom_base::{Cancel, OsEntropy, Silent, SystemClock};
use strongroom_disk::RawImage;
use strongroom_engine::{BackupOptions, Disk, MachineOptions, backup_machine};
use strongroom_nbd::{Listener, Server, ServerOptions};
use strongroom_repository::keys::KdfCost;
use strongroom_repository::{InitOptions, PackOptions, Repository, Surroundings};
use strongroom_source::SourceOptions;

const PASSPHRASE: &[u8] = b"secret";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match arguments.as_slice() {
        [image, repository] => store(image, repository),
        [repository, socket, verb] if verb.as_os_str() == "serve" => serve(repository, socket),
        _ => Err("usage: serve_nights IMAGE REPOSITORY | REPOSITORY SOCKET serve".into()),
    }
}

fn store(image: &Path, repository: &Path) -> Result<(), Box<dyn Error>> {
    let init = InitOptions { cost: Some(KdfCost::TYPED_MIN), ..InitOptions::default() };
    let surroundings = surroundings(LocalBackend::create(repository)?);
    let repository = Repository::init(surroundings, PASSPHRASE, &init)?;
    let disks = [Disk { name: "vda".to_owned(), image: Box::new(RawImage::open(image)?) }];
    let machine = MachineOptions { machine: "vm1".to_owned(), ..MachineOptions::default() };
    backup_machine(&repository, &disks, &machine, &options(), &Silent, &Cancel::new())?;
    Ok(())
}

fn serve(repository: &Path, socket: &Path) -> Result<(), Box<dyn Error>> {
    let surroundings = surroundings(LocalBackend::open(repository)?);
    let repository = Arc::new(Repository::open(surroundings, PASSPHRASE)?);
    let options = NightsOptions::new(jiff::tz::TimeZone::system());
    let nights = Arc::new(Nights::open(repository, options, Arc::new(Silent))?);
    let server = Server::start(Listener::unix(socket)?, nights, ServerOptions::default())?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop();
    Ok(())
}

fn surroundings(backend: impl Backend + 'static) -> Surroundings {
    Surroundings {
        backend: Arc::new(backend),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(OsEntropy),
        cache: None,
    }
}

fn options() -> BackupOptions {
    BackupOptions {
        paths: Vec::new(),
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
        program: "serve_nights".to_owned(),
    }
}
