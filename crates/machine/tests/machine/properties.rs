//! Random histories: the rules against the independent model, answer by answer and sight by sight, and the laws that hold in all.
//! A failure prints the shortest history that proptest finds, and its seed.

mod commands;
mod laws;
mod steps;

use std::cell::Cell;

use hapax_machine::clock::Stamp;
use hapax_machine::command::{AdvanceWall, Command, EntryHead, Envelope};
use hapax_machine::ids::{CapabilityId, ExecutionId, LeaseTime, Slot, WallTime};
use hapax_machine::read;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use commands::{asker, claim_id, command, credential, named_scope, row, stage, start, the_namespace, translated};
use laws::Laws;
use steps::{Attempt, Epoch, Expects, Floor, Made, Mending, Step, What, histories, policies};

use crate::memory::{Memory, at_any_time, bytes16, entry};
use crate::model::{
    Ask, Binding, Counts, Issue, Mend, Model, Named, Policy, Request, SKEW_MS, Said, Sight, Stage, Wanted, Why,
};

/// Keys that histories are about.
const KEYS: u8 = 3;
/// Scopes of authority.
const SCOPES: u8 = 2;

/// How many histories: `PROPTEST_CASES` asks for more of them.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|given| given.parse().ok()).unwrap_or(1_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_agree_with_the_model(history in histories(), policy in policies(), seed: u64) {
        let mut run = Run::new(policy, seed);
        for (step, joined, late) in history {
            run.happen(step, joined, late)?;
        }
        run.flush()?;
        run.laws.replay(&start(policy), &run.memory)?;
    }
}

/// A generator that never reaches the rules' corners proves nothing: every answer and refusal turns up.
#[test]
fn random_histories_reach_every_answer() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (seen, definite, reclaimed) = (Cell::new(0u64), Cell::new(0), Cell::new(0));
    for seed in 0..1_000 {
        let policy = policies().new_tree(&mut runner).expect("a policy").current();
        let history = histories().new_tree(&mut runner).expect("a history").current();
        let mut run = Run::new(policy, seed);
        for (step, joined, late) in history {
            run.happen(step, joined, late).expect("the rules agree with the model");
        }
        run.flush().expect("the rules agree with the model");
        run.answers.iter().for_each(|said| seen.set(seen.get() | 1 << kind(said)));
        definite.set(definite.get() + run.laws.definite);
        reclaimed.set(reclaimed.get() + run.laws.reclaimed);
    }
    let missing: Vec<u32> = (0..KINDS).filter(|kind| seen.get() >> kind & 1 == 0).collect();
    assert!(missing.is_empty(), "kinds of answers that were never given: {missing:?}");
    eprintln!("{} definite answers, {} rows reclaimed", definite.get(), reclaimed.get());
    assert!(definite.get() > 30 && reclaimed.get() > 100, "the laws had something to look at");
}

const KINDS: u32 = 47;

fn kind(said: &Said) -> u32 {
    match said {
        Said::Claimed { .. } => 0,
        Said::InProgress { .. } => 1,
        Said::Replayed { .. } => 2,
        Said::Renewed { .. } => 3,
        Said::Accepted(_) => 4,
        Said::Lapsed(true) => 5,
        Said::Lapsed(false) => 6,
        Said::TooLate => 7,
        Said::Duplicate(_) => 8,
        Said::Registered { created: true, .. } => 9,
        Said::Registered { created: false, .. } => 10,
        Said::Capability { revoked: true, .. } => 11,
        Said::Capability { created: true, .. } => 12,
        Said::Capability { .. } => 13,
        Said::Register(_) => 14,
        Said::Reconciling(items) if items.is_empty() => 15,
        Said::Reconciling(_) => 16,
        Said::Floors { compact: 0, forget: 0 } | Said::Counted => 17,
        Said::Floors { .. } => 18,
        Said::Written => 46,
        Said::Refused(why) => 19 + refused(*why),
    }
}

