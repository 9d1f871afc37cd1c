//! Zip archives: directories, files and symbolic links, deflated, with modes and times.
//!
//! Names are UTF-8; a name that is not is changed and reported, and so is one that a changed name has
//! already. Every name of a file with several
//! names has the content. Times are stored as UTC in the old field, to two seconds, and to one
//! second in an extended one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::rc::Rc;

use strongroom_base::Timestamp;
use strongroom_catalog::{EntryKind, Metadata, Recipe};
use zip::result::ZipError;
use zip::write::{ExtendedFileOptions, FileOptions, StreamWriter};
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::{Archive, Member, Taken};
use crate::error::EngineError;

/// The extra field of Unix times, as Info-ZIP defines it.
const EXTENDED_TIMESTAMP: u16 = 0x5455;
/// From this length on lengths need fields of eight bytes. Well below the end of four bytes,
/// because deflated bytes can be more than the original ones.
const LARGE_FILE_BYTES: u64 = (u32::MAX - (64 << 20)) as u64;
/// A member's name, its header and its extra fields have less than 64 KiB together.
const NAME_BYTES_MAX: usize = 65_000;

type Options = FileOptions<'static, 'static, ExtendedFileOptions>;

/// An archive being written to a stream.
pub struct ZipArchive<'o> {
    zip: Option<ZipWriter<StreamWriter<Out<'o>>>>,
    names: Names,
    /// The member at hand was not taken: neither is its content.
    skips: bool,
    failure: Rc<RefCell<Option<std::io::Error>>>,
}

/// The stream. Its first failure is kept for [`ZipArchive`], and from then on nothing is written to
/// it. The writer of the archive does not see the failure, because it would print it when it is
/// dropped.
struct Out<'o> {
    out: &'o mut dyn Write,
    failed: bool,
    failure: Rc<RefCell<Option<std::io::Error>>>,
}

impl Out<'_> {
    fn keep(&mut self, result: std::io::Result<()>) {
        if let Err(error) = result {
            self.failed = true;
            *self.failure.borrow_mut() = Some(error);
        }
    }
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if !self.failed {
            let written = self.out.write_all(bytes);
            self.keep(written);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if !self.failed {
            let flushed = self.out.flush();
            self.keep(flushed);
        }
        Ok(())
    }
}

impl<'o> ZipArchive<'o> {
    /// An empty archive.
    pub fn new(out: &'o mut dyn Write) -> Self {
        let failure = Rc::new(RefCell::new(None));
        let zip = ZipWriter::new_stream(Out { out, failed: false, failure: failure.clone() });
        Self { zip: Some(zip), names: Names::default(), skips: false, failure }
    }

    /// Writes the archive's end.
    pub fn finish(mut self) -> Result<(), EngineError> {
        let zip = self.zip.take().expect("an archive is finished once");
        let mut out = zip.finish().map_err(output)?.into_inner();
        out.flush().map_err(EngineError::Output)?;
        self.check()
    }

    fn zip(&mut self) -> &mut ZipWriter<StreamWriter<Out<'o>>> {
        self.zip.as_mut().expect("members come before the end")
    }

    fn check(&self) -> Result<(), EngineError> {
        self.failure.borrow_mut().take().map_or(Ok(()), |error| Err(EngineError::Output(error)))
    }
}

impl Drop for ZipArchive<'_> {
    /// An abandoned archive must not look whole: its writer would write the end.
    fn drop(&mut self) {
        std::mem::forget(self.zip.take());
    }
}

impl Archive for ZipArchive<'_> {
    fn member(&mut self, member: &Member<'_>) -> Result<Taken, EngineError> {
        let entry = member.entry;
        let is_directory = entry.is_directory();
        if is_directory && member.path == b"." {
            return Ok(Taken::Whole);
        }
        let mut taken = Taken::Whole;
        let options = options(&entry.metadata, entry.content().map_or(0, Recipe::stream_bytes));
        self.skips = true;
        if matches!(
            entry.kind,
            EntryKind::Fifo
                | EntryKind::Socket
                | EntryKind::CharDevice(_)
                | EntryKind::BlockDevice(_)
        ) {
            return Ok(Taken::Not("a special file has no place in a zip archive"));
        }
        let name = self.names.name(member.path, is_directory);
        if name.len() > NAME_BYTES_MAX {
            return Ok(Taken::Not("its name is too long for a zip archive"));
        }
        if std::str::from_utf8(member.path).is_err() {
            taken = Taken::Without("its name is no UTF-8 and is changed");
        } else if name.as_bytes() != member.path {
            taken = Taken::Without("a changed name is the same, and its name is changed too");
        }
        self.skips = false;
        let added = match &entry.kind {
            // A name that ends in a backslash would be taken for that of a directory.
            EntryKind::Directory { .. } => self.zip().add_directory(format!("{name}/"), options),
            EntryKind::Symlink { target } => {
                let text = String::from_utf8_lossy(target);
                if std::str::from_utf8(target).is_err() {
                    taken = Taken::Without("where it points is no UTF-8 and is changed");
                }
                self.zip().add_symlink(name, &*text, options)
            }
            _ => self.zip().start_file(name, options),
        };
        added.map_err(output)?;
        self.check()?;
        Ok(taken)
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), EngineError> {
        if self.skips {
            return Ok(());
        }
        self.zip().write_all(bytes).map_err(EngineError::Output)?;
        self.check()
    }
}

