//! Words: counts that are right, plurals, and the names that other programs gave their commands.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use strongroom_testkit::damage::files_below;

use crate::world::World;

#[test]
fn trial_08_verify_never_reports_zero_damaged_objects() {
    let world = World::with_tree(51);
    world.backup().exits(0);
    for arena in files_below(&world.repository().join("arenas")) {
        fs::remove_file(arena).unwrap();
    }
    let run = world.say("verify").exits(4).says("lost in snapshot");
    assert!(!run.out.contains("0 objects"), "{}", run.out);
}

#[test]
fn trial_08_diff_counts_what_it_shows() {
    let world = World::with_repository();
    let tree = world.tree();
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b/file"), "text").unwrap();
    fs::write(tree.join("a/other"), "text").unwrap();
    world.backup().exits(0);
    fs::set_permissions(tree.join("a/b/file"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(tree.join("a/b/new"), "new").unwrap();
    world.backup().exits(0);
    let run = world.say("diff latest~1 latest").exits(0);
    assert_eq!(run.out.lines().filter(|line| line.starts_with("M ")).count(), 1, "{}", run.out);
    run.says("1 only in metadata").says(" more only in a time");
}

#[test]
fn trial_08_plurals_are_right() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    fs::write(world.tree().join("file"), "text").unwrap();
    world.backup().exits(0).says(" 1 file,");
    let target = world.path("out").display().to_string();
    world.run(["restore", "latest", "--target", &target]).exits(0).says("restored 1 file,");
    world.say("verify").exits(0).says("and 1 snapshot;");
}

#[test]
fn trial_08_links_are_counted_apart() {
    let world = World::with_repository();
    fs::create_dir(world.tree()).unwrap();
    fs::write(world.tree().join("file"), "text").unwrap();
    std::os::unix::fs::symlink("file", world.tree().join("link")).unwrap();
    let run = world.backup().exits(0);
    run.says("2 files").says("1 new, 0 changed, 0 unchanged, 1 link or special file");
}

#[test]
fn trial_09_words_of_other_programs_get_a_hint() {
    let world = World::with_repository();
    for (words, hint) in [
        ("break-lock", "no locks"),
        ("delete abcd", "strongroom forget"),
        ("compact", "strongroom prune"),
        ("pin latest", "strongroom hold"),
        ("list", "strongroom snapshots"),
        ("umount /mnt", "fusermount3"),
    ] {
        world.say(words).exits(2).warns("hint: ").warns(hint);
    }
    world.say("frobnicate").exits(2).warns("unrecognized subcommand");
}

#[test]
fn trial_readme_manual_pages_have_what_a_reader_looks_for() {
    let world = World::empty();
    let folder = world.path("man");
    fs::create_dir(&folder).unwrap();
    world.say(&format!("manpages {}", folder.display())).exits(0);
    for page in ["strongroom", "strongroom-backup", "strongroom-restore", "strongroom-mount"] {
        let text = fs::read_to_string(folder.join(format!("man1/{page}.1"))).unwrap();
        for section in ["EXAMPLES", "ENVIRONMENT", "EXIT STATUS"] {
            assert!(text.contains(section), "{page} has no {section}");
        }
        assert!(!text.contains("EXTRA"), "{page}");
    }
}

#[test]
fn trial_readme_help_is_short_for_every_command() {
    let world = World::empty();
    let help = world.say("dump --help").exits(0).out;
    assert!(!help.contains("Possible values"), "{help}");
    assert!(help.contains("Examples:"), "{help}");
}
