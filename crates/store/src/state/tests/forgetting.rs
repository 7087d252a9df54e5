//! Whatever is done, in whatever order: whether compaction runs after every step or never, every answer is the same.
//! And the judge of rows says of every row what the machine's own view of it says.

use std::ops::ControlFlow;

use hapax_codec::record;
use hapax_machine::View;
use hapax_machine::change::Head;
use hapax_machine::command::*;
use hapax_machine::ids::*;
use hapax_machine::namespace::{Floors, NamespaceRecord, OnLapse, Retention};
use hapax_machine::operation::{Class, Definite};
use hapax_machine::refusal::RefusalKey;
use hapax_machine::retention::Shown;
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::disk::Family;
use super::super::horizon::{Judge, OneInstant};
use super::super::keys::{self, Parts};
use super::super::{Position, StateStore};
use super::fixture::*;

const KEYS: u64 = 4;

#[derive(Debug, Clone, Copy)]
enum Act {
    Claim(u64, u64),
    ClaimWith(u64, u64, u64),
    Register(u64),
    Issue(u64, u64),
    IssueBounded(u64, u64),
    Report(u64, Option<Definite>),
    Evidence(u64, Definite),
    Repair(u64, RepairKind),
    Retention(u64),
    Raise(u64),
    Pass(u64),
    Flush,
    Crash,
}

fn act() -> impl Strategy<Value = Act> {
    let key = || 0..KEYS;
    let call = || 0..12_u64;
    let definite = || prop_oneof![Just(Definite::Completed), Just(Definite::Failed), Just(Definite::NotApplied)];
    let kind = prop_oneof![Just(RepairKind::Quarantine), Just(RepairKind::Release), Just(RepairKind::Close)];
    prop_oneof![
        6 => (key(), call()).prop_map(|(key, call)| Act::Claim(key, call)),
        6 => (key(), call(), 0..6_u64).prop_map(|(key, call, decision)| Act::ClaimWith(key, call, decision)),
        2 => key().prop_map(Act::Register),
        4 => (key(), 0..3_u64).prop_map(|(key, decision)| Act::Issue(key, decision)),
        2 => (key(), 3..6_u64).prop_map(|(key, decision)| Act::IssueBounded(key, decision)),
        8 => (key(), prop::option::weighted(0.8, definite())).prop_map(|(key, outcome)| Act::Report(key, outcome)),
        2 => (key(), definite()).prop_map(|(key, outcome)| Act::Evidence(key, outcome)),
        3 => (key(), kind).prop_map(|(key, kind)| Act::Repair(key, kind)),
        1 => (1..4_u64).prop_map(Act::Retention),
        5 => (0..100_000_u64).prop_map(Act::Raise),
        5 => (1..300_000_u64).prop_map(Act::Pass),
        2 => Just(Act::Flush),
        1 => Just(Act::Crash),
    ]
}

/// The command of an act, made from what the rules see.
fn envelope(store: &StateStore, act: Act, n: u64, issued: &mut Vec<u64>) -> Envelope {
    let view = store.view();
    let found = |key: u64| Shown(&view).operation(&row(OnLapse::Unknown, key)).unwrap();
    let held = |key: u64| found(key).and_then(|record| record.execution);
    let Head { clocks, .. } = view.head();
    let tick = enveloped(Command::Tick);
    match act {
        Act::Claim(key, call) => with_new_ids(claim(OnLapse::Unknown, key, call), n),
        Act::ClaimWith(key, call, back) => {
            // One that was issued, not long ago; or one that never was.
            let issued = issued.iter().rev().nth(usize::try_from(back).unwrap());
            with_new_ids(claim_with(key, call, capability_id(issued.copied().unwrap_or(n))), n)
        }
        Act::Register(key) => register(key),
        Act::Issue(key, decision) => found(key).map_or(tick, |operation| {
            issued.push(n);
            with_new_ids(issue(&operation, decision, clocks.wall), n)
        }),
        Act::IssueBounded(key, decision) => {
            issued.push(n);
            with_new_ids(issue_bounded(key, decision, clocks.wall), n)
        }
        Act::Report(key, outcome) => held(key).map_or(tick, |held| match outcome {
            Some(outcome) => report(held.id, held.lease_epoch, outcome),
            None => enveloped(Command::Report(Report {
                caller: caller(),
                execution_id: held.id,
                lease_epoch: held.lease_epoch,
                outcome,
                data: ResultData::default(),
            })),
        }),
        Act::Evidence(key, outcome) => held(key).map_or(tick, |held| {
            enveloped(Command::Evidence(Evidence {
                caller: caller(),
                execution_id: held.id,
                claim_id: held.claim_id,
                outcome,
                data: ResultData::default(),
                proof: None,
            }))
        }),
        Act::Repair(key, kind) => found(key).map_or(tick, |operation| repair(&operation, kind)),
        Act::Retention(times) => {
            let name = namespace(OnLapse::Unknown);
            let stands = view.policy(&tenant(), &name).unwrap().clone();
            let retention = Retention { identity_ms: times * IDENTITY_MS, ..stands.retention };
            let (expected, record) = (Expected::Version(stands.version), NamespaceRecord { retention, ..stands });
            enveloped(Command::PutNamespace(PutNamespace { caller: caller(), record, expected }))
        }
        Act::Raise(back) => {
            let to = WallTime(clocks.wall.0.saturating_sub(back));
            let floors = Floors { compact_before: to, forget_before: to };
            let namespace = namespace(OnLapse::Unknown);
            enveloped(Command::RaiseFloors(RaiseFloors { tenant: tenant(), namespace, floors }))
        }
        Act::Pass(_) | Act::Flush | Act::Crash => tick,
    }
}

