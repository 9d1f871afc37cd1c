//! SFTP, on OpenSSH's own server.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use strongroom_backend::{BackendError, ObjectName, Refusal, Trial, read_all, try_exclusive};
use strongroom_base::{SeededEntropy, Stopwatch};
use strongroom_testkit::conformance;
use strongroom_testkit::relay::{LineOptions, Relay};
use strongroom_testkit::servers::{sshd, sshd_with};

use crate::{place, settings};

#[test]
fn a_folder_behind_ssh_conforms() {
    let server = sshd(None);
    let folder = server.server.folder.path().join("a folder/of mine/ü");
    let settings = settings(server.variables());
    let text = server.url("sftp", server.server.address, &format!("/{}", folder.display()));
    assert!(place(&text).open(&settings).unwrap().is_none());
    let backend = place(&text).create(&settings).unwrap();
    assert!(backend.holds_at_most("keys").unwrap());
    conformance::check(&*backend);
    assert!(!backend.holds_at_most("keys").unwrap());
    let left = std::fs::read_dir(folder.join("arenas")).unwrap();
    let temporary = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(".tmp");
    assert_eq!(left.filter(|entry| temporary(&entry.as_ref().unwrap().file_name())).count(), 0);
    let large: Vec<u8> = (0..9_000_001_u32).map(|n| n as u8).collect();
    let name = ObjectName::new("arenas", "large");
    backend.create(&name, &large).unwrap();
    assert!(read_all(&*backend, &name).unwrap() == large);
    assert_eq!(backend.read(&name, 5, 100_000).unwrap(), large[5..100_005]);
    for number in 0..700 {
        std::fs::write(folder.join(format!("snapshots-{number}")), b"x").unwrap();
    }
    assert_eq!(backend.list("").unwrap().len(), 701);
}

