//! The fields of messages, as bytes.

use std::net::SocketAddr;

use strongroom_bucket::KeyRange;

use super::super::bucket::Records;
use super::{SplitId, WireError};

/// A message that is being written.
pub struct Writer(Vec<u8>);

/// A message that is being read.
pub struct Reader<'a>(&'a [u8]);

impl Writer {
    /// Begins a message of a kind.
    pub fn new(kind: u8) -> Self {
        Self(vec![kind])
    }

    /// The message.
    pub fn end(self) -> Vec<u8> {
        self.0
    }

    pub fn u8(mut self, number: u8) -> Self {
        self.0.push(number);
        self
    }

    pub fn u32(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    pub fn u64(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    pub fn bytes(self, bytes: &[u8]) -> Self {
        let mut writer = self.u32(bytes.len() as u32);
        writer.0.extend_from_slice(bytes);
        writer
    }

    pub fn option(self, bytes: Option<&[u8]>) -> Self {
        match bytes {
            Some(bytes) => self.u8(1).bytes(bytes),
            None => self.u8(0),
        }
    }

    pub fn records(self, records: &Records) -> Self {
        let writer = self.u32(records.len() as u32);
        records.iter().fold(writer, |writer, (key, value)| writer.bytes(key).bytes(value))
    }

    pub fn range(self, range: &KeyRange) -> Self {
        self.bytes(&range.low).option(range.high.as_deref())
    }

    pub fn address(self, address: SocketAddr) -> Self {
        self.bytes(address.to_string().as_bytes())
    }

    pub fn split(self, split: SplitId) -> Self {
        self.u32(split.bucket).u64(split.version)
    }
}

impl<'a> Reader<'a> {
    /// Begins at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The message, if it has no more bytes.
    pub fn end<T>(self, message: T) -> Result<T, WireError> {
        if self.0.is_empty() { Ok(message) } else { Err(WireError("bytes behind a message")) }
    }

    pub fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.take::<1>()?[0])
    }

    pub fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    pub fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    pub fn flag(&mut self) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError("a flag that is neither 0 nor 1")),
        }
    }

    pub fn bytes(&mut self) -> Result<Vec<u8>, WireError> {
        let length = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(TOO_SHORT)?;
        self.0 = rest;
        Ok(bytes.to_vec())
    }

    pub fn option(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        if self.flag()? { self.bytes().map(Some) } else { Ok(None) }
    }

    pub fn text(&mut self) -> Result<String, WireError> {
        String::from_utf8(self.bytes()?).map_err(|_| WireError("a text that is not UTF-8"))
    }

    /// Each record takes bytes, so a lie about their count ends with the message.
    pub fn records(&mut self) -> Result<Records, WireError> {
        (0..self.u32()?).map(|_| Ok((self.bytes()?, self.bytes()?))).collect()
    }

    pub fn range(&mut self) -> Result<KeyRange, WireError> {
        let range = KeyRange { low: self.bytes()?, high: self.option()? };
        if range.is_valid() { Ok(range) } else { Err(WireError("a range without keys")) }
    }

    pub fn address(&mut self) -> Result<SocketAddr, WireError> {
        self.text()?.parse().map_err(|_| WireError("no address of a server"))
    }

    pub fn split(&mut self) -> Result<SplitId, WireError> {
        Ok(SplitId { bucket: self.u32()?, version: self.u64()? })
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(TOO_SHORT)?;
        self.0 = rest;
        Ok(*bytes)
    }
}

const TOO_SHORT: WireError = WireError("a message that ends too early");
