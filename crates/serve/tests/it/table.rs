//! What each kind of place promises and what it does: the table in `docs/places.md`, made by
//! asking real servers.
//!
//! `STRONGROOM_UPDATE_PLACES=1 cargo test -p strongroom-serve table` writes it again.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use strongroom_backend::{Backend, BackendError, LocalBackend, MemoryBackend, ObjectName};
use strongroom_base::Clock;
use strongroom_remote::Settings;
use strongroom_serve::{Checks, Role};
use strongroom_testkit::servers::{
    azurite, moto, s3proxy, sshd, swift, versitygw, vsftpd_tls, wsgidav,
};

use crate::world::{World, place, settings};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/places.md");
const HEAD: &str = "| place | server in the test | refuses a taken name | one winner when raced | lists at once | \
     parts of objects | replaces at once | copies by itself | locks | proves | largest object | mode |\n\
     |---|---|---|---|---|---|---|---|---|---|---|---|\n";
const LOCKED_BUCKET: &str = "s3.create_bucket(Bucket='locked', ObjectLockEnabledForBucket=True)";
/// A race is run this often, each time for a new name.
const ROUNDS: usize = 3;
const CREATORS: usize = 16;
/// How often an object is replaced while others read it.
const REPLACEMENTS: usize = 60;

/// A place that is asked.
struct Candidate {
    /// How its address begins.
    scheme: &'static str,
    server: &'static str,
    /// Two connections, as from two machines.
    connections: [Arc<dyn Backend>; 2],
    /// A place whose objects can be locked, if it is another one.
    lockable: Option<Arc<dyn Backend>>,
    /// Whether a reader is promised to see the old bytes or the new ones while they are replaced.
    replaces_at_once: bool,
}

#[test]
fn the_table_of_places_says_what_they_do() {
    let written = std::fs::read_to_string(DOCUMENT).unwrap();
    let (before, rest) = written.split_once("<!-- table -->\n").unwrap();
    let (table, after) = rest.split_once("<!-- end of table -->").unwrap();
    let found = format!("{HEAD}{}", rows());
    #[expect(clippy::disallowed_methods, reason = "a test reads its surroundings")]
    if std::env::var_os("STRONGROOM_UPDATE_PLACES").is_some() {
        let text = format!("{before}<!-- table -->\n{found}<!-- end of table -->{after}");
        std::fs::write(Path::new(DOCUMENT), text).unwrap();
        return;
    }
    assert_eq!(table, found, "STRONGROOM_UPDATE_PLACES=1 writes docs/places.md again");
}

/// The rows, in the order of the document. A server lives until its row is written.
fn rows() -> String {
    let rows: [fn() -> String; 12] = [
        folder,
        memory,
        on_versitygw,
        on_moto,
        on_s3proxy,
        on_swift,
        on_azurite,
        on_wsgidav,
        on_sftp,
        on_vsftpd,
        over_ssh,
        on_our_server,
    ];
    // Two at a time: some servers are slow to start, and their programs are large.
    let mut texts = Vec::new();
    for pair in rows.chunks(2) {
        let threads: Vec<_> = pair.iter().map(|row| std::thread::spawn(*row)).collect();
        texts.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
    }
    texts.concat()
}

fn folder() -> String {
    let folder = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Backend> { Arc::new(LocalBackend::open(folder.path()).unwrap()) };
    row(&Candidate {
        scheme: "a folder",
        server: "ext4, tmpfs or overlay",
        connections: [open(), open()],
        lockable: None,
        replaces_at_once: true,
    })
}

fn memory() -> String {
    let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    row(&Candidate {
        scheme: "memory (tests)",
        server: "–",
        connections: [backend.clone(), backend],
        lockable: None,
        replaces_at_once: true,
    })
}

fn on_versitygw() -> String {
    let server = versitygw();
    server.by_amazons_client(LOCKED_BUCKET);
    let settings = settings(server.variables(server.server.address));
    row(&Candidate {
        lockable: place("s3://locked").open(&settings).unwrap(),
        ..remote("s3://bucket/table", "versitygw 1.8.0", &settings)
    })
}

fn on_moto() -> String {
    let server = moto();
    server.by_amazons_client(LOCKED_BUCKET);
    let settings = settings(server.variables(server.server.address));
    row(&Candidate {
        lockable: place("s3://locked").open(&settings).unwrap(),
        ..remote("s3://bucket/table", "moto 5.2.5", &settings)
    })
}

