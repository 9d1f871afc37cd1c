//! The screens, driven by keys and answers, compared with pictures of 80 and 200 columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;
use strongroom_base::{Progress, SnapshotId, Timestamp};
use strongroom_catalog::{Metadata, Recipe, Snapshot, SnapshotStats};
use strongroom_engine::{DiffOutcome, RestoreOutcome};

use crate::message::{ChangeRow, FileRow, FoundRow, Kind, SessionRow, SnapshotRow};
use crate::{App, Effect, Event, Failure, Key, Look, Report, Request, Running, Work};

fn look() -> Look {
    Look {
        place: "/media/disk/backup".to_owned(),
        colours: false,
        date: |time| format!("2026-11-{:02} 12:30:05", time.0),
        home: Some("/home/me".into()),
    }
}

/// The app, and the work that it waits for.
struct Person {
    app: App,
    work: Option<Work>,
    last: Option<Effect>,
}

impl Person {
    fn begin() -> Self {
        let (app, first) = App::begin(look());
        let mut person = Self { app, work: None, last: None };
        person.take(Some(first));
        person
    }

    /// With some snapshots.
    fn with_snapshots() -> Self {
        let mut person = Self::begin();
        let rows = (0..40).rev().map(snapshot).collect();
        person.answer(Report::Snapshots { rows, notes: Vec::new() });
        person
    }

    /// In a directory of the newest of them.
    fn in_directory() -> Self {
        let mut person = Self::with_snapshots();
        person.press("\r");
        person.answer(directory());
        person
    }

    fn take(&mut self, effect: Option<Effect>) {
        match effect {
            Some(Effect::Begin(work)) => self.work = Some(work),
            other => self.last = other,
        }
    }

    /// Keys: characters, with Enter and Esc as terminals send them.
    fn press(&mut self, keys: &str) {
        let mut parser = crate::Keys::default();
        let mut keys = parser.feed(keys.as_bytes());
        keys.extend(parser.idle());
        for key in keys {
            let effect = self.app.update(Event::Key(key));
            self.take(effect);
        }
    }

    /// Answers what it waits for.
    fn answer(&mut self, report: Report) -> Request {
        let Work { number, request } = self.work.take().expect("it waits for work");
        let effect = self.app.update(Event::Report(number, report));
        self.take(effect);
        request
    }

    fn picture(&mut self, columns: u16, lines: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal.draw(|frame| self.app.draw(frame.buffer_mut())).unwrap();
        terminal.backend().to_string()
    }

    /// Compares both sizes with pictures.
    fn look(&mut self, name: &str) {
        insta::assert_snapshot!(format!("{name}_80"), self.picture(80, 24));
        insta::assert_snapshot!(format!("{name}_200"), self.picture(200, 60));
        // Nothing fits, and nothing panics.
        for (columns, lines) in [(1, 1), (5, 2), (20, 3), (33, 7), (300, 4)] {
            self.picture(columns, lines);
        }
    }
}

fn snapshot(number: u8) -> SnapshotRow {
    let snapshot = Snapshot {
        id: SnapshotId([number.wrapping_mul(37).wrapping_add(16); 16]),
        sequence: number.into(),
        started: Timestamp(number.into()),
        ended: Timestamp(number.into()),
        domain: String::new(),
        host: if number.is_multiple_of(3) {
            "日本のホスト名前".to_owned()
        } else {
            "laptop".to_owned()
        },
        user: "me".to_owned(),
        paths: vec![b"/home/me".to_vec(), b"/etc\x1b[31m".to_vec()],
        labels: if number.is_multiple_of(2) { vec!["gold".to_owned()] } else { Vec::new() },
        parent: None,
        root: Recipe { depth: 0, refs: Vec::new() },
        partial: number == 38,
        root_partial: false,
        missing: BTreeMap::new(),
        stats: SnapshotStats {
            files: 1234,
            directories: 1,
            bytes: 1 << (number + 3),
            bytes_new: 77 << 20,
            bytes_stored: 33 << 20,
            problems: 2,
        },
        program: "strongroom".to_owned(),
        origin: None,
        guarantee: None,
        lists_trusted: false,
        features: Vec::new(),
        seen: 0,
    };
    SnapshotRow {
        snapshot: Arc::new(snapshot),
        held: (number == 37).then(|| "annual accounts".to_owned()),
        description: if number == 39 { "before the move".to_owned() } else { String::new() },
    }
}

