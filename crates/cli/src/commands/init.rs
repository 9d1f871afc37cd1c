//! `strongroom init`

use std::process::ExitCode;

use serde_json::json;
use strongroom_arena::Redundancy;
use strongroom_repository::config::{NAMING_LOCATION, STORE_AGREED};
use strongroom_repository::keys::KdfCost;
use strongroom_repository::{InitOptions, Repository};

use crate::context::Context;
use crate::exit::{CliError, Exit};
use crate::terminal::printable_text;

/// How a new repository is created.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    new: NewRepositoryArgs,
}

/// The options of a new repository, for `init` and for `backup --init`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "New repository")]
pub struct NewRepositoryArgs {
    /// Parity added to everything that is stored, in percent of its size; 0 for none
    #[arg(long, value_name = "PERCENT", default_value = "3")]
    parity: f64,
    /// Pad what is stored, so that sizes reveal less about it; takes some percent of space
    #[arg(long)]
    padding: bool,
    /// Store objects of about this size, from 4MiB to 64MiB. Where answers take long, large ones
    /// keep the line busy; each takes memory several times
    #[arg(long, value_name = "SIZE", value_parser = arena_bytes, default_value = "16MiB")]
    arena_size: u32,
    /// Agree by notes who takes a name, also if the place creates objects exclusively
    #[arg(long)]
    agree: bool,
    /// How chunks are recognised and named. fingerprint: by a keyed hash of 256 bits. location:
    /// what has the same short tag is read back and compared byte by byte, and a chunk is named
    /// by its place; each backup reads all that it does not store
    #[arg(long, value_name = "WAY", value_enum, default_value_t = Naming::Fingerprint)]
    naming: Naming,
    /// Name of the first passphrase in the list of keys
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    key_label: String,
    #[command(flatten)]
    kdf: KdfArgs,
}

/// How chunks are recognised and named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Naming {
    Fingerprint,
    Location,
}

/// What opening a key costs, for every command that makes one.
#[derive(Debug, Clone, clap::Args)]
pub struct KdfArgs {
    /// Memory that each guess of the passphrase needs (Argon2id) [default: 64MiB; minimal for keys
    /// from `key generate`]
    #[arg(long, value_name = "SIZE")]
    kdf_memory: Option<String>,
}

impl NewRepositoryArgs {
    /// The options as the engine takes them.
    pub fn options(&self) -> Result<InitOptions, CliError> {
        if !(0.0..=100.0).contains(&self.parity) {
            let message = format!("invalid parity {}: it must be 0 to 100 %", self.parity);
            return Err(CliError::new(Exit::Failed, message, "give a number from 0 to 100"));
        }
        // At most 100 %, so the result is at most 1000.
        let per_mille = (self.parity * 10.0).ceil() as u32;
        Ok(InitOptions {
            redundancy: Redundancy { per_mille },
            padding: self.padding,
            arena_bytes: self.arena_size,
            agreed: self.agree,
            by_value: self.naming == Naming::Location,
            label: self.key_label.clone(),
            cost: self.kdf.cost()?,
            ..InitOptions::default()
        })
    }
}

fn arena_bytes(text: &str) -> Result<u32, String> {
    let bytes = strongroom_base::units::parse_bytes(text).map_err(|error| error.to_string())?;
    let bytes = u32::try_from(bytes).ok().filter(|bytes| (4 << 20..=64 << 20).contains(bytes));
    bytes.ok_or_else(|| "give a size from 4MiB to 64MiB".to_owned())
}

impl KdfArgs {
    /// The cost that was asked for, if any; the default depends on the passphrase.
    pub fn cost(&self) -> Result<Option<KdfCost>, CliError> {
        let wrong = |message: String| {
            CliError::new(Exit::Failed, message, "give a size from 32KiB to 1GiB, such as 64MiB")
        };
        let Some(memory) = &self.kdf_memory else { return Ok(None) };
        let bytes = strongroom_base::units::parse_bytes(memory)
            .map_err(|error| wrong(error.to_string()))?;
        let kib = u32::try_from(bytes / 1024).ok();
        let memory_kib = kib.filter(|kib| (32..=KdfCost::MEMORY_KIB_MAX).contains(kib));
        let memory_kib = memory_kib.ok_or_else(|| wrong(format!("{memory} is out of bounds")))?;
        Ok(Some(KdfCost { memory_kib, ..KdfCost::DEFAULT }))
    }
}

/// Creates it.
pub fn run(context: &Context, args: &Args) -> Result<ExitCode, CliError> {
    let repository = context.init(&args.new.options()?)?;
    context.terminal.json(&json!({
        "event": "summary",
        "repository": repository.config.id.to_string(),
        "place": repository.backend().describe(),
        "mode": if is_agreed(&repository) { "agreed" } else { "exclusive" },
        "naming": if is_by_value(&repository) { "location" } else { "fingerprint" },
    }))?;
    report_created(context, &repository)?;
    Ok(Exit::Done.into())
}

/// Says that a repository was created, and what its owner must know.
pub fn report_created(context: &Context, repository: &Repository) -> Result<(), CliError> {
    let place = printable_text(&repository.backend().describe());
    context.terminal.line(format!("created repository {place}"))?;
    if is_agreed(repository) {
        context.terminal.line(
            "mode agreed: the place does not refuse a name that is taken, so machines agree by notes",
        )?;
    }
    if is_by_value(repository) {
        context.terminal.line("naming location: chunks are compared byte by byte")?;
    }
    context.terminal.note(KEEP_THE_PASSPHRASE);
    Ok(())
}

fn is_agreed(repository: &Repository) -> bool {
    repository.config.store == STORE_AGREED
}

fn is_by_value(repository: &Repository) -> bool {
    repository.config.naming == NAMING_LOCATION
}

/// What everybody must know.
pub const KEEP_THE_PASSPHRASE: &str = "Store the passphrase somewhere safe, away from this \
                                       machine: without it the data cannot be recovered.";
