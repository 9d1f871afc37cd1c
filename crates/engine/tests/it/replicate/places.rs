//! Which places are taken for a replica, and what two places say that were used apart.

use std::time::Duration;

use strongroom_backend::{Operation, Refusal};
use strongroom_testkit::Fault;
use strongroom_upkeep::PruneOptions;

use super::*;

/// A place of these objects in which one read of a folder goes wrong.
fn faulty(objects: &Objects, folder: &str, kind: FaultKind) -> FaultyBackend<MemoryBackend> {
    let calls = Calls::of(&[CallKind::Read]).within(folder);
    let faults = vec![Fault { calls, at: 0, lasting: false, kind }];
    FaultyBackend::new(
        Arc::new(MemoryBackend::from_snapshot(objects.clone())),
        FaultPlan { faults },
    )
}

/// Two places that have each removed things of their own under one number: named, and not mirrored. What is
/// the same, or cannot be read, is no fork.
#[test]
fn what_was_decided_apart_is_named() {
    let (world, kept) = history(770);
    let shared = world.objects.snapshot();
    let decided = |forgotten: &[SnapshotId]| {
        let place = Arc::new(MemoryBackend::from_snapshot(shared.clone()));
        let repository = world.open_over(place.clone()).unwrap();
        forget(&repository, forgotten).unwrap();
        prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
        place
    };
    let [one, two] = [&kept[0].0, &kept[1].0].map(|id| decided(&[*id]));
    let verdict = ObjectName::parse("collections/1.verdict").unwrap();

    let done = copy(&*one, &*decided(&[kept[1].0])).unwrap();
    assert_eq!(done.conflicts, std::slice::from_ref(&verdict));
    let place: Arc<dyn Backend> = two.clone();
    let repository = world.open_over(one.clone()).unwrap();
    let error = plan_mirror(&repository, &place).unwrap_err();
    assert!(error.to_string().contains("both were used apart"), "{error}");

    // The same, copied into an empty place.
    let empty = Arc::new(MemoryBackend::new());
    copy(&*one, &*empty).unwrap();
    assert!(empty.snapshot().contains_key(&verdict));
    assert_eq!(copy(&*one, &*empty).unwrap().conflicts, []);

    // Of what is rubbish nothing is known; what cannot be read now ends the copy.
    let mut rubbish = two.snapshot();
    rubbish.insert(verdict.clone(), vec![7; 100]);
    let done = copy(&*one, &MemoryBackend::from_snapshot(rubbish)).unwrap();
    assert_eq!(done.conflicts, []);
    let unread = faulty(&two.snapshot(), "collections", FaultKind::Io);
    assert!(copy(&*one, &unread).is_err());
    let gone = faulty(&two.snapshot(), "collections", FaultKind::Vanish);
    assert_eq!(copy(&*one, &gone).unwrap().conflicts, []);
}

/// An empty place gets the collections that have ended: their verdicts and ends, and no plan.
#[test]
fn a_new_replica_gets_what_collections_have_ended() {
    let (world, kept) = history(774);
    let repository = world.open();
    let copied = || {
        let target = MemoryBackend::new();
        copy(&*world.objects, &target).unwrap();
        let names = names_in(&target.snapshot(), "collections").into_iter();
        names.map(|name| name.file().to_owned()).collect::<Vec<_>>()
    };
    forget(&repository, &[kept[0].0]).unwrap();
    let hasty = PruneOptions { time_max: Some(Duration::ZERO), ..ALL };
    prune(&repository, &hasty, &Silent, &Cancel::new()).unwrap();
    let open = names_in(&world.objects.snapshot(), "collections");
    assert!(open.iter().any(|name| name.file() == "1.verdict"), "{open:?}");
    assert!(copied().is_empty());
    prune(&repository, &ALL, &Silent, &Cancel::new()).unwrap();
    // As one leaves it that is killed after the end.
    for plan in ["1.plan", "1.plan.copy"] {
        let name = ObjectName::parse(&format!("collections/{plan}")).unwrap();
        let _ = world.objects.create(&name, b"a plan");
    }
    assert_eq!(copied(), ["1.done", "1.verdict", "1.verdict.copy"]);
}

