//! The parts of the help and of the manual pages that are not an option's own words: examples, exit
//! codes and variables.

use clap::{Command, CommandFactory};

use crate::Cli;
use crate::exit::EXIT_CODES;

/// A command line that can be pasted, and what it does.
pub struct Example {
    /// What it does, without a full stop.
    pub what: &'static str,
    /// The command line.
    pub line: &'static str,
}

const fn example(what: &'static str, line: &'static str) -> Example {
    Example { what, line }
}

/// The examples of a command; of the program itself for an empty name.
pub fn examples(command: &str) -> &'static [Example] {
    match command {
        "" => {
            const {
                &[
                    example(
                        "Create a repository and make the first backup",
                        "strongroom backup --init --repo /media/disk/backup ~/documents",
                    ),
                    example(
                        "Restore the newest version of a directory",
                        "strongroom restore latest:$HOME/documents --target ~/restored --repo /media/disk/backup",
                    ),
                ]
            }
        }
        "forget" => {
            const {
                &[
                    example(
                        "Show what would stay and what would go",
                        "strongroom forget --keep-daily 7 --keep-weekly 5 --keep-monthly 12 --dry-run",
                    ),
                    example("Forget the two newest", "strongroom forget latest latest~1"),
                ]
            }
        }
        "hold" => {
            const {
                &[
                    example(
                        "Keep the newest snapshot until a date",
                        "strongroom hold latest --reason 'annual accounts' --until 2036-12-31",
                    ),
                    example("List what is held, and why", "strongroom hold"),
                    example("Let the rules remove it again", "strongroom hold --release latest"),
                ]
            }
        }
        "label" => {
            const {
                &[
                    example("Label the newest snapshot", "strongroom label latest --add gold"),
                    example(
                        "Say what it is",
                        "strongroom label latest --description 'before the move'",
                    ),
                ]
            }
        }
        "prune" => {
            const {
                &[
                    example("Free what only forgotten snapshots need", "strongroom prune"),
                    example("Bring back what the last night condemned", "strongroom prune --undo"),
                ]
            }
        }
        "init" => {
            const {
                &[example(
                    "Create a repository on a disk",
                    "strongroom init --repo /media/disk/backup",
                )]
            }
        }
        "backup" => {
            const {
                &[
                    example(
                        "Back up two directories, without caches",
                        "strongroom backup --exclude-caches -e '*.tmp' ~/documents ~/photos",
                    ),
                    example(
                        "Back up the whole machine",
                        "strongroom backup -x -e /var/cache -e /var/tmp -e /tmp /",
                    ),
                    example(
                        "Store a database dump",
                        "pg_dump shop | strongroom backup --stdin shop.sql",
                    ),
                ]
            }
        }
        "image" => {
            const {
                &[
                    example("Show what is on a disk", "strongroom image show vm1.raw"),
                    example(
                        "Store a machine that is switched off, with what describes it",
                        "strongroom image backup vm1 vda=/var/lib/libvirt/images/vm1.raw --with vm1.xml",
                    ),
                    example(
                        "Get one file back",
                        "strongroom restore latest:/vm1/vda/p1/etc/fstab --target .",
                    ),
                    example(
                        "Put the disk back as it was yesterday",
                        "strongroom image restore yesterday:/vm1/vda.raw vm1.raw --host vm1 --overwrite",
                    ),
                ]
            }
        }
        "share" => {
            const {
                &[example(
                    "Offer mounted snapshots by a Samba that runs",
                    "strongroom share /srv/days --user anna >> /etc/samba/smb.conf",
                )]
            }
        }
        "machine" => {
            const {
                &[
                    example(
                        "Store a machine that runs, frozen for an instant by its agent",
                        "strongroom machine backup /run/vm1.qmp --agent /run/vm1.qga",
                    ),
                    example(
                        "Remove what a backup that was killed has left in a machine",
                        "strongroom machine undo /run/vm1.qmp --agent /run/vm1.qga",
                    ),
                ]
            }
        }
        "ram" => {
            const {
                &[
                    example(
                        "Store a region of shared memory while it is in use",
                        "strongroom ram store /dev/shm/cache",
                    ),
                    example(
                        "Put it back as it was yesterday",
                        "strongroom ram load 'yesterday:/dev/shm/cache' --overwrite",
                    ),
                    example(
                        "Store a file that is spread over the memory of many nodes, at one instant",
                        "strongroom ram cluster store sales --cluster ~/cluster",
                    ),
                ]
            }
        }
        "snapshots" => {
            const {
                &[example(
                    "List the snapshots of one machine",
                    "strongroom snapshots --host laptop",
                )]
            }
        }
        "ls" => {
            const {
                &[
                    example("List what was backed up last", "strongroom ls"),
                    example(
                        "List a directory as of two snapshots ago",
                        "strongroom ls -l latest~2:$HOME/documents",
                    ),
                ]
            }
        }
        "find" => {
            const { &[example("Find a lost file in all snapshots", "strongroom find 'thesis*.odt'")] }
        }
        "diff" => {
            const {
                &[
                    example(
                        "Show what changed between the last two snapshots",
                        "strongroom diff latest~1 latest",
                    ),
                    example(
                        "Show what changed on this machine since the last snapshot",
                        "strongroom diff latest",
                    ),
                ]
            }
        }
        "cat" => {
            const {
                &[example(
                    "Compare a file with its last backup",
                    "strongroom cat latest:/etc/fstab | diff - /etc/fstab",
                )]
            }
        }
        "restore" => {
            const {
                &[
                    example(
                        "Restore a directory into an empty one",
                        "strongroom restore latest:$HOME/documents --target ~/restored",
                    ),
                    example(
                        "Undo all changes since a date, in place",
                        "strongroom restore 2026-11-20:$HOME/documents --in-place",
                    ),
                    example(
                        "Show what a restore would do",
                        "strongroom restore latest --in-place --dry-run -v",
                    ),
                ]
            }
        }
        "dump" => {
            const {
                &[example(
                    "Write a directory to a tar archive",
                    "strongroom dump latest:/etc > etc.tar",
                )]
            }
        }
        "tui" => {
            const {
                &[example(
                    "Look around in a repository, and restore what is marked",
                    "strongroom tui --repo /media/disk/backup",
                )]
            }
        }
        "mount" => {
            const {
                &[example(
                    "Browse all snapshots, then unmount",
                    "strongroom mount ~/days & sleep 2; ls ~/days/hosts; fusermount3 -u ~/days",
                )]
            }
        }
        "nbd" => {
            const {
                &[
                    example(
                        "Offer the disks of all nights, and list their names",
                        "strongroom nbd & sleep 2; nbdinfo --list nbd://127.0.0.1/; kill $!",
                    ),
                    example(
                        "Offer the disks of one night at a socket, to be written to until it ends",
                        "strongroom nbd 2026-11-20 --socket /run/user/1000/disks --writable",
                    ),
                ]
            }
        }
        "boot" => {
            const {
                &[
                    example(
                        "Start the machine of the newest snapshot, with its screen in a window",
                        "strongroom boot latest:/vm1 --display gtk",
                    ),
                    example(
                        "Start it as it was on a day, keep what it writes, and reach its ssh",
                        "strongroom boot 2026-11-20:/vm1 --keep ~/vm1-of-november --forward 22",
                    ),
                ]
            }
        }
        "verify" => {
            const {
                &[
                    example(
                        "Check the structure of the repository, which is quick",
                        "strongroom verify",
                    ),
                    example(
                        "Read another twentieth of the data each day",
                        "strongroom verify --sample 5%",
                    ),
                ]
            }
        }
        "import" => {
            const {
                &[
                    example(
                        "List what would be imported of a repository of restic",
                        "strongroom import restic /mnt/disk/restic --dry-run",
                    ),
                    example(
                        "Import all archives of a repository of Borg, or those that are new since",
                        "strongroom import borg /mnt/disk/borg --from-password-file secret.txt",
                    ),
                ]
            }
        }
        "drill" => {
            const {
                &[
                    example(
                        "Restore about 1 GiB of the newest snapshot and compare it",
                        "strongroom drill",
                    ),
                    example(
                        "Restore a whole folder and let a program judge it",
                        "strongroom drill latest:/var/lib/mail --sample 100% --command 'test -s mail.db'",
                    ),
                    example(
                        "Start a machine without a network, and wait until it answers to ssh",
                        "strongroom drill --boot latest:/vm1 --expect-port 22",
                    ),
                ]
            }
        }
        "audit" => {
            const {
                &[
                    example(
                        "Ask a server of our own for proofs of all objects",
                        "strongroom audit ssh://backup@vault/laptop",
                    ),
                    example(
                        "Read another hundredth of a bucket each day",
                        "strongroom audit s3://backups/laptop --sample 1%",
                    ),
                ]
            }
        }
        "lock" => {
            const {
                &[example(
                    "Each day, by the owner's credentials for locks: the last 30 days stay",
                    "strongroom lock --for 30d --repo s3://backups/laptop",
                )]
            }
        }
        "replicate" => {
            const {
                &[
                    example(
                        "Copy what is new to a bucket and to another disk",
                        "strongroom replicate s3://backups/laptop /media/other/backup",
                    ),
                    example(
                        "Also remove there what `prune` removed here",
                        "strongroom replicate --mirror s3://backups/laptop",
                    ),
                ]
            }
        }
        "repair" => {
            const {
                &[
                    example("Show what a repair would do", "strongroom repair --dry-run"),
                    example("Repair the repository", "strongroom repair"),
                    example(
                        "Fetch from a replica what parity cannot give back",
                        "strongroom repair --from s3://backups/laptop",
                    ),
                    example(
                        "Bring back what was overwritten or removed in a bucket with versions",
                        "strongroom repair --from-versions --repo s3://backups/laptop",
                    ),
                ]
            }
        }
        "stats" => {
            const {
                &[
                    example(
                        "Show what removing each snapshot would free",
                        "strongroom stats --snapshots",
                    ),
                    example("Draw how the repository grew", "strongroom stats --plot"),
                    example("Write the picture to a file", "strongroom stats --plot=growth.svg"),
                ]
            }
        }
        "key" | "key-add" => {
            const {
                &[
                    example(
                        "Let a machine store without a person and without reading anything",
                        "strongroom key generate ~/machine.key",
                    ),
                    example(
                        "Add that key to the repository",
                        "strongroom key add --put-only --label laptop --new-password-file ~/machine.key",
                    ),
                ]
            }
        }
        "serve" => {
            const {
                &[
                    example(
                        "Serve rooms to the owners of tokens",
                        "strongroom serve --house /srv/house --name backup.example --listen 0.0.0.0:8443",
                    ),
                    example(
                        "Serve one repository to a key of ssh: as its command in ~/.ssh/authorized_keys",
                        "strongroom serve --stdio --role put-only --path /srv/laptop",
                    ),
                ]
            }
        }
        "token" => {
            const {
                &[example(
                    "Make a token for a machine that may only back up",
                    "strongroom token --house /srv/house add laptops --name anna --role put-only --quota 200GiB",
                )]
            }
        }
        "profile" => {
            const {
                &[example(
                    "Begin: write an example, which is then edited, and check it",
                    "strongroom profile init; strongroom profile check",
                )]
            }
        }
        "run" => {
            const {
                &[
                    example("Run all that the profile \"default\" says", "strongroom run"),
                    example(
                        "Only its backup and its copies, with a mail if something fails",
                        "strongroom run backup replicate --notify mailto:anna@example.org --notify-on failure",
                    ),
                ]
            }
        }
        "schedule" => {
            const {
                &[
                    example("Run the profile every night", "strongroom schedule --at 02:30"),
                    example("See when it is run next", "strongroom schedule --show"),
                    example("Run it no more by itself", "strongroom schedule --remove"),
                ]
            }
        }
        "status" => {
            const {
                &[
                    example("See how the last run ended", "strongroom status"),
                    example(
                        "As a plugin of Nagios: critical if the last good backup is older than two days",
                        "strongroom status --format nagios --max-age 2d",
                    ),
                ]
            }
        }
        "debug" => {
            const {
                &[example(
                    "Show what a snapshot says of itself",
                    "strongroom debug snapshot latest",
                )]
            }
        }
        "completions" => {
            const {
                &[example(
                    "Install the completions for bash",
                    "strongroom completions bash > ~/.local/share/bash-completion/completions/strongroom",
                )]
            }
        }
        "manpages" => {
            const { &[example("Install the manual pages", "strongroom manpages ~/.local/share/man")] }
        }
        _ => &[],
    }
}

