//! Backups that run: those of this machine with their progress, and the sessions that others opened.

use strongroom_base::units::{bytes_text, count_text, counted, duration_text};
use strongroom_base::{Printable, Progress};

use crate::canvas::{Canvas, Ink};
use crate::fit::shortened;
use crate::key::Key;
use crate::message::{Look, Report, Request, Running, SessionRow};
use crate::screen::{KeyHelp, Screen, Step};

/// What runs.
#[derive(Default)]
pub struct WatchScreen {
    running: Vec<Running>,
    sessions: Option<Vec<SessionRow>>,
    /// How often it heard what runs since it asked for the sessions.
    heard: u32,
}

/// The sessions are asked for again after this many times.
const ASK_AFTER: u32 = 20;

impl Screen for WatchScreen {
    fn title(&self, _look: &Look) -> String {
        "Running backups".to_owned()
    }

    fn keys(&self) -> &'static [KeyHelp] {
        &[("R", "look again"), ("Esc", "back")]
    }

    fn key(&mut self, key: Key, _look: &Look) -> Step {
        match key {
            Key::Char('R') => Step::Ask(Request::Sessions),
            _ => Step::Pass,
        }
    }

    fn report(&mut self, report: Report) -> Step {
        if let Report::Sessions(sessions) = report {
            self.sessions = Some(sessions);
        }
        Step::Stay
    }

    fn watches(&self) -> bool {
        true
    }

    fn running(&mut self, running: &[Running]) -> Option<Request> {
        // A session begins or ends with a backup of this machine.
        let changed = running.len() != self.running.len();
        self.running = running.to_vec();
        self.heard += 1;
        (changed || self.heard >= ASK_AFTER).then(|| {
            self.heard = 0;
            Request::Sessions
        })
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>, look: &Look) {
        let width = canvas.width();
        let room = width.saturating_sub(4);
        canvas.text(2, 0, room, "on this machine", Ink::Head);
        let mut y = 1;
        if self.running.is_empty() {
            canvas.text(2, y, room, "none", Ink::Dim);
            y += 1;
        }
        for running in &self.running {
            y = draw_running(canvas, y, running) + 1;
        }
        y += 1;
        canvas.text(2, y, room, "sessions of all machines in this repository", Ink::Head);
        y += 1;
        let Some(sessions) = &self.sessions else { return };
        if sessions.is_empty() {
            canvas.text(2, y, room, "none", Ink::Dim);
        }
        for session in sessions {
            let text = match &session.writer {
                Ok((host, started)) => {
                    format!("{}  since {}", Printable::text(host), (look.date)(*started))
                }
                Err(why) => why.clone(),
            };
            canvas.text(2, y, 8, &session.id.short(), Ink::Plain);
            canvas.text(12, y, width.saturating_sub(12), &text, Ink::Plain);
            y += 1;
        }
        if !sessions.is_empty() {
            let text = "One that is old was left by a backup that died; it does no harm.";
            canvas.text(2, y + 1, room, text, Ink::Dim);
        }
    }
}

fn draw_running(canvas: &mut Canvas<'_>, y: usize, running: &Running) -> usize {
    let width = canvas.width();
    let room = width.saturating_sub(4);
    let paths: Vec<String> =
        running.paths.iter().map(|path| Printable::text(path).to_string()).collect();
    let place = Printable::text(&running.repository);
    let first = format!("{} to {place}  (process {})", paths.join(" "), running.pid);
    canvas.text(2, y, room, &shortened(&first, room), Ink::Plain);
    let Progress { files, bytes, bytes_new, files_total, bytes_total, .. } = running.progress;
    let bar_columns = width.saturating_sub(4).min(60);
    let mut y = y + 1;
    if let Some(total) = bytes_total.filter(|total| *total > 0) {
        canvas.text(2, y, bar_columns, &bar(bytes, total, bar_columns), Ink::Good);
        y += 1;
    }
    let of = |total: Option<u64>, text: fn(u64) -> String| {
        total.map_or(String::new(), |total| format!(" of {}", text(total)))
    };
    let time = std::time::Duration::from_secs(running.seconds);
    let numbers = format!(
        "{}{}  {}{}  {} new  {}",
        count_text(files),
        match files_total {
            Some(total) => format!(" of {}", counted(total, "file", "files")),
            None => " files".to_owned(),
        },
        bytes_text(bytes),
        of(bytes_total, bytes_text),
        bytes_text(bytes_new),
        duration_text(time),
    );
    canvas.text(2, y, room, &numbers, Ink::Plain);
    canvas.text(
        2,
        y + 1,
        room,
        &shortened(&Printable::text(&running.what).to_string(), room),
        Ink::Dim,
    );
    y + 2
}

/// A bar of this many columns.
fn bar(done: u64, total: u64, columns: usize) -> String {
    let share = done.min(total) as f64 / total.max(1) as f64;
    let percent = format!(" {:.0} %", share * 100.0);
    let columns = columns.saturating_sub(6);
    let full = (share * columns as f64) as usize;
    format!("{}{}{percent}", "█".repeat(full), "░".repeat(columns - full))
}
