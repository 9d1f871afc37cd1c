//! The life of a repository at each kind of place, by the program itself and on real servers.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use strongroom_base::{Cancel, OsEntropy, SystemClock};
use strongroom_remote::{Place, Rate, Settings, Variables};
use strongroom_testkit::relay::{LineOptions, Relay};
use strongroom_testkit::servers::{
    Server, azurite, moto, s3proxy, sshd, swift, versitygw, vsftpd, vsftpd_tls, wsgidav,
    wsgidav_tls,
};
use strongroom_testkit::tree::{TreeOptions, grow};
use strongroom_testkit::{Image, assert_same};

use crate::world::{CHEAP, Run, World};

/// A world whose repository is at a place that these variables open.
struct Far {
    world: World,
    place: String,
    variables: Vec<(String, String)>,
    /// Where the objects are files, if the place itself takes no damaged ones.
    files: Option<PathBuf>,
}

impl Far {
    fn new(place: &str, variables: Vec<(String, String)>) -> Self {
        Self { world: World::empty(), place: place.to_owned(), variables, files: None }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.world.command(args);
        command.env("STRONGROOM_REPOSITORY", &self.place);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    /// Flips a bit in the middle of one arena, as the place itself could.
    fn damage(&self) {
        let variables = self.variables.iter().map(|(name, value)| (name.into(), value.into()));
        let settings = Settings {
            variables: Variables::new(variables),
            rate: Rate::default(),
            connections: None,
            patience: Duration::from_secs(10),
            cancel: Cancel::new(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            is_drawn: |_| false,
            judge: |_, _| strongroom_backend::Soundness::Repairable,
        };
        let place = match &self.files {
            Some(folder) => Place::Folder(folder.clone()),
            None => Place::parse(self.place.as_ref()).unwrap(),
        };
        let backend = place.open(&settings).unwrap().unwrap();
        let arena = backend.list("arenas").unwrap().remove(0).name;
        let mut bytes = strongroom_backend::read_all(&*backend, &arena).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        backend.replace(&arena, &bytes).unwrap();
    }
}

/// Everything that a repository goes through, at a place that refuses names that are taken.
fn life(far: &Far) {
    life_in("exclusive", far);
}

/// The same, in the mode that the place must be found to need.
fn life_in(mode: &str, far: &Far) {
    let (tree, target) = (far.world.tree(), far.world.path("target"));
    let (tree, target) = (tree.to_str().unwrap(), target.to_str().unwrap());
    far.run(&["snapshots"]).exits(6).warns("init");
    let made = far.run(&[&["init", "--json"][..], &CHEAP].concat()).exits(0);
    assert_eq!(made.summary()["mode"], mode, "{}", far.place);
    far.run(&[&["init"][..], &CHEAP].concat()).exits(1).warns("already");
    grow(&far.world.tree(), 1, TreeOptions { entries: 40, ..TreeOptions::default() });
    far.run(&["backup", tree]).exits(0);
    let first = Image::of(&far.world.tree());
    std::fs::write(far.world.path("tree/new"), vec![5; 100_000]).unwrap();
    far.run(&["backup", tree]).exits(0);
    far.run(&["snapshots"]).exits(0).says(tree);
    far.run(&["restore", &format!("latest~1:{tree}"), "--target", target]).exits(0);
    first.assert_same(&Image::of(&far.world.path("target")), "the first version");
    far.run(&["verify", "--data"]).exits(0);
    far.run(&["drill"]).exits(0).says("proved restorable");
    far.run(&["snapshots"]).exits(0).says("(proved 20");
    let replica = far.world.path("replica");
    let replica = replica.to_str().unwrap();
    far.run(&["replicate", replica]).exits(0);
    far.run(&["audit", replica, "--data"]).exits(0);
    far.damage();
    far.run(&["verify", "--data"]).exits(4);
    far.run(&["repair", "--from", replica]).exits(0);
    far.run(&["verify", "--data"]).exits(0);
    far.damage();
    far.run(&["repair"]).exits(0);
    far.run(&["verify", "--data"]).exits(0);
    far.run(&["forget", "--keep-last", "1"]).exits(0);
    far.run(&["prune"]).exits(0);
    far.run(&["verify", "--data"]).exits(0);
    let again = far.world.path("again");
    let again = again.to_str().unwrap();
    far.run(&["restore", &format!("latest:{tree}"), "--target", again]).exits(0);
    assert_same(&far.world.tree(), &far.world.path("again"));
}

#[test]
fn a_repository_lives_in_a_bucket() {
    let gateway = versitygw();
    let relay = Relay::start(gateway.server.address, LineOptions::default());
    let far = Far::new("s3://bucket/of mine", gateway.variables(relay.address));
    life(&far);
    assert!(relay.connections() > 0, "it was not asked");
}

#[test]
fn a_repository_lives_in_an_imitated_bucket() {
    let store = moto();
    life(&Far::new("s3://bucket/a", store.variables(store.server.address)));
}

#[test]
fn a_repository_lives_in_a_container_of_blobs() {
    let store = azurite();
    life(&Far::new("azblob://container/a/b", store.variables(store.server.address)));
}

#[test]
fn a_repository_lives_in_a_folder_of_webdav() {
    for server in [wsgidav(), wsgidav_tls()] {
        let place = server.url(server.server.address, "/not/yet/there");
        life(&Far::new(&place, server.variables()));
    }
}

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_strongroom");

#[test]
fn a_repository_lives_at_the_far_end_of_ssh() {
    let server = sshd(None);
    let folder = server.server.folder.path().join("of mine");
    let place = server.url("ssh", server.server.address, &format!("/{}/it's", folder.display()));
    let mut variables = server.variables();
    variables.push(("STRONGROOM_REMOTE_PROGRAM".to_owned(), PROGRAM.to_owned()));
    life(&Far { files: Some(folder.join("it's")), ..Far::new(&place, variables) });
}

#[test]
fn a_repository_lives_at_a_server_of_sftp() {
    let server = sshd(None);
    let folder = server.server.folder.path().join("not/yet/there");
    let place = server.url("sftp", server.server.address, &format!("/{}", folder.display()));
    life(&Far::new(&place, server.variables()));
}

#[test]
fn a_repository_lives_in_a_folder_of_ftp() {
    for server in [vsftpd(), vsftpd_tls()] {
        let place = server.url(server.server.address, "/not/yet/there");
        let far = Far::new(&place, server.variables());
        life_in("agreed", &far);
        far.run(&["stats", "--json"]).exits(0);
        assert!(
            server.data().join("not/yet/there").read_dir().unwrap().any(|entry| {
                entry.unwrap().file_name().to_string_lossy().starts_with("agreed-")
            })
        );
    }
}

#[test]
fn a_repository_lives_in_a_bucket_that_lies() {
    let store = s3proxy();
    let far = Far::new("s3://bucket/a", store.variables(store.server.address));
    life_in("agreed", &far);
}

#[test]
fn a_bucket_whose_listings_lag_takes_no_repository() {
    let store = swift();
    let far = Far::new("s3://bucket/a", store.variables(store.server.address));
    far.run(&[&["init"][..], &CHEAP].concat()).exits(1).warns("listings").warns("replicate");
    far.run(&["snapshots"]).exits(6);
}

#[test]
fn a_repository_lives_in_a_bucket_whose_users_agree() {
    let gateway = versitygw();
    let far = Far::new("s3://bucket/a", gateway.variables(gateway.server.address));
    far.run(&[&["init", "--agree"][..], &CHEAP].concat()).exits(0).says("mode agreed");
    let tree = far.world.tree();
    grow(&tree, 1, TreeOptions { entries: 40, ..TreeOptions::default() });
    far.run(&["backup", tree.to_str().unwrap()]).exits(0);
    far.run(&["forget", "latest", "--yes"]).exits(0);
    far.run(&["prune"]).exits(0);
    far.run(&["verify", "--data"]).exits(0);
    // Who copies into a replica takes names as its other users do.
    far.run(&["backup", tree.to_str().unwrap()]).exits(0);
    let replica = far.world.path("replica");
    for _ in 0..2 {
        far.run(&["replicate", replica.to_str().unwrap()]).exits(0);
    }
    let noted = replica.read_dir().unwrap().filter(|entry| {
        entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("agreed-")
    });
    assert!(noted.count() > 0);
    far.run(&["backup", tree.to_str().unwrap(), "--repo", replica.to_str().unwrap()]).exits(0);
    far.run(&["repair", "--from", replica.to_str().unwrap()]).exits(0);
    far.run(&["verify", "--data"]).exits(0);
    far.run(&["verify", "--data", "--repo", replica.to_str().unwrap()]).exits(0);
}

/// A house with one room, served by the program.
fn house() -> Server {
    Server::start(|folder, address| {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--name", "127.0.0.1", "--listen", &address.to_string()]);
        command.arg("--house").arg(folder.join("house"));
        command
    })
}

/// A token of a role, and the variables that let its owner in.
fn token(house: &Server, role: &str) -> Vec<(String, String)> {
    let folder = house.folder.path().join("house");
    let mut command = Command::new(PROGRAM);
    command.args(["token", "add", "room", "--name", "me", "--role", role, "--house"]).arg(&folder);
    let token = String::from_utf8(command.output().unwrap().stdout).unwrap();
    vec![
        ("STRONGROOM_TOKEN".to_owned(), token.trim().to_owned()),
        ("STRONGROOM_CA_FILE".to_owned(), folder.join("certificate.pem").display().to_string()),
    ]
}

#[test]
fn a_repository_lives_at_our_own_server() {
    let house = house();
    let place = format!("https://{}/room", house.address);
    let files = house.folder.path().join("house/rooms/room");
    life(&Far { files: Some(files), ..Far::new(&place, token(&house, "admin")) });
}

#[test]
fn a_machine_that_may_only_put_backs_up_and_reads_nothing() {
    let house = house();
    let place = format!("https://{}/room", house.address);
    let admin = Far::new(&place, token(&house, "admin"));
    let tree = admin.world.tree();
    let tree = tree.to_str().unwrap();
    admin.run(&[&["init"][..], &CHEAP].concat()).exits(0);
    grow(&admin.world.tree(), 1, TreeOptions { entries: 40, ..TreeOptions::default() });
    let key = admin.world.path("machine.key");
    let key = key.to_str().unwrap();
    admin.run(&["key", "generate", key]).exits(0);
    admin
        .run(&["key", "add", "--put-only", "--label", "anna", "--new-password-file", key])
        .exits(0);
    let mut machine = Far::new(&place, token(&house, "put-only"));
    machine.world = admin.world;
    for version in 1..4 {
        std::fs::write(machine.world.path("tree/new"), vec![version; 100_000]).unwrap();
        machine.run(&["backup", tree, "--password-file", key, "--host", "anna"]).exits(0);
        if version == 2 {
            // A machine that lost its cache goes on all the same.
            std::fs::remove_dir_all(machine.world.path("cache")).unwrap();
        }
    }
    machine
        .run(&["restore", &format!("latest:{tree}"), "--target", "x"])
        .exits(8)
        .warns("the role put-only may not");
    machine.run(&["forget", "latest"]).exits(1).warns("the role put-only may not");
    machine.run(&["prune"]).exits(1).warns("the role put-only may not");
    machine
        .run(&["key", "add", "--label", "mine", "--new-password-file", key])
        .exits(1)
        .warns("the role put-only may not");
    // The owner has all of it.
    let mut owner = Far::new(&place, token(&house, "restore"));
    owner.world = machine.world;
    owner.run(&["verify"]).exits(0);
    let target = owner.world.path("again");
    let newest = format!("anna:@latest:{tree}");
    owner.run(&["restore", &newest, "--target", target.to_str().unwrap()]).exits(0);
    assert_same(&owner.world.tree(), &target);
}

/// The laptop of the book: the full passphrase, and a token that may only put.
#[test]
fn kept_1_3_who_may_only_put_repairs_nothing() {
    let house = house();
    let place = format!("https://{}/room", house.address);
    let owner = Far::new(&place, token(&house, "admin"));
    let tree = owner.world.tree();
    let tree = tree.to_str().unwrap().to_owned();
    owner.run(&[&["init"][..], &CHEAP].concat()).exits(0);
    grow(&owner.world.tree(), 1, TreeOptions { entries: 40, ..TreeOptions::default() });
    owner.run(&["backup", &tree]).exits(0);
    let mut laptop = Far::new(&place, token(&house, "put-only"));
    laptop.world = owner.world;
    std::fs::write(laptop.world.path("tree/new"), vec![3; 100_000]).unwrap();
    laptop.run(&["backup", &tree]).exits(0);
    let arenas = house.folder.path().join("house/rooms/room/arenas");
    let names = || {
        let listed = std::fs::read_dir(&arenas).unwrap();
        let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let refused = "the role put-only may not read";
    for words in [&["repair"][..], &["repair", "--keyless"], &["repair", "--dry-run"]] {
        let run = laptop.run(words).exits(8).warns(refused).warns("no damage is known");
        assert!(!run.out.contains("damage") && !run.out.contains("lost"), "{}", run.out);
    }
    let replica = laptop.world.path("replica");
    let replica = replica.to_str().unwrap();
    for words in [&["verify"][..], &["verify", "--data"], &["verify", "--keyless"]] {
        let run = laptop.run(words).exits(8).says("not readable by this key: not checked");
        assert!(!run.out.contains("beyond parity"), "{}", run.out);
    }
    laptop.run(&["replicate", replica]).exits(8).says("not readable by this key: not sent");
    assert_eq!(names(), before, "something was planted");
    let mut owner = Far::new(&place, token(&house, "admin"));
    owner.world = laptop.world;
    owner.run(&["verify", "--data"]).exits(0).says("no damage was found");
    owner.run(&["repair"]).exits(0).says("nothing to repair");
    owner.run(&["forget", "--keep-last", "1", "--yes"]).exits(0);
    owner.run(&["prune", "--max-unused", "0"]).exits(0);
    let again = owner.run(&["backup", &tree, "--json"]).exits(0).summary();
    assert_eq!(again["bytes_new"], 0, "{again}");
    owner.run(&["verify", "--data"]).exits(0).says("no damage was found");
}

/// Arenas in a class that sleeps, from the first backup to the day when they were brought back.
#[test]
fn kept_1_6_a_bucket_that_sleeps_is_not_damaged() {
    let store = moto();
    let variables = store.variables(store.server.address);
    let mut far = Far::new("s3://bucket/a", variables.clone());
    far.run(&[&["init"][..], &CHEAP].concat()).exits(0);
    far.variables.push(("STRONGROOM_S3_STORAGE_CLASS".to_owned(), "DEEP_ARCHIVE".to_owned()));
    let tree = far.world.tree();
    let tree = tree.to_str().unwrap().to_owned();
    grow(&far.world.tree(), 1, TreeOptions { entries: 40, ..TreeOptions::default() });
    far.run(&["backup", &tree]).exits(0).warns("have to be brought back");
    far.variables = variables;
    let is_silent = |run: &Run| {
        for word in ["damaged", "lost in", "strongroom forget", "strongroom repair"] {
            let text = format!("{}{}", run.out, run.err);
            assert!(!text.contains(word), "{word}: {text}");
        }
    };
    // The machine's cache is gone.
    let forget_cache = || std::fs::remove_dir_all(far.world.path("cache")).unwrap();
    forget_cache();
    is_silent(&far.run(&["ls", "latest"]).exits(8).warns("bring the objects back"));
    let target = far.world.path("target");
    let restore = ["restore", "latest", "--target", target.to_str().unwrap()];
    is_silent(&far.run(&restore).exits(8).warns("bring back what is archived"));
    for words in [&["verify"][..], &["verify", "--data"]] {
        is_silent(&far.run(words).exits(8).says("waiting in an archive: not checked"));
    }
    is_silent(&far.run(&["repair"]).exits(8).says("left as they are"));
    let replica = far.world.path("replica");
    let replica = replica.to_str().unwrap();
    is_silent(&far.run(&["replicate", replica]).exits(8).says("waiting in an archive: not sent"));
    is_silent(&far.run(&["prune"]).exits(8).warns("bring the objects back"));
    let run = far.run(&["backup", &tree]).exits(0).warns("is stored again");
    is_silent(&run);
    is_silent(&far.run(&["verify"]).exits(8));
    store.by_amazons_client(
        "for found in s3.list_objects_v2(Bucket='bucket', Prefix='a/arenas/')['Contents']:\n    \
         if found['StorageClass'] == 'DEEP_ARCHIVE':\n        \
         s3.restore_object(Bucket='bucket', Key=found['Key'], RestoreRequest={'Days': 1})",
    );
    far.run(&["verify", "--data"]).exits(0).says("no damage was found");
    let again = far.world.path("again");
    let first = format!("latest~1:{tree}");
    far.run(&["restore", &first, "--target", again.to_str().unwrap()]).exits(0);
    assert_same(&far.world.tree(), &again);
    far.run(&["replicate", replica]).exits(0);
    far.run(&["prune"]).exits(0);
}
