//! One connection: many calls in flight, each with a number.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use strongroom_backend::Promises;

use super::PATIENCE;
use crate::failure::Failure;
use crate::rate::Line;
use crate::wire::{
    DONE, FAILED, Frame, PART, PART_BYTES_MAX, Request, greeting, receive_greeting, unpack_failure,
    unpack_promises,
};

/// Frames that may wait for one call. It collects them at once, so they are few.
const WAITING_FRAMES: usize = 64;

/// The two directions of a connection, and how to end it.
pub(crate) struct Link {
    pub(crate) receiving: Box<dyn Read + Send>,
    pub(crate) sending: Box<dyn Write + Send>,
    pub(crate) end: Arc<dyn End>,
}

/// How a connection ends.
pub(crate) trait End: Send + Sync {
    /// Ends it: both directions fail from now on.
    fn end(&self);

    /// Why it ended, if more is known than that.
    fn reason(&self) -> Option<Failure>;
}

/// A connection to a room that let us in.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    line: Arc<Line>,
    pub(crate) promises: Promises,
}

/// What callers and the receiving thread share.
struct Shared {
    // Plain mutexes: the first is held while one frame is sent, the second for a look.
    sending: Mutex<Box<dyn Write + Send>>,
    calls: Mutex<Calls>,
    end: Arc<dyn End>,
}

/// The calls that wait, by their numbers.
#[derive(Default)]
struct Calls {
    last: u32,
    waiting: HashMap<u32, SyncSender<Frame>>,
    /// Nothing more will come.
    is_over: bool,
}

impl Connection {
    /// Greets, and asks to be let in.
    pub(crate) fn enter(
        link: Link,
        entrance: &Request,
        line: Arc<Line>,
        in_flight: usize,
    ) -> Result<Self, Failure> {
        let Link { mut receiving, mut sending, end } = link;
        let failed = |error: io::Error, end: &dyn End| {
            end.end();
            end.reason().unwrap_or(Failure::Lost(error))
        };
        sending
            .write_all(&greeting())
            .and_then(|()| sending.flush())
            .and_then(|()| receive_greeting(&mut *receiving))
            .map_err(|error| failed(error, &*end))?;
        let shared = Arc::new(Shared {
            sending: Mutex::new(sending),
            calls: Mutex::default(),
            end: end.clone(),
        });
        let (of_thread, its_line) = (shared.clone(), line.clone());
        std::thread::Builder::new()
            .name("receiver".to_owned())
            .spawn(move || of_thread.receive(&mut *receiving, &its_line))
            .map_err(|error| failed(error, &*end))?;
        let mut connection = Self { shared, line, promises: Promises::LOCAL };
        let welcome = connection.call(entrance, None, 1 << 10)?;
        connection.promises = unpack_promises(&welcome, in_flight).map_err(Failure::lost)?;
        Ok(connection)
    }

    /// Whether calls are worth making.
    pub(crate) fn is_alive(&self) -> bool {
        !self.shared.calls().is_over
    }

    /// Sends a request, with the bytes that follow it, and collects the answer.
    pub(crate) fn call(
        &self,
        request: &Request,
        upload: Option<&[u8]>,
        answer_bytes_max: usize,
    ) -> Result<Vec<u8>, Failure> {
        let mut answer = Vec::new();
        let last = self.call_for_parts(request, upload, |part| {
            if answer.len() + part.len() > answer_bytes_max {
                return Err(Failure::lost("an answer that is longer than was asked for"));
            }
            answer.extend_from_slice(&part);
            Ok(())
        })?;
        if answer.is_empty() { Ok(last) } else { Ok(answer) }
    }

    /// Sends a request, and gives each part of the answer to `take`. Returns what came at the end.
    pub(crate) fn call_for_parts(
        &self,
        request: &Request,
        upload: Option<&[u8]>,
        mut take: impl FnMut(Vec<u8>) -> Result<(), Failure>,
    ) -> Result<Vec<u8>, Failure> {
        let call = self.begin()?;
        let (kind, body) = request.pack();
        self.send(call.number, kind, &body)?;
        if let Some(bytes) = upload {
            for part in bytes.chunks(PART_BYTES_MAX) {
                // An answer before the end is a refusal, and the rest is not wanted.
                if let Ok(frame) = call.frames.try_recv() {
                    return self.conclude(frame);
                }
                self.line.send(part.len());
                self.send(call.number, PART, part)?;
            }
        }
        loop {
            match call.frames.recv_timeout(PATIENCE) {
                Ok(frame) if frame.kind == PART => {
                    if let Err(failure) = take(frame.body) {
                        self.shared.end.end();
                        return Err(failure);
                    }
                }
                Ok(frame) => return self.conclude(frame),
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost()),
                Err(RecvTimeoutError::Timeout) => {
                    self.shared.end.end();
                    let waited = format!("no answer for {} seconds", PATIENCE.as_secs());
                    return Err(Failure::lost(waited));
                }
            }
        }
    }

    /// What the last frame of an answer says.
    fn conclude(&self, frame: Frame) -> Result<Vec<u8>, Failure> {
        match frame.kind {
            DONE => Ok(frame.body),
            FAILED => Err(unpack_failure(&frame.body).unwrap_or_else(Failure::lost)),
            _ => {
                self.shared.end.end();
                Err(Failure::lost("an answer of an unknown kind"))
            }
        }
    }

    fn begin(&self) -> Result<Call<'_>, Failure> {
        let mut calls = self.shared.calls();
        if calls.is_over {
            drop(calls);
            return Err(self.lost());
        }
        loop {
            calls.last = calls.last.wrapping_add(1);
            if !calls.waiting.contains_key(&calls.last) {
                break;
            }
        }
        let number = calls.last;
        let (sender, frames) = sync_channel(WAITING_FRAMES);
        calls.waiting.insert(number, sender);
        Ok(Call { shared: &self.shared, number, frames })
    }

    fn send(&self, number: u32, kind: u8, body: &[u8]) -> Result<(), Failure> {
        let mut bytes = Vec::with_capacity(body.len() + crate::wire::FRAME_HEAD_BYTES);
        Frame::pack(number, kind, body, &mut bytes);
        let mut sending = self.shared.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = sending.write_all(&bytes).and_then(|()| sending.flush());
        drop(sending);
        sent.map_err(|error| {
            self.shared.end.end();
            self.shared.end.reason().unwrap_or(Failure::Lost(error))
        })
    }

    fn lost(&self) -> Failure {
        let ended = || Failure::lost("the connection ended");
        self.shared.end.reason().unwrap_or_else(ended)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The receiving thread ends with it.
        self.shared.end.end();
    }
}

/// A call that waits until it is dropped.
struct Call<'a> {
    shared: &'a Shared,
    number: u32,
    frames: Receiver<Frame>,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.shared.calls().waiting.remove(&self.number);
    }
}

impl Shared {
    fn calls(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives until the connection ends.
    fn receive(&self, source: &mut dyn Read, line: &Line) {
        while let Ok(Some(frame)) = Frame::receive(source) {
            line.receive(frame.body.len());
            // A frame of a call that has given up is dropped.
            let Some(call) = self.calls().waiting.get(&frame.request).cloned() else { continue };
            // It waits while the call is busy with the frames before, and fails if it has given up.
            let _ = call.send(frame);
        }
        let mut calls = self.calls();
        calls.is_over = true;
        // Those that wait see that their channel ended.
        calls.waiting.clear();
        drop(calls);
        self.end.end();
    }
}
