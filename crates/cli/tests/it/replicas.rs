//! Copies of a repository, as people use them.

use std::fs;
use std::process::Command;

use strongroom_testkit::servers::{moto, sshd, versitygw, vsftpd, wsgidav};
use strongroom_testkit::{assert_same, compare, noise};

use crate::world::{CHEAP, Run, World};

#[test]
fn a_replica_is_made_kept_and_restored_from_without_a_passphrase() {
    let world = World::with_tree(900);
    world.backup().exits(0);
    let [one, two] = ["one", "two"].map(|name| world.path(name).display().to_string());
    let replicate = |args: &[&str]| {
        let mut command = world.command(["replicate"].iter().chain(args));
        command.env_remove("STRONGROOM_PASSWORD");
        Run::of(command.output().unwrap())
    };
    replicate(&[&one, "--dry-run"]).exits(0).says("a new place: would send");
    assert!(!world.path("one").exists());
    replicate(&[&one, &two]).exits(0).says("were there");
    let run = replicate(&["--json", &one]).exits(0);
    assert_eq!(run.events("replica")[0]["sent"], 0);
    let target = world.path("out").display().to_string();
    world.run(["restore", "latest", "--target", &target, "--repo", &two]).exits(0);

    // One that cannot be written to does not keep the others from being copied to.
    world.backup().exits(0);
    fs::write(world.path("file"), "in the way").unwrap();
    let file = world.path("file").display().to_string();
    replicate(&[&file, &two]).exits(1).says("sent");
}

#[test]
fn another_repository_is_no_replica() {
    let world = World::with_tree(901);
    world.backup().exits(0);
    let other = world.path("other").display().to_string();
    world.run(["init", "--repo", &other].iter().chain(&CHEAP)).exits(0);
    world.run(["replicate", &other]).exits(1).warns("holds another repository").warns("hint");
    let nothing = world.path("nothing").display().to_string();
    world.run(["replicate", &other, "--repo", &nothing]).exits(6);
}

#[test]
fn a_repository_is_mended_and_made_again_from_a_replica() {
    let world = World::with_tree(902);
    world.backup().exits(0);
    let replica = world.path("replica").display().to_string();
    world.run(["replicate", &replica]).exits(0);
    let whole = strongroom_testkit::damage::files_below(&world.repository());
    let arenas: Vec<_> =
        whole.iter().filter(|path| path.parent().unwrap().ends_with("arenas")).collect();
    fs::write(arenas[0], "rubbish").unwrap();
    fs::remove_file(arenas[1]).unwrap();
    world.say("verify --data").exits(4);
    world.run(["repair", "--dry-run", "--from", &replica]).exits(0).says("fetch what is damaged");
    let run = world.run(["repair", "--json", "--from", &replica]).exits(0);
    let fetched = &run.summary()["replicas"];
    assert_eq!((&fetched["mended"], &fetched["returned"]), (&1.into(), &1.into()), "{fetched}");
    world.say("verify --data").exits(0);

    fs::remove_dir_all(world.repository()).unwrap();
    world.run(["repair", "--keyless", "--from", &replica]).exits(0).says("strongroom replicate");
    world.say("verify --data").exits(0);
    world.restored("latest");
}

#[test]
fn kept_1_9_an_audit_says_what_it_did_not_read() {
    let world = World::with_repository();
    for number in 0..8 {
        let bytes = strongroom_testkit::Random::new(number).noise(100_000);
        world.feed(&format!("backup --stdin file{number}"), &bytes).exits(0);
    }
    let replica = world.path("replica").display().to_string();
    world.run(["replicate", &replica]).exits(0);
    let run = world.run(["audit", &replica]).exits(0).says("no damage was found in what was read");
    let run = run.says("only the length is known").says("audit --data");
    assert!(!run.out.contains("no damage was found in the replica"), "{}", run.out);
    let summary = world.run(["audit", &replica, "--json"]).exits(0).summary();
    assert!(summary["unread"].as_u64() > Some(0), "{summary}");
    world.run(["audit", &replica, "--data"]).exits(0).says("no damage was found in the replica");
}

