//! How connections to places on other machines are made.

use std::sync::Arc;

use strongroom_base::{Cancel, OsEntropy, SystemClock};
use strongroom_remote::{Limit, Rate, Settings, Variables};
use strongroom_repository::objects::{is_drawn, soundness};

/// How connections to places on other machines are made.
#[derive(Debug, Clone, clap::Args)]
pub struct ConnectionArgs {
    /// Send at most this many bytes a second, such as 2MiB, or by the time of day, such as
    /// 8:00-18:00=500KiB,2MiB
    #[arg(
        long,
        global = true,
        value_name = "RATE",
        value_parser = Limit::parse,
        help_heading = "Connection"
    )]
    limit_upload: Option<Limit>,
    /// Receive at most this many bytes a second
    #[arg(
        long,
        global = true,
        value_name = "RATE",
        value_parser = Limit::parse,
        help_heading = "Connection"
    )]
    limit_download: Option<Limit>,
    /// Make at most this many requests at a time
    #[arg(
        long,
        global = true,
        value_name = "NUMBER",
        value_parser = clap::value_parser!(u16).range(1..=256),
        help_heading = "Connection"
    )]
    connections: Option<u16>,
}

impl ConnectionArgs {
    /// The settings of every connection.
    pub fn settings(&self, cancel: &Cancel) -> Settings {
        Settings {
            variables: Variables::new(std::env::vars_os()),
            rate: Rate {
                upload: self.limit_upload.clone().unwrap_or_default(),
                download: self.limit_download.clone().unwrap_or_default(),
            },
            connections: self.connections.map(usize::from),
            patience: Settings::PATIENCE,
            cancel: cancel.clone(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            is_drawn,
            judge: soundness,
        }
    }
}