/// What a proposer draws is never the same twice.
fn with_new_ids(mut envelope: Envelope, n: u64) -> Envelope {
    match &mut envelope.command {
        Command::Claim(claim) => claim.execution_id.random = random(n ^ 0x00ee_0000_0000),
        Command::Issue(issue) => issue.capability_id = capability_id(n),
        Command::IssueBounded(issue) => issue.capability_id = capability_id(n),
        _ => {}
    }
    envelope
}

/// Everything that lists and look-ups say.
fn answers(store: &StateStore) -> String {
    let view = store.view();
    let (tenant, name) = (tenant(), namespace(OnLapse::Unknown));
    let mut out = String::new();
    let mut say = |said: String| out.push_str(&said);
    for class in [Class::Requested, Class::Executing, Class::Unknown, Class::Escalated] {
        say(format!("{:?}", view.list(&tenant, &name, class, None, None, 100).unwrap().0));
    }
    for class in [Class::NotApplied, Class::Completed, Class::Failed, Class::Quarantined] {
        say(format!("{:?}", view.list(&tenant, &name, class, None, None, 100).unwrap().0));
    }
    say(format!("{:?}", view.unknown_oldest(&tenant, std::slice::from_ref(&name), None, 100).unwrap().0));
    for key in 0..KEYS {
        let after: Option<&Position> = None;
        say(format!("{:?}", view.by_resource(&tenant, &name, &resource(key), after, 100).unwrap().0));
        say(format!("{:?}", view.by_correlation(&tenant, &story(key), after, 100).unwrap().0));
        say(format!("{:?}", view.refusals_of_correlation(&tenant, &story(key), after, 100).unwrap().0));
        if let Some(record) = Shown(&view).operation(&row(OnLapse::Unknown, key)).unwrap() {
            let id = record.id;
            say(format!("{:?}", view.evidence_of_operation(&tenant, &id, after, 300).unwrap().0));
            say(format!("{:?}", view.capabilities_of(&tenant, &id, after, 100).unwrap().0));
            say(format!("{:?}", view.refusals_of_operation(&tenant, &id, after, 100).unwrap().0));
        }
    }
    out
}

/// The judge's word on every row, against what the rules see.
fn judge_agrees(store: &StateStore) {
    let view = store.view();
    let known = std::sync::Arc::new(view.0.known().unwrap());
    let rows = &*view.0.rows;
    for family in Family::RETAINED.into_iter().filter(|family| !matches!(family, Family::Index | Family::Events)) {
        let mut all = Vec::new();
        let collected = rows.scan(family, &[0; 4], &mut |key, value| {
            all.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        });
        collected.unwrap();
        for (key, value) in all {
            let mut judge = Judge::new(std::sync::Arc::clone(&known), GroupId(0), OneInstant(rows));
            let gone = judge.is_gone(family, &key, &value).unwrap();
            let seen = is_seen(&Shown(&view), family, &key, &value);
            assert_eq!(gone, !seen, "{}", super::super::scan::describe(family, &key, &value));
        }
    }
}

fn is_seen<V: View<Error: std::fmt::Debug>>(view: &V, family: Family, key: &[u8], value: &[u8]) -> bool {
    let mut parts = Parts(&key[4..]);
    let own = |parts: &mut Parts<'_>| {
        let tenant = parts.tenant().unwrap();
        OperationKey { tenant, hash: parts.bytes().unwrap() }
    };
    match family {
        Family::Terminal => {
            let record = record::decode_operation(value).unwrap();
            view.operation(&record.key()).unwrap().is_some_and(|seen| seen.id == record.id)
        }
        Family::Execution => {
            let (tenant, slot) = (parts.tenant().unwrap(), Slot(u16::from_be_bytes(parts.bytes().unwrap())));
            view.execution(tenant, &ExecutionId { slot, random: parts.bytes().unwrap() }).unwrap().is_some()
        }
        Family::Grant => {
            let (operation, birth) = (own(&mut parts), parts.birth().unwrap());
            view.grant(&operation, birth, &ClaimId(parts.bytes().unwrap())).unwrap().is_some()
        }
        Family::Body => {
            let operation = own(&mut parts);
            view.body(&operation, parts.birth().unwrap()).unwrap().is_some()
        }
        Family::Evidence => {
            let operation = own(&mut parts);
            let birth = parts.birth();
            view.operation(&operation).unwrap().is_some_and(|record| Some(record.id.birth) == birth)
        }
        Family::Authority => is_authority_seen(view, parts),
        _ => panic!("{family:?} is not judged here"),
    }
}

