//! A second telling of the protocol, from the design's text and not from the rules: one flat history per operation.
//! It shares nothing with the rules but ids, so that an error would have to be made twice to go unseen.

use std::collections::BTreeMap;

use hapax_machine::ids::{ClaimId, ExecutionId};

/// The policies that shape an operation's life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) takeover: bool,
    pub(crate) explicit: bool,
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

/// Who asks: a client, and whether its credential reaches the namespace under test at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asker {
    pub(crate) client: u8,
    pub(crate) reaches: bool,
}

/// A claim's whole request; two calls of one claim are equal in all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) client: u8,
    pub(crate) digest: u8,
    pub(crate) lease_ms: u64,
    pub(crate) attempt: Option<u32>,
}

/// The state of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Executing,
    Unknown,
    Known(Fact),
}

/// Why something was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    Claimed { execution: ExecutionId, attempt: u32, epoch: u64, remaining_ms: u64 },
    InProgress { attempt: u32, remaining_ms: Option<u64> },
    Replayed { fact: Fact, words: Words },
    Renewed { epoch: u64, remaining_ms: u64 },
    Accepted(Stage),
    Lapsed(bool),
    Refused(Why),
    TooLate,
}

/// What a reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) stage: Stage,
    pub(crate) attempt: u32,
    pub(crate) epoch: Option<u64>,
    pub(crate) remaining_ms: Option<u64>,
    pub(crate) quarantined: bool,
    pub(crate) evidence: usize,
    pub(crate) words: Option<Words>,
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
    holders: usize,
    client: u8,
    claim: ClaimId,
    epoch: u64,
    deadline: u64,
    renewed: bool,
    report: Option<(u64, Option<Fact>, Words)>,
    words: Words,
}

/// One operation's history.
#[derive(Debug, Clone)]
struct Operation {
    digest: u8,
    granted: Vec<Granted>,
    tried: Vec<Tried>,
    quarantined: bool,
    evidence: usize,
    /// The last of the evidence.
    last: Option<Kept>,
}

/// What was said, by whom, about what and in which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    execution: ExecutionId,
    client: u8,
    call: Call,
    fact: Fact,
    words: Words,
}

/// In which call something was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Report(u64),
    Evidence(ClaimId),
    Resolve(u64),
}

/// All of it.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    policy: Policy,
    now: u64,
    term: u64,
    lead: u64,
    drawn: u64,
    operations: BTreeMap<u8, Operation>,
}