fn on_s3proxy() -> String {
    let server = s3proxy();
    let settings = settings(server.variables(server.server.address));
    row(&remote("s3://bucket/table", "S3Proxy 2.6.0, set to drop unknown headers", &settings))
}

fn on_swift() -> String {
    let server = swift();
    let settings = settings(server.variables(server.server.address));
    row(&remote("s3://bucket/table", "OpenStack Swift 2.30", &settings))
}

fn on_azurite() -> String {
    let server = azurite();
    let settings = settings(server.variables(server.server.address));
    row(&remote("azblob://container/table", "Azurite 3.37.0", &settings))
}

fn on_wsgidav() -> String {
    let server = wsgidav();
    let text = server.url(server.server.address, "/table");
    let made = remote(&text, "wsgidav 4.4.0", &settings(server.variables()));
    row(&Candidate { scheme: "webdav://", replaces_at_once: false, ..made })
}

fn on_sftp() -> String {
    let server = sshd(None);
    let folder = server.server.folder.path().join("table");
    let text = server.url("sftp", server.server.address, &format!("/{}", folder.display()));
    let made = remote(&text, "OpenSSH 9.2", &settings(server.variables()));
    row(&Candidate { scheme: "sftp://", ..made })
}

fn on_vsftpd() -> String {
    let server = vsftpd_tls();
    let text = server.url(server.server.address, "/table");
    let made = remote(&text, "vsftpd 3.0.3", &settings(server.variables()));
    row(&Candidate { scheme: "ftps://", ..made })
}

fn over_ssh() -> String {
    let folder = tempfile::tempdir().unwrap();
    let command = format!("{} {}", unchecked().display(), folder.path().display());
    let server = sshd(Some(&command));
    let text = server.url("ssh", server.server.address, "");
    let made = remote(&text, "`strongroom serve --stdio`", &settings(server.variables()));
    row(&Candidate { scheme: "ssh://", ..made })
}

fn on_our_server() -> String {
    let world = World::open(Checks::Nothing);
    let token = world.token("room", Role::Admin, None);
    let text = format!("https://{}/room", world.address());
    let made = remote(&text, "`strongroom serve --house`", &world.settings(&token));
    row(&Candidate { scheme: "https://", ..made })
}

/// Our own program without the checks of objects: the tests here store any bytes.
#[expect(clippy::disallowed_methods, reason = "a test reads its surroundings")]
pub fn unchecked() -> std::path::PathBuf {
    let tests = std::env::current_exe().unwrap();
    let examples = tests.ancestors().nth(2).unwrap().join("examples/unchecked");
    assert!(examples.exists(), "cargo test builds {}", examples.display());
    examples
}

fn remote(text: &str, server: &'static str, settings: &Settings) -> Candidate {
    let open = || place(text).create(settings).unwrap();
    let scheme = ["s3://", "azblob://"].into_iter().find(|scheme| text.starts_with(scheme));
    Candidate {
        scheme: scheme.unwrap_or_default(),
        server,
        connections: [open(), open()],
        lockable: None,
        replaces_at_once: true,
    }
}

fn row(candidate: &Candidate) -> String {
    let [one, other] = &candidate.connections;
    let promises = one.promises();
    let claims = refuses_a_taken_name(&**one);
    let wins_once = (claims == Claim::Refuses).then(|| one_winner(&candidate.connections));
    let lists_at_once = lists_at_once(&**one, &**other);
    if candidate.replaces_at_once {
        assert!(replaces_at_once(&**one, &**other), "{}: no atomic replace", candidate.server);
    }
    let lists = match promises.is_consistent {
        Some(false) => "not promised",
        _ => yes(lists_at_once),
    };
    let is_exclusive = wins_once == Some(true);
    assert!(promises.is_exclusive != Some(true) || is_exclusive, "{}", candidate.server);
    let mode = match (is_exclusive, promises.is_consistent != Some(false) && lists_at_once) {
        (_, false) => "replicas only",
        (true, true) => "`exclusive`",
        (false, true) => "`agreed`",
    };
    let largest = match promises.object_bytes_max {
        u64::MAX => "no limit".to_owned(),
        bytes => format!("{} MiB", bytes >> 20),
    };
    let copies = can(one.copy(&name("held"), &name("copied")));
    assert!(!copies || strongroom_backend::read_all(&**other, &name("copied")).unwrap() == b"held");
    format!(
        "| {} | {} | {} | {} | {lists} | {} | {} | {} | {} | {} | {largest} | {mode} |\n",
        candidate.scheme,
        candidate.server,
        match claims {
            Claim::Refuses => "yes",
            Claim::Overwrites => "**says yes, and overwrites**",
            Claim::Unsupported => "no",
        },
        wins_once.map_or("–", yes),
        yes(reads_parts(&**one)),
        if candidate.replaces_at_once { "yes" } else { "not promised" },
        yes(copies),
        yes(locks(candidate.lockable.as_ref().unwrap_or(one))),
        yes(can(one.prove(&name("held"), &[&[1][..], &[7; 32]].concat()))),
    )
}

