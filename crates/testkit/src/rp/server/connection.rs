//! The connections of a server: a thread for each, and what it answers.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, PoisonError};

use super::super::bucket::Records;
use super::super::error::TreeError;
use super::super::link::{PATIENCE, receive, send};
use super::super::wire::{Answer, BATCH_BYTES, Request};
use super::state::{Phase, Shared};
use super::{give, take};

/// Splits that one request may wait for.
const SPLITS_MAX: usize = 4;

/// Starts the thread that accepts connections.
pub fn accept(shared: Arc<Shared>, listener: TcpListener) -> io::Result<()> {
    let named = std::thread::Builder::new().name("rp listener".to_owned());
    named.spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            if shared.is_stopped() {
                return;
            }
            let Ok(stream) = stream else { continue };
            let shared = shared.clone();
            let named = std::thread::Builder::new().name("rp connection".to_owned());
            // If there is no thread, the connection is closed.
            let _ = named.spawn(move || attend(&shared, number as u64, stream));
        }
    })?;
    Ok(())
}

/// Answers until the connection ends.
fn attend(shared: &Arc<Shared>, number: u64, mut stream: TcpStream) {
    let Ok(known) = stream.try_clone() else { return };
    let connections = || shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
    connections().insert(number, known);
    if !shared.is_stopped() {
        // How it ended does not matter: what it left is undone.
        let _ = exchange(shared, number, &mut stream);
    }
    take::undo(shared, number);
    connections().remove(&number);
}

fn exchange(shared: &Arc<Shared>, number: u64, stream: &mut TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    while let Some(message) = receive(stream)? {
        let answer = match Request::decode(&message) {
            Ok(request) => answer(shared, number, request),
            Err(error) => Answer::Failed(error.to_string()),
        };
        // A server that gives must not be silent for long: its range is blocked here.
        let is_taking = take::is_taking(&shared.state(), number);
        stream.set_read_timeout(is_taking.then_some(PATIENCE))?;
        send(stream, &answer.encode())?;
    }
    Ok(())
}

fn answer(shared: &Arc<Shared>, number: u64, request: Request) -> Answer {
    match request {
        Request::Get(key) => either(get(shared, &key)),
        Request::Put(records) => put(shared, &records),
        Request::Remove(key) => either(remove(shared, &key)),
        Request::Scan(from) => either(scan(shared, &from)),
        Request::Status => Answer::Status(shared.status()),
        Request::Introduce(address) => {
            shared.meet(address);
            Answer::Done(1)
        }
        Request::SplitBegin(split, range) => take::begin(shared, number, split, range),
        Request::SplitRecords(records) => take::records(shared, number, &records),
        Request::SplitCommit(split) => take::commit(shared, number, split),
        Request::SplitAsk(split) => take::ask(shared, split),
    }
}

fn get(shared: &Shared, key: &[u8]) -> Result<Answer, Answer> {
    let state = shared.admit(key)?;
    state.bucket.get(key).map(Answer::Value).map_err(failed)
}

fn remove(shared: &Shared, key: &[u8]) -> Result<Answer, Answer> {
    let mut state = shared.admit(key)?;
    let existed = state.bucket.remove(key).map_err(failed)?;
    Ok(Answer::Done(u32::from(existed)))
}

/// What is being given away may already change at its new place: the scan ends before it.
fn scan(shared: &Shared, from: &[u8]) -> Result<Answer, Answer> {
    let state = shared.admit(from)?;
    let (mut records, mut next) = state.bucket.scan(from, BATCH_BYTES).map_err(failed)?;
    if let Some(given) = state.phase.given_from()
        && next.as_ref().is_none_or(|next| next.as_slice() > given)
    {
        records.retain(|(key, _)| key.as_slice() < given);
        next = Some(given.to_vec());
    }
    Ok(Answer::Records(records, next))
}

/// Puts records until one is not this server's, or has to wait too long.
fn put(shared: &Arc<Shared>, records: &Records) -> Answer {
    let mut done = 0;
    for (key, value) in records {
        match put_one(shared, key, value) {
            Ok(()) => done += 1,
            Err(answer) if done == 0 => return answer,
            Err(_) => break,
        }
    }
    Answer::Done(done)
}

fn put_one(shared: &Arc<Shared>, key: &[u8], value: &[u8]) -> Result<(), Answer> {
    for _ in 0..SPLITS_MAX {
        let mut state = shared.admit(key)?;
        match state.bucket.put(key, value) {
            Ok(()) => return Ok(()),
            Err(TreeError::Full) if state.phase == Phase::Idle => give::split(shared, state)?,
            Err(TreeError::Full) if matches!(state.phase, Phase::InDoubt { .. }) => break,
            // Another thread splits.
            Err(TreeError::Full) => drop(shared.wait(state, PATIENCE)),
            Err(error) => return Err(failed(error)),
        }
    }
    Err(Answer::Busy(format!("bucket {} is full and is being split", shared.number)))
}

fn failed(error: TreeError) -> Answer {
    Answer::Failed(error.to_string())
}

fn either(answer: Result<Answer, Answer>) -> Answer {
    answer.unwrap_or_else(|answer| answer)
}
