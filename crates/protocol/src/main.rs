//! The protocol of sessions, snapshots and collections, as a model that a checker walks through.
//! `docs/concurrency.md` has the protocol in words; the steps have its names.
//!
//! The program walks through every scope, and finds the harm that each mutant does: a report.
//!
//! ```text
//! strongroom-protocol            what takes seconds
//! strongroom-protocol --whole    also the scopes that take minutes and GBs
//! strongroom-protocol NAME       one scope, or one mutant
//! ```
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a report is what it is for"
)]

mod agreement;
mod collector;
mod forgetter;
mod histories;
mod model;
mod mutant;
mod properties;
mod repairer;
mod scope;
mod scopes;
mod set;
mod store;
#[cfg(test)]
mod tests;
mod world;
mod writer;

use std::process::ExitCode;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::agreement::Agreement;
use crate::histories::Histories;
use crate::model::{Action, State};
use crate::scope::Scope;

/// A model as the report shows it.
trait Shown:
    Model<
        State: Clone + std::fmt::Debug + Eq + std::hash::Hash + Send + Sync + 'static,
        Action: Copy + PartialEq,
    >
{
    fn name(&self) -> String;
    /// An action in a state.
    fn describe(state: &Self::State, action: Self::Action) -> String;
}

impl Shown for Scope {
    fn name(&self) -> String {
        name_of(self)
    }

    fn describe(state: &State, action: Action) -> String {
        state.describe(action)
    }
}

impl Shown for Agreement {
    fn name(&self) -> String {
        match self.mutant {
            Some(mistake) => format!("{mistake:?}"),
            None => format!("{} creators agree, {} rounds", self.creators, self.rounds),
        }
    }

    fn describe(_: &agreement::State, action: agreement::Step) -> String {
        format!("{action:?}")
    }
}

impl Shown for Histories {
    fn name(&self) -> String {
        self.mistake.map_or(self.name.to_owned(), |mistake| format!("{mistake:?}"))
    }

    fn describe(_: &histories::State, action: histories::Step) -> String {
        format!("{action:?}")
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(name) = arguments.first().filter(|argument| !argument.starts_with('-')) {
        let all = [scopes::small(), scopes::harmless(), scopes::large()].concat();
        let named = |scope: &&Scope| name_of(scope) == *name;
        let agreements = [agreement::scopes(true), agreement::mutants()].concat();
        if let Some(found) = agreements.iter().find(|found| found.name() == *name) {
            return exit(match found.mutant {
                Some(_) => does_harm(*found),
                None => holds(*found),
            });
        }
        let harmless = histories::harmless();
        let histories = [histories::scopes(true), histories::mutants()].concat();
        if let Some(found) = harmless.iter().find(|found| found.name() == *name) {
            return exit(holds(*found));
        }
        if let Some(found) = histories.iter().find(|found| found.name() == *name) {
            return exit(match found.mistake {
                Some(_) => does_harm(*found),
                None => holds(*found),
            });
        }
        return match (all.iter().find(named), scopes::mutants().iter().find(named)) {
            (Some(scope), _) => exit(holds(*scope)),
            (None, Some(scope)) => exit(does_harm(*scope)),
            (None, None) => {
                eprintln!(
                    "error: no scope and no mutant is called {name:?}; the report lists them"
                );
                exit(false)
            }
        };
    }
    let is_whole = arguments.iter().any(|argument| argument == "--whole");
    let mut is_right = true;
    println!("{:44} {:>11} {:>6} {:>7}  found", "scope", "states", "depth", "s");
    let large = if is_whole { scopes::large() } else { Vec::new() };
    for scope in scopes::small().into_iter().chain(scopes::harmless()).chain(large) {
        is_right &= holds(scope);
    }
    for scope in agreement::scopes(is_whole) {
        is_right &= holds(scope);
    }
    for scope in histories::scopes(is_whole).into_iter().chain(histories::harmless()) {
        is_right &= holds(scope);
    }
    println!();
    for scope in agreement::mutants() {
        is_right &= does_harm(scope);
    }
    for scope in histories::mutants() {
        is_right &= does_harm(scope);
    }
    for scope in scopes::mutants() {
        is_right &= does_harm(scope);
    }
    exit(is_right)
}

fn exit(is_right: bool) -> ExitCode {
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn name_of(scope: &Scope) -> String {
    scope.mutant.map_or(scope.name.to_owned(), |mutant| format!("{mutant:?}"))
}

/// Walks through a scope whole; whether all properties hold.
fn holds<M: Shown + Clone + Send + Sync + 'static>(scope: M) -> bool {
    let begun = Instant::now();
    let checker = scope.clone().checker().threads(2).spawn_bfs().join();
    let mut found = Vec::new();
    for property in scope.properties() {
        let is_found = checker.discovery(property.name).is_some();
        let is_example = matches!(property.expectation, stateright::Expectation::Sometimes);
        if is_found != is_example {
            found.push(property.name);
        }
    }
    line(&scope, checker.unique_state_count(), checker.max_depth(), begun, &found.join(", "));
    for name in &found {
        if let Some(path) = checker.discovery(name) {
            println!("  {name}:");
            show::<M>(path);
        }
    }
    found.is_empty()
}

/// Looks for the harm that a mutant does, and shows a way to it.
fn does_harm<M: Shown + Clone + Send + Sync + 'static>(scope: M) -> bool {
    let begun = Instant::now();
    let checker = scope
        .clone()
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let harm = scope.properties().into_iter().find_map(|property| {
        let is_example = matches!(property.expectation, stateright::Expectation::Sometimes);
        let path = (!is_example).then(|| checker.discovery(property.name)).flatten()?;
        Some((property.name, path))
    });
    let found = harm.as_ref().map_or("NOTHING", |(name, _)| name);
    line(&scope, checker.unique_state_count(), checker.max_depth(), begun, found);
    if let Some((_, path)) = &harm {
        show::<M>(path.clone());
    }
    harm.is_some()
}

/// Shows the steps to a state.
fn show<M: Shown>(path: Path<M::State, M::Action>) {
    for (number, (state, action)) in path.into_vec().iter().enumerate() {
        if let Some(action) = action {
            println!("    {:>2}  {}", number + 1, M::describe(state, *action));
        }
    }
}

fn line(scope: &impl Shown, states: usize, depth: usize, begun: Instant, found: &str) {
    let name = scope.name();
    let seconds = begun.elapsed().as_secs_f64();
    println!("{name:44} {states:>11} {depth:>6} {seconds:>7.1}  {found}");
}