fn yes(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}

/// Whether the place has an operation; it must not fail in another way.
fn can<T>(outcome: Result<T, BackendError>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(BackendError::Unsupported { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Claim {
    Refuses,
    Overwrites,
    Unsupported,
}

fn refuses_a_taken_name(backend: &dyn Backend) -> Claim {
    backend.replace(&name("held"), b"held").unwrap();
    let claim = match backend.create(&name("held"), b"others") {
        Err(BackendError::AlreadyExists { .. }) => Claim::Refuses,
        Err(BackendError::Unsupported { .. }) => Claim::Unsupported,
        Ok(()) => Claim::Overwrites,
        Err(error) => panic!("{error}"),
    };
    backend.replace(&name("held"), b"held").unwrap();
    claim
}

/// Whether each race has one winner, whose bytes are there.
fn one_winner(connections: &[Arc<dyn Backend>; 2]) -> bool {
    (0..ROUNDS).all(|round| {
        let name = ObjectName::new("races", format!("r{round}"));
        let (start, winners) = (Barrier::new(CREATORS), AtomicUsize::new(0));
        let winner = AtomicUsize::new(usize::MAX);
        std::thread::scope(|scope| {
            for creator in 0..CREATORS {
                let (name, start, winners, winner) = (&name, &start, &winners, &winner);
                let backend = &connections[creator % 2];
                scope.spawn(move || {
                    start.wait();
                    match backend.create(name, format!("creator {creator}").as_bytes()) {
                        Ok(()) => {
                            winners.fetch_add(1, Ordering::Relaxed);
                            winner.store(creator, Ordering::Relaxed);
                        }
                        Err(BackendError::AlreadyExists { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                });
            }
        });
        let wanted = format!("creator {}", winner.into_inner());
        let there = strongroom_backend::read_all(&*connections[0], &name).unwrap();
        winners.into_inner() == 1 && there == wanted.as_bytes()
    })
}

/// Whether one connection lists at once what another has written and removed.
fn lists_at_once(writer: &dyn Backend, reader: &dyn Backend) -> bool {
    let listed = || reader.list("lists").unwrap().len();
    (0..20).all(|number| {
        let name = ObjectName::new("lists", format!("n{number}"));
        writer.replace(&name, b"x").unwrap();
        let is_seen = listed() == 1;
        writer.remove(&name).unwrap();
        is_seen && listed() == 0
    })
}

/// Whether a reader always sees the old bytes or the new ones, whole.
fn replaces_at_once(writer: &dyn Backend, reader: &dyn Backend) -> bool {
    const BYTES: usize = 64 << 10;
    let name = name("replaced");
    writer.replace(&name, &vec![0; BYTES]).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut is_whole = true;
            while is_whole && !is_done.load(Ordering::Relaxed) {
                is_whole = reader.read(&name, 0, BYTES + 1).is_ok_and(|bytes| {
                    bytes.len() == BYTES && bytes.iter().all(|byte| *byte == bytes[0])
                });
            }
            is_whole
        });
        for number in 0..REPLACEMENTS {
            writer.replace(&name, &vec![(number % 250) as u8; BYTES]).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
        reading.join().unwrap()
    })
}

fn reads_parts(backend: &dyn Backend) -> bool {
    backend.replace(&name("parts"), b"0123456789").unwrap();
    can(backend.read(&name("parts"), 3, 4).inspect(|bytes| assert_eq!(bytes, b"3456")))
}

fn locks(backend: &Arc<dyn Backend>) -> bool {
    backend.replace(&name("locked"), b"x").unwrap();
    let now = strongroom_base::SystemClock.now();
    let soon = strongroom_base::Timestamp(now.0 + 60_000_000_000);
    can(backend.retain(&name("locked"), soon))
}

fn name(file: &str) -> ObjectName {
    ObjectName::new("arenas", file)
}
