//! FTP, on vsftpd.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use strongroom_backend::{Backend, BackendError, ObjectName, Refusal, read_all};
use strongroom_testkit::relay::{LineOptions, Relay};
use strongroom_testkit::servers::{vsftpd, vsftpd_tls};

use crate::{place, settings};

/// What a place without exclusive create must do.
fn check(backend: &dyn Backend) {
    let name = |file: &str| ObjectName::new("arenas", file);
    assert!(backend.holds_at_most("keys").unwrap());
    assert!(backend.size(&name("one")).unwrap_err().is_not_found());
    assert!(backend.read(&name("one"), 0, 9).unwrap_err().is_not_found());
    assert!(backend.remove(&name("one")).unwrap_err().is_not_found());
    assert!(backend.list("arenas").unwrap().is_empty());
    assert!(matches!(backend.create(&name("one"), b"x"), Err(BackendError::Unsupported { .. })));
    backend.replace(&name("one"), b"0123456789").unwrap();
    backend.replace(&name("two"), b"").unwrap();
    backend.replace(&ObjectName::top("config"), b"c").unwrap();
    assert_eq!(read_all(backend, &name("one")).unwrap(), b"0123456789");
    assert_eq!(backend.read(&name("one"), 3, 4).unwrap(), b"3456");
    assert_eq!(backend.read(&name("one"), 8, 4).unwrap(), b"89");
    assert_eq!(backend.read(&name("one"), u64::MAX, usize::MAX).unwrap(), b"");
    assert_eq!(read_all(backend, &name("two")).unwrap(), b"");
    backend.replace(&name("one"), b"short").unwrap();
    let listed = backend.list("arenas").unwrap();
    let sizes: Vec<_> = listed.iter().map(|info| (info.name.as_str(), info.bytes)).collect();
    assert_eq!(sizes, [("arenas/one", 5), ("arenas/two", 0)]);
    assert_eq!(backend.list("").unwrap().len(), 1);
    assert!(!backend.holds_at_most("arenas").unwrap());
    backend.remove(&name("two")).unwrap();
    backend.remove(&ObjectName::top("config")).unwrap();
    assert!(backend.holds_at_most("arenas").unwrap());
    let large: Vec<u8> = (0..5_000_001_u32).map(|n| (n / 7) as u8).collect();
    backend.replace(&name("large"), &large).unwrap();
    assert!(read_all(backend, &name("large")).unwrap() == large);
    // A part of it, after which the connection is used again.
    for offset in [0, 1_000_000, 4_999_990] {
        let part = backend.read(&name("large"), offset, 70_000).unwrap();
        let start = offset as usize;
        assert!(part == large[start..(start + 70_000).min(large.len())]);
    }
    std::thread::scope(|scope| {
        for writer in 0..6_u8 {
            scope.spawn(move || {
                for number in 0..20 {
                    let name = ObjectName::new("snapshots", format!("{writer}-{number}"));
                    backend.replace(&name, &[writer; 1000]).unwrap();
                    assert_eq!(backend.read(&name, 500, 100).unwrap(), [writer; 100]);
                }
            });
        }
    });
    assert_eq!(backend.list("snapshots").unwrap().len(), 120);
    assert_eq!(backend.promises().is_exclusive, Some(false));
}

#[test]
fn a_folder_of_ftp_keeps_objects() {
    let server = vsftpd();
    let settings = settings(server.variables());
    for path in ["", "/not/yet/there"] {
        let text = server.url(server.server.address, path);
        let is_there = place(&text).open(&settings).unwrap().is_some();
        assert_eq!(is_there, path.is_empty());
        check(&*place(&text).create(&settings).unwrap());
        for entry in std::fs::read_dir(server.data()).unwrap() {
            let _ = std::fs::remove_dir_all(entry.unwrap().path());
        }
    }
}

#[test]
fn a_folder_of_ftp_over_tls_keeps_objects() {
    let server = vsftpd_tls();
    let text = server.url(server.server.address, "/a");
    check(&*place(&text).create(&settings(server.variables())).unwrap());
    assert_eq!(refusal(&text, &[]), Refusal::Identity);
    let plain = vsftpd();
    let text = text.replace(&server.server.address.to_string(), &plain.server.address.to_string());
    assert_eq!(refusal(&text, &server.variables()), Refusal::Version);
}

