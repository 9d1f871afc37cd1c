//! No object stops a verb: each kind of object, bad in each way, before every verb.
//!
//! With any object in the repository, what was stored is read, each machine stores, and snapshots are
//! forgotten. What cannot be decided keeps a collection from removing anything, and that is all. After a
//! repair nothing is left of what is not the owner's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use strongroom_arena::envelope::format::Header;
use strongroom_arena::envelope::{self, HEADROOM, Identity, newness};
use strongroom_arena::{ArenaName, Origin};
use strongroom_backend::{Backend, MemoryBackend, ObjectName};
use strongroom_base::{ArenaId, Cancel, Silent, SnapshotId};
use strongroom_repository::objects::{COPY, expected};
use strongroom_repository::{
    Collections, Hold, Repository, RepositoryError, Session, find_useless, list_snapshots,
};
use strongroom_testkit::damage::{Objects, names_in};
use strongroom_testkit::tree::{TreeOptions, grow, mutate};
use strongroom_testkit::{
    CallKind, Gives, Image, RecordingBackend, RefusingBackend, WithholdingBackend,
};
use strongroom_upkeep::{
    NewAccess, PruneOptions, VerifyDepth, add_key, forget, hold, plan_removals, plan_repair, prune,
    remember, repair, verify,
};

use crate::world::{LAPTOP, PASSPHRASE, World, init_options, options, run};

const TREE: TreeOptions =
    TreeOptions { entries: 4, chunk_bytes: 6 << 10, file_bytes_max: 12 << 10 };

/// How an object can be bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bad {
    Rubbish,
    Truncated,
    Empty,
    Unreadable,
    Withheld,
    Planted,
    Newer,
    FalselyNewer,
    Vast,
}

impl Bad {
    const ALL: [Self; 9] = [
        Self::Rubbish,
        Self::Truncated,
        Self::Empty,
        Self::Unreadable,
        Self::Withheld,
        Self::Planted,
        Self::Newer,
        Self::FalselyNewer,
        Self::Vast,
    ];

    /// What is under a name then.
    fn bytes(self, name: &ObjectName, own: Option<&Vec<u8>>, key: &[u8; 32]) -> Vec<u8> {
        let planted = || {
            let of = expected(&ObjectName::parse(name.as_str().trim_end_matches(COPY)).unwrap());
            let of = of.unwrap();
            let (id, origin) = (of.id.unwrap_or([9; 16]), Origin::NONE);
            let identity = Identity { kind: of.kind, id, generation: of.generation, origin };
            envelope::seal_small(&[7; 200], identity)
        };
        match self {
            Self::Rubbish => (0..16).map(|byte| byte * 17).collect(),
            Self::Truncated => {
                let whole = own.cloned().unwrap_or_else(planted);
                whole[..whole.len() / 3].to_vec()
            }
            Self::Empty => Vec::new(),
            Self::Unreadable | Self::Withheld => own.cloned().unwrap_or_else(planted),
            Self::Planted => planted(),
            Self::Newer | Self::FalselyNewer => {
                let mut object = planted();
                let header: Header = envelope::peek(&object).unwrap();
                let trailer = header.layout().trailer;
                let mut newer = Header { required_features: 1, ..header }.pack();
                if self == Self::Newer {
                    newer = newness::with_proof(newer, key);
                }
                object[..HEADROOM].copy_from_slice(&newer);
                object[trailer..].copy_from_slice(&newer);
                object
            }
            // Longer than any object but an arena may be.
            Self::Vast => vec![0; (64 << 20) + 1],
        }
    }
}

/// Which repository an object is put into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    /// One collection, which has ended.
    Ended,
    /// A second one, with a plan.
    Planned,
}

/// What a repair can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mended {
    /// All is as it was.
    Yes,
    /// It stays, or something stays lost.
    No,
}

