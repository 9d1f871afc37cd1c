//! Profiles: what is written once instead of typed each time.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::world::{Run, World, is_root, skipped};

/// Runs the program with only what a new user has: nothing is in the environment.
fn bare(world: &World, words: &str) -> Run {
    let mut command = world.command(words.split_whitespace());
    for variable in ["STRONGROOM_REPOSITORY", "STRONGROOM_PASSWORD"] {
        command.env_remove(variable);
    }
    Run::of(command.output().unwrap())
}

/// A world with a repository, a tree, and this file of profiles; `HERE` is its folder.
fn with_profiles(text: &str) -> World {
    let world = World::with_tree(1);
    fs::write(world.path("passphrase"), crate::world::PASSPHRASE).unwrap();
    fs::set_permissions(world.path("passphrase"), fs::Permissions::from_mode(0o600)).unwrap();
    write(&world, "config.toml", text);
    world
}

fn write(world: &World, name: &str, text: &str) {
    let folder = world.path(".config/strongroom");
    fs::create_dir_all(&folder).unwrap();
    let here = world.folder.path().display().to_string();
    fs::write(folder.join(name), text.replace("HERE", &here)).unwrap();
}

const USUAL: &str = r#"
[default]
repo = "HERE/repository"
password-file = "~/passphrase"

[default.backup]
paths = ["~/tree"]
exclude-caches = true
label = ["nightly", "own"]

[default.forget]
keep-daily = 7

[small]
extends = "default"

[small.backup]
paths = "HERE/passphrase"
label = "small"
"#;

#[test]
fn a_backup_without_arguments_does_what_the_profile_says() {
    let world = with_profiles(USUAL);
    bare(&world, "backup").exits(0);
    let list = bare(&world, "snapshots --json").exits(0);
    assert!(list.out.contains("nightly") && list.out.contains("/tree"), "{}", list.out);
    bare(&world, "ls --json").exits(0).says("/tree");
    bare(&world, "forget --dry-run").exits(0);
    bare(&world, "profile check").exits(0).says("2 profiles are in order");
}

#[test]
fn what_is_typed_comes_before_the_profile() {
    let rules = "keep-daily = 7\nquarantine = \"1d\"\ncalendar = true\n";
    let world = with_profiles(&USUAL.replace("keep-daily = 7\n", rules));
    let typed = format!("backup {} --label typed", world.path("passphrase").display());
    bare(&world, &typed).exits(0);
    let list = bare(&world, "snapshots --json").exits(0).out;
    assert!(list.contains("typed") && !list.contains("nightly"), "{list}");
    assert!(list.contains("/passphrase") && !list.contains("/tree"), "{list}");
    // So does a list of paths.
    fs::write(world.path("list"), world.path("passphrase").to_str().unwrap()).unwrap();
    bare(&world, &format!("backup --files-from {}", world.path("list").display())).exits(0);
    let list = bare(&world, "snapshots --json").exits(0).out;
    assert!(!list.contains("/tree"), "{list}");
    // Names exclude the rules of the profile.
    bare(&world, "forget --yes latest").exits(0);
    // Standard input excludes its paths.
    let mut command = world.command(["backup", "--stdin", "dump"]);
    command.env_remove("STRONGROOM_REPOSITORY").env_remove("STRONGROOM_PASSWORD");
    Run::of(command.output().unwrap()).exits(3).warns("it is empty");
}

#[test]
fn a_profile_takes_over_what_it_does_not_say() {
    let world = with_profiles(USUAL);
    bare(&world, "--profile small backup").exits(0);
    let list = bare(&world, "snapshots --json").exits(0).out;
    assert!(list.contains("small") && !list.contains("nightly"), "{list}");
    let shown = bare(&world, "profile show small").exits(0).out;
    assert!(
        shown.contains("label = \"small\"") && shown.contains("exclude-caches = true"),
        "{shown}"
    );
    assert!(shown.contains("line 18"), "{shown}");
}

