//! The screens, one a file.

mod changes;
mod details;
mod files;
mod found;
mod help;
mod prompt;
mod restore;
mod snapshots;
mod table;
mod text;
mod watch;

pub use help::HelpScreen;
pub use snapshots::SnapshotsScreen;
