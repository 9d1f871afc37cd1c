//! Which of the given paths count as missing.

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
    let locked = |home: &str, number: usize| format!("/a/{home}/Bd7{number:030}/Qq2{number:030}");
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
