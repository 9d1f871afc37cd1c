//! Runs: neighbouring blocks that are read at once, and what is done with each.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use strongroom_arena::{Arena, ArenaContent, ArenaError, OpenBlock};
use strongroom_base::ArenaId;
use strongroom_repository::RUN_BYTES_MAX;

use super::needs::{Need, Placed};
use super::{Shared, Want};
use crate::error::EngineError;

/// Bytes of neighbouring chunks that are written at once, and one chunk more: deltas are put
/// together in memory, and any number of them may hang on one base.
const STRETCH_BYTES_MAX: u64 = 4 << 20;

/// If the place sends what follows a part too, a run has at most this many bytes: an arena of the
/// default length is one run.
const WHOLE_BYTES_MAX: usize = 20 << 20;
/// And at most this many bytes that are not needed between two blocks that are.
const GAP_BYTES_MAX: usize = 1 << 20;

/// A run of neighbouring blocks, and the chunks that are needed of them.
pub struct Run<'b> {
    arena: Arc<Arena>,
    blocks: std::ops::RangeInclusive<usize>,
    needs: Vec<Need<'b>>,
}

impl Run<'_> {
    /// True if a block, which is at or after the run's last, can join it. `in_parts`: a part of the
    /// arena takes no more than its own bytes.
    fn takes(&self, block: usize, in_parts: bool) -> bool {
        let last = *self.blocks.end();
        if block == last {
            return true;
        }
        let bytes = self.arena.span(*self.blocks.start()..=block).1;
        if in_parts {
            return block == last + 1 && bytes <= RUN_BYTES_MAX;
        }
        let gap = (last + 1 < block).then(|| self.arena.span(last + 1..=block - 1).1);
        gap.unwrap_or(0) <= GAP_BYTES_MAX && bytes <= WHOLE_BYTES_MAX
    }
}

/// Neighbouring chunks of one file.
#[derive(Default)]
pub struct Stretch<'c> {
    pub(super) first: Option<&'c Want>,
    pub(super) chunks: Vec<Cow<'c, [u8]>>,
    end: u64,
}

impl<'c> Stretch<'c> {
    /// A single chunk.
    pub fn of(want: &'c Want, chunk: Cow<'c, [u8]>) -> Self {
        let end = want.offset + chunk.len() as u64;
        Self { first: Some(want), chunks: vec![chunk], end }
    }

    /// Adds the chunk that comes next in the file, while there is room; gives back any other.
    fn push(&mut self, want: &'c Want, chunk: Cow<'c, [u8]>) -> Result<(), Cow<'c, [u8]>> {
        let is_next = |first: &Want| first.file == want.file && self.end == want.offset;
        let has_room = |first: &Want| self.end - first.offset < STRETCH_BYTES_MAX;
        if !self.first.is_some_and(|first| is_next(first) && has_room(first)) {
            return Err(chunk);
        }
        self.end += chunk.len() as u64;
        self.chunks.push(chunk);
        Ok(())
    }
}

