//! The threads that wait: for programs, for what one of them says, and for datagrams. They pass on what
//! comes, and wait for the agent if it has not taken what came before.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use strongroom_bucket::served::{Connection, Listener, Received};
use strongroom_cluster::open_command;

use super::limits::{GREETING, Lines};
use super::{AgentError, Event, TICK, programs};
use crate::datagrams::bind_in_group;
use crate::files::NodeFile;
use crate::keeper::Keeper;
use crate::opened::Closers;

/// More than a datagram of the cluster may have: longer ones are seen as such.
const DATAGRAM_BYTES: usize = 2048;

/// Lets programs in, until the agent ends.
pub(super) fn accept_programs(
    listener: Listener,
    keeper: Arc<Keeper>,
    events: SyncSender<Event>,
) -> Result<JoinHandle<()>, AgentError> {
    let accept = move || {
        while !keeper.cancel.is_cancelled() {
            match listener.accept(Some(TICK)) {
                Ok(Some(connection)) => {
                    if events.send(Event::Connected(Arc::new(connection))).is_err() {
                        break;
                    }
                }
                Ok(None) => {}
                // What fails for one program is not the end for the others. If descriptors are used up,
                // it fails until one is free.
                Err(_) => thread::sleep(TICK),
            }
        }
    };
    let started = thread::Builder::new().name("accept".to_owned()).spawn(accept);
    started.map_err(AgentError::Thread)
}

/// Passes on what a program says, to its end. Returns why the connection ended, unless the program
/// ended it.
pub(super) fn listen(
    connection: &Connection,
    number: u64,
    events: &SyncSender<Event>,
    closers: &Closers,
) -> Option<String> {
    let mut patience = Some(GREETING);
    loop {
        match connection.receive(patience) {
            Ok(Received::Message(message, descriptor)) => {
                let user = connection.peer().uid;
                let taken = programs::take_area(&message, descriptor, user, closers);
                if events.send(Event::Program(number, message, taken)).is_err() {
                    return None;
                }
                patience = None;
            }
            Ok(Received::Nothing) if patience.is_some() => {
                connection.end();
                return Some("a program did not say in time which bucket it has".to_owned());
            }
            Ok(Received::Nothing) => {}
            Ok(Received::End) => return None,
            Err(error) => {
                connection.end();
                return Some(error.to_string());
            }
        }
    }
}

/// The socket of a node, as a member of its group.
pub(super) fn bind_datagrams(node: &NodeFile) -> Result<UdpSocket, AgentError> {
    let failed = |address| move |error| AgentError::Address { address, error };
    let socket = match node.multicast {
        None => UdpSocket::bind(node.address).map_err(failed(node.address))?,
        Some(group) => bind_in_group(node.address, group).map_err(failed(group))?,
    };
    socket.set_read_timeout(Some(TICK)).map_err(failed(node.address))?;
    Ok(socket)
}

/// Commands are opened here, so that what is not the controller's takes none of the agent's time. If
/// there are more than it can take, some are lost, as on any network.
pub(super) fn listen_to_datagrams(
    node: Arc<NodeFile>,
    socket: &UdpSocket,
    keeper: Arc<Keeper>,
    events: SyncSender<Event>,
) -> Result<JoinHandle<()>, AgentError> {
    let socket = socket.try_clone().map_err(AgentError::Thread)?;
    let listen = move || {
        let mut bytes = vec![0; DATAGRAM_BYTES];
        let mut lines = Lines::default();
        while !keeper.cancel.is_cancelled() {
            let (length, from) = match socket.recv_from(&mut bytes) {
                Ok(received) => received,
                Err(error) if is_passing(&error) => continue,
                // A client that is gone is reported on the next receive. It is nothing to us.
                Err(_) => {
                    thread::sleep(Duration::from_millis(10));
                    continue;
                }
            };
            match open_command(&bytes[..length], &node.controller, &node.group) {
                Ok(command) => {
                    let sent = events.try_send(Event::Command(Box::new(command), from));
                    if matches!(sent, Err(TrySendError::Disconnected(_))) {
                        break;
                    }
                }
                Err(error) => {
                    if let Some(beside) = lines.admit() {
                        let line = format!("a datagram from {from} is ignored: {error}{beside}");
                        keeper.monitor.detail(&line);
                    }
                }
            }
        }
    };
    let started = thread::Builder::new().name("datagrams".to_owned()).spawn(listen);
    started.map_err(AgentError::Thread)
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
