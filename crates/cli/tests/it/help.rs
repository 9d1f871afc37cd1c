//! What the program says about itself.

use crate::world::World;

pub const COMMANDS: &[&str] = &[
    "",
    "init",
    "backup",
    "snapshots",
    "ls",
    "find",
    "diff",
    "cat",
    "restore",
    "drill",
    "dump",
    "machine",
    "machine backup",
    "machine show",
    "machine undo",
    "mount",
    "nbd",
    "boot",
    "tui",
    "forget",
    "hold",
    "image",
    "image backup",
    "image restore",
    "image show",
    "import",
    "label",
    "prune",
    "ram",
    "ram agent",
    "ram cluster",
    "ram cluster add",
    "ram cluster evict",
    "ram cluster load",
    "ram cluster status",
    "ram cluster store",
    "ram load",
    "ram store",
    "ram watch",
    "verify",
    "repair",
    "replicate",
    "audit",
    "lock",
    "unlock",
    "stats",
    "key",
    "key list",
    "key add",
    "key generate",
    "key change",
    "key remove",
    "key end-domain",
    "serve",
    "share",
    "token",
    "token add",
    "token list",
    "token remove",
    "profile",
    "profile init",
    "profile check",
    "profile show",
    "run",
    "schedule",
    "status",
    "debug",
    "completions",
    "manpages",
];

/// The help in a terminal of 100 columns, with nothing set.
fn help(command: &str) -> String {
    let world = World::empty();
    let args = command.split(' ').filter(|word| !word.is_empty()).chain(["--help"]);
    let mut command = world.command(args);
    for variable in ["STRONGROOM_REPOSITORY", "STRONGROOM_CACHE", "STRONGROOM_PASSWORD"] {
        command.env_remove(variable);
    }
    let output = command.env("COLUMNS", "100").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_reads_well() {
    for command in COMMANDS {
        let name = if command.is_empty() { "strongroom" } else { command };
        insta::assert_snapshot!(name.replace(' ', "-"), help(command));
    }
}

#[test]
fn every_command_is_in_the_list() {
    let text = help("");
    let listed = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    for line in listed.filter(|line| !line.starts_with("   ")) {
        let name = line.split_whitespace().next().unwrap();
        assert!(COMMANDS.contains(&name), "{name} has no snapshot of its help");
    }
}

#[test]
fn completions_of_every_shell() {
    let world = World::empty();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        world.say(&format!("completions {shell}")).exits(0).says("strongroom").says("snapshots");
    }
}
