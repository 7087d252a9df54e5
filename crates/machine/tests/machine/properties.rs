//! Random histories: the rules against the independent model, answer by answer and sight by sight.
//! A failure prints the shortest history that proptest finds, and its seed.

use std::cell::Cell;

use hapax_machine::apply::apply_entry;
use hapax_machine::clock::Stamp;
use hapax_machine::command::{
    Caller, Claim, Command, EntryHead, Envelope, Evidence, Lapse, Renew, Report, Resolve, ResultData,
};
use hapax_machine::ids::{
    Attempt, ClaimId, Digest, ExecutionId, InternalKey, LeaseEpoch, LeaseTime, NamespaceName, OperationKey, Slot,
    effect_key,
};
use hapax_machine::namespace::{Attempts, OnLapse};
use hapax_machine::operation::{Definite, OutcomeRecord, State};
use hapax_machine::outcome::{Answer, Outcome, Refusal};
use hapax_machine::read;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use crate::memory::{Memory, Newest as _, bytes16, caller, entry, namespace};
use crate::model::{Asker, Fact, Model, Policy, Request, Said, Sight, Stage, Why, Words};

/// One thing that happens; references are resolved against the model when it does.
#[derive(Debug, Clone)]
enum Step {
    Claim {
        who: u8,
        key: u8,
        claim: u8,
        digest: u8,
        lease: u64,
        attempt: Option<u32>,
    },
    Renew {
        who: u8,
        execution: usize,
        epoch: Epoch,
        lease: u64,
    },
    Report {
        who: u8,
        execution: usize,
        epoch: Epoch,
        said: Option<Fact>,
        words: Words,
    },
    Evidence {
        who: u8,
        execution: usize,
        claim: u8,
        fact: Fact,
        words: Words,
    },
    Resolve {
        who: u8,
        execution: usize,
        epoch: Epoch,
        fact: Fact,
        words: Words,
    },
    Lapse {
        key: u8,
        epoch: Epoch,
        deadline_off: u64,
    },
    /// The last thing that was asked, again.
    Again,
    Pass(u64),
    Elect,
    OldStamp,
}

/// Which epoch is named.
#[derive(Debug, Clone, Copy)]
enum Epoch {
    Current,
    Before,
    After,
    First,
}

/// What is asked by a step, by name.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Claim { who: u8, key: u8, claim: u8, request: Request, id: ExecutionId },
    Renew { who: u8, id: ExecutionId, epoch: u64, lease_ms: u64 },
    Report { who: u8, id: ExecutionId, epoch: u64, said: Option<Fact>, words: Words },
    Evidence { who: u8, id: ExecutionId, claim: u8, fact: Fact, words: Words },
    Resolve { who: u8, id: ExecutionId, epoch: u64, fact: Fact, words: Words },
    Lapse { key: u8, epoch: u64, deadline: u64 },
}

/// A step, whether it shares an entry with the one before, and whether it comes after its time.
type Happening = (Step, bool, bool);

fn facts() -> impl Strategy<Value = Fact> {
    prop_oneof![Just(Fact::Completed), Just(Fact::Failed), Just(Fact::NotApplied), Just(Fact::NotApplied)]
}

fn epochs() -> impl Strategy<Value = Epoch> {
    prop_oneof![6 => Just(Epoch::Current), 1 => Just(Epoch::Before), 1 => Just(Epoch::After), 1 => Just(Epoch::First)]
}

fn words() -> impl Strategy<Value = Words> {
    let one = || prop_oneof![3 => Just(None), 1 => Just(Some(1u8)), 1 => Just(Some(2u8))];
    (one(), one()).prop_map(|(external, result)| Words { external, result })
}

/// Clients 0–2 reach the namespace; 3 is of another tenant; 4 is client 0 with a credential for another namespace.
fn who() -> impl Strategy<Value = u8> {
    prop_oneof![12 => 0..3u8, 1 => 3..5u8]
}

