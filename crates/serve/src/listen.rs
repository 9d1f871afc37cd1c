//! The server over TLS: who connects, for how long, and how all of it ends.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
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

use crate::attend::attend;
use crate::house::{House, HouseError};
use crate::limits::Limits;
use crate::metrics::{Metrics, answer_metrics};
use crate::watch::watch;

/// How long a client may take until it has shown its token.
const STRANGERS_PATIENCE: Duration = Duration::from_secs(15);
/// How long a visitor may be silent, and how long an answer may wait to be taken.
const IDLE: Duration = Duration::from_secs(600);
const TAKEN: Duration = Duration::from_secs(60);
/// Connections at a time, and how many of them may be of strangers.
const CONNECTIONS_MAX: usize = 1024;
const STRANGERS_MAX: usize = 256;
/// How often the server looks whether it should end, and whether tokens were removed.
const LOOK: Duration = Duration::from_millis(100);
const TOKENS_LOOK: Duration = Duration::from_secs(2);
/// What is asked for at the end is answered for this long.
const FAREWELL: Duration = Duration::from_secs(20);
/// The stack of a connection's thread. It needs little, and there are many.
const STACK_BYTES: usize = 256 << 10;

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
                    if let Some(number) = reception.register(&socket, from) {
                        let reception = &reception;
                        let started = std::thread::Builder::new()
                            .stack_size(STACK_BYTES)
                            .spawn_scoped(scope, move || reception.serve(socket, number));
                        if started.is_err() {
                            reception.leave(number);
                        }
                    }
                }
                // No client came, or what was accepted is gone again, or there are no handles left.
                Err(_) => std::thread::sleep(LOOK),
            }
            if looked.elapsed() > TOKENS_LOOK {
                reception.send_away_without_token();
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
    /// The token's public half; none of a stranger.
    token: Option<String>,
}

impl Reception<'_> {
    fn guests(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Guest>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in, unless there are too many.
    fn register(&self, socket: &TcpStream, _from: SocketAddr) -> Option<u64> {
        let mut guests = self.guests();
        let strangers = guests.values().filter(|guest| guest.token.is_none()).count();
        if guests.len() >= CONNECTIONS_MAX || strangers >= STRANGERS_MAX {
            self.metrics.turned_away.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        guests.insert(number, Guest { socket: socket.try_clone().ok()?, token: None });
        self.metrics.connections.fetch_add(1, Ordering::Relaxed);
        Some(number)
    }

    fn leave(&self, number: u64) {
        self.guests().remove(&number);
    }

    fn serve(&self, socket: TcpStream, number: u64) {
        // How it ended is of no use to anyone: the other side is gone, or broke the rules.
        if self.attend(socket, number).is_err() {
            self.metrics.broken.fetch_add(1, Ordering::Relaxed);
        }
        self.leave(number);
    }

    fn attend(&self, socket: TcpStream, number: u64) -> io::Result<()> {
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(STRANGERS_PATIENCE))?;
        socket.set_write_timeout(Some(STRANGERS_PATIENCE))?;
        let patience = socket.try_clone()?;
        let tls = ServerConnection::new(self.tls.clone()).map_err(io::Error::other)?;
        let (mut receiver, mut sender, _) = divide(tls.into(), socket)?;
        let handle = sender.handle();
        let mut counted = Counted { source: &mut receiver, metrics: &self.metrics };
        let outcome = attend(&mut counted, &mut sender, self.house, &self.limits, |visitor| {
            let _ = patience.set_read_timeout(Some(IDLE));
            let _ = patience.set_write_timeout(Some(TAKEN));
            if let Some(guest) = self.guests().get_mut(&number) {
                guest.token = visitor.name.split('/').next().map(str::to_owned);
            }
        });
        handle.close();
        outcome
    }

    /// Ends the connections of tokens that were removed or have ended.
    fn send_away_without_token(&self) {
        for guest in self.guests().values() {
            if guest.token.as_ref().is_some_and(|token| !self.house.has_token(token)) {
                let _ = guest.socket.shutdown(Shutdown::Both);
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
