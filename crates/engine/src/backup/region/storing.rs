//! One region while it is stored: what each reading of it finds, and what becomes of that.

use strongroom_catalog::{ChunkRef, Recipe, RecipeBuilder, RecipeReader};
use strongroom_repository::{ChunkReader, ChunkWriter, StreamBasis};
use strongroom_source::memory::mark::{Mark, Marker, PAGE_BYTES};

use super::draft::{Draft, Record};
use super::map::{MarksHead, MarksReader, write_marks};
use super::scan::{Found, Part, Scan};
use super::shared::Shared;
use super::{PAGES, Region};
use crate::backup::tally::Tally;
use crate::error::EngineError;

/// One region while it is stored.
pub struct Storing<'r> {
    /// The region.
    pub region: &'r Region,
    draft: Draft,
    marker: Marker,
    /// What it was in the parent.
    pub before: Option<Recipe>,
    in_place: Option<StreamBasis<'r>>,
    /// What its marks were in the parent.
    marks_before: Option<Recipe>,
    /// Pages that differ from the parent's.
    pub pages_changed: u64,
    /// Chunks whose marks are what they were and whose bytes are not.
    pub healed: u64,
    /// Chunks that are what they were, and that the repository has no longer.
    missing: u64,
}

impl<'r> Storing<'r> {
    /// Nothing was read of it.
    pub fn begin(
        shared: &Shared<'_, 'r>,
        region: &'r Region,
        before: Option<Recipe>,
        marks: Option<Recipe>,
    ) -> Result<Self, EngineError> {
        let known = marks.as_ref().and_then(|marks| MarksReader::open(marks, shared.reader));
        let seed = match known {
            Some(marks) => marks.head.seed,
            None => {
                let mut seed = [0; 8];
                shared.repository.surroundings.entropy.fill(&mut seed);
                u64::from_le_bytes(seed)
            }
        };
        let folder = shared.repository.cache_folder();
        Ok(Self {
            region,
            draft: Draft::begin(folder.as_deref()).map_err(EngineError::Whereabouts)?,
            marker: Marker { seed },
            in_place: before.as_ref().map(|before| StreamBasis::new(shared.reader, before)),
            before,
            marks_before: marks,
            pages_changed: 0,
            healed: 0,
            missing: 0,
        })
    }

    /// Nothing differs from the parent, and the repository has all of that.
    pub fn is_as_before(&self) -> bool {
        let bytes = self.before.as_ref().map(Recipe::stream_bytes);
        let is_same = self.pages_changed == 0 && self.healed == 0;
        bytes == Some(self.region.memory.bytes()) && is_same && self.missing == 0
    }

    /// The first reading: what equals the parent is named again, the rest is stored.
    pub fn compare_with_parent(
        &mut self,
        shared: &Shared<'_, 'r>,
        writer: &mut ChunkWriter<'r>,
        tally: &mut Tally<'_>,
    ) -> Result<(), EngineError> {
        let (before, marks) = (self.before.clone(), self.marks_before.clone());
        let mut chunks = before.as_ref().map(|before| ParentChunks {
            recipe: RecipeReader::new(before, shared.reader),
            next: None,
        });
        let mut marks = marks.as_ref().and_then(|marks| MarksReader::open(marks, shared.reader));
        let scan = self.scan(shared);
        let mut job = |start: u64, lengths: &[usize]| {
            let mut at = start;
            let records = lengths.iter().map(|length| {
                let chunk = chunks.as_mut().and_then(|chunks| chunks.at(at, *length));
                let marks = marks.as_mut().and_then(|marks| marks.next(*length));
                at += *length as u64;
                Some(Record { chunk: chunk?, marks: marks? })
            });
            Ok(records.collect())
        };
        let draft = &self.draft;
        let (in_place, changed) = (&mut self.in_place, &mut self.pages_changed);
        let (healed, missing) = (&mut self.healed, &mut self.missing);
        scan.run(&mut job, &mut |start, parts| {
            let mut records = Vec::with_capacity(parts.len());
            let mut at = start;
            for mut part in parts {
                // It may have been removed since.
                if let (Found::Same, Some(before)) = (&part.found, &part.before)
                    && !before.chunk.is_hole()
                    && !writer.is_present(&before.chunk)?
                {
                    part.found = scan.read_again(at, part.length)?;
                    *missing += 1;
                }
                *healed += u64::from(matches!(part.found, Found::Data { is_mended: true, .. }));
                let (length, before) = (part.length, part.before.map(|before| before.marks));
                let record = keep(part, at, in_place, writer)?;
                *changed += pages_that_differ(before, &record, length);
                records.push(record);
                at += length as u64;
                tally.bytes(length as u64, writer.stats());
            }
            draft.write(start, &records).map_err(EngineError::Whereabouts)
        })
    }

