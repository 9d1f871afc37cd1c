//! Which of the given paths were reached, and whether anything was found there: a mount that is gone
//! is an empty directory, and no empty backup may pass for a good one.

use std::collections::BTreeMap;

/// The given paths, as far as the walk has come.
#[derive(Debug, Default)]
pub struct Sources {
    found: BTreeMap<Vec<u8>, Found>,
    /// Those that the parent lacks, and that the owner did not accept so.
    were_missing: Vec<Vec<u8>>,
    /// The given directory that the walk is in.
    inside: Option<Inside>,
}

/// What was found at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Nothing: it could not be reached.
    Nothing,
    /// It exists, with nothing in it, although there was something before.
    Emptied,
    /// What was asked for.
    It,
}

#[derive(Debug)]
struct Inside {
    path: Vec<u8>,
    /// How many directories are above it.
    depth: usize,
    /// Something was found in it.
    has_something: bool,
    /// It could not be listed, and that was reported.
    is_reported: bool,
}

impl Sources {
    /// Of these paths, none of which is below another.
    pub fn new(paths: &[Vec<u8>], were_missing: Vec<Vec<u8>>) -> Self {
        let found = paths.iter().map(|path| (path.clone(), Found::Nothing)).collect();
        Self { found, were_missing, inside: None }
    }

    /// Whether the walk is in a given directory.
    pub fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    /// The walk enters a directory that is in no given one.
    pub fn enter(&mut self, path: &[u8], depth: usize) {
        if let Some(found) = self.found.get_mut(path) {
            *found = Found::It;
            let path = path.to_vec();
            self.inside = Some(Inside { path, depth, has_something: false, is_reported: false });
        }
    }

    /// There is something in the given directory that the walk is in.
    pub fn something(&mut self) {
        if let Some(inside) = self.inside.as_mut().filter(|inside| !inside.has_something) {
            inside.has_something = true;
            self.found.insert(inside.path.clone(), Found::It);
        }
    }

    /// The walk leaves a directory with so many above it. Returns the path of a given one that is
    /// empty and was not before.
    pub fn leave(&mut self, depth: usize, was_empty: impl FnOnce() -> bool) -> Option<Vec<u8>> {
        let inside = self.inside.take_if(|inside| inside.depth == depth)?;
        let Inside { path, has_something, is_reported, .. } = inside;
        let is_known = has_something || is_reported;
        if is_known || (was_empty() && !self.were_missing.contains(&path)) {
            return None;
        }
        self.found.insert(path.clone(), Found::Emptied);
        Some(path)
    }

    /// The walk finds what is no directory, in no given one. Returns whether it was given, is empty,
    /// and was not before.
    pub fn leaf(&mut self, path: &[u8], is_empty: bool, was_empty: bool) -> bool {
        let Some(found) = self.found.get_mut(path) else { return false };
        let was_missing = self.were_missing.iter().any(|missing| missing == path);
        let is_emptied = is_empty && (!was_empty || was_missing);
        *found = if is_emptied { Found::Emptied } else { Found::It };
        is_emptied
    }

    /// Something at a path is not stored, and that was reported.
    pub fn lost(&mut self, path: &[u8]) {
        match &mut self.inside {
            Some(inside) if inside.path == path => inside.is_reported = true,
            Some(_) => return self.something(),
            None => {}
        }
        if let Some(found) = self.found.get_mut(path) {
            *found = Found::Nothing;
        }
    }

    /// A given path, if none at all was reached.
    pub fn none_reached(&self) -> Option<&[u8]> {
        let (first, _) = self.found.first_key_value()?;
        self.found.values().all(|found| *found == Found::Nothing).then_some(first)
    }

    /// Those of which nothing is stored, although something was expected.
    pub fn missing(self) -> Vec<Vec<u8>> {
        let missing = self.found.into_iter().filter(|(_, found)| *found != Found::It);
        missing.map(|(path, _)| path).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(were_missing: &[&str]) -> Sources {
        let bytes = |path: &&str| path.as_bytes().to_vec();
        let paths: Vec<Vec<u8>> = ["/a", "/b", "/file"].iter().map(bytes).collect();
        Sources::new(&paths, were_missing.iter().map(bytes).collect())
    }

    #[test]
    fn what_was_not_reached_or_was_emptied_is_missing() {
        let mut found = sources(&[]);
        assert_eq!(found.none_reached(), Some(&b"/a"[..]));
        found.enter(b"/", 0);
        assert!(!found.is_inside());
        // Entered, and it cannot be listed.
        found.enter(b"/a", 1);
        found.lost(b"/a");
        assert_eq!(found.leave(1, || panic!("that was reported")), None);
        assert!(found.none_reached().is_some());
        found.enter(b"/b", 1);
        assert_eq!(found.leave(2, || panic!("it is deeper")), None);
        assert_eq!(found.leave(1, || false), Some(b"/b".to_vec()));
        assert!(found.leaf(b"/file", true, false));
        assert_eq!(found.none_reached(), None);
        assert_eq!(found.missing(), [b"/a".to_vec(), b"/b".to_vec(), b"/file".to_vec()]);
    }

    #[test]
    fn what_has_something_or_never_had_is_not() {
        let mut found = sources(&[]);
        found.enter(b"/a", 1);
        found.something();
        found.something();
        assert_eq!(found.leave(1, || false), None);
        found.enter(b"/b", 1);
        assert_eq!(found.leave(1, || true), None, "it never had");
        assert!(!found.leaf(b"/file", false, false) && !found.leaf(b"/other", true, false));
        assert_eq!(found.missing(), Vec::<Vec<u8>>::new());
        // What was found below it although it could not be listed, or was reported, is something.
        let mut found = sources(&["/b", "/file"]);
        found.enter(b"/a", 1);
        found.lost(b"/a");
        found.something();
        assert_eq!(found.leave(1, || false), None);
        // It was missing before, and still is.
        found.enter(b"/b", 1);
        assert_eq!(found.leave(1, || true), Some(b"/b".to_vec()));
        assert!(found.leaf(b"/file", true, true));
        assert_eq!(found.missing(), [b"/b".to_vec(), b"/file".to_vec()]);
        let mut found = sources(&[]);
        found.enter(b"/a", 1);
        found.lost(b"/a/file");
        assert_eq!(found.leave(1, || false), None);
        assert_eq!(found.none_reached(), None);
    }
}
