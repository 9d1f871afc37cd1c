//! Listing snapshots, their order, and finding the one that a person means.

use std::collections::{BTreeMap, BTreeSet};

use strongroom_backend::{both, each_read_ahead};
use strongroom_base::{Monitor, SnapshotId, Timestamp};
use strongroom_catalog::{Snapshot, sort_oldest_first};

use crate::collections::Collections;
use crate::endings::Endings;
use crate::error::RepositoryError;
use crate::objects::SNAPSHOTS_FOLDER;
use crate::opened::{Opened, OpenedSnapshots};
use crate::repository::Repository;
use crate::session::{read_unsealed, recall_snapshot};
use crate::wishes::Wishes;

/// All snapshots that can be read, oldest first, and those that cannot.
#[derive(Debug, Default)]
pub struct SnapshotList {
    /// Oldest first.
    pub snapshots: Vec<Snapshot>,
    /// Oldest first: those that the next collection removes, unless the wish is taken back.
    pub forgotten: Vec<Snapshot>,
    /// Oldest first: those that do not count, because their domain has ended without them. They are
    /// kept until they are forgotten, and used for nothing.
    pub late: Vec<Snapshot>,
    /// Sessions that were ended before they committed: there is no snapshot of theirs, and never will be.
    pub fenced: Vec<SnapshotId>,
    /// What is damaged or forged, and how.
    pub unreadable: Vec<(SnapshotId, RepositoryError)>,
    /// What a newer program made, and what of it this one does not know. It is not damaged.
    pub newer: Vec<(SnapshotId, RepositoryError)>,
    /// What the owner wishes and says of them. Their labels are those that the owner gave them last.
    pub wishes: Wishes,
    /// The domains that have ended.
    pub endings: Endings,
}

impl SnapshotList {
    /// Adds one, as the wishes want it.
    fn push(&mut self, mut snapshot: Snapshot) {
        self.wishes.remarks().apply(&mut snapshot);
        match () {
            () if self.wishes.forget(snapshot.id) => self.forgotten.push(snapshot),
            () if self.endings.is_late(&snapshot) => self.late.push(snapshot),
            () => self.snapshots.push(snapshot),
        }
    }

    /// All that can be read and that no collection has taken: those that count, those that are to be
    /// forgotten, whose wish can be taken back, and those that do not count. What they need stays.
    pub fn all(&self) -> impl Iterator<Item = &Snapshot> {
        self.snapshots.iter().chain(&self.forgotten).chain(&self.late)
    }

    /// The same, and not borrowed.
    pub fn readable(&self) -> Vec<Snapshot> {
        self.all().cloned().collect()
    }

    /// Everything that has an object: what can be read, what cannot, and what was ended.
    pub fn ids(&self) -> impl Iterator<Item = SnapshotId> {
        let unread = self.unreadable.iter().chain(&self.newer).map(|(id, _)| *id);
        let ended = self.fenced.iter().copied();
        self.all().map(|snapshot| snapshot.id).chain(unread).chain(ended)
    }

    /// Snapshots whose references this program does not all know. While there is one, nothing may
    /// be collected: it would be missed by what the snapshot needs.
    pub fn not_collectable(&self) -> Vec<SnapshotId> {
        let has_features = |snapshot: &&Snapshot| !snapshot.features.is_empty();
        let with_features = self.all().filter(has_features).map(|snapshot| snapshot.id);
        let unread = self.unreadable.iter().chain(&self.newer).map(|(id, _)| *id);
        with_features.chain(unread).collect()
    }

    /// The greatest sequence of the snapshots that a domain made, those of newer programs included.
    pub fn greatest_sequence(&self, domain: &str) -> u64 {
        let known = self.all().map(|snapshot| (&snapshot.domain, snapshot.sequence));
        let newer = self.newer.iter().filter_map(|(_, error)| match error {
            RepositoryError::NewerSnapshot { head, .. } => Some((&head.domain, head.sequence)),
            _ => None,
        });
        let own = known.chain(newer).filter(|(of, _)| *of == domain);
        own.map(|(_, sequence)| sequence).max().unwrap_or(0)
    }
}

/// The snapshots whose objects exist. Those of them that collections removed are none.
pub struct ListedSnapshots(Box<SnapshotList>);

