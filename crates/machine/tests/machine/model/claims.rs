//! Who is elected: registration and the claim, in the order of its refusals.

use hapax_machine::ids::{ClaimId, ExecutionId};

use super::authority::Good;
use super::{
    Asker, Fact, Granted, Keys, Model, Named, Operation, Request, SKEW_MS, Said, Stage, Tried, Why, Words, told,
};

impl Model {
    pub(super) fn register(
        &mut self,
        asker: Asker,
        key: u8,
        digest: u8,
        resource: Option<u8>,
        made: Option<u64>,
    ) -> Said {
        if !asker.reaches {
            return Said::Refused(Why::NotFound);
        }
        if let Some(at) = self.live(key) {
            self.settle(at);
            let operation = &self.operations[at];
            if self.is_another(operation, digest, made) {
                return Said::Refused(Why::Digest);
            }
            return Said::Registered { stage: operation.stage(), created: false };
        }
        if let Some(why) = self.not_admitted(made) {
            return Said::Refused(why);
        }
        if self.is_full() {
            return Said::Refused(Why::Quota);
        }
        self.insert(key, digest, resource, made);
        Said::Registered { stage: Stage::Requested, created: true }
    }

    pub(super) fn claim(&mut self, asker: Asker, key: u8, claim: ClaimId, request: Request, id: ExecutionId) -> Said {
        if !asker.reaches {
            return Said::Refused(Why::NotFound);
        }
        let at = self.live(key);
        if let Some(at) = at {
            self.settle(at);
            if let Some(said) = self.same_claim(at, claim, &request) {
                return said;
            }
        }
        match self.decide(at, &request) {
            Err(why) => {
                self.record(at, &request, why);
                Said::Refused(why)
            }
            Ok(Decision::Say(said)) => said,
            Ok(Decision::Elect(good)) => {
                let at = at.unwrap_or_else(|| self.insert(key, request.digest, request.resource, request.made));
                self.open(at, claim, request, id, good)
            }
            Ok(Decision::TakeOver) => self.take_over(at.expect("it executes"), claim, request),
        }
    }

    /// A granted claim's id, again.
    fn same_claim(&self, at: usize, claim: ClaimId, request: &Request) -> Option<Said> {
        let operation = &self.operations[at];
        let before = operation.granted.iter().find(|granted| granted.claim == claim)?;
        let newest = operation.tried.last().expect("somebody was elected");
        let current = newest.claim == claim && newest.stage == Stage::Executing;
        Some(match operation.stage() {
            _ if before.request != *request => Said::Refused(Why::Reused),
            _ if operation.quarantined => Said::Refused(Why::Quarantined),
            Stage::Known(fact @ (Fact::Completed | Fact::Failed)) => {
                Said::Replayed { fact, words: self.shown_words(operation) }
            }
            _ if current && self.now < newest.deadline && !newest.renewed => self.grant(at),
            _ => Said::Refused(Why::Lost),
        })
    }

    fn decide(&self, at: Option<usize>, request: &Request) -> Result<Decision, Why> {
        let operation = at.map(|at| &self.operations[at]);
        if let Some(message) = request.message
            && let Some((birth, digest)) = self.delivered(message)
        {
            let same = operation.filter(|operation| operation.named.birth == birth && digest == request.digest);
            return match same {
                Some(operation) => Ok(Decision::Say(Said::Duplicate(operation.stage()))),
                None => Err(Why::Delivery),
            };
        }
        let good = self.present(operation, request)?;
        match operation {
            Some(operation) => self.gate(operation, request, good),
            None => self.admit(request, good),
        }
    }

    /// A delivery that was accepted for an operation that is still there.
    fn delivered(&self, message: u8) -> Option<(u64, u8)> {
        let shown = |birth: u64| {
            self.operations.iter().any(|operation| operation.named.birth == birth && !self.is_gone(operation))
        };
        let mut accepted = self.inbox.iter().filter(|(of, birth, _)| *of == message && shown(*birth));
        accepted.next().map(|(_, birth, digest)| (*birth, *digest))
    }

    fn admit(&self, request: &Request, good: Good) -> Result<Decision, Why> {
        if let Some(why) = self.not_admitted(request.made) {
            return Err(why);
        }
        if request.attempt.is_some_and(|named| named != 1) {
            return Err(Why::Attempt(1));
        }
        if self.is_full() { Err(Why::Quota) } else { Ok(Decision::Elect(good)) }
    }

