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
mod tests;