/// A replica without a configuration that can be read is known by what both have; what cannot be read now
/// says nothing.
#[test]
fn a_replica_without_its_configuration_is_known_by_its_objects() {
    let (world, kept) = history(771);
    let source = world.objects.snapshot();
    let target = || {
        let target = MemoryBackend::new();
        copy(&*world.objects, &target).unwrap();
        target.snapshot()
    };
    for damage in ["lost", "rubbish", "cut"] {
        let mut objects = target();
        for name in ["config", "config.copy"] {
            let name = ObjectName::parse(name).unwrap();
            match damage {
                "lost" => drop(objects.remove(&name)),
                "rubbish" => drop(objects.insert(name, vec![7; 50])),
                _ => objects.get_mut(&name).unwrap().truncate(100),
            }
        }
        let place = Arc::new(MemoryBackend::from_snapshot(objects.clone()));
        copy(&*world.objects, &*place).unwrap();
        check_complete(&world, place, &kept, &format!("{damage}: with its configuration"));
        // Of another repository, or of nothing: it is left alone.
        for folder in ["arenas", "snapshots"] {
            objects.retain(|name, _| name.folder() != folder);
        }
        objects.insert(ObjectName::top("letter"), b"dear".to_vec());
        let place = MemoryBackend::from_snapshot(objects.clone());
        let error = copy(&*world.objects, &place).unwrap_err();
        assert!(matches!(error, RepositoryError::PlaceNotEmpty { .. }), "{error}");
        assert_eq!(place.snapshot(), objects);
    }
    // Arenas and snapshots of another repository are no sign.
    let mut others = history(772).0.objects.snapshot();
    others.retain(|name, _| !name.folder().is_empty());
    let error = copy(&*world.objects, &MemoryBackend::from_snapshot(others)).unwrap_err();
    assert!(matches!(error, RepositoryError::PlaceNotEmpty { .. }), "{error}");
    assert!(copy(&*world.objects, &faulty(&target(), "", FaultKind::Io)).is_err());
    let bad = FaultPlan::lasting(Calls::of(&[CallKind::Read]).within(""), 0, FaultKind::BadSector);
    let place = FaultyBackend::new(Arc::new(MemoryBackend::from_snapshot(target())), bad);
    assert_eq!(copy(&*world.objects, &place).unwrap().sent, 0);
    assert_eq!(world.objects.snapshot(), source);
}

/// What is cut in the replica is sent again. If it vanishes while that is looked at, it is new; if it cannot
/// be read now, the copy ends.
#[test]
fn what_is_cut_in_the_replica_is_replaced() {
    let (world, kept) = history(773);
    let whole = MemoryBackend::new();
    copy(&*world.objects, &whole).unwrap();
    let whole = whole.snapshot();
    for folder in ["arenas", "snapshots"] {
        for name in names_in(&whole, folder) {
            let mut cut = whole.clone();
            let object = cut.get_mut(&name).unwrap();
            object.truncate(object.len() / 3);
            let place = Arc::new(MemoryBackend::from_snapshot(cut.clone()));
            let done = copy(&*world.objects, &*place).unwrap();
            assert_eq!((done.sent, done.replaced, done.conflicts.len()), (1, 1, 0), "{name}");
            check_complete(&world, place, &kept, "replaced");

            let gone = faulty(&cut, folder, FaultKind::Vanish);
            let done = copy(&*world.objects, &gone).unwrap();
            assert_eq!((done.sent, done.replaced), (1, 0), "{name}");

            let unread = faulty(&cut, folder, FaultKind::Io);
            assert!(copy(&*world.objects, &unread).is_err(), "{name}");
        }
    }
}

#[test]
fn a_place_without_exclusive_create_takes_a_copy() {
    let (world, _) = history(650);
    let target = NotExclusive::new(Objects::new());
    copy(&*world.objects, &target).unwrap();
    assert_eq!(target.inner.snapshot(), world.objects.snapshot());
}

