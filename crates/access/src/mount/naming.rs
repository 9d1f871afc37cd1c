//! How hosts, paths and moments become names of directories at the top of a mount.
//!
//! The names depend on the snapshot alone, and differ if hosts or paths differ:
//!
//! - A host's name is kept, but `/` becomes `%2F`, `%` becomes `%25`, and bytes below
//!   0x20 and 0x7f likewise become `%` and two digits.
//! - A path loses its leading `/`, and every other `/` becomes `_`: `/home/me` is `home_me`, and
//!   `/` itself is `_`. What would be ambiguous is escaped: `_` becomes `%5F`, `,` becomes `%2C`,
//!   `%` becomes `%25`. Several paths are joined by `,`.
//! - Nothing at all (an empty host, no paths) is `%none`; `.` and `..` are `%2E` and `%2E.`.
//! - A name longer than 255 bytes, which Linux could not show, is cut to 238 bytes, and `~` and
//!   sixteen digits of its FNV-1a hash are appended.

use jiff::tz::TimeZone;
use strongroom_base::Timestamp;

/// The longest name of a directory.
const NAME_BYTES_MAX: usize = 255;
/// How much is kept of a name that is too long, before `~` and sixteen digits.
const NAME_BYTES_KEPT: usize = NAME_BYTES_MAX - 17;
/// For an empty host and for no paths; no escape has this form.
const NONE: &[u8] = b"%none";

/// The name of a host's directory.
pub fn host_name(host: &str) -> Vec<u8> {
    let mut name = Vec::with_capacity(host.len());
    put_escaped(&mut name, host.as_bytes(), b"/%");
    finish(name)
}

/// The name of the directory of all snapshots of the same paths.
pub fn paths_name(paths: &[Vec<u8>]) -> Vec<u8> {
    let mut name = Vec::new();
    for (place, path) in paths.iter().enumerate() {
        if place > 0 {
            name.push(b',');
        }
        put_path(&mut name, path);
    }
    finish(name)
}

fn put_path(name: &mut Vec<u8>, path: &[u8]) {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    if path.is_empty() {
        return name.push(b'_');
    }
    for (place, component) in path.split(|byte| *byte == b'/').enumerate() {
        if place > 0 {
            name.push(b'_');
        }
        put_escaped(name, component, b"_,%");
    }
}

fn put_escaped(name: &mut Vec<u8>, bytes: &[u8], special: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if special.contains(&byte) || byte.is_ascii_control() {
            let digits = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
            name.extend_from_slice(&[b'%', digits[0], digits[1]]);
        } else {
            name.push(byte);
        }
    }
}

fn finish(mut name: Vec<u8>) -> Vec<u8> {
    match name.as_slice() {
        b"" => return NONE.to_vec(),
        b"." => return b"%2E".to_vec(),
        b".." => return b"%2E.".to_vec(),
        _ => {}
    }
    if name.len() > NAME_BYTES_MAX {
        let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        name.truncate(NAME_BYTES_KEPT);
        name.extend_from_slice(format!("~{hash:016x}").as_bytes());
    }
    name
}

/// A moment as the names of directories, in one time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MomentNames {
    /// `2026-07-30T23-59-01`: sorted by time, and fit for every file system and shell.
    pub moment: String,
    /// `2026`.
    pub year: String,
    /// `07`.
    pub month: String,
    /// `30`.
    pub day: String,
    /// `235901`.
    pub time: String,
}

impl MomentNames {
    /// The names of a moment.
    pub fn new(moment: Timestamp, zone: &TimeZone) -> Self {
        let instant = jiff::Timestamp::from_nanosecond(i128::from(moment.0))
            .expect("64 bits of nanoseconds end in 2262, jiff's years end in 9999");
        let civil = zone.to_datetime(instant);
        let (year, month, day) = (civil.year(), civil.month(), civil.day());
        let (hour, minute, second) = (civil.hour(), civil.minute(), civil.second());
        Self {
            moment: format!("{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}"),
            year: format!("{year:04}"),
            month: format!("{month:02}"),
            day: format!("{day:02}"),
            time: format!("{hour:02}{minute:02}{second:02}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_paths(paths: &[&str], name: &str) {
        let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        assert_eq!(String::from_utf8_lossy(&paths_name(&paths)), name, "{paths:?}");
    }

    #[test]
    fn paths_are_joined_without_mistaking_one_for_another() {
        check_paths(&["/home/me"], "home_me");
        check_paths(&["/"], "_");
        check_paths(&[], "%none");
        check_paths(&["/srv/my_data"], "srv_my%5Fdata");
        check_paths(&["/etc", "/home/me"], "etc,home_me");
        check_paths(&["/a,b", "/50%"], "a%2Cb,50%25");
        check_paths(&["/a\nb"], "a%0Ab");
        check_paths(&["/", "/boot"], "_,boot");
        assert_eq!(paths_name(&[b"/\xff\xfe".to_vec()]), b"\xff\xfe");
    }

    #[test]
    fn hosts_are_never_paths() {
        for (host, name) in [
            ("laptop", "laptop"),
            ("a/b", "a%2Fb"),
            ("..", "%2E."),
            (".", "%2E"),
            ("", "%none"),
            ("my_host", "my_host"),
        ] {
            assert_eq!(String::from_utf8_lossy(&host_name(host)), name);
        }
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let one = paths_name(&[vec![b'x'; 400]]);
        let two = paths_name(&[vec![b'x'; 401]]);
        assert_eq!((one.len(), two.len()), (NAME_BYTES_MAX, NAME_BYTES_MAX));
        assert_ne!(one, two);
    }

    #[test]
    fn moments_are_told_in_the_zone() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let names = MomentNames::new(Timestamp(1_785_448_741_999_999_999), &zone);
        assert_eq!(names.moment, "2026-07-30T23-59-01");
        assert_eq!((names.year.as_str(), names.month.as_str()), ("2026", "07"));
        assert_eq!((names.day.as_str(), names.time.as_str()), ("30", "235901"));
        let before = MomentNames::new(Timestamp(-1), &TimeZone::UTC);
        assert_eq!(before.moment, "1969-12-31T23-59-59");
    }
}
