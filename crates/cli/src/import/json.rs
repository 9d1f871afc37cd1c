//! JSON of other programs, which may hold names that are no UTF-8.

use serde::de::DeserializeOwned;

/// Reads JSON. Python writes a byte that is no UTF-8 as half of a surrogate pair, which is no JSON
/// and is taken for the character that means an unreadable one.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(text).or_else(|_| serde_json::from_str(&without_halves(text)))
}

fn without_halves(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut whole = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    while let Some(place) = rest.find('\\') {
        whole.push_str(&rest[..place]);
        rest = &rest[place..];
        let taken = match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                whole.push(char::REPLACEMENT_CHARACTER);
                rest = &rest[6..];
                continue;
            }
            (Some(_), _) => 6,
            // Another escape, of a backslash perhaps.
            (None, _) => rest.char_indices().nth(2).map_or(rest.len(), |(end, _)| end),
        };
        whole.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    whole.push_str(rest);
    whole
}

/// The UTF-16 unit of an escape at the beginning.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_pairs_are_replaced_and_all_else_is_kept() {
        for (text, value) in [
            (r#""a\udcffb""#, "a\u{fffd}b"),
            (r#""\ud83d\udc80""#, "\u{1f480}"),
            (r#""\\udcff\udcff""#, "\\udcff\u{fffd}"),
            (r#""\ud83dx\n\u00e9""#, "\u{fffd}x\n\u{e9}"),
            (r#""\udcff\ud83d\udc80\ud83d""#, "\u{fffd}\u{1f480}\u{fffd}"),
        ] {
            assert_eq!(read::<String>(text.as_bytes()).unwrap(), value, "{text}");
        }
        for text in ["\"\\", "\"\\u12", "\"\\udcff", "\\\u{e9}", ""] {
            assert!(read::<String>(text.as_bytes()).is_err(), "{text}");
        }
    }
}