impl ListedSnapshots {
    /// Those that these collections left, and those that the owner wants to keep after all.
    pub fn left_by(self, collections: &Collections) -> SnapshotList {
        let mut list = *self.0;
        let wishes = std::mem::take(&mut list.wishes);
        let is_left = |id: SnapshotId| !wishes.let_go(collections, id);
        list.snapshots.retain(|snapshot| is_left(snapshot.id));
        list.forgotten.retain(|snapshot| is_left(snapshot.id));
        list.late.retain(|snapshot| is_left(snapshot.id));
        list.unreadable.retain(|(id, _)| is_left(*id));
        list.newer.retain(|(id, _)| is_left(*id));
        list.wishes = wishes;
        list
    }

    /// Whether a snapshot has an object, though perhaps none that can be read.
    pub fn has(&self, id: SnapshotId) -> bool {
        let Self(list) = self;
        list.all().any(|snapshot| snapshot.id == id)
            || list.unreadable.iter().chain(&list.newer).any(|(other, _)| *other == id)
    }
}

/// Reads all snapshots. What collections removed is not read, even if a replica still has it; but what
/// another copy of the repository has removed, and the owner keeps in this one, is.
pub fn list_snapshots(repository: &Repository) -> Result<SnapshotList, RepositoryError> {
    let collections = Collections::read(repository)?;
    Ok(list(repository, None, &collections)?.left_by(&collections))
}

/// Lists the snapshots. Those that this machine has opened before are taken from its cache, and
/// what happened to their objects since is not looked at.
pub fn list_known_snapshots(
    repository: &Repository,
    monitor: &dyn Monitor,
) -> Result<ListedSnapshots, RepositoryError> {
    let mut known = OpenedSnapshots::read(repository, monitor);
    let listed = list(repository, Some(&mut known), &Collections::default())?;
    known.keep(repository, monitor);
    Ok(listed)
}

