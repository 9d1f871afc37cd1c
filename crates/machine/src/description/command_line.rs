//! The command line of QEMU, taken apart: options, and the properties in their values.

use serde_json::Value;

/// Options that take no value. All others take the next argument.
const WITHOUT_VALUE: [&str; 33] = [
    "h",
    "help",
    "version",
    "mem-prealloc",
    "audio-help",
    "snapshot",
    "usb",
    "nographic",
    "portrait",
    "full-screen",
    "win2k-hack",
    "no-fd-bootchk",
    "no-acpi",
    "no-hpet",
    "singlestep",
    "preconfig",
    "S",
    "s",
    "enable-kvm",
    "xen-attach",
    "xen-domid-restrict",
    "no-reboot",
    "no-shutdown",
    "daemonize",
    "old-param",
    "only-migratable",
    "semihosting",
    "nodefaults",
    "no-user-config",
    "async-teardown",
    "enable-sync-profile",
    "no-kvm",
    "curses",
];

/// The most properties that are taken from one value.
const PROPERTIES_MAX: usize = 4096;

/// An option of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument<'a> {
    /// Its name without dashes. Empty for the image of a disk that is given without an option.
    pub name: &'a str,
    /// Its value; empty if it has none.
    pub value: &'a str,
}

/// Takes a command line apart.
pub fn split(arguments: &[String]) -> Vec<Argument<'_>> {
    let mut split = Vec::new();
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        let Some(name) = argument.strip_prefix('-') else {
            split.push(Argument { name: "", value: argument });
            continue;
        };
        let name = name.strip_prefix('-').unwrap_or(name);
        let value =
            if WITHOUT_VALUE.contains(&name) { "" } else { rest.next().unwrap_or_default() };
        split.push(Argument { name, value });
    }
    split
}

/// The properties of a value: `virtio-blk-pci,drive=d0,id=vda`, or the same as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties(pub Vec<(String, String)>);

impl Properties {
    /// Takes a value apart. Its first part may be without a key, which then is `implied`.
    pub fn of(value: &str, implied: &str) -> Self {
        if value.starts_with('{')
            && let Ok(json) = serde_json::from_str(value)
        {
            let mut properties = Self::default();
            properties.add_json(String::new(), &json);
            return properties;
        }
        let mut properties = Self::default();
        for (place, part) in parts(value).into_iter().enumerate().take(PROPERTIES_MAX) {
            let (key, value) = match part.split_once('=') {
                Some((key, value)) => (key.to_owned(), value.to_owned()),
                None if place == 0 && !implied.is_empty() => (implied.to_owned(), part),
                None => (part, "on".to_owned()),
            };
            properties.0.push((key, value));
        }
        properties
    }

    /// Whether all of a value is read here as QEMU reads it: nothing of it is cut off, and what QEMU
    /// takes for JSON is JSON, which is more than QEMU asks for.
    pub fn are_all_of(value: &str) -> bool {
        let is_json = value.starts_with('{');
        let is_read = !is_json || serde_json::from_str::<Value>(value).is_ok();
        is_read && Self::of(value, "").0.len() < PROPERTIES_MAX
    }

    /// What a property is. The last one counts.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// True if a property is switched on.
    pub fn is_on(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| matches!(value, "on" | "true" | "yes" | "y"))
    }

    /// What a property is, as text of its own.
    pub fn owned(&self, key: &str) -> Option<String> {
        self.get(key).map(str::to_owned)
    }

    /// What is inside of objects gets keys with dots, as the text form has them.
    fn add_json(&mut self, key: String, value: &Value) {
        if self.0.len() >= PROPERTIES_MAX {
            return;
        }
        let inside =
            |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.add_json(inside(name), value);
                }
            }
            Value::Array(values) => {
                for (place, value) in values.iter().enumerate() {
                    self.add_json(inside(&place.to_string()), value);
                }
            }
            Value::Bool(value) => self.0.push((key, if *value { "on" } else { "off" }.to_owned())),
            Value::Number(value) => self.0.push((key, value.to_string())),
            Value::String(value) => self.0.push((key, value.clone())),
            Value::Null => {}
        }
    }
}

/// Splits at commas; two of them are one that is meant.
fn parts(value: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut rest = value.chars().peekable();
    while let Some(character) = rest.next() {
        if character != ',' {
            part.push(character);
        } else if rest.next_if_eq(&',').is_some() {
            part.push(',');
        } else {
            parts.push(std::mem::take(&mut part));
        }
    }
    parts.push(part);
    parts.retain(|part| !part.is_empty());
    parts
}

/// A size as QEMU reads it: a number and perhaps a unit, `unit` bytes without one.
pub fn size(text: &str, unit: u64) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let factor = match text[digits.len()..].trim_end_matches(['b', 'B']) {
        "" if digits.len() == text.len() => unit,
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        "t" | "T" => 1 << 40,
        _ => return None,
    };
    match digits.parse::<u64>() {
        Ok(number) => number.checked_mul(factor),
        // `1.5G` is allowed.
        Err(_) => {
            let number: f64 = digits.parse().ok()?;
            let bytes = number * factor as f64;
            (0.0..9e18).contains(&bytes).then_some(bytes as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_apart() {
        let properties = Properties::of("virtio-blk-pci,drive=a,,b,share-rw,id=vda", "driver");
        assert_eq!(properties.get("driver"), Some("virtio-blk-pci"));
        assert_eq!(properties.get("drive"), Some("a,b"));
        assert!(properties.is_on("share-rw"));
        let json = r#"{"driver":"raw","file":{"filename":"/a,b","n":1},"read-only":true,"l":[2]}"#;
        let properties = Properties::of(json, "driver");
        assert_eq!(properties.get("file.filename"), Some("/a,b"));
        assert_eq!((properties.get("file.n"), properties.get("l.0")), (Some("1"), Some("2")));
        assert!(properties.is_on("read-only"));
        assert_eq!(Properties::of("{broken", "type").get("type"), Some("{broken"));
        let arguments = ["-S", "a.img", "--smp", "2", "-m"].map(str::to_owned);
        let split = split(&arguments);
        let names: Vec<_> = split.iter().map(|option| (option.name, option.value)).collect();
        assert_eq!(names, [("S", ""), ("", "a.img"), ("smp", "2"), ("m", "")]);
    }

    #[test]
    fn sizes_have_units() {
        let cases = [
            ("512", Some(512 << 20)),
            ("2G", Some(2 << 30)),
            ("2GB", Some(2 << 30)),
            ("1.5g", Some(3 << 29)),
            ("64B", Some(64)),
            ("99999999999T", None),
            ("-1", None),
            ("1e30", None),
            ("G", None),
            ("", None),
            ("NaN", None),
            ("inf", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(size(text, 1 << 20), bytes, "{text}");
        }
    }
}
