//! One connection to a room that let us in.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use strongroom_backend::Promises;

use super::PATIENCE;
use crate::calls::{Answer, Call, Calls, Link};
use crate::failure::Failure;
use crate::rate::Line;
use crate::wire::{
    DONE, FAILED, FRAME_HEAD_BYTES, Frame, PART, PART_BYTES_MAX, Request, greeting,
    receive_greeting, unpack_failure, unpack_promises,
};

/// A connection to a room that lets us in, or will say why it does not.
pub(crate) struct Connection {
    calls: Calls<Frame>,
    line: Arc<Line>,
    in_flight: usize,
    /// The call that asked to be let in, until it is answered.
    // A plain mutex: held while the answer is waited for, so that all callers wait for the one.
    entering: Mutex<Option<Call<Frame>>>,
    promises: OnceLock<Promises>,
}

impl Answer for Frame {
    fn receive(source: &mut dyn Read) -> io::Result<Option<(u32, Self)>> {
        Ok(Self::receive(source)?.map(|frame| (frame.request, frame)))
    }

    fn bytes(&self) -> usize {
        self.body.len()
    }
}

impl Connection {
    /// Greets, and asks to be let in. What is asked next follows at once: far away, waiting for this
    /// answer alone would take a round trip.
    pub(crate) fn enter(
        link: Link,
        entrance: &Request,
        line: Arc<Line>,
        in_flight: usize,
    ) -> Result<Self, Failure> {
        let calls = Calls::begin(link, line.clone(), PATIENCE, receive_greeting)?;
        let call = calls.call()?;
        let (kind, body) = entrance.pack();
        let mut bytes = greeting().to_vec();
        Frame::pack(call.number, kind, &body, &mut bytes);
        call.send(&bytes)?;
        let (entering, promises) = (Mutex::new(Some(call)), OnceLock::new());
        Ok(Self { calls, line, in_flight, entering, promises })
    }

    /// Waits until we are let in.
    fn welcome(&self) -> Result<(), Failure> {
        if self.promises.get().is_some() {
            return Ok(());
        }
        let mut entering = self.entering.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(call) = entering.take() else {
            // Another caller has waited for the answer.
            let is_in = self.promises.get().is_some();
            return is_in.then_some(()).ok_or_else(|| Failure::lost("we were not let in"));
        };
        let welcome = conclude(&call, call.next()?)?;
        let promises = unpack_promises(&welcome, self.in_flight).map_err(Failure::lost)?;
        // It is set once: only one caller has the call.
        let _ = self.promises.set(promises);
        Ok(())
    }

    /// What the other side promises, once it has answered anything.
    pub(crate) fn promises(&self) -> Option<Promises> {
        self.promises.get().copied()
    }

    /// Whether calls are worth making.
    pub(crate) fn is_alive(&self) -> bool {
        self.calls.is_alive()
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
        let call = self.calls.call()?;
        let (kind, body) = request.pack();
        send(&call, kind, &body)?;
        self.welcome()?;
        for part in upload.unwrap_or_default().chunks(PART_BYTES_MAX) {
            // An answer before the end is a refusal, and the rest is not wanted.
            if let Some(frame) = call.early() {
                return conclude(&call, frame);
            }
            self.line.send(part.len());
            send(&call, PART, part)?;
        }
        loop {
            let frame = call.next()?;
            if frame.kind != PART {
                return conclude(&call, frame);
            }
            take(frame.body).map_err(|_| call.broken("an answer that was not asked for".into()))?;
        }
    }
}

fn send(call: &Call<Frame>, kind: u8, body: &[u8]) -> Result<(), Failure> {
    let mut bytes = Vec::with_capacity(body.len() + FRAME_HEAD_BYTES);
    Frame::pack(call.number, kind, body, &mut bytes);
    call.send(&bytes)
}

/// What the last frame of an answer says.
fn conclude(call: &Call<Frame>, frame: Frame) -> Result<Vec<u8>, Failure> {
    match frame.kind {
        DONE => Ok(frame.body),
        FAILED => Err(unpack_failure(&frame.body).unwrap_or_else(Failure::lost)),
        _ => Err(call.broken("an answer of an unknown kind".to_owned())),
    }
}
