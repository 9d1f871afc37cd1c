//! Sizes and durations as people read and write them.

use std::time::Duration;

/// One KiB.
pub const KIB: u64 = 1024;
/// One MiB.
pub const MIB: u64 = 1024 * KIB;
/// One GiB.
pub const GIB: u64 = 1024 * MIB;

/// `1.2 GiB`; whole bytes below one KiB.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < KIB {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `78,612`.
pub fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 file`, `78,612 files`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", count_text(count), if count == 1 { one } else { many })
}

/// `820 ms`, `9.3 s`, `4 min 05 s`, `2 h 10 min`.
pub fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..=59 => format!("{:.1} s", (duration.as_millis() / 100) as f64 / 10.0),
        60..=3599 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a size: write a number with an optional unit, such as 500, 64K, 10MiB, 2G")]
pub struct ParseBytesError(String);

/// Reads `500`, `64K`, `10MiB`, `1.5 GB`. Units are binary, as everywhere in Strongroom.
pub fn parse_bytes(text: &str) -> Result<u64, ParseBytesError> {
    let wrong = || ParseBytesError(text.to_owned());
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit.trim().to_ascii_lowercase();
    let power = match unit.trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(wrong()),
    };
    let scale = 1024_u64.pow(power);
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(wrong);
    }
    let value = number.parse::<f64>().map_err(|_| wrong())? * scale as f64;
    if value.is_finite() && value < u64::MAX as f64 { Ok(value as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_written() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_023_999, "1.0 MiB"),
            (GIB * 5 / 4, "1.2 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes_text(bytes), text);
        }
        for (text, bytes) in [
            ("500", 500),
            ("64K", 64 * KIB),
            ("10MiB", 10 * MIB),
            ("1.5 GB", GIB * 3 / 2),
            ("0", 0),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "1X", "-1", "1e3", "99999999999P", "1.2.3"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_and_durations() {
        assert_eq!(count_text(0), "0");
        assert_eq!(count_text(1_234_567), "1,234,567");
        assert_eq!(counted(1, "entry", "entries"), "1 entry");
        assert_eq!(counted(0, "entry", "entries"), "0 entries");
        assert_eq!(duration_text(Duration::from_millis(820)), "820 ms");
        assert_eq!(duration_text(Duration::from_millis(9_399)), "9.3 s");
        assert_eq!(duration_text(Duration::from_secs(245)), "4 min 05 s");
        assert_eq!(duration_text(Duration::from_secs(7_800)), "2 h 10 min");
    }
}
