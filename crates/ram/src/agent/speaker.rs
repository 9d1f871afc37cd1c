//! How a program is spoken to: by a thread of its own, so that one that does not read its messages
//! keeps none of the others waiting.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use strongroom_bucket::served::Connection;
use strongroom_bucket::{AreaSize, ToProgram};

/// Messages that wait for a program at most, beside those in its socket, and their bytes.
const UNSENT_MAX: usize = 4_096;
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// Speaks to one program.
pub struct Speaker {
    connection: Arc<Connection>,
    unsent: SyncSender<ToProgram>,
    unsent_bytes: Arc<AtomicUsize>,
}

impl Speaker {
    /// Begins.
    pub fn start(connection: Arc<Connection>) -> io::Result<Self> {
        let (unsent, waiting) = sync_channel::<ToProgram>(UNSENT_MAX);
        let (speaking, unsent_bytes) = (connection.clone(), Arc::new(AtomicUsize::new(0)));
        let sent_bytes = unsent_bytes.clone();
        let speak = move || {
            for message in waiting {
                if speaking.send(&message).is_err() {
                    // The thread that reads notices it.
                    return speaking.end();
                }
                sent_bytes.fetch_sub(bytes_of(&message), Ordering::Relaxed);
            }
        };
        thread::Builder::new().name("answers".to_owned()).spawn(speak)?;
        Ok(Self { connection, unsent, unsent_bytes })
    }

    /// Says something. A program that is gone, or reads nothing, is noticed by the thread that reads.
    pub fn say(&self, message: ToProgram) {
        let bytes = bytes_of(&message);
        let before = self.unsent_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > UNSENT_BYTES_MAX || self.unsent.try_send(message).is_err() {
            self.connection.end();
        }
    }

    /// Ends the connection.
    pub fn end(&self) {
        self.connection.end();
    }

    /// The connection.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }
}

/// About how much memory a message takes.
fn bytes_of(message: &ToProgram) -> usize {
    let beside = match message {
        ToProgram::Found { areas, .. } => {
            areas.iter().map(|area| area.area.len() + size_of::<AreaSize>()).sum()
        }
        ToProgram::Failed { reason, .. } | ToProgram::Refused { reason } => reason.len(),
        _ => 0,
    };
    size_of::<ToProgram>() + beside
}
