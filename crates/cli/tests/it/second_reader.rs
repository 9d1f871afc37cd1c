//! The second reader: `docs/format/restore.py`, which shares no code with the program, restores
//! what the program stored.
//!
//! It needs a Python with blake3, cryptography and zstandard; `./test` makes one and names it in
//! `STRONGROOM_TEST_PYTHON`. Without that variable there is nothing to run it with.
#![expect(clippy::disallowed_methods, reason = "a test that reads the environment")]

use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use strongroom_arena::{
    ArenaBuilder, ArenaContent, ArenaSeed, BlockDraft, BlockSealer, CompressionLevel, Finishing,
    ListedArenas, Origin, StoredChunk, SummarySlot,
};
use strongroom_backend::LocalBackend;
use strongroom_base::{ArenaId, Entropy, OsEntropy, SnapshotId, SystemClock};
use strongroom_catalog::Snapshot;
use strongroom_repository::{Repository, Session, Surroundings, list_snapshots};
use strongroom_testkit::noise;

const PASSPHRASE: &str =
    "strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";

fn strongroom(folder: &Path, arguments: &[&str]) {
    let status = Command::new(env!("CARGO_BIN_EXE_strongroom"))
        .args(["--quiet", "--repo"])
        .arg(folder.join("room"))
        .arg("--cache")
        .arg(folder.join("cache"))
        .args(arguments)
        .env("STRONGROOM_PASSWORD", PASSPHRASE)
        .status()
        .unwrap();
    assert!(status.success(), "{arguments:?}: {status}");
}

fn restore_py(python: &str, folder: &Path, out: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format/restore.py");
    let out = folder.join(out);
    let status = Command::new(python)
        .arg(script)
        .arg(folder.join("room"))
        .arg("latest")
        .arg(&out)
        .env("STRONGROOM_PASSWORD", PASSPHRASE)
        .status()
        .unwrap();
    assert!(status.success(), "restore.py: {status}");
    out
}

fn assert_same(source: &Path, restored: &Path) {
    let with_slash = |path: &Path| format!("{}/", path.display());
    let output = Command::new("rsync")
        .args(["-naXAHc", "--delete", "--itemize-changes"])
        .args([with_slash(source), with_slash(restored)])
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

fn make_tree(tree: &Path) {
    std::fs::create_dir_all(tree.join("sub/empty")).unwrap();
    // Long enough for several chunks, and for a recipe with a node.
    let long: Vec<u8> =
        (0..3_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(tree.join("long"), long).unwrap();
    std::fs::write(tree.join("empty"), b"").unwrap();
    for number in 0..300 {
        std::fs::write(tree.join(format!("sub/{number}")), format!("file {number}\n").repeat(9))
            .unwrap();
    }
    std::fs::write(tree.join("sub/secret"), b"mine").unwrap();
    std::fs::set_permissions(tree.join("sub/secret"), PermissionsExt::from_mode(0o600)).unwrap();
    symlink("../long", tree.join("sub/link")).unwrap();
    std::fs::hard_link(tree.join("sub/secret"), tree.join("second name")).unwrap();
    let sparse = std::fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(50 << 20).unwrap();
    sparse.write_all_at(b"in the middle", 20 << 20).unwrap();
    // A name that is no UTF-8.
    let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"caf\xe9");
    std::fs::write(tree.join(name), b"latin").unwrap();
}

#[test]
fn restore_py_restores_what_the_program_stored() {
    let Ok(python) = std::env::var("STRONGROOM_TEST_PYTHON") else {
        strongroom_testkit::skip("STRONGROOM_TEST_PYTHON is not set; ./test sets it");
        return;
    };
    for naming in ["fingerprint", "location"] {
        restores_what_the_program_stored(&python, naming);
    }
}

fn restores_what_the_program_stored(python: &str, naming: &str) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let tree = folder.join("tree");
    make_tree(&tree);
    let source = tree.to_str().unwrap();
    strongroom(&folder, &["init", "--kdf-memory", "32KiB", "--naming", naming]);
    strongroom(&folder, &["backup", source]);
    std::fs::write(tree.join("sub/7"), b"changed").unwrap();
    std::fs::remove_file(tree.join("sub/8")).unwrap();
    strongroom(&folder, &["backup", source]);
    // Chunks are taken out of blocks, and what is left of those is sealed again.
    strongroom(&folder, &["forget", "--keep-last", "1"]);
    strongroom(&folder, &["prune", "--max-unused", "0"]);
    let arenas = std::fs::read_dir(folder.join("room/arenas")).unwrap();
    let names = arenas.map(|arena| arena.unwrap().file_name().into_string().unwrap());
    assert!(names.filter(|name| !name.ends_with(".0")).count() > 0, "an arena was rewritten");
    let inner = tree.strip_prefix("/").unwrap();
    assert_same(&tree, &restore_py(python, &folder, "out").join(inner));
    // Someone without a key says that a newer program made the snapshot, and everything that it needs.
    for file in ["snapshots", "arenas", "ended"]
        .iter()
        .flat_map(|name| std::fs::read_dir(folder.join("room").join(name)).into_iter().flatten())
    {
        claim_to_be_newer(&file.unwrap().path());
    }
    assert_same(&tree, &restore_py(python, &folder, "out in spite of it").join(inner));
    // A lost configuration is read from its copy.
    std::fs::remove_file(folder.join("room/config")).unwrap();
    assert_same(&tree, &restore_py(python, &folder, "out again").join(inner));
}

