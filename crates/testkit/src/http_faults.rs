//! A server of HTTP on bad days: it carries requests to a real server, or to none, and spoils some
//! of them as a test says.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Which one it is, from 0 on.
    pub number: usize,
    /// `GET`, `PUT` and so on.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The length of its body.
    pub body_bytes: usize,
}

/// What becomes of a request.
#[derive(Debug, Clone)]
pub enum HttpFault {
    /// It is carried out and answered.
    None,
    /// It is not carried out; this is the answer: status, further headers, body.
    Instead(u16, Vec<(&'static str, String)>, String),
    /// It is not carried out, and the connection ends.
    Dropped,
    /// It is carried out, and the connection ends without an answer.
    Unanswered,
    /// The answer ends in the middle of its body.
    Half,
    /// The answer's body lacks its last byte, and its length says so too.
    Short,
    /// The answer comes after this time.
    Late(Duration),
}

/// A server that runs until this value is dropped.
#[derive(Debug)]
pub struct FaultyHttp {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

type Plan = Box<dyn Fn(&Asked) -> HttpFault + Send + Sync>;

struct Shared {
    server: Option<SocketAddr>,
    plan: Plan,
    count: AtomicUsize,
    is_ended: AtomicBool,
    // A plain mutex: held while one request is added.
    asked: Mutex<Vec<Asked>>,
}

/// A request's head is not longer than this.
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// A request's body is not longer than this.
const BODY_BYTES_MAX: usize = 256 << 20;

impl FaultyHttp {
    /// Starts before a real server, or before none. The plan is asked for each request.
    ///
    /// # Panics
    ///
    /// If the loopback has no free port.
    pub fn start(
        server: Option<SocketAddr>,
        plan: impl Fn(&Asked) -> HttpFault + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            server,
            plan: Box::new(plan),
            count: AtomicUsize::new(0),
            is_ended: AtomicBool::new(false),
            asked: Mutex::default(),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.is_ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(client) = client else { continue };
                let shared = accepting.clone();
                // A client that is gone ends its thread.
                std::thread::spawn(move || drop(shared.serve(client)));
            }
        });
        Self { address, shared }
    }

    /// What was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for FaultyHttp {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    /// Answers one request and closes the connection.
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(client.try_clone()?);
        let (first, headers) = read_head(&mut reader)?;
        let length = header(&headers, "content-length").and_then(|text| text.parse().ok());
        let mut body = vec![0; length.unwrap_or(0).min(BODY_BYTES_MAX)];
        reader.read_exact(&mut body)?;
        let mut words = first.split(' ');
        let asked = Asked {
            number: self.count.fetch_add(1, Ordering::Relaxed),
            method: words.next().unwrap_or_default().to_owned(),
            target: words.next().unwrap_or_default().to_owned(),
            headers,
            body_bytes: body.len(),
        };
        let fault = (self.plan)(&asked);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked.clone());
        if let HttpFault::Instead(status, headers, text) = &fault {
            return answer(&mut client, &asked, *status, headers, text);
        }
        if matches!(fault, HttpFault::Dropped) {
            return Ok(());
        }
        let Some(server) = self.server else {
            return answer(&mut client, &asked, 404, &[], "");
        };
        let answer = carry(server, &first, &asked.headers, &body)?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
        match fault {
            HttpFault::Unanswered => Ok(()),
            HttpFault::Half => client.write_all(&answer[..end + (answer.len() - end) / 2]),
            HttpFault::Short => client.write_all(&shortened(&answer, end)),
            HttpFault::Late(time) => {
                std::thread::sleep(time);
                client.write_all(&answer)
            }
            _ => client.write_all(&answer),
        }
    }
}

fn read_head(reader: &mut impl BufRead) -> io::Result<(String, Vec<(String, String)>)> {
    let mut lines = reader.take(HEAD_BYTES_MAX).lines();
    let first = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
    let mut headers = Vec::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok((first, headers))
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

/// Makes the same request of the real server, and returns the whole answer.
fn carry(
    server: SocketAddr,
    first: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> io::Result<Vec<u8>> {
    let mut head = format!("{first}\r\nconnection: close\r\n");
    for (name, value) in headers.iter().filter(|(name, _)| name != "connection") {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut stream = TcpStream::connect(server)?;
    stream.write_all(head.as_bytes())?;
    // A server may answer before it has read all, and listen no more.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if answer.is_empty() => Err(error),
        _ => Ok(answer),
    }
}

fn answer(
    client: &mut TcpStream,
    asked: &Asked,
    status: u16,
    headers: &[(&'static str, String)],
    text: &str,
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Answer\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", text.len()));
    client.write_all(head.as_bytes())?;
    if asked.method == "HEAD" { Ok(()) } else { client.write_all(text.as_bytes()) }
}

/// An answer without its last byte, if its length is given.
fn shortened(answer: &[u8], end: usize) -> Vec<u8> {
    let head = String::from_utf8_lossy(&answer[..end]);
    let length = answer.len() - end;
    let mut short = String::new();
    for line in head.lines() {
        match line.split_once(':') {
            Some((name, _)) if name.eq_ignore_ascii_case("content-length") && length > 0 => {
                short.push_str(&format!("{name}: {}\r\n", length - 1));
            }
            _ => short.push_str(&format!("{line}\r\n")),
        }
    }
    let mut bytes = short.into_bytes();
    bytes.extend_from_slice(&answer[end..answer.len() - usize::from(length > 0)]);
    bytes
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("server", &self.server).finish_non_exhaustive()
    }
}