/// A repository with some history.
struct Scene {
    world: World,
    ended: Objects,
    planned: Objects,
    /// Kept, with its content.
    kept: (SnapshotId, Image),
    /// Kept, until a verb forgets it.
    spare: SnapshotId,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let world = World::empty(seed);
        grow(&world.tree(), seed, TREE);
        let repository =
            Repository::init(world.surroundings(), PASSPHRASE, &init_options()).unwrap();
        add_key(&repository, LAPTOP, "laptop", NewAccess::PutOnly("laptop"), None).unwrap();
        let mut ids = Vec::new();
        let mut image = world.image();
        for version in 0..4 {
            mutate(&world.tree(), seed + version, TREE);
            image = world.image();
            ids.push(world.backup().snapshot.id);
        }
        forget(&repository, &ids[..1]).unwrap();
        assert_eq!(collect(&repository).unwrap(), Some(1));
        let ended = world.objects.snapshot();
        let session = Session::begin(&repository, "host").unwrap();
        forget(&repository, &ids[1..2]).unwrap();
        assert_eq!(collect(&repository).unwrap(), Some(2), "it waits");
        drop(session);
        let planned = world.objects.snapshot();
        assert!(planned.keys().any(|name| name.as_str() == "collections/2.plan.copy"));
        Self { world, ended, planned, kept: (ids[3], image), spare: ids[2] }
    }

    fn base(&self, base: Base) -> &Objects {
        match base {
            Base::Ended => &self.ended,
            Base::Planned => &self.planned,
        }
    }
}

fn collect(repository: &Repository) -> Result<Option<u64>, RepositoryError> {
    let options = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
    prune(repository, &options, &Silent, &Cancel::new()).map(|outcome| outcome.collection)
}

/// Every verb, one after the other; what each came to.
struct Verbs<'s> {
    scene: &'s Scene,
    backend: Arc<dyn Backend>,
    what: String,
}

impl Verbs<'_> {
    fn open(&self) -> Repository {
        let opened = self.scene.world.open_over(self.backend.clone());
        opened.unwrap_or_else(|error| panic!("{}: it does not open: {error}", self.what))
    }

    /// Readers, writers and the one who forgets are stopped by nothing.
    fn all(&self, may_be_held: bool) -> [&'static str; 5] {
        let Self { scene, what, .. } = self;
        let (kept, image) = &scene.kept;
        let repository = self.open();
        let list = list_snapshots(&repository).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(list.readable().iter().any(|snapshot| snapshot.id == *kept), "{what}: listed");
        scene.world.assert_holds(&repository, *kept, image, what);
        let laptop = Repository::open(scene.world.over(self.backend.clone()), LAPTOP).unwrap();
        for machine in [&laptop, &repository] {
            let stored = run(machine, &options(&scene.world.tree()), &Silent);
            let stored = stored.unwrap_or_else(|error| panic!("{what}: a backup: {error}"));
            scene.world.assert_holds(&repository, stored.snapshot.id, &scene.world.image(), what);
        }
        let forgotten = match forget(&self.open(), &[scene.spare]) {
            Ok(count) => {
                assert_eq!(count, 1, "{what}");
                let list = list_snapshots(&self.open()).unwrap();
                let is_listed = list.snapshots.iter().any(|snapshot| snapshot.id == scene.spare);
                assert!(!is_listed, "{what}: forgotten, and still listed");
                "goes"
            }
            Err(RepositoryError::Held { .. }) if may_be_held => "held",
            Err(error) => panic!("{what}: forget: {error}"),
        };
        let verified = self.verified();
        let pruned = self.pruned();
        self.repair();
        [forgotten, verified, pruned, self.verified(), self.pruned()]
    }

    fn verified(&self) -> &'static str {
        let outcome = verify(&self.open(), VerifyDepth::Structure, &Silent, &Cancel::new());
        let outcome = outcome.unwrap_or_else(|error| panic!("{}: verify: {error}", self.what));
        assert!(outcome.affected.is_empty(), "{}: {:?}", self.what, outcome.affected);
        if outcome.is_sound() { "sound" } else { "named" }
    }

    fn pruned(&self) -> &'static str {
        let pruned = match collect(&self.open()) {
            Ok(_) => "goes",
            Err(
                RepositoryError::NotCollectable { .. }
                | RepositoryError::Undecided { .. }
                | RepositoryError::Forged { .. }
                | RepositoryError::Object { .. },
            ) => "stops",
            Err(error) if error.is_withheld() => "stops",
            Err(error) => panic!("{}: prune: {error}", self.what),
        };
        let (kept, image) = &self.scene.kept;
        self.scene.world.assert_holds(&self.open(), *kept, image, &self.what);
        pruned
    }

    fn repair(&self) {
        let mut plan = match plan_repair(&*self.backend, &Silent, &Cancel::new()) {
            // Who may not read all repairs nothing.
            Err(error) if error.is_withheld() => return,
            other => other.unwrap(),
        };
        let repository = self.open();
        plan_removals(&repository, &mut plan).unwrap();
        repair(&repository, &plan, &Silent, &Cancel::new())
            .unwrap_or_else(|error| panic!("{}: repair: {error}", self.what));
    }
}

