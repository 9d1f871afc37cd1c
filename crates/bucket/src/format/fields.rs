//! A message as its fields: keys and values, in the order of the keys.

use std::collections::BTreeMap;

use minicbor::data::Type;
use minicbor::{Decoder, Encoder};

use super::{MessageError, key};
use crate::name::{AREAS_MAX, NameError};

/// A value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'b> {
    Uint(u64),
    Flag(bool),
    Text(&'b str),
    Bytes(&'b [u8]),
    Texts(Vec<&'b str>),
    Uints(Vec<u64>),
}

/// The fields of a message, without its kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Fields<'b> {
    pub kind: u64,
    values: BTreeMap<u64, Value<'b>>,
}

/// To make a message. What has its default is left out.
impl<'b> Fields<'b> {
    pub fn of(kind: u64) -> Self {
        Self { kind, values: BTreeMap::new() }
    }

    pub fn uint(self, key: u64, number: impl Into<u64>) -> Self {
        self.with(key, Value::Uint(number.into()))
    }

    pub fn optional(self, key: u64, number: Option<u64>) -> Self {
        match number {
            Some(number) => self.uint(key, number),
            None => self,
        }
    }

    pub fn flag(self, key: u64, is: bool) -> Self {
        if is { self.with(key, Value::Flag(true)) } else { self }
    }

    pub fn text(self, key: u64, text: &'b str) -> Self {
        self.with(key, Value::Text(text))
    }

    pub fn bytes(self, key: u64, bytes: &'b [u8]) -> Self {
        self.with(key, Value::Bytes(bytes))
    }

    pub fn texts(self, key: u64, texts: impl Iterator<Item = &'b str>) -> Self {
        let texts: Vec<&str> = texts.collect();
        if texts.is_empty() { self } else { self.with(key, Value::Texts(texts)) }
    }

    pub fn uints(self, key: u64, numbers: Vec<u64>) -> Self {
        if numbers.is_empty() { self } else { self.with(key, Value::Uints(numbers)) }
    }

    fn with(mut self, key: u64, value: Value<'b>) -> Self {
        self.values.insert(key, value);
        self
    }

    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut Encoder::new(&mut bytes))
            .expect("a vector takes all that is written to it");
        bytes
    }

    fn encode(
        &self,
        cbor: &mut Encoder<&mut Vec<u8>>,
    ) -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
        cbor.map(self.values.len() as u64 + 1)?.u64(key::KIND)?.u64(self.kind)?;
        for (key, value) in &self.values {
            cbor.u64(*key)?;
            match value {
                Value::Uint(number) => drop(cbor.u64(*number)?),
                Value::Flag(is) => drop(cbor.bool(*is)?),
                Value::Text(text) => drop(cbor.str(text)?),
                Value::Bytes(bytes) => drop(cbor.bytes(bytes)?),
                Value::Texts(texts) => {
                    cbor.array(texts.len() as u64)?;
                    texts.iter().try_for_each(|text| cbor.str(text).map(drop))?;
                }
                Value::Uints(numbers) => {
                    cbor.array(numbers.len() as u64)?;
                    numbers.iter().try_for_each(|number| cbor.u64(*number).map(drop))?;
                }
            }
        }
        Ok(())
    }
}

/// To read a message.
impl<'b> Fields<'b> {
    /// The fields in `bytes`, which are used up.
    pub fn unpack(bytes: &'b [u8]) -> Result<Self, MessageError> {
        let mut cbor = Decoder::new(bytes);
        let fields =
            Self::decode(&mut cbor).map_err(|error| MessageError::Malformed(error.to_string()))?;
        if cbor.position() == bytes.len() {
            Ok(fields)
        } else {
            Err(MessageError::Malformed("bytes are left over".to_owned()))
        }
    }

    fn decode(cbor: &mut Decoder<'b>) -> Result<Self, minicbor::decode::Error> {
        let malformed = minicbor::decode::Error::message;
        let count = cbor.map()?.ok_or_else(|| malformed("a map of unknown length"))?;
        let mut kind = None;
        let mut values = BTreeMap::new();
        let mut last = None;
        for _ in 0..count {
            let key = cbor.u64()?;
            if last.is_some_and(|last| key <= last) {
                return Err(malformed("the keys of a map do not ascend"));
            }
            last = Some(key);
            if key == key::KIND {
                kind = Some(cbor.u64()?);
            } else if let Some(value) = decode_value(cbor)? {
                values.insert(key, value);
            }
        }
        Ok(Self { kind: kind.ok_or_else(|| malformed("a message without its kind"))?, values })
    }

