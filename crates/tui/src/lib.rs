//! Floor 6: snapshots and files on a screen.
//!
//! [`App`] is a value: it takes events, such as keys and answers, and gives back what is to be
//! done. [`App::draw`] draws it into any backend of `ratatui`. [`perform`] does what takes long;
//! the caller runs it on another thread, so that the screen stays live. Nothing here prints, reads
//! the environment, or knows a terminal's modes.

mod ansi;
mod app;
mod canvas;
mod fit;
mod key;
mod list;
mod message;
mod screen;
mod screens;
#[cfg(test)]
mod tests;
mod work;

pub use ansi::AnsiBackend;
pub use app::App;
pub use key::{Key, Keys};
pub use message::{Effect, Event, Failure, Look, Report, Request, Running, Work};
pub use work::perform;
