//! A listing on its way out. It waits on the disk until the client takes it: a slow client takes no memory.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use strongroom_backend::ObjectInfo;
use strongroom_remote::wire::put_info;

/// A listing of no more bytes waits in memory.
const IN_MEMORY_BYTES: usize = 64 << 10;

/// The parts of a listing.
#[derive(Default)]
pub(crate) struct Listing {
    lengths: Vec<usize>,
    memory: Vec<u8>,
    /// A file without a name, with all of it: then nothing is in memory.
    file: Option<File>,
}

impl Listing {
    /// Of these objects. A long one waits in `folder`; where no file can be written, in memory: a listing
    /// comes before every removal, which may be what makes room.
    pub(crate) fn of(infos: Vec<ObjectInfo>, folder: &Path) -> Self {
        let mut listing = Self::default();
        let mut part = Vec::new();
        for info in infos {
            if !put_info(&mut part, &info) {
                listing.push(&part, folder);
                part.clear();
                put_info(&mut part, &info);
            }
        }
        listing.push(&part, folder);
        listing
    }

    fn push(&mut self, part: &[u8], folder: &Path) {
        self.lengths.push(part.len());
        if let Some(file) = &mut self.file {
            if file.write_all(part).is_ok() {
                return;
            }
            let written = self.lengths.iter().sum::<usize>() - part.len();
            let file = self.file.take().expect("it was just there");
            self.memory = read_back(file, written).unwrap_or_default();
        }
        self.memory.extend_from_slice(part);
        if self.memory.len() > IN_MEMORY_BYTES
            && let Ok(mut file) = tempfile::tempfile_in(folder)
            && file.write_all(&self.memory).is_ok()
        {
            self.memory = Vec::new();
            self.file = Some(file);
        }
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

    #[test]
    fn what_was_listed_is_sent_in_parts_from_memory_or_from_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("is no folder");
        for count in [0, 1, 100, 20_000] {
            let info =
                |number: u64| ObjectInfo { name: ObjectName::new("arenas", number), bytes: number };
            let infos: Vec<ObjectInfo> = (0..count).map(info).collect();
            let mut sent = [folder.path(), &nowhere].map(|folder| {
                let listing = Listing::of(infos.clone(), folder);
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
}
