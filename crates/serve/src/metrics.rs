//! Numbers for Prometheus, in its text form.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use strongroom_backend::Backend;
use strongroom_base::{Cancel, Stopwatch};
use strongroom_repository::objects::SNAPSHOTS_FOLDER;

use crate::house::House;

/// How long a program that asks for numbers may take.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(200);
/// A question is at most this long.
const QUESTION_BYTES_MAX: usize = 8 << 10;

/// What the server counts.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) connections: AtomicU64,
    pub(crate) turned_away: AtomicU64,
    pub(crate) broken: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    /// Objects that were found damaged and repaired by their own parity.
    pub(crate) repaired: AtomicU64,
    /// Objects that are damaged beyond parity, as of the last look.
    pub(crate) damaged: AtomicU64,
    /// When every room was last looked through, in seconds since the epoch; 0 before that.
    pub(crate) verified_at: AtomicI64,
}

/// Shows the numbers to programs that ask, one at a time, until a stop is requested.
pub(crate) fn answer_metrics(
    listener: &TcpListener,
    house: &House,
    metrics: &Metrics,
    cancel: &Cancel,
) {
    // A listener that cannot be asked without waiting would keep the server from ending.
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    while !cancel.is_cancelled() {
        match listener.accept() {
            // Who asks and does not listen gets no numbers.
            Ok((socket, _)) => drop(answer(socket, house, metrics)),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

fn answer(mut socket: TcpStream, house: &House, metrics: &Metrics) -> std::io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let waited = Stopwatch::start();
    let mut question = vec![0; QUESTION_BYTES_MAX];
    let mut filled = 0;
    while filled < question.len() && !question[..filled].windows(4).any(|w| w == b"\r\n\r\n") {
        let rest = PATIENCE.saturating_sub(waited.elapsed());
        if rest.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(rest))?;
        match socket.read(&mut question[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    let (status, body) = if question.starts_with(b"GET /metrics ") {
        ("200 OK", text(house, metrics))
    } else {
        ("404 Not Found", "the numbers are at /metrics\n".to_owned())
    };
    write!(
        socket,
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    )
}

fn text(house: &House, metrics: &Metrics) -> String {
    let mut text = String::new();
    let counters = [
        ("connections_total", &metrics.connections),
        ("connections_turned_away_total", &metrics.turned_away),
        ("connections_broken_total", &metrics.broken),
        ("received_bytes_total", &metrics.received_bytes),
        ("repaired_objects_total", &metrics.repaired),
        ("damaged_objects", &metrics.damaged),
    ];
    for (name, value) in counters {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let value = value.load(Ordering::Relaxed);
        // Writing to a text in memory does not fail.
        let _ = writeln!(text, "# TYPE strongroom_{name} {kind}\nstrongroom_{name} {value}");
    }
    let verified = metrics.verified_at.load(Ordering::Relaxed);
    let _ = writeln!(
        text,
        "# TYPE strongroom_verified_seconds gauge\nstrongroom_verified_seconds {verified}\n\
         # TYPE strongroom_room_bytes gauge\n# TYPE strongroom_room_snapshots gauge"
    );
    for name in house.room_names().unwrap_or_default() {
        let room = house.room(&name);
        let (Ok(bytes), Ok(backend)) = (room.used(), room.backend()) else { continue };
        let snapshots = backend.list(SNAPSHOTS_FOLDER).map_or(0, |infos| infos.len());
        let _ = writeln!(
            text,
            "strongroom_room_bytes{{room=\"{name}\"}} {bytes}\n\
             strongroom_room_snapshots{{room=\"{name}\"}} {snapshots}"
        );
    }
    text
}
