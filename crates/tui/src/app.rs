//! The screens that are open, one on the other, and the work that the top one waits for.

use ratatui_core::buffer::Buffer;
use strongroom_base::Printable;
use strongroom_base::Progress;
use strongroom_base::printable::printable_line;
use strongroom_base::units::{bytes_text, count_text, counted};

use crate::canvas::{Canvas, Ink};
use crate::fit::{columns_of, shortened, wrapped};
use crate::key::Key;
use crate::message::{Effect, Event, Look, Report, Request, Running, Work};
use crate::screen::{KeyHelp, Screen, Step};
use crate::screens::{HelpScreen, SnapshotsScreen};

/// The keys that every screen has.
const EVERYWHERE: [KeyHelp; 2] = [("?", "help"), ("q", "quit")];

/// All that is shown, and what it takes to go on.
pub struct App {
    look: Look,
    screens: Vec<Box<dyn Screen>>,
    /// The number of the last work.
    number: u64,
    busy: Option<Busy>,
    /// What is said above the keys.
    said: String,
    running: Vec<Running>,
}

/// What the top screen waits for.
struct Busy {
    number: u64,
    words: &'static str,
    progress: Progress,
    what: Vec<u8>,
}

impl App {
    /// With the list of snapshots, which is to be read first.
    pub fn begin(look: Look) -> (Self, Effect) {
        let mut app = Self {
            look,
            screens: vec![Box::new(SnapshotsScreen::default())],
            number: 0,
            busy: None,
            said: String::new(),
            running: Vec::new(),
        };
        let effect = app.ask(Request::Snapshots);
        (app, effect)
    }

    /// Whether it is to be said what runs on this machine.
    pub fn watches(&self) -> bool {
        self.top().watches()
    }

    /// Whether it waits for work.
    pub fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// Takes an event.
    pub fn update(&mut self, event: Event) -> Option<Effect> {
        match event {
            Event::Key(key) => self.key(key),
            Event::Report(number, report) => self.report(number, report),
            Event::Running(running) => {
                self.running = running;
                let request = self.screens.last_mut()?.running(&self.running)?;
                self.busy.is_none().then(|| self.ask(request))
            }
        }
    }

    fn key(&mut self, key: Key) -> Option<Effect> {
        if key == Key::Ctrl('c') {
            let stopped = self.stop();
            return stopped.or(Some(Effect::Quit { interrupted: true }));
        }
        if self.busy.is_some() {
            return match key {
                Key::Esc | Key::Char('q') => self.stop(),
                _ => None,
            };
        }
        self.said.clear();
        let is_typing = self.top().is_typing();
        let look = &self.look;
        let screen = self.screens.last_mut().expect("one is always open");
        match screen.key(key, look) {
            Step::Pass if is_typing => None,
            Step::Pass => match key {
                Key::Char('q') | Key::Ctrl('d') => Some(Effect::Quit { interrupted: false }),
                Key::Char('?') => {
                    let keys = [screen.keys(), &EVERYWHERE].concat();
                    self.screens.push(Box::new(HelpScreen::of(keys)));
                    None
                }
                Key::Esc if self.screens.len() == 1 => Some(Effect::Quit { interrupted: false }),
                Key::Esc | Key::Backspace | Key::Left => self.back(),
                _ => None,
            },
            step => self.step(step),
        }
    }

    /// One screen back; the first one stays.
    fn back(&mut self) -> Option<Effect> {
        if self.screens.len() > 1 {
            self.screens.pop();
        }
        None
    }

    fn stop(&mut self) -> Option<Effect> {
        let busy = self.busy.take()?;
        self.said = format!("stopped: {}", busy.words);
        self.drop_empty();
        Some(Effect::Cancel(busy.number))
    }

    /// A screen that has nothing to show is left.
    fn drop_empty(&mut self) {
        if self.screens.len() > 1 && self.top().is_empty() {
            self.screens.pop();
        }
    }

    fn report(&mut self, number: u64, report: Report) -> Option<Effect> {
        let busy = self.busy.as_mut().filter(|busy| busy.number == number)?;
        match report {
            Report::Progress { progress, what } => {
                busy.progress = progress;
                busy.what = what;
                None
            }
            Report::Cancelled => {
                self.stop();
                None
            }
            Report::Failed(failure) => {
                self.busy = None;
                self.said = printable_line(&failure.message).into_owned();
                self.drop_empty();
                None
            }
            report => {
                self.busy = None;
                let step = self.screens.last_mut()?.report(report);
                self.step(step)
            }
        }
    }