#[test]
fn an_audit_finds_what_changed_in_a_replica() {
    let world = World::with_tree(903);
    world.backup().exits(0);
    let replica = world.path("replica").display().to_string();
    world.run(["replicate", &replica]).exits(0);
    world.run(["audit", &replica, "--data"]).exits(0).says("no damage was found in the replica");
    let files = strongroom_testkit::damage::files_below(&world.path("replica"));
    let arena = files.iter().find(|path| path.parent().unwrap().ends_with("arenas")).unwrap();
    let mut bytes = fs::read(arena).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(arena, bytes).unwrap();
    let run = world.run(["audit", &replica, "--data"]).exits(4).says("1 object is damaged");
    let repository = world.repository().display().to_string();
    run.says("strongroom repair --repo");
    world.run(["repair", "--keyless", "--repo", &replica, "--from", &repository]).exits(0);
    world.run(["audit", &replica, "--data"]).exits(0);
    fs::remove_file(arena).unwrap();
    world.run(["audit", &replica]).exits(3).says("strongroom replicate");
}

#[test]
fn a_restore_reads_from_a_replica_what_is_lost() {
    let world = World::with_tree(904);
    world.backup().exits(0);
    let replica = world.path("replica").display().to_string();
    world.run(["replicate", &replica]).exits(0);
    for path in strongroom_testkit::damage::files_below(&world.repository()) {
        if path.parent().unwrap().ends_with("arenas") {
            let odd = path.to_str().unwrap().as_bytes().last().unwrap() % 2 == 1;
            if odd { fs::write(path, "rubbish").unwrap() } else { fs::remove_file(path).unwrap() }
        }
    }
    let target = world.path("out").display().to_string();
    let restore = ["restore", "latest", "--target", &target];
    world.run(restore).exits(4);
    fs::remove_dir_all(&target).unwrap();
    let run = world.run(restore.iter().chain(&["--replica", &replica])).exits(0);
    run.warns("strongroom repair --from");
    world.run(["ls", "latest", "--replica", &replica]).exits(0);

    // The whole repository is lost, and the replica is in the environment.
    fs::remove_dir_all(world.repository()).unwrap();
    fs::remove_dir_all(&target).unwrap();
    let mut command = world.command(restore);
    command.env("STRONGROOM_REPLICAS", format!("/nowhere,{replica}"));
    let run = Run::of(command.output().unwrap()).exits(0);
    run.warns("/nowhere cannot be opened").warns("cannot be opened: there is no repository");
    // Another repository is no replica.
    let other = world.path("other").display().to_string();
    world.run(["init", "--repo", &other].iter().chain(&CHEAP)).exits(0);
    world.run(["ls", "--repo", &replica, "--replica", &other]).exits(1).warns("another repository");
}

#[test]
fn one_of_three_striped_stores_is_erased() {
    let world = World::with_tree(905);
    for store in ["one", "two", "three"] {
        fs::create_dir(world.path(store)).unwrap();
    }
    let file = world.path("backup.stripes");
    fs::write(&file, "strongroom stripes, parity 1\none\ntwo\nthree\n").unwrap();
    let file = file.display().to_string();
    let run = |args: &[&str]| world.run(args.iter().chain(&["--repo", &file]));
    run(&["ls"]).exits(6);
    run(&[&["init"][..], &CHEAP].concat()).exits(0);
    let tree = world.tree().display().to_string();
    run(&["backup", &tree]).exits(0);
    run(&["verify", "--data"]).exits(0).says("no damage was found");
    for store in ["one", "two", "three"] {
        fs::remove_dir_all(world.path(store)).unwrap();
        let target = world.path("out").display().to_string();
        run(&["restore", "latest", "--target", &target]).exits(0).warns("1 of the 3 stores");
        fs::remove_dir_all(&target).unwrap();
        run(&["backup", &tree]).exits(1).warns("strongroom repair");
        // A new disk, or the folder made again.
        fs::create_dir(world.path(store)).unwrap();
        run(&["repair"]).exits(0).says("again in stores");
        run(&["backup", &tree]).exits(0);
    }
    run(&["verify", "--data"]).exits(0).says("no damage was found");
    // A store that comes back as it was before a backup, and one of which a piece is damaged.
    let old = world.path("old");
    let copied = Command::new("cp").arg("-a").args([&world.path("three"), &old]).status().unwrap();
    assert!(copied.success());
    fs::write(world.tree().join("late"), noise(906, 300_000)).unwrap();
    run(&["backup", &tree]).exits(0);
    fs::remove_dir_all(world.path("three")).unwrap();
    fs::rename(&old, world.path("three")).unwrap();
    run(&["verify"]).exits(3).says("missing or damaged in single stores").says("strongroom repair");
    run(&["repair"]).exits(0).says("again in stores");
    run(&["verify"]).exits(0).says("no damage was found");
    let piece = fs::read_dir(world.path("two").join("pieces")).unwrap().next().unwrap().unwrap();
    let mut bytes = fs::read(piece.path()).unwrap();
    bytes[100] ^= 1;
    fs::write(piece.path(), bytes).unwrap();
    run(&["verify", "--data"]).exits(3).says("1 object is missing or damaged in single stores");
    run(&["repair"]).exits(0).says("made 1 object again in stores");
    run(&["verify", "--data"]).exits(0).says("no damage was found");
    fs::remove_dir_all(world.path("one")).unwrap();
    fs::remove_dir_all(world.path("two")).unwrap();
    run(&["ls"]).exits(1).warns("1 of its 3 stores can be read, and it needs 2");
}

