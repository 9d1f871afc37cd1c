//! What is looked at: `tui` at a terminal, and `stats --plot`.
#![expect(clippy::disallowed_methods, reason = "a test that reads the environment or the clock")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::tty;
use crate::world::{PASSPHRASE, World, has_program, program, skipped};

/// A terminal of 80 columns and 24 lines, and the program at it.
struct Screen {
    person: File,
    program: File,
    shown: Vec<u8>,
    child: Child,
}

impl Screen {
    fn start(world: &World, words: &str) -> Self {
        let (person, terminal) = tty::open();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        std::fs::write(world.path("word"), PASSPHRASE).unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(program()).args(words.split(' '));
        world.surround(&mut command);
        let side = || Stdio::from(terminal.try_clone().unwrap());
        command.env("TERM", "xterm").stdin(side()).stdout(side()).stderr(side());
        let child = command.spawn().unwrap();
        Self { person, program: terminal, shown: Vec::new(), child }
    }

    /// Waits until this is on the screen.
    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |screen| screen.picture().contains(text));
    }

    #[track_caller]
    fn wait_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_so(self) {
            assert!(Instant::now() < until, "no {what:?} in\n{}", self.picture());
            let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
            if poll(&mut [PollFd::new(&self.person, PollFlags::IN)], Some(&limit)).unwrap() > 0 {
                let mut buffer = [0; 4096];
                let count = self.person.read(&mut buffer).unwrap();
                self.shown.extend_from_slice(&buffer[..count]);
            }
        }
    }

    /// What a person sees, if no character is wide: each change of it alone was written.
    fn picture(&self) -> String {
        let text = String::from_utf8_lossy(&self.shown);
        let mut lines = vec![vec![' '; 80]; 24];
        let (mut x, mut y) = (0, 0);
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            match character {
                '\x1b' => {
                    let sequence: String =
                        rest.by_ref().skip(1).take_while(|c| !c.is_ascii_alphabetic()).collect();
                    // `take_while` took the letter; only places have two numbers and no style.
                    if let Some((line, column)) = place_of(&text, &rest, &sequence) {
                        (x, y) = (column, line);
                    }
                }
                '\r' => x = 0,
                '\n' => y += 1,
                _ => {
                    if let Some(cell) = lines.get_mut(y).and_then(|line| line.get_mut(x)) {
                        *cell = character;
                    }
                    x += 1;
                }
            }
        }
        let lines: Vec<String> = lines.into_iter().map(String::from_iter).collect();
        lines.join("\n")
    }

    fn shows(&self, sequence: &str) -> bool {
        String::from_utf8_lossy(&self.shown).contains(sequence)
    }

    fn press(&mut self, keys: &str) {
        self.person.write_all(keys.as_bytes()).unwrap();
    }

    /// Whether the terminal is as a shell needs it.
    fn is_given_back(&self) -> bool {
        let modes = tcgetattr(&self.program).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    /// The process of the program itself, which `setsid` started.
    fn process(&self) -> Pid {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let first = children.split_whitespace().next().and_then(|child| child.parse().ok());
        // Without a fork, it took the place of `setsid`.
        Pid::from_raw(first.unwrap_or(id as i32)).unwrap()
    }

    #[track_caller]
    fn ends(mut self, code: i32) -> String {
        // Its last words must be read, or it waits.
        self.wait_until("end", |screen| screen.shows(LEAVE));
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(code), "{:?}\n{}", status.signal(), self.picture());
        assert!(self.is_given_back());
        self.picture()
    }
}

/// How the program leaves the screen.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The line and column that a sequence of control moves the cursor to.
fn place_of(text: &str, rest: &std::str::Chars<'_>, sequence: &str) -> Option<(usize, usize)> {
    let end = text.len() - rest.as_str().len();
    if !text[..end].ends_with('H') {
        return None;
    }
    let (line, column) = sequence.split_once(';')?;
    Some((line.parse::<usize>().ok()? - 1, column.parse::<usize>().ok()? - 1))
}

fn cannot() -> Option<&'static str> {
    (!has_program("setsid")).then_some("setsid is not installed")
}

/// A file below `tree/folder`, in one snapshot.
fn world_with_file() -> World {
    let world = World::with_repository();
    std::fs::create_dir_all(world.tree().join("folder")).unwrap();
    std::fs::write(world.tree().join("folder/wanted.txt"), "what was lost").unwrap();
    std::fs::write(world.tree().join("folder/other\x1b[2J.txt"), "another").unwrap();
    world.backup().exits(0);
    world
}

#[test]
fn a_file_is_found_and_restored() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = world_with_file();
    let mut screen = Screen::start(&world, "tui");
    screen.wait_for("1 snapshot in");
    screen.press("fWANTED\r");
    screen.wait_for("wanted.txt");
    // It goes to the folder, with the cursor on the file.
    screen.press("\r");
    screen.wait_for("2 entries");
    screen.wait_for("wanted.txt");
    screen.wait_for("other\\u{1b}[2J.txt");
    screen.press("r");
    screen.wait_for("Into the folder");
    screen.press("~/back\r");
    screen.wait_for("Restored 1 file");
    let file = world.path("back/wanted.txt");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "what was lost");
    assert_eq!(std::fs::read_dir(world.path("back")).unwrap().count(), 1);

    // A second time it asks, and a no changes nothing.
    std::fs::write(&file, "a newer version").unwrap();
    screen.press("\x1b[Dr");
    screen.wait_for("Into the folder");
    screen.press("~/back\r");
    screen.wait_for("exists already");
    screen.press("n");
    screen.wait_for("Into the folder");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "a newer version");
    screen.press("\r");
    screen.wait_for("exists already");
    screen.press("y");
    screen.wait_for("Restored 1 file");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "what was lost");
    screen.press("q");
    screen.ends(0);
}