/// Sets a required feature in header and trailer.
fn claim_to_be_newer(file: &Path) {
    let mut object = std::fs::read(file).unwrap();
    let trailer = object.len() - 128;
    for start in [0, trailer] {
        let header = &mut object[start..][..128];
        header[68] = 1;
        let checksum = crc32c::crc32c(&header[..124]);
        header[124..].copy_from_slice(&checksum.to_le_bytes());
    }
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(file, object).unwrap();
}

/// A collection leaves slots that hold nothing: they are no damage.
#[test]
fn kept_h9_restore_py_finds_no_damage_after_a_prune() {
    let Ok(python) = std::env::var("STRONGROOM_TEST_PYTHON") else {
        strongroom_testkit::skip("STRONGROOM_TEST_PYTHON is not set; ./test sets it");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tree = folder.join("tree");
    make_tree(&tree);
    strongroom(folder, &["init"]);
    strongroom(folder, &["backup", tree.to_str().unwrap()]);
    for number in (0..300).step_by(2) {
        std::fs::remove_file(tree.join(format!("sub/{number}"))).unwrap();
    }
    std::fs::write(tree.join("long"), vec![3; 100_000]).unwrap();
    strongroom(folder, &["backup", tree.to_str().unwrap()]);
    strongroom(folder, &["forget", "latest~1"]);
    strongroom(folder, &["prune", "--max-unused", "0"]);
    let arenas = std::fs::read_dir(folder.join("room/arenas")).unwrap();
    let names: Vec<_> = arenas.map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().any(|name| !name.to_str().unwrap().ends_with(".0")), "one was rewritten");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format/restore.py");
    let output = Command::new(python)
        .arg(script)
        .arg("--check")
        .arg(folder.join("room"))
        .env("STRONGROOM_PASSWORD", PASSPHRASE)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains(", 0 damaged"), "{said}{errors}");
}

/// Both readers read what a repair has saved of an arena whose summary was lost, also when another copy of the
/// repository brings a generation with the owner's mark. Which of the two has the greater number is chance.
#[test]
fn both_readers_read_what_was_saved_beside_what_another_copy_rewrote() {
    let Ok(python) = std::env::var("STRONGROOM_TEST_PYTHON") else {
        strongroom_testkit::skip("STRONGROOM_TEST_PYTHON is not set; ./test sets it");
        return;
    };
    for turn in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let (tree, other_tree) = (folder.join("tree"), folder.join("other tree"));
        for made in [&tree, &other_tree] {
            std::fs::create_dir(made).unwrap();
        }
        for file in 0..8 {
            std::fs::write(tree.join(format!("{file}")), noise(file, 200_000)).unwrap();
        }
        std::fs::copy(tree.join("7"), other_tree.join("7")).unwrap();
        strongroom(&folder, &["init", "--kdf-memory", "32KiB"]);
        strongroom(&folder, &["backup", tree.to_str().unwrap()]);
        let copied =
            Command::new("cp").args(["-a", "room", "copy"]).current_dir(&folder).status().unwrap();
        assert!(copied.success());
        // The copy keeps little of the arena.
        let (room, aside, copy) = (folder.join("room"), folder.join("aside"), folder.join("copy"));
        std::fs::rename(&room, &aside).unwrap();
        std::fs::rename(&copy, &room).unwrap();
        strongroom(&folder, &["backup", other_tree.to_str().unwrap()]);
        strongroom(&folder, &["forget", "latest~1"]);
        strongroom(&folder, &["prune", "--max-unused", "0"]);
        std::fs::rename(&room, &copy).unwrap();
        std::fs::rename(&aside, &room).unwrap();
        // Another machine has used the copy.
        std::fs::remove_dir_all(folder.join("cache")).unwrap();
        // Of the other the front is lost, and what a repair saves of it is in use.
        let arenas = std::fs::read_dir(room.join("arenas")).unwrap();
        let arenas = arenas.map(|arena| arena.unwrap().path());
        let arena = arenas.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
        std::fs::set_permissions(&arena, PermissionsExt::from_mode(0o600)).unwrap();
        let file = std::fs::File::options().write(true).open(&arena).unwrap();
        file.write_all_at(&noise(99, 400_000), 0).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_strongroom"))
            .args(["repair", "--repo", room.to_str().unwrap()])
            .env("STRONGROOM_PASSWORD", PASSPHRASE)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("saved in part"), "{said}{errors}");
        strongroom(&folder, &["backup", "--force", tree.to_str().unwrap()]);
        let target = room.to_str().unwrap();
        std::fs::rename(&room, folder.join("damaged")).unwrap();
        std::fs::rename(&copy, &room).unwrap();
        strongroom(&folder, &["replicate", folder.join("damaged").to_str().unwrap()]);
        std::fs::rename(&room, &copy).unwrap();
        std::fs::rename(folder.join("damaged"), target).unwrap();
        let inner = tree.strip_prefix("/").unwrap();
        strongroom(&folder, &["verify", "--data"]);
        strongroom(&folder, &["prune", "--max-unused", "0"]);
        strongroom(&folder, &["repair"]);
        strongroom(
            &folder,
            &["restore", "latest", "--target", folder.join("out").to_str().unwrap()],
        );
        assert_same(&tree, &folder.join("out").join(inner));
        assert_same(&tree, &restore_py(&python, &folder, &format!("second {turn}")).join(inner));
    }
}