/// A world with some arenas of full size, and a place elsewhere.
struct Elsewhere {
    world: World,
    place: String,
    variables: Vec<(String, String)>,
}

impl Elsewhere {
    fn new(place: &str, variables: Vec<(String, String)>) -> Self {
        let world = World::with_repository();
        fs::create_dir(world.tree()).unwrap();
        for (file, seed) in [("one", 1), ("two", 2)] {
            fs::write(world.tree().join(file), noise(seed, 20 << 20)).unwrap();
        }
        world.backup().exits(0);
        Self { world, place: place.to_owned(), variables }
    }

    fn run(&self, args: &[&str]) -> Run {
        let mut command = self.world.command(args);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        Run::of(command.output().unwrap())
    }

    /// Mends what is damaged here beyond parity, and all of what is lost, from the replica there.
    #[expect(clippy::print_stdout, reason = "figures of the documents")]
    fn mends(&self) {
        self.run(&["replicate", &self.place]).exits(0);
        self.run(&["audit", &self.place, "--data"]).exits(0);
        for path in strongroom_testkit::damage::files_below(&self.world.repository()) {
            if path.parent().unwrap().ends_with("arenas") {
                let mut bytes = fs::read(&path).unwrap();
                // More than parity can repair.
                let tenth = bytes.len() / 10;
                bytes[3 * tenth..4 * tenth].fill(0);
                fs::write(&path, bytes).unwrap();
            }
        }
        self.run(&["verify", "--data"]).exits(4);
        let run = self.run(&["repair", "--json", "--from", &self.place]).exits(0);
        let figures = &run.summary()["replicas"];
        let (damaged, fetched) = (&figures["bytes_damaged"], &figures["bytes_fetched"]);
        println!("{}: damaged {damaged} B, fetched {fetched} B", self.place);
        assert!(fetched.as_u64() <= damaged.as_u64(), "{figures}");
        self.run(&["verify", "--data"]).exits(0);

        fs::remove_dir_all(self.world.repository()).unwrap();
        let run = self.run(&["repair", "--json", "--keyless", "--from", &self.place]).exits(0);
        let returned = run.out.lines().find(|line| line.contains("\"returned\"")).unwrap();
        println!("{}: lost and made again: {returned}", self.place);
        self.run(&["verify", "--data"]).exits(0);
        let target = self.world.path("out").display().to_string();
        let snapshot = format!("latest:{}", self.world.tree().display());
        self.run(&["restore", &snapshot, "--target", &target]).exits(0);
        assert_same(&self.world.tree(), &self.world.path("out"));
    }
}

#[test]
fn a_repository_is_mended_from_a_bucket() {
    let gateway = versitygw();
    let variables = gateway.variables(gateway.server.address);
    Elsewhere::new("s3://bucket/replica", variables).mends();
}

#[test]
fn a_repository_is_mended_from_a_folder_of_webdav() {
    let server = wsgidav();
    let place = server.url(server.server.address, "/replica");
    Elsewhere::new(&place, server.variables()).mends();
}

/// Foundation's replica (§6).
#[test]
fn a_repository_is_mended_from_a_folder_of_ftp() {
    let server = vsftpd();
    let place = server.url(server.server.address, "/replica");
    Elsewhere::new(&place, server.variables()).mends();
}

#[test]
fn a_repository_is_mended_from_another_machine() {
    let server = sshd(None);
    let folder = server.server.folder.path().join("replica").display().to_string();
    let place = server.url("sftp", server.server.address, &format!("/{folder}"));
    Elsewhere::new(&place, server.variables()).mends();
}

