//! Recipes are built from a stream's chunks and read back, node by node.

use strongroom_base::SizeLimits;
use strongroom_base::regimes::{Regime, reached_if};

use crate::entry::Entry;
use crate::format::{FormatError, pack_node, unpack_node};
use crate::reference::{ChunkRef, Recipe};
use crate::store::{CatalogError, Part, ReadChunk, WriteChunk};

/// Makes the recipe of a stream, chunk after chunk, in memory bounded by its depth.
///
/// A node ends where the stream's content decides so (after one of 128 chunks),
/// so an insertion early in a disk image leaves all later nodes unchanged.
#[derive(Debug, Default)]
pub struct RecipeBuilder {
    levels: Vec<Level>,
    stream_bytes: u64,
}

/// Nodes above this many others have the program's lengths even if a writer's are shorter: with a few
/// references in each, a long stream would have more levels than a reader accepts
/// ([`Recipe::DEPTH_MAX`]).
const LEVELS_LIMITED: usize = 5;

/// References of one level that are not yet in a node.
#[derive(Debug, Default)]
struct Level {
    refs: Vec<ChunkRef>,
    /// Where in the stream the first of them begins.
    offset: u64,
}

impl RecipeBuilder {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the stream's next chunk or hole.
    pub fn push<W: WriteChunk>(&mut self, chunk: ChunkRef, writer: &mut W) -> Result<(), W::Error> {
        self.stream_bytes = self.stream_bytes.saturating_add(chunk.stream_bytes);
        self.push_at(0, chunk, writer)
    }

    /// Bytes of the stream so far.
    pub fn stream_bytes(&self) -> u64 {
        self.stream_bytes
    }

    /// The whole stream's recipe.
    pub fn finish<W: WriteChunk>(self, writer: &mut W) -> Result<Recipe, W::Error> {
        let refs_max = writer.limits().recipe_refs_max.min(Recipe::REFS_MAX);
        self.finish_within(refs_max, writer)
    }

    /// The whole stream's recipe as one reference, or none for the empty stream: to a node if the stream has
    /// several chunks. So all of it is found from one chunk that nothing names.
    pub fn finish_as_one<W: WriteChunk>(self, writer: &mut W) -> Result<Recipe, W::Error> {
        self.finish_within(1, writer)
    }

    fn finish_within<W: WriteChunk>(
        mut self,
        refs_max: usize,
        writer: &mut W,
    ) -> Result<Recipe, W::Error> {
        let depth_min = usize::from(writer.limits().recipe_depth_min);
        let mut level = 0;
        loop {
            let is_top = level + 1 >= self.levels.len();
            let refs = self.take_refs(level);
            let is_deep = level >= depth_min || refs.is_empty();
            if is_top && is_deep && refs.len() <= refs_max {
                let depth = u8::try_from(level).expect("sixty-fold levels reach any length");
                reached_if(depth >= 1, Regime::RecipeWithNode);
                reached_if(depth >= 3, Regime::RecipeOfDepth3);
                return Ok(Recipe { depth, refs });
            }
            if !refs.is_empty() {
                self.push_node(level, &refs, writer)?;
            }
            level += 1;
        }
    }

    fn push_at<W: WriteChunk>(
        &mut self,
        level: usize,
        chunk: ChunkRef,
        writer: &mut W,
    ) -> Result<(), W::Error> {
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, Level::default);
        }
        let refs = &mut self.levels[level].refs;
        let ends_node = chunk.may_end_node();
        refs.push(chunk);
        let limits = if level < LEVELS_LIMITED { writer.limits() } else { &SizeLimits::DEFAULT };
        if refs.len() >= limits.node_refs_max || (refs.len() >= limits.node_refs_min && ends_node) {
            let node = self.take_refs(level);
            self.push_node(level, &node, writer)?;
        }
        Ok(())
    }

    fn take_refs(&mut self, level: usize) -> Vec<ChunkRef> {
        self.levels.get_mut(level).map(|level| std::mem::take(&mut level.refs)).unwrap_or_default()
    }

    fn push_node<W: WriteChunk>(
        &mut self,
        level: usize,
        refs: &[ChunkRef],
        writer: &mut W,
    ) -> Result<(), W::Error> {
        let node = pack_node(refs);
        let of_level = &mut self.levels[level];
        let nodes = u8::try_from(level + 1).expect("sixty-fold levels reach any length");
        let part = Part { level: nodes, offset: of_level.offset };
        let (fingerprint, location) = writer.write_chunk(&node, part)?;
        let stream_bytes = refs.iter().map(|chunk| chunk.stream_bytes).sum();
        of_level.offset += stream_bytes;
        self.push_at(level + 1, ChunkRef { fingerprint, location, stream_bytes }, writer)
    }
}

