//! The value of an attribute: in the record itself, or in runs of clusters, compressed or not.

use std::ops::{ControlFlow, Range};

use crate::error::{DiskError, Result};
use crate::file_system::{Piece, Source};
use crate::read::read_vec;

use super::lznt1;
use super::mft::Mft;
use super::record::Attribute;
use super::runs::{Run, runs};

const COMPRESSION: u16 = 0x00ff;
const LZNT1: u16 = 1;
const ENCRYPTED: u16 = 0x4000;
/// Windows compresses 16 clusters of at most 4 KiB together.
const UNIT_BYTES_MAX: u64 = 64 << 10;

/// A value that can be read.
pub(super) struct Stream {
    /// Its parts, in order; at least one.
    parts: Vec<Attribute>,
    /// The record of the file.
    number: u64,
    pub bytes: u64,
    /// What is behind these was allocated and never written.
    pub written: u64,
}

/// A part of a value that is compressed in units.
enum Unit {
    /// The volume has it as it is.
    Plain(Run),
    /// What a unit was compressed to, and the first cluster of the unit, counted in the value.
    Packed { at: u64, places: Vec<Run> },
}

const GO_ON: ControlFlow<()> = ControlFlow::Continue(());

impl Stream {
    /// The value that these parts are. `number` is the record of the file.
    pub(super) fn new(parts: Vec<Attribute>, number: u64) -> Result<Self> {
        let first = parts.first().filter(|first| first.lowest() == 0);
        let first =
            first.ok_or_else(|| DiskError::damaged("parts of a file, by record", number))?;
        let (bytes, written) = (first.data_bytes(), first.written_bytes());
        if i64::try_from(bytes).is_err() || (first.is_resident() && parts.len() > 1) {
            return Err(DiskError::damaged("size of a file, by record", number));
        }
        Ok(Self { written: written.min(bytes), bytes, parts, number })
    }

    fn damaged(&self, what: &'static str) -> DiskError {
        DiskError::damaged(what, self.number)
    }

    fn first(&self) -> &Attribute {
        &self.parts[0]
    }

    /// The value, if it is in the record.
    pub(super) fn resident(&self) -> Option<&[u8]> {
        self.first().is_resident().then(|| self.first().value())
    }

    /// It was encrypted by Windows.
    pub(super) fn is_encrypted(&self) -> bool {
        self.first().flags() & ENCRYPTED != 0
    }

    /// The clusters that are compressed together; `None` if the value is not compressed.
    fn unit(&self, mft: &Mft<'_>) -> Result<Option<u64>> {
        let power = u32::from(self.first().unit_power());
        match self.first().flags() & COMPRESSION {
            0 => Ok(None),
            LZNT1 if power == 0 => Ok(None),
            LZNT1 => {
                let bytes = 1_u64
                    .checked_shl(power)
                    .map(|count| count.saturating_mul(mft.boot.cluster_bytes));
                let is_known = bytes.is_some_and(|bytes| bytes <= UNIT_BYTES_MAX);
                is_known
                    .then_some(Some(1 << power))
                    .ok_or_else(|| self.damaged("size of a unit of compression, by record"))
            }
            _ => Err(DiskError::unsupported("this kind of compression")),
        }
    }

    /// Gives the runs in a range of clusters, holes too, cut off where the range begins and ends.
    /// The value must have all of the range.
    fn runs(
        &self,
        mft: &Mft<'_>,
        range: Range<u64>,
        take: &mut dyn FnMut(Run) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut next = range.start;
        let mut seen = 0;
        for part in &self.parts {
            if next >= range.end {
                break;
            }
            if part.end() <= next || part.lowest() >= range.end {
                continue;
            }
            for run in runs(part, mft.boot.clusters, self.number) {
                let run = run?;
                seen += if run.place.is_some() { run.count } else { 0 };
                if seen > mft.boot.clusters {
                    return Err(self.damaged("more clusters than the volume has, by record"));
                }
                let (from, to) = (run.at.max(next), (run.at + run.count).min(range.end));
                if from >= to {
                    continue;
                }
                if from != next {
                    return Err(self.damaged("a part of a file is missing, by record"));
                }
                next = to;
                let place = run.place.map(|place| place + (from - run.at));
                if take(Run { at: from, place, count: to - from }).is_break() {
                    return Ok(());
                }
            }
        }
        if next < range.end {
            return Err(self.damaged("runs of a file end early, by record"));
        }
        Ok(())
    }

    /// Gives the parts that have bytes in a range of a compressed value; whole units that are holes
    /// are left out.
    fn units(
        &self,
        mft: &Mft<'_>,
        unit: u64,
        range: Range<u64>,
        take: &mut dyn FnMut(Unit) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut places: Vec<Run> = Vec::new();
        let mut filled = 0;
        let range = range.start / unit * unit..range.end.next_multiple_of(unit);
        self.runs(mft, range, &mut |mut run| {
            while run.count > 0 {
                let whole = if filled == 0 { run.count / unit * unit } else { 0 };
                let now = if whole > 0 { whole } else { run.count.min(unit - filled) };
                let part = Run { count: now, ..run };
                run.at += now;
                run.place = run.place.map(|place| place + now);
                run.count -= now;
                if whole > 0 {
                    if part.place.is_some() && take(Unit::Plain(part)).is_break() {
                        return ControlFlow::Break(());
                    }
                    continue;
                }
                filled += now;
                if part.place.is_some() {
                    places.push(part);
                }
                if filled < unit {
                    continue;
                }
                filled = 0;
                let places = std::mem::take(&mut places);
                let stored: u64 = places.iter().map(|place| place.count).sum();
                let flow = if stored == unit {
                    places.into_iter().try_for_each(|place| take(Unit::Plain(place)))
                } else if stored > 0 {
                    take(Unit::Packed { at: (run.at - 1) / unit * unit, places })
                } else {
                    GO_ON
                };
                if flow.is_break() {
                    return flow;
                }
            }
            GO_ON
        })
    }

