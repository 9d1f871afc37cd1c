//! A line to a server with a delay and a rate, for campaigns and measurements.
//!
//! `line SERVER DELAY_MS BYTES_PER_SECOND [FIRST_PORT LAST_PORT]` prints the address where it
//! listens; it listens at these ports too, and continues to the same ports of the server. For each
//! line on its standard input it prints the bytes that it has carried to the server and from it, and
//! the connections, so far. It ends with its input. A rate of 0 is none.

#![expect(clippy::unwrap_used, reason = "a tool of tests says where it stopped")]
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "it is a program")]

use std::net::SocketAddr;
use std::time::Duration;

use strongroom_testkit::relay::{LineOptions, Relay};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, server, delay_ms, rate, ports @ ..] = args.as_slice() else {
        panic!("usage: line SERVER DELAY_MS BYTES_PER_SECOND [FIRST_PORT LAST_PORT]");
    };
    let server: SocketAddr = server.parse().unwrap();
    let rate: u64 = rate.parse().unwrap();
    let options = LineOptions {
        delay: Duration::from_millis(delay_ms.parse().unwrap()),
        bytes_per_second: (rate > 0).then_some(rate),
    };
    let mut relay = Relay::start(server, options);
    if let [first, last] = ports {
        for port in first.parse().unwrap()..=last.parse().unwrap() {
            relay.carry_also(SocketAddr::new(server.ip(), port));
        }
    }
    println!("{}", relay.address);
    for _ in std::io::stdin().lines() {
        println!("{} {} {}", relay.sent(), relay.received(), relay.connections());
    }
}
