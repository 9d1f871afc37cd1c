//! One client that has chosen an export, until it leaves.
//!
//! The connection's thread receives requests and gives them to the pool. Answers go through a thread
//! that only sends, in the order in which they are ready, so that a client that does not take its
//! answers holds up no thread of the pool. A request holds a lease on memory from its arrival until
//! its answer is sent.

use std::io;
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Queue, Sender, channel};
use std::time::Duration;

use super::ServerOptions;
use super::carry_out::{carry_out, failure, memory_bytes};
use super::haggle::{Agreed, haggle};
use super::pool::Pool;
use crate::allowance::Allowance;
use crate::export::Exports;
use crate::stream::{Deadline, Filled, Receiver, Stream};
use crate::wire::{Errno, ProtocolError, REQUEST_BYTES_MAX, REQUEST_HEAD_BYTES, Request, command};

/// Serves a client from its greeting to its end.
///
/// # Errors
///
/// How the connection ended, if not as the protocol wants it.
pub fn attend(
    stream: Stream,
    number: u64,
    exports: &Arc<dyn Exports>,
    options: &ServerOptions,
    pool: &Arc<Pool>,
    memory: &Arc<Allowance>,
) -> io::Result<()> {
    let shortest = options.stall_limit.min(options.haggle_limit);
    stream.set_tick((shortest / 4).min(Duration::from_secs(1)))?;
    let mut receiver = Receiver::new(stream.try_clone()?);
    let deadline = Deadline::within(options.haggle_limit);
    let Some(agreed) = haggle(&mut receiver, &stream, &**exports, deadline)? else {
        return Ok(());
    };
    let visit = Visit {
        number,
        agreed,
        pool: pool.clone(),
        stall_limit: options.stall_limit,
        flight: Arc::new(Allowance::new(options.requests_max, options.connection_bytes_max)),
        memory: memory.clone(),
        is_gone: Arc::new(AtomicBool::new(false)),
    };
    let (answers, queue) = channel();
    std::thread::scope(|scope| {
        let visit = &visit;
        scope.spawn(move || visit.send(queue, &stream));
        let outcome = visit.receive(&mut receiver, &answers);
        // What was asked for is answered to the end.
        visit.flight.wait_until_empty();
        drop(answers);
        outcome
    })
}

/// A client that has chosen its export.
struct Visit {
    number: u64,
    agreed: Agreed,
    pool: Arc<Pool>,
    stall_limit: Duration,
    /// What this connection has in flight.
    flight: Arc<Allowance>,
    /// What all connections hold in memory.
    memory: Arc<Allowance>,
    /// An answer did not reach the client.
    is_gone: Arc<AtomicBool>,
}

/// A part of what may be in flight, given back when it is dropped.
struct Lease {
    flight: Arc<Allowance>,
    memory: Arc<Allowance>,
    bytes: usize,
}

/// An answer on its way.
struct Answer {
    bytes: Vec<u8>,
    _lease: Lease,
}

impl Visit {
    /// Receives requests until the client leaves.
    fn receive(&self, receiver: &mut Receiver, answers: &Sender<Answer>) -> io::Result<()> {
        loop {
            let mut head = [0; REQUEST_HEAD_BYTES];
            if self.fill_head(receiver, &mut head)? == Filled::Ended {
                return Ok(());
            }
            let request = Request::unpack(&head)?;
            if request.command == command::DISC {
                return Ok(());
            }
            let carries_data = request.command == command::WRITE;
            if carries_data && request.length > REQUEST_BYTES_MAX {
                return Err(ProtocolError("a request to write is too large").into());
            }
            let lease = self.lease(memory_bytes(&request))?;
            let mut payload = vec![0; if carries_data { request.length as usize } else { 0 }];
            receiver.fill_until(&mut payload, Deadline::within(self.stall_limit))?;
            self.give_to_pool(request, payload, lease, answers.clone());
        }
    }

    /// A client may be silent between requests for as long as it likes, but not within one.
    fn fill_head(
        &self,
        receiver: &mut Receiver,
        head: &mut [u8; REQUEST_HEAD_BYTES],
    ) -> io::Result<Filled> {
        let mut begun: Option<Deadline> = None;
        receiver.fill(head, &mut |received| {
            let limit = self.stall_limit;
            let mut is_late = || begun.get_or_insert_with(|| Deadline::within(limit)).has_passed();
            !self.is_gone() && (received == 0 || !is_late())
        })
    }

    fn lease(&self, bytes: usize) -> io::Result<Lease> {
        let gone = || self.is_gone();
        let ended = || io::Error::from(io::ErrorKind::BrokenPipe);
        if !self.flight.take(bytes, &gone) {
            return Err(ended());
        }
        if !self.memory.take(bytes, &gone) {
            self.flight.give(bytes);
            return Err(ended());
        }
        Ok(Lease { flight: self.flight.clone(), memory: self.memory.clone(), bytes })
    }

    fn give_to_pool(
        &self,
        request: Request,
        payload: Vec<u8>,
        lease: Lease,
        answers: Sender<Answer>,
    ) {
        let agreed = self.agreed.clone();
        let is_gone = self.is_gone.clone();
        self.pool.submit(
            self.number,
            Box::new(move || {
                // No client waits for what would be read. What was written still has to be.
                if is_gone.load(Ordering::Relaxed) && request.command == command::READ {
                    return;
                }
                let carried = || carry_out(&agreed, &request, &payload);
                let bytes = catch_unwind(AssertUnwindSafe(carried)).unwrap_or_else(|_| {
                    failure(&agreed, &request, Errno::EIO, "the server made a mistake")
                });
                // If the thread that sends is gone, so is the client.
                let _ = answers.send(Answer { bytes, _lease: lease });
            }),
        );
    }

    /// Sends answers until there are no more.
    fn send(&self, queue: Queue<Answer>, stream: &Stream) {
        for answer in queue {
            if !self.is_gone() && stream.send(&answer.bytes, self.stall_limit).is_err() {
                self.is_gone.store(true, Ordering::Relaxed);
                stream.shutdown(Shutdown::Both);
            }
        }
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.flight.give(self.bytes);
        self.memory.give(self.bytes);
    }
}