    pub fn get(&self, key: u64) -> Option<&Value<'b>> {
        self.values.get(&key)
    }

    pub fn missing(&self, key: u64) -> MessageError {
        MessageError::Missing { kind: self.kind, key }
    }

    pub fn invalid(&self, key: u64) -> MessageError {
        MessageError::Invalid { kind: self.kind, key }
    }

    pub fn number_if(&self, key: u64) -> Result<Option<u64>, MessageError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Uint(number)) => Ok(Some(*number)),
            Some(_) => Err(self.invalid(key)),
        }
    }

    pub fn number(&self, key: u64) -> Result<u64, MessageError> {
        self.number_if(key)?.ok_or_else(|| self.missing(key))
    }

    pub fn small(&self, key: u64) -> Result<u32, MessageError> {
        u32::try_from(self.number(key)?).map_err(|_| self.invalid(key))
    }

    /// A length of an area: at least one, and as long as a file can be.
    pub fn size(&self, key: u64) -> Result<u64, MessageError> {
        let bytes = self.number(key)?;
        if bytes == 0 || i64::try_from(bytes).is_err() {
            return Err(self.invalid(key));
        }
        Ok(bytes)
    }

    pub fn is(&self, key: u64) -> Result<bool, MessageError> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Flag(is)) => Ok(*is),
            Some(_) => Err(self.invalid(key)),
        }
    }

    pub fn said(&self, key: u64) -> Result<&'b str, MessageError> {
        match self.get(key) {
            None => Err(self.missing(key)),
            Some(Value::Text(text)) => Ok(text),
            Some(_) => Err(self.invalid(key)),
        }
    }

    pub fn name(
        &self,
        key: u64,
        check: fn(&str) -> Result<(), NameError>,
    ) -> Result<String, MessageError> {
        let name = self.said(key)?;
        check(name).map_err(|_| self.invalid(key))?;
        Ok(name.to_owned())
    }

    pub fn bytes_if(&self, key: u64) -> Result<Option<&'b [u8]>, MessageError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Some(_) => Err(self.invalid(key)),
        }
    }

    pub fn texts_if(&self, key: u64) -> Result<&[&'b str], MessageError> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Texts(texts)) => Ok(texts),
            Some(Value::Uints(numbers)) if numbers.is_empty() => Ok(&[]),
            Some(_) => Err(self.invalid(key)),
        }
    }

    pub fn uints_if(&self, key: u64) -> Result<&[u64], MessageError> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Uints(numbers)) => Ok(numbers),
            Some(_) => Err(self.invalid(key)),
        }
    }
}

/// The next value; `None` if it is of a type that no field has.
fn decode_value<'b>(cbor: &mut Decoder<'b>) -> Result<Option<Value<'b>>, minicbor::decode::Error> {
    let value = match cbor.datatype()? {
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => Value::Uint(cbor.u64()?),
        Type::Bool => Value::Flag(cbor.bool()?),
        Type::String => Value::Text(cbor.str()?),
        Type::Bytes => Value::Bytes(cbor.bytes()?),
        Type::Array => return decode_array(cbor),
        _ => {
            cbor.skip()?;
            return Ok(None);
        }
    };
    Ok(Some(value))
}

/// An array of texts or of numbers.
fn decode_array<'b>(cbor: &mut Decoder<'b>) -> Result<Option<Value<'b>>, minicbor::decode::Error> {
    let start = cbor.position();
    let count = cbor.array()?.filter(|&count| count <= AREAS_MAX as u64);
    let Some(count) = count else {
        return Err(minicbor::decode::Error::message("an array is too long"));
    };
    if count == 0 {
        return Ok(Some(Value::Uints(Vec::new())));
    }
    let value = match cbor.datatype()? {
        Type::String => Value::Texts((0..count).map(|_| cbor.str()).collect::<Result<_, _>>()?),
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => {
            Value::Uints((0..count).map(|_| cbor.u64()).collect::<Result<_, _>>()?)
        }
        _ => {
            cbor.set_position(start);
            cbor.skip()?;
            return Ok(None);
        }
    };
    Ok(Some(value))
}