/// A repository in a bucket with versions, and a thief who has the rights of a client there.
struct Robbed {
    far: Elsewhere,
    tree: String,
}

impl Robbed {
    fn new(variables: Vec<(String, String)>) -> Self {
        let far = Elsewhere::new("s3://bucket/ours", variables);
        let tree = far.world.tree().display().to_string();
        let robbed = Self { far, tree };
        robbed.run(&["init", CHEAP[0], CHEAP[1]]).exits(0);
        robbed.run(&["backup", &robbed.tree]).exits(0);
        robbed
    }

    fn run(&self, args: &[&str]) -> Run {
        self.far.run(&[args, &["--repo", &self.far.place]].concat())
    }

    fn restores(&self, args: &[&str]) {
        let target = self.far.world.path("out").display().to_string();
        let snapshot = format!("latest:{}", self.tree);
        self.run(&[&["restore", &snapshot, "--target", &target][..], args].concat()).exits(0);
        assert_same(&self.far.world.tree(), &self.far.world.path("out"));
        fs::remove_dir_all(target).unwrap();
    }

    /// For Amazon's client: writes over some objects and removes the others.
    const ROB: &str =
        "for number, found in enumerate(s3.list_objects_v2(Bucket='bucket')['Contents']):
    if number % 2 or 'agreed-' in found['Key']:
        s3.put_object(Bucket='bucket', Key=found['Key'], Body=b'rubbish')
    else:
        s3.delete_object(Bucket='bucket', Key=found['Key'])
";
}

/// A thief writes over objects and removes them. In a bucket with versions that hides them and no
/// more, and while they are locked their versions cannot be removed either.
#[test]
fn what_a_thief_hid_in_a_bucket_comes_back() {
    let gateway = versitygw();
    gateway.by_amazons_client(
        "s3.delete_bucket(Bucket='bucket')
s3.create_bucket(Bucket='bucket', ObjectLockEnabledForBucket=True)
s3.put_bucket_versioning(Bucket='bucket', VersioningConfiguration={'Status': 'Enabled'})",
    );
    let robbed = Robbed::new(gateway.variables(gateway.server.address));
    robbed.run(&["lock", "--for", "1d"]).exits(0).says("cannot be removed before");
    crate::json::follows_the_schema(&robbed.run(&["lock", "--for", "1d", "--json"]).exits(0));
    // What was removed, versitygw takes for existing: conditional writes of it are refused there.
    gateway.by_amazons_client(&format!(
        "{}
for found in s3.list_object_versions(Bucket='bucket')['Versions']:
    if found['Size'] > 7 and not any(name in found['Key'] for name in ['/sessions/', '/trial/']):
        try:
            s3.delete_object(Bucket='bucket', Key=found['Key'], VersionId=found['VersionId'])
        except s3.exceptions.ClientError:
            continue
        raise SystemExit(found['Key'] + ' was not locked')",
        Robbed::ROB.replace("number % 2", "True")
    ));
    assert_ne!(robbed.run(&["verify", "--data"]).code, Some(0));
    robbed.run(&["repair", "--from-versions"]).exits(0);
    robbed.run(&["verify", "--data"]).exits(0);
    robbed.restores(&[]);

    let folder = robbed.far.world.repository().display().to_string();
    let run = robbed.far.run(&["ls", "latest", "--repo", &folder, "--as-of", "yesterday"]);
    run.exits(1).warns("only s3:// and b2:// show earlier versions");
    robbed.far.run(&["lock", "--for", "1d", "--repo", &folder]).exits(1).warns("lock objects");
}

#[test]
fn a_bucket_is_looked_at_as_it_was() {
    let moto = moto();
    moto.by_amazons_client(
        "s3.put_bucket_versioning(Bucket='bucket', VersioningConfiguration={'Status': 'Enabled'})",
    );
    let robbed = Robbed::new(moto.variables(moto.server.address));
    // A time as it is written has whole seconds.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let before = jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S").to_string();
    std::thread::sleep(std::time::Duration::from_secs(1));
    moto.by_amazons_client(Robbed::ROB);
    assert_ne!(robbed.run(&["verify", "--data"]).code, Some(0));
    robbed.restores(&["--as-of", &before]);
    // What a replica has now is not what was.
    let run = robbed.run(&["ls", "latest", "--as-of", &before, "--replica", "/elsewhere"]);
    run.exits(2).warns("as they are now");
    robbed.run(&["ls", "latest", "--as-of", "2020-01-01"]).exits(6);
    robbed.run(&["backup", &robbed.tree, "--as-of", &before]).exits(1).warns("change what it was");
    robbed.run(&["repair", "--as-of", &before]).exits(1).warns("earlier time");
    robbed.run(&["repair", "--from-past", &before]).exits(0);
    robbed.run(&["verify", "--data"]).exits(0);
    robbed.restores(&[]);
}