#[test]
fn a_profile_is_shown_as_it_could_be_written() {
    let world = with_profiles(
        "[default]\nrepo = \"a \\\"b\\\"\"\n[default.backup]\npaths = [\n  \"~/tree\", # one\n]\n\
         force = true\n[default.forget]\nkeep-daily = 7\n[default.prune]\n",
    );
    let shown = bare(&world, "profile show").exits(0).out;
    for line in [
        "repo = \"a \\\"b\\\"\"",
        "paths = [\"~/tree\"]",
        "force = true",
        "keep-daily = 7",
        "[default.prune]",
    ] {
        assert_eq!(shown.matches(&format!("\n{line}    # ")).count(), 1, "{line} in\n{shown}");
    }
    // It can be read again.
    write(&world, "config.toml", &shown);
    let names = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split("    # ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&bare(&world, "profile show").exits(0).out), names(&shown));
}

#[test]
fn the_default_profile_is_not_for_another_repository() {
    let world = with_profiles(&USUAL.replace("HERE/repository", "HERE/elsewhere"));
    world.run(["snapshots"]).exits(0);
    bare(&world, "snapshots").exits(6).warns("elsewhere");
    world.say("--profile default snapshots").exits(0);
    world.say("--profile small snapshots").exits(0);
    bare(&world, "--profile other snapshots").exits(1).warns("no profile `other`");
    bare(&world, "--profile smal snapshots").exits(1).warns("did you mean `small`");
}

#[test]
fn what_is_wrong_is_shown_with_its_line_and_what_was_meant() {
    for (text, says) in [
        ("[default]\nrepo = \n", "line 2, column 8"),
        ("[default]\nrepp = \"x\"\n", "line 2, column 1"),
        ("[default]\nrepp = \"x\"\n", "did you mean `repo`?"),
        ("[default.backup]\nexclude-cache = true\n", "did you mean `exclude-caches`?"),
        ("[default.backpu]\npaths = []\n", "did you mean `backup`?"),
        ("[default.copy]\ntargets = []\n", "write `replicate`"),
        ("[default]\nexclude = \"x\"\n", "is no option of every command"),
        ("[default.backup]\nexclude-caches = \"yes\"\n", "it is true or false"),
        ("[default.backup]\nhost = [\"a\", \"b\"]\n", "it has one value"),
        ("[default.backup]\nhost = true\n", "it needs a value"),
        ("[default.backup]\nhost = { a = 1 }\n", "no value that an option can have"),
        ("[default.backup]\nreaders = \"many\"\n", "line 2, column 1"),
        (
            "[default.replicate]\nmirror = true\n",
            "line 1, column 10: the step `replicate` needs `targets`",
        ),
        ("[default.backup]\n", "line 1, column 10: the step `backup` needs `paths`"),
        ("[default.lock]\n", "the step `lock` needs `for`"),
        ("[default.audit]\n", "the step `audit` needs `replica`"),
        ("[default.forget]\n", "line 1, column 10: the step `forget` needs a rule"),
        ("[default.forget]\nkeep-last = 0\n", "write keep-daily = 7 below [default.forget]"),
        ("[default.verify]\ndata = true\nsample = \"5%\"\n", "cannot be used with"),
        ("[default.verify]\nsample = \"5 percent\"\n", "line 2, column 1"),
        ("[default.verify]\nsample = \"5 percent\"\n", "a number from 1 to 100"),
        ("[default.audit]\nsample = \"3/0\"\n", "such as 3/20"),
        ("[default.drill]\nsample = \"101%\"\n", "a number from 1 to 100"),
        ("[default.drill]\nbytes = \"much\"\n", "line 2, column 1"),
        ("[default.schedule]\nat = \"25:99\"\n", "no such time of day"),
        ("[default.backup]\nexclude = [\"*.o\", \"[a\"]\n", "'[a' for '--exclude"),
        ("[default.backup]\niexclude = \"[a\"\n", "unclosed character class"),
        ("[default.backup]\nexclude-larger-than = \"huge\"\n", "'huge' for"),
        ("[default.backup]\ncompression = 40\n", "-7 to 22"),
        ("[default]\nextends = \"base\"\n", "there is no profile `base`"),
        ("[default]\nextends = \"default\"\n", "extends itself"),
        ("include = [\"config.toml\"]\n", "includes itself"),
        ("include = [\"none.toml\"]\n", "none.toml: No such file"),
        ("include = [\"none.toml\"]\n", "line 1, column 1"),
        ("[default.backpu]\n[default.backup]\nhots = \"a\"\n", "`hots`"),
        ("[default.backpu]\n[default.backup]\nhots = \"a\"\n", "`backpu`"),
        ("repo = \"x\"\n", "outside of a profile"),
        ("[default]\nprofile = \"x\"\n", "is no option of every command"),
    ] {
        let world = with_profiles(text);
        let run = bare(&world, "profile check").exits(1).warns("hint:");
        let flat = run.err.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(says), "no {says:?} of\n{text}\n{}", run.err);
    }
}

