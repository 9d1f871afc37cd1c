//! Every command of the book and of the README is run, as a reader would run it.
//!
//! A chapter is run from its beginning to its end in one bash, by a user without rights, on a
//! machine of its own (`book/machine.sh`): namespaces of mounts, processes and networks, so that
//! paths such as `/media/disk` and names such as `backup.example` are used as they are printed, and
//! nothing of the real machine is touched. The passphrase is typed at a terminal. A comment of HTML
//! that begins with `test` is run too: it has what a reader has at hand, or what happens to a
//! reader's disk. Only two programs are not what they seem: `sudo`, and in the README `cargo`.

mod markdown;
mod terminal;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use markdown::{Block, Kind, blocks, missing};
use strongroom_testkit::servers::installed;
use tempfile::TempDir;
use terminal::Terminal;

use crate::world::{is_root, program, skipped};

/// What the machine is, and what Anna has.
const MACHINE: &str = "crates/cli/tests/it/book/machine.sh";
const ANNA: &str = "crates/cli/tests/it/book/anna.sh";
const PASSPHRASE: &str = "a passphrase that a person types";

/// A machine, and a terminal at it.
struct Reader {
    folder: TempDir,
}

impl Reader {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.folder.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Has Anna run this script of bash on a new machine.
    fn start(&self, script: &str) -> (Terminal, std::process::Child) {
        self.write("machine.sh", &document(MACHINE));
        self.write("anna.sh", &format!("{}\n{script}", document(ANNA)));
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait", "unshare", "--mount", "--uts", "--net", "--pid", "--fork"])
            .args(["--mount-proc", "--kill-child", "bash", "--noprofile", "--norc"])
            .arg(self.folder.path().join("machine.sh"))
            .arg(self.folder.path())
            .current_dir("/")
            .env_clear()
            .env("PATH", "/home/anna/.cargo/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", "/home/anna")
            .env("USER", "anna")
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm")
            .env("TZ", "UTC")
            .env("PROGRAM", program())
            .env("VERSITYGW", installed("versitygw"));
        Terminal::start(command)
    }
}

fn document(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn cannot() -> Option<&'static str> {
    (!is_root()).then_some("only root can make namespaces of mounts")
}

/// The script that does what a chapter says, block by block, and stops at the first that fails.
fn script(blocks: &[Block], reader: &Reader) -> String {
    let mut script = "set -E\ntrap 'echo $LINENO > \"$here/line\"' ERR\n".to_owned();
    for (number, block) in blocks.iter().enumerate() {
        reader.write(&format!("{number}.block"), &block.text);
        let step = format!("echo {number} > \"$here/at\"");
        let run = format!(". \"$here/{number}.block\" > \"$here/{number}.out\" 2>&1 < /dev/tty");
        let line = match &block.kind {
            Kind::Commands { code: 0 } => format!("{step}\n{run}"),
            Kind::Commands { code } => {
                format!("{step}\ncode=0\n{run} || code=$?\n[ \"$code\" = {code} ]")
            }
            Kind::File { path } => {
                let sudo = if path.starts_with('/') { "sudo " } else { "" };
                format!("{step}\n{sudo}install -D -m 644 \"$here/{number}.block\" {path}")
            }
            Kind::Output | Kind::Shown => continue,
        };
        writeln!(script, "{line}").unwrap();
    }
    script + "echo done > \"$here/at\"\n"
}

