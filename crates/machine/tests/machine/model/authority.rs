//! What may be presented: capabilities, registers of authority, and the record of what was presented in vain.

use hapax_machine::ids::CapabilityId;

use super::{Asker, Binding, Fact, Issue, Model, Operation, Request, Said, Stage, Wanted, Why};

/// What a capability is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum For {
    Attempt { birth: u64, attempt: u32, effect: u32, consumed: bool },
    Resource { resource: u8, uses: u32, elected: Vec<u64> },
}

/// A capability that was issued.
#[derive(Debug, Clone)]
pub(super) struct Capability {
    id: CapabilityId,
    decision: u8,
    goes_for: For,
    /// Everything that was decided.
    terms: Issue,
    revoked: bool,
}

/// What a refusal is kept with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Capability(CapabilityId),
    Operation(u64),
}

/// A refusal, and how often it came.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    subject: Subject,
    presented: (Option<CapabilityId>, Option<u8>, Why),
    times: u32,
}

/// What a claim that may be elected brings.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Good {
    pub(super) capability: Option<CapabilityId>,
    /// The attempt that was decided.
    pub(super) attempt: Option<u32>,
    /// The attempt whose effect key was chosen.
    pub(super) effect: Option<u32>,
    pub(super) epoch: Option<Binding>,
}

impl Capability {
    fn left(&self) -> u32 {
        match &self.goes_for {
            For::Attempt { consumed, .. } => u32::from(!consumed),
            For::Resource { uses, elected, .. } => uses - elected.len() as u32,
        }
    }
}

impl Model {
    pub(crate) fn register_value(&self, of_tenant: bool, scope: u8) -> u64 {
        self.registers.get(&(of_tenant, scope)).copied().unwrap_or(0)
    }

    /// Every capability that is there: its id, uses left, whether it was revoked, its distinct refusals and all of them.
    pub(crate) fn capabilities(&self) -> Vec<(CapabilityId, u32, bool, u32, u32)> {
        let shown = self.capabilities.iter().filter(|one| !self.is_capability_gone(one));
        let mut all: Vec<_> = shown
            .map(|one| {
                let subject = Subject::Capability(one.id);
                let kept = self.refusals.iter().filter(|row| row.subject == subject);
                let times = kept.map(|row| row.times).sum();
                (one.id, one.left(), one.revoked, self.refusals_of(subject), times)
            })
            .collect();
        all.sort();
        all
    }

    /// Every capability that was ever issued, newest first.
    pub(crate) fn issued(&self) -> Vec<CapabilityId> {
        self.capabilities.iter().rev().map(|one| one.id).collect()
    }

    pub(super) fn refusals_of(&self, subject: Subject) -> u32 {
        self.refusals.iter().filter(|row| row.subject == subject).count() as u32
    }

    /// It goes with its operation; one for a resource some time after it expired.
    fn is_capability_gone(&self, one: &Capability) -> bool {
        match &one.goes_for {
            For::Attempt { birth, .. } => self
                .operations
                .iter()
                .find(|operation| operation.named.birth == *birth)
                .is_none_or(|operation| self.is_gone(operation)),
            For::Resource { .. } => one.terms.expires < self.forget,
        }
    }

    fn capability(&self, id: CapabilityId) -> Option<usize> {
        let at = self.capabilities.iter().position(|one| one.id == id)?;
        (!self.is_capability_gone(&self.capabilities[at])).then_some(at)
    }

    pub(super) fn issue(&mut self, asker: Asker, mut wanted: Issue) -> Said {
        // Unless the decision says otherwise, an attempt's effect key is its own.
        if let Wanted::Attempt { attempt, effect, .. } = &mut wanted.goes_for {
            effect.get_or_insert(*attempt);
        }
        if !asker.reaches {
            return Said::Refused(Why::NotFound);
        }
        let mut operation = None;
        if let Wanted::Attempt { named, .. } = wanted.goes_for {
            let Some(at) = self.life(named) else { return Said::Refused(Why::NotFound) };
            self.settle(at);
            operation = Some(&self.operations[at]);
        }
        if let Some(before) = self.decided(&wanted) {
            let same = before.terms == Issue { id: before.id, ..wanted };
            return if same { said(before, false) } else { Said::Refused(Why::Decision) };
        }
        if let (Some(operation), Wanted::Attempt { attempt, effect, .. }) = (operation, wanted.goes_for) {
            match operation.stage() {
                Stage::Known(Fact::Completed) => return Said::Refused(Why::Completed),
                Stage::Known(Fact::Failed) => return Said::Refused(Why::Failed),
                _ if attempt != operation.due() || effect.is_some_and(|effect| effect > attempt) => {
                    return Said::Refused(Why::Attempt(operation.due()));
                }
                _ => {}
            }
        }
        if let Some(why) = wanted.epoch.and_then(|epoch| self.off_register(epoch)) {
            return Said::Refused(why);
        }
        if wanted.expires <= self.wall {
            return Said::Refused(Why::Expired);
        }
        let goes_for = match wanted.goes_for {
            Wanted::Attempt { named, attempt, effect } => {
                let effect = effect.unwrap_or(attempt);
                For::Attempt { birth: named.birth, attempt, effect, consumed: false }
            }
            Wanted::Resource { resource, uses } => For::Resource { resource, uses, elected: Vec::new() },
        };
        let (id, decision) = (wanted.id, wanted.decision);
        self.capabilities.push(Capability { id, decision, goes_for, terms: wanted, revoked: false });
        said(self.capabilities.last().expect("it was just issued"), true)
    }

