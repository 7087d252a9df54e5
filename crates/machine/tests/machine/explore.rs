//! Exhaustive exploration of a small scope: two or three calls of two claimants, one operation, every order of everything.
//! Breadth first, each state once; every promise is checked over every step, and is shown able to fail.

mod invariants;
mod mutants;
mod world;

use std::collections::{HashSet, VecDeque};

use hapax_machine::namespace::OnLapse;

use invariants::{ALL_LANDMARKS, INVARIANTS, Invariant, landmarks};
use mutants::{MUTANTS, sound};
use world::{Action, Manners, Rules, Setting, World};

/// A search that grows beyond this is no longer a small scope.
const STATES_MAX: usize = 80_000;

/// What an exploration found.
struct Found {
    states: usize,
    steps: usize,
    landmarks: u32,
    /// The promise that was broken, and how to get there.
    broken: Option<(&'static str, Vec<Action>)>,
}

fn explore(setting: Setting, rules: Rules, invariants: &[Invariant]) -> Found {
    let start = World::new(setting);
    let mut seen = HashSet::from([start.key()]);
    // How each state was first reached: the state before it and the step from there.
    let mut origins: Vec<(usize, Action)> = vec![(0, Action::Pass)];
    let mut queue = VecDeque::from([(0, start)]);
    let mut found = Found { states: 0, steps: 0, landmarks: 0, broken: None };
    while let Some((at, world)) = queue.pop_front() {
        found.states += 1;
        assert!(found.states <= STATES_MAX, "the scope is not small any more: {} more to visit", queue.len());
        for action in world.actions(setting) {
            let step = world.step(setting, &action, rules);
            found.steps += 1;
            found.landmarks |= landmarks(&step);
            if let Some((name, _)) = invariants.iter().find(|(_, holds)| !holds(&step)) {
                found.broken = Some((name, path(&origins, at, action)));
                return found;
            }
            let after = step.after;
            if seen.insert(after.key()) {
                origins.push((at, action));
                queue.push_back((origins.len() - 1, after));
            }
        }
    }
    found
}

fn path(origins: &[(usize, Action)], mut at: usize, last: Action) -> Vec<Action> {
    let mut path = vec![last];
    while at != 0 {
        let (before, action) = &origins[at];
        path.push(action.clone());
        at = *before;
    }
    path.reverse();
    path
}

fn every_promise_holds(on_lapse: OnLapse, manners: Manners) {
    let found = explore(Setting { on_lapse, manners }, sound, &INVARIANTS);
    let (states, steps) = (found.states, found.steps);
    eprintln!("on_lapse = {on_lapse:?}, words = {manners:?}: {states} states, {steps} transitions");
    if let Some((name, path)) = found.broken {
        let path: Vec<String> = path.iter().map(Action::told).collect();
        panic!("broken: {name}\n{}", path.join("\n"));
    }
    assert_eq!(found.landmarks, ALL_LANDMARKS, "everything of interest was met: {:b}", found.landmarks);
}

#[test]
fn every_promise_holds_where_a_lapse_means_unknown() {
    every_promise_holds(OnLapse::Unknown, Manners::Any);
}

#[test]
fn every_promise_holds_where_a_lapse_means_takeover() {
    every_promise_holds(OnLapse::Takeover, Manners::Any);
}

#[test]
fn honest_words_never_allow_a_second_effect() {
    every_promise_holds(OnLapse::Unknown, Manners::Honest);
}

#[test]
fn honest_words_never_allow_a_second_effect_under_takeover() {
    every_promise_holds(OnLapse::Takeover, Manners::Honest);
}

#[test]
fn every_broken_rule_is_convicted() {
    for mutant in &MUTANTS {
        let judged: Vec<_> = INVARIANTS.into_iter().filter(|(name, _)| *name == mutant.breaks).collect();
        assert_eq!(judged.len(), 1, "{} is one of the promises", mutant.breaks);
        let found = explore(mutant.setting, mutant.rules, &judged);
        let Some((_, path)) = found.broken else {
            panic!("{} went unnoticed over {} states", mutant.name, found.states);
        };
        eprintln!("{}: convicted after {} states, {} steps deep", mutant.name, found.states, path.len());
    }
}

#[test]
fn every_promise_can_fail() {
    for (name, _) in INVARIANTS {
        assert!(MUTANTS.iter().any(|mutant| mutant.breaks == name), "no broken rule breaks: {name}");
    }
}