fn steps() -> impl Strategy<Value = Step> {
    let claim = || {
        let attempt = prop_oneof![5 => Just(None), 3 => (1..4u32).prop_map(Some)];
        let digest = prop_oneof![9 => Just(0u8), 1 => Just(1u8)];
        (who(), 0..2u8, 0..6u8, digest, 1..3u64, attempt).prop_map(|(who, key, claim, digest, lease, attempt)| {
            Step::Claim { who, key, claim, digest, lease, attempt }
        })
    };
    let execution = || prop_oneof![4 => Just(0usize), 2 => Just(1usize), 1 => 2..6usize];
    prop_oneof![
        8 => claim(),
        2 => (who(), execution(), epochs(), 1..4u64)
            .prop_map(|(who, execution, epoch, lease)| Step::Renew { who, execution, epoch, lease }),
        5 => (who(), execution(), epochs(), proptest::option::weighted(0.7, facts()), words())
            .prop_map(|(who, execution, epoch, said, words)| Step::Report { who, execution, epoch, said, words }),
        4 => (who(), execution(), 0..6u8, facts(), words())
            .prop_map(|(who, execution, claim, fact, words)| Step::Evidence { who, execution, claim, fact, words }),
        3 => (who(), execution(), epochs(), facts(), words())
            .prop_map(|(who, execution, epoch, fact, words)| Step::Resolve { who, execution, epoch, fact, words }),
        1 => (0..2u8, epochs(), prop_oneof![3 => Just(0u64), 1 => Just(1u64)])
            .prop_map(|(key, epoch, deadline_off)| Step::Lapse { key, epoch, deadline_off }),
        4 => Just(Step::Again),
        3 => (1..250u64).prop_map(Step::Pass),
        1 => Just(Step::Elect),
        1 => Just(Step::OldStamp),
    ]
}

fn histories() -> impl Strategy<Value = Vec<Happening>> {
    let happening = (steps(), proptest::bool::weighted(0.3), proptest::bool::weighted(0.06));
    proptest::collection::vec(happening, 1..48)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_agree_with_the_model(history in histories(), takeover: bool, explicit: bool) {
        let mut run = Run::new(Policy { takeover, explicit });
        for (step, joined, late) in history {
            run.happen(step, joined, late)?;
        }
        run.flush()?;
        run.replay()?;
    }
}

/// A generator that never reaches the rules' corners proves nothing: every answer and refusal turns up.
#[test]
fn random_histories_reach_every_answer() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let seen = Cell::new(0u32);
    for number in 0..400u32 {
        let history = histories().new_tree(&mut runner).expect("a history").current();
        let mut run = Run::new(Policy { takeover: number % 2 == 0, explicit: number % 4 < 2 });
        for (step, joined, late) in history {
            run.happen(step, joined, late).expect("the rules agree with the model");
        }
        run.flush().expect("the rules agree with the model");
        run.answers.iter().for_each(|said| seen.set(seen.get() | 1 << kind(said)));
    }
    assert_eq!(seen.get(), (1 << KINDS) - 1, "every kind of answer was given: {:b}", seen.get());
}

const KINDS: u32 = 18;

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
        Said::Refused(why) => match why {
            Why::NotFound => 8,
            Why::Reused => 9,
            Why::Lost => 10,
            Why::Stale => 11,
            Why::Digest => 12,
            Why::Quarantined => 13,
            Why::Executing => 14,
            Why::Unknown => 15,
            Why::Attempt(_) => 16,
            Why::Conflict => 17,
        },
    }
}

/// The rules and the model side by side.
struct Run {
    memory: Memory,
    model: Model,
    policy: Policy,
    term: u64,
    lead: u64,
    index: u64,
    calls: u64,
    last: Option<Asked>,
    batch: Vec<(Envelope, Said)>,
    log: Vec<(EntryHead, Vec<Envelope>)>,
    answers: Vec<Said>,
}

