//! The server over TLS: who connects, for how long, and how all of it ends.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use strongroom_base::{Cancel, Stopwatch};
use strongroom_remote::duplex::divide;
use strongroom_remote::wire::ALPN;

use crate::attend::{STACK_BYTES, attend};
use crate::house::{House, HouseError};
use crate::limits::Limits;
use crate::metrics::{Metrics, answer_metrics};
use crate::watch::watch;

/// How long a client may take until it has shown its token.
const STRANGERS_PATIENCE: Duration = Duration::from_secs(15);
/// How long a visitor may be silent, and how long an answer may wait to be taken.
const IDLE: Duration = Duration::from_secs(600);
const TAKEN: Duration = Duration::from_secs(60);
/// Connections at a time, how many of them may be of strangers, and how many of one token.
const CONNECTIONS_MAX: usize = 1024;
const STRANGERS_MAX: usize = 256;
const OF_ONE_TOKEN_MAX: usize = 256;
/// How often the server looks whether it should end, and who is to be sent away.
const LOOK: Duration = Duration::from_millis(100);
const GUESTS_LOOK: Duration = Duration::from_secs(2);
/// What is asked for at the end is answered for this long.
const FAREWELL: Duration = Duration::from_secs(20);

/// The server's certificate and key.
pub struct Identity {
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// The certificate's file, for clients that do not trust it otherwise.
    pub file: PathBuf,
    /// Whether the server made it itself.
    pub is_own: bool,
}

/// How the server runs.
pub struct ListenOptions {
    /// Where the numbers are shown, if anywhere.
    pub metrics: Option<TcpListener>,
    /// How often every room is verified, and repaired from parity.
    pub verify_every: Option<Duration>,
}

impl Identity {
    /// A certificate and a key in PEM form.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, HouseError> {
        let failed = |path: &Path, error: String| HouseError::Io {
            path: path.to_owned(),
            source: io::Error::new(io::ErrorKind::InvalidData, error),
        };
        let certificates = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| failed(certificate, error.to_string()))?;
        if certificates.is_empty() {
            return Err(failed(certificate, "there is no certificate in it".to_owned()));
        }
        let private =
            PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, error.to_string()))?;
        let file = certificate.to_owned();
        Ok(Self { certificates, key: private, file, is_own: false })
    }

    /// The house's own, made for these names if there is none yet.
    pub fn of_house(house: &House, names: &[String]) -> Result<Self, HouseError> {
        let certificate = house.path().join("certificate.pem");
        let key = house.path().join("key.pem");
        if !certificate.exists() {
            make_identity(&certificate, &key, names)?;
        }
        Ok(Self { is_own: true, ..Self::read(&certificate, &key)? })
    }
}

fn make_identity(certificate: &Path, key: &Path, names: &[String]) -> Result<(), HouseError> {
    let failed = |error: rcgen::Error| HouseError::Io {
        path: certificate.to_owned(),
        source: io::Error::other(error),
    };
    let pair = rcgen::KeyPair::generate().map_err(failed)?;
    let params = rcgen::CertificateParams::new(names.to_vec()).map_err(failed)?;
    let made = params.self_signed(&pair).map_err(failed)?;
    for (path, text, mode) in [(key, pair.serialize_pem(), 0o600), (certificate, made.pem(), 0o644)]
    {
        let mut options = fs::File::options();
        options.write(true).create(true).truncate(true).mode(mode);
        options
            .open(path)
            .and_then(|mut file| {
                io::Write::write_all(&mut file, text.as_bytes())?;
                file.sync_all()
            })
            .map_err(|source| HouseError::Io { path: path.to_owned(), source })?;
    }
    Ok(())
}

/// Serves the house until a stop is requested. Then nothing new is let in, and what was asked for is
/// answered.
pub fn listen(
    house: &House,
    listener: &TcpListener,
    identity: Identity,
    options: &ListenOptions,
    cancel: &Cancel,
) -> Result<(), HouseError> {
    let failed = |source| HouseError::Io { path: house.path().to_owned(), source };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| {
            builder.with_no_client_auth().with_single_cert(identity.certificates, identity.key)
        })
        .map_err(|error| failed(io::Error::other(error)))?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let reception = Reception {
        house,
        tls: Arc::new(tls),
        limits: Limits::default(),
        metrics: Metrics::default(),
        guests: Mutex::default(),
        numbers: AtomicU64::new(0),
    };
    listener.set_nonblocking(true).map_err(failed)?;
    house.note("-", "open", &listener.local_addr().map_err(failed)?.to_string());
    std::thread::scope(|scope| {
        let metrics = &reception.metrics;
        if let Some(every) = options.verify_every {
            scope.spawn(move || watch(house, every, metrics, cancel));
        }
        if let Some(shown) = &options.metrics {
            scope.spawn(move || answer_metrics(shown, house, metrics, cancel));
        }
        let mut looked = Stopwatch::start();
        while !cancel.is_cancelled() {
            match listener.accept() {
                Ok((socket, from)) => {
                    if let Some(stay) = reception.register(&socket, from.ip()) {
                        // If there are no threads left, it leaves at once.
                        let _ = std::thread::Builder::new()
                            .stack_size(STACK_BYTES)
                            .spawn_scoped(scope, move || stay.serve(socket));
                    }
                }
                // No client came, or what was accepted is gone again, or there are no handles left.
                Err(_) => std::thread::sleep(LOOK),
            }
            if looked.elapsed() > GUESTS_LOOK {
                reception.send_away();
                looked = Stopwatch::start();
            }
        }
        reception.close();
    });
    house.note("-", "close", "");
    Ok(())
}