    fn step(&mut self, step: Step) -> Option<Effect> {
        match step {
            Step::Stay | Step::Pass => None,
            Step::Back => self.back(),
            Step::Ask(request) => Some(self.ask(request)),
            Step::Open(screen) => {
                self.screens.push(screen);
                None
            }
            Step::OpenAsking(screen, request) => {
                self.screens.push(screen);
                Some(self.ask(request))
            }
            Step::Say(text) => {
                self.said = text;
                None
            }
        }
    }

    fn ask(&mut self, request: Request) -> Effect {
        self.number += 1;
        let (number, words) = (self.number, words_of(&request));
        self.busy = Some(Busy { number, words, progress: Progress::default(), what: Vec::new() });
        Effect::Begin(Work { number, request })
    }

    fn top(&self) -> &dyn Screen {
        &**self.screens.last().expect("one is always open")
    }

    /// Draws all of it.
    pub fn draw(&mut self, buffer: &mut Buffer) {
        let mut canvas = Canvas::new(buffer, self.look.colours);
        let (width, height) = (canvas.width(), canvas.height());
        let screen = self.screens.last_mut().expect("one is always open");
        let title = format!(" {}", screen.title(&self.look));
        canvas.text(0, 0, width, &shortened(&title, width), Ink::Plain);
        canvas.line(0, Ink::Title);
        screen.draw(&mut canvas.lines(1, height.saturating_sub(3)), &self.look);
        let is_typing = screen.is_typing();
        let keys = screen.keys();
        let bottom = height.saturating_sub(2);
        if let Some(busy) = &self.busy {
            canvas.text(0, bottom, width, &busy.line(width), Ink::Marked);
            draw_keys(&mut canvas, &[("Esc", "stop")]);
            return;
        }
        // A long message covers what is above it.
        let said = wrapped(&self.said, width);
        let first = (bottom + 1).saturating_sub(said.len());
        for (place, line) in said.iter().enumerate() {
            if said.len() > 1 {
                canvas.text(0, first + place, width, &" ".repeat(width), Ink::Plain);
            }
            canvas.text(0, first + place, width, line, Ink::Marked);
        }
        match is_typing {
            true => draw_keys(&mut canvas, keys),
            false => draw_keys(&mut canvas, &[keys, &EVERYWHERE].concat()),
        }
    }
}

impl Busy {
    fn line(&self, width: usize) -> String {
        let Progress { files, bytes, files_total, bytes_total, .. } = self.progress;
        let mut line = format!("{}…", self.words);
        if files > 0 {
            line.push_str(&match files_total {
                Some(total) => {
                    format!("  {} of {}", count_text(files), counted(total, "file", "files"))
                }
                None => format!("  {}", counted(files, "file", "files")),
            });
        }
        if bytes > 0 {
            line.push_str(&match bytes_total {
                Some(total) => format!("  {} of {}", bytes_text(bytes), bytes_text(total)),
                None => format!("  {}", bytes_text(bytes)),
            });
        }
        let room = width.saturating_sub(columns_of(&line) + 2);
        if room >= 12 && !self.what.is_empty() {
            let what = Printable::bytes(&self.what).to_string();
            line.push_str(&format!("  {}", shortened(&what, room)));
        }
        line
    }
}

fn words_of(request: &Request) -> &'static str {
    match request {
        Request::Snapshots => "reading the snapshots",
        Request::Directory { .. } => "reading the directory",
        Request::Compare { .. } => "comparing",
        Request::Find { .. } => "searching",
        Request::Text { .. } => "reading the file",
        Request::Existing(_) => "looking at the folder",
        Request::Restore { .. } => "restoring",
        Request::Sessions => "looking for other machines",
    }
}

/// The keys in the last line, as many as fit.
fn draw_keys(canvas: &mut Canvas<'_>, keys: &[KeyHelp]) {
    let (width, line) = (canvas.width(), canvas.height().saturating_sub(1));
    let taken = |(key, what): &KeyHelp| columns_of(key) + columns_of(what) + 3;
    let mut x = 1;
    // The last ones, which every screen has, are shown in any case.
    let last: usize = keys.iter().rev().take(2).map(taken).sum();
    for (place, (key, what)) in keys.iter().enumerate() {
        let columns = taken(&(*key, *what));
        let is_last = place + 2 >= keys.len();
        if x + columns + if is_last { 0 } else { last } > width + 2 {
            continue;
        }
        canvas.text(x, line, width, key, Ink::Head);
        canvas.text(x + columns_of(key) + 1, line, width, what, Ink::Plain);
        x += columns;
    }
}