#[test]
fn a_profile_that_others_take_over_may_lack_what_they_say() {
    let base = "[base]\nrepo = \"/r\"\n[base.backup]\nforce = true\n";
    let world = with_profiles(&format!(
        "{base}[home]\nextends = \"base\"\n[home.backup]\npaths = \"~/tree\"\n"
    ));
    bare(&world, "profile check").exits(0).says("2 profiles are in order: base, home");
    // Its own night is not for it.
    bare(&world, "schedule -n --cron --profile base").exits(1).warns("needs `paths`");
    write(&world, "config.toml", base);
    bare(&world, "profile check").exits(1).warns("needs `paths`");
    write(&world, "config.toml", "");
    bare(&world, "profile check").exits(0).says("there is no profile");
}

#[test]
fn what_will_hardly_do_what_was_meant_is_said() {
    let world = with_profiles(&format!("{USUAL}\n[defualt.prune]\n"));
    let run = bare(&world, "profile check").exits(3).says("default, defualt, small");
    let flat = run.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("line 21") && flat.contains("did you mean `default`?"), "{flat}");
    // One that takes over another's repository is none.
    let more = "\n[defualt]\nextends = \"default\"\n";
    let world = with_profiles(&format!("{USUAL}{more}"));
    bare(&world, "profile check").exits(0);
    for (from, to, says) in [
        ("~/passphrase\"", "~/none\"", "line 4, column 1: `password-file`: there is no"),
        ("[\"~/tree\"]", "[\"~/tree\", \"~/gone\"]", "line 7, column 1: `paths`: there is no"),
        ("exclude-caches = true", "exclude-file = \"no\"", "`exclude-file`: there is no no"),
        ("exclude-caches = true", "iexclude-file = \"~/tree/x/y\"", "`iexclude-file`: there is no"),
    ] {
        let world = with_profiles(&USUAL.replacen(from, to, 1));
        let run = bare(&world, "profile check").exits(3).says("2 profiles are in order");
        let flat = run.err.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(flat.matches(says).count(), 1, "no {says:?} once in {}", run.err);
    }
}

#[test]
fn a_value_that_only_the_command_refuses_is_found_in_the_file() {
    let world = with_profiles(
        "[default]\nrepo = \"HERE/repository\"\n\n[default.backup]\nreaders = \"many\"\n",
    );
    let run = bare(&world, "backup /tmp").exits(2);
    let flat = run.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("config.toml, line 5"), "{flat}");
}

#[test]
fn files_include_others() {
    let world = with_profiles(
        "include = [\"machine.toml\", \"~/more.toml\"]\n[default]\nextends = \"machine\"\n",
    );
    write(
        &world,
        "machine.toml",
        "[machine]\nrepo = \"HERE/repository\"\npassword-file = \"~/passphrase\"\n",
    );
    fs::write(world.path("more.toml"), "[more]\nextends = \"machine\"\n").unwrap();
    bare(&world, "snapshots").exits(0);
    bare(&world, "--profile more snapshots").exits(0);
    fs::write(world.path("more.toml"), "[machine]\n").unwrap();
    bare(&world, "snapshots").exits(1).warns("second profile");
}

