//! A second telling of the protocol, from the design's text and not from the rules: flat histories, nothing ever removed.
//! It shares nothing with the rules but ids, so that an error would have to be made twice to go unseen.

mod authority;
mod claims;
mod upkeep;
mod words;

use std::collections::BTreeMap;

use hapax_machine::ids::{CapabilityId, ClaimId, ExecutionId};

/// DESIGN §5: floors stay this far behind what the policy allows.
pub(crate) const MARGIN_MS: u64 = 60_000;
/// DESIGN §5: how far clocks may differ that date keys.
pub(crate) const SKEW_MS: u64 = 60_000;

/// What a key means whose operation was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    New,
    RejectOlder,
    Durable,
}

/// The policies that shape an operation's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) takeover: bool,
    pub(crate) explicit: bool,
    pub(crate) must_present: bool,
    pub(crate) keys: Keys,
    pub(crate) body_ms: u64,
    pub(crate) identity_ms: u64,
    pub(crate) pace: u32,
    pub(crate) open_max: Option<u64>,
}

/// A definite outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fact {
    Completed,
    Failed,
    NotApplied,
}

/// What is said about an execution besides the fact: the provider's id and the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Words {
    pub(crate) external: Option<u8>,
    pub(crate) result: Option<u8>,
}

/// Who asks: a client, whether its credential reaches the namespace under test, and whether it is of the tenant at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asker {
    pub(crate) client: u8,
    pub(crate) reaches: bool,
    pub(crate) of_tenant: bool,
}

/// A value of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) scope: u8,
    pub(crate) value: u64,
}

/// A claim's whole request; two calls of one claim are equal in all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) client: u8,
    pub(crate) digest: u8,
    pub(crate) lease_ms: u64,
    pub(crate) attempt: Option<u32>,
    pub(crate) capability: Option<CapabilityId>,
    pub(crate) message: Option<u8>,
    pub(crate) epoch: Option<Binding>,
    pub(crate) resource: Option<u8>,
    pub(crate) made: Option<u64>,
}

/// An operation, as whoever asks knows it: its key and its birth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    pub(crate) key: u8,
    pub(crate) birth: u64,
}

/// What a repair does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mend {
    Quarantine,
    Release,
    Close,
    Supersede(Named),
}

/// Everything that is asked in a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    Register { key: u8, digest: u8, resource: Option<u8>, made: Option<u64> },
    Claim { key: u8, claim: ClaimId, request: Request, id: ExecutionId },
    Renew { id: ExecutionId, epoch: u64, lease_ms: u64 },
    Report { id: ExecutionId, epoch: u64, said: Option<Fact>, words: Words },
    Evidence { id: ExecutionId, claim: ClaimId, fact: Fact, words: Words },
    Resolve { id: ExecutionId, epoch: u64, fact: Fact, words: Words },
    Lapse { key: u8, epoch: u64, deadline: u64 },
    Settle { key: u8 },
    Issue(Issue),
    Revoke { capability: CapabilityId },
    Bump { scope: u8, expected: u64 },
    Reconcile { owner: u8, lease_ms: u64, limit: u32, named: Vec<(Named, u64)> },
    Escalate { id: ExecutionId, epoch: u64, on: bool },
    Fence { id: ExecutionId, epoch: u64 },
    Repair { named: Named, mend: Mend, expected: Stage },
    Floors { compact: u64, forget: u64 },
    Count { capability: CapabilityId, times: u32 },
    Policy(Policy),
}

/// What a decider asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Issue {
    pub(crate) decision: u8,
    pub(crate) goes_for: Wanted,
    pub(crate) expires: u64,
    pub(crate) epoch: Option<Binding>,
    pub(crate) id: CapabilityId,
}

/// What a capability is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Attempt { named: Named, attempt: u32, effect: Option<u32> },
    Resource { resource: u8, uses: u32 },
}

/// The state of an attempt, or of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Requested,
    Executing,
    Unknown,
    Known(Fact),
}