/// Everybody who is connected.
struct Reception<'a> {
    house: &'a House,
    tls: Arc<ServerConfig>,
    limits: Limits,
    metrics: Metrics,
    // A plain mutex: held for a look or an insertion.
    guests: Mutex<HashMap<u64, Guest>>,
    numbers: AtomicU64,
}

struct Guest {
    socket: TcpStream,
    from: Network,
    since: Stopwatch,
    /// The token's public half; none of a stranger.
    token: Option<String>,
    /// Its connection was ended, and its thread is about to notice.
    is_sent_away: bool,
}

impl Guest {
    fn is_stranger(&self) -> bool {
        self.token.is_none() && !self.is_sent_away
    }

    fn send_away(&mut self) {
        self.is_sent_away = true;
        // It may have ended by itself.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// What one person can have many addresses of: the first half of a long address, or a short one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Network(IpAddr);

impl Network {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(long) => Self(IpAddr::V6((long.to_bits() >> 64 << 64).into())),
            short @ IpAddr::V4(_) => Self(short),
        }
    }
}

/// A connection that was taken in, until this is dropped.
struct Stay<'r, 'a> {
    reception: &'r Reception<'a>,
    number: u64,
}

impl Drop for Stay<'_, '_> {
    fn drop(&mut self) {
        self.reception.guests().remove(&self.number);
    }
}

impl<'a> Reception<'a> {
    fn guests(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Guest>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in, unless there are too many. A stranger for whom there is no room takes that of
    /// the one who has been waiting longest, of the network that has most of them.
    fn register<'r>(&'r self, socket: &TcpStream, from: IpAddr) -> Option<Stay<'r, 'a>> {
        let mut guests = self.guests();
        let strangers = guests.values().filter(|guest| guest.is_stranger()).count();
        let is_full = guests.len() >= CONNECTIONS_MAX;
        if is_full || strangers >= STRANGERS_MAX {
            self.metrics.turned_away.fetch_add(1, Ordering::Relaxed);
            make_room(&mut guests);
        }
        if is_full {
            return None;
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let guest = Guest {
            socket: socket.try_clone().ok()?,
            from: Network::of(from),
            since: Stopwatch::start(),
            token: None,
            is_sent_away: false,
        };
        guests.insert(number, guest);
        self.metrics.connections.fetch_add(1, Ordering::Relaxed);
        Some(Stay { reception: self, number })
    }

    /// A stranger was let in.
    fn let_in(&self, number: u64, token: &str) {
        let mut guests = self.guests();
        let of_token = guests.values().filter(|guest| guest.token.as_deref() == Some(token));
        let is_full = of_token.count() >= OF_ONE_TOKEN_MAX;
        let Some(guest) = guests.get_mut(&number) else { return };
        guest.token = Some(token.to_owned());
        if is_full {
            self.metrics.turned_away.fetch_add(1, Ordering::Relaxed);
            guest.send_away();
        }
    }

    /// Ends the connections of strangers who take too long, however they do it, and of tokens that were removed
    /// or have ended.
    fn send_away(&self) {
        for guest in self.guests().values_mut().filter(|guest| !guest.is_sent_away) {
            let stays = match &guest.token {
                None => guest.since.elapsed() < STRANGERS_PATIENCE,
                Some(token) => self.house.has_token(token),
            };
            if !stays {
                guest.send_away();
            }
        }
    }

    /// Takes no more requests, and waits until what was asked for is answered.
    fn close(&self) {
        for guest in self.guests().values() {
            let _ = guest.socket.shutdown(Shutdown::Read);
        }
        let waited = Stopwatch::start();
        while !self.guests().is_empty() && waited.elapsed() < FAREWELL {
            std::thread::sleep(LOOK);
        }
        for guest in self.guests().values() {
            let _ = guest.socket.shutdown(Shutdown::Both);
        }
    }
}

impl Stay<'_, '_> {
    fn serve(self, socket: TcpStream) {
        // How it ended is of no use to anyone: the other side is gone, or broke the rules.
        if self.attend(socket).is_err() {
            self.reception.metrics.broken.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn attend(&self, socket: TcpStream) -> io::Result<()> {
        let Reception { house, tls, limits, metrics, .. } = self.reception;
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(STRANGERS_PATIENCE))?;
        socket.set_write_timeout(Some(STRANGERS_PATIENCE))?;
        let patience = socket.try_clone()?;
        let tls = ServerConnection::new(tls.clone()).map_err(io::Error::other)?;
        let (mut receiver, mut sender, _) = divide(tls.into(), socket)?;
        let handle = sender.handle();
        let mut counted = Counted { source: &mut receiver, metrics };
        let outcome = attend(&mut counted, &mut sender, *house, limits, |visitor| {
            let _ = patience.set_read_timeout(Some(IDLE));
            let _ = patience.set_write_timeout(Some(TAKEN));
            let token = visitor.name.split('/').next().unwrap_or_default();
            self.reception.let_in(self.number, token);
        });
        handle.close();
        outcome
    }
}

/// Sends the stranger away who has been waiting longest, of the network that has most of them.
fn make_room(guests: &mut HashMap<u64, Guest>) {
    let mut counts: HashMap<Network, usize> = HashMap::new();
    for guest in guests.values().filter(|guest| guest.is_stranger()) {
        *counts.entry(guest.from).or_default() += 1;
    }
    let strangers = guests.iter_mut().filter(|(_, guest)| guest.is_stranger());
    let by_crowd =
        |(number, guest): &(&u64, &mut Guest)| (counts[&guest.from], std::cmp::Reverse(**number));
    if let Some((_, guest)) = strangers.max_by_key(by_crowd) {
        guest.send_away();
    }
}

/// Counts what is received.
struct Counted<'a> {
    source: &'a mut dyn Read,
    metrics: &'a Metrics,
}

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(into)?;
        self.metrics.received_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