    /// A later reading: what differs from the reading before is stored. Returns how many chunks do.
    pub fn compare_with_draft(
        &mut self,
        shared: &Shared<'_, 'r>,
        writer: &mut ChunkWriter<'r>,
    ) -> Result<u64, EngineError> {
        let scan = Scan { turn: None, ..self.scan(shared) };
        let (draft, in_place) = (&self.draft, &mut self.in_place);
        let mut job = |start: u64, lengths: &[usize]| {
            let records = draft.read(start, lengths).map_err(EngineError::Whereabouts)?;
            Ok(records.into_iter().map(Some).collect())
        };
        let mut chunks = 0;
        scan.run(&mut job, &mut |start, parts| {
            if parts.iter().all(|part| matches!(part.found, Found::Same)) {
                return Ok(());
            }
            let mut records = Vec::with_capacity(parts.len());
            let mut at = start;
            for part in parts {
                let (length, before) = (part.length, part.before);
                let record = keep(part, at, in_place, writer)?;
                chunks += u64::from(Some(record) != before);
                records.push(record);
                at += length as u64;
            }
            draft.write(start, &records).map_err(EngineError::Whereabouts)
        })?;
        Ok(chunks)
    }

    fn scan<'s>(&self, shared: &'s Shared<'_, 'r>) -> Scan<'s>
    where
        'r: 's,
    {
        Scan {
            path: &self.region.path,
            memory: &*self.region.memory,
            marker: self.marker,
            cutter: &shared.cutter,
            reader: shared.reader,
            turn: Some(shared.turn),
            threads: shared.options.readers.clamp(1, 8),
            cancel: shared.cancel,
        }
    }

    /// Its recipe, and that of its marks.
    pub fn finish(
        mut self,
        shared: &Shared<'_, 'r>,
        writer: &mut ChunkWriter<'r>,
    ) -> Result<(Recipe, Recipe), EngineError> {
        let bytes = self.region.memory.bytes();
        let mut recipe = RecipeBuilder::new();
        let mut hole = 0;
        self.draft.each(bytes, &mut |record| {
            if record.chunk.is_hole() {
                hole += record.chunk.stream_bytes;
                return Ok(());
            }
            let mut lane = writer.metadata(self.in_place.as_mut());
            if hole > 0 {
                recipe.push(ChunkRef::hole(std::mem::take(&mut hole)), &mut lane)?;
            }
            Ok(recipe.push(record.chunk, &mut lane)?)
        })?;
        let mut lane = writer.metadata(self.in_place.as_mut());
        if hole > 0 {
            recipe.push(ChunkRef::hole(hole), &mut lane)?;
        }
        let content = recipe.finish(&mut lane)?;
        let head = MarksHead { seed: self.marker.seed, region_bytes: bytes };
        let before = self.marks_before.as_ref();
        let marks = write_marks(head, &self.draft, before, shared, writer)?;
        Ok((content, marks))
    }
}

/// What a chunk is from now on: what it was, zeros, or bytes, which are stored.
fn keep(
    part: Part,
    at: u64,
    in_place: &mut Option<StreamBasis<'_>>,
    writer: &mut ChunkWriter<'_>,
) -> Result<Record, EngineError> {
    Ok(match part.found {
        Found::Same => part.before.expect("it was compared with what it was"),
        Found::Zeros => Record::zeros(part.length),
        Found::Data { bytes, marks, fingerprint, .. } => {
            let chunk = writer.put_data(&bytes, fingerprint, at, in_place.as_mut())?;
            Record { chunk, marks }
        }
    })
}

/// How many pages of a chunk have another mark than before; all, if nothing was known of them.
fn pages_that_differ(before: Option<[Mark; PAGES]>, now: &Record, length: usize) -> u64 {
    let pages = length.div_ceil(PAGE_BYTES);
    let differs = |page: &usize| before.is_none_or(|before| before[*page] != now.marks[*page]);
    (0..pages).filter(differs).count() as u64
}

/// The chunks of the parent's region, in order.
struct ParentChunks<'r> {
    recipe: RecipeReader<'r, ChunkReader>,
    next: Option<(u64, ChunkRef)>,
}

impl ParentChunks<'_> {
    /// The chunk that is exactly this part of the region, or zeros, if they are all of it. What
    /// cannot be read is as if there was none.
    fn at(&mut self, start: u64, length: usize) -> Option<ChunkRef> {
        let ends_by = |next: Option<(u64, ChunkRef)>| {
            next.is_none_or(|(offset, chunk)| offset + chunk.stream_bytes <= start)
        };
        if ends_by(self.next) {
            self.recipe.seek_forward(start).ok()?;
            self.next = self.recipe.next_chunk().ok().flatten();
        }
        // Behind what cannot be read it may begin later.
        let (offset, chunk) = self.next.filter(|(offset, _)| *offset <= start)?;
        let length = length as u64;
        if chunk.is_hole() && offset + chunk.stream_bytes >= start + length {
            return Some(ChunkRef::hole(length));
        }
        (offset == start && chunk.stream_bytes == length).then_some(chunk)
    }
}