/// Why something was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    NotFound,
    Reused,
    Lost,
    Stale,
    Digest,
    Quarantined,
    Executing,
    Unknown,
    Attempt(u32),
    Conflict,
    Delivery,
    Consumed,
    Revoked,
    Expired,
    Invalid,
    Binding,
    Required,
    EpochStale,
    EpochUnknown,
    Stands(u64),
    Completed,
    Failed,
    State,
    Elapsed,
    CreationTime,
    Decision,
    Quota,
    Fixed,
    NotYours,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Claimed { execution: ExecutionId, attempt: u32, epoch: u64, remaining_ms: u64, effect: u32 },
    InProgress { attempt: u32, remaining_ms: Option<u64> },
    Replayed { fact: Fact, words: Words },
    Duplicate(Stage),
    Renewed { epoch: u64, remaining_ms: u64 },
    Accepted(Stage),
    Registered { stage: Stage, created: bool },
    Capability { id: CapabilityId, left: u32, created: bool, revoked: bool },
    Register(u64),
    Reconciling(Vec<Item>),
    Floors { compact: u64, forget: u64 },
    Counted,
    Written,
    Lapsed(bool),
    Refused(Why),
    TooLate,
}

/// An execution to find out about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) execution: ExecutionId,
    pub(crate) attempt: u32,
    pub(crate) epoch: u64,
    pub(crate) remaining_ms: u64,
    pub(crate) unknown_since: u64,
    pub(crate) effect: u32,
}

/// What a reader sees of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) birth: u64,
    pub(crate) stage: Stage,
    pub(crate) attempt: u32,
    pub(crate) epoch: Option<u64>,
    pub(crate) remaining_ms: Option<u64>,
    pub(crate) quarantined: bool,
    pub(crate) evidence: usize,
    pub(crate) words: Option<Words>,
    pub(crate) reconciler: Option<(u8, u64)>,
    pub(crate) escalated: bool,
    pub(crate) refusals: u32,
}

/// What a namespace counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) open: u64,
    pub(crate) unknown: u64,
    pub(crate) compact: u64,
    pub(crate) forget: u64,
    pub(crate) pace: (u64, u32),
}

/// A claim that was granted.
#[derive(Debug, Clone, Copy)]
struct Granted {
    claim: ClaimId,
    request: Request,
    /// Index into the attempts.
    attempt: usize,
}

/// One attempt.
#[derive(Debug, Clone)]
struct Tried {
    id: ExecutionId,
    stage: Stage,
    /// How many ever held it: claimants and reconcilers.
    holders: u32,
    client: u8,
    claim: ClaimId,
    epoch: u64,
    deadline: u64,
    renewed: bool,
    report: Option<(u64, Option<Fact>, Words)>,
    words: Words,
    capability: Option<CapabilityId>,
    bindings: Vec<Binding>,
    effect: u32,
    unknown_since: u64,
    /// An effect that a holder told of before there was an outcome.
    claimed: Option<(Fact, Option<u8>)>,
    /// Who reconciles it, as which client, until when.
    reconciler: Option<(u8, u8, u64)>,
    escalated: bool,
    /// Whether it was over, and so unknown to whoever looked, when the policy was written anew.
    lost: bool,
}

/// One operation's history.
#[derive(Debug, Clone)]
struct Operation {
    named: Named,
    digest: u8,
    resource: Option<u8>,
    made: Option<u64>,
    granted: Vec<Granted>,
    tried: Vec<Tried>,
    quarantined: bool,
    closed: bool,
    /// When it ended, on the wall.
    ended: Option<u64>,
    evidence: usize,
    /// The last of the evidence.
    last: Option<Kept>,
    /// The contradiction that an operator released.
    forgiven: Option<Kept>,
    superseded_by: Option<u64>,
    supersedes: Option<u64>,
}

/// What was kept: somebody's words, or what an operator did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Words {
        execution: ExecutionId,
        client: u8,
        call: Call,
        fact: Option<Fact>,
        words: Words,
    },
    /// Of all overrides only a fence is compared with the next one: who, what, and under which epoch.
    Fence {
        execution: ExecutionId,
        client: u8,
        epoch: u64,
    },
    Override,
}

