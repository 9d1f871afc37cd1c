//! Which of the given paths were reached, and whether anything was found there: a mount that is gone
//! is an empty directory, or none, and no empty backup may pass for a good one. And what below them the
//! last snapshot had and this one could not read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use strongroom_source::LeafKind;

/// What is said of a source that has lost all.
pub const EMPTIED: &str = "it is empty, and was not at the last backup: see whether it is mounted, and \
     whether what fills it works";
/// What is said of a directory that is there, without most of what was in it.
const REPLACED: &str = "most of what was in it is not there any more: see whether it is mounted";
/// What is said of a mount that is gone with the directory that it was mounted at.
pub const UNMOUNTED: &str = "what was mounted there at the last backup is gone, and the directory with it: see whether it is \
     mounted; if it is meant so, `strongroom forget --accept`";

/// What is said of a directory whose names are encrypted, and were not at the last backup.
pub const WITHOUT_KEY: &str = "it is encrypted, and its key is not there: what its files hold is \
     not stored; see whether it is unlocked";

/// What is said of a stream without a byte that is stored for the first time.
pub const EMPTY_STREAM: &str =
    "it is empty: see whether what makes it works; if it may be so, `strongroom forget --accept`";

/// Why nothing is stored of a given path that is no directory.
pub fn why_nothing(kind: &LeafKind, path: &Path) -> &'static str {
    match kind {
        LeafKind::File => EMPTIED,
        LeafKind::Symlink { .. } if path.exists() => {
            "it is a symbolic link, and only the link is stored: name what it leads to, or end the path \
             with a slash"
        }
        LeafKind::Symlink { .. } => {
            "it is a symbolic link that leads nowhere: see whether that is mounted"
        }
        LeafKind::Fifo => {
            "it is a named pipe, which has no content: `strongroom backup --stdin` stores a stream"
        }
        LeafKind::Socket => "it is a socket, which has no content",
        LeafKind::CharDevice(_) | LeafKind::BlockDevice(_) => {
            "it is a device, whose content is not stored: `strongroom image backup` stores that of a disk"
        }
    }
}

/// At most this many paths are recorded as missing, and this many bytes of them; instead of more, the
/// directories above them.
const MISSING_MAX: usize = 64;
const MISSING_BYTES_MAX: usize = 16 << 10;
/// At most this many are remembered during the walk.
const UNREAD_MAX: usize = 64 * MISSING_MAX;
/// At most this many directories are remembered of which most names are gone.
const TURNED_MAX: usize = 1 << 16;
/// The names in at most this many are looked for in the parent: each is found from the root on.
const NAMED_MAX: usize = 1024;
/// At most this many bytes of paths and names are recorded: beside its paths, a snapshot has room for them.
const RECORD_BYTES_MAX: usize = 512 << 10;

/// What was missing: paths, and beside each some names that were in it.
pub type Missing = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// The given paths, as far as the walk has come.
#[derive(Debug, Default)]
pub struct Sources {
    found: BTreeMap<Vec<u8>, Found>,
    /// Those at and below the given ones that the parent lacks, and that the owner did not accept so,
    /// and names that were in them.
    were_missing: Missing,
    /// Those at and below the given ones of which something is not stored that was expected.
    unread: BTreeSet<Vec<u8>>,
    /// More than this many of them are brought to fewer.
    unread_max: usize,
    /// Directories at and below the given ones that are encrypted, and there is no key to them.
    locked: BTreeSet<Vec<u8>>,
    /// Directories at and below the given ones of which most names are gone.
    turned: BTreeSet<Vec<u8>>,
    /// By directory, the names of what was mounted and is gone since before the parent.
    unmounted: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
    /// Directories below given ones that the parent lacks, which the walk is in, with their depths: so
    /// far they are empty.
    empty_again: Vec<(Vec<u8>, usize)>,
    /// Directories that the walk is in and of which it is not certain that they are those that they
    /// were.
    in_doubt: Vec<InDoubt>,
    /// The given directory that the walk is in.
    inside: Option<Inside>,
}