#[test]
fn what_is_wrong_with_ftp_is_named() {
    let server = vsftpd();
    let address = server.server.address;
    let secret = [("FTP_PASSWORD".to_owned(), "wrong".to_owned())];
    assert_eq!(refusal(&format!("ftp://me@{address}/ours"), &secret), Refusal::Credentials);
    assert_eq!(refusal(&format!("ftp://me@{address}/ours"), &[]), Refusal::NoCredentials);
    assert_eq!(refusal(&format!("ftp://{address}/a%0d%0aDELE%20b"), &[]), Refusal::NoSuchPlace);
    let backend = place(&server.url(address, "/a")).create(&settings(Vec::new())).unwrap();
    let folder = server.data().join("a/arenas/folder");
    std::fs::create_dir_all(&folder).unwrap();
    assert_eq!(backend.list("arenas").unwrap().len(), 1);
    let name = ObjectName::new("arenas", "folder");
    assert!(backend.size(&name).unwrap_err().is_unreadable());
    assert!(backend.read(&name, 0, 1).unwrap_err().is_unreadable());
    for (what, outcome) in
        [("remove", backend.remove(&name)), ("replace", backend.replace(&name, b"x"))]
    {
        assert!(outcome.as_ref().is_err_and(BackendError::is_directory), "{what}: {outcome:?}");
    }
    // Nothing may be written beside the folder that is ours.
    let outside = place(&format!("ftp://{address}")).open(&settings(Vec::new())).unwrap().unwrap();
    let refused = outside.replace(&ObjectName::top("x"), b"x");
    let expected = matches!(&refused, Err(BackendError::Refused { refusal: Refusal::Right, .. }));
    assert!(expected, "{refused:?}");
}

#[test]
fn a_connection_that_is_cut_is_made_again() {
    let server = vsftpd();
    let relay = Relay::start(server.server.address, LineOptions::default());
    let text = server.url(relay.address, "/a");
    let backend = place(&text).create(&settings(Vec::new())).unwrap();
    for number in 0..5 {
        let name = ObjectName::new("arenas", format!("a{number}"));
        std::thread::scope(|scope| {
            let storing = scope.spawn(|| backend.replace(&name, &[3; 3 << 20]));
            std::thread::sleep(Duration::from_millis(3 * number));
            relay.cut();
            storing.join().unwrap().unwrap();
        });
        assert!(read_all(&*backend, &name).unwrap() == [3; 3 << 20]);
    }
}

/// To the server, the end of the data is the end of the file: it says that it has stored it.
#[test]
fn an_upload_that_ends_on_the_way_is_sent_again() {
    let server = vsftpd();
    let (address, cuts) = cutter(server.server.address);
    let text = server.url(address, "/a");
    let backend = place(&text).create(&settings(Vec::new())).unwrap();
    let name = ObjectName::new("arenas", "a");
    backend.replace(&name, b"old").unwrap();
    for bytes in [vec![3; 3 << 20], vec![4; 1000]] {
        cuts.store(1, Ordering::Relaxed);
        backend.replace(&name, &bytes).unwrap();
        assert_eq!(cuts.load(Ordering::Relaxed), 0);
        assert!(read_all(&*backend, &name).unwrap() == bytes);
        assert_eq!(backend.list("arenas").unwrap().len(), 1);
    }
    // As long as it is so, what was there stays.
    cuts.store(usize::MAX, Ordering::Relaxed);
    let lost = backend.replace(&name, b"0123456789");
    assert!(matches!(lost, Err(BackendError::Io { .. })), "{lost:?}");
    cuts.store(0, Ordering::Relaxed);
    assert!(read_all(&*backend, &name).unwrap() == vec![4; 1000]);
}

/// Carries FTP to a server, and of this many uploads only the first half: the client may send the
/// rest, as through a router that ends a connection in its own way.
fn cutter(server: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let cuts = Arc::new(AtomicUsize::new(0));
    let shared = cuts.clone();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, cuts) = (client.unwrap(), shared.clone());
            let server = TcpStream::connect(server).unwrap();
            carry(client.try_clone().unwrap(), server.try_clone().unwrap(), usize::MAX);
            std::thread::spawn(move || control(server, client, &cuts));
        }
    });
    (address, cuts)
}