/// In which call something was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Report(u64),
    Evidence(ClaimId),
    Resolve(u64),
}

/// All of it. Operations are in the order of their births, and none is ever removed.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    policy: Policy,
    now: u64,
    wall: u64,
    term: u64,
    lead: u64,
    drawn: u64,
    compact: u64,
    forget: u64,
    pace: (u64, u32),
    operations: Vec<Operation>,
    capabilities: Vec<authority::Capability>,
    /// By tenant and scope.
    registers: BTreeMap<(bool, u8), u64>,
    /// Accepted deliveries: the message, the operation's birth, and the digest.
    inbox: Vec<(u8, u64, u8)>,
    refusals: Vec<authority::Refusal>,
}

impl Model {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            now: 0,
            wall: 0,
            term: 1,
            lead: 0,
            drawn: 0,
            compact: 0,
            forget: 0,
            pace: (0, 0),
            operations: Vec::new(),
            capabilities: Vec::new(),
            registers: BTreeMap::new(),
            inbox: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// Answers whatever is asked.
    pub(crate) fn answer(&mut self, asker: Asker, ask: &Ask) -> Said {
        match ask.clone() {
            Ask::Register { key, digest, resource, made } => self.register(asker, key, digest, resource, made),
            Ask::Claim { key, claim, request, id } => self.claim(asker, key, claim, request, id),
            Ask::Renew { id, epoch, lease_ms } => self.renew(asker, id, epoch, lease_ms),
            Ask::Report { id, epoch, said, words } => self.report(asker, id, epoch, said, words),
            Ask::Evidence { id, claim, fact, words } => self.evidence(asker, id, claim, fact, words),
            Ask::Resolve { id, epoch, fact, words } => self.resolve(asker, id, epoch, fact, words),
            Ask::Lapse { key, epoch, deadline } => self.lapse(key, epoch, deadline),
            Ask::Settle { key } => Said::Lapsed(self.live(key).is_some_and(|at| self.settle(at))),
            Ask::Issue(wanted) => self.issue(asker, wanted),
            Ask::Revoke { capability } => self.revoke(asker, capability),
            Ask::Bump { scope, expected } => self.bump(asker, scope, expected),
            Ask::Reconcile { owner, lease_ms, limit, named } => self.reconcile(asker, owner, lease_ms, limit, &named),
            Ask::Escalate { id, epoch, on } => self.escalate(asker, id, epoch, on),
            Ask::Fence { id, epoch } => self.fence(asker, id, epoch),
            Ask::Repair { named, mend, expected } => self.repair(asker, named, mend, expected),
            Ask::Floors { compact, forget } => self.raise_floors(compact, forget),
            Ask::Count { capability, times } => self.count_repeated(capability, times),
            Ask::Policy(policy) => self.write_policy(asker, policy),
        }
    }

    /// DESIGN §3: time is what leaders measured; a stamp from another term starts again at nothing. The wall follows, no faster.
    pub(crate) fn stamp(&mut self, term: u64, lead: u64, wall: u64) {
        if term != self.term {
            (self.term, self.lead) = (term, 0);
        }
        let passed = lead.saturating_sub(self.lead);
        self.now += passed;
        self.lead += passed;
        self.wall = self.wall.max(wall.min(self.wall + passed));
    }