/// The places where a repository can be, and the variables that let a client in.
pub const PLACES: [(&str, &str); 10] = [
    ("FOLDER", ""),
    ("s3://BUCKET/PREFIX", "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_REGION AWS_ENDPOINT_URL"),
    ("azblob://CONTAINER/PREFIX", "AZURE_STORAGE_ACCOUNT AZURE_STORAGE_KEY"),
    ("gs://BUCKET/PREFIX", "GS_ACCESS_KEY_ID GS_SECRET_ACCESS_KEY"),
    ("b2://BUCKET/PREFIX", "B2_APPLICATION_KEY_ID B2_APPLICATION_KEY"),
    ("webdavs://USER@HOST/PATH", "WEBDAV_PASSWORD"),
    ("sftp://USER@HOST/PATH", ""),
    ("ssh://USER@HOST/PATH", ""),
    ("ftps://USER@HOST/PATH", "FTP_PASSWORD"),
    ("https://HOST:PORT/ROOM", "STRONGROOM_TOKEN"),
];

/// The environment variables, for the manual pages.
pub const ENVIRONMENT: [(&str, &str); 19] = [
    ("STRONGROOM_REPOSITORY", "the repository, if --repo is not given"),
    ("STRONGROOM_PASSWORD", "the passphrase, if neither of the next two nor its option is given"),
    ("STRONGROOM_PASSWORD_FILE", "a file with the passphrase, as for --password-file"),
    (
        "STRONGROOM_PASSWORD_COMMAND",
        "a command that prints the passphrase, as for --password-command",
    ),
    (
        "STRONGROOM_REPLICAS",
        "replicas to read from, separated by commas, if --replica is not given",
    ),
    ("STRONGROOM_PROFILE", "the profile, as for --profile"),
    ("STRONGROOM_CONFIG", "the file with profiles, as for --config"),
    (
        "SMTP_PASSWORD",
        "the password of the user in --smtp; SMTP_PASSWORD_FILE and SMTP_PASSWORD_COMMAND say where it is",
    ),
    ("NTFY_TOKEN", "a token for ntfy; NTFY_TOKEN_FILE and NTFY_TOKEN_COMMAND say where it is"),
    (
        "XDG_CONFIG_HOME",
        "the file with profiles is in its folder strongroom; by default in ~/.config/strongroom",
    ),
    (
        "XDG_STATE_HOME",
        "runs are remembered in its folder strongroom; by default in ~/.local/state/strongroom",
    ),
    ("STRONGROOM_CACHE", "the folder for caches, as for --cache"),
    (
        "XDG_CACHE_HOME",
        "if --cache is not given, caches are kept in its folder strongroom; by default in ~/.cache/strongroom",
    ),
    ("STRONGROOM_CA_FILE", "certificates (PEM) to trust at places over TLS, beside the machine's"),
    ("STRONGROOM_TOKEN", "the token for our own server, at https:// places"),
    ("STRONGROOM_S3_STORAGE_CLASS", "the storage class of arenas in buckets"),
    (
        "STRONGROOM_PAGER, PAGER",
        "the pager of long lists on a terminal; less if neither is set, none if the first is empty or cat",
    ),
    ("NO_COLOR", "if it is set and not empty, nothing is printed in colour"),
    ("TZ", "the time zone of dates that are printed or given"),
];

