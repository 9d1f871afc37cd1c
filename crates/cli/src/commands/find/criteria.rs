//! What is looked for beside a name: sizes, times and kinds.

use clap::ValueEnum;
use strongroom_base::Timestamp;
use strongroom_base::units::parse_bytes;
use strongroom_catalog::{Entry, EntryKind};

use crate::dates;
use crate::spans;

/// Only entries of these sizes, times and kinds.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(id = "criteria", multiple = true)]
pub struct Criteria {
    /// Only files larger than +SIZE, smaller than -SIZE, of SIZE, or of SIZE..SIZE, such as +10M
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = sizes)]
    size: Option<Sizes>,
    /// Only what was changed at this time or later: a date, or a span before now, such as 36h
    #[arg(long, value_name = "TIME", value_parser = moment_or_span)]
    newer: Option<Timestamp>,
    /// Only what was changed before this time
    #[arg(long, value_name = "TIME", value_parser = moment_or_span)]
    older: Option<Timestamp>,
    /// Only files (f), directories (d), links (l), pipes (p), sockets (s) or devices (b, c)
    #[arg(long = "type", value_name = "KIND", value_delimiter = ',', hide_possible_values = true)]
    kinds: Vec<Kind>,
}

/// A kind of entry, by the letter that `find` has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    #[value(name = "f", alias = "file")]
    File,
    #[value(name = "d", aliases = ["dir", "directory"])]
    Directory,
    #[value(name = "l", aliases = ["link", "symlink"])]
    Link,
    #[value(name = "p", aliases = ["pipe", "fifo"])]
    Pipe,
    #[value(name = "s", alias = "socket")]
    Socket,
    #[value(name = "b")]
    BlockDevice,
    #[value(name = "c")]
    CharDevice,
}

impl Kind {
    fn of(entry: &Entry) -> Self {
        match entry.kind {
            EntryKind::File { .. } => Self::File,
            EntryKind::Directory { .. } => Self::Directory,
            EntryKind::Symlink { .. } => Self::Link,
            EntryKind::Fifo => Self::Pipe,
            EntryKind::Socket => Self::Socket,
            EntryKind::CharDevice(_) => Self::CharDevice,
            EntryKind::BlockDevice(_) => Self::BlockDevice,
        }
    }
}

/// Sizes from the least to the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    least: u64,
    greatest: u64,
}

fn sizes(text: &str) -> Result<Sizes, String> {
    let bytes = |text: &str| parse_bytes(text).map_err(|error| error.to_string());
    if let Some(than) = text.strip_prefix('+') {
        return Ok(Sizes { least: bytes(than)?.saturating_add(1), greatest: u64::MAX });
    }
    if let Some(than) = text.strip_prefix('-') {
        let greatest = bytes(than)?.checked_sub(1);
        return Ok(Sizes { least: 0, greatest: greatest.ok_or("nothing is smaller than 0")? });
    }
    let (least, greatest) = match text.split_once("..") {
        Some((least, "")) => (bytes(least)?, u64::MAX),
        Some((least, greatest)) => (bytes(least)?, bytes(greatest)?),
        None => (bytes(text)?, bytes(text)?),
    };
    if least > greatest {
        return Err("the first size is larger than the second".to_owned());
    }
    Ok(Sizes { least, greatest })
}

fn moment_or_span(text: &str) -> Result<Timestamp, String> {
    match spans::parse(text) {
        Ok(span) => return Ok(dates::ago(span)),
        Err(why) if spans::is_meant(text) => return Err(why),
        Err(_) => {}
    }
    let wrong = "write a date such as 2026-11-20, a time such as 2026-11-20T08:15, or a span before \
                 now such as 36h or 14d";
    dates::first_moment(text).ok_or_else(|| wrong.to_owned())
}

impl Criteria {
    /// Whether all entries meet them.
    pub fn is_none(&self) -> bool {
        let Self { size, newer, older, kinds } = self;
        size.is_none() && newer.is_none() && older.is_none() && kinds.is_empty()
    }

    /// Whether an entry meets all of them.
    pub fn fit(&self, entry: &Entry) -> bool {
        let mtime = entry.metadata.mtime;
        let has_size = |sizes: Sizes| {
            let bytes = entry.content().map(strongroom_catalog::Recipe::stream_bytes);
            bytes.is_some_and(|bytes| (sizes.least..=sizes.greatest).contains(&bytes))
        };
        self.size.is_none_or(has_size)
            && self.newer.is_none_or(|newer| mtime >= newer)
            && self.older.is_none_or(|older| mtime < older)
            && (self.kinds.is_empty() || self.kinds.contains(&Kind::of(entry)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_find_reads_them() {
        for (text, expected) in [
            ("+10M", Some((10 * 1024 * 1024 + 1, u64::MAX))),
            ("-1k", Some((0, 1023))),
            ("5", Some((5, 5))),
            ("1k..2k", Some((1024, 2048))),
            ("1k..", Some((1024, u64::MAX))),
            ("2k..1k", None),
            ("-0", None),
            ("+", None),
            ("x", None),
            ("", None),
        ] {
            let read = sizes(text).ok().map(|sizes| (sizes.least, sizes.greatest));
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn times_are_dates_or_spans() {
        for text in ["2026-11-20", "2026-11-20T08:15", "36h", "yesterday"] {
            assert!(moment_or_span(text).is_ok(), "{text}");
        }
        assert!(moment_or_span("soon").is_err());
        assert!(moment_or_span("1d") > moment_or_span("2d"));
    }
}
