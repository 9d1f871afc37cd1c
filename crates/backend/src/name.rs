//! Names of objects.

use std::fmt;

/// An object's name: `config`, or `folder/file`, of lower-case letters, digits, `-` and `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(String);

impl ObjectName {
    /// An object at the repository's top.
    pub fn top(file: &str) -> Self {
        Self::checked(file.to_owned())
    }

    /// An object in a folder.
    pub fn new(folder: &str, file: impl fmt::Display) -> Self {
        Self::checked(format!("{folder}/{file}"))
    }

    /// The name that a listing gave, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        is_name(text).then(|| Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folder, empty at the top.
    pub fn folder(&self) -> &str {
        self.0.split_once('/').map_or("", |(folder, _)| folder)
    }

    /// The part after the folder.
    pub fn file(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, file)| file)
    }

    fn checked(text: String) -> Self {
        assert!(is_name(&text), "our own code names objects: {text:?}");
        Self(text)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_name(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part.len() <= 200
            && !part.starts_with('.')
            && part.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
    };
    match text.split_once('/') {
        Some((folder, file)) => part(folder) && part(file),
        None => part(text),
    }
}

#[cfg(test)]
mod tests {
    use super::ObjectName;

    #[test]
    fn only_names_are_names() {
        for good in ["config", "arenas/00ff", "keys/a-b.c"] {
            assert_eq!(ObjectName::parse(good).map(|n| n.to_string()).as_deref(), Some(good));
        }
        for bad in ["", "/", "a/", "/a", "a/b/c", "..", "a/..", ".tmp", "a/.tmp-1", "A", "a b"] {
            assert_eq!(ObjectName::parse(bad), None, "{bad}");
        }
        let name = ObjectName::new("arenas", "00");
        assert_eq!((name.folder(), name.file()), ("arenas", "00"));
        assert_eq!(ObjectName::top("config").folder(), "");
    }
}