fn is_authority_seen<V: View<Error: std::fmt::Debug>>(view: &V, mut parts: Parts<'_>) -> bool {
    let ([kind], tenant) = (parts.bytes().unwrap(), parts.tenant().unwrap());
    match kind {
        keys::CAPABILITY => view.capability(tenant, &parts.capability().unwrap()).unwrap().is_some(),
        keys::DECISION => view.decision(&DecisionKey { tenant, hash: parts.bytes().unwrap() }).unwrap().is_some(),
        keys::USE => {
            let id = parts.capability().unwrap();
            view.used(tenant, &id, &OperationKey { tenant, hash: parts.bytes().unwrap() }).unwrap().is_some()
        }
        keys::INBOX => view.inbox(&InboxKey { tenant, hash: parts.bytes().unwrap() }).unwrap().is_some(),
        keys::REFUSAL => {
            let subject = parts.subject().unwrap();
            view.refusal(&RefusalKey { tenant, subject, hash: parts.bytes().unwrap() }).unwrap().is_some()
        }
        _ => panic!("no such kind"),
    }
}

/// Runs `acts` on a store that never compacts, and on one at `compacted` that does after every act.
fn run(acts: &[Act], compacted: &Place) {
    let place = Place::both().into_iter().nth(1).unwrap();
    let (mut plain, mut other) = (Driver::begun(&place), Driver::begun(compacted));
    let mut issued = Vec::new();
    for (n, act) in (0u64..).zip(acts) {
        let ms = if let Act::Pass(ms) = act { *ms } else { 50 };
        plain.pass(ms);
        other.pass(ms);
        let command = envelope(&plain.store, *act, n, &mut issued);
        let outcomes = [&mut plain, &mut other].map(|driver| driver.one(command.clone()));
        assert_eq!(outcomes[0], outcomes[1], "{act:?} as {command:?}");
        match act {
            Act::Flush => other.store.flush().unwrap(),
            Act::Crash => {
                other = crash(other, compacted);
            }
            _ => {}
        }
        // Whatever was flushed so far is known; what was not, is not.
        let pass = other.store.disk().compact(&Family::RETAINED, &mut |_| ControlFlow::Continue(()));
        assert!(pass.unwrap());
        assert_eq!(everything(&plain.store), everything(&other.store), "after {act:?}");
        assert_eq!(answers(&plain.store), answers(&other.store), "after {act:?}");
    }
    judge_agrees(&plain.store);
    judge_agrees(&other.store);
    // The two differ in what is physically there, or nothing was tested; over all cases they do.
    other.compact();
    assert_eq!(everything(&plain.store), everything(&other.store));
    assert_eq!(answers(&plain.store), answers(&other.store));
}

/// What a crash leaves, with the log applied again. A disk is closed instead, which flushes.
fn crash(mut driver: Driver, place: &Place) -> Driver {
    let log = std::mem::take(&mut driver.log);
    if let Place::Memory(platter, _) = place {
        platter.crash();
    }
    drop(driver);
    let mut opened = Driver::on(place.open());
    opened.replay(&log);
    opened.log = log;
    opened
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn compaction_changes_no_answer(acts in vec(act(), 1..80)) {
        run(&acts, &Place::both().into_iter().nth(1).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn compaction_by_rocksdb_changes_no_answer(acts in vec(act(), 20..60)) {
        run(&acts, &Place::disk());
    }
}

#[test]
fn the_random_acts_do_let_rows_go() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut gone = 0;
    for _ in 0..20 {
        let acts = vec(act(), 60..80).new_tree(&mut runner).unwrap().current();
        let mut issued = Vec::new();
        let mut driver = Driver::begun(&Place::both().into_iter().nth(1).unwrap());
        for (n, act) in (0u64..).zip(&acts) {
            driver.pass(if let Act::Pass(ms) = act { *ms } else { 50 });
            driver.one(envelope(&driver.store, *act, n, &mut issued));
        }
        driver.compact();
        gone += driver.store.removed().iter().filter(|removed| removed.rows > 0).count();
    }
    assert!(gone > 40, "in twenty histories only {gone} families lost rows");
}
