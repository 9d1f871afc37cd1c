//! The bounded part of the report, for each change.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::agreement;
use crate::histories;
use crate::scopes;

/// The properties that do not hold.
fn failures<M>(scope: M) -> Vec<&'static str>
where
    M: Model<State: Clone + Debug + Hash + Send + Sync, Action: Clone + PartialEq>,
    M: Clone + Send + Sync + 'static,
    M::State: PartialEq + 'static,
{
    let checker = scope.clone().checker().threads(2).spawn_bfs().join();
    let properties = scope.properties().into_iter();
    let failed = properties.filter(|property| {
        let is_example = matches!(property.expectation, Expectation::Sometimes);
        checker.discovery(property.name).is_some() != is_example
    });
    failed.map(|property| property.name).collect()
}

/// Whether some property is violated that must always hold.
fn does_harm<M>(scope: M) -> bool
where
    M: Model<State: Clone + Debug + Hash + Send + Sync, Action: Clone + PartialEq>,
    M: Clone + Send + Sync + 'static,
    M::State: PartialEq + 'static,
{
    let checker = scope.clone().checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let mut properties = scope.properties().into_iter();
    properties.any(|property| {
        let is_example = matches!(property.expectation, Expectation::Sometimes);
        !is_example && checker.discovery(property.name).is_some()
    })
}

#[test]
fn all_properties_hold_in_small_scopes() {
    for scope in scopes::small() {
        assert_eq!(failures(scope), [""; 0], "{}", scope.name);
    }
}

#[test]
fn creators_agree() {
    for scope in agreement::scopes(false) {
        assert_eq!(failures(scope), [""; 0], "{scope:?}");
    }
}

#[test]
fn each_mistake_of_a_creator_does_harm() {
    for scope in agreement::mutants() {
        assert!(does_harm(scope), "{scope:?}");
    }
}

#[test]
fn generations_of_two_histories_and_of_a_thief_lose_nothing() {
    for scope in histories::scopes(false).into_iter().chain(histories::harmless()) {
        assert_eq!(failures(scope), [""; 0], "{scope:?}");
    }
}

#[test]
fn each_mistake_with_generations_does_harm() {
    for scope in histories::mutants() {
        assert!(does_harm(scope), "{scope:?}");
    }
}

#[test]
fn two_faults_are_harmless_alone() {
    for scope in scopes::harmless() {
        assert_eq!(failures(scope), [""; 0], "{:?}", scope.mutant);
    }
}

#[test]
fn each_mutant_does_harm() {
    for scope in scopes::mutants() {
        assert!(does_harm(scope), "{:?}", scope.mutant);
    }
}
