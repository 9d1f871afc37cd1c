//! Places on other machines: the conformance suite over real servers, and bad days.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

mod azure;
mod bad_days;
mod between;
mod flavours;
mod ftp;
mod s3;
mod sftp;
mod webdav;

use std::sync::Arc;
use std::time::Duration;

use strongroom_base::{Cancel, OsEntropy, SystemClock};
use strongroom_remote::{Place, Rate, Settings, Variables};

/// Settings with these variables and no others, and with little patience.
fn settings(variables: Vec<(String, String)>) -> Settings {
    Settings {
        variables: Variables::new(variables.into_iter().map(|(n, v)| (n.into(), v.into()))),
        rate: Rate::default(),
        connections: None,
        patience: Duration::from_secs(10),
        cancel: Cancel::new(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(OsEntropy),
        is_drawn: |_| false,
        judge: |_, _| strongroom_backend::Soundness::Repairable,
    }
}

fn place(text: &str) -> Place {
    Place::parse(text.as_ref()).unwrap()
}