/// The names of members. Two that are the same once they are UTF-8 get a difference.
#[derive(Default)]
struct Names {
    /// Names that have a replacement character, as no others can be the same; and the next number that
    /// makes a further one differ.
    taken: HashMap<String, u64>,
    /// The directories above the member at hand, and their names in the archive.
    directories: Vec<(Vec<u8>, String)>,
}

impl Names {
    /// The first free one of `name`, `name~2`, `name~3`, …, in the directory as it is named.
    fn name(&mut self, path: &[u8], is_directory: bool) -> String {
        let is_above =
            |above: &[u8]| path.strip_prefix(above).is_some_and(|rest| rest.starts_with(b"/"));
        while self.directories.pop_if(|(above, _)| !is_above(above)).is_some() {}
        let wanted = match self.directories.last() {
            Some((above, name)) => name.clone() + &String::from_utf8_lossy(&path[above.len()..]),
            None => String::from_utf8_lossy(path).into_owned(),
        };
        let name = self.free(wanted);
        if is_directory {
            self.directories.push((path.to_vec(), name.clone()));
        }
        name
    }

    fn free(&mut self, wanted: String) -> String {
        if !wanted.contains(char::REPLACEMENT_CHARACTER) {
            return wanted;
        }
        let mut free = wanted.clone();
        while self.taken.contains_key(&free) {
            let next = self.taken.entry(wanted.clone()).or_insert(2);
            free = format!("{wanted}~{next}");
            *next += 1;
        }
        self.taken.insert(free.clone(), 2);
        free
    }
}

fn output(error: ZipError) -> EngineError {
    EngineError::Output(match error {
        ZipError::Io(error) => error,
        other => std::io::Error::other(other),
    })
}

fn options(metadata: &Metadata, bytes: u64) -> Options {
    let seconds = metadata.mtime.0.div_euclid(1_000_000_000);
    let mut options = Options::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(6))
        .large_file(bytes >= LARGE_FILE_BYTES)
        .unix_permissions(u32::from(metadata.mode) & 0o777)
        .last_modified_time(date_time(metadata.mtime));
    if let Ok(seconds) = i32::try_from(seconds) {
        let mut field = vec![1];
        field.extend_from_slice(&seconds.to_le_bytes());
        options
            .add_extra_field(EXTENDED_TIMESTAMP, field, false)
            .expect("nine bytes are fewer than an extra field may have");
    }
    options
}

/// The time in the old field; the nearest that it can express.
fn date_time(time: Timestamp) -> DateTime {
    let seconds = time.0.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    let of_day = |unit: i64, range: i64| u8::try_from(second / unit % range).unwrap_or(0);
    let (hour, minute) = (of_day(3600, 24), of_day(60, 60));
    let date = u16::try_from(year).ok().and_then(|year| {
        DateTime::from_date_and_time(year, month, day, hour, minute, of_day(1, 60)).ok()
    });
    date.unwrap_or_default()
}

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
///
/// Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn civil_from_days(days: i64) -> (i64, u8, u8) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let small = |number: i64| u8::try_from(number).expect("months and days are small");
    (year + era * 400 + i64::from(month <= 2), small(month), small(day))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (19_722, (2023, 12, 31)),
            (-719_468, (0, 3, 1)),
        ] {
            assert_eq!(civil_from_days(days), date, "{days}");
        }
    }

    #[test]
    fn times_that_the_old_field_cannot_tell_become_its_first() {
        let time = date_time(Timestamp(1_700_000_001_000_000_000));
        assert_eq!((time.year(), time.month(), time.day()), (2023, 11, 14));
        assert_eq!((time.hour(), time.minute(), time.second()), (22, 13, 20));
        assert_eq!(date_time(Timestamp(i64::MIN)), DateTime::default());
        assert_eq!(date_time(Timestamp(i64::MAX)), DateTime::default());
    }
}