/// Lists the snapshots; those that these collections removed are not read.
fn list(
    repository: &Repository,
    mut known: Option<&mut OpenedSnapshots>,
    collections: &Collections,
) -> Result<ListedSnapshots, RepositoryError> {
    let backend = repository.backend();
    let in_flight = backend.promises().in_flight;
    let said = || both(in_flight, || Wishes::read(repository), || Endings::read(repository));
    let ((wishes, endings), listed) = both(in_flight, said, || backend.list(SNAPSHOTS_FOLDER));
    let mut list = SnapshotList { wishes: wishes?, endings: endings?, ..SnapshotList::default() };
    let mut unknown = Vec::new();
    for info in listed? {
        let Ok(id) = info.name.file().parse::<SnapshotId>() else { continue };
        if list.wishes.let_go(collections, id) {
            continue;
        }
        let recall = |known| recall_snapshot(repository, id, info.bytes, known);
        match known.as_deref_mut().and_then(recall) {
            Some(snapshot) => list.push(snapshot),
            None => unknown.push((id, info.bytes)),
        }
    }
    let read = |(id, _): &(SnapshotId, u64)| read_unsealed(repository, *id);
    each_read_ahead(in_flight, &unknown, read, |(id, object_bytes), read| {
        let id = *id;
        match read {
            Ok((snapshot, (claimed, plain))) => {
                if let Some(known) = &mut known {
                    let object_bytes = *object_bytes;
                    known.add(id, &Opened { object_bytes, claimed, plain: &plain });
                }
                list.push(snapshot);
            }
            Err(RepositoryError::Fenced { .. }) => list.fenced.push(id),
            // Removed between the listing and the reading.
            Err(RepositoryError::Backend(error)) if error.is_not_found() => {}
            Err(error) if error.is_unknown() => list.newer.push((id, error)),
            Err(error) if error.is_damage() || error.is_withheld() => {
                list.unreadable.push((id, error));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    })?;
    sort_oldest_first(&mut list.snapshots);
    sort_oldest_first(&mut list.forgotten);
    sort_oldest_first(&mut list.late);
    list.newer.sort_by_key(|(id, _)| *id);
    list.unreadable.sort_by_key(|(id, _)| *id);
    Ok(ListedSnapshots(Box::new(list)))
}

/// How a person names a snapshot, recognised by its form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotName {
    /// `latest`, `latest~2`: counted back from the newest that is complete.
    Latest(usize),
    /// `latest-partial`, `latest-partial~1`: counted back from the newest that is not complete.
    LatestPartial(usize),
    /// A prefix of an identifier.
    Prefix(String),
    /// A moment: the newest complete snapshot that began at or before it.
    AtOrBefore(Timestamp),
    /// `host:path@…`: of this host, holding this path.
    Of {
        /// The host; empty for any.
        host: String,
        /// The path; empty for any.
        path: Vec<u8>,
        /// Which of those.
        which: Box<SnapshotName>,
    },
}

impl SnapshotName {
    /// Reads a name. `date` turns a date or a time of day into the last moment that it means, in
    /// the user's time zone.
    pub fn parse(
        text: &str,
        date: impl Fn(&str) -> Option<Timestamp>,
    ) -> Result<Self, RepositoryError> {
        Self::parse_with(text, &date)
    }

    fn parse_with(
        text: &str,
        date: &dyn Fn(&str) -> Option<Timestamp>,
    ) -> Result<Self, RepositoryError> {
        let none = || RepositoryError::NoSuchSnapshot { name: text.to_owned() };
        if let Some((place, which)) = text.rsplit_once('@') {
            let (host, path) = place.split_once(':').unwrap_or((place, ""));
            let which = if which.is_empty() { "latest" } else { which };
            return Ok(Self::Of {
                host: host.to_owned(),
                path: path.as_bytes().to_vec(),
                which: Box::new(Self::parse_with(which, date)?),
            });
        }
        if let Some(rest) = text.strip_prefix("latest") {
            let (partial, back) = match rest.strip_prefix("-partial") {
                Some(back) => (true, back),
                None => (false, rest),
            };
            let back = match back.strip_prefix('~') {
                Some(count) => count.parse().map_err(|_| none())?,
                None if back.is_empty() => 0,
                None => return Err(none()),
            };
            return Ok(if partial { Self::LatestPartial(back) } else { Self::Latest(back) });
        }
        if let Some(moment) = date(text) {
            return Ok(Self::AtOrBefore(moment));
        }
        let is_prefix =
            (4..=32).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        if is_prefix { Ok(Self::Prefix(text.to_owned())) } else { Err(none()) }
    }
}

/// Which snapshots a name can mean, beside what it says itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Narrowing {
    /// Only those of this host.
    pub host: Option<String>,
    /// Only those that hold this path.
    pub path: Option<Vec<u8>>,
    /// Only those with this label.
    pub label: Option<String>,
}

impl Narrowing {
    /// Whether a snapshot is one of those.
    pub fn fits(&self, snapshot: &Snapshot) -> bool {
        self.is_of_host(snapshot)
            && self.path.as_ref().is_none_or(|path| snapshot.holds(path))
            && self.label.as_ref().is_none_or(|label| snapshot.labels.contains(label))
    }

    fn is_of_host(&self, snapshot: &Snapshot) -> bool {
        self.host.as_ref().is_none_or(|host| *host == snapshot.host)
    }
}

/// The snapshot that a name means, among these, which come oldest first. `path` is what is wanted
/// of it: if there are snapshots that hold it, `latest` and dates mean one of those. `text` is what
/// the person wrote, for the error.
pub fn find_snapshot<'s>(
    snapshots: &'s [Snapshot],
    name: &SnapshotName,
    path: &[u8],
    text: &str,
) -> Result<&'s Snapshot, RepositoryError> {
    find_snapshot_among(snapshots, &Narrowing::default(), name, path, text)
}

/// As [`find_snapshot`], among those that fit.
pub fn find_snapshot_among<'s>(
    snapshots: &'s [Snapshot],
    narrowing: &Narrowing,
    name: &SnapshotName,
    path: &[u8],
    text: &str,
) -> Result<&'s Snapshot, RepositoryError> {
    // A host was named by the person; what holds a path or has a label, its writer chose.
    let of_host = snapshots.iter().filter(|snapshot| narrowing.is_of_host(snapshot));
    let mut all: Vec<&Snapshot> = of_host.collect();
    let chosen_by_time = !matches!(name, SnapshotName::Prefix(_) | SnapshotName::Of { .. });
    let has_no_host = match name {
        SnapshotName::Of { host, .. } => host.is_empty(),
        _ => chosen_by_time,
    };
    if has_no_host {
        keep_one_domain(&mut all, text)?;
    }
    all.retain(|snapshot| narrowing.fits(snapshot));
    if chosen_by_time && !path.is_empty() {
        let holding: Vec<&Snapshot> = all.iter().filter(|s| s.holds(path)).copied().collect();
        if !holding.is_empty() {
            return select(&holding, name, text);
        }
    }
    select(&all, name, text)
}