/// What is refused about a file, with the profile that it has or that includes it.
#[test]
fn a_file_that_another_user_can_change_is_not_followed() {
    let world = with_profiles(&format!("include = [\"more/more.toml\"]\n{USUAL}"));
    let folder = world.path(".config/strongroom");
    let (file, more) = (folder.join("config.toml"), folder.join("more"));
    fs::create_dir(&more).unwrap();
    fs::write(more.join("more.toml"), "[more]\n").unwrap();
    let chmod = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    bare(&world, "snapshots").exits(0);
    for (path, usual) in [(&file, 0o600), (&more.join("more.toml"), 0o644), (&more, 0o755)] {
        chmod(path, 0o666 | (usual & 0o111));
        bare(&world, "snapshots").exits(1).warns("everybody may write").warns("chmod o-w");
        bare(&world, "profile check").exits(1).warns("chmod o-w");
        chmod(path, usual);
    }
    // In a folder such as /tmp, only the owner of a file replaces it.
    chmod(&more, 0o1777);
    bare(&world, "snapshots").exits(0);
    // A folder further above, and one that a link leads away from.
    let above = world.path(".config");
    chmod(&above, 0o777);
    bare(&world, "snapshots").exits(1).warns("and so replace").warns("chmod o-w");
    chmod(&above, 0o755);
    let open = world.path("open");
    fs::create_dir(&open).unwrap();
    std::os::unix::fs::symlink(&file, open.join("link.toml")).unwrap();
    let by_link = format!("snapshots --config {}", open.join("link.toml").display());
    bare(&world, &format!("--profile default {by_link}")).exits(0);
    chmod(&open, 0o777);
    bare(&world, &format!("--profile default {by_link}")).exits(1).warns("open, and so replace");
}

#[test]
fn a_file_of_another_user_or_group_is_not_followed() {
    if skipped("files of other users", (!is_root()).then_some("only root gives files away")) {
        return;
    }
    let world = with_profiles(USUAL);
    let folder = world.path(".config/strongroom");
    let file = folder.join("config.toml");
    let give =
        |path: &Path, user, group| std::os::unix::fs::chown(path, Some(user), Some(group)).unwrap();
    bare(&world, "snapshots").exits(0);
    give(&file, 4321, 0);
    bare(&world, "run").exits(1).warns("belongs to user 4321").warns("chown root");
    give(&file, 0, 0);
    give(&folder, 4321, 0);
    bare(&world, "run").exits(1).warns("user 4321 may write to").warns("and so replace");
    // A group of the user alone is the user; any other is not.
    give(&folder, 0, 0);
    for (path, usual) in [(&file, 0o600), (&folder, 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(usual | 0o020)).unwrap();
        bare(&world, "snapshots").exits(0);
        give(path, 0, 4321);
        bare(&world, "snapshots").exits(1).warns("the group 4321 may write").warns("chmod g-w");
        give(path, 0, 0);
        fs::set_permissions(path, fs::Permissions::from_mode(usual)).unwrap();
    }
}

#[test]
fn the_example_is_in_order_and_is_not_overwritten() {
    let world = World::empty();
    bare(&world, "profile check").exits(1).warns("profile init");
    bare(&world, "profile init").exits(0).says("config.toml is written");
    bare(&world, "profile check").exits(3).warns("there is no").says("1 profile is in order");
    let passphrase = world.path(".config/strongroom/passphrase");
    fs::write(&passphrase, "secret").unwrap();
    fs::set_permissions(&passphrase, fs::Permissions::from_mode(0o600)).unwrap();
    bare(&world, "profile check").exits(0).says("1 profile is in order: default");
    bare(&world, "profile show").exits(0).says("keep-daily");
    bare(&world, "profile init").exits(1).warns("config.toml");
    let other = world.path("other.toml");
    bare(&world, &format!("profile init --config {}", other.display())).exits(0);
    assert_eq!(fs::metadata(&other).unwrap().permissions().mode() & 0o777, 0o600);
    // Nothing of it is used by what has nothing to do with a repository.
    fs::write(&other, "nonsense").unwrap();
    bare(&world, &format!("completions bash --config {}", other.display())).exits(0);
}
