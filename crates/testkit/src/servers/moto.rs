//! moto: an imitation of S3 that checks no signature. It knows storage classes and their states.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use super::{Server, installed};

/// A running moto with one bucket.
#[derive(Debug)]
pub struct Moto {
    /// The server.
    pub server: Server,
}

/// Starts moto with the bucket `bucket`.
///
/// # Panics
///
/// If it is not installed or does not start.
pub fn moto() -> Moto {
    let server = Server::start(|_, address| {
        let mut command = Command::new(installed("python/bin/moto_server"));
        command.args(["-H", &address.ip().to_string(), "-p", &address.port().to_string()]);
        command
    });
    make_bucket(server.address);
    Moto { server }
}

/// Makes the bucket `bucket` without a signature, as moto allows it.
fn make_bucket(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).expect("a server that listens");
    let request = format!(
        "PUT /bucket HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\n\
         authorization: AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/s3/aws4_request, \
         SignedHeaders=host, Signature=0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "moto made no bucket: {answer}");
}

impl Moto {
    /// The variables that let a client in, at this address or at that of a relay before it.
    pub fn variables(&self, address: SocketAddr) -> Vec<(String, String)> {
        let endpoint = format!("http://{address}");
        [("AWS_ENDPOINT_URL", endpoint.as_str()), ("AWS_ACCESS_KEY_ID", "k")]
            .into_iter()
            .chain([("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_REGION", "us-east-1")])
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }
}