fn refused(why: Why) -> u32 {
    match why {
        Why::NotFound => 0,
        Why::Reused => 1,
        Why::Lost => 2,
        Why::Stale => 3,
        Why::Digest => 4,
        Why::Quarantined => 5,
        Why::Executing => 6,
        Why::Unknown => 7,
        Why::Attempt(_) => 8,
        Why::Conflict => 9,
        Why::Delivery => 10,
        Why::Consumed => 11,
        Why::Revoked => 12,
        Why::Expired => 13,
        Why::Invalid => 14,
        Why::Binding => 15,
        Why::Required => 16,
        Why::EpochStale => 17,
        Why::EpochUnknown => 18,
        Why::Stands(_) => 19,
        Why::Completed | Why::Failed => 20,
        Why::State => 21,
        Why::Elapsed => 22,
        Why::CreationTime => 23,
        Why::Decision => 24,
        Why::Quota | Why::Fixed => 25,
        Why::NotYours => 26,
    }
}

/// The rules and the model side by side.
struct Run {
    memory: Memory,
    model: Model,
    laws: Laws,
    term: u64,
    lead: u64,
    /// Where the leader's wall clock stands.
    wall: u64,
    index: u64,
    calls: u64,
    last: Option<(u8, Ask)>,
    batch: Vec<(Envelope, Said)>,
    answers: Vec<Said>,
}

