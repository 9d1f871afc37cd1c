//! Folders and objects that a user may not read: one `sudo` leaves them in the repository of another user.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::world::{Run, World, has_program, is_root, program, skipped};

/// `nobody`.
const USER: u32 = 65534;

/// A repository of `nobody` with three snapshots; none if this cannot be tested here.
struct Users(World);

impl Users {
    fn new() -> Option<Self> {
        let why = match (is_root(), has_program("setpriv")) {
            (false, _) => Some("only root becomes another user"),
            (true, false) => Some("setpriv is not installed"),
            (true, true) => None,
        };
        if skipped("as another user", why) {
            return None;
        }
        let world = World::with_repository();
        fs::create_dir_all(world.tree()).unwrap();
        fs::create_dir_all(world.path("cache")).unwrap();
        fs::copy(program(), world.path("strongroom")).unwrap();
        for version in ["one", "two", "three"] {
            fs::write(world.tree().join("file"), version.repeat(5000)).unwrap();
            fs::write(world.tree().join(version), version.repeat(9000)).unwrap();
            world.backup().exits(0);
        }
        let status = Command::new("chown")
            .args(["-R", "65534:65534"])
            .arg(world.folder.path())
            .status()
            .unwrap();
        assert!(status.success());
        fs::set_permissions(world.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Some(Self(world))
    }

    fn say(&self, words: &str) -> Run {
        let Self(world) = self;
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(world.path("strongroom")).args(words.split_whitespace());
        world.surround(&mut command);
        Run::of(command.output().unwrap())
    }

    fn backup(&self) -> Run {
        self.say(&format!("backup {}", self.0.tree().display()))
    }

    /// What root leaves behind that gave nothing to the owner.
    fn take(&self, name: &str, mode: u32) {
        let path = self.0.repository().join(name);
        chown(&path, Some(0), Some(0)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn give(&self, name: &str) {
        let path = self.0.repository().join(name);
        chown(&path, Some(USER), Some(USER)).unwrap();
    }
}

fn owners_below(folder: &Path) -> Vec<(String, u32)> {
    let mut owners = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        owners.push((path.display().to_string(), metadata.uid()));
        if metadata.is_dir() {
            owners.extend(owners_below(&path));
        }
    }
    owners
}

#[test]
fn kept_p_w1_a_sudo_locks_no_user_out() {
    let Some(users) = Users::new() else { return };
    let Users(world) = &users;
    for words in ["label --add rooted latest", "hold --reason tax latest~1", "forget latest~2"] {
        world.say(words).exits(0);
    }
    world.backup().exits(0);
    world.say("prune --max-unused 0").exits(0).says("removed 1 snapshot");
    let strangers: Vec<_> =
        owners_below(&world.repository()).into_iter().filter(|(_, user)| *user != USER).collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    users.say("verify").exits(0).says("no damage was found");
    users.say("hold").exits(0).says("tax");
    users.say("prune --max-unused 0").exits(0);
}

/// Readers and backups go on; what would have to know the folder says so, and what to do.
#[test]
fn kept_p_w1_a_folder_that_may_not_be_listed_stops_no_reader_and_no_backup() {
    let Some(users) = Users::new() else { return };
    let Users(world) = &users;
    users.say("label --add gold latest").exits(0);
    users.say("forget latest~2").exits(0);
    users.say("prune --max-unused 0").exits(0).says("removed 1 snapshot");
    users.say("forget latest~1").exits(0);
    for folder in
        ["remarks", "forgotten", "collections", "ended", "arrivals", "vouchers", "sessions"]
    {
        fs::create_dir_all(world.repository().join(folder)).unwrap();
        users.take(folder, 0o700);
        let named = format!("/{folder}: Permission denied");
        users.say("snapshots").exits(0).warns(&named);
        users.say("ls latest").exits(0).warns(&named);
        let target = world.path("restored");
        users.say(&format!("restore latest --target {}", target.display())).exits(0);
        fs::remove_dir_all(&target).unwrap();
        users.say("verify").exits(8).warns("not checked: cannot list").warns(&named);
        users.say("repair").exits(8).warns(&named).warns("hint: run it as the user");
        if folder == "sessions" {
            users.give(folder);
            continue;
        }
        users.backup().exits(0);
        if ["remarks", "forgotten", "collections"].contains(&folder) {
            for words in ["prune --now", "prune --later"] {
                users.say(words).exits(8).warns("nothing was removed").warns("no damage is known");
            }
        }
        if ["remarks", "forgotten"].contains(&folder) {
            users.say("forget latest").exits(8).warns(&named).warns("hint: run it as the user");
            users.say("forget --keep-last 1").exits(8).warns(&named);
        }
        if folder == "remarks" {
            users.say("label --add silver latest").exits(8).warns(&named);
            users.say("hold --reason tax latest").exits(8).warns(&named);
        }
        users.give(folder);
    }
    users.say("verify").exits(0).says("no damage was found");
    users.say("prune --max-unused 0").exits(0).says("removed 1 snapshot");
    users.say("verify --data").exits(0).says("no damage was found");
}

/// What is said of the end of a domain may not be read: it is not lost, and nothing says it again.
#[test]
fn kept_p_w3_a_withheld_end_of_a_domain_is_not_lost() {
    let Some(users) = Users::new() else { return };
    let Users(world) = &users;
    let put = world.path("put");
    users.say(&format!("key generate {}", put.display())).exits(0);
    let domain = "key add --put-only --domain laptop --label laptop --new-password-file";
    users.say(&format!("{domain} {}", put.display())).exits(0);
    let backup = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(world.path("strongroom")).arg("backup").arg(world.tree());
        world.surround(&mut command);
        command.env_remove("STRONGROOM_PASSWORD").env("STRONGROOM_PASSWORD_FILE", &put);
        command.env("STRONGROOM_CACHE", world.path("cache/laptop"));
        Run::of(command.output().unwrap())
    };
    backup().exits(0);
    users.say("key end-domain laptop --yes").exits(0);
    let ended = fs::read_dir(world.repository().join("ended")).unwrap();
    let names: Vec<String> =
        ended.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.iter().for_each(|name| users.take(&format!("ended/{name}"), 0o600));
    for words in ["forget --keep-last 1", "key end-domain laptop --yes", "prune --later"] {
        let run = users.say(words).exits(if words.starts_with("prune") { 0 } else { 8 });
        assert!(!run.err.contains("say it again"), "{words}: {}", run.err);
    }
    let run = users.say("verify").exits(8);
    assert!(!run.err.contains("damage:") && !run.err.contains("say it again"), "{}", run.err);
    for words in ["snapshots", "ls latest"] {
        users.say(words).exits(0).warns("cannot read ended/").warns("may not count");
    }
    names.iter().for_each(|name| users.give(&format!("ended/{name}")));
    users.say("verify").exits(0);
}

/// Never a repair, and never to forget.
#[test]
fn kept_p_w2_what_a_run_may_not_read_is_named_and_not_called_damaged() {
    let Some(users) = Users::new() else { return };
    let Users(world) = &users;
    users.say("label --add gold latest").exits(0);
    users.say("forget latest~2").exits(0);
    users.say("prune --later --max-unused 0").exits(0).says("condemned");
    let first = |folder: &str| -> String {
        let mut names: Vec<_> = fs::read_dir(world.repository().join(folder)).unwrap().collect();
        let name = names.remove(0).unwrap().file_name();
        format!("{folder}/{}", name.to_str().unwrap())
    };
    let config = "config".to_owned();
    for name in [first("remarks"), first("forgotten"), first("arenas"), config] {
        users.take(&name, 0o600);
        let run = users.say("prune --later --max-unused 0").exits(8);
        assert!(run.err.contains(&name) && !run.err.contains("repair"), "{}", run.err);
        let run = run.warns("nothing was removed").warns("no damage is known");
        assert!(!run.err.contains("damage:"), "{}", run.err);
        users.say("repair").exits(8).warns(&name).warns("hint: run it as the user");
        users.give(&name);
    }
    users.say("prune --later --max-unused 0").exits(0).says("removed 1 snapshot");
}

/// Vouchers cannot be written where the disk is read-only, or full, or another user's.
#[test]
fn what_verify_found_is_said_though_no_voucher_can_be_written() {
    let Some(users) = Users::new() else { return };
    let key = users.0.path("laptop.key").display().to_string();
    users.say(&format!("key generate {key}")).exits(0);
    users.say(&format!("key add --put-only --domain laptop --new-password-file {key}")).exits(0);
    let tree = users.0.tree().display().to_string();
    users.say(&format!("backup --password-file {key} {tree}")).exits(0);
    let _ = fs::create_dir(users.0.repository().join("vouchers"));
    users.take("vouchers", 0o755);
    let run = users.say("verify --data").exits(3).warns("no voucher says so");
    run.says("no damage was found");
    users.give("vouchers");
    users.say("verify --data").exits(0).says("vouched for");
}