#[test]
fn what_is_wrong_with_ssh_is_named() {
    let mut server = sshd(None);
    let address = server.server.address;
    let text = server.url("sftp", address, "//tmp");
    let right = server.variables();
    let with = |line: &str| vec![("STRONGROOM_SSH".to_owned(), line.to_owned())];
    let right_line = right[0].1.clone();
    assert_eq!(refusal(&text, &with("/no/such/ssh")), Refusal::Other);
    let wrong_key = right_line.replace("/user", "/no-such-key");
    assert_eq!(refusal(&text, &with(&wrong_key)), Refusal::Credentials);
    // In the words for a name that does not exist: without a network it would say others.
    let (folder, words) = (tempfile::tempdir().unwrap(), "Name or service not known");
    let program = folder.path().join("ssh");
    let script = format!(
        "#!/bin/sh\necho 'ssh: Could not resolve hostname nowhere: {words}' >&2; exit 255\n"
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let nowhere = with(&program.display().to_string());
    assert_eq!(refusal("sftp://nowhere/x", &nowhere), Refusal::NoSuchPlace);
    let said = refusal_or_lost("sftp://no-such-host.invalid/x", &right);
    assert!(said.contains("Could not resolve hostname"), "{said}");
    let unknown = right_line.replace("/known", "/unknown");
    assert_eq!(refusal(&text, &with(&unknown)), Refusal::Identity);
    server.change_host_key();
    assert_eq!(refusal(&text, &right), Refusal::Identity);
    // A program that speaks something else, and one that says nothing at all.
    let stranger = refusal_or_lost(&text, &with("echo hello"));
    assert!(stranger.contains("sftp://"), "{stranger}");
    refusal_or_lost(&text, &with("true"));
}

/// Without a network no name is found: a place that was there before is looked for again.
#[test]
fn a_place_whose_name_is_not_found_for_a_while_is_lost_and_not_wrong() {
    let server = sshd(None);
    let folder = server.server.folder.path().join("place");
    let text = server.url("sftp", server.server.address, &format!("/{}", folder.display()));
    let right = server.variables()[0].1.clone();
    let (count, program) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (count, file) = (count.path().to_owned(), program.path().join("ssh"));
    // The first connection ends after a moment, and no name is found for the next two.
    let script = format!(
        "#!/bin/sh\nn=$(ls {0} | wc -l); touch {0}/$n\n\
         case $n in\n\
         0) exec timeout 2 {right} \"$@\";;\n\
         1|2) echo \"ssh: Could not resolve hostname host: Name or service not known\" >&2; exit 255;;\n\
         *) exec {right} \"$@\";;\nesac\n",
        count.display()
    );
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    let variables = vec![("STRONGROOM_SSH".to_owned(), file.display().to_string())];
    let backend = place(&text).create(&settings(variables)).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    backend.create(&ObjectName::new("arenas", "a"), b"x").unwrap();
    assert!(std::fs::read_dir(&count).unwrap().count() > 3);
}

#[test]
fn an_object_that_is_no_file_is_unreadable() {
    let server = sshd(None);
    let folder = server.server.folder.path().join("place");
    let text = server.url("sftp", server.server.address, &format!("/{}", folder.display()));
    let backend = place(&text).create(&settings(server.variables())).unwrap();
    std::fs::create_dir_all(folder.join("arenas/folder")).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(backend.list("arenas").unwrap().len(), 1);
    let name = ObjectName::new("arenas", "folder");
    assert!(backend.size(&name).unwrap_err().is_unreadable());
    assert!(backend.read(&name, 0, 10).unwrap_err().is_directory());
    for (what, outcome) in
        [("remove", backend.remove(&name)), ("replace", backend.replace(&name, b"x"))]
    {
        assert!(outcome.as_ref().is_err_and(BackendError::is_directory), "{what}: {outcome:?}");
    }
    let taken = backend.create(&name, b"x");
    assert!(matches!(taken, Err(BackendError::AlreadyExists { .. })), "{taken:?}");
    // A link that leads nowhere has the name all the same.
    std::os::unix::fs::symlink("/no/such/file", folder.join("arenas/link")).unwrap();
    let taken = backend.create(&ObjectName::new("arenas", "link"), b"x");
    assert!(matches!(taken, Err(BackendError::AlreadyExists { .. })), "{taken:?}");
    let left = std::fs::read_dir(folder.join("arenas")).unwrap().count();
    assert_eq!(left, 2, "a temporary file was left");
}

/// What OpenSSH's server does there is to look whether a name is free and then to rename.
#[test]
fn a_server_whose_file_system_has_no_links_is_not_exclusive() {
    let folder = tempfile::tempdir().unwrap();
    let (source, shim) = (folder.path().join("shim.c"), folder.path().join("shim.so"));
    std::fs::write(&source, NO_LINKS).unwrap();
    let mut compile = std::process::Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).args([&shim, &source]);
    assert!(compile.status().unwrap().success());
    let preloaded = format!("env LD_PRELOAD={} {SFTP_SERVER}", shim.display());
    let without_links = format!("{SFTP_SERVER} -P hardlink");
    for (server, expected) in [
        (sshd_with(SFTP_SERVER), Trial::Exclusive),
        (sshd_with(&preloaded), Trial::NotExclusive),
        (sshd_with(&without_links), Trial::NotExclusive),
    ] {
        let place_of_it = server.server.folder.path().join("place");
        let text =
            server.url("sftp", server.server.address, &format!("/{}", place_of_it.display()));
        let open = || place(&text).create(&settings(server.variables())).unwrap();
        // Each has a process of the server, as other machines have.
        let both = [open(), open()];
        assert_eq!(try_exclusive(&*both[0], &SeededEntropy::new(1)).unwrap(), expected);
        assert_eq!(both[0].list("trial").unwrap(), []);
        let name = ObjectName::new("snapshots", "one");
        let created = std::thread::scope(|scope| {
            let create = |at: usize| both[at].create(&name, &[at as u8]);
            let other = scope.spawn(move || create(1));
            [create(0), other.join().unwrap()]
        });
        let winners = created.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(winners, usize::from(expected == Trial::Exclusive), "{created:?}");
        let left = std::fs::read_dir(place_of_it.join("snapshots")).map_or(0, Iterator::count);
        assert_eq!(left, winners, "a temporary file was left");
    }
}

const SFTP_SERVER: &str = "/usr/lib/openssh/sftp-server";

/// A file system without links, on which a rename takes its time.
const NO_LINKS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>

int link(const char *from, const char *to) {
    errno = EOPNOTSUPP;
    return -1;
}

int rename(const char *from, const char *to) {
    usleep(200000);
    int (*next)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
    return next(from, to);
}
"#;