    fn gate(&self, operation: &Operation, request: &Request, good: Good) -> Result<Decision, Why> {
        if self.is_another(operation, request.digest, request.made) {
            return Err(Why::Digest);
        }
        if operation.quarantined {
            return Err(Why::Quarantined);
        }
        // Another operation serves the same effect now.
        if operation.superseded_by.is_some() && !operation.is_terminal() {
            return Err(Why::State);
        }
        let inline = good.capability.is_none();
        let tried = operation.tried.len() as u32;
        match operation.stage() {
            Stage::Executing => {
                let newest = operation.tried.last().expect("it executes");
                if inline && self.is_over(newest) && self.may_pass_on(newest) {
                    return match request.attempt {
                        Some(named) if named != tried => Err(Why::Attempt(tried)),
                        _ => Ok(Decision::TakeOver),
                    };
                }
                let left = (self.now < newest.deadline).then(|| told(newest.deadline, self.now));
                let said = Said::InProgress { attempt: tried, remaining_ms: left };
                if inline { Ok(Decision::Say(said)) } else { Err(Why::Executing) }
            }
            Stage::Unknown => Err(Why::Unknown),
            Stage::Known(fact @ (Fact::Completed | Fact::Failed)) if inline => {
                Ok(Decision::Say(Said::Replayed { fact, words: self.shown_words(operation) }))
            }
            Stage::Known(Fact::Completed) => Err(Why::Completed),
            Stage::Known(Fact::Failed) => Err(Why::Failed),
            Stage::Requested | Stage::Known(Fact::NotApplied) => {
                let due = operation.due();
                let agreed = |named: u32| named == due;
                let by_decision = good.attempt.is_none_or(agreed);
                let by_caller = match (request.attempt, good.attempt) {
                    (Some(named), _) => agreed(named),
                    (None, Some(_)) => true,
                    // Unnamed, an inline claim means the next one, or the first where each must be named.
                    (None, None) => !self.policy.explicit || due == 1,
                };
                if by_decision && by_caller { Ok(Decision::Elect(good)) } else { Err(Why::Attempt(due)) }
            }
        }
    }

    /// A key that is bound to another request, or to another creation time where that counts.
    fn is_another(&self, operation: &Operation, digest: u8, made: Option<u64>) -> bool {
        let dated = self.policy.keys == Keys::RejectOlder && operation.made.is_some() && operation.made != made;
        operation.digest != digest || dated
    }

    fn not_admitted(&self, made: Option<u64>) -> Option<Why> {
        if self.policy.keys != Keys::RejectOlder {
            return None;
        }
        match made {
            None => Some(Why::CreationTime),
            Some(made) if made > self.wall + SKEW_MS => Some(Why::CreationTime),
            // It may be one that was forgotten.
            Some(made) if self.forget > 0 && made < self.forget + SKEW_MS => Some(Why::Elapsed),
            Some(_) => None,
        }
    }

    fn is_full(&self) -> bool {
        self.policy.open_max.is_some_and(|most| self.counts().open >= most)
    }

    fn insert(&mut self, key: u8, digest: u8, resource: Option<u8>, made: Option<u64>) -> usize {
        self.drawn += 1;
        self.operations.push(Operation {
            named: Named { key, birth: self.drawn },
            digest,
            resource,
            made,
            granted: Vec::new(),
            tried: Vec::new(),
            quarantined: false,
            closed: false,
            ended: None,
            evidence: 0,
            last: None,
            forgiven: None,
            superseded_by: None,
            supersedes: None,
        });
        self.operations.len() - 1
    }

    fn open(&mut self, at: usize, claim: ClaimId, request: Request, id: ExecutionId, good: Good) -> Said {
        self.drawn += 1;
        let (epoch, deadline) = (self.drawn, self.now + request.lease_ms + 1);
        let attempt = self.operations[at].tried.len();
        let bindings = request.epoch.into_iter().chain(good.epoch).collect();
        self.accept(at, &request);
        if let Some(capability) = good.capability {
            self.consume(capability, at);
        }
        let operation = &mut self.operations[at];
        operation.granted.push(Granted { claim, request, attempt });
        operation.tried.push(Tried {
            id,
            stage: Stage::Executing,
            holders: 1,
            client: request.client,
            claim,
            epoch,
            deadline,
            renewed: false,
            report: None,
            words: Words::default(),
            capability: good.capability,
            bindings,
            effect: good.effect.unwrap_or(attempt as u32 + 1),
            unknown_since: 0,
            claimed: None,
            reconciler: None,
            escalated: false,
            lost: false,
        });
        self.grant(at)
    }

    fn take_over(&mut self, at: usize, claim: ClaimId, request: Request) -> Said {
        self.drawn += 1;
        let (epoch, deadline) = (self.drawn, self.now + request.lease_ms + 1);
        self.accept(at, &request);
        let operation = &mut self.operations[at];
        let attempt = operation.tried.len() - 1;
        operation.granted.push(Granted { claim, request, attempt });
        let one = operation.tried.last_mut().expect("a takeover follows a grant");
        one.holders += 1;
        (one.client, one.claim, one.epoch) = (request.client, claim, epoch);
        (one.deadline, one.renewed) = (deadline, false);
        one.bindings = request.epoch.into_iter().collect();
        self.grant(at)
    }

    /// The delivery goes with the election, or not at all.
    fn accept(&mut self, at: usize, request: &Request) {
        let birth = self.operations[at].named.birth;
        self.inbox.extend(request.message.map(|message| (message, birth, request.digest)));
    }

    fn grant(&self, at: usize) -> Said {
        let operation = &self.operations[at];
        let newest = operation.tried.last().expect("somebody was elected");
        Said::Claimed {
            execution: newest.id,
            attempt: operation.tried.len() as u32,
            epoch: newest.epoch,
            remaining_ms: told(newest.deadline, self.now),
            effect: newest.effect,
        }
    }
}

/// What the refusals of a claim that do not come leave to be done.
enum Decision {
    Elect(Good),
    TakeOver,
    Say(Said),
}
