//! What a server says of its blocks, over a range of any length.

use std::collections::VecDeque;
use std::ops::Range;

use super::reply::{Descriptor, Wanted};
use super::{Client, RANGE_BYTES_MAX, request};
use crate::error::{Cause, NbdError};
use crate::wire::{ProtocolError, command};

/// A server that says little at a time is believed for this many answers.
const ANSWERS_MAX: u64 = 1024;
/// After that, its answers must cover this many bytes on average.
const ANSWER_BYTES: u64 = 4096;

/// A part of a range that has the same flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusRun {
    /// Where it is on the disk. Never empty.
    pub range: Range<u64>,
    /// The flags of the context: in `base:allocation` [`STATUS_HOLE`](crate::STATUS_HOLE) and
    /// [`STATUS_ZERO`](crate::STATUS_ZERO), in a dirty bitmap of QEMU 1 for what is dirty.
    pub flags: u32,
}

/// What a server says of a range, from its start to its end without gaps. Neighbours differ. It ends
/// after an error.
pub struct BlockStatus<'a> {
    client: &'a Client,
    context: u32,
    /// What was not asked for yet.
    rest: Range<u64>,
    /// What the last answer said, from `position` on.
    said: VecDeque<Descriptor>,
    position: u64,
    /// The run that may go on.
    run: Option<StatusRun>,
    answers: u64,
    covered: u64,
}

impl<'a> BlockStatus<'a> {
    pub(super) fn new(client: &'a Client, context: u32, range: Range<u64>) -> Self {
        Self {
            client,
            context,
            position: range.start,
            rest: range,
            said: VecDeque::new(),
            run: None,
            answers: 0,
            covered: 0,
        }
    }

    /// Asks what follows.
    fn ask(&mut self) -> Result<(), NbdError> {
        let client = self.client;
        let blocks = client.facts.outward(&self.rest);
        let length = (blocks.end - blocks.start).min(RANGE_BYTES_MAX);
        let asked = client.asked(command::BLOCK_STATUS, blocks.start, length);
        let range = blocks.start..blocks.start + length;
        let contexts = client.facts.contexts.iter().map(|&(_, id)| id);
        let wanted = Wanted::status(range, contexts);
        let request = request(command::BLOCK_STATUS, blocks.start, length as u32);
        let ticket = client.begin(asked, request, &[], wanted)?;
        let reply = ticket.wait().map_err(|cause| client.failed(asked, cause))?;
        let mut position = blocks.start;
        for (bytes, flags) in reply.into_status(self.context) {
            // An answer may begin before the range, at a block, and go on behind it.
            let end = (position + bytes).min(self.rest.end);
            if end > self.rest.start {
                self.said.push_back((end - self.rest.start, flags));
                self.covered += end - self.rest.start;
                self.rest.start = end;
            }
            position += bytes;
        }
        self.answers += 1;
        let allowed = ANSWERS_MAX + self.covered / ANSWER_BYTES;
        if self.said.is_empty() || self.answers > allowed {
            let lie = ProtocolError("answers about blocks come to no end");
            return Err(client.failed(asked, Cause::Protocol(lie)));
        }
        Ok(())
    }
}

impl Iterator for BlockStatus<'_> {
    type Item = Result<StatusRun, NbdError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((bytes, flags)) = self.said.pop_front() {
                let range = self.position..self.position + bytes;
                self.position = range.end;
                match &mut self.run {
                    Some(run) if run.flags == flags => run.range.end = range.end,
                    run => {
                        if let Some(run) = run.replace(StatusRun { range, flags }) {
                            return Some(Ok(run));
                        }
                    }
                }
            } else if self.rest.is_empty() {
                return self.run.take().map(Ok);
            } else if let Err(error) = self.ask() {
                self.rest = 0..0;
                self.said.clear();
                self.run = None;
                return Some(Err(error));
            }
        }
    }
}
