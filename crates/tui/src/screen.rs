//! What each screen does: it takes keys and answers, and draws itself between two lines that are
//! the same on all.

use crate::canvas::Canvas;
use crate::key::Key;
use crate::message::{Look, Report, Request, Running};

/// What comes next.
pub enum Step {
    /// Nothing.
    Stay,
    /// This key is none of mine.
    Pass,
    /// Back to the screen below.
    Back,
    /// This request is answered to this screen.
    Ask(Request),
    /// Another screen is put on top.
    Open(Box<dyn Screen>),
    /// Another screen is put on top, and this request is answered to it.
    OpenAsking(Box<dyn Screen>, Request),
    /// Something is said in the line above the keys.
    Say(String),
}

/// A key and what it does.
pub type KeyHelp = (&'static str, &'static str);

/// One screen.
pub trait Screen {
    /// The text in the first line.
    fn title(&self, look: &Look) -> String;
    /// The keys that it has, the most important first.
    fn keys(&self) -> &'static [KeyHelp];
    /// Whether characters are typed into a text here, so that none of them is a key.
    fn is_typing(&self) -> bool {
        false
    }
    /// Takes a key.
    fn key(&mut self, key: Key, look: &Look) -> Step;
    /// Takes the answer to its request.
    fn report(&mut self, report: Report) -> Step;
    /// Takes what runs on this machine. The request, if there is one, is made once a while.
    fn running(&mut self, _running: &[Running]) -> Option<Request> {
        None
    }
    /// Whether it wants to know what runs on this machine.
    fn watches(&self) -> bool {
        false
    }
    /// Whether its request, once stopped or failed, leaves nothing to show.
    fn is_empty(&self) -> bool {
        false
    }
    /// Draws itself.
    fn draw(&mut self, canvas: &mut Canvas<'_>, look: &Look);
}
