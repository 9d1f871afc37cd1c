//! What the last drill of a snapshot found: the part of a remark that a drill writes.
//!
//! The document: `docs/format/remark.md`.

use minicbor::{Decoder, Encoder};
use strongroom_base::Timestamp;
use strongroom_catalog::format::decode_map;

mod key {
    pub const TIME: u64 = 0;
    pub const VERDICT: u64 = 1;
    pub const FILES: u64 = 2;
    pub const BYTES: u64 = 3;
    pub const MILLISECONDS: u64 = 4;
    pub const START: u64 = 5;
    pub const END: u64 = 6;
    pub const DIGEST: u64 = 7;
    pub const PROVED: u64 = 8;
}

mod boot_key {
    pub const TIME: u64 = 0;
    pub const VERDICT: u64 = 1;
    pub const MILLISECONDS: u64 = 2;
    pub const PROVED: u64 = 3;
}

/// What a drill found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrillVerdict {
    /// All of the sample was restored, and is what was stored.
    Proved,
    /// A part of the sample could not be tried here, or there is a doubt.
    Incomplete,
    /// A part of the sample cannot be restored as it was.
    Failed,
}

impl DrillVerdict {
    fn number(self) -> u64 {
        match self {
            Self::Proved => 0,
            Self::Incomplete => 1,
            Self::Failed => 2,
        }
    }

    /// What a newer program found counts as no proof.
    fn of(number: u64) -> Self {
        match number {
            0 => Self::Proved,
            2 => Self::Failed,
            _ => Self::Incomplete,
        }
    }
}

/// The last drill of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drill {
    /// When it ended.
    pub time: Timestamp,
    /// What it found.
    pub verdict: DrillVerdict,
    /// Files (of any type but directories) that were restored.
    pub files: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// How long the restore took.
    pub milliseconds: u64,
    /// The place on the circle of all paths where the sample began.
    pub start: u64,
    /// Where the next one begins.
    pub end: u64,
    /// A hash of what was read back.
    pub digest: [u8; 32],
    /// When a drill last proved the snapshot; this one, or an earlier one.
    pub proved: Option<Timestamp>,
    /// What a newer program added: keys and their values, kept as they are.
    pub(crate) newer: Vec<(u64, Vec<u8>)>,
}

impl Drill {
    /// A drill that ended at a time, with nothing done.
    pub fn new(time: Timestamp, verdict: DrillVerdict) -> Self {
        Self {
            time,
            verdict,
            files: 0,
            bytes: 0,
            milliseconds: 0,
            start: 0,
            end: 0,
            digest: [0; 32],
            proved: None,
            newer: Vec::new(),
        }
    }

    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let count = 8 + usize::from(self.proved.is_some()) + self.newer.len();
        let mut cbor = Encoder::new(&mut bytes);
        let mut encode = || -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
            cbor.map(count as u64)?;
            cbor.u64(key::TIME)?.i64(self.time.0)?;
            cbor.u64(key::VERDICT)?.u64(self.verdict.number())?;
            cbor.u64(key::FILES)?.u64(self.files)?;
            cbor.u64(key::BYTES)?.u64(self.bytes)?;
            cbor.u64(key::MILLISECONDS)?.u64(self.milliseconds)?;
            cbor.u64(key::START)?.u64(self.start)?;
            cbor.u64(key::END)?.u64(self.end)?;
            cbor.u64(key::DIGEST)?.bytes(&self.digest)?;
            if let Some(proved) = self.proved {
                cbor.u64(key::PROVED)?.i64(proved.0)?;
            }
            Ok(())
        };
        encode().expect("a vector takes all that is written to it");
        for (key, value) in &self.newer {
            Encoder::new(&mut bytes).u64(*key).expect("a vector takes all that is written to it");
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// Reads one; `all` is what the decoder reads from.
    pub(crate) fn decode(
        cbor: &mut Decoder<'_>,
        all: &[u8],
    ) -> Result<Self, minicbor::decode::Error> {
        let mut drill = Self::new(Timestamp(0), DrillVerdict::Incomplete);
        let mut known = 0;
        decode_map(cbor, |cbor, number| {
            known += u32::from(number < key::PROVED);
            match number {
                key::TIME => drill.time = Timestamp(cbor.i64()?),
                key::VERDICT => drill.verdict = DrillVerdict::of(cbor.u64()?),
                key::FILES => drill.files = cbor.u64()?,
                key::BYTES => drill.bytes = cbor.u64()?,
                key::MILLISECONDS => drill.milliseconds = cbor.u64()?,
                key::START => drill.start = cbor.u64()?,
                key::END => drill.end = cbor.u64()?,
                key::DIGEST => {
                    let bytes = <[u8; 32]>::try_from(cbor.bytes()?);
                    let wrong = minicbor::decode::Error::message("a digest of another length");
                    drill.digest = bytes.map_err(|_| wrong)?;
                }
                key::PROVED => drill.proved = Some(Timestamp(cbor.i64()?)),
                newer => {
                    let start = cbor.position();
                    cbor.skip()?;
                    drill.newer.push((newer, all[start..cbor.position()].to_vec()));
                }
            }
            Ok(())
        })?;
        match known {
            8 => Ok(drill),
            _ => Err(minicbor::decode::Error::message("a drill without all of its keys")),
        }
    }
}