fn file(name: &[u8], kind: Kind, size: u64) -> FileRow {
    let metadata = Metadata {
        mode: 0o4755,
        uid: 1000,
        user: Some("me".into()),
        gid: 100,
        mtime: Timestamp(12),
        ctime: Timestamp(13),
        links: 1,
        size,
        ..Metadata::default()
    };
    FileRow { name: name.to_vec(), kind, metadata }
}

fn directory() -> Report {
    let rows = vec![
        file(b"documents", Kind::Directory(false), 0),
        file(b"photos", Kind::Directory(true), 0),
        file(b"a long name that goes on and on and on until no line has it.txt", Kind::File, 7),
        file(b"evil\x1b[2J\xff", Kind::File, 1 << 40),
        file("日本語の文書の名前はとても長くてどの行にも入りません".as_bytes(), Kind::File, 9),
        file(b"link", Kind::Symlink(b"../elsewhere".to_vec()), 12),
        file(b"pipe", Kind::Special('p'), 0),
    ];
    Report::Directory { rows, lost: None }
}

#[test]
fn snapshots_are_listed_and_filtered() {
    let mut person = Person::begin();
    person.look("reading");
    person = Person::with_snapshots();
    person.look("snapshots");
    person.press("jj /gold");
    person.look("filter");
    person.press("\x1b");
    person.press("?");
    person.look("help");
}

#[test]
fn no_snapshots_is_no_error() {
    let mut person = Person::begin();
    let notes = vec!["1 snapshot is damaged: run `strongroom verify`".to_owned()];
    person.answer(Report::Snapshots { rows: Vec::new(), notes });
    for keys in ["\r", "d", " ", "r", "j", "/x", "\x1b"] {
        person.press(keys);
    }
    let picture = person.picture(80, 24);
    assert!(picture.contains("there are no snapshots yet"), "{picture}");
}

#[test]
fn directories_are_browsed() {
    let mut person = Person::in_directory();
    person.look("directory");
    person.press("\r");
    let request = person.answer(directory());
    assert!(matches!(request, Request::Directory { path, .. } if path == b"documents"));
    person.press(" ");
    person.press("\x7f");
    let request = person.answer(directory());
    assert!(matches!(request, Request::Directory { path, .. } if path.is_empty()));
    // The mark is kept, and the cursor is on the directory that it came from.
    let picture = person.picture(80, 24);
    assert!(picture.contains("7 entries, 1 marked"), "{picture}");
    person.press("jjj");
    person.press("i");
    person.look("details");
}

#[test]
fn a_file_is_viewed() {
    let mut person = Person::in_directory();
    person.press("jjj");
    person.press("v");
    let bytes = b"first\n\tsecond \x1b[31mred\nthird".to_vec();
    person.answer(Report::Text { bytes, is_cut: true });
    person.look("text");
}

#[test]
fn two_snapshots_are_compared_the_older_first() {
    let mut person = Person::with_snapshots();
    person.press("djjd");
    let row = |sign, path: &str, what: &str, growth| ChangeRow {
        sign,
        path: path.as_bytes().to_vec(),
        what: what.to_owned(),
        growth,
    };
    let rows = vec![
        row('+', "home/me/new", "", 1000),
        row('-', "home/me/old\n", "", -70_000),
        row('M', "home/me/日本", "content, mode", 12),
        row('T', "home/me/link", "another kind", 0),
    ];
    let outcome =
        DiffOutcome { added: 1, removed: 1, changed: 2, metadata: 3, ..DiffOutcome::default() };
    let request = person.answer(Report::Changes { rows, outcome, only_times: 3 });
    let Request::Compare { before, after } = request else { panic!("{request:?}") };
    assert_eq!((before.started, after.started), (Timestamp(37), Timestamp(39)));
    person.look("changes");
}

#[test]
fn a_name_is_found_and_gone_to() {
    let mut person = Person::with_snapshots();
    person.press("fdocu\r");
    let found = |number, snapshots| FoundRow {
        path: b"home/me/documents".to_vec(),
        file: file(b"documents", Kind::Directory(false), 0),
        first: snapshot(1).snapshot.id,
        last: snapshot(number).snapshot,
        snapshots,
    };
    let rows = vec![found(39, 20), found(12, 1)];
    let request = person.answer(Report::Found { rows, note: None });
    assert!(matches!(request, Request::Find { pattern } if pattern == "docu"));
    person.look("found");
    person.press("\r");
    let request = person.answer(directory());
    assert!(matches!(request, Request::Directory { path, .. } if path == b"home/me"));
}