/// Another machine's first generation of an arena that was rewritten, and all that a folder can hold that is no
/// object, or none that can be read: restore.py restores what the program does.
#[test]
fn restore_py_passes_over_what_is_planted_and_what_is_no_object() {
    let Ok(python) = std::env::var("STRONGROOM_TEST_PYTHON") else {
        strongroom_testkit::skip("STRONGROOM_TEST_PYTHON is not set; ./test sets it");
        return;
    };
    for naming in ["fingerprint", "location"] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let tree = folder.join("tree");
        make_tree(&tree);
        strongroom(&folder, &["init", "--kdf-memory", "32KiB", "--naming", naming]);
        strongroom(&folder, &["backup", tree.to_str().unwrap()]);
        for number in (0..300).step_by(2) {
            std::fs::remove_file(tree.join(format!("sub/{number}"))).unwrap();
        }
        std::fs::write(tree.join("long"), vec![3; 100_000]).unwrap();
        strongroom(&folder, &["backup", tree.to_str().unwrap()]);
        strongroom(&folder, &["forget", "latest~1"]);
        strongroom(&folder, &["prune", "--max-unused", "0"]);
        std::fs::write(folder.join("laptop"), LAPTOP).unwrap();
        let key =
            ["--new-password-file", folder.join("laptop").to_str().unwrap()].map(str::to_owned);
        let mut add = vec!["key", "add", "--put-only", "--domain", "laptop"];
        add.extend(key.iter().map(String::as_str));
        strongroom(&folder, &add);
        assert!(plant_first_generations(&folder) > 0, "some were rewritten");
        let room = folder.join("room");
        let slots = std::fs::read_dir(room.join("keys")).unwrap();
        let slot = std::fs::read(slots.last().unwrap().unwrap().path()).unwrap();
        for (name, bytes) in [
            ("keys/.tmp-1", &b"half"[..]),
            ("keys/0 is no slot", b""),
            ("keys/0000000000000000", &slot[..]),
            ("keys/0000000000000001", b""),
            ("arenas/x.1", b"rubbish"),
            ("arenas/00.1", b""),
            ("snapshots/no snapshot", b""),
        ] {
            std::fs::write(room.join(name), bytes).unwrap();
        }
        // It can be listed, and gives an error when it is read.
        std::fs::create_dir(room.join("snapshots/00000000000000000000000000000000")).unwrap();
        let out = restore_py(&python, &folder, "out");
        assert_same(&tree, &out.join(tree.strip_prefix("/").unwrap()));
    }
}

