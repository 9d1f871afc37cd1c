//! A client of a file: it finds the server of each key by a table of ranges that may be old.
//!
//! A server that does not have the key says what it knows, and the client corrects its table and
//! asks again. If the table leads nowhere, because a server is gone, a bucket was loaded elsewhere
//! or nothing is known yet, the client asks all servers that it knows for their ranges.

mod table;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use strongroom_base::Stopwatch;
use strongroom_bucket::KeyRange;

use self::table::Table;
use super::bucket::Records;
use super::error::RpError;
use super::link::{CLIENT_PATIENCE, Link};
use super::tree::check_record;
use super::wire::{Answer, BATCH_BYTES, Image, Request, Status};

/// How long it takes until a busy server is asked again.
const PAUSE: Duration = Duration::from_millis(20);
/// Servers that a key is looked for at, after which all are asked.
const HOPS_MAX: usize = 16;
/// How often all are asked for one key.
const LOOKS_MAX: usize = 4;
/// Servers that a client remembers at most.
const SERVERS_MAX: usize = 256;

/// A client of a file. It is used by one thread; others make their own.
#[derive(Debug)]
pub struct Client {
    /// Where ranges may be asked for.
    servers: Vec<SocketAddr>,
    table: Table,
    links: BTreeMap<SocketAddr, Link>,
    patience: Duration,
    corrections: u64,
}

impl Client {
    /// A client that knows some servers of the file and waits for busy ones for at most this long.
    pub fn new(servers: Vec<SocketAddr>, patience: Duration) -> Self {
        let (table, links) = (Table::default(), BTreeMap::new());
        Self { servers, table, links, patience, corrections: 0 }
    }

