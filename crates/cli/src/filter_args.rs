//! `--include` and `--exclude` of the commands that show or give out a part of a snapshot.

use strongroom_base::Severity;
use strongroom_engine::EngineError;
use strongroom_source::{FilterOptions, PathFilter, SourceError};

use crate::context::Context;
use crate::exit::{CliError, Exit};

/// Which paths of the snapshot are wanted.
#[derive(Debug, Clone, clap::Args)]
pub struct FilterArgs {
    /// Only what matches this gitignore pattern, and what is below it; with a leading slash it is a
    /// path from the top of the snapshot; may be given several times
    #[arg(long, short = 'i', value_name = "PATTERN", value_parser = pattern, help_heading = HEADING)]
    include: Vec<String>,
    /// As --include, but upper and lower case are the same
    #[arg(long, value_name = "PATTERN", value_parser = pattern, help_heading = HEADING)]
    iinclude: Vec<String>,
    /// Not what matches this gitignore pattern, even if it is included
    #[arg(long, short = 'e', value_name = "PATTERN", value_parser = pattern, help_heading = HEADING)]
    exclude: Vec<String>,
    /// As --exclude, but upper and lower case are the same
    #[arg(long, value_name = "PATTERN", value_parser = pattern, help_heading = HEADING)]
    iexclude: Vec<String>,
}

/// A pattern as it was typed or written: one that cannot be read is refused before anything is done.
pub fn pattern(text: &str) -> Result<String, String> {
    let excludes = vec![text.to_owned()];
    match PathFilter::new(FilterOptions { excludes, ..FilterOptions::default() }) {
        Ok(_) => Ok(text.to_owned()),
        Err(SourceError::Pattern { reason, .. }) => Err(reason),
        Err(error) => Err(error.to_string()),
    }
}

const HEADING: &str = "Which files";

impl FilterArgs {
    /// The filter; none if everything is wanted.
    pub fn resolve(&self) -> Result<Option<PathFilter>, CliError> {
        let options = FilterOptions {
            includes: self.include.clone(),
            iincludes: self.iinclude.clone(),
            excludes: self.exclude.clone(),
            iexcludes: self.iexclude.clone(),
        };
        PathFilter::new(options).map_err(|error| EngineError::from(error).into())
    }

    /// Says that nothing was given out, for a mistyped pattern must not look like success; what the
    /// command then ends with.
    pub fn report_nothing(context: &Context) -> Exit {
        let message = "no file of the snapshot matches: `strongroom ls -R` lists what it holds";
        context.terminal.problem(Severity::Warning, message);
        Exit::Incomplete
    }
}