impl Model {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, now: 0, term: 1, lead: 0, drawn: 0, operations: BTreeMap::new() }
    }

    /// DESIGN §3: time is what leaders measured; a stamp from another term starts again at nothing.
    pub(crate) fn stamp(&mut self, term: u64, lead: u64) {
        if term != self.term {
            (self.term, self.lead) = (term, 0);
        }
        if lead > self.lead {
            self.now += lead - self.lead;
            self.lead = lead;
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Every execution there ever was, newest first.
    pub(crate) fn executions(&self) -> Vec<ExecutionId> {
        let mut all: Vec<(u64, ExecutionId)> =
            self.operations.values().flat_map(|operation| &operation.tried).map(|one| (one.epoch, one.id)).collect();
        all.sort_by_key(|(epoch, _)| core::cmp::Reverse(*epoch));
        all.into_iter().map(|(_, id)| id).collect()
    }

    /// The epoch and the deadline that are stored for an operation's newest attempt.
    pub(crate) fn stored(&self, key: u8) -> Option<(u64, u64)> {
        self.operations.get(&key).map(|operation| operation.newest()).map(|newest| (newest.epoch, newest.deadline))
    }

    /// The epoch under which the operation of an execution stands.
    pub(crate) fn epoch_around(&self, id: &ExecutionId) -> Option<u64> {
        let (key, _) = self.place(id)?;
        self.stored(key).map(|(epoch, _)| epoch)
    }

    pub(crate) fn sight(&self, key: u8) -> Option<Sight> {
        let operation = self.operations.get(&key)?;
        let newest = operation.newest();
        let over = newest.stage == Stage::Executing && self.now >= newest.deadline;
        let stage = if over && !self.policy.takeover { Stage::Unknown } else { newest.stage };
        let runs = stage == Stage::Executing && !over;
        Some(Sight {
            stage,
            attempt: operation.tried.len() as u32,
            epoch: (!over).then_some(newest.epoch),
            remaining_ms: runs.then(|| told(newest.deadline, self.now)),
            quarantined: operation.quarantined,
            evidence: operation.evidence,
            words: matches!(stage, Stage::Known(_)).then_some(newest.words),
        })
    }

    pub(crate) fn claim(&mut self, asker: Asker, key: u8, claim: ClaimId, request: Request, id: ExecutionId) -> Said {
        if !asker.reaches {
            return Said::Refused(Why::NotFound);
        }
        self.settle(key);
        let now = self.now;
        let Some(operation) = self.operations.get(&key) else {
            if request.attempt.is_some_and(|named| named != 1) {
                return Said::Refused(Why::Attempt(1));
            }
            self.drawn += 1;
            let (digest, quarantined) = (request.digest, false);
            let fresh =
                Operation { digest, granted: Vec::new(), tried: Vec::new(), quarantined, evidence: 0, last: None };
            self.operations.insert(key, fresh);
            return self.open(key, claim, request, id);
        };
        let newest = operation.newest();
        if let Some(before) = operation.granted.iter().find(|granted| granted.claim == claim) {
            let current = newest.claim == claim && newest.stage == Stage::Executing;
            return match newest.stage {
                _ if before.request != request => Said::Refused(Why::Reused),
                _ if operation.quarantined => Said::Refused(Why::Quarantined),
                Stage::Known(fact @ (Fact::Completed | Fact::Failed)) => Said::Replayed { fact, words: newest.words },
                _ if current && now < newest.deadline && !newest.renewed => operation.grant(now),
                _ => Said::Refused(Why::Lost),
            };
        }
        if operation.digest != request.digest {
            return Said::Refused(Why::Digest);
        }
        if operation.quarantined {
            return Said::Refused(Why::Quarantined);
        }
        let tried = operation.tried.len() as u32;
        match newest.stage {
            Stage::Executing if self.policy.takeover && now >= newest.deadline => match request.attempt {
                Some(named) if named != tried => Said::Refused(Why::Attempt(tried)),
                _ => self.take_over(key, claim, request),
            },
            Stage::Executing => Said::InProgress { attempt: tried, remaining_ms: left(newest, now) },
            Stage::Unknown => Said::Refused(Why::Unknown),
            Stage::Known(fact @ (Fact::Completed | Fact::Failed)) => Said::Replayed { fact, words: newest.words },
            Stage::Known(Fact::NotApplied) => match request.attempt {
                None if self.policy.explicit => Said::Refused(Why::Attempt(tried + 1)),
                Some(named) if named != tried + 1 => Said::Refused(Why::Attempt(tried + 1)),
                _ => self.open(key, claim, request, id),
            },
        }
    }

    pub(crate) fn renew(&mut self, asker: Asker, id: ExecutionId, epoch: u64, lease_ms: u64) -> Said {
        let now = self.now;
        let Some((operation, at)) = self.find(asker, &id) else { return Said::Refused(Why::NotFound) };
        let is_newest = at + 1 == operation.tried.len();
        let one = &mut operation.tried[at];
        if !is_newest || epoch != one.epoch {
            return Said::Refused(Why::Stale);
        }
        if one.client != asker.client {
            return Said::Refused(Why::NotFound);
        }
        if one.stage != Stage::Executing || now >= one.deadline {
            return Said::Refused(Why::Lost);
        }
        one.deadline = one.deadline.max(now + lease_ms + 1);
        one.renewed = true;
        Said::Renewed { epoch, remaining_ms: told(one.deadline, now) }
    }

    pub(crate) fn report(
        &mut self,
        asker: Asker,
        id: ExecutionId,
        epoch: u64,
        said: Option<Fact>,
        words: Words,
    ) -> Said {
        let now = self.now;
        let Some((operation, at)) = self.find(asker, &id) else { return Said::Refused(Why::NotFound) };
        let is_newest = at + 1 == operation.tried.len();
        let one = &mut operation.tried[at];
        let own = one.client == asker.client;
        if own && one.report == Some((epoch, said, words)) {
            return Said::Accepted(operation.newest().stage);
        }
        if !is_newest || epoch != one.epoch {
            return Said::Refused(Why::Stale);
        }
        if !own {
            return Said::Refused(Why::NotFound);
        }
        match one.stage {
            Stage::Known(fact) if Some(fact) == said && one.words.fits(words) => return Said::Accepted(one.stage),
            Stage::Known(_) => return Said::Refused(Why::Conflict),
            Stage::Executing if now < one.deadline => {}
            _ => return Said::Refused(Why::Lost),
        }
        one.report = Some((epoch, said, words));
        match said {
            // One holder cannot speak for another.
            Some(Fact::NotApplied) if one.holders > 1 => {
                one.stage = Stage::Unknown;
                let call = Call::Report(epoch);
                operation.keep(Kept { execution: id, client: asker.client, call, fact: Fact::NotApplied, words });
            }
            Some(fact) => one.know(fact, words),
            None => one.stage = Stage::Unknown,
        }
        Said::Accepted(operation.newest().stage)
    }

    pub(crate) fn evidence(
        &mut self,
        asker: Asker,
        id: ExecutionId,
        claim: ClaimId,
        fact: Fact,
        words: Words,
    ) -> Said {
        let Some((operation, at)) = self.find(asker, &id) else { return Said::Refused(Why::NotFound) };
        let mut own = operation.granted.iter().filter(|granted| granted.attempt == at);
        if !own.any(|granted| granted.claim == claim && granted.request.client == asker.client) {
            return Said::Refused(Why::NotFound);
        }
        let kept = Kept { execution: id, client: asker.client, call: Call::Evidence(claim), fact, words };
        if let Some(said) = operation.against_what_stands(at, kept) {
            return said;
        }
        let one = &operation.tried[at];
        let counts = one.stage == Stage::Unknown && (fact != Fact::NotApplied || one.holders == 1);
        if counts || operation.last != Some(kept) {
            operation.keep(kept);
        }
        let one = &mut operation.tried[at];
        if counts {
            one.know(fact, words);
        }
        Said::Accepted(one.stage)
    }

    pub(crate) fn resolve(&mut self, asker: Asker, id: ExecutionId, epoch: u64, fact: Fact, words: Words) -> Said {
        let Some((operation, at)) = self.find(asker, &id) else { return Said::Refused(Why::NotFound) };
        let kept = Kept { execution: id, client: asker.client, call: Call::Resolve(epoch), fact, words };
        if let Some(said) = operation.against_what_stands(at, kept) {
            return said;
        }
        let one = &mut operation.tried[at];
        if epoch != one.epoch {
            return Said::Refused(Why::Stale);
        }
        if one.stage != Stage::Unknown {
            return Said::Refused(Why::Executing);
        }
        one.know(fact, words);
        operation.keep(kept);
        Said::Accepted(Stage::Known(fact))
    }

    /// The sweep: acts only if nothing moved since it looked.
    pub(crate) fn lapse(&mut self, key: u8, epoch: u64, deadline: u64) -> Said {
        if self.stored(key) != Some((epoch, deadline)) {
            return Said::Lapsed(false);
        }
        Said::Lapsed(self.settle(key))
    }

    /// Time's own doing, before anything acts on an operation; returns whether it did.
    fn settle(&mut self, key: u8) -> bool {
        let Some(operation) = self.operations.get_mut(&key) else { return false };
        let newest = operation.tried.last_mut().expect("an operation is inserted with its first attempt");
        let over = newest.stage == Stage::Executing && self.now >= newest.deadline && !self.policy.takeover;
        if over {
            self.drawn += 1;
            newest.epoch = self.drawn;
            newest.stage = Stage::Unknown;
        }
        over
    }

    fn place(&self, id: &ExecutionId) -> Option<(u8, usize)> {
        self.operations
            .iter()
            .find_map(|(key, operation)| operation.tried.iter().position(|one| one.id == *id).map(|at| (*key, at)))
    }

    fn find(&mut self, asker: Asker, id: &ExecutionId) -> Option<(&mut Operation, usize)> {
        let (key, at) = self.place(id).filter(|_| asker.reaches)?;
        self.settle(key);
        self.operations.get_mut(&key).map(|operation| (operation, at))
    }

    fn open(&mut self, key: u8, claim: ClaimId, request: Request, id: ExecutionId) -> Said {
        self.drawn += 1;
        let (epoch, now) = (self.drawn, self.now);
        let operation = self.operations.get_mut(&key).expect("the caller looked");
        operation.granted.push(Granted { claim, request, attempt: operation.tried.len() });
        operation.tried.push(Tried {
            id,
            stage: Stage::Executing,
            holders: 1,
            client: request.client,
            claim,
            epoch,
            deadline: now + request.lease_ms + 1,
            renewed: false,
            report: None,
            words: Words::default(),
        });
        operation.grant(now)
    }

    fn take_over(&mut self, key: u8, claim: ClaimId, request: Request) -> Said {
        self.drawn += 1;
        let (epoch, now) = (self.drawn, self.now);
        let operation = self.operations.get_mut(&key).expect("the caller looked");
        operation.granted.push(Granted { claim, request, attempt: operation.tried.len() - 1 });
        let one = operation.tried.last_mut().expect("a takeover follows a grant");
        one.holders += 1;
        (one.client, one.claim, one.epoch) = (request.client, claim, epoch);
        (one.deadline, one.renewed) = (now + request.lease_ms + 1, false);
        operation.grant(now)
    }
}

impl Operation {
    fn newest(&self) -> &Tried {
        self.tried.last().expect("an operation is inserted with its first attempt")
    }

    fn grant(&self, now: u64) -> Said {
        let newest = self.newest();
        Said::Claimed {
            execution: newest.id,
            attempt: self.tried.len() as u32,
            epoch: newest.epoch,
            remaining_ms: told(newest.deadline, now),
        }
    }

    /// Evidence and resolve look at their execution's standing outcome first.
    fn against_what_stands(&mut self, at: usize, kept: Kept) -> Option<Said> {
        let Stage::Known(stands) = self.tried[at].stage else { return None };
        if stands == kept.fact && self.tried[at].words.fits(kept.words) {
            return Some(Said::Accepted(self.newest().stage));
        }
        if !self.quarantined || self.last != Some(kept) {
            self.quarantined = true;
            self.keep(kept);
        }
        Some(Said::Refused(Why::Conflict))
    }

    fn keep(&mut self, kept: Kept) {
        self.evidence += 1;
        self.last = Some(kept);
    }
}

impl Tried {
    fn know(&mut self, fact: Fact, words: Words) {
        self.stage = Stage::Known(fact);
        // A result belongs to an outcome that duplicates get; nothing is replayed after not_applied.
        let result = words.result.filter(|_| fact != Fact::NotApplied);
        self.words = Words { result, ..words };
    }
}

impl Words {
    /// Two different ids of the provider are two effects; everything else is only another way to say it.
    fn fits(self, other: Self) -> bool {
        self.external.is_none() || other.external.is_none() || self.external == other.external
    }
}

fn left(one: &Tried, now: u64) -> Option<u64> {
    (now < one.deadline).then(|| told(one.deadline, now))
}

/// DESIGN §3: deadlines are a millisecond late for the sake of rounded stamps; nobody is told of that one.
fn told(deadline: u64, now: u64) -> u64 {
    deadline - now - 1
}