/// Carries replies. The port for data becomes one of ours.
fn control(server: TcpStream, mut client: TcpStream, cuts: &Arc<AtomicUsize>) {
    let ip = server.peer_addr().unwrap().ip();
    for line in BufReader::new(server).lines() {
        let Ok(mut line) = line else { break };
        if line.starts_with("229 ") {
            let port: u16 = line.split('|').nth(3).unwrap().parse().unwrap();
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            line = format!("229 here (|||{}|)", listener.local_addr().unwrap().port());
            let cuts = cuts.clone();
            std::thread::spawn(move || {
                let (client, _) = listener.accept().unwrap();
                let server = TcpStream::connect((ip, port)).unwrap();
                carry(server.try_clone().unwrap(), client.try_clone().unwrap(), usize::MAX);
                // Of a download, nothing comes from the client.
                let mut first = [0];
                let _ = client.peek(&mut first).is_ok_and(|count| {
                    let is_cut = count > 0 && cuts.load(Ordering::Relaxed) > 0;
                    cuts.fetch_sub(usize::from(is_cut), Ordering::Relaxed);
                    carry(client, server, if is_cut { 5 } else { usize::MAX });
                    true
                });
            });
        }
        if client.write_all(format!("{line}\r\n").as_bytes()).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

/// Carries FTP to a server, and each reply as `rewrite` says it. Data goes to the server directly.
fn rewriter(
    server: SocketAddr,
    rewrite: impl Fn(String) -> String + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let rewrite = Arc::new(rewrite);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, rewrite) = (client.unwrap(), rewrite.clone());
            let server = TcpStream::connect(server).unwrap();
            carry(client.try_clone().unwrap(), server.try_clone().unwrap(), usize::MAX);
            std::thread::spawn(move || {
                for line in BufReader::new(server).lines() {
                    let Ok(line) = line else { break };
                    let line = rewrite(line);
                    if client.write_all(format!("{line}\r\n").as_bytes()).is_err() {
                        break;
                    }
                }
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

/// Pure-FTPd shows 10,000 files of a folder, and says in the last line of its reply that there are more.
#[test]
fn a_listing_that_the_server_has_cut_is_no_listing() {
    let server = vsftpd();
    for end in [
        "226-Options: -a -l \r\n226 Output truncated to 10000 matches",
        "226 Output truncated to 10000 matches",
    ] {
        let address = rewriter(server.server.address, move |line| {
            let is_listing = line.starts_with("226 Directory send OK");
            if is_listing { end.to_owned() } else { line }
        });
        let plain = place(&server.url(server.server.address, "/a")).create(&settings(Vec::new()));
        plain.unwrap().replace(&ObjectName::new("arenas", "one"), b"x").unwrap();
        let backend = place(&server.url(address, "/a")).open(&settings(Vec::new())).unwrap();
        match backend.unwrap().list("arenas") {
            Err(BackendError::Refused { answer, .. }) => {
                assert!(answer.contains("LimitRecursion"), "{answer}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// ProFTPD refuses one connection too many with the code of a wrong password.
#[test]
fn a_server_without_room_for_a_connection_is_asked_again() {
    let server = vsftpd();
    let full = "530 Sorry, the maximum number of clients (4) for this user are already connected.";
    // Words that say nothing are believed of a client that was never let in.
    for (words, from) in [(full, 0), ("530 Login incorrect.", 1)] {
        let logins = Arc::new(AtomicUsize::new(0));
        let counted = logins.clone();
        let address = rewriter(server.server.address, move |line| {
            if !line.starts_with("230 ") {
                return line;
            }
            let number = counted.fetch_add(1, Ordering::Relaxed);
            if (from..from + 2).contains(&number) { words.to_owned() } else { line }
        });
        let text = server.url(address, "/a");
        let backend = place(&text).create(&settings(Vec::new())).unwrap();
        // At a time, so that one connection is not enough.
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for number in 0..4_u8 {
                let (backend, start) = (&backend, &start);
                scope.spawn(move || {
                    let name = ObjectName::new("arenas", format!("a{number}"));
                    start.wait();
                    backend.replace(&name, &vec![number; 8 << 20]).unwrap();
                });
            }
        });
        assert!(logins.load(Ordering::Relaxed) > from, "none was refused");
    }
}

/// Carries at most this many bytes on, and takes all.
fn carry(mut from: TcpStream, mut to: TcpStream, mut most: usize) {
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            let carried = count.min(most);
            most -= carried;
            let _ = to.write_all(&piece[..carried]);
            if most == 0 {
                let _ = to.shutdown(Shutdown::Write);
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}

#[test]
fn a_folder_that_may_not_be_read_is_not_empty() {
    let server = vsftpd();
    let text = server.url(server.server.address, "/a");
    let backend = place(&text).create(&settings(Vec::new())).unwrap();
    let name = ObjectName::new("arenas", "one");
    backend.replace(&name, b"x").unwrap();
    let folder = server.data().join("a/arenas");
    chown(&folder, Some(0), Some(0)).unwrap();
    for mode in [0o700, 0o711] {
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode)).unwrap();
        assert!(backend.list("arenas").is_err(), "{mode:o}");
        assert!(!backend.remove(&name).unwrap_err().is_not_found(), "{mode:o}");
    }
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(backend.list("arenas").unwrap().len(), 1);
    assert!(backend.list("snapshots").unwrap().is_empty());
}

fn refusal(text: &str, variables: &[(String, String)]) -> Refusal {
    match place(text).open(&settings(variables.to_vec())) {
        Err(BackendError::Refused { refusal, .. }) => refusal,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("{text} was opened"),
    }
}