impl<'b> Shared<'b> {
    /// Cuts needs into runs of neighbouring blocks. If no part of an arena comes alone,
    /// blocks that are not needed are read with those around them.
    pub(super) fn plan_runs(
        &self,
        placed: Placed<'b>,
        take: &mut dyn FnMut(Run<'b>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let Placed { mut needs, arenas, in_parts } = placed;
        needs.sort_unstable_by_key(|need| (need.at, need.want.file, need.want.offset));
        let mut open: Option<(ArenaId, Option<Arc<Arena>>)> = None;
        let mut run: Option<Run<'b>> = None;
        for need in needs {
            let id = need.at.arena;
            if open.as_ref().is_none_or(|(last, _)| *last != id) {
                run.take().map_or(Ok(()), &mut *take)?;
                open = Some((id, self.arena(id, &arenas)?));
            }
            let arena = open.as_ref().and_then(|(_, arena)| arena.as_ref());
            let block = arena.and_then(|arena| Some((arena, arena.block_of(need.at.slot)?)));
            let Some((arena, block)) = block else {
                self.write_from_elsewhere(need.want);
                continue;
            };
            match &mut run {
                Some(run) if run.takes(block, in_parts) => {
                    run.blocks = *run.blocks.start()..=block;
                    run.needs.push(need);
                }
                other => {
                    let next =
                        Run { arena: arena.clone(), blocks: block..=block, needs: vec![need] };
                    other.replace(next).map_or(Ok(()), &mut *take)?;
                }
            }
        }
        run.map_or(Ok(()), take)
    }

    /// An arena, if it can be opened.
    fn arena(
        &self,
        id: ArenaId,
        known: &HashMap<ArenaId, Arc<Arena>>,
    ) -> Result<Option<Arc<Arena>>, EngineError> {
        match known.get(&id).cloned().map_or_else(|| self.reader.store().arena(id), Ok) {
            Ok(arena) => Ok(Some(arena)),
            // Each of its chunks is looked for elsewhere, and then waits.
            Err(error) if error.withheld().is_some() => Ok(None),
            Err(error @ (ArenaError::Backend(_) | ArenaError::PutOnly)) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// Reads a run, and writes every chunk that is needed of it.
    pub(super) fn write_run(&self, run: &Run<'_>) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.chunks_needed.fetch_add(run.needs.len() as u64, Ordering::Relaxed);
        let store = self.reader.store();
        let Ok(bytes) = store.read_run(&run.arena, run.blocks.clone()) else {
            run.needs.iter().for_each(|need| self.write_from_elsewhere(need.want));
            return;
        };
        let place_of = |need: &Need<'_>| run.arena.block_of(need.at.slot);
        // Block by block, so that one is in memory at a time.
        for of_block in run.needs.chunk_by(|one, other| place_of(one) == place_of(other)) {
            let place =
                place_of(&of_block[0]).expect("a run is made of blocks that hold its needs");
            let block = run.arena.open_block_of_run(place, *run.blocks.start(), &bytes);
            let block = block.ok().map(|block| (run.arena.id, block));
            let mut stretch = Stretch::default();
            for need in of_block {
                // Of a block that is damaged each chunk is looked for by itself.
                let Some(chunk) = block.as_ref().and_then(|block| self.chunk_of(block, need))
                else {
                    self.write_from_elsewhere(need.want);
                    continue;
                };
                if let Err(chunk) = stretch.push(need.want, chunk) {
                    self.write_stretch(&stretch);
                    stretch = Stretch::of(need.want, chunk);
                }
            }
            self.write_stretch(&stretch);
        }
    }

    fn chunk_of<'c>(
        &self,
        block: &'c (ArenaId, OpenBlock),
        need: &'c Need<'_>,
    ) -> Option<Cow<'c, [u8]>> {
        let Want { fingerprint, location, .. } = need.want;
        let stored = match &need.delta {
            Some(delta) => delta.as_stored(),
            None => block.1.chunk(location.slot)?,
        };
        let chunk = self
            .reader
            .resolve(ArenaContent::Data, fingerprint, *location, stored, Some(block))
            .ok()?;
        // A chunk of another length belongs to another recipe.
        (chunk.len() == need.want.bytes as usize).then_some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use strongroom_base::Fingerprint;
    use strongroom_base::Location;

    use super::*;

    #[test]
    fn a_stretch_takes_what_comes_next_and_has_an_end() {
        let location = Location { arena: ArenaId::ZERO, slot: 0 };
        let want = |file: u32, offset: u64| Want {
            location,
            fingerprint: Fingerprint::ZERO,
            file,
            bytes: 1 << 20,
            offset,
        };
        let mib = vec![0; 1 << 20];
        let wants: Vec<Want> = (0..6).map(|place| want(1, place << 20)).collect();
        let mut stretch = Stretch::of(&wants[0], Cow::Borrowed(&mib));
        let (other_file, gap) = (want(2, 1 << 20), want(1, 2 << 20));
        assert!(stretch.push(&other_file, Cow::Borrowed(&mib)).is_err());
        assert!(stretch.push(&gap, Cow::Borrowed(&mib)).is_err());
        for want in &wants[1..4] {
            assert!(stretch.push(want, Cow::Borrowed(&mib)).is_ok());
        }
        assert!(stretch.push(&wants[4], Cow::Borrowed(&mib)).is_err(), "it is long enough");
        assert_eq!(stretch.chunks.len(), 4);
    }
}