/// A disk, a bucket and a folder of WebDAV: each vanishes once, and everything restores.
#[test]
fn a_repository_over_three_kinds_of_places_loses_one() {
    let (gateway, server) = (versitygw(), wsgidav());
    let mut variables = gateway.variables(gateway.server.address);
    variables.extend(server.variables());
    let webdav = server.url(server.server.address, "/stripe");
    let far = Elsewhere::new("", variables);
    let file = far.world.path("backup.stripes");
    let text = format!("strongroom stripes, parity 1\ndisk\ns3://bucket/stripe\n{webdav}\n");
    fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    far.run(&["init", "--repo", &file, CHEAP[0], CHEAP[1]]).exits(0);
    let tree = far.world.tree().display().to_string();
    far.run(&["backup", &tree, "--repo", &file]).exits(0);
    let restores = |what: &str| {
        let target = far.world.path("out").display().to_string();
        let snapshot = format!("latest:{tree}");
        let run = far.run(&["restore", &snapshot, "--target", &target, "--repo", &file]);
        run.exits(0).warns("1 of the 3 stores");
        let differences = compare(&far.world.tree(), &far.world.path("out"));
        assert!(differences.is_empty(), "without {what}: {differences:?}");
        fs::remove_dir_all(target).unwrap();
    };
    let erased = [far.world.path("disk"), gateway.bucket().join("stripe")];
    for folder in erased {
        fs::remove_dir_all(&folder).unwrap();
        restores(&folder.display().to_string());
        fs::create_dir(&folder).unwrap();
        far.run(&["repair", "--repo", &file]).exits(0).says("again in stores");
    }
    drop(server);
    restores("the server of WebDAV");
}

/// What a mirror would remove is said before it does, and is what it then removes.
#[test]
fn kept_o1_a_rehearsal_of_a_mirror_names_what_would_go() {
    let world = World::with_tree(71);
    let replica = world.path("replica");
    let words = |rest: &str| format!("{rest} {}", replica.display());
    world.backup().exits(0);
    world.say(&words("replicate")).exits(0);
    let nothing = world.say(&words("--json replicate --mirror --dry-run")).exits(0);
    assert_eq!(nothing.events("plan")[0]["remove"], serde_json::json!([]), "{}", nothing.out);
    // Most of the old arenas goes as a whole; of the others a part.
    fs::remove_dir_all(world.tree()).unwrap();
    fs::create_dir(world.tree()).unwrap();
    fs::write(world.tree().join("new"), "new").unwrap();
    world.backup();
    world.say("forget --yes latest~1").exits(0);
    world.say("prune --max-unused 0").exits(0);
    let before = objects(&replica);
    let run = world.say(&words("--json replicate --mirror --dry-run")).exits(0);
    let plan = run.events("plan").remove(0);
    assert_eq!(before, objects(&replica), "nothing was changed");
    let text = world.say(&words("replicate --mirror --dry-run")).exits(0);
    assert!(text.out.contains("would remove snapshots/"), "{}", text.out);
    world.say(&words("replicate --mirror")).exits(0);
    let after = objects(&replica);
    let gone: Vec<&String> = before.iter().filter(|name| !after.contains(*name)).collect();
    let mut named: Vec<String> = serde_json::from_value(plan["remove"].clone()).unwrap();
    named.sort();
    assert!(!gone.is_empty());
    assert_eq!(gone, named.iter().collect::<Vec<_>>());
}

/// The names of all objects of a place, sorted.
fn objects(place: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    for folder in fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()) {
        if folder.is_dir() {
            let files = fs::read_dir(&folder).unwrap();
            let folder = folder.file_name().unwrap().to_str().unwrap().to_owned();
            names.extend(
                files.map(|file| {
                    format!("{folder}/{}", file.unwrap().file_name().to_str().unwrap())
                }),
            );
        }
    }
    names.sort();
    names
}