/// Runs a chapter.
fn chapter(path: &str) {
    if skipped(path, cannot()) {
        return;
    }
    let blocks = blocks(&document(path));
    let commands = blocks.iter().filter(|block| matches!(block.kind, Kind::Commands { .. }));
    assert!(commands.count() > 0, "{path} has no commands");
    let reader = Reader::new();
    let (mut terminal, mut child) = reader.start(&script(&blocks, &reader));
    terminal.answer_until("\u{0}", PASSPHRASE);
    child.wait().unwrap();
    let at = reader.read("at");
    if at.trim() != "done" {
        let Ok(number) = at.trim().parse::<usize>() else {
            panic!("{path}: the machine does not start\n{}", terminal.text)
        };
        let Block { line, text, .. } = &blocks[number];
        // Of the command in its block, if it failed by itself.
        let line = line + reader.read("line").trim().parse::<usize>().map_or(0, |line| line - 1);
        let output = reader.read(&format!("{number}.out"));
        panic!("{path}:{line}: a command fails\n{text}\n{output}\n{}", terminal.text);
    }
    for (number, block) in blocks.iter().enumerate().filter(|(_, b)| b.kind == Kind::Output) {
        let output = reader.read(&format!("{}.out", number - 1));
        if let Some(line) = missing(&block.text, &output) {
            panic!("{path}:{}: there is no\n{line}\nin the output\n{output}", block.line);
        }
    }
}

macro_rules! chapters {
    ($($name:ident: $path:literal,)*) => {
        /// The chapters with commands.
        const CHAPTERS: &[&str] = &[$($path),*];
        $(
            #[test]
            fn $name() {
                chapter($path);
            }
        )*
    };
}

chapters! {
    book_start: "docs/book/start.md",
    book_two_disks: "docs/book/two-disks.md",
    book_server: "docs/book/server.md",
    book_s3: "docs/book/s3.md",
    book_machines: "docs/book/machines.md",
    book_cluster: "docs/book/cluster.md",
    book_memory: "docs/book/memory.md",
    book_programs: "docs/book/programs.md",
    book_every_night: "docs/book/every-night.md",
    book_restore: "docs/book/restore.md",
    book_disaster: "docs/book/disaster.md",
    book_questions: "docs/book/questions.md",
    book_readme: "README.md",
}

#[test]
fn book_every_chapter_with_commands_is_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for entry in fs::read_dir(root.join("docs/book")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = format!("docs/book/{name}");
        let text = document(&path);
        if blocks(&text).iter().any(|block| block.kind != Kind::Shown) {
            assert!(CHAPTERS.contains(&path.as_str()), "{path} has commands and no test");
        }
        let summary = document("docs/SUMMARY.md");
        assert!(summary.contains(&format!("(book/{name})")), "docs/SUMMARY.md lacks {path}");
    }
}

/// All commands of the README, pasted at once into a shell at a terminal.
#[test]
fn book_the_tour_is_pasted_as_one_block() {
    if skipped("the tour", cannot()) {
        return;
    }
    let blocks = blocks(&document("README.md"));
    let (hidden, tour): (Vec<&Block>, Vec<&Block>) = blocks
        .iter()
        .filter(|block| matches!(block.kind, Kind::Commands { .. }))
        .partition(|block| block.is_hidden);
    let text =
        |blocks: &[&Block]| blocks.iter().map(|block| block.text.as_str()).collect::<String>();
    let reader = Reader::new();
    reader.write("hidden.sh", &text(&hidden));
    // Each command that fails is shown; the next ones are run nevertheless, as at a real terminal.
    let shell = "PS1='ready: '\nset -E\ntrap 'echo \"FAILED with $?: $BASH_COMMAND\"' ERR\n";
    reader.write("shell.sh", shell);
    let (mut terminal, mut child) = reader.start(
        ". \"$here/hidden.sh\" > /dev/null\nset +euo pipefail\n\
         exec bash --noprofile --rcfile \"$here/shell.sh\" -i\n",
    );
    terminal.answer_until("ready: ", PASSPHRASE);
    // A terminal marks what is pasted, so that the shell takes it as one.
    let end = "echo \"the tour \"is over\n";
    terminal.types(&format!("\x1b[200~{}{end}\x1b[201~\r", text(&tour)));
    terminal.answer_until("the tour is over", PASSPHRASE);
    terminal.types("exit\r");
    terminal.answer_until("\u{0}", PASSPHRASE);
    child.wait().unwrap();
    let shown = &terminal.text;
    assert!(shown.contains("the tour is over"), "{shown}");
    assert!(!shown.contains("FAILED with"), "{shown}");
}