/// A directory that the parent lacks, or that was another one then, such as a mount that is gone: it is
/// the same one if most of the names that were in it are there.
#[derive(Debug)]
struct InDoubt {
    path: Vec<u8>,
    /// How many directories are above it.
    depth: usize,
    names: Vec<Vec<u8>>,
    /// How many of them were found.
    found: usize,
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

/// A directory of which nothing is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// A given one that is empty and was not before, or one at or below it without what was in it; and
    /// what is to be said.
    Emptied(Vec<u8>, &'static str),
    /// A given one that is empty, as it was before or from the first time on.
    Empty(Vec<u8>),
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
    pub fn new(paths: &[Vec<u8>], were_missing: Missing) -> Self {
        let found = paths.iter().map(|path| (path.clone(), Found::Nothing)).collect();
        Self { found, were_missing, unread_max: UNREAD_MAX, ..Self::default() }
    }

    /// Whether the walk is in a given directory.
    pub fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    /// The walk enters a directory that is in no given one.
    pub fn enter(&mut self, path: &[u8], depth: usize) {
        self.doubt_missing(path, depth);
        if let Some(found) = self.found.get_mut(path) {
            *found = Found::It;
            let path = path.to_vec();
            self.inside = Some(Inside { path, depth, has_something: false, is_reported: false });
        }
    }

    /// The walk enters a directory below the given one that it is in.
    pub fn enter_below(&mut self, path: &[u8], depth: usize) {
        self.something();
        self.doubt_missing(path, depth);
        if self.were_missing.contains_key(path) {
            self.empty_again.push((path.to_vec(), depth));
        }
    }

    fn doubt_missing(&mut self, path: &[u8], depth: usize) {
        if let Some(names) = self.were_missing.get(path).filter(|names| !names.is_empty()) {
            self.doubt(path, depth, names.clone());
        }
    }

    /// The directory that was entered may be another one than it was when it had these names.
    pub fn doubt(&mut self, path: &[u8], depth: usize, names: Vec<Vec<u8>>) {
        let is_doubted = self.in_doubt.last().is_some_and(|last| last.depth == depth);
        if !is_doubted && self.has_given(path) {
            self.in_doubt.push(InDoubt { path: path.to_vec(), depth, names, found: 0 });
        }
    }

    /// There is an entry of this name, with this many directories above it.
    pub fn name(&mut self, depth: usize, name: &[u8]) {
        if let Some(last) = self.in_doubt.last_mut().filter(|last| last.depth + 1 == depth) {
            last.found += usize::from(last.names.iter().any(|known| known == name));
        }
    }

    /// There is something in the given directory that the walk is in.
    pub fn something(&mut self) {
        self.empty_again.clear();
        self.something_inside();
    }

    fn something_inside(&mut self) {
        if let Some(inside) = self.inside.as_mut().filter(|inside| !inside.has_something) {
            inside.has_something = true;
            self.found.insert(inside.path.clone(), Found::It);
        }
    }

    /// The walk leaves a directory at this depth. Returns it if nothing of it is stored, or too little of
    /// what was in it.
    pub fn leave(&mut self, depth: usize, was_empty: impl FnOnce() -> bool) -> Option<Left> {
        let doubted = self.in_doubt.pop_if(|doubted| doubted.depth == depth);
        let is_another = |doubted: &InDoubt| 2 * doubted.found < doubted.names.len();
        if let Some(InDoubt { path, .. }) = doubted.filter(is_another) {
            let again = self.empty_again.pop_if(|(_, at)| *at == depth);
            let inside = self.inside.take_if(|inside| inside.depth == depth);
            let is_empty = again.is_some() || inside.is_some_and(|inside| !inside.has_something);
            self.unread.insert(path.clone());
            return Some(Left::Emptied(path, if is_empty { EMPTIED } else { REPLACED }));
        }
        if let Some((path, _)) = self.empty_again.pop_if(|(_, at)| *at == depth) {
            self.unread.insert(path.clone());
            return Some(Left::Emptied(path, EMPTIED));
        }
        let inside = self.inside.take_if(|inside| inside.depth == depth)?;
        let Inside { path, has_something, is_reported, .. } = inside;
        if has_something || is_reported {
            return None;
        }
        if was_empty() && !self.were_missing.contains_key(&path) {
            return Some(Left::Empty(path));
        }
        self.found.insert(path.clone(), Found::Emptied);
        Some(Left::Emptied(path, EMPTIED))
    }

    /// The walk finds what is no directory, in no given one. Returns whether it was given, and has
    /// nothing of what is expected of it: it has no content, and that is not as before.
    pub fn leaf(&mut self, path: &[u8], has_nothing: bool, had_nothing: bool) -> bool {
        let Some(found) = self.found.get_mut(path) else { return false };
        let was_missing = self.were_missing.contains_key(path);
        let is_emptied = has_nothing && (!had_nothing || was_missing);
        *found = if is_emptied { Found::Emptied } else { Found::It };
        is_emptied
    }

    /// Whether a path is a given one, or below one.
    pub fn has_given(&self, path: &[u8]) -> bool {
        at_and_above(path).any(|path| self.found.contains_key(path))
    }

    /// What was mounted and is gone with its directory is missing until the owner accepts it, and not once
    /// alone: for those who hear of that.
    pub fn remember_unmounted(&mut self) {
        let had_names = self.were_missing.iter().filter(|(_, names)| !names.is_empty());
        for (path, _) in had_names {
            let names = self.unmounted.entry(parent_of(path).to_vec()).or_default();
            names.insert(name_of(path).to_vec());
        }
    }

    /// The names in a directory of what was mounted and is gone since before the parent.
    pub fn unmounted_in(&self, directory: &[u8]) -> BTreeSet<Vec<u8>> {
        self.unmounted.get(directory).cloned().unwrap_or_default()
    }

    /// Whether the parent lacks something at a path.
    pub fn was_missing(&self, path: &[u8]) -> bool {
        self.were_missing.contains_key(path)
    }

    /// What was mounted at a path at or below a given one is gone, and the path with it. Returns whether
    /// that is to be said.
    pub fn unmounted(&mut self, path: &[u8]) -> bool {
        let given = at_and_above(path).find(|path| self.found.contains_key(*path));
        let is_expected = given.is_some_and(|given| !comes_and_goes(path, given));
        if is_expected {
            self.note_unread(path.to_vec());
        }
        is_expected
    }

    /// A file at this path is encrypted, and there is no key to it. Below the directory that a key is of, all
    /// names are encrypted too, and that directory is noted.
    pub fn locked(&mut self, path: &[u8]) {
        let is_readable = |path: &&[u8]| !is_without_key(name_of(path));
        let directory = at_and_above(path).skip(1).find(is_readable).unwrap_or(b"/");
        if self.locked.len() < UNREAD_MAX && self.has_given(directory) {
            self.locked.insert(directory.to_vec());
        }
    }

    /// The walk found fewer names in a directory than are gone since the parent.
    pub fn turned(&mut self, directory: &[u8]) {
        if self.turned.len() < TURNED_MAX {
            self.turned.insert(directory.to_vec());
        }
    }

    /// The directories without a key that had other names when they were stored: those are missing.
    pub fn without_key(&mut self) -> Vec<Vec<u8>> {
        let mut found = std::mem::take(&mut self.locked);
        found.retain(|path| self.turned.contains(path) && !self.unread.contains(path));
        found.iter().for_each(|path| self.note_unread(path.clone()));
        found.into_iter().collect()
    }

    /// Something at a path is not stored, and that was reported.
    pub fn lost(&mut self, path: &[u8]) {
        match &mut self.inside {
            Some(inside) if inside.path == path => inside.is_reported = true,
            // A file that was read ahead may be in a directory that the walk has left.
            Some(inside) if is_at_or_below(path, &inside.path) => {
                self.is_not_empty(path);
                return self.something_inside();
            }
            _ => {}
        }
        if let Some(found) = self.found.get_mut(path) {
            *found = Found::Nothing;
        }
    }

    /// The directories that the walk is in and that this path is in have something.
    fn is_not_empty(&mut self, path: &[u8]) {
        self.empty_again.retain(|(directory, _)| !is_at_or_below(path, directory));
    }

    /// Something at or below a given path exists and could not be read. It is expected if the parent
    /// had something there, or lacked it already.
    pub fn unread(&mut self, path: &[u8], was_there: impl FnOnce() -> bool) {
        self.is_not_empty(path);
        if !self.has_given(path) {
            return;
        }
        let above = at_and_above(path).filter(|path| self.were_missing.contains_key(*path));
        let above: Vec<Vec<u8>> = above.map(<[u8]>::to_vec).collect();
        let is_known = !above.is_empty();
        let begin = [path.strip_suffix(b"/").unwrap_or(path), b"/"].concat();
        let is_below = |missing: &&Vec<u8>| missing.starts_with(&begin);
        let below = self.were_missing.range(begin.clone()..).map(|(missing, _)| missing);
        self.unread.extend(below.take_while(is_below).cloned().chain(above));
        if !is_known && was_there() {
            self.note_unread(path.to_vec());
        }
    }

    fn note_unread(&mut self, path: Vec<u8>) {
        self.unread.insert(path);
        if self.unread.len() > self.unread_max {
            let unread = std::mem::take(&mut self.unread);
            self.unread = self.bounded(unread);
            // Given ones are not brought to fewer.
            self.unread_max = UNREAD_MAX.max(2 * self.unread.len());
        }
    }

    /// A given path, if none at all was reached.
    pub fn none_reached(&self) -> Option<&[u8]> {
        let (first, _) = self.found.first_key_value()?;
        self.found.values().all(|found| *found == Found::Nothing).then_some(first)
    }

    /// Those of which something is not stored that was expected: given ones, and such as are below.
    /// Beside each some names that were in it: those that are known from the time before the parent, or
    /// those that `names_of` gives.
    pub fn missing(mut self, names_of: impl Fn(&[u8]) -> Vec<Vec<u8>>) -> Missing {
        let mut known = std::mem::take(&mut self.were_missing);
        known.retain(|_, names| !names.is_empty());
        let names = |(place, path): (usize, Vec<u8>)| {
            let names =
                known.remove(&path).or_else(|| (place < NAMED_MAX).then(|| names_of(&path)));
            (path, names.unwrap_or_default())
        };
        let missing = self.found.iter().filter(|(_, found)| **found != Found::It);
        let missing: BTreeSet<Vec<u8>> = missing.map(|(path, _)| path.clone()).collect();
        let unread = self.unread.iter().cloned();
        let missing = self.bounded(missing.into_iter().chain(unread).collect());
        in_record(missing.into_iter().enumerate().map(names))
    }

    /// The same with directories instead of what is below them, until these are few: as long as
    /// something below one cannot be read, the directory counts as missing.
    fn bounded(&self, mut paths: BTreeSet<Vec<u8>>) -> BTreeSet<Vec<u8>> {
        let depth = |path: &[u8]| path.iter().filter(|byte| **byte == b'/').count();
        loop {
            let all = paths.clone();
            let is_in_another = |path: &[u8]| at_and_above(path).skip(1).any(|at| all.contains(at));
            paths.retain(|path| !is_in_another(path));
            let bytes: usize = paths.iter().map(Vec::len).sum();
            let may_rise = |path: &Vec<u8>| !self.found.contains_key(path);
            let deepest = paths.iter().filter(|path| may_rise(path)).map(|path| depth(path)).max();
            let Some(deepest) = deepest else { return paths };
            if paths.len() <= MISSING_MAX && bytes <= MISSING_BYTES_MAX {
                return paths;
            }
            let rise = |path: Vec<u8>| match may_rise(&path) && depth(&path) == deepest {
                true => parent_of(&path).to_vec(),
                false => path,
            };
            paths = paths.into_iter().map(rise).collect();
        }
    }
}

/// Whether a path is another one, or below it.
fn is_at_or_below(path: &[u8], above: &[u8]) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || above == b"/" || rest[0] == b'/')
}

