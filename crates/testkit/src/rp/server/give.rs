//! A split, at the server that gives the upper half of its bucket.
//!
//! The other server's commit decides. Until it has answered, this one keeps all records, and
//! changes none of those that it gives. If the answer is lost, the split is *in doubt*: the lower
//! half is served, the upper half is not, and the other server is asked until it says how the split
//! ended. So no key is ever with two servers, or with none.

use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use strongroom_bucket::KeyRange;

use super::super::error::RpError;
use super::super::link::{Link, PATIENCE};
use super::super::wire::{Answer, BATCH_BYTES, Image, Request, SplitId};
use super::state::{Pause, Phase, Shared, State};

/// How long it takes until a server is asked again how a split ended.
const PAUSE: Duration = Duration::from_millis(100);

/// What is given away.
#[derive(Debug, Clone)]
struct Gift {
    split: SplitId,
    range: KeyRange,
}

/// How a split ended with one server.
enum Ending {
    Taken,
    /// With what this server answered, if it did.
    NotTaken(Option<Answer>),
    InDoubt,
}

/// Gives the upper half of a full bucket to a spare.
///
/// # Errors
///
/// What the client is answered: there is no spare, or not now.
pub fn split(shared: &Arc<Shared>, mut state: MutexGuard<'_, State>) -> Result<(), Answer> {
    if state.pause != Pause::Running {
        return Err(Answer::Busy(format!("bucket {} is full and being quiesced", shared.number)));
    }
    let failed = |error: &dyn std::error::Error| Answer::Failed(error.to_string());
    let middle = state.bucket.middle().map_err(|error| failed(&error))?;
    let (Some(from), Some(range)) = (middle, state.bucket.range()) else {
        return Err(Answer::Failed(format!("bucket {} has no room for a record", shared.number)));
    };
    let version = state.bucket.split_version().saturating_add(1);
    let gift = Gift {
        split: SplitId { bucket: shared.number, version },
        range: KeyRange { low: from.clone(), high: range.high.clone() },
    };
    let peers = state.peers.clone();
    state.phase = Phase::Giving { from: from.clone() };
    drop(state);

    let mut is_busy = false;
    for peer in peers.into_iter().filter(|peer| *peer != shared.address) {
        match give(shared, &gift, peer) {
            Ending::Taken => return settle(shared, gift, Some(peer)),
            Ending::NotTaken(answer) => is_busy |= matches!(answer, Some(Answer::Busy(_))),
            Ending::InDoubt => {
                shared.state().phase = Phase::InDoubt { from };
                shared.changed.notify_all();
                doubt(shared, gift, peer);
                let reason = format!("bucket {}: {peer} does not answer", shared.number);
                return Err(Answer::Busy(reason));
            }
        }
    }
    settle(shared, gift, None)?;
    let reason = format!("bucket {} is full, and no spare takes a part of it", shared.number);
    Err(if is_busy {
        Answer::Busy(reason)
    } else {
        Answer::Failed(format!("{reason}: start a server with --spare"))
    })
}

/// Offers the range to a server, and sends it.
fn give(shared: &Shared, gift: &Gift, peer: SocketAddr) -> Ending {
    let mut link = match Link::connect(peer, PATIENCE) {
        Ok(link) => link,
        Err(_) => return Ending::NotTaken(None),
    };
    match send_all(shared, gift, &mut link) {
        Ok(None) => {}
        Ok(refusal) => return Ending::NotTaken(refusal),
        // Without a commit, the other server undoes what it took.
        Err(_) => return Ending::NotTaken(None),
    }
    match link.ask(&Request::SplitCommit(gift.split)) {
        Ok(Answer::Taken) => Ending::Taken,
        Ok(answer) => Ending::NotTaken(Some(answer)),
        Err(_) => Ending::InDoubt,
    }
}

/// Sends the range and its records; returns what else than a yes the other server answers.
fn send_all(shared: &Shared, gift: &Gift, link: &mut Link) -> Result<Option<Answer>, RpError> {
    let answer = link.ask(&Request::SplitBegin(gift.split, gift.range.clone()))?;
    if answer != Answer::Done(0) {
        return Ok(Some(answer));
    }
    let mut from = gift.range.low.clone();
    loop {
        let (records, next) = shared.state().bucket.scan(&from, BATCH_BYTES)?;
        let count = records.len() as u32;
        let answer = link.ask(&Request::SplitRecords(records))?;
        if answer != Answer::Done(count) {
            return Ok(Some(answer));
        }
        match next {
            Some(next) if Some(&next) != gift.range.high.as_ref() => from = next,
            _ => return Ok(None),
        }
    }
}

/// Ends a split: removes what another server has now, or keeps it.
fn settle(shared: &Shared, gift: Gift, taken_by: Option<SocketAddr>) -> Result<(), Answer> {
    let mut state = shared.state();
    state.phase = Phase::Idle;
    let mut settled = Ok(());
    if let Some(address) = taken_by {
        let Gift { split: SplitId { version, .. }, range } = gift;
        settled = state.bucket.truncate(range.low.clone(), version);
        state.given.retain(|image| !image.range.meets(&range));
        state.given.push(Image { range, split_version: version, address });
        state.news.range = true;
    }
    drop(state);
    shared.changed.notify_all();
    settled.map_err(|error| Answer::Failed(error.to_string()))
}

/// Asks the other server on a thread of its own until it says how the split ended.
fn doubt(shared: &Arc<Shared>, gift: Gift, peer: SocketAddr) {
    let shared = shared.clone();
    let named = std::thread::Builder::new().name("rp split in doubt".to_owned());
    // If there is no thread, the doubt remains, and the bucket is not quiesced.
    let _ = named.spawn(move || {
        while !shared.is_stopped() {
            let answer = Link::connect(peer, PATIENCE)
                .and_then(|mut link| link.ask(&Request::SplitAsk(gift.split)));
            let taken_by = match answer {
                Ok(Answer::Taken) => Some(peer),
                Ok(Answer::NotTaken) => None,
                _ => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
            };
            // If the memory is damaged, each request says so.
            let _ = settle(&shared, gift, taken_by);
            return;
        }
    });
}