/// The files that the program reads and writes by itself, for the manual pages.
pub const FILES: [(&str, &str); 5] = [
    ("~/.config/strongroom/config.toml", "the profiles of a user: strongroom-profile(5)"),
    ("/etc/strongroom/config.toml", "the profiles of the machine, if the user has none"),
    (
        "~/.cache/strongroom",
        "what this machine remembers of repositories; it may be removed at any time, and is then built again",
    ),
    ("~/.local/state/strongroom", "how the runs of profiles ended"),
    ("/etc/ssl/certs", "the certificates that are trusted at places over TLS"),
];

/// The command line, with examples and exit codes in its help.
pub fn command() -> Command {
    let mut command = Cli::command();
    // As in other programs, -i of `find` is about letters.
    command = command
        .mut_subcommand("find", |find| find.mut_arg("include", |include| include.short(None)));
    let names: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
    for name in names {
        let text = examples_text(&name);
        if !text.is_empty() {
            command = command.mut_subcommand(name, |subcommand| {
                let before = subcommand.get_after_help().map(ToString::to_string);
                let before = before.map(|before| format!("{before}\n\n")).unwrap_or_default();
                subcommand.after_help(format!("{before}{text}"))
            });
        }
    }
    let codes: Vec<String> =
        EXIT_CODES.iter().map(|(code, meaning)| format!("  {code:<4} {meaning}")).collect();
    let places: Vec<String> = PLACES
        .iter()
        .map(|(place, variables)| format!("  {place:<26} {variables}").trim_end().to_owned())
        .collect();
    command.after_help(format!(
        "The passphrase is taken from --password-file or --password-command, or else from the variable\n\
         STRONGROOM_PASSWORD, or else asked for.\n\nPlaces, and the variables with their credentials:\n{}\n\
         The keys of AWS may also come from its own files and roles; any other key or password NAME from\n\
         the file in NAME_FILE, or from the command in NAME_COMMAND. docs/places.md says more.\n\n\
         {}\n\nExit codes:\n{}",
        places.join("\n"),
        examples_text(""),
        codes.join("\n")
    ))
}

fn examples_text(command: &str) -> String {
    let examples = examples(command);
    if examples.is_empty() {
        return String::new();
    }
    let lines = examples.iter().map(|e| format!("  # {}\n  {}", e.what, e.line));
    format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_a_valid_command_line() {
        let mut names: Vec<String> =
            Cli::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
        names.push(String::new());
        for example in names.iter().flat_map(|name| examples(name)) {
            let line = example.line.split(" | ").find(|part| part.starts_with("strongroom"));
            let line = line.expect(example.line).split([';', '>', '&']).next().unwrap_or_default();
            command().try_get_matches_from(words_of(line)).expect(example.line);
        }
    }

    /// As a shell splits it: what is between quotes is one word, without them.
    fn words_of(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (at, part) in line.split('\'').enumerate() {
            match at % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        words
    }
}
