//! A server of an RP* file, as a process: it serves until its standard input ends, or SIGTERM.
//!
//! `rp_node --listen ADDR --bucket N [--first | --spare] [--peers ADDR,ADDR,...] [--pages N]
//! [--file NAME] [--socket AGENT]`
//!
//! `ADDR` is an address and a port by which clients and other servers reach it. With `--file`, its
//! bucket is registered with the agent of the node, at `--socket` or where the library
//! looks for it; otherwise there is no agent. When it is ready, it prints one line:
//! `ready bucket 0 at 127.0.0.1:4000`.
#![expect(clippy::print_stdout, reason = "an example prints that it is ready")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

use strongroom_testkit::rp::{Role, Server, ServerOptions, register};

const USAGE: &str = "usage: rp_node --listen ADDR --bucket N [--first | --spare] \
    [--peers ADDR,...] [--pages N] [--file NAME] [--socket AGENT]";
/// 16 MiB.
const PAGES: u32 = 1024;

type Failure = Box<dyn std::error::Error>;

struct Arguments {
    listen: SocketAddr,
    options: ServerOptions,
    file: Option<String>,
    socket: Option<PathBuf>,
}

#[expect(clippy::print_stderr, reason = "an example says what went wrong")]
fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "an example reads its arguments")]
fn run() -> Result<(), Failure> {
    let arguments = parse(std::env::args().skip(1))?;
    let bucket = arguments.options.bucket;
    let listener = TcpListener::bind(arguments.listen)?;
    let server = Server::start(listener, arguments.options)?;
    if let Some(file) = &arguments.file {
        register(&server, arguments.socket.as_deref(), file)?;
    }
    println!("ready bucket {bucket} at {}", server.address());
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    server.stop();
    Ok(())
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, Failure> {
    let (mut listen, mut bucket) = (None, None);
    let (mut role, mut peers, mut pages) = (Role::Spare, Vec::new(), PAGES);
    let (mut file, mut socket) = (None, None);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(USAGE);
        match word.as_str() {
            "--listen" => listen = Some(value()?.parse()?),
            "--bucket" => bucket = Some(value()?.parse()?),
            "--first" => role = Role::First,
            "--spare" => role = Role::Spare,
            "--peers" => {
                let names = value()?;
                let names = names.split(',').filter(|name| !name.is_empty());
                peers = names.map(str::parse).collect::<Result<Vec<SocketAddr>, _>>()?;
            }
            "--pages" => pages = value()?.parse()?,
            "--file" => file = Some(value()?),
            "--socket" => socket = Some(PathBuf::from(value()?)),
            _ => return Err(USAGE.into()),
        }
    }
    if socket.is_some() && file.is_none() {
        return Err("--socket needs --file, the name of the file for the agent".into());
    }
    let bucket = bucket.ok_or(USAGE)?;
    let options = ServerOptions { bucket, role, peers, pages };
    Ok(Arguments { listen: listen.ok_or(USAGE)?, options, file, socket })
}