#[test]
fn what_is_marked_is_restored_and_nothing_is_replaced_unasked() {
    let mut person = Person::in_directory();
    person.press("jj  r");
    person.look("restore_asking");
    person.press("~/back\r");
    let existing = vec!["/home/me/back/evil\x1b[2J".into()];
    let Request::Existing(places) = person.answer(Report::Existing(existing)) else { panic!() };
    assert_eq!(places.len(), 2);
    assert!(places[0].starts_with("/home/me/back"));
    person.look("restore_confirming");
    assert!(person.work.is_none());
    person.press("xy");
    let progress = Progress { files: 1, files_total: Some(2), bytes: 7, ..Progress::default() };
    let number = person.work.as_ref().unwrap().number;
    let what = b"evil\x1b[2J".to_vec();
    person.app.update(Event::Report(number, Report::Progress { progress, what }));
    person.look("restore_running");
    let outcome = RestoreOutcome {
        files: 2,
        bytes: 7,
        bytes_written: 7,
        problems: 1,
        damaged: vec!["/home/me/back/x.damaged".into()],
        ..RestoreOutcome::default()
    };
    let problems = vec!["/home/me/back/x: no permission".to_owned()];
    let request = person.answer(Report::Restored { outcome, problems });
    let Request::Restore { parts, .. } = request else { panic!("{request:?}") };
    assert_eq!(parts.len(), 2);
    person.look("restore_done");
}

#[test]
fn what_runs_is_watched() {
    let mut person = Person::with_snapshots();
    person.press("w");
    let sessions = vec![
        SessionRow {
            id: SnapshotId([7; 16]),
            writer: Ok(("desktop\x1b".to_owned(), Timestamp(9))),
        },
        SessionRow { id: SnapshotId([8; 16]), writer: Err("it is of another domain".to_owned()) },
    ];
    person.answer(Report::Sessions(sessions));
    assert!(person.app.watches());
    let running = Running {
        pid: 4711,
        repository: "/media/disk/backup".to_owned(),
        paths: vec!["/home/me".to_owned()],
        seconds: 75,
        progress: Progress {
            files: 1000,
            bytes: 3 << 30,
            bytes_new: 1 << 30,
            bytes_stored: 0,
            files_total: Some(4000),
            bytes_total: Some(4 << 30),
        },
        what: "/home/me/a\x07file".to_owned(),
    };
    let effect = person.app.update(Event::Running(vec![running]));
    assert!(matches!(effect, Some(Effect::Begin(Work { request: Request::Sessions, .. }))));
    person.take(effect);
    person.answer(Report::Sessions(Vec::new()));
    person.look("watch");
}

#[test]
fn work_is_stopped_and_late_answers_are_ignored() {
    let mut person = Person::with_snapshots();
    person.press("\r");
    let number = person.work.take().unwrap().number;
    person.press("\x1b");
    assert!(matches!(person.last, Some(Effect::Cancel(stopped)) if stopped == number));
    assert!(!person.app.is_busy());
    let before = person.picture(80, 24);
    person.app.update(Event::Report(number, directory()));
    assert_eq!(person.picture(80, 24), before);
    assert!(before.contains("stopped: reading the directory"), "{before}");
    person.press("\r");
    let message = "the place does not answer\x1b[2J".to_owned();
    person.answer(Report::Failed(Failure { message }));
    let picture = person.picture(80, 24);
    assert!(picture.contains("the place does not answer\\u{1b}[2J"), "{picture}");
    assert!(picture.contains("40 snapshots"), "{picture}");
}

#[test]
fn the_end_is_quit_or_an_interruption() {
    for (keys, interrupted) in [("q", false), ("\x1b", false), ("\x03", true), ("\rq\x03", true)] {
        let mut person = Person::with_snapshots();
        person.press(keys);
        assert!(
            matches!(person.last, Some(Effect::Quit { interrupted: is }) if is == interrupted),
            "{keys:?}"
        );
    }
    let effect = Person::begin().app.update(Event::Key(Key::Char('x')));
    assert!(effect.is_none());
}