#[test]
fn a_signal_or_ctrl_c_gives_the_terminal_back() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = world_with_file();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut screen = Screen::start(&world, "tui");
        screen.wait_for("1 snapshot in");
        assert!(!screen.is_given_back());
        kill_process(screen.process(), signal).unwrap();
        screen.ends(130);
    }
    let mut screen = Screen::start(&world, "tui");
    screen.wait_for("1 snapshot in");
    screen.press("\x03");
    screen.ends(130);
}

#[test]
fn a_wrong_passphrase_is_said_before_the_screen_is_taken() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = world_with_file();
    std::fs::write(world.path("wrong"), "not the passphrase").unwrap();
    let words = format!("tui --password-file {}", world.path("wrong").display());
    let mut screen = Screen::start(&world, &words);
    screen.wait_for("error: ");
    assert_eq!(screen.child.wait().unwrap().code(), Some(5));
    assert!(!screen.shows("\x1b[?1049h"), "{}", screen.picture());
}

#[test]
fn without_a_terminal_there_is_no_screen() {
    let world = World::with_repository();
    world.say("tui").exits(1).warns("draws on a terminal").warns("`snapshots`, `ls`");
    world.say("tui --json").exits(1).says("\"event\":\"error\"");
}

#[test]
fn a_running_backup_is_watched() {
    if skipped("a terminal", cannot()) {
        return;
    }
    let world = world_with_file();
    let mut command = world.command(["backup", "--stdin", "slowly"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"the beginning").unwrap();
    let records = world.path("cache/running");
    let until = Instant::now() + Duration::from_secs(60);
    let is_recorded = || std::fs::read_dir(&records).is_ok_and(|mut files| files.next().is_some());
    while !is_recorded() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut screen = Screen::start(&world, "tui");
    screen.wait_for("1 snapshot in");
    screen.press("w");
    screen.wait_for(&format!("(process {})", child.id()));
    drop(input);
    assert!(child.wait().unwrap().success());
    assert!(!is_recorded());
    screen.press("\x1b");
    screen.press("q");
    screen.ends(0);
}

/// Events by name.
fn events(out: &str, name: &str) -> Vec<serde_json::Value> {
    let lines = out.lines().map(|line| serde_json::from_str(line).expect(line));
    lines.filter(|line: &serde_json::Value| line["event"] == name).collect()
}

#[test]
fn growth_and_costs_are_drawn_and_counted() {
    let world = World::with_repository();
    let empty = world.say("stats --plot").exits(0).says("nothing yet");
    assert!(empty.out.lines().all(|line| line.chars().count() <= 80), "{}", empty.out);
    std::fs::create_dir_all(world.tree()).unwrap();
    let noise = |seed: u8, bytes: usize| -> Vec<u8> {
        let mut state = u32::from(seed) + 1;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..bytes).map(next).collect()
    };
    let tree = world.tree().to_str().unwrap().to_owned();
    std::fs::write(world.tree().join("shared"), noise(1, 400_000)).unwrap();
    world.run(["backup", &tree, "--host", "one"]).exits(0);
    world.run(["backup", &tree, "--host", "two<&>"]).exits(0);
    std::fs::write(world.tree().join("own"), noise(2, 300_000)).unwrap();
    world.run(["backup", &tree, "--host", "one"]).exits(0);

    let run = world.say("stats --plot --json").exits(0);
    let growth = events(&run.out, "growth");
    let bytes = |place: usize, name: &str| growth[place][name].as_u64().unwrap();
    assert_eq!(growth.len(), 3);
    assert_eq!([bytes(0, "bytes"), bytes(1, "bytes")], [400_000, 800_000]);
    assert_eq!(bytes(2, "bytes"), 1_500_000);
    assert_eq!([bytes(0, "unique_bytes"), bytes(1, "unique_bytes")], [400_000, 400_000]);
    assert_eq!(bytes(2, "unique_bytes"), 700_000);
    assert!(bytes(2, "stored_bytes") >= 700_000);
    let costs = events(&run.out, "cost");
    assert_eq!(costs.len(), 2);
    assert_eq!((&costs[0]["host"], &costs[0]["snapshots"]), (&"one".into(), &2.into()));
    let own = |place: usize| costs[place]["own_stored_bytes"].as_u64().unwrap();
    assert!((300_000..400_000).contains(&own(0)), "{}", own(0));
    assert!(own(1) < 10_000, "{}", own(1));
    // The last point is what `stats` counts for all of them together.
    assert_eq!(bytes(2, "stored_bytes"), costs[0]["stored_bytes"].as_u64().unwrap() + own(1));
    assert_eq!(run.summary()["snapshots"], 3);

    world.say("stats --plot").exits(0).says("deduplication: 2.1 : 1").says("one:/").says("█");
    let file = world.path("picture.svg");
    world.say(&format!("stats --plot={}", file.display())).exits(0).says("wrote ");
    assert!(is_xml(&file));
    assert!(std::fs::read_to_string(&file).unwrap().contains("two&lt;&amp;&gt;:/"));
    world.say("stats --plot=picture.png").exits(1).warns("picture.png does not end with .svg");
    let nowhere = world.path("nowhere/x.svg");
    world.say(&format!("stats --plot={}", nowhere.display())).exits(1).warns("cannot write");
    world.say("stats --plot latest").exits(2);
}

/// As another program sees it.
fn is_xml(file: &Path) -> bool {
    let script = "import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])";
    Command::new("python3").args(["-c", script]).arg(file).status().unwrap().success()
}