    /// The capability that the same decision led to: on an attempt at an operation, or in the namespace.
    fn decided(&self, wanted: &Issue) -> Option<&Capability> {
        self.capabilities.iter().filter(|one| !self.is_capability_gone(one)).find(|one| {
            let same_kind = match (&one.terms.goes_for, &wanted.goes_for) {
                (Wanted::Attempt { named: a, attempt: n, .. }, Wanted::Attempt { named: b, attempt: m, .. }) => {
                    a == b && n == m
                }
                (Wanted::Resource { .. }, Wanted::Resource { .. }) => true,
                _ => false,
            };
            same_kind && one.decision == wanted.decision
        })
    }

    pub(super) fn revoke(&mut self, asker: Asker, id: CapabilityId) -> Said {
        let Some(at) = self.capability(id).filter(|_| asker.reaches) else { return Said::Refused(Why::NotFound) };
        let one = &mut self.capabilities[at];
        if !one.revoked && one.left() == 0 {
            return Said::Refused(Why::Consumed);
        }
        one.revoked = true;
        said(one, false)
    }

    pub(super) fn bump(&mut self, asker: Asker, scope: u8, expected: u64) -> Said {
        let stands = self.register_value(asker.of_tenant, scope);
        if stands != expected {
            return Said::Refused(Why::Stands(stands));
        }
        self.drawn += 1;
        self.registers.insert((asker.of_tenant, scope), self.drawn);
        Said::Register(self.drawn)
    }

    fn off_register(&self, binding: Binding) -> Option<Why> {
        match binding.value.cmp(&self.register_value(true, binding.scope)) {
            core::cmp::Ordering::Less => Some(Why::EpochStale),
            core::cmp::Ordering::Greater => Some(Why::EpochUnknown),
            core::cmp::Ordering::Equal => None,
        }
    }

    /// Consumed, revoked, expired, unknown, bound elsewhere, epoch: in this order.
    pub(super) fn present(&self, operation: Option<&Operation>, request: &Request) -> Result<Good, Why> {
        let own = request.epoch.and_then(|epoch| self.off_register(epoch));
        let Some(id) = request.capability else {
            return match own {
                Some(why) => Err(why),
                None if self.policy.must_present => Err(Why::Required),
                None => Ok(Good::default()),
            };
        };
        let Some(at) = self.capability(id) else { return Err(Why::Invalid) };
        let one = &self.capabilities[at];
        let birth = operation.map(|operation| operation.named.birth);
        let elected_this = match &one.goes_for {
            For::Resource { elected, .. } => birth.is_some_and(|birth| elected.contains(&birth)),
            For::Attempt { .. } => false,
        };
        if one.left() == 0 || elected_this {
            return Err(Why::Consumed);
        }
        if one.revoked {
            return Err(Why::Revoked);
        }
        if self.wall >= one.terms.expires {
            return Err(Why::Expired);
        }
        let (fits, attempt, effect) = match &one.goes_for {
            For::Attempt { birth: bound, attempt, effect, .. } => (birth == Some(*bound), *attempt, Some(*effect)),
            // Decided before any attempt was known: it is good for first ones.
            For::Resource { resource, .. } => {
                let of = operation.map_or(request.resource, |operation| operation.resource);
                (of == Some(*resource), 1, None)
            }
        };
        if !fits {
            return Err(Why::Binding);
        }
        if let Some(why) = one.terms.epoch.and_then(|epoch| self.off_register(epoch)).or(own) {
            return Err(why);
        }
        Ok(Good { capability: Some(id), attempt: Some(attempt), effect, epoch: one.terms.epoch })
    }

    pub(super) fn consume(&mut self, id: CapabilityId, operation: usize) {
        let birth = self.operations[operation].named.birth;
        let at = self.capability(id).expect("it was presented");
        match &mut self.capabilities[at].goes_for {
            For::Attempt { consumed, .. } => *consumed = true,
            For::Resource { elected, .. } => elected.push(birth),
        }
    }

    /// Puts a refusal on record: with the capability, else with the operation, if anything was presented.
    pub(super) fn record(&mut self, operation: Option<usize>, request: &Request, why: Why) {
        let known = request.capability.filter(|id| self.capability(*id).is_some());
        let presented = request.capability.is_some() || request.message.is_some();
        let subject = match (known, operation) {
            (Some(id), _) => Subject::Capability(id),
            (None, Some(at)) if presented => Subject::Operation(self.operations[at].named.birth),
            _ => return,
        };
        let presented = (request.capability, request.message, why);
        let known = self.refusals.iter().position(|row| row.subject == subject && row.presented == presented);
        match known {
            Some(at) => self.refusals[at].times += 1,
            None if self.refusals_of(subject) < 64 => self.refusals.push(Refusal { subject, presented, times: 1 }),
            None => {}
        }
    }

    /// News of repeats, for everything that is kept with a capability that is still there.
    pub(super) fn count_repeated(&mut self, id: CapabilityId, times: u32) -> Said {
        if self.capability(id).is_some() {
            let kept = self.refusals.iter_mut().filter(|row| row.subject == Subject::Capability(id));
            kept.for_each(|row| row.times += times);
        }
        Said::Counted
    }
}

fn said(one: &Capability, created: bool) -> Said {
    Said::Capability { id: one.id, left: one.left(), created, revoked: one.revoked }
}