/// The last start of a machine of the snapshot, by a drill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootDrill {
    /// When it ended.
    pub time: Timestamp,
    /// Whether the machine showed the signs of life that were waited for.
    pub verdict: DrillVerdict,
    /// How long that took, or how long was waited for it.
    pub milliseconds: u64,
    /// When a start last proved the snapshot; this one, or an earlier one.
    pub proved: Option<Timestamp>,
    /// What a newer program added: keys and their values, kept as they are.
    pub(crate) newer: Vec<(u64, Vec<u8>)>,
}

impl BootDrill {
    /// A start that ended at a time. `before` is the one before it.
    pub fn new(
        time: Timestamp,
        verdict: DrillVerdict,
        milliseconds: u64,
        before: Option<&Self>,
    ) -> Self {
        let proved = match verdict {
            DrillVerdict::Proved => Some(time),
            _ => before.and_then(|before| before.proved),
        };
        Self { time, verdict, milliseconds, proved, newer: Vec::new() }
    }

    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let count = 3 + usize::from(self.proved.is_some()) + self.newer.len();
        let mut cbor = Encoder::new(&mut bytes);
        let mut encode = || -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
            cbor.map(count as u64)?;
            cbor.u64(boot_key::TIME)?.i64(self.time.0)?;
            cbor.u64(boot_key::VERDICT)?.u64(self.verdict.number())?;
            cbor.u64(boot_key::MILLISECONDS)?.u64(self.milliseconds)?;
            if let Some(proved) = self.proved {
                cbor.u64(boot_key::PROVED)?.i64(proved.0)?;
            }
            Ok(())
        };
        encode().expect("a vector takes all that is written to it");
        for (key, value) in &self.newer {
            Encoder::new(&mut bytes).u64(*key).expect("a vector takes all that is written to it");
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// Reads one; `all` is what the decoder reads from.
    pub(crate) fn decode(
        cbor: &mut Decoder<'_>,
        all: &[u8],
    ) -> Result<Self, minicbor::decode::Error> {
        let mut boot = Self::new(Timestamp(0), DrillVerdict::Incomplete, 0, None);
        let mut known = 0;
        decode_map(cbor, |cbor, number| {
            known += u32::from(number < boot_key::PROVED);
            match number {
                boot_key::TIME => boot.time = Timestamp(cbor.i64()?),
                boot_key::VERDICT => boot.verdict = DrillVerdict::of(cbor.u64()?),
                boot_key::MILLISECONDS => boot.milliseconds = cbor.u64()?,
                boot_key::PROVED => boot.proved = Some(Timestamp(cbor.i64()?)),
                newer => {
                    let start = cbor.position();
                    cbor.skip()?;
                    boot.newer.push((newer, all[start..cbor.position()].to_vec()));
                }
            }
            Ok(())
        })?;
        match known {
            3 => Ok(boot),
            _ => Err(minicbor::decode::Error::message("a start without all of its keys")),
        }
    }
}