/// The names that are bad, and what a repair can do about them.
type Row = (Base, &'static str, Vec<ObjectName>, Mended);

fn rows(scene: &Scene) -> Vec<Row> {
    use Base::{Ended, Planned};
    let names = |texts: &[&str]| -> Vec<ObjectName> {
        texts.iter().map(|text| ObjectName::parse(text).unwrap()).collect()
    };
    let of_spare = |folder: &str, number: u32| {
        ObjectName::parse(&format!("{folder}/{}.{number}", scene.spare)).unwrap()
    };
    let id = "71717171717171717171717171717171";
    let in_folder = |folder: &str, suffix: &str| names(&[&format!("{folder}/{id}{suffix}")]);
    let (yes, no) = (Mended::Yes, Mended::No);
    vec![
        (Ended, "verdict", names(&["collections/1.verdict"]), yes),
        (Ended, "its copy", names(&["collections/1.verdict.copy"]), yes),
        (Ended, "end", names(&["collections/1.done"]), yes),
        (
            Ended,
            "verdict and copy",
            names(&["collections/1.verdict", "collections/1.verdict.copy"]),
            yes,
        ),
        (Ended, "next plan", names(&["collections/2.plan"]), yes),
        (Ended, "its copy alone", names(&["collections/2.plan.copy"]), yes),
        (Ended, "next verdict", names(&["collections/2.verdict"]), yes),
        (Ended, "next end", names(&["collections/2.done"]), yes),
        (Ended, "next plan, verdict", names(&["collections/2.plan", "collections/2.verdict"]), yes),
        (
            Ended,
            "next and another",
            names(&["collections/2.plan", "collections/3.plan", "collections/3.done"]),
            yes,
        ),
        (
            Ended,
            "those far on",
            names(&["collections/9.plan", "collections/9.verdict", "collections/9.done"]),
            yes,
        ),
        (Planned, "open plan", names(&["collections/2.plan"]), yes),
        (
            Planned,
            "open plan and copy",
            names(&["collections/2.plan", "collections/2.plan.copy"]),
            yes,
        ),
        (Planned, "its verdict", names(&["collections/2.verdict"]), yes),
        (Planned, "its end", names(&["collections/2.done"]), yes),
        (Planned, "the next plan", names(&["collections/3.plan"]), yes),
        (Ended, "wish", vec![of_spare("forgotten", 1)], yes),
        (Ended, "wishes", vec![of_spare("forgotten", 1), of_spare("forgotten", 2)], yes),
        (Ended, "last wish", vec![of_spare("forgotten", u32::MAX)], yes),
        (Ended, "remark", vec![of_spare("remarks", 1)], no),
        (Ended, "last remark", vec![of_spare("remarks", u32::MAX)], yes),
        (Ended, "look", names(&["arrivals/7"]), yes),
        (Ended, "end of a domain", in_folder("ended", ".1"), yes),
        (
            Ended,
            "end of a domain and copy",
            [in_folder("ended", ".1"), in_folder("ended", ".1.copy")].concat(),
            yes,
        ),
        (Ended, "voucher", in_folder("vouchers", ""), no),
        (Ended, "session", in_folder("sessions", ""), no),
        (Ended, "snapshot", in_folder("snapshots", ""), no),
        (Ended, "key slot", names(&["keys/7171717171717171", "keys/7171717171717171.copy"]), no),
        (Ended, "arena", in_folder("arenas", ".0"), no),
    ]
}

#[test]
fn kept_h4_no_object_stops_a_verb() {
    let scene = Scene::new(460);
    let key = scene.world.open().write_keys().naming.envelope_key;
    let mut table = String::new();
    for (base, kind, names, mended) in rows(&scene) {
        for bad in Bad::ALL {
            let what = format!("{base:?}: {kind} is {bad:?}");
            let mut objects = scene.base(base).clone();
            let mut refused = Vec::new();
            for name in &names {
                let bytes = bad.bytes(name, objects.get(name), &key);
                objects.insert(name.clone(), bytes);
                if matches!(bad, Bad::Unreadable | Bad::Withheld) {
                    refused.push(name.clone());
                }
            }
            let memory = Arc::new(MemoryBackend::from_snapshot(objects));
            let backend: Arc<dyn Backend> = match refused.as_slice() {
                withheld if bad == Bad::Withheld => {
                    let withheld = withheld.to_vec();
                    Arc::new(WithholdingBackend::new(memory.clone(), move |name| {
                        match withheld.contains(name) {
                            true => Gives::Forbidden,
                            false => Gives::All,
                        }
                    }))
                }
                [] => memory.clone(),
                [first, rest @ ..] => {
                    let refusing = RefusingBackend::with_bad(memory.clone(), first, 0..u64::MAX);
                    rest.iter().for_each(|name| refusing.refuse(name, 0..u64::MAX));
                    Arc::new(refusing)
                }
            };
            let verbs = Verbs { scene: &scene, backend, what };
            let came_to = verbs.all(kind.contains("remark"));
            // What the medium refuses may be read one day, and what is newer is not ours to judge.
            let is_to_be_gone = !matches!(bad, Bad::Unreadable | Bad::Withheld | Bad::Newer);
            if mended == Mended::Yes && is_to_be_gone {
                assert_eq!(came_to[3..], ["sound", "goes"], "{}: after a repair", verbs.what);
                assert_eq!(find_useless(&verbs.open()).unwrap(), [], "{}", verbs.what);
            }
            table += &format!("{:<42} {}\n", verbs.what, came_to.join(" "));
        }
    }
    println!(
        "restore and backup of each machine go on; forget, verify, prune, and after a repair\n"
    );
    println!("verify, prune:\n{table}");
}

/// Without a copy, as programs before made none.
#[test]
fn kept_h4_a_damaged_end_is_read_from_its_verdict() {
    let scene = Scene::new(461);
    let bare = |name: &ObjectName| name.file().starts_with("1.") && name.file().ends_with(COPY);
    let mut objects = scene.ended.clone();
    objects.retain(|name, _| name.folder() != "collections" || !bare(name));
    let end = ObjectName::new("collections", "1.done");
    objects.insert(end.clone(), Vec::new());
    let memory = Arc::new(MemoryBackend::from_snapshot(objects));
    let repository = scene.world.open_over(memory.clone()).unwrap();
    let collections = Collections::read(&repository).unwrap();
    let of_verdict: Vec<_> = collections.taken().cloned().collect();
    assert_eq!((collections.last, of_verdict.len()), (1, 1));
    assert!(collections.doubtful().is_none() && collections.blocked().is_none());
    // The next prune ends the collection once more, and the one after has nothing to do.
    assert_eq!(collect(&repository).unwrap(), Some(1));
    assert!(!memory.snapshot()[&end].is_empty());
    let collections = Collections::read(&repository).unwrap();
    assert_eq!((collections.last, collections.open.is_none()), (1, true));
}

/// Nothing of a plan can be read: no writer relies on what it may condemn, until the owner has said that
/// it removes nothing. A machine that may only store cannot, and stores again.
#[test]
fn kept_h4_a_plan_that_cannot_be_read_is_relied_on_by_nobody() {
    let scene = Scene::new(462);
    let mut objects = scene.planned.clone();
    for name in ["collections/2.plan", "collections/2.plan.copy"] {
        objects.insert(ObjectName::parse(name).unwrap(), b"torn".to_vec());
    }
    let memory = Arc::new(MemoryBackend::from_snapshot(objects));
    let laptop = || Repository::open(scene.world.over(memory.clone()), LAPTOP).unwrap();
    let first = run(&laptop(), &options(&scene.world.tree()), &Silent).unwrap();
    let again = run(&laptop(), &options(&scene.world.tree()), &Silent).unwrap();
    assert!(again.written.data_chunks_new >= first.written.data_chunks_new, "it relies on nothing");
    let repository = scene.world.open_over(memory.clone()).unwrap();
    assert!(Collections::read(&repository).unwrap().doubtful().is_some());
    let owner = run(&repository, &options(&scene.world.tree()), &Silent).unwrap();
    assert_eq!(
        owner.written.data_chunks_new, 0,
        "the owner's answers it, and relies on what there is"
    );
    let collections = Collections::read(&repository).unwrap();
    assert!(collections.doubtful().is_none() && collections.last == 2);
    let third = run(&laptop(), &options(&scene.world.tree()), &Silent).unwrap();
    assert_eq!(third.written.data_chunks_new, 0, "nor is there doubt for others any more");
    collect(&repository).unwrap();
    let (kept, image) = &scene.kept;
    scene.world.assert_holds(&repository, *kept, image, "after a prune");
}

/// Rubbish behind the greatest number takes nothing back, and what is next to it is overruled.
#[test]
fn kept_h7_forgotten_means_forgotten() {
    let scene = Scene::new(463);
    let name =
        |number: u32| ObjectName::parse(&format!("forgotten/{}.{number}", scene.spare)).unwrap();
    let audit = Hold { reason: "audit".to_owned(), until: None };
    let cases: [&[u32]; 6] = [&[u32::MAX], &[1], &[2], &[1, 2], &[1, 2, 3, 4], &[5, 6, u32::MAX]];
    for numbers in cases {
        let mut objects = scene.ended.clone();
        for number in numbers {
            objects.insert(name(*number), vec![40; 40]);
        }
        let memory = Arc::new(MemoryBackend::from_snapshot(objects));
        let repository = scene.world.open_over(memory.clone()).unwrap();
        let is_listed = || {
            let list = list_snapshots(&repository).unwrap();
            list.snapshots.iter().any(|snapshot| snapshot.id == scene.spare)
        };
        assert!(is_listed(), "{numbers:?}");
        assert_eq!(forget(&repository, &[scene.spare]).unwrap(), 1, "{numbers:?}");
        assert!(!is_listed(), "{numbers:?}");
        assert_eq!(forget(&repository, &[scene.spare]).unwrap(), 0, "{numbers:?}");
        assert_eq!(remember(&repository, &[scene.spare]).unwrap(), [], "{numbers:?}");
        assert!(is_listed(), "{numbers:?}: taken back");
        forget(&repository, &[scene.spare]).unwrap();
        // A thief plants the next.
        let wishes: BTreeMap<_, _> = memory.snapshot();
        let last = wishes.keys().filter(|wish| wish.folder() == "forgotten");
        let numbers_there = last.filter_map(|wish| wish.file().split_once('.')?.1.parse().ok());
        let greatest = numbers_there.filter(|number: &u32| *number < 100).max().unwrap();
        memory.create(&name(greatest + 1), b"rubbish").unwrap();
        assert!(is_listed(), "{numbers:?}: it may say that it stays");
        assert_eq!(forget(&repository, &[scene.spare]).unwrap(), 1, "{numbers:?}");
        assert!(!is_listed(), "{numbers:?}");
        assert_eq!(hold(&repository, &[scene.spare], &audit).unwrap(), []);
        assert!(is_listed(), "{numbers:?}: held");
    }
}

/// A summary may have been made to cost much. Those of other domains cost the owner's backup their heads,
/// once: also if they do not open.
#[test]
fn kept_h8_summaries_of_other_domains_are_not_opened() {
    let world = World::bare(464).with_cache();
    grow(&world.tree(), 464, TREE);
    add_key(&world.open(), LAPTOP, "laptop", NewAccess::PutOnly("laptop"), None).unwrap();
    let laptop = Repository::open(world.surroundings(), LAPTOP).unwrap();
    run(&laptop, &options(&world.tree()), &Silent).unwrap();
    let of_laptop = names_in(&world.objects.snapshot(), "arenas").remove(0);
    let object = world.objects.snapshot()[&of_laptop].clone();
    let header = envelope::peek(&object).unwrap();
    let mut id = header.id;
    id[15] ^= 1;
    let identity = Identity { kind: header.kind, id, generation: 0, origin: header.origin };
    let body = &object[HEADROOM..HEADROOM + header.body_bytes()];
    let planted = ArenaName { id: ArenaId(id), generation: 0 }.object();
    world.objects.create(&planted, &envelope::seal_small(body, identity)).unwrap();
    let back_up = || {
        let reads = Arc::new(AtomicU64::new(0));
        let (counted, name) = (reads.clone(), planted.as_str().to_owned());
        let acting = RecordingBackend::acting(world.objects.clone(), move |call| {
            let is_of_it = call.kind == CallKind::Read && call.name == name;
            counted.fetch_add(u64::from(is_of_it), Ordering::Relaxed);
        });
        let repository = world.open_over(Arc::new(acting)).unwrap();
        run(&repository, &options(&world.tree()), &Silent).unwrap();
        reads.load(Ordering::Relaxed)
    };
    assert_eq!((back_up(), back_up()), (1, 0));
}