/// A path and the directories above it, the nearest first.
fn at_and_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(path), |path| (*path != b"/").then(|| parent_of(path)))
}

/// As many as a snapshot has room for, and of each the names as long as there is room. That there are any
/// never gets lost.
fn in_record(missing: impl Iterator<Item = (Vec<u8>, Vec<Vec<u8>>)>) -> Missing {
    let mut room = RECORD_BYTES_MAX;
    let mut take = |bytes: usize| {
        let fits = bytes <= room;
        room -= if fits { bytes } else { 0 };
        fits
    };
    let mut record = Missing::new();
    for (path, names) in missing {
        if !take(path.len()) && !record.is_empty() {
            continue;
        }
        let has_room = take(names.iter().map(Vec::len).sum());
        record.insert(path, if has_room { names } else { Vec::new() });
    }
    record
}

/// Whether what is mounted at a path below a given one comes and goes as programs run and media are put
/// in: what is gone there is not missed.
fn comes_and_goes(path: &[u8], given: &[u8]) -> bool {
    /// Unless the given path is in them.
    const BY_PEOPLE: [&[u8]; 4] = [b"/media", b"/run/media", b"/tmp", b"/var/tmp"];
    const BY_PROGRAMS: [&[u8]; 16] = [
        b"/dev",
        b"/run",
        b"/snap",
        b"/var/lib/containerd",
        b"/var/lib/containers",
        b"/var/lib/docker",
        b"/var/lib/incus",
        b"/var/lib/k0s",
        b"/var/lib/kubelet",
        b"/var/lib/lxc",
        b"/var/lib/lxd",
        b"/var/lib/machines",
        b"/var/lib/rancher",
        b"/var/lib/snapd",
        b"/var/run",
        b"/var/snap",
    ];
    let is_in = |path: &[u8], directories: &[&[u8]]| {
        directories.iter().any(|directory| is_at_or_below(path, directory))
    };
    if is_in(path, &BY_PEOPLE) {
        return !is_in(given, &BY_PEOPLE);
    }
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let is_of_container = matches!(&names[..], [.., b"overlay" | b"overlay2", _, b"merged"]);
    // Old states of a file system, by its own name for them.
    let is_old = |name: &&[u8]| matches!(*name, b".zfs" | b".snapshot" | b".snapshots");
    is_of_container || names.iter().any(is_old) || is_in(path, &BY_PROGRAMS)
}