/// The references of a stream's chunks in stream order, read node by node. After an error it goes on behind
/// what could not be read.
pub struct RecipeReader<'r, R> {
    reader: &'r R,
    cursor: RecipeCursor,
}

impl<'r, R: ReadChunk> RecipeReader<'r, R> {
    /// From the start of the stream.
    pub fn new(recipe: &Recipe, reader: &'r R) -> Self {
        Self { reader, cursor: RecipeCursor::new(recipe) }
    }

    /// Where in the stream it goes on.
    pub fn offset(&self) -> u64 {
        self.cursor.offset()
    }

    /// Skips to the chunk that holds the stream's byte at `offset`, reading no node before it.
    pub fn seek_forward(&mut self, offset: u64) -> Result<(), CatalogError<R::Error>> {
        self.cursor.seek_forward(offset, self.reader)
    }

    /// The stream's next chunk or hole, and where in the stream it begins.
    pub fn next_chunk(&mut self) -> Result<Option<(u64, ChunkRef)>, CatalogError<R::Error>> {
        self.cursor.next_chunk(self.reader)
    }
}

/// The position of a [`RecipeReader`], without the reader: to be kept between readings.
#[derive(Debug, Clone)]
pub struct RecipeCursor {
    /// References yet to come: those of the deepest node last, each list reversed.
    levels: Vec<(u8, Vec<ChunkRef>)>,
    /// Where in the stream the next reference begins.
    offset: u64,
}

impl RecipeCursor {
    /// At the start of the stream.
    pub fn new(recipe: &Recipe) -> Self {
        let mut refs = recipe.refs.clone();
        refs.reverse();
        Self { levels: vec![(recipe.depth, refs)], offset: 0 }
    }

    /// Bytes that it takes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let refs: usize = self.levels.iter().map(|(_, refs)| refs.capacity()).sum();
        self.levels.capacity() * size_of::<(u8, Vec<ChunkRef>)>() + refs * size_of::<ChunkRef>()
    }

    /// Where in the stream the next chunk, or the node that holds it, begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Skips to the chunk that holds the stream's byte at `offset`, reading no node before it.
    pub fn seek_forward<R: ReadChunk>(
        &mut self,
        offset: u64,
        reader: &R,
    ) -> Result<(), CatalogError<R::Error>> {
        while let Some((depth, refs)) = self.levels.last_mut() {
            let Some(next) = refs.last().copied() else {
                self.levels.pop();
                continue;
            };
            let end = self.offset.saturating_add(next.stream_bytes);
            let (is_before, is_leaf) = (end <= offset, *depth == 0 || next.is_hole());
            if is_before {
                refs.pop();
                self.offset = end;
            } else if is_leaf {
                return Ok(());
            } else {
                self.descend(reader)?;
            }
        }
        Ok(())
    }

    /// The chunk or hole to which [`RecipeCursor::seek_forward`] led, and where in the stream it
    /// begins; `None` after the stream's end.
    pub fn chunk_at_hand(&self) -> Option<(u64, ChunkRef)> {
        let (_, refs) = self.levels.last()?;
        Some((self.offset, *refs.last()?))
    }

    /// The stream's next chunk or hole, and where in the stream it begins.
    pub fn next_chunk<R: ReadChunk>(
        &mut self,
        reader: &R,
    ) -> Result<Option<(u64, ChunkRef)>, CatalogError<R::Error>> {
        while let Some((depth, refs)) = self.levels.last_mut() {
            let Some(next) = refs.last().copied() else {
                self.levels.pop();
                continue;
            };
            if *depth == 0 || next.is_hole() {
                refs.pop();
                if next.stream_bytes == 0 {
                    return Err(of_no_bytes().into());
                }
                let offset = self.offset;
                self.offset = offset.saturating_add(next.stream_bytes);
                return Ok(Some((offset, next)));
            }
            self.descend(reader)?;
        }
        Ok(None)
    }

    /// Replaces the next reference by those of the node it names. Of one that cannot be read, it passes
    /// over what that names: all else keeps its place in the stream.
    fn descend<R: ReadChunk>(&mut self, reader: &R) -> Result<(), CatalogError<R::Error>> {
        let (depth, refs) = self.levels.last_mut().expect("called with a reference at hand");
        let (depth, node) = (*depth, refs.pop().expect("called with a reference at hand"));
        let mut children = read_node(&node, reader)
            .inspect_err(|_| self.offset = self.offset.saturating_add(node.stream_bytes))?;
        children.reverse();
        self.levels.push((depth - 1, children));
        Ok(())
    }
}

