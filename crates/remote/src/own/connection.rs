//! One connection to a room that let us in.

use std::io::{self, Read};
use std::sync::Arc;

use strongroom_backend::Promises;

use super::PATIENCE;
use crate::calls::{Answer, Call, Calls, Link};
use crate::failure::Failure;
use crate::rate::Line;
use crate::wire::{
    DONE, FAILED, FRAME_HEAD_BYTES, Frame, PART, PART_BYTES_MAX, Request, greeting,
    receive_greeting, unpack_failure, unpack_promises,
};

/// A connection to a room that let us in.
pub(crate) struct Connection {
    calls: Calls<Frame>,
    line: Arc<Line>,
    pub(crate) promises: Promises,
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
    /// Greets, and asks to be let in.
    pub(crate) fn enter(
        link: Link,
        entrance: &Request,
        line: Arc<Line>,
        in_flight: usize,
    ) -> Result<Self, Failure> {
        let calls = Calls::begin(link, line.clone(), PATIENCE, receive_greeting)?;
        let mut connection = Self { calls, line, promises: Promises::LOCAL };
        connection.calls.send(&greeting())?;
        let welcome = connection.call(entrance, None, 1 << 10)?;
        connection.promises = unpack_promises(&welcome, in_flight).map_err(Failure::lost)?;
        Ok(connection)
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
