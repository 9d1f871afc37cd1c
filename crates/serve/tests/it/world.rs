//! A server in this program, on loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use strongroom_arena::envelope::format::{ObjectKind, Origin};
use strongroom_arena::envelope::{Identity as ObjectIdentity, seal_small};
use strongroom_backend::{BackendError, Refusal};
use strongroom_base::{Cancel, OsEntropy, SnapshotId, SystemClock};
use strongroom_remote::{Place, Rate, Settings, Variables};
use strongroom_serve::{Checks, House, Identity, ListenOptions, NewToken, Role, listen};
use tempfile::TempDir;

pub struct World {
    pub house: Arc<House>,
    folder: TempDir,
    address: SocketAddr,
    metrics: SocketAddr,
    cancel: Cancel,
    server: Option<JoinHandle<()>>,
}

pub struct Key {
    pub text: String,
    pub room: String,
}

impl World {
    pub fn open(checks: Checks) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let house = Arc::new(House::serve(folder.path(), checks, Arc::new(SystemClock)).unwrap());
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let metrics = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (address, shown) = (listener.local_addr().unwrap(), metrics.local_addr().unwrap());
        let identity = Identity::of_house(&house, &["127.0.0.1".to_owned()]).unwrap();
        let cancel = Cancel::new();
        let (of_server, stop) = (house.clone(), cancel.clone());
        let server = std::thread::spawn(move || {
            let options = ListenOptions { metrics: Some(metrics), verify_every: None };
            listen(&of_server, &listener, identity, &options, &stop).unwrap();
        });
        Self { house, folder, address, metrics: shown, cancel, server: Some(server) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn token(&self, room: &str, role: Role, quota: Option<u64>) -> Key {
        let new =
            NewToken { name: "me".to_owned(), room: room.to_owned(), role, quota, until: None };
        let (_, text) = self.house.add_token(new, &OsEntropy).unwrap();
        Key { text: text.to_string(), room: room.to_owned() }
    }

    pub fn place(&self, key: &Key) -> Place {
        self.place_at(self.address, key)
    }

    pub fn place_at(&self, address: SocketAddr, key: &Key) -> Place {
        place(&format!("https://{address}/{}", key.room))
    }

    pub fn settings(&self, key: &Key) -> Settings {
        self.settings_with(&key.text)
    }

    pub fn settings_with(&self, token: &str) -> Settings {
        let file = self.folder.path().join("certificate.pem");
        settings(vec![
            ("STRONGROOM_TOKEN".to_owned(), token.to_owned()),
            ("STRONGROOM_CA_FILE".to_owned(), file.display().to_string()),
        ])
    }

    /// What a program that collects numbers gets.
    pub fn metrics(&self) -> String {
        let mut socket = TcpStream::connect(self.metrics).unwrap();
        socket.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.cancel.cancel();
        if let Some(server) = self.server.take() {
            server.join().unwrap();
        }
    }
}

/// Settings with these variables and no others, and with little patience.
pub fn settings(variables: Vec<(String, String)>) -> Settings {
    Settings {
        variables: Variables::new(variables.into_iter().map(|(n, v)| (n.into(), v.into()))),
        rate: Rate::default(),
        connections: None,
        patience: Duration::from_secs(20),
        cancel: Cancel::new(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(OsEntropy),
        is_drawn: |_| false,
        judge: |_, _| strongroom_backend::Soundness::Repairable,
    }
}

pub fn place(text: &str) -> Place {
    Place::parse(text.as_ref()).unwrap()
}

/// A small object of a repository, as any client could make it.
pub fn session_object(id: [u8; 16]) -> Vec<u8> {
    object(ObjectKind::Session, id, &[id[0]; 100])
}

/// An object of any kind.
pub fn object(kind: ObjectKind, id: [u8; 16], body: &[u8]) -> Vec<u8> {
    let origin = Origin { session: SnapshotId(id), sequence: 1 };
    // Wishes and remarks are counted from one.
    let generation = u32::from(matches!(kind, ObjectKind::Wish | ObjectKind::Remark));
    seal_small(body, ObjectIdentity { kind, id, generation, origin })
}

/// Why a place refused.
pub fn refusal_of<T: std::fmt::Debug>(outcome: Result<T, BackendError>) -> Refusal {
    match outcome {
        Err(BackendError::Refused { refusal, .. }) => refusal,
        other => panic!("it was not refused: {other:?}"),
    }
}