    /// The value of a key.
    ///
    /// # Errors
    ///
    /// No server that answers has the key's range, or the one that has it is busy for too long, or
    /// cannot do it. So for all that a client does.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, RpError> {
        match self.ask(key, &Request::Get(key.to_vec()))? {
            (_, Answer::Value(value)) => Ok(value),
            (address, _) => Err(unexpected(address)),
        }
    }

    /// Puts a record, in place of the one with its key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RpError> {
        self.put_many(vec![(key.to_vec(), value.to_vec())])
    }

    /// Puts records. They are sorted, and sent in as few messages as possible.
    pub fn put_many(&mut self, mut records: Records) -> Result<(), RpError> {
        for (key, value) in &records {
            check_record(key, value)?;
        }
        records.sort_by(|one, other| one.0.cmp(&other.0));
        let mut left = records.as_slice();
        while let Some((key, _)) = left.first() {
            let part = batch(left, self.table.find(key));
            match self.ask(key, &Request::Put(part.to_vec()))? {
                (_, Answer::Done(count)) if count > 0 && count as usize <= part.len() => {
                    left = &left[count as usize..];
                }
                (address, _) => return Err(unexpected(address)),
            }
        }
        Ok(())
    }

    /// Removes a record; returns whether it existed.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, RpError> {
        match self.ask(key, &Request::Remove(key.to_vec()))? {
            (_, Answer::Done(count)) => Ok(count > 0),
            (address, _) => Err(unexpected(address)),
        }
    }

    /// Gives all records of a range to `take`, in order, from one server after the other.
    pub fn scan(
        &mut self,
        range: &KeyRange,
        take: &mut dyn FnMut(Vec<u8>, Vec<u8>),
    ) -> Result<(), RpError> {
        let mut from = range.low.clone();
        loop {
            let (address, answer) = self.ask(&from, &Request::Scan(from.clone()))?;
            let Answer::Records(records, next) = answer else { return Err(unexpected(address)) };
            records
                .into_iter()
                .filter(|(key, _)| range.contains(key))
                .for_each(|(key, value)| take(key, value));
            match next {
                Some(next) if next <= from => return Err(unexpected(address)),
                Some(next) if range.contains(&next) => from = next,
                _ => return Ok(()),
            }
        }
    }

    /// What each server that answers is, and those that do not answer. Servers that they know are
    /// asked as well.
    pub fn statuses(&mut self) -> (Vec<(SocketAddr, Status)>, Vec<SocketAddr>) {
        let (mut statuses, mut silent) = (Vec::new(), Vec::new());
        let mut asked = 0;
        // More may come to be known meanwhile.
        while let Some(&address) = self.servers.get(asked) {
            asked += 1;
            match self.exchange(address, &Request::Status) {
                Ok(Answer::Status(status)) => {
                    self.meet(&status.given);
                    statuses.push((address, status));
                }
                Ok(_) | Err(_) => silent.push(address),
            }
        }
        (statuses, silent)
    }

    /// How often a server corrected the table.
    pub fn corrections(&self) -> u64 {
        self.corrections
    }

    /// Where the client believes the ranges to be.
    pub fn images(&self) -> &[Image] {
        self.table.images()
    }

    /// Sends a request to the server that has a key, wherever that is.
    fn ask(&mut self, key: &[u8], request: &Request) -> Result<(SocketAddr, Answer), RpError> {
        let waited = Stopwatch::start();
        let (mut hops, mut looks) = (0, 0);
        loop {
            let image = match self.table.find(key) {
                Some(image) if hops < HOPS_MAX => image.clone(),
                // Servers that contradict themselves.
                _ if looks == LOOKS_MAX => {
                    return Err(RpError::NoServer { key: key.to_vec(), silent: Vec::new() });
                }
                _ => {
                    (hops, looks) = (0, looks + 1);
                    self.look(key)?
                }
            };
            hops += 1;
            let address = image.address;
            match self.exchange(address, request) {
                Ok(Answer::Moved(images)) => self.learn(images, &image),
                Ok(Answer::Busy(reason)) if waited.elapsed() >= self.patience => {
                    return Err(RpError::Busy { address, reason });
                }
                Ok(Answer::Busy(_)) => {
                    (hops, looks) = (0, 0);
                    std::thread::sleep(PAUSE);
                }
                Ok(Answer::Failed(reason)) => return Err(RpError::Refused { address, reason }),
                // It is not there any more: all are asked, without it if it does not answer.
                Ok(Answer::Empty | Answer::Evicted) | Err(RpError::Unreachable { .. }) => {
                    self.table.forget(address);
                }
                Ok(answer) => return Ok((address, answer)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Corrects the table.
    fn learn(&mut self, images: Vec<Image>, asked: &Image) {
        self.corrections += 1;
        // The server does not have what the table said, so any version is better.
        self.table.remove(asked);
        self.meet(&images);
        images.into_iter().for_each(|image| self.table.learn(image));
    }

    /// Remembers servers.
    fn meet(&mut self, images: &[Image]) {
        for Image { address, .. } in images {
            if self.servers.len() < SERVERS_MAX && !self.servers.contains(address) {
                self.servers.push(*address);
            }
        }
    }

    /// Asks all servers for their ranges; returns the one of the key.
    fn look(&mut self, key: &[u8]) -> Result<Image, RpError> {
        let (statuses, silent) = self.statuses();
        self.table = Table::default();
        for (address, status) in statuses {
            if let Some(range) = status.range {
                self.table.learn(Image { range, split_version: status.split_version, address });
            }
        }
        let found = self.table.find(key).cloned();
        found.ok_or_else(|| RpError::NoServer { key: key.to_vec(), silent })
    }

    /// Sends a request over the connection that is there. If there is none, or its server was
    /// started again since, it is made.
    fn exchange(&mut self, address: SocketAddr, request: &Request) -> Result<Answer, RpError> {
        if let Some(mut link) = self.links.remove(&address)
            && let Ok(answer) = link.ask(request)
        {
            self.links.insert(address, link);
            return Ok(answer);
        }
        let mut link = Link::connect(address, CLIENT_PATIENCE)?;
        let answer = link.ask(request)?;
        self.links.insert(address, link);
        Ok(answer)
    }
}

/// The first records that are of one server and fit into a message.
fn batch<'r>(records: &'r [(Vec<u8>, Vec<u8>)], image: Option<&Image>) -> &'r [(Vec<u8>, Vec<u8>)] {
    let mut bytes = 0;
    let count = records.iter().take_while(|(key, value)| {
        bytes += key.len() + value.len() + 8;
        bytes <= BATCH_BYTES && image.is_none_or(|image| image.range.contains(key))
    });
    &records[..count.count().max(1)]
}

fn unexpected(address: SocketAddr) -> RpError {
    RpError::Protocol { address, what: "its answer is not one to the question" }
}
