//! What the reviews of November 2026 found, each shown with the program alone.
//!
//! The name of a test begins with the finding's number: `engine_03_…`, `trial_02_…`, `house_…`.
//! Each of these tests fails with the program of before (f7546f7) and passes with this one;
//! `campaign/findings` shows both. So they use only commands and options that both programs know.

mod deleting;
mod kept_nothing;
mod links;
pub mod media;
mod memory;
mod output;
mod overwriting;
mod put_only;
mod racy;
mod removed;
mod snapshots;
mod sources;
mod storage;
mod words;