/// Creates with the laptop's key the first generation of each arena that has only later ones, and returns how
/// many there are.
fn plant_first_generations(folder: &Path) -> usize {
    let thief = Repository::open(surroundings(folder), LAPTOP.as_bytes()).unwrap();
    let keys = thief.write_keys();
    let listed = ListedArenas::list(thief.backend()).unwrap();
    let rewritten: Vec<ArenaId> = listed
        .newest()
        .map(|newest| newest.name)
        .filter(|name| name.generation > 0)
        .map(|name| name.id)
        .collect();
    for id in &rewritten {
        let content = ArenaContent::of(*id);
        let seed = ArenaSeed::draw(content, keys, &Chosen(*id));
        let mut builder = ArenaBuilder::new(&seed, Vec::new(), 0);
        let mut sealer = BlockSealer::new(CompressionLevel::DEFAULT);
        let (mut draft, mut named) = (BlockDraft::new(0, 0), Vec::new());
        for _ in 0..400 {
            let chunk = StoredChunk::Whole(&[0x77; 40]);
            draft.push(chunk);
            let fingerprint = content.fingerprinter(&keys.naming).fingerprint(&[0x77; 40]);
            named.push(SummarySlot::of(fingerprint, chunk));
        }
        builder.push(&sealer.seal(draft, seed.id, &seed.key), named);
        let finished = builder.finish(Finishing {
            generation: 0,
            origin: Origin { session: SnapshotId([7; 16]), sequence: 7 },
            keys,
            redundancy: thief.redundancy(),
            padding: None,
        });
        thief.backend().create(&finished.name.object(), finished.object()).unwrap();
    }
    rewritten.len()
}

/// The name of an arena, where one would be drawn.
struct Chosen(ArenaId);

impl Entropy for Chosen {
    fn fill(&self, bytes: &mut [u8]) {
        match bytes.len() {
            ArenaId::BYTES => bytes.copy_from_slice(&self.0.0),
            _ => bytes.fill(0x5c),
        }
    }
}

/// Kept 2.3 (confused deputy): a snapshot of a machine that can only store names what the owner has
/// stored. Neither reader gives it, unless its user says so.
#[test]
fn kept_h3_both_readers_give_a_put_only_snapshot_its_own_alone() {
    let Ok(python) = std::env::var("STRONGROOM_TEST_PYTHON") else {
        strongroom_testkit::skip("STRONGROOM_TEST_PYTHON is not set; ./test sets it");
        return;
    };
    for naming in ["fingerprint", "location"] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let tree = folder.join("tree");
        std::fs::create_dir_all(&tree).unwrap();
        std::fs::write(tree.join("payroll"), [0x42; 30_000]).unwrap();
        strongroom(&folder, &["init", "--kdf-memory", "32KiB", "--naming", naming]);
        strongroom(&folder, &["backup", tree.to_str().unwrap()]);
        std::fs::write(folder.join("laptop"), LAPTOP).unwrap();
        let key = folder.join("laptop");
        let key = ["--new-password-file", key.to_str().unwrap()];
        strongroom(
            &folder,
            &[&["key", "add", "--put-only", "--domain", "laptop"], &key[..]].concat(),
        );
        let stolen = steal_latest(&folder);
        let payroll = tree.join("payroll");
        let payroll = payroll.strip_prefix("/").unwrap();
        for foreign_chunks in [false, true] {
            let options = if foreign_chunks { &["--foreign-chunks"][..] } else { &[] };
            let outs =
                ["ours", "theirs"].map(|name| folder.join(format!("{name} {foreign_chunks}")));
            let ours = Command::new(env!("CARGO_BIN_EXE_strongroom"))
                .args(["--quiet", "restore", &stolen, "--target"])
                .arg(&outs[0])
                .args(options)
                .env("STRONGROOM_REPOSITORY", folder.join("room"))
                .env("STRONGROOM_CACHE", folder.join("cache"))
                .env("STRONGROOM_PASSWORD", PASSPHRASE)
                .output()
                .unwrap();
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format/restore.py");
            let theirs = Command::new(&python)
                .arg(script)
                .args(options)
                .arg(folder.join("room"))
                .args([&stolen])
                .arg(&outs[1])
                .env("STRONGROOM_PASSWORD", PASSPHRASE)
                .output()
                .unwrap();
            for (out, output) in outs.iter().zip([ours, theirs]) {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert_eq!(output.status.success(), foreign_chunks, "{naming} {out:?} {said}");
                assert_eq!(out.join(payroll).exists(), foreign_chunks, "{naming} {out:?} {said}");
            }
        }
    }
}

const LAPTOP: &str =
    "strongroom-key-3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3cd814f45f";

fn surroundings(folder: &Path) -> Surroundings {
    Surroundings {
        backend: Arc::new(LocalBackend::open(&folder.join("room")).unwrap()),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(OsEntropy),
        cache: None,
    }
}

/// Commits with the laptop's key a snapshot of what the owner has stored last.
fn steal_latest(folder: &Path) -> String {
    let owner = Repository::open(surroundings(folder), PASSPHRASE.as_bytes()).unwrap();
    let root = list_snapshots(&owner).unwrap().snapshots.pop().unwrap().root;
    let thief = Repository::open(surroundings(folder), LAPTOP.as_bytes()).unwrap();
    let session = Session::begin(&thief, "laptop").unwrap();
    let snapshot = Snapshot { root, host: "laptop".to_owned(), ..Snapshot::empty(session.id) };
    session.commit(&snapshot).unwrap();
    snapshot.id.to_string()
}