/// What a name without a host is looked for in: the snapshots of the owner's domain, or those of the
/// only other one. A put-only client could otherwise choose what `latest` restores.
fn keep_one_domain(snapshots: &mut Vec<&Snapshot>, text: &str) -> Result<(), RepositoryError> {
    let domains: BTreeSet<&str> = snapshots.iter().map(|s| s.domain.as_str()).collect();
    if domains.len() > 1 && !domains.contains("") {
        let domains = domains.into_iter().map(str::to_owned).collect();
        return Err(RepositoryError::AmbiguousDomain { name: text.to_owned(), domains });
    }
    if domains.len() > 1 {
        snapshots.retain(|snapshot| snapshot.domain.is_empty());
    }
    Ok(())
}

/// When snapshots were made, which come in the order in which they were made.
fn times_by_order(snapshots: &[&Snapshot]) -> Vec<Timestamp> {
    // Each machine has a clock of its own.
    let mut of_machine: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (place, snapshot) in snapshots.iter().enumerate() {
        of_machine.entry((&snapshot.domain, &snapshot.host)).or_default().push(place);
    }
    let mut times: Vec<Timestamp> = snapshots.iter().map(|snapshot| snapshot.started).collect();
    for places in of_machine.into_values() {
        let own: Vec<&Snapshot> = places.iter().map(|place| snapshots[*place]).collect();
        for (place, time) in places.into_iter().zip(times_by_one_clock(&own)) {
            times[place] = time;
        }
    }
    times
}

/// The same of one machine. Its clock was right most of the time: of as many as possible that ascend, their own
/// times; of each other one the time of the last of these before it, as it was made after that.
fn times_by_one_clock(snapshots: &[&Snapshot]) -> Vec<Timestamp> {
    // A longest ascending part: for each length the place of the last of one that ends earliest.
    let mut lasts: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(snapshots.len());
    for (place, snapshot) in snapshots.iter().enumerate() {
        let ends_no_later = |last: &usize| snapshots[*last].started <= snapshot.started;
        let length = lasts.partition_point(ends_no_later);
        before.push(length.checked_sub(1).map(|shorter| lasts[shorter]));
        match lasts.get_mut(length) {
            Some(last) => *last = place,
            None => lasts.push(place),
        }
    }
    let mut is_right = vec![false; snapshots.len()];
    let mut next = lasts.last().copied();
    while let Some(place) = next {
        is_right[place] = true;
        next = before[place];
    }
    let mut last = None;
    let time = |(snapshot, is_right): (&&Snapshot, bool)| {
        if is_right {
            last = Some(snapshot.started);
        }
        last.unwrap_or(snapshot.started)
    };
    snapshots.iter().zip(is_right).map(time).collect()
}

