//! Splits streams into pieces of whole chunks: reads, cuts, and names them.

use strongroom_base::{Fingerprint, Fingerprinter};
use strongroom_chunk::{AlignedChunker, Chunker, Key, Limits};

use crate::config::{NAMING_FINGERPRINT, NAMING_LOCATION, StreamChunker, StreamKind};
use crate::error::RepositoryError;
use crate::repository::Repository;

/// Bytes read at a time: well above the length of a chunk.
pub const PIECE_BYTES: usize = 1 << 20;

/// Some chunks of a stream, one after another.
#[derive(Debug)]
pub struct Piece {
    bytes: Vec<u8>,
    /// Where each chunk ends, and its name.
    chunks: Vec<(usize, Fingerprint)>,
}

/// Cuts streams and names their chunks.
#[derive(Clone)]
pub struct StreamCutter {
    rule: Rule,
    fingerprinter: Fingerprinter,
}

/// Where streams are cut.
#[derive(Clone, Copy)]
enum Rule {
    /// Anywhere.
    Content(Chunker),
    /// At pages.
    Aligned(AlignedChunker),
}

impl Rule {
    fn limits(&self) -> Limits {
        match self {
            Self::Content(chunker) => chunker.limits(),
            Self::Aligned(chunker) => chunker.limits(),
        }
    }

    fn cut(&self, window: &[u8], at_end: bool) -> Option<usize> {
        match self {
            Self::Content(chunker) => chunker.cut(window, at_end),
            Self::Aligned(chunker) => chunker.cut(window, at_end),
        }
    }
}

/// Fills a buffer from its start; returns how many bytes it got, and whether they were the last.
type Fill<'f, E> = dyn FnMut(&mut [u8]) -> Result<(usize, bool), E> + 'f;

impl Piece {
    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The chunks in order, each with its name.
    pub fn chunks(&self) -> impl Iterator<Item = (&[u8], Fingerprint)> {
        let starts = std::iter::once(0).chain(self.chunks.iter().map(|(end, _)| *end));
        let ranges = starts.zip(&self.chunks);
        ranges.map(|(start, (end, fingerprint))| (&self.bytes[start..*end], *fingerprint))
    }
}

impl StreamCutter {
    /// Cuts files by the rules of a repository, and names their chunks. Fails if the repository has
    /// rules that this program does not know: it can be read, but not written.
    pub fn of_files(repository: &Repository) -> Result<Self, RepositoryError> {
        Self::of(repository, StreamKind::Files)
    }

    /// The same for what of a disk belongs to no file.
    pub fn of_images(repository: &Repository) -> Result<Self, RepositoryError> {
        Self::of(repository, StreamKind::Images)
    }

    /// The same for memory, of which only the names are used: it is cut at fixed places.
    pub fn of_memory(repository: &Repository) -> Result<Self, RepositoryError> {
        Self::of(repository, StreamKind::Memory)
    }

    fn of(repository: &Repository, kind: StreamKind) -> Result<Self, RepositoryError> {
        let unknown = |what, number| RepositoryError::Unknown { what, number };
        let config = &repository.config;
        if ![NAMING_FINGERPRINT, NAMING_LOCATION].contains(&config.naming) {
            return Err(unknown("naming of chunks", config.naming.into()));
        }
        repository.check_mode()?;
        let StreamChunker { algorithm, limits } = config.chunker(kind);
        let naming = &repository.write_keys().naming;
        let key = Key::from_bytes(&naming.chunker_key);
        let rule = match algorithm {
            Chunker::ALGORITHM => Rule::Content(Chunker::new(limits, key)),
            AlignedChunker::ALGORITHM => {
                let chunker = AlignedChunker::new(limits, key);
                Rule::Aligned(chunker.map_err(|_| unknown("limits of chunks", algorithm))?)
            }
            other => return Err(unknown("chunker", other)),
        };
        Ok(Self::new(rule, naming.data.clone()))
    }

    /// A cutter with a repository's rule and names.
    fn new(rule: Rule, fingerprinter: Fingerprinter) -> Self {
        assert!(rule.limits().max() <= PIECE_BYTES, "a chunk is well within a piece");
        Self { rule, fingerprinter }
    }

    /// The name of a chunk.
    pub fn fingerprint(&self, chunk: &[u8]) -> Fingerprint {
        self.fingerprinter.fingerprint(chunk)
    }

    /// Reads to the end of a stream of about `expected` bytes, and passes it on piece by piece. An
    /// error of `give` ends it.
    pub fn cut<E>(
        &self,
        expected: u64,
        read: &mut Fill<'_, E>,
        give: &mut dyn FnMut(Piece) -> Result<(), E>,
    ) -> Result<(), E> {
        let room = usize::try_from(expected).unwrap_or(usize::MAX).clamp(1, PIECE_BYTES);
        // What no chunk of the piece before has.
        let mut rest: Vec<u8> = Vec::new();
        let mut at_end = false;
        while !at_end {
            // All pieces of a long stream take the same memory: where one was, the next fits.
            let most = if rest.is_empty() { 0 } else { self.rule.limits().max() };
            let mut bytes = Vec::with_capacity(most + room);
            bytes.extend_from_slice(&rest);
            let mut filled = bytes.len();
            bytes.resize(filled + room, 0);
            let (count, is_last) = read(&mut bytes[filled..])?;
            filled += count;
            bytes.truncate(filled);
            at_end = is_last;
            let mut chunks = Vec::new();
            let mut cut = 0;
            while let Some(length) = self.rule.cut(&bytes[cut..], at_end) {
                let fingerprint = self.fingerprinter.fingerprint(&bytes[cut..cut + length]);
                cut += length;
                chunks.push((cut, fingerprint));
            }
            rest.clear();
            rest.extend_from_slice(&bytes[cut..]);
            bytes.truncate(cut);
            if !chunks.is_empty() {
                give(Piece { bytes, chunks })?;
            }
        }
        assert!(rest.is_empty(), "at the end of a stream the chunker leaves nothing");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use strongroom_chunk::{Key, Limits};

    use super::*;

    /// A stream has the same chunks however it is read.
    #[test]
    fn pieces_are_the_stream() {
        let fingerprinter = strongroom_base::NamingSecret([5; 32]).keys().data.clone();
        let chunker =
            Chunker::new(Limits::new(4 << 10, 12 << 10).unwrap(), Key::from_bytes(&[7; 8]));
        let cutter = StreamCutter::new(Rule::Content(chunker), fingerprinter.clone());
        let mut stream = vec![0; 3_000_017];
        blake3::Hasher::new().finalize_xof().fill(&mut stream);
        for length in [0, 1, 5000, 70_000, 1 << 20, (1 << 20) + 1, 3_000_017] {
            for step in [1000, 777_777, usize::MAX] {
                let stream = &stream[..length];
                let mut at = 0;
                let mut read = |buffer: &mut [u8]| {
                    let count = buffer.len().min(step).min(length - at);
                    buffer[..count].copy_from_slice(&stream[at..at + count]);
                    at += count;
                    Ok::<_, std::convert::Infallible>((count, at == length))
                };
                let mut found: Vec<Vec<u8>> = Vec::new();
                let mut give = |piece: Piece| {
                    for (chunk, fingerprint) in piece.chunks() {
                        assert_eq!(fingerprint, fingerprinter.fingerprint(chunk));
                        found.push(chunk.to_vec());
                    }
                    Ok(())
                };
                cutter.cut(length as u64, &mut read, &mut give).unwrap();
                let whole: Vec<&[u8]> = chunker.split(stream).collect();
                assert!(found == whole, "{length} bytes by {step}");
            }
        }
    }
}