    /// The wall is moved, forward only.
    pub(crate) fn move_wall(&mut self, target: u64) {
        assert!(target >= self.wall, "histories move it forward");
        self.wall = target;
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn wall(&self) -> u64 {
        self.wall
    }

    pub(crate) fn floors(&self) -> (u64, u64) {
        (self.compact, self.forget)
    }

    /// Every execution there ever was, newest first.
    pub(crate) fn executions(&self) -> Vec<ExecutionId> {
        let mut all: Vec<(u64, ExecutionId)> =
            self.operations.iter().flat_map(|operation| &operation.tried).map(|one| (one.epoch, one.id)).collect();
        all.sort_by_key(|(epoch, _)| core::cmp::Reverse(*epoch));
        all.into_iter().map(|(_, id)| id).collect()
    }

    /// The epoch and the deadline that are stored for the newest attempt at an operation.
    pub(crate) fn stored(&self, key: u8) -> Option<(u64, u64)> {
        let newest = self.operations[self.live(key)?].tried.last()?;
        Some((newest.epoch, newest.deadline))
    }

    /// The epoch under which the operation of an execution stands.
    pub(crate) fn epoch_around(&self, id: &ExecutionId) -> Option<u64> {
        let (at, _) = self.place(id)?;
        self.operations[at].tried.last().map(|newest| newest.epoch)
    }

    /// The life of a key that is there, or the last one that was.
    pub(crate) fn named(&self, key: u8) -> Option<Named> {
        self.operations.iter().rev().map(|operation| operation.named).find(|named| named.key == key)
    }

    /// What was said of a key's creation when its operation was inserted; `None` where no operation is there.
    pub(crate) fn made(&self, key: u8) -> Option<Option<u64>> {
        self.live(key).map(|at| self.operations[at].made)
    }

    /// The attempt that is due at a key's operation.
    pub(crate) fn due(&self, key: u8) -> u32 {
        self.live(key).map_or(1, |at| self.operations[at].due())
    }

    /// What a reader is shown under a key.
    pub(crate) fn sight(&self, key: u8) -> Option<Sight> {
        let operation = &self.operations[self.live(key)?];
        let newest = operation.tried.last();
        let ends = self.is_due(operation);
        let over = newest.is_some_and(|newest| self.is_over(newest));
        let stage = if ends { Stage::Unknown } else { operation.stage() };
        let current = newest.filter(|_| !ends);
        let running = current.filter(|newest| newest.stage == Stage::Executing && !over);
        let held = newest.and_then(|newest| newest.reconciler).filter(|(.., until)| *until > self.now);
        let held = held.filter(|_| newest.is_some_and(|newest| newest.stage == Stage::Unknown));
        Some(Sight {
            birth: operation.named.birth,
            stage,
            attempt: operation.tried.len() as u32,
            epoch: current.map(|newest| newest.epoch),
            remaining_ms: running.map(|newest| told(newest.deadline, self.now)),
            quarantined: operation.quarantined,
            evidence: operation.evidence,
            words: matches!(stage, Stage::Known(_)).then(|| self.shown_words(operation)),
            reconciler: held.map(|(owner, _, until)| (owner, told(until, self.now))),
            escalated: newest.is_some_and(|newest| newest.escalated),
            refusals: self.refusals_of(authority::Subject::Operation(operation.named.birth)),
        })
    }

    pub(crate) fn counts(&self) -> Counts {
        let shown = self.operations.iter().filter(|operation| !self.is_gone(operation));
        let open = shown.clone().filter(|operation| !operation.is_terminal()).count() as u64;
        let unknown = shown.filter(|operation| operation.stage() == Stage::Unknown).count() as u64;
        Counts { open, unknown, compact: self.compact, forget: self.forget, pace: self.pace }
    }

    /// The outcome's words, without a result that is gone.
    fn shown_words(&self, operation: &Operation) -> Words {
        let words = operation.words();
        let compacted = operation.ended.is_some_and(|at| at < self.compact);
        Words { result: words.result.filter(|_| !compacted), ..words }
    }

    /// DESIGN §5: gone exactly when it ended before the floor; quarantined operations have no horizon.
    fn is_gone(&self, operation: &Operation) -> bool {
        !operation.quarantined && operation.ended.is_some_and(|at| at < self.forget)
    }

    /// Where the operation of a key is.
    fn live(&self, key: u8) -> Option<usize> {
        let newest = self.operations.iter().rposition(|operation| operation.named.key == key)?;
        (!self.is_gone(&self.operations[newest])).then_some(newest)
    }

    /// Where a life of a key is, if it is there.
    fn life(&self, named: Named) -> Option<usize> {
        self.live(named.key).filter(|at| self.operations[*at].named == named)
    }

    fn is_over(&self, one: &Tried) -> bool {
        one.stage == Stage::Executing && self.now >= one.deadline
    }

    /// Whether somebody could ever take the execution over.
    fn may_pass_on(&self, one: &Tried) -> bool {
        self.policy.takeover && !self.policy.must_present && one.capability.is_none() && !one.lost
    }

    /// First the fence, then the lapse.
    fn is_due(&self, operation: &Operation) -> bool {
        let Some(newest) = operation.tried.last().filter(|newest| newest.stage == Stage::Executing) else {
            return false;
        };
        let bumped = newest.bindings.iter().any(|binding| self.register_value(true, binding.scope) > binding.value);
        bumped || (self.is_over(newest) && !self.may_pass_on(newest))
    }

    /// Time's and bumps' own doing, before anything acts on an operation; returns whether it did anything.
    fn settle(&mut self, at: usize) -> bool {
        let due = self.is_due(&self.operations[at]);
        if due {
            self.drawn += 1;
            let (epoch, wall) = (self.drawn, self.wall);
            let newest = self.operations[at].tried.last_mut().expect("it executes");
            newest.epoch = epoch;
            newest.become_unknown(wall);
        }
        due
    }

    fn place(&self, id: &ExecutionId) -> Option<(usize, usize)> {
        let tried = |operation: &Operation| operation.tried.iter().position(|one| one.id == *id);
        self.operations.iter().enumerate().find_map(|(at, operation)| tried(operation).map(|one| (at, one)))
    }

    fn find(&mut self, asker: Asker, id: &ExecutionId) -> Option<(&mut Operation, usize)> {
        let (at, one) = self.place(id).filter(|_| asker.reaches)?;
        if self.is_gone(&self.operations[at]) {
            return None;
        }
        self.settle(at);
        Some((&mut self.operations[at], one))
    }
}

impl Operation {
    fn stage(&self) -> Stage {
        match self.tried.last() {
            _ if self.closed => Stage::Known(Fact::Failed),
            Some(newest) => newest.stage,
            None => Stage::Requested,
        }
    }