fn select<'s>(
    snapshots: &[&'s Snapshot],
    name: &SnapshotName,
    text: &str,
) -> Result<&'s Snapshot, RepositoryError> {
    let newest_first = || snapshots.iter().rev().copied();
    let complete = || newest_first().filter(|snapshot| !snapshot.partial);
    let found = match name {
        SnapshotName::Latest(back) => complete().nth(*back),
        SnapshotName::LatestPartial(back) => {
            newest_first().filter(|snapshot| snapshot.partial).nth(*back)
        }
        SnapshotName::AtOrBefore(moment) => {
            let times = times_by_order(snapshots);
            let timed = snapshots.iter().zip(times).rev();
            let mut complete = timed.filter(|(snapshot, _)| !snapshot.partial);
            complete.find(|(_, time)| time <= moment).map(|(snapshot, _)| *snapshot)
        }
        SnapshotName::Prefix(prefix) => {
            let mut named = snapshots.iter().filter(|snapshot| snapshot.id.starts_with(prefix));
            let first = named.next().copied();
            let rest: Vec<SnapshotId> = named.map(|snapshot| snapshot.id).collect();
            if let (Some(first), false) = (first, rest.is_empty()) {
                let candidates = std::iter::once(first.id).chain(rest).collect();
                return Err(RepositoryError::AmbiguousSnapshot {
                    name: text.to_owned(),
                    candidates,
                });
            }
            first
        }
        SnapshotName::Of { host, path, which } => {
            let of: Vec<&Snapshot> = snapshots
                .iter()
                .filter(|snapshot| host.is_empty() || snapshot.host == *host)
                .filter(|snapshot| path.is_empty() || snapshot.holds(path))
                .copied()
                .collect();
            return select(&of, which, text);
        }
    };
    found.ok_or_else(|| {
        let wants_complete = matches!(name, SnapshotName::Latest(_) | SnapshotName::AtOrBefore(_));
        match newest_first().next() {
            Some(newest) if wants_complete && complete().next().is_none() => {
                RepositoryError::OnlyPartial { name: text.to_owned(), newest: newest.id }
            }
            _ => RepositoryError::NoSuchSnapshot { name: text.to_owned() },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(number: u8, host: &str, path: &str) -> Snapshot {
        let mut id = [0x11; 16];
        id[1] = number;
        Snapshot {
            sequence: number.into(),
            started: Timestamp(i64::from(number) * 100),
            host: host.to_owned(),
            paths: vec![path.as_bytes().to_vec()],
            ..Snapshot::empty(SnapshotId(id))
        }
    }

    fn check(text: &str) -> Result<u8, RepositoryError> {
        let snapshots =
            [snapshot(1, "a", "/home"), snapshot(2, "b", "/srv"), snapshot(0x20, "a", "/")];
        let date = |text: &str| text.strip_prefix("t").and_then(|t| t.parse().ok()).map(Timestamp);
        let name = SnapshotName::parse(text, date)?;
        find_snapshot(&snapshots, &name, b"", text).map(|snapshot| snapshot.id.0[1])
    }

    #[test]
    fn a_name_without_a_host_never_means_another_domain_s_snapshot() {
        let foreign = Snapshot { domain: "web".to_owned(), ..snapshot(9, "web", "/home") };
        let snapshots = [snapshot(1, "a", "/home"), foreign];
        for (text, found) in [("latest", 1), (":/home@latest", 1), ("web:/home@latest", 9)] {
            let name = SnapshotName::parse(text, |_| None).unwrap();
            let found_id = find_snapshot(&snapshots, &name, b"", text).unwrap().id.0[1];
            assert_eq!(found_id, found, "{text}");
        }
    }

    #[test]
    fn a_name_is_narrowed_by_host_path_and_label() {
        let foreign = Snapshot { domain: "web".to_owned(), ..snapshot(9, "web", "/www") };
        let labelled = Snapshot { labels: vec!["x".to_owned()], ..snapshot(2, "b", "/srv") };
        let snapshots = [snapshot(1, "a", "/home"), labelled, snapshot(3, "b", "/home"), foreign];
        for (host, path, label, found) in [
            ("", "", "", Some(3)),
            ("a", "", "", Some(1)),
            ("", "/srv/x", "", Some(2)),
            ("", "", "x", Some(2)),
            ("b", "/home", "", Some(3)),
            ("a", "", "x", None),
            ("web", "", "", Some(9)),
            // Its writer says what it holds.
            ("", "/www", "", None),
        ] {
            let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let path = given(path).map(String::into_bytes);
            let narrowing = Narrowing { host: given(host), path, label: given(label) };
            let name = SnapshotName::Latest(0);
            let latest = find_snapshot_among(&snapshots, &narrowing, &name, b"", "latest");
            assert_eq!(latest.ok().map(|latest| latest.id.0[1]), found, "{narrowing:?}");
        }
    }

    #[test]
    fn every_way_of_naming() {
        for (text, found) in [
            ("latest", 0x20),
            ("latest~1", 2),
            ("latest~2", 1),
            ("1101", 1),
            ("1120", 0x20),
            ("t200", 2),
            ("t3199", 2),
            ("t9999", 0x20),
            ("a:/home/me@latest", 0x20),
            ("a:/home@t150", 1),
            ("b@", 2),
            (":/srv/www@latest~1", 2),
        ] {
            assert_eq!(check(text).ok(), Some(found), "{text}");
        }
    }

    #[test]
    fn what_names_none_or_many_is_refused() {
        for text in [
            "latest~3",
            "latestx",
            "latest~x",
            "latest-partial",
            "latest-whole",
            "110",
            "zzzz",
            "t50",
            "c@latest",
            "",
        ] {
            assert!(matches!(check(text), Err(RepositoryError::NoSuchSnapshot { .. })), "{text}");
        }
        assert!(matches!(
            find_snapshot(
                &[snapshot(1, "a", "/"), snapshot(1, "a", "/")],
                &SnapshotName::Prefix("1101".to_owned()),
                b"",
                "1101"
            ),
            Err(RepositoryError::AmbiguousSnapshot { .. })
        ));
    }

    fn found(
        snapshots: &[Snapshot],
        name: SnapshotName,
        path: &str,
    ) -> Result<u8, RepositoryError> {
        find_snapshot(snapshots, &name, path.as_bytes(), "x").map(|snapshot| snapshot.id.0[1])
    }

    #[test]
    fn latest_is_complete_and_a_partial_one_is_named() {
        let mut snapshots = [snapshot(1, "a", "/"), snapshot(2, "a", "/"), snapshot(3, "a", "/")];
        snapshots[2].partial = true;
        assert_eq!(found(&snapshots, SnapshotName::Latest(0), "").ok(), Some(2));
        assert_eq!(found(&snapshots, SnapshotName::Latest(1), "").ok(), Some(1));
        assert_eq!(found(&snapshots, SnapshotName::LatestPartial(0), "").ok(), Some(3));
        assert_eq!(found(&snapshots, SnapshotName::AtOrBefore(Timestamp(999)), "").ok(), Some(2));
        let only = &snapshots[2..];
        let error = found(only, SnapshotName::Latest(0), "");
        assert!(
            matches!(error, Err(RepositoryError::OnlyPartial { newest, .. }) if newest == only[0].id)
        );
    }

    /// A battery is flat, or a clock was set ahead: each snapshot answers for the time after the one before it.
    #[test]
    fn a_wrong_clock_answers_for_no_other_time() {
        let nights = |dates: &[i64]| -> Vec<Snapshot> {
            let night = |(number, date): (u8, &i64)| Snapshot {
                started: Timestamp(*date),
                ..snapshot(number, "a", "/")
            };
            (1..).zip(dates).map(night).collect()
        };
        for (dates, asked) in [
            (
                &[10, 20, 30, 0, 50][..],
                &[(25, Some(2)), (30, Some(4)), (45, Some(4)), (5, None)][..],
            ),
            (
                &[10, 20, 9999, 40, 50],
                &[(25, Some(3)), (45, Some(4)), (9999, Some(5)), (15, Some(1))],
            ),
            (&[10, 20, 20, 30], &[(20, Some(3)), (19, Some(1))]),
            (&[0, 20, 30], &[(5, Some(1)), (20, Some(2))]),
            (&[10, 20, 30, 0], &[(15, Some(1)), (30, Some(4))]),
        ] {
            let snapshots = nights(dates);
            for (moment, expected) in asked {
                let name = SnapshotName::AtOrBefore(Timestamp(*moment));
                assert_eq!(found(&snapshots, name, "").ok(), *expected, "{dates:?} at {moment}");
            }
        }
    }

    #[test]
    fn a_path_is_looked_for_in_a_snapshot_that_holds_it() {
        let snapshots =
            [snapshot(1, "a", "/home"), snapshot(2, "a", "/home/me"), snapshot(3, "b", "/srv")];
        for (path, back, expected) in [
            ("/home/me/x", 0, Some(2)),
            ("home/me/", 1, Some(1)),
            ("/home", 0, Some(1)),
            ("/home", 1, None),
            ("/homes", 0, Some(3)),
            ("/", 0, Some(3)),
        ] {
            assert_eq!(
                found(&snapshots, SnapshotName::Latest(back), path).ok(),
                expected,
                "{path}"
            );
        }
    }
}
