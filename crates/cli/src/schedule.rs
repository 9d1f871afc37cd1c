//! When a profile is run by itself: a timer of systemd, or a line for cron on a machine without systemd.
//!
//! [`Calendar`] is what a person writes. `systemd.rs` and `cron.rs` turn it into files and back:
//! each writes, shows and removes what it wrote.

mod calendar;
pub mod cron;
pub mod systemd;

use std::path::{Path, PathBuf};

pub use calendar::Calendar;

/// A profile that is run by itself.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The profile.
    pub profile: String,
    /// The file that it is in.
    pub config: PathBuf,
    /// This program.
    pub program: PathBuf,
    /// When.
    pub calendar: Calendar,
    /// Up to this much later, in nanoseconds.
    pub jitter: i64,
    /// Whether the machine is woken from sleep for it.
    pub wake: bool,
    /// For the whole machine, not for one user.
    pub of_machine: bool,
    /// Names of credentials that the profile's options read from systemd.
    pub credentials: Vec<String>,
}

impl Plan {
    /// The name of its files: profiles may have any name, units may not.
    pub fn unit(&self) -> String {
        unit_name(&self.profile)
    }
}

/// The name of a profile's files, without what follows a dot.
pub fn unit_name(profile: &str) -> String {
    let mut name = "strongroom-".to_owned();
    for byte in profile.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => name.push(char::from(byte)),
            byte => name.push_str(&format!("_{byte:02x}")),
        }
    }
    name
}

/// How much later than others this machine runs a profile, in nanoseconds: always the same share of
/// the jitter, so that runs stay a day apart.
pub fn offset(jitter: i64, profile: &str) -> i64 {
    let machine = std::fs::read("/etc/machine-id").unwrap_or_default();
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in machine.iter().chain(profile.as_bytes()) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let share = (hash >> 40) as f64 / f64::from(1 << 24);
    (jitter as f64 * share) as i64
}

/// A word of a command line, quoted for a shell if it must be.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_units_are_their_profiles_own() {
        assert_eq!(unit_name("default"), "strongroom-default");
        assert_eq!(unit_name("a b/c"), "strongroom-a_20b_2fc");
        assert_ne!(unit_name("ä"), unit_name("ö"));
        assert_eq!(shell_word("a'b c"), "'a'\\''b c'");
        assert_eq!(shell_word("/usr/bin/x"), "/usr/bin/x");
    }

    #[test]
    fn a_jitter_is_within_its_bound_and_stays() {
        let hour = 3_600_000_000_000;
        let offset_of = |profile| offset(hour, profile);
        assert_eq!(offset_of("a"), offset_of("a"));
        assert!(
            (0..100).map(|n| offset(hour, &n.to_string())).all(|one| (0..=hour).contains(&one))
        );
        assert_eq!(offset(0, "a"), 0);
    }
}