impl Run {
    fn new(policy: Policy, seed: u64) -> Self {
        let memory = start(policy);
        Self {
            laws: Laws::new(&memory, seed),
            memory,
            model: Model::new(policy),
            term: 1,
            lead: 0,
            wall: 0,
            index: 1,
            calls: 0,
            last: None,
            batch: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn happen(&mut self, step: Step, joined: bool, late: bool) -> Result<(), TestCaseError> {
        if !joined || !matches!(step, Step::Ask { .. } | Step::Again) {
            self.flush()?;
        }
        match step {
            Step::Pass { ms, wall } => {
                self.lead += ms;
                self.wall += if wall { ms } else { 0 };
            }
            Step::Elect => (self.term, self.lead) = (self.term + 1, 0),
            Step::OldStamp => return self.entry(Vec::new(), self.lead / 2),
            Step::Jump(ms) => return self.jump(ms),
            Step::Sweep => return self.sweep(),
            Step::Retain => {
                self.jump(130_000)?;
                self.ask(0, Ask::Floors { compact: u64::MAX, forget: u64::MAX }, false)?;
                return self.flush();
            }
            step => {
                if self.batch.is_empty() {
                    self.model.stamp(self.term, self.lead, self.wall);
                }
                let asked = match step {
                    Step::Ask { who, what } => Some((who, self.asked(who, what))),
                    _ => self.again(),
                };
                let Some((who, ask)) = asked else { return Ok(()) };
                return self.ask(who, ask, late && self.model.now() > 0);
            }
        }
        self.entry(Vec::new(), self.lead)
    }

    /// Adds to the entry that gathers. A late command must leave the model alone.
    fn ask(&mut self, who: u8, ask: Ask, late: bool) -> Result<(), TestCaseError> {
        let not_after = LeaseTime(if late { self.model.now() - 1 } else { self.model.now() });
        // What is counted is named by rows that are there, and a policy by the version that is: they begin an entry.
        if matches!(ask, Ask::Count { .. } | Ask::Policy(_)) {
            self.flush()?;
            self.model.stamp(self.term, self.lead, self.wall);
        }
        let command = command(&self.memory, who, &ask);
        let said = if late { Said::TooLate } else { self.model.answer(asker(who), &ask) };
        self.last = Some((who, ask));
        self.batch.push((Envelope { not_after, command }, said));
        Ok(())
    }

    /// Applies what has gathered as one entry.
    fn flush(&mut self) -> Result<(), TestCaseError> {
        let batch = core::mem::take(&mut self.batch);
        if batch.is_empty() { Ok(()) } else { self.entry(batch, self.lead) }
    }

    fn entry(&mut self, batch: Vec<(Envelope, Said)>, lead: u64) -> Result<(), TestCaseError> {
        if batch.is_empty() {
            self.model.stamp(self.term, lead, self.wall);
        }
        let (commands, expected): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        self.index += 1;
        let head = entry(self.index, self.term, Stamp { wall_ms: self.wall, lead_ms: lead });
        self.apply(&head, &commands, expected)
    }

    fn apply(&mut self, head: &EntryHead, commands: &[Envelope], expected: Vec<Said>) -> Result<(), TestCaseError> {
        self.laws.before(&self.memory, head, commands)?;
        let (changes, outcomes) = self.memory.apply(head, commands);
        for ((outcome, expected), envelope) in outcomes.iter().zip(&expected).zip(commands) {
            prop_assert_eq!(&translated(outcome), expected, "answer to {:?}", envelope);
        }
        self.answers.extend(expected);
        self.laws.after(&self.memory, head, commands, &changes, &outcomes)?;
        self.same_sight()
    }

    fn jump(&mut self, ms: u64) -> Result<(), TestCaseError> {
        self.model.stamp(self.term, self.lead, self.wall);
        let target = self.model.wall() + ms;
        let command = Command::AdvanceWall(AdvanceWall { target: WallTime(target), by_operator: false });
        self.index += 1;
        let head = entry(self.index, self.term, Stamp { wall_ms: self.wall, lead_ms: self.lead });
        self.model.move_wall(target);
        self.wall = self.wall.max(target);
        self.apply(&head, &[at_any_time(command)], Vec::new())
    }

    fn sweep(&mut self) -> Result<(), TestCaseError> {
        self.model.stamp(self.term, self.lead, self.wall);
        for key in 0..KEYS {
            self.ask(0, Ask::Settle { key }, false)?;
        }
        self.flush()
    }

    /// Readers see on both sides the same, of everything that there is.
    fn same_sight(&self) -> Result<(), TestCaseError> {
        let (memory, model) = (&self.memory, &self.model);
        let clocks = memory.head.clocks;
        prop_assert_eq!((clocks.lease_time.0, clocks.wall.0), (model.now(), model.wall()));
        for key in 0..KEYS {
            prop_assert_eq!(sight(memory, key), model.sight(key), "sight of {}", key);
        }
        prop_assert_eq!(capabilities(memory), model.capabilities());
        for scope in 0..SCOPES {
            let value = read::register(memory, &credential(0), &named_scope(scope)).expect("a map never fails");
            prop_assert_eq!(value.0, model.register_value(true, scope));
        }
        let status = memory.statuses.get(&(credential(0).tenant, the_namespace())).copied().unwrap_or_default();
        let counts = Counts {
            open: status.open,
            unknown: status.unknown,
            compact: status.floors.compact_before.0,
            forget: status.floors.forget_before.0,
            pace: (status.pace.since.0, status.pace.granted),
        };
        prop_assert_eq!(counts, model.counts());
        Ok(())
    }

    fn again(&mut self) -> Option<(u8, Ask)> {
        let (who, mut ask) = self.last.clone()?;
        // Whoever proposes draws an id, for a retry as well.
        match &mut ask {
            Ask::Claim { id, .. } => *id = self.drawn(),
            Ask::Issue(wanted) => wanted.id = self.drawn_capability(),
            _ => {}
        }
        Some((who, ask))
    }

    /// What is asked, with its references resolved.
    fn asked(&mut self, who: u8, what: What) -> Ask {
        match what {
            What::Register { key, digest, resource, made } => {
                Ask::Register { key, digest, resource, made: self.made(key, made) }
            }
            What::Claim(claim) => self.claim(who, claim),
            What::Renew { execution, epoch, lease } => {
                let (id, epoch) = self.execution(execution, epoch);
                Ask::Renew { id, epoch, lease_ms: lease * 100 }
            }
            What::Report { execution, epoch, said, words } => {
                let (id, epoch) = self.execution(execution, epoch);
                Ask::Report { id, epoch, said, words }
            }
            What::Evidence { execution, claim, fact, words } => {
                let (id, _) = self.execution(execution, Epoch::Current);
                Ask::Evidence { id, claim: claim_id(claim), fact, words }
            }
            What::Resolve { execution, epoch, fact, words } => {
                let (id, epoch) = self.execution(execution, epoch);
                Ask::Resolve { id, epoch, fact, words }
            }
            What::Lapse { key, epoch, deadline_off } => {
                let (stored, deadline) = self.model.stored(key).unwrap_or_default();
                Ask::Lapse { key, epoch: epoch_of(epoch, stored), deadline: deadline + deadline_off }
            }
            What::Settle { key } => Ask::Settle { key },
            What::Revoke { capability } => Ask::Revoke { capability: self.capability(capability) },
            What::Policy(policy) => Ask::Policy(policy),
            What::Count { capability } => Ask::Count { capability: self.capability(capability), times: 3 },
            What::Bump { scope, value } => {
                Ask::Bump { scope, expected: epoch_of(value, self.model.register_value(true, scope)) }
            }
            what => self.asked_of_deciders(what),
        }
    }

    fn asked_of_deciders(&mut self, what: What) -> Ask {
        let wall = self.model.wall();
        match what {
            What::Issue { key, decision, attempt, expires, bound, effect } => {
                let due = self.model.due(key);
                let attempt = match attempt {
                    Attempt::Due => due,
                    Attempt::Next => due + 1,
                    Attempt::First => 1,
                };
                let goes_for = Wanted::Attempt { named: self.named(key), attempt, effect };
                let (epoch, id) = (bound.map(|bound| self.binding(bound)), self.drawn_capability());
                Ask::Issue(Issue { decision, goes_for, expires: wall + expires, epoch, id })
            }
            What::IssueBounded { resource, decision, uses, expires, bound } => {
                let goes_for = Wanted::Resource { resource, uses };
                let (epoch, id) = (bound.map(|bound| self.binding(bound)), self.drawn_capability());
                Ask::Issue(Issue { decision, goes_for, expires: wall + expires, epoch, id })
            }
            What::Reconcile { owner, lease, limit, keys, epoch } => {
                let seen = |key: &u8| {
                    let (stored, _) = self.model.stored(*key).unwrap_or_default();
                    (self.named(*key), epoch_of(epoch, stored))
                };
                Ask::Reconcile { owner, lease_ms: lease * 100, limit, named: keys.iter().map(seen).collect() }
            }
            What::Escalate { execution, epoch, on } => {
                let (id, epoch) = self.execution(execution, epoch);
                Ask::Escalate { id, epoch, on }
            }
            What::Fence { execution, epoch } => {
                let (id, epoch) = self.execution(execution, epoch);
                Ask::Fence { id, epoch }
            }
            What::Repair { key, mend, expects } => {
                let read = self.model.sight(key).map_or(Stage::Unknown, |sight| sight.stage);
                let expected = match (expects, read) {
                    (Expects::Right, stage) => stage,
                    (Expects::Wrong, Stage::Unknown) => Stage::Executing,
                    (Expects::Wrong, _) => Stage::Unknown,
                };
                let mend = match mend {
                    Mending::Quarantine => Mend::Quarantine,
                    Mending::Release => Mend::Release,
                    Mending::Close => Mend::Close,
                    Mending::Supersede(by) => Mend::Supersede(self.named(by)),
                };
                Ask::Repair { named: self.named(key), mend, expected }
            }
            What::Floors { compact, forget } => {
                let asked = |floor| match floor {
                    Floor::Unasked => 0,
                    Floor::AsFarAsAllowed => u64::MAX,
                    Floor::Wall => wall,
                };
                Ask::Floors { compact: asked(compact), forget: asked(forget) }
            }
            other => unreachable!("{other:?} is resolved with its own kind"),
        }
    }

    fn claim(&mut self, who: u8, claim: steps::Claim) -> Ask {
        let request = Request {
            client: asker(who).client,
            digest: claim.digest,
            lease_ms: claim.lease * 100,
            attempt: claim.attempt,
            capability: claim.capability.map(|number| self.capability(number)),
            message: claim.message,
            epoch: claim.bound.map(|bound| self.binding(bound)),
            resource: claim.resource,
            made: self.made(claim.key, claim.made),
        };
        Ask::Claim { key: claim.key, claim: claim_id(claim.claim), request, id: self.drawn() }
    }

    fn made(&self, key: u8, made: Made) -> Option<u64> {
        let wall = self.model.wall();
        match made {
            Made::AsBefore => self.model.made(key).unwrap_or(Some(wall)),
            Made::Unsaid => None,
            Made::Now => Some(wall),
            Made::Zero => Some(0),
            Made::TooLate => Some(wall + SKEW_MS + 1),
            Made::AtTheFloor => Some(self.model.floors().1 + SKEW_MS),
        }
    }

    fn binding(&self, bound: steps::Bound) -> Binding {
        let value = epoch_of(bound.value, self.model.register_value(true, bound.scope));
        Binding { scope: bound.scope, value }
    }

    fn drawn(&mut self) -> ExecutionId {
        self.calls += 1;
        ExecutionId { slot: Slot(7), random: bytes16(self.calls) }
    }

    fn drawn_capability(&mut self) -> CapabilityId {
        self.calls += 1;
        CapabilityId { slot: Slot(7), random: bytes16(self.calls) }
    }

    /// The n-th newest execution, or an id that nobody drew, and the epoch that is meant.
    fn execution(&self, number: usize, epoch: Epoch) -> (ExecutionId, u64) {
        let nobodys = ExecutionId { slot: Slot(7), random: [0xff; 16] };
        let id = self.model.executions().get(number).copied().unwrap_or(nobodys);
        (id, epoch_of(epoch, self.model.epoch_around(&id).unwrap_or_default()))
    }

    fn capability(&self, number: usize) -> CapabilityId {
        let nobodys = CapabilityId { slot: Slot(7), random: [0xff; 16] };
        self.model.issued().get(number).copied().unwrap_or(nobodys)
    }

    fn named(&self, key: u8) -> Named {
        self.model.named(key).unwrap_or(Named { key, birth: 0 })
    }
}

fn sight(memory: &Memory, key: u8) -> Option<Sight> {
    let reading = read::by_key(memory, &credential(0), &row(key)).expect("a map never fails")?;
    let execution = reading.record.execution.as_ref();
    let outcome = reading.record.outcome();
    Some(Sight {
        birth: reading.record.id.birth.0,
        stage: stage(reading.state),
        attempt: reading.record.attempt().0,
        epoch: reading.lease_epoch.map(|epoch| epoch.0),
        remaining_ms: reading.lease_remaining_ms,
        quarantined: reading.record.quarantined,
        evidence: reading.record.evidence as usize,
        words: outcome.map(|outcome| commands::words_of(&outcome, reading.result.as_deref())),
        reconciler: reading.reconciler.map(|(held, left)| (held.owner.parse().expect("our own name"), left)),
        escalated: execution.is_some_and(|execution| execution.escalated_at.is_some()),
        refusals: reading.record.refusals,
    })
}

/// Every capability that a reader is shown, as the model tells them.
fn capabilities(memory: &Memory) -> Vec<(CapabilityId, u32, bool, u32, u32)> {
    let shown = |(_, id): &(_, CapabilityId)| {
        let record = read::capability(memory, &credential(0), id).expect("a map never fails")?;
        let kept =
            memory.refusals.iter().filter(|(key, _)| key.subject == hapax_machine::refusal::Subject::Capability(*id));
        let times = kept.map(|(_, row)| row.times).sum();
        Some((*id, record.uses_left(), record.revoked.is_some(), record.refusals, times))
    };
    let mut all: Vec<_> = memory.capabilities.keys().filter_map(shown).collect();
    all.sort();
    all
}

fn epoch_of(epoch: Epoch, stands: u64) -> u64 {
    match epoch {
        Epoch::Current => stands,
        Epoch::Before => stands.saturating_sub(1),
        Epoch::After => stands + 1,
        Epoch::First => 2,
    }
}
