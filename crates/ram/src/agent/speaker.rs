//! How a program is spoken to: by a thread of its own, so that one that does not read its messages
//! keeps none of the others waiting.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use strongroom_bucket::ToProgram;
use strongroom_bucket::served::Connection;

/// Messages that wait for a program at most, beside those in its socket.
const UNSENT_MAX: usize = 4_096;

/// Speaks to one program.
pub struct Speaker {
    connection: Arc<Connection>,
    unsent: SyncSender<ToProgram>,
}

impl Speaker {
    /// Begins.
    pub fn start(connection: Arc<Connection>) -> io::Result<Self> {
        let (unsent, waiting) = sync_channel::<ToProgram>(UNSENT_MAX);
        let speaking = connection.clone();
        let speak = move || {
            for message in waiting {
                if speaking.send(&message).is_err() {
                    // The thread that reads notices it.
                    return speaking.end();
                }
            }
        };
        thread::Builder::new().name("answers".to_owned()).spawn(speak)?;
        Ok(Self { connection, unsent })
    }

    /// Says something. A program that is gone, or reads nothing, is noticed by the thread that reads.
    pub fn say(&self, message: ToProgram) {
        if self.unsent.try_send(message).is_err() {
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