    fn is_terminal(&self) -> bool {
        matches!(self.stage(), Stage::Known(Fact::Completed | Fact::Failed))
    }

    fn words(&self) -> Words {
        self.tried.last().filter(|_| !self.closed).map_or(Words::default(), |newest| newest.words)
    }

    /// One more than the attempts that were concluded not_applied.
    fn due(&self) -> u32 {
        1 + self.tried.iter().filter(|one| one.stage == Stage::Known(Fact::NotApplied)).count() as u32
    }

    /// The standing outcome is given once.
    fn know(&mut self, fact: Fact, words: Words, wall: u64) {
        let newest = self.tried.last_mut().expect("somebody was elected");
        // Somebody who held it told of another effect: people look before anything else runs.
        self.quarantined |= newest.claimed.is_some_and(|claimed| !is_same_effect(claimed, fact, words.external));
        newest.stage = Stage::Known(fact);
        (newest.reconciler, newest.escalated) = (None, false);
        // A result belongs to an outcome that duplicates get; nothing is replayed after not_applied.
        let result = words.result.filter(|_| fact != Fact::NotApplied);
        newest.words = Words { result, ..words };
        if fact != Fact::NotApplied {
            self.ended = Some(wall);
        }
    }

    fn keep(&mut self, kept: Kept) {
        self.evidence += 1;
        self.last = Some(kept);
    }
}

impl Tried {
    fn become_unknown(&mut self, wall: u64) {
        self.stage = Stage::Unknown;
        self.unknown_since = wall;
    }
}

/// Whether two words tell of one effect: the same outcome, and no two ids of the provider.
fn is_same_effect((claimed, id): (Fact, Option<u8>), fact: Fact, external: Option<u8>) -> bool {
    claimed == fact && (id.is_none() || external.is_none() || id == external)
}

impl Words {
    /// Two different ids of the provider are two effects; everything else is only another way to say it.
    fn fits(self, other: Self) -> bool {
        self.external.is_none() || other.external.is_none() || self.external == other.external
    }
}

/// DESIGN §3: deadlines are a millisecond late for the sake of rounded stamps; nobody is told of that one.
fn told(deadline: u64, now: u64) -> u64 {
    deadline - now - 1
}
