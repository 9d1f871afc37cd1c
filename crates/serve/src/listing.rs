//! A listing on its way out. It waits on the disk until the client takes it: a slow client takes no memory,
//! or, if the disk is full, no more than its share.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use strongroom_backend::ObjectInfo;
use strongroom_remote::wire::put_info;

use crate::limits::Kept;

/// A listing of no more bytes waits in memory.
const IN_MEMORY_BYTES: usize = 64 << 10;

/// The parts of a listing.
pub(crate) struct Listing<'l> {
    lengths: Vec<usize>,
    memory: Vec<u8>,
    /// A file without a name, with all of it: then nothing is in memory.
    file: Option<File>,
    /// What is in memory because the disk does not take it.
    kept: Kept<'l>,
}

impl<'l> Listing<'l> {
    /// Of these objects. A long one waits in `folder`; if no file can be written, in memory: a listing
    /// comes before every removal, which may be what makes room.
    ///
    /// # Errors
    ///
    /// If no file can be written, and there is no more memory for it either.
    pub(crate) fn of(infos: Vec<ObjectInfo>, folder: &Path, kept: Kept<'l>) -> io::Result<Self> {
        let mut listing = Self { lengths: Vec::new(), memory: Vec::new(), file: None, kept };
        let mut part = Vec::new();
        for info in infos {
            if !put_info(&mut part, &info) {
                listing.push(&part, folder)?;
                part.clear();
                put_info(&mut part, &info);
            }
        }
        listing.push(&part, folder)?;
        Ok(listing)
    }

    fn push(&mut self, part: &[u8], folder: &Path) -> io::Result<()> {
        self.lengths.push(part.len());
        if let Some(file) = &mut self.file {
            if file.write_all(part).is_ok() {
                return Ok(());
            }
            let bytes = self.lengths.iter().sum();
            self.hold(bytes)?;
            let file = self.file.take().expect("it was just there");
            self.memory = read_back(file, bytes - part.len())?;
        }
        self.memory.extend_from_slice(part);
        if self.memory.len() <= IN_MEMORY_BYTES {
            return Ok(());
        }
        if let Ok(mut file) = tempfile::tempfile_in(folder)
            && file.write_all(&self.memory).is_ok()
        {
            self.memory = Vec::new();
            self.file = Some(file);
        }
        self.hold(self.memory.len())
    }

    /// Takes room for what is in memory.
    fn hold(&mut self, bytes: usize) -> io::Result<()> {
        let why = "the server's disk takes no file, and too many listings wait in its memory: make room \
                   there, or try again";
        if self.kept.hold(bytes) { Ok(()) } else { Err(io::Error::other(why)) }
    }

    /// Gives each part to `send`.
    pub(crate) fn each(self, mut send: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut rest: Box<dyn Read> = match self.file {
            Some(mut file) => {
                file.rewind()?;
                Box::new(file)
            }
            None => Box::new(io::Cursor::new(self.memory)),
        };
        let mut part = Vec::new();
        for length in self.lengths {
            part.resize(length, 0);
            rest.read_exact(&mut part)?;
            send(&part)?;
        }
        Ok(())
    }
}

fn read_back(mut file: File, bytes: usize) -> io::Result<Vec<u8>> {
    let mut read = vec![0; bytes];
    file.rewind()?;
    file.read_exact(&mut read)?;
    Ok(read)
}

#[cfg(test)]
mod tests {
    use strongroom_backend::ObjectName;
    use strongroom_remote::wire::PART_BYTES_MAX;

    use super::*;
    use crate::limits::Limits;

    #[test]
    fn what_was_listed_is_sent_in_parts_from_memory_or_from_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("is no folder");
        let limits = Limits::default();
        for count in [0, 1, 100, 20_000] {
            let info =
                |number: u64| ObjectInfo { name: ObjectName::new("arenas", number), bytes: number };
            let infos: Vec<ObjectInfo> = (0..count).map(info).collect();
            let mut sent = [folder.path(), &nowhere].map(|folder| {
                let listing = Listing::of(infos.clone(), folder, limits.keep("a")).unwrap();
                let is_long = count == 20_000;
                assert_eq!(listing.file.is_some(), is_long && folder != nowhere);
                let mut sent = Vec::new();
                listing
                    .each(|part| {
                        assert!(part.len() <= PART_BYTES_MAX);
                        sent.extend_from_slice(part);
                        Ok(())
                    })
                    .unwrap();
                sent
            });
            assert!(sent[0] == sent[1]);
            let mut whole = Vec::new();
            for info in infos {
                let mut one = Vec::new();
                assert!(put_info(&mut one, &info));
                whole.append(&mut one);
            }
            assert!(std::mem::take(&mut sent[0]) == whole);
        }
    }

    #[test]
    fn on_a_full_disk_a_listing_is_refused_before_it_takes_all_memory() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("is no folder");
        let limits = Limits::default();
        let long = format!("{}-{}", "n".repeat(100), "m".repeat(90));
        let info = ObjectInfo { name: ObjectName::new("arenas", long), bytes: 1 };
        let list = |token| Listing::of(vec![info.clone(); 100_000], &nowhere, limits.keep(token));
        let waiting = list("a").unwrap();
        assert!(list("a").is_err_and(|error| error.to_string().contains("make room")));
        let of_other = list("b").unwrap();
        drop(waiting);
        drop((list("a").unwrap(), of_other));
        // On a disk that takes it nothing is held.
        let limits = Limits::default();
        let list =
            || Listing::of(vec![info.clone(); 100_000], folder.path(), limits.keep("a")).unwrap();
        drop([list(), list(), list()]);
    }
}