/// The last name of a path.
fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Whether a name may be that of a file in a directory whose names are encrypted and that has no key: the
/// kernel shows 16 bytes or more in base64.
pub fn is_without_key(name: &[u8]) -> bool {
    let is_of_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_+,".contains(byte);
    name.len() >= 22 && name.iter().all(is_of_base64)
}

/// The directory that a path is in.
fn parent_of(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        None | Some(0) => b"/",
        Some(end) => &path[..end],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(were_missing: &[&str]) -> Sources {
        let bytes = |path: &&str| path.as_bytes().to_vec();
        let paths: Vec<Vec<u8>> = ["/a", "/b", "/file"].iter().map(bytes).collect();
        let were_missing = were_missing.iter().map(|path| (bytes(path), Vec::new())).collect();
        Sources::new(&paths, were_missing)
    }

    fn missing(sources: Sources) -> Vec<Vec<u8>> {
        sources.missing(|_| Vec::new()).into_keys().collect()
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
        assert_eq!(found.leave(1, || false), Some(Left::Emptied(b"/b".to_vec(), EMPTIED)));
        assert!(found.leaf(b"/file", true, false));
        assert_eq!(found.none_reached(), None);
        assert_eq!(missing(found), [b"/a".to_vec(), b"/b".to_vec(), b"/file".to_vec()]);
    }

    #[test]
    fn what_has_something_or_never_had_is_not() {
        let mut found = sources(&[]);
        found.enter(b"/a", 1);
        found.something();
        found.something();
        assert_eq!(found.leave(1, || false), None);
        found.enter(b"/b", 1);
        assert_eq!(found.leave(1, || true), Some(Left::Empty(b"/b".to_vec())), "it never had");
        assert!(!found.leaf(b"/file", false, false) && !found.leaf(b"/other", true, false));
        assert_eq!(missing(found), Vec::<Vec<u8>>::new());
        // What was found below it although it could not be listed, or was reported, is something.
        let mut found = sources(&["/b", "/file"]);
        found.enter(b"/a", 1);
        found.lost(b"/a");
        found.something();
        assert_eq!(found.leave(1, || false), None);
        // It was missing before, and still is.
        found.enter(b"/b", 1);
        assert_eq!(found.leave(1, || true), Some(Left::Emptied(b"/b".to_vec(), EMPTIED)));
        assert!(found.leaf(b"/file", true, true));
        assert_eq!(missing(found), [b"/b".to_vec(), b"/file".to_vec()]);
        let mut found = sources(&[]);
        found.enter(b"/a", 1);
        found.lost(b"/a/file");
        assert_eq!(found.leave(1, || false), None);
        assert_eq!(found.none_reached(), None);
    }

    /// A walk through `/a`, in which these cannot be read; those in the second list were there before.
    fn unread(were_missing: &[&str], paths: &[&str], were_there: &[&str]) -> Vec<String> {
        let mut found = sources(were_missing);
        for given in ["/a", "/b", "/file"] {
            found.enter(given.as_bytes(), 1);
            found.something();
            found.leave(1, || false);
        }
        for path in paths {
            found.unread(path.as_bytes(), || were_there.contains(path));
        }
        missing(found).into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
    }

    #[test]
    fn kept_o6_what_was_there_and_cannot_be_read_is_missing_until_it_is_read() {
        let nothing: [&str; 0] = [];
        assert_eq!(unread(&[], &["/a/x"], &[]), nothing, "it never could be read");
        assert_eq!(unread(&[], &["/a/x", "/a/y"], &["/a/x"]), ["/a/x"]);
        assert_eq!(unread(&[], &["/c/x"], &["/c/x"]), nothing, "it was not given");
        // The next nights.
        assert_eq!(unread(&["/a/x"], &["/a/x"], &[]), ["/a/x"]);
        assert_eq!(unread(&["/a/x"], &["/a/x/deep"], &[]), ["/a/x"]);
        assert_eq!(unread(&["/a/x/deep"], &["/a/x"], &[]), ["/a/x/deep"]);
        assert_eq!(unread(&["/a/x"], &["/a/xy"], &[]), nothing);
        assert_eq!(unread(&["/a/x"], &[], &[]), nothing, "it was read, or removed");
        // What is above has all of it.
        assert_eq!(unread(&["/a/x/deep"], &["/a/x"], &["/a/x"]), ["/a/x"]);
    }

    #[test]
    fn kept_o6_many_that_cannot_be_read_are_recorded_as_the_directories_above() {
        let many: Vec<String> = (0..5000).map(|n| format!("/a/{}/{n}", n % 3)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(unread(&[], &many, &many), ["/a/0", "/a/1", "/a/2"]);
        let many: Vec<String> = (0..5000).map(|n| format!("/a/{n}/file")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(unread(&[], &many, &many), ["/a"]);
        assert_eq!(unread(&["/a"], &many[..1], &[]), ["/a"]);
    }

    #[test]
    fn kept_o6_what_the_parent_lacks_and_is_empty_is_still_missing() {
        let mut found = sources(&["/a/x"]);
        found.enter(b"/a", 1);
        found.enter_below(b"/a/x", 2);
        assert_eq!(found.leave(2, || true), Some(Left::Emptied(b"/a/x".to_vec(), EMPTIED)));
        assert_eq!(found.leave(1, || true), None);
        assert!(missing(found).contains(&b"/a/x".to_vec()));
        let mut found = sources(&["/a/x"]);
        found.enter(b"/a", 1);
        found.enter_below(b"/a/x", 2);
        found.something();
        assert_eq!(found.leave(2, || true), None);
        assert!(!missing(found).contains(&b"/a/x".to_vec()));
    }

    #[test]
    fn a_file_that_was_read_ahead_is_of_its_own_directory() {
        let mut found = sources(&["/b/x"]);
        found.enter(b"/a", 1);
        found.something();
        assert_eq!(found.leave(1, || false), None);
        found.enter(b"/b", 1);
        found.enter_below(b"/b/x", 2);
        found.lost(b"/a/file");
        found.unread(b"/a/file", || true);
        assert_eq!(found.leave(2, || true), Some(Left::Emptied(b"/b/x".to_vec(), EMPTIED)));
        assert_eq!(found.leave(1, || true), None);
        let mut found = sources(&[]);
        found.enter(b"/a", 1);
        found.something();
        assert_eq!(found.leave(1, || false), None);
        found.enter(b"/b", 1);
        found.lost(b"/a/file");
        assert_eq!(found.leave(1, || false), Some(Left::Emptied(b"/b".to_vec(), EMPTIED)));
    }

    #[test]
    fn given_files_that_cannot_be_read_take_no_longer_the_more_there_are() {
        let given: Vec<Vec<u8>> = (0..100_000).map(|n| format!("/a/{n}").into_bytes()).collect();
        let mut found = Sources::new(&given, Missing::new());
        for path in &given {
            found.lost(path);
            found.unread(path, || true);
        }
        let names = |_: &[u8]| vec![vec![b'n'; 255]; 8];
        let missing = found.missing(names);
        let bytes = |(path, names): (&Vec<u8>, &Vec<Vec<u8>>)| {
            path.len() + names.iter().map(Vec::len).sum::<usize>()
        };
        assert!(missing.iter().map(bytes).sum::<usize>() <= RECORD_BYTES_MAX);
        assert!(missing.len() > MISSING_MAX);
        let mut again = Sources::new(&given, missing);
        for path in &given {
            again.lost(path);
            again.unread(path, || false);
        }
    }

    #[test]
    fn names_without_a_key_are_long_and_of_base64() {
        assert!(is_without_key(b"Okfnhvx5JvezPLnJNPEWsdZ8NkONhgwJgz1HIxLEUJdaW2IjYgDAsQ"));
        assert!(is_without_key(b"_mm2Y2QTB6IDcZOw8pIvyqQ"));
        assert!(!is_without_key(b"Documents") && !is_without_key(b"a letter to my family.txt"));
    }

    #[test]
    fn a_directory_without_its_key_is_missing_if_most_of_its_names_are_gone() {
        let mut found = sources(&[]);
        found.turned(b"/a/home");
        found.turned(b"/a/other");
        found.turned(b"/a");
        let locked =
            |home: &str, number: usize| format!("/a/{home}/Bd7{number:030}/Qq2{number:030}");
        for number in 0..2 * UNREAD_MAX {
            found.locked(locked("always", number).as_bytes());
        }
        found.locked(locked("home", 0).as_bytes());
        found.locked(b"/elsewhere/Bd7");
        assert_eq!(found.without_key(), [b"/a/home".to_vec()]);
        found.enter(b"/a", 1);
        found.something();
        assert!(missing(found).contains(&b"/a/home".to_vec()));
    }

    #[test]
    fn a_mount_that_comes_and_goes_is_missed_only_below_a_given_path_that_does() {
        let given = |path: &str| Sources::new(&[path.as_bytes().to_vec()], Missing::new());
        assert!(given("/").unmounted(b"/home/me"));
        assert!(!given("/").unmounted(b"/run/user/1000"));
        assert!(!given("/home").unmounted(b"/data"), "it is not given");
        assert!(given("/media/me").unmounted(b"/media/me/disk"));
        assert!(!given("/media/me").unmounted(b"/run/user/1000"), "that is not given");
        assert!(!given("/var/lib/docker").unmounted(b"/var/lib/docker/overlay2/1/merged"));
        assert!(!given("/data").unmounted(b"/data/docker/overlay2/1/merged"));
        assert!(given("/data").unmounted(b"/data/merged"));
        assert!(!given("/tank").unmounted(b"/tank/.zfs/snapshot/daily"));
    }

    /// A walk through `/a`, in which there are these names, after it was missing or another directory.
    fn with_names(were_missing: bool, had: &[&str], names: &[&str]) -> bool {
        let had: Vec<Vec<u8>> = had.iter().map(|name| name.as_bytes().to_vec()).collect();
        let mut known = BTreeMap::new();
        if were_missing {
            known.insert(b"/a".to_vec(), had.clone());
        }
        let mut found = Sources::new(&[b"/a".to_vec()], known);
        found.enter(b"/a", 1);
        found.doubt(b"/a", 1, had.clone());
        for name in names {
            found.name(2, name.as_bytes());
            found.something();
        }
        let said = found.leave(1, || false);
        let missing = found.missing(|_| had.clone());
        assert_eq!(missing.values().next(), said.is_some().then_some(&had), "the names stay known");
        assert_eq!(said.is_some(), !missing.is_empty());
        said.is_some()
    }

    #[test]
    fn what_was_missing_or_another_directory_is_whole_once_most_of_its_names_are_there() {
        for were_missing in [true, false] {
            let is_missing = |had: &[&str], names: &[&str]| with_names(were_missing, had, names);
            assert!(is_missing(&["c1", "c2", "c3"], &[]));
            assert!(is_missing(&["c1", "c2", "c3"], &["log"]), "written below the mount point");
            assert!(is_missing(&["c1", "c2", "c3"], &["c1", "log", "more"]));
            assert!(!is_missing(&["c1", "c2", "c3"], &["c1", "c3"]));
            assert!(!is_missing(&["c1"], &["c1", "new"]));
        }
    }
}