/// There, whether a name is free is asked for: an answer that fails is none, and nothing is written over.
#[test]
fn a_place_without_exclusive_create_is_asked_before_it_is_written_to() {
    let (world, _) = history(651);
    let mut objects = world.objects.snapshot();
    let arena = names_in(&objects, "arenas").remove(0);
    objects.get_mut(&arena).unwrap().truncate(100);
    let sizes = || Calls::of(&[CallKind::Size]).within("arenas");
    for plan in [FaultPlan::lasting, FaultPlan::hiccup].map(|plan| plan(sizes(), 0, FaultKind::Io))
    {
        let shelf = Arc::new(MemoryBackend::from_snapshot(objects.clone()));
        let faulty = Arc::new(FaultyBackend::new(shelf.clone(), plan));
        let promises = Promises { is_exclusive: Some(false), ..shelf.promises() };
        let place = RecordingBackend::new(faulty).promising(promises);
        let error = copy(&*world.objects, &place).unwrap_err().to_string();
        assert!(error.contains("planned fault"), "{error}");
        assert!(shelf.snapshot() == objects, "nothing was written");
    }
    // That it cannot be read is an answer: something is there, and is looked at.
    let damaged = |name: &ObjectName| {
        let source = std::io::ErrorKind::IsADirectory.into();
        BackendError::Unreadable { name: name.clone(), source }
    };
    let withheld = |name: &ObjectName| refusal(Operation::Read, name.to_string());
    let answers: [&dyn Fn(&ObjectName) -> BackendError; 2] = [&damaged, &withheld];
    for answer in answers {
        let place = NotExclusive::new(objects.clone());
        *place.said_once.lock().unwrap() = Some(answer(&arena));
        let done = copy(&*world.objects, &place).unwrap();
        assert_eq!((done.sent, done.replaced), (1, 1));
        assert!(place.inner.snapshot() == world.objects.snapshot());
    }
}

/// A folder that says something of snapshots may be withheld from a copy: the rest is sent, and it is named.
#[test]
fn a_folder_that_is_withheld_is_named_and_the_rest_is_sent() {
    let (world, kept) = history(652);
    forget(&world.open(), &[kept[0].0]).unwrap();
    let all = world.objects.snapshot();
    assert!(!names_in(&all, "forgotten").is_empty());
    let source = NotExclusive { withholds: Some("forgotten"), ..NotExclusive::new(all.clone()) };
    let target = MemoryBackend::new();
    let done = copy(&source, &target).unwrap();
    assert_eq!((done.withheld.len(), done.lost.len()), (1, 0), "{:?}", done.withheld);
    let mut expected = all;
    expected.retain(|name, _| name.folder() != "forgotten");
    assert!(target.snapshot() == expected);
    // Without a listing of arenas there is no copy.
    let source = NotExclusive { withholds: Some("arenas"), ..source };
    assert!(copy(&source, &MemoryBackend::new()).is_err());
}

fn refusal(operation: Operation, what: String) -> BackendError {
    let answer = "the test withholds it".to_owned();
    BackendError::Refused { operation, what, refusal: Refusal::Right, answer }
}

/// A place such as an FTP server.
struct NotExclusive {
    inner: MemoryBackend,
    /// A folder that it does not list.
    withholds: Option<&'static str>,
    /// The answer, once, when it is asked for the size of an arena.
    said_once: Mutex<Option<BackendError>>,
}

impl NotExclusive {
    fn new(objects: Objects) -> Self {
        let inner = MemoryBackend::from_snapshot(objects);
        Self { inner, withholds: None, said_once: Mutex::new(None) }
    }
}

impl Backend for NotExclusive {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        self.inner.read(name, offset, length)
    }
    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        let said = match name.folder() {
            "arenas" => self.said_once.lock().unwrap().take(),
            _ => None,
        };
        said.map_or_else(|| self.inner.size(name), Err)
    }
    fn create(&self, name: &ObjectName, _: &[u8]) -> Result<(), BackendError> {
        Err(self.unsupported("create objects exclusively", name))
    }
    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.replace(name, bytes)
    }
    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.inner.remove(name)
    }
    fn room(&self) -> Option<&dyn strongroom_backend::Room> {
        None
    }

    fn stores(&self) -> Option<&dyn strongroom_backend::Stores> {
        None
    }

    fn complaint(&self) -> Option<String> {
        None
    }

    fn list(&self, folder: &str) -> Result<Vec<strongroom_backend::ObjectInfo>, BackendError> {
        match self.withholds {
            Some(withheld) if withheld == folder => {
                Err(refusal(Operation::List, folder.to_owned()))
            }
            _ => self.inner.list(folder),
        }
    }
    fn sweep(&self) -> Result<usize, BackendError> {
        self.inner.sweep()
    }
    fn promises(&self) -> Promises {
        Promises { in_flight: 4, ..self.inner.promises() }
    }
    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        self.inner.holds_at_most(folder)
    }
    fn describe(&self) -> String {
        "a place without exclusive create".to_owned()
    }
    fn folders(&self) -> Vec<std::path::PathBuf> {
        Vec::new()
    }
}