    /// Gives the pieces of the value that have bytes in a range.
    pub(super) fn pieces(
        &self,
        mft: &Mft<'_>,
        range: Range<u64>,
        take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<()> {
        let end = range.end.min(self.bytes);
        if range.start >= end {
            return Ok(());
        }
        if self.resident().is_some() {
            let _ = take(Piece { offset: 0, bytes: self.bytes, source: Source::Inside });
            return Ok(());
        }
        let cluster_bytes = mft.boot.cluster_bytes;
        let wanted = range.start / cluster_bytes..end.div_ceil(cluster_bytes);
        let mut give = |piece: Piece| {
            let is_wanted = piece.offset < end && range.start < piece.offset + piece.bytes;
            if is_wanted { take(piece) } else { GO_ON }
        };
        let plain = |run: Run| {
            let offset = run.at * cluster_bytes;
            let bytes = (run.count * cluster_bytes).min(self.bytes.saturating_sub(offset));
            let place = run.place.map(|place| place * cluster_bytes);
            place.map(|place| Piece::of_volume(offset, bytes, place, self.written))
        };
        let Some(unit) = self.unit(mft)? else {
            return self.runs(mft, wanted, &mut |run| {
                plain(run).into_iter().flatten().flatten().try_for_each(&mut give)
            });
        };
        self.units(mft, unit, wanted, &mut |part| match part {
            Unit::Plain(run) => plain(run).into_iter().flatten().flatten().try_for_each(&mut give),
            Unit::Packed { at, .. } => {
                let offset = at * cluster_bytes;
                let bytes = (unit * cluster_bytes).min(self.bytes.saturating_sub(offset));
                give(Piece { offset, bytes, source: Source::Inside })
            }
        })
    }

    /// Reads the value from `offset` on. Returns how many bytes there were.
    pub(super) fn read(&self, mft: &Mft<'_>, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let bytes = self.bytes.saturating_sub(offset).min(buffer.len() as u64);
        let buffer = &mut buffer[..bytes as usize];
        buffer.fill(0);
        if bytes == 0 {
            return Ok(0);
        }
        if let Some(value) = self.resident() {
            let there = value.get(offset as usize..).unwrap_or_default();
            buffer.copy_from_slice(there.get(..buffer.len()).unwrap_or_default());
            return Ok(bytes as usize);
        }
        let end = (offset + bytes).min(self.written);
        if offset >= end {
            return Ok(bytes as usize);
        }
        let cluster_bytes = mft.boot.cluster_bytes;
        let wanted = offset / cluster_bytes..end.div_ceil(cluster_bytes);
        let mut result = Ok(bytes as usize);
        let mut fill = |at: u64, bytes: u64, from: &mut Fill<'_>| {
            let (first, last) = (at.max(offset), (at + bytes).min(end));
            if first >= last {
                return GO_ON;
            }
            let part = &mut buffer[(first - offset) as usize..(last - offset) as usize];
            match from(first - at, part) {
                Ok(()) => GO_ON,
                Err(error) => {
                    result = Err(error);
                    ControlFlow::Break(())
                }
            }
        };
        let mut take = |unit: u64, part: Unit| match part {
            Unit::Plain(run) => {
                let Some(place) = run.place.map(|place| place * cluster_bytes) else {
                    return GO_ON;
                };
                fill(run.at * cluster_bytes, run.count * cluster_bytes, &mut |inside, part| {
                    Ok(mft.reader.read_at(place + inside, part)?)
                })
            }
            Unit::Packed { at, places } => {
                let unit_bytes = unit * cluster_bytes;
                fill(at * cluster_bytes, unit_bytes, &mut |inside, part| {
                    let whole = self.unpacked(mft, &places, unit_bytes as usize)?;
                    let inside = whole.get(inside as usize..).unwrap_or_default();
                    part.copy_from_slice(inside.get(..part.len()).unwrap_or_default());
                    Ok(())
                })
            }
        };
        match self.unit(mft)? {
            None => self.runs(mft, wanted, &mut |run| take(1, Unit::Plain(run)))?,
            Some(unit) => self.units(mft, unit, wanted, &mut |part| take(unit, part))?,
        }
        result
    }

    /// A unit, decompressed.
    fn unpacked(&self, mft: &Mft<'_>, places: &[Run], unit_bytes: usize) -> Result<Vec<u8>> {
        let mut packed = Vec::new();
        for run in places {
            let (place, count) = (run.place.unwrap_or(0), run.count);
            let bytes = (count * mft.boot.cluster_bytes) as usize;
            packed.extend(read_vec(mft.reader, place * mft.boot.cluster_bytes, bytes)?);
        }
        let mut whole = vec![0; unit_bytes];
        let done = lznt1::decompress(&packed, &mut whole);
        done.ok_or_else(|| self.damaged("compressed content, by record")).map(|()| whole)
    }

    /// All of a value whose length the caller has checked.
    pub(super) fn read_all(&self, mft: &Mft<'_>) -> Result<Vec<u8>> {
        let mut whole = vec![0; self.bytes as usize];
        self.read(mft, 0, &mut whole)?;
        Ok(whole)
    }
}

/// Fills a buffer from a place inside of what is read.
type Fill<'f> = dyn FnMut(u64, &mut [u8]) -> Result<()> + 'f;
