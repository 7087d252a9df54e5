//! Exhaustive exploration of small scopes: every order of everything that a few parties may say, each state once.
//! Every promise is checked over every step, and is shown able to fail by rules that are broken on purpose.
//!
//! Two families: `world` follows one operation's lease, with clocks, leaders and the effects that were caused; `whole` follows
//! authority, deliveries, reconciliation, repair, retention and policies, a scope for each.

mod invariants;
mod mutants;
mod search;
mod whole;
mod world;

use hapax_machine::namespace::OnLapse;

use invariants::{ALL_LANDMARKS, INVARIANTS, Invariant, landmarks};
use mutants::{MUTANTS, sound};
use search::{Found, Taken, search};
use world::{Action, Manners, Rules, Setting, World};

fn explore(setting: Setting, rules: Rules, invariants: &[Invariant]) -> Found<Action> {
    search(
        World::new(setting),
        World::key,
        |world| world.actions(setting),
        |world, action| {
            let step = world.step(setting, action, rules);
            let broken = invariants.iter().find(|(_, holds)| !holds(&step)).map(|(name, _)| *name);
            Taken { broken, landmarks: u64::from(landmarks(&step)), after: step.after }
        },
    )
}

fn every_promise_holds(on_lapse: OnLapse, manners: Manners) {
    let found = explore(Setting { on_lapse, manners }, sound, &INVARIANTS);
    let (states, steps) = (found.states, found.steps);
    eprintln!("on_lapse = {on_lapse:?}, words = {manners:?}: {states} states, {steps} transitions");
    if let Some((name, path)) = found.broken {
        let path: Vec<String> = path.iter().map(Action::told).collect();
        panic!("broken: {name}\n{}", path.join("\n"));
    }
    assert!(states > 20_000, "so little is no exploration");
    let all = u64::from(ALL_LANDMARKS);
    assert_eq!(found.landmarks, all, "everything of interest was met: {:b}", found.landmarks);
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