impl Run {
    fn new(policy: Policy) -> Self {
        Self {
            memory: start(policy),
            model: Model::new(policy),
            policy,
            term: 1,
            lead: 0,
            index: 1,
            calls: 0,
            last: None,
            batch: Vec::new(),
            log: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn happen(&mut self, step: Step, joined: bool, late: bool) -> Result<(), TestCaseError> {
        let is_time = matches!(step, Step::Pass(_) | Step::Elect | Step::OldStamp);
        if !joined || is_time {
            self.flush()?;
        }
        match step {
            Step::Pass(ms) => self.lead += ms,
            Step::Elect => (self.term, self.lead) = (self.term + 1, 0),
            Step::OldStamp => return self.entry(Vec::new(), self.lead / 2),
            step => {
                if self.batch.is_empty() {
                    self.model.stamp(self.term, self.lead);
                }
                let late = late && self.model.now() > 0;
                let not_after = LeaseTime(if late { self.model.now() - 1 } else { self.model.now() });
                let Some(asked) = self.asked(step) else { return Ok(()) };
                self.last = Some(asked);
                let (command, said) = self.ask(asked, late);
                self.batch.push((Envelope { not_after, command }, said));
                return Ok(());
            }
        }
        self.entry(Vec::new(), self.lead)
    }

    /// Applies what has gathered as one entry.
    fn flush(&mut self) -> Result<(), TestCaseError> {
        let batch = core::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        self.entry(batch, self.lead)
    }

    fn entry(&mut self, batch: Vec<(Envelope, Said)>, lead: u64) -> Result<(), TestCaseError> {
        if batch.is_empty() {
            self.model.stamp(self.term, lead);
        }
        let (commands, expected): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        self.index += 1;
        let head = entry(self.index, self.term, Stamp { wall_ms: 0, lead_ms: lead });
        let (_, outcomes) = self.memory.apply(&head, &commands);
        for ((outcome, expected), envelope) in outcomes.iter().zip(&expected).zip(&commands) {
            prop_assert_eq!(&translated(outcome), expected, "answer to {:?}", envelope);
        }
        self.log.push((head, commands));
        self.answers.extend(expected);
        prop_assert_eq!(self.memory.head.clocks.lease_time.0, self.model.now());
        (0..2).try_for_each(|key| {
            prop_assert_eq!(self.sight(key), self.model.sight(key), "sight of {}", key);
            Ok(())
        })
    }

    /// A second replica fed the same log has the same state to the last byte, hash included.
    fn replay(&self) -> Result<(), TestCaseError> {
        let mut second = start(self.policy);
        for (head, commands) in &self.log {
            let (changes, _) = apply_entry(&second, head, commands).expect("a map never fails");
            second.commit(changes);
        }
        prop_assert_eq!(&second, &self.memory);
        Ok(())
    }

    fn ask(&mut self, asked: Asked, late: bool) -> (Command, Said) {
        // A late command must leave the model alone.
        let said = if late { Said::TooLate } else { self.model_says(asked) };
        (command(asked), said)
    }

    /// A step with its references resolved; `None` for the same again where nothing was asked yet.
    fn asked(&mut self, step: Step) -> Option<Asked> {
        Some(match step {
            Step::Claim { who, key, claim, digest, lease, attempt } => {
                let request = Request { client: asker(who).client, digest, lease_ms: lease * 100, attempt };
                Asked::Claim { who, key, claim, request, id: self.drawn() }
            }
            Step::Renew { who, execution, epoch, lease } => {
                let (id, epoch) = self.named(execution, epoch);
                Asked::Renew { who, id, epoch, lease_ms: lease * 100 }
            }
            Step::Report { who, execution, epoch, said, words } => {
                let (id, epoch) = self.named(execution, epoch);
                Asked::Report { who, id, epoch, said, words }
            }
            Step::Evidence { who, execution, claim, fact, words } => {
                let (id, _) = self.named(execution, Epoch::Current);
                Asked::Evidence { who, id, claim, fact, words }
            }
            Step::Resolve { who, execution, epoch, fact, words } => {
                let (id, epoch) = self.named(execution, epoch);
                Asked::Resolve { who, id, epoch, fact, words }
            }
            Step::Lapse { key, epoch, deadline_off } => {
                let (stored, deadline) = self.model.stored(key).unwrap_or_default();
                Asked::Lapse { key, epoch: epoch_of(epoch, stored), deadline: deadline + deadline_off }
            }
            Step::Again => match self.last? {
                // Whoever proposes a claim draws an id for it, for a retry as well.
                Asked::Claim { who, key, claim, request, .. } => {
                    Asked::Claim { who, key, claim, request, id: self.drawn() }
                }
                asked => asked,
            },
            Step::Pass(_) | Step::Elect | Step::OldStamp => unreachable!("time is not a command"),
        })
    }

    fn drawn(&mut self) -> ExecutionId {
        self.calls += 1;
        ExecutionId { slot: Slot(7), random: bytes16(self.calls) }
    }

    fn model_says(&mut self, asked: Asked) -> Said {
        let model = &mut self.model;
        match asked {
            Asked::Claim { who, key, claim, request, id } => {
                model.claim(asker(who), key, claim_id(claim), request, id)
            }
            Asked::Renew { who, id, epoch, lease_ms } => model.renew(asker(who), id, epoch, lease_ms),
            Asked::Report { who, id, epoch, said, words } => model.report(asker(who), id, epoch, said, words),
            Asked::Evidence { who, id, claim, fact, words } => {
                model.evidence(asker(who), id, claim_id(claim), fact, words)
            }
            Asked::Resolve { who, id, epoch, fact, words } => model.resolve(asker(who), id, epoch, fact, words),
            Asked::Lapse { key, epoch, deadline } => model.lapse(key, epoch, deadline),
        }
    }

    /// The n-th newest execution, or an id that nobody drew, and the epoch that is meant.
    fn named(&self, execution: usize, epoch: Epoch) -> (ExecutionId, u64) {
        let nobodys = ExecutionId { slot: Slot(7), random: [0xff; 16] };
        let id = self.model.executions().get(execution).copied().unwrap_or(nobodys);
        (id, epoch_of(epoch, self.model.epoch_around(&id).unwrap_or_default()))
    }

    fn sight(&self, key: u8) -> Option<Sight> {
        let row = OperationKey::new(&credential(0).tenant, &internal_key(key));
        let reading = read::by_key(&self.memory, &credential(0), &row).expect("a map never fails")?;
        let outcome = reading.record.newest().outcome.as_ref();
        Some(Sight {
            stage: stage(reading.state),
            attempt: reading.record.newest().attempt.0,
            epoch: reading.lease_epoch.map(|epoch| epoch.0),
            remaining_ms: reading.lease_remaining_ms,
            quarantined: reading.record.quarantined,
            evidence: reading.record.evidence as usize,
            words: outcome.map(|outcome| words_of(outcome, reading.result.as_deref())),
        })
    }
}

fn start(policy: Policy) -> Memory {
    let on_lapse = if policy.takeover { OnLapse::Takeover } else { OnLapse::Unknown };
    let attempts = if policy.explicit { Attempts::Explicit } else { Attempts::Automatic };
    Memory::with(vec![namespace("t", "n", on_lapse, attempts)])
}

fn credential(who: u8) -> Caller {
    match who {
        3 => caller("another", "c0"),
        4 => Caller { namespaces: vec![NamespaceName::new("another")], ..caller("t", "c0") },
        client => caller("t", &format!("c{client}")),
    }
}

fn asker(who: u8) -> Asker {
    Asker { client: if who < 3 { who } else { 0 }, reaches: who < 3 }
}

fn command(asked: Asked) -> Command {
    match asked {
        Asked::Claim { who, key, claim, request, id } => claim_command(credential(who), key, claim, &request, id),
        Asked::Renew { who, id, epoch, lease_ms } => {
            let (caller, lease_epoch) = (credential(who), LeaseEpoch(epoch));
            Command::Renew(Renew { caller, execution_id: id, lease_epoch, lease_ms })
        }
        Asked::Report { who, id, epoch, said, words } => {
            let (caller, lease_epoch, outcome) = (credential(who), LeaseEpoch(epoch), said.map(definite));
            Command::Report(Report { caller, execution_id: id, lease_epoch, outcome, data: data(words) })
        }
        Asked::Evidence { who, id, claim, fact, words } => {
            let (caller, claim_id, outcome) = (credential(who), claim_id(claim), definite(fact));
            let data = data(words);
            Command::Evidence(Evidence { caller, execution_id: id, claim_id, outcome, data, proof: None })
        }
        Asked::Resolve { who, id, epoch, fact, words } => {
            let (caller, lease_epoch, outcome) = (credential(who), LeaseEpoch(epoch), definite(fact));
            let (data, proof) = (data(words), "seen".into());
            Command::Resolve(Resolve { caller, execution_id: id, lease_epoch, outcome, data, proof })
        }
        Asked::Lapse { key, epoch, deadline } => {
            let operation = OperationKey::new(&credential(0).tenant, &internal_key(key));
            Command::Lapse(Lapse { operation, lease_epoch: LeaseEpoch(epoch), deadline: LeaseTime(deadline) })
        }
    }
}

fn claim_command(caller: Caller, key: u8, claim: u8, request: &Request, execution_id: ExecutionId) -> Command {
    Command::Claim(Claim {
        caller,
        namespace: NamespaceName::new("n"),
        internal_key: internal_key(key),
        slot: Slot(7),
        digest: Digest([request.digest; 32]),
        claim_id: claim_id(claim),
        owner: "worker".into(),
        lease_ms: request.lease_ms,
        attempt: request.attempt.map(Attempt),
        correlation_id: None,
        execution_id,
        capability_id: None,
        message: None,
        epoch: None,
        resource: None,
        key_created_at: None,
    })
}

fn internal_key(key: u8) -> InternalKey {
    InternalKey([key; 32])
}

fn claim_id(number: u8) -> ClaimId {
    ClaimId(bytes16(u64::from(number)))
}

fn epoch_of(epoch: Epoch, stands: u64) -> u64 {
    match epoch {
        Epoch::Current => stands,
        Epoch::Before => stands.saturating_sub(1),
        Epoch::After => stands + 1,
        Epoch::First => 2,
    }
}

fn data(words: Words) -> ResultData {
    let external_id = words.external.map(|id| format!("ch_{id}"));
    ResultData { external_id, result: words.result.map(|byte| vec![byte]), ..ResultData::default() }
}

fn words_of(outcome: &OutcomeRecord, result: Option<&[u8]>) -> Words {
    let external = outcome.external_id.as_ref().map(|id| id.trim_start_matches("ch_").parse().expect("our own id"));
    Words { external, result: result.map(|body| body[0]) }
}

fn definite(fact: Fact) -> Definite {
    match fact {
        Fact::Completed => Definite::Completed,
        Fact::Failed => Definite::Failed,
        Fact::NotApplied => Definite::NotApplied,
    }
}

fn fact(outcome: Definite) -> Fact {
    match outcome {
        Definite::Completed => Fact::Completed,
        Definite::Failed => Fact::Failed,
        Definite::NotApplied => Fact::NotApplied,
    }
}

fn stage(state: State) -> Stage {
    match state {
        State::Requested => panic!("nothing in a history registers"),
        State::Executing => Stage::Executing,
        State::Unknown => Stage::Unknown,
        State::Completed => Stage::Known(Fact::Completed),
        State::Failed => Stage::Known(Fact::Failed),
        State::NotApplied => Stage::Known(Fact::NotApplied),
    }
}

fn translated(outcome: &Outcome) -> Said {
    match &outcome.answer {
        Answer::Claimed(grant) => {
            assert_eq!(grant.effect_key, effect_key(&grant.operation_id, grant.attempt));
            Said::Claimed {
                execution: grant.execution_id,
                attempt: grant.attempt.0,
                epoch: grant.lease.lease_epoch.0,
                remaining_ms: grant.lease.remaining_ms,
            }
        }
        Answer::InProgress(standing) => {
            Said::InProgress { attempt: standing.attempt.0, remaining_ms: standing.lease_remaining_ms }
        }
        Answer::Replayed(receipt) => Said::Replayed {
            fact: fact(receipt.outcome.outcome),
            words: words_of(&receipt.outcome, receipt.result.as_deref()),
        },
        Answer::Renewed(lease) => Said::Renewed { epoch: lease.lease_epoch.0, remaining_ms: lease.remaining_ms },
        Answer::Accepted(standing) => Said::Accepted(stage(standing.state)),
        Answer::Lapsed { changed } => Said::Lapsed(*changed),
        Answer::Refused(refused) => Said::Refused(why(refused.reason)),
        Answer::TooLate => Said::TooLate,
        other => panic!("nothing in a history is answered with {other:?}"),
    }
}

fn why(reason: Refusal) -> Why {
    match reason {
        Refusal::NotFound => Why::NotFound,
        Refusal::ClaimIdReused => Why::Reused,
        Refusal::LeaseLost => Why::Lost,
        Refusal::LeaseStaleEpoch => Why::Stale,
        Refusal::KeyDigestMismatch => Why::Digest,
        Refusal::OperationQuarantined => Why::Quarantined,
        Refusal::OperationExecuting => Why::Executing,
        Refusal::OutcomeUnknown => Why::Unknown,
        Refusal::AttemptMismatch { due } => Why::Attempt(due.0),
        Refusal::OutcomeConflict => Why::Conflict,
        _ => panic!("nothing in a history is refused with {reason:?}"),
    }
}
