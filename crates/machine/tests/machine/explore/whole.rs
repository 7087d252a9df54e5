//! The whole protocol in small scopes: authority, deliveries, registers, reconciliation, repair, retention, policies.

mod key;
mod landmarks;
mod menu;
mod mutants;
mod promises;
mod scope;
mod world;

use landmarks::{met, missed};
use mutants::MUTANTS;
use promises::{PROMISES, Promise};
use scope::Scope;
use world::{Act, Rules, SOUND, World};

use super::search::{Found, Taken, search};

fn explore(scope: Scope, rules: Rules, promises: &[Promise]) -> Found<Act> {
    search(
        World::new(scope),
        World::key,
        |world| world.actions(scope),
        |world, act| {
            let step = world.step(scope, act, rules);
            let broken = promises.iter().find(|(_, holds)| !holds(&step)).map(|(name, _)| *name);
            Taken { broken, landmarks: met(&step), after: step.after }
        },
    )
}

fn every_promise_holds(scope: Scope) {
    let found = explore(scope, SOUND, &PROMISES);
    eprintln!("{scope:?}: {} states, {} transitions", found.states, found.steps);
    if let Some((name, path)) = found.broken {
        let path: Vec<String> = path.iter().map(Act::told).collect();
        panic!("broken: {name}\n{}", path.join("\n"));
    }
    let missed = missed(scope, found.landmarks);
    assert!(missed.is_empty(), "not met: {missed:?}");
    assert!(found.states >= scope.states_min(), "so little is no exploration of what it is for");
}

#[test]
fn every_promise_holds_for_capabilities_of_an_attempt() {
    every_promise_holds(Scope::Single);
}

#[test]
fn every_promise_holds_for_bounded_use() {
    every_promise_holds(Scope::Bounded);
}

#[test]
fn every_promise_holds_for_registers_of_authority() {
    Scope::ALL.into_iter().filter(|scope| matches!(scope, Scope::Epochs(_))).for_each(every_promise_holds);
}

#[test]
fn every_promise_holds_for_reconciliation() {
    every_promise_holds(Scope::Reconcile);
}

#[test]
fn every_promise_holds_for_late_evidence() {
    every_promise_holds(Scope::Late);
}

#[test]
fn every_promise_holds_for_repair() {
    every_promise_holds(Scope::Repair);
}

#[test]
fn every_promise_holds_for_successors() {
    every_promise_holds(Scope::Supersede);
}

#[test]
fn every_promise_holds_for_retention() {
    every_promise_holds(Scope::Retention);
}

#[test]
fn every_promise_holds_where_policies_change() {
    every_promise_holds(Scope::Policy);
}

#[test]
fn every_broken_rule_is_convicted() {
    let mut unnoticed = Vec::new();
    for mutant in &MUTANTS {
        let judged: Vec<_> = PROMISES.into_iter().filter(|(name, _)| *name == mutant.breaks).collect();
        assert_eq!(judged.len(), 1, "{} is one of the promises", mutant.breaks);
        let found = explore(mutant.scope, mutant.rules, &judged);
        match found.broken {
            Some((_, path)) => {
                eprintln!("{}: convicted after {} states, {} steps deep", mutant.name, found.states, path.len());
            }
            None => unnoticed.push((mutant.name, found.states)),
        }
    }
    assert!(unnoticed.is_empty(), "went unnoticed, over so many states: {unnoticed:?}");
}

#[test]
fn every_promise_can_fail() {
    for (name, _) in PROMISES {
        assert!(MUTANTS.iter().any(|mutant| mutant.breaks == name), "no broken rule breaks: {name}");
    }
}