/// A server that says that there is more and gives nothing would be asked for ever.
#[test]
fn a_folder_ends_when_the_server_gives_no_more_names() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("server.py");
    std::fs::write(&program, EMPTY_NAMES).unwrap();
    let line = format!("python3 {}", program.display());
    let settings = settings(vec![("STRONGROOM_SSH".to_owned(), line)]);
    let backend = place("sftp://host/x").open(&settings).unwrap().unwrap();
    let (sender, listed) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(backend.list("keys")));
    let listed = listed.recv_timeout(Duration::from_secs(20)).expect("it ends").unwrap();
    assert_eq!(listed.len(), 1);
}

/// A server of SFTP with one file in each folder.
const EMPTY_NAMES: &str = r#"
import struct, sys
text = lambda bytes: struct.pack('>I', len(bytes)) + bytes
def send(body):
    sys.stdout.buffer.write(struct.pack('>I', len(body)) + body)
    sys.stdout.buffer.flush()
listings = 0
while head := sys.stdin.buffer.read(4):
    packet = sys.stdin.buffer.read(struct.unpack('>I', head)[0])
    kind, number = packet[0], packet[1:5]
    if kind == 1: send(b'' + struct.pack('>I', 3))
    elif kind == 17: send(b'i' + number + struct.pack('>II', 4, 0o040755))
    elif kind == 11: send(b'f' + number + text(b'folder'))
    elif kind == 12:
        listings += 1
        names = text(b'a') + text(b'a') + struct.pack('>I', 0) if listings == 1 else b''
        send(b'h' + number + struct.pack('>I', listings == 1) + names)
    else: send(b'e' + number + struct.pack('>I', 0) + text(b'') + text(b''))
"#;

#[test]
fn a_connection_that_is_cut_is_made_again() {
    let server = sshd(None);
    let relay = Relay::start(server.server.address, LineOptions::default());
    server.trust(relay.address);
    let folder = server.server.folder.path().join("place");
    let text = server.url("sftp", relay.address, &format!("/{}", folder.display()));
    let backend = place(&text).create(&settings(server.variables())).unwrap();
    let bytes = vec![1; 3 << 20];
    for number in 0..5 {
        let name = ObjectName::new("arenas", format!("a{number}"));
        std::thread::scope(|scope| {
            let creating = scope.spawn(|| backend.create(&name, &bytes));
            std::thread::sleep(Duration::from_millis(8 * number));
            relay.cut();
            creating.join().unwrap().unwrap();
        });
        assert!(read_all(&*backend, &name).unwrap() == bytes);
    }
}

#[test]
fn a_long_line_is_filled() {
    let server = sshd(None);
    let options = LineOptions { delay: Duration::from_millis(50), ..LineOptions::default() };
    let relay = Relay::start(server.server.address, options);
    server.trust(relay.address);
    let folder = server.server.folder.path().join("place");
    let text = server.url("sftp", relay.address, &format!("/{}", folder.display()));
    let backend = place(&text).create(&settings(server.variables())).unwrap();
    let bytes = vec![7; 16 << 20];
    let name = ObjectName::new("arenas", "a");
    backend.create(&name, &bytes).unwrap();
    let started = Stopwatch::start();
    assert!(read_all(&*backend, &name).unwrap() == bytes);
    // 512 requests of 100 ms each would take 51 s one after the other.
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn what_ssh_says_at_its_end_is_always_heard() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("ssh");
    let starts = folder.path().join("starts");
    let text = format!(
        "#!/bin/sh\necho x >> {}\necho 'Host key verification failed.' >&2\nexit 255\n",
        starts.display()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let variables = [("STRONGROOM_SSH".to_owned(), program.display().to_string())];
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(refusal("sftp://host/x", &variables), Refusal::Identity);
                }
            });
        }
    });
    // A refusal is not repeated: a second start means that it was taken for a lost connection.
    assert_eq!(std::fs::read_to_string(&starts).unwrap().lines().count(), 160);
}

fn refusal(text: &str, variables: &[(String, String)]) -> Refusal {
    match place(text).open(&settings(variables.to_vec())) {
        Err(BackendError::Refused { refusal, .. }) => refusal,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("{text} was opened"),
    }
}

fn refusal_or_lost(text: &str, variables: &[(String, String)]) -> String {
    match place(text).open(&settings(variables.to_vec())) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{text} was opened"),
    }
}