/// What a node names: at least one reference, each to at least a byte, and together as long as the
/// reference to the node says. So a stream of `n` bytes has at most `n` chunks.
pub fn read_node<R: ReadChunk>(
    node: &ChunkRef,
    reader: &R,
) -> Result<Vec<ChunkRef>, CatalogError<R::Error>> {
    let (found, refs) = find_node(node, reader)?;
    if found.stream_bytes != node.stream_bytes {
        let detail = "a node has another length than its reference says";
        return Err(FormatError::damaged("recipe", detail).into());
    }
    Ok(refs)
}

/// The reference to a node of which only the place is known, and what it names.
pub fn find_node<R: ReadChunk>(
    place: &ChunkRef,
    reader: &R,
) -> Result<(ChunkRef, Vec<ChunkRef>), CatalogError<R::Error>> {
    let bytes = reader.read_chunk(place).map_err(CatalogError::Chunk)?;
    let refs = unpack_node(&bytes)?;
    if refs.iter().any(|chunk| chunk.stream_bytes == 0) {
        return Err(of_no_bytes().into());
    }
    let sum = refs.iter().try_fold(0_u64, |sum, chunk| sum.checked_add(chunk.stream_bytes));
    match sum.filter(|_| !refs.is_empty()) {
        Some(stream_bytes) => Ok((ChunkRef { stream_bytes, ..*place }, refs)),
        None => Err(FormatError::damaged("recipe", "a node without a length").into()),
    }
}

/// Checks that the recipe of a file's content is for as many bytes as the file has. One for more
/// could keep its reader busy for ever.
pub fn check_length(entry: &Entry) -> Result<(), FormatError> {
    let size = entry.metadata.size;
    match entry.content().map(Recipe::stream_bytes) {
        Some(promised) if promised != size => {
            let detail = format!("it is for {promised} bytes, and the file has {size}");
            Err(FormatError::damaged("recipe", detail))
        }
        _ => Ok(()),
    }
}

fn of_no_bytes() -> FormatError {
    FormatError::damaged("recipe", "a reference to no bytes")
}

/// What [`for_each_chunk`] does at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visit {
    /// It visits what the node names.
    Into,
    /// It passes over that.
    Past,
}

/// Visits the reference of every chunk that a recipe needs, nodes before what they name, with its
/// level: 0 for a chunk of the stream. A hostile recipe may name one node without end, so `visit`
/// should pass over the nodes that it went into before.
pub fn for_each_chunk<R: ReadChunk, E: From<CatalogError<R::Error>>>(
    recipe: &Recipe,
    reader: &R,
    visit: &mut impl FnMut(&ChunkRef, u8) -> Result<Visit, E>,
) -> Result<(), E> {
    for_each_chunk_left(recipe, reader, visit, &mut |error| Err(error))
}

/// The same, which goes on behind a node that cannot be read if `lost` says so of why: what that names is
/// not visited.
pub fn for_each_chunk_left<R: ReadChunk, E: From<CatalogError<R::Error>>>(
    recipe: &Recipe,
    reader: &R,
    visit: &mut impl FnMut(&ChunkRef, u8) -> Result<Visit, E>,
    lost: &mut impl FnMut(E) -> Result<(), E>,
) -> Result<(), E> {
    let mut rest: Vec<(u8, ChunkRef)> =
        recipe.refs.iter().rev().map(|chunk| (recipe.depth, *chunk)).collect();
    while let Some((level, chunk)) = rest.pop() {
        if chunk.stream_bytes == 0 {
            lost(CatalogError::from(of_no_bytes()).into())?;
            continue;
        }
        if chunk.is_hole() {
            continue;
        }
        if visit(&chunk, level)? == Visit::Into && level > 0 {
            match read_node(&chunk, reader) {
                Ok(children) => {
                    rest.extend(children.into_iter().rev().map(|child| (level - 1, child)));
                }
                Err(error) => lost(error.into())?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
