//! What each party of a scope may say: everything on its menu, at any time, in any order, as often as they like.

use hapax_machine::command::{
    BumpEpoch, Candidate, Claim, Command, Escalate, Evidence, Expected, ForceFence, Issue, IssueBounded, Message,
    PutNamespace, RaiseFloors, ReconcileLease, Register, Renew, Repair, RepairKind, Report, Resolve, ResultData,
    Revoke,
};
use hapax_machine::epoch::Binding;
use hapax_machine::ids::{
    Attempt, AuthorityEpoch, CapabilityId, ClaimId, Consumer, DecisionId, Digest, EpochScope, ExecutionId,
    LeaseEpoch, MessageId, NamespaceName, Resource, Slot, WallTime,
};
use hapax_machine::namespace::Floors;
use hapax_machine::operation::{Definite, State};

use super::scope::{Scope, WRITES, internal_key, policies, row, tenant};
use super::world::World;
use crate::memory::{bytes16, caller};

/// The length of every lease: over after one [`super::world::Act::Pass`].
const LEASE_MS: u64 = 1;
/// When what expires does: with the second pass.
const EXPIRY: WallTime = WallTime(3);
const NEVER: WallTime = WallTime(u64::MAX);

/// Everything that may be said next.
pub(super) fn menu(scope: Scope, world: &World) -> Vec<Command> {
    let menu = Menu { world, said: Vec::new() };
    match scope {
        Scope::Single => menu.single(),
        Scope::Bounded => menu.bounded(),
        Scope::Epochs(_) => menu.epochs(),
        Scope::Reconcile => menu.reconcile(),
        Scope::Late => menu.late(),
        Scope::Repair => menu.repair(),
        Scope::Supersede => menu.supersede(),
        Scope::Retention => menu.retention(),
        Scope::Policy => menu.policy(),
    }
}

struct Menu<'w> {
    world: &'w World,
    said: Vec<Command>,
}

impl Menu<'_> {
    fn single(mut self) -> Vec<Command> {
        self.said.push(register(1));
        self.issue(1, 1, 1, EXPIRY, Some(0));
        self.issue(1, 2, 1, NEVER, None);
        self.issue(1, 3, 2, NEVER, None);
        self.revoke(2);
        self.bump(1);
        self.claim(Said { claim: 1, capability: Some(1), message: Some(1), ..Said::default() });
        self.claim(Said { claim: 2, capability: Some(2), message: Some(1), ..Said::default() });
        self.claim(Said { claim: 3, client: "v", capability: Some(2), message: Some(2), ..Said::default() });
        self.claim(Said { claim: 4, capability: Some(3), message: Some(1), ..Said::default() });
        self.claim(Said { claim: 5, capability: Some(2), digest: 2, ..Said::default() });
        self.claim(Said { claim: 6, key: 2, capability: Some(1), message: Some(1), ..Said::default() });
        self.claim(Said { claim: 8, key: 2, capability: Some(1), ..Said::default() });
        self.claim(Said { claim: 7, ..Said::default() });
        self.claim(Said { claim: 8, capability: Some(1), ..Said::default() });
        self.claim(Said { claim: 9, client: "v", capability: Some(3), ..Said::default() });
        self.report(&[Some(Definite::NotApplied), Some(Definite::Completed), None]);
        self.resolve("rec", &[Definite::NotApplied]);
        self.said
    }

    fn bounded(mut self) -> Vec<Command> {
        self.issue_bounded(1, 2, EXPIRY);
        self.issue_bounded(2, 1, NEVER);
        self.revoke(1);
        for key in 1..=3 {
            self.claim(Said { claim: key, key, capability: Some(1), resource: true, ..Said::default() });
        }
        self.claim(Said { claim: 4, capability: Some(1), resource: true, ..Said::default() });
        self.claim(Said { claim: 5, capability: Some(2), resource: true, ..Said::default() });
        self.claim(Said { claim: 6, key: 3, capability: Some(2), ..Said::default() });
        self.report(&[Some(Definite::NotApplied), Some(Definite::Completed)]);
        self.said
    }

    fn epochs(mut self) -> Vec<Command> {
        self.said.push(register(1));
        self.issue(1, 1, 1, NEVER, Some(0));
        self.bump(2);
        self.claim(Said { claim: 1, bound: Some(0), ..Said::default() });
        self.claim(Said { claim: 2, bound: Some(self.world.register()), ..Said::default() });
        self.claim(Said { claim: 3, client: "v", capability: Some(1), ..Said::default() });
        self.claim(Said { claim: 4, bound: Some(self.world.register() + 1), ..Said::default() });
        self.claim(Said { claim: 5, client: "v", ..Said::default() });
        self.renew();
        self.report(&[Some(Definite::Completed), None]);
        self.evidence(&[Definite::NotApplied]);
        self.said.push(Command::Settle(row(1)));
        self.said
    }

    fn reconcile(mut self) -> Vec<Command> {
        self.claim(Said { claim: 1, ..Said::default() });
        self.claim(Said { claim: 2, client: "v", ..Said::default() });
        self.report(&[Some(Definite::NotApplied), None]);
        for reconciler in ["r", "s"] {
            for epoch in self.world.epochs(1) {
                self.lease(reconciler, epoch);
            }
        }
        self.resolve("r", &[Definite::NotApplied, Definite::Completed]);
        for escalated in [true, false] {
            self.escalate(escalated);
        }
        self.said
    }

    fn late(mut self) -> Vec<Command> {
        self.claim(Said { claim: 1, ..Said::default() });
        self.claim(Said { claim: 2, client: "v", ..Said::default() });
        self.report(&[Some(Definite::NotApplied), Some(Definite::Completed), None]);
        self.evidence(&[Definite::NotApplied, Definite::Completed, Definite::Failed]);
        for epoch in self.world.epochs(1) {
            self.lease("r", epoch);
        }
        self.resolve("r", &[Definite::NotApplied, Definite::Completed]);
        self.said
    }

    fn repair(mut self) -> Vec<Command> {
        self.said.push(register(1));
        self.claim(Said { claim: 1, ..Said::default() });
        self.claim(Said { claim: 2, client: "v", ..Said::default() });
        self.report(&[Some(Definite::NotApplied), Some(Definite::Completed)]);
        self.evidence(&[Definite::Completed]);
        self.resolve("op", &[Definite::NotApplied]);
        self.fence();
        for kind in [RepairKind::Quarantine, RepairKind::Release, RepairKind::Close] {
            self.mend(1, kind);
        }
        self.said
    }

    fn supersede(mut self) -> Vec<Command> {
        for key in [1, 2] {
            self.said.push(register(key));
            self.claim(Said { claim: key, key, ..Said::default() });
        }
        self.claim(Said { claim: 3, client: "v", ..Said::default() });
        self.report(&[Some(Definite::NotApplied), Some(Definite::Completed)]);
        let successor = self.world.record(2).map(|record| RepairKind::Supersede(record.id));
        for kind in [RepairKind::Quarantine, RepairKind::Close].into_iter().chain(successor) {
            self.mend(1, kind);
        }
        if let Some(record) = self.world.record(1) {
            self.mend(2, RepairKind::Supersede(record.id));
        }
        self.said
    }

    fn retention(mut self) -> Vec<Command> {
        self.said.push(register(1));
        self.issue(1, 1, 1, NEVER, None);
        self.claim(Said { claim: 1, message: Some(1), ..Said::default() });
        self.claim(Said { claim: 2, client: "v", ..Said::default() });
        self.claim(Said { claim: 3, capability: Some(1), message: Some(1), ..Said::default() });
        self.report_with(
            &[Some(Definite::Completed)],
            &ResultData { result: Some(vec![1]), ..ResultData::default() },
        );
        self.report(&[Some(Definite::NotApplied), None]);
        self.evidence(&[Definite::Failed]);
        self.mend(1, RepairKind::Release);
        self.mend(1, RepairKind::Close);
        for (compact_before, forget_before) in [(u64::MAX, 0), (u64::MAX, u64::MAX), (0, 0)] {
            let floors = Floors { compact_before: WallTime(compact_before), forget_before: WallTime(forget_before) };
            let (tenant, namespace) = (tenant(), NamespaceName::new("n"));
            self.said.push(Command::RaiseFloors(RaiseFloors { tenant, namespace, floors }));
        }
        self.said
    }

    fn policy(mut self) -> Vec<Command> {
        self.said.push(register(1));
        self.issue(1, 1, 1, NEVER, None);
        self.claim(Said { claim: 1, ..Said::default() });
        self.claim(Said { claim: 2, client: "v", ..Said::default() });
        self.claim(Said { claim: 3, capability: Some(1), ..Said::default() });
        self.report(&[Some(Definite::Completed), None]);
        self.resolve("rec", &[Definite::NotApplied]);
        self.said.push(Command::Settle(row(1)));
        if self.world.ghost.writes < WRITES {
            let expected = Expected::Version(self.world.policy().version);
            let write = |record| PutNamespace { caller: caller("t", "ops"), record, expected };
            self.said.extend(policies().map(|record| Command::PutNamespace(write(record))));
        }
        self.said
    }

    fn claim(&mut self, said: Said) {
        let ids: Vec<Option<CapabilityId>> = match said.capability {
            None => vec![None],
            Some(number) => self.world.issued(number).into_iter().map(Some).collect(),
        };
        for capability_id in ids {
            let execution_id = ExecutionId { slot: Slot(7), random: bytes16(said.claim + 32 * self.world.lives()) };
            self.said.push(Command::Claim(Claim {
                caller: caller("t", said.client),
                namespace: NamespaceName::new("n"),
                internal_key: internal_key(said.key),
                slot: Slot(7),
                digest: Digest([said.digest; 32]),
                claim_id: ClaimId(bytes16(said.claim)),
                owner: said.client.into(),
                lease_ms: LEASE_MS,
                attempt: None,
                correlation_id: None,
                execution_id,
                capability_id,
                message: said
                    .message
                    .map(|id| Message { consumer: Consumer::new("q"), id: MessageId::new(id.to_string()) }),
                epoch: said.bound.map(binding),
                resource: said.resource.then(resource),
                key_created_at: None,
            }));
        }
    }

    fn issue(&mut self, key: u64, number: u64, attempt: u32, expires_at: WallTime, bound: Option<u64>) {
        let Some(record) = self.world.record(key) else { return };
        self.said.push(Command::Issue(Issue {
            caller: caller("t", "dec"),
            operation_id: record.id,
            decision_id: DecisionId::new(number.to_string()),
            attempt: Attempt(attempt),
            expires_at,
            epoch: bound.map(binding),
            effect_key_attempt: None,
            capability_id: self.world.drawn(number),
        }));
    }

    fn issue_bounded(&mut self, number: u64, max_uses: u32, expires_at: WallTime) {
        self.said.push(Command::IssueBounded(IssueBounded {
            caller: caller("t", "dec"),
            namespace: NamespaceName::new("n"),
            resource: resource(),
            decision_id: DecisionId::new(number.to_string()),
            expires_at,
            max_uses,
            epoch: None,
            capability_id: self.world.drawn(number),
        }));
    }

    fn revoke(&mut self, number: u64) {
        for capability_id in self.world.issued(number) {
            self.said.push(Command::Revoke(Revoke { caller: caller("t", "dec"), capability_id, reason: None }));
        }
    }

    /// As whoever knows where the register stands, so many times; and as whoever thinks that it was never bumped.
    fn bump(&mut self, times: usize) {
        let bump = |expected| {
            let (caller, scope) = (caller("t", "op"), EpochScope::new("s"));
            Command::BumpEpoch(BumpEpoch { caller, scope, expected: AuthorityEpoch(expected) })
        };
        if self.world.ghost.bumps < times {
            self.said.push(bump(self.world.register()));
        }
        if self.world.register() > 0 {
            self.said.push(bump(0));
        }
    }

    /// Every execution that there is, and every epoch that anybody may name with it.
    fn held(&self) -> Vec<(ExecutionId, LeaseEpoch)> {
        let of = |(id, key): (ExecutionId, u64)| self.world.epochs(key).into_iter().map(move |epoch| (id, epoch));
        self.world.executions().into_iter().flat_map(of).collect()
    }

    fn report(&mut self, outcomes: &[Option<Definite>]) {
        self.report_with(outcomes, &ResultData::default());
    }

    fn report_with(&mut self, outcomes: &[Option<Definite>], data: &ResultData) {
        for (execution_id, lease_epoch) in self.held() {
            for outcome in outcomes {
                let (caller, data, outcome) = (caller("t", "w"), data.clone(), *outcome);
                self.said.push(Command::Report(Report { caller, execution_id, lease_epoch, outcome, data }));
            }
        }
    }

    fn renew(&mut self) {
        for (execution_id, lease_epoch) in self.held() {
            let (caller, lease_ms) = (caller("t", "w"), LEASE_MS);
            self.said.push(Command::Renew(Renew { caller, execution_id, lease_epoch, lease_ms }));
        }
    }

    fn evidence(&mut self, outcomes: &[Definite]) {
        for (execution_id, _) in self.world.executions() {
            for outcome in outcomes {
                let (claim_id, data) = (ClaimId(bytes16(1)), ResultData::default());
                self.said.push(Command::Evidence(Evidence {
                    caller: caller("t", "w"),
                    execution_id,
                    claim_id,
                    outcome: *outcome,
                    data,
                    proof: None,
                }));
            }
        }
    }

    fn resolve(&mut self, client: &str, outcomes: &[Definite]) {
        for (execution_id, lease_epoch) in self.held() {
            for outcome in outcomes {
                let (data, proof, outcome) = (ResultData::default(), String::from("seen"), *outcome);
                let caller = caller("t", client);
                let resolve = Resolve { caller, execution_id, lease_epoch, outcome, data, proof };
                self.said.push(Command::Resolve(resolve));
            }
        }
    }

    fn lease(&mut self, client: &str, lease_epoch: LeaseEpoch) {
        let Some(record) = self.world.record(1) else { return };
        let candidate = Candidate { operation: record.key(), birth: record.id.birth, lease_epoch };
        self.said.push(Command::ReconcileLease(ReconcileLease {
            caller: caller("t", client),
            owner: client.into(),
            lease_ms: LEASE_MS,
            limit: 1,
            candidates: vec![candidate],
        }));
    }

    fn escalate(&mut self, escalated: bool) {
        for (execution_id, lease_epoch) in self.held() {
            let (caller, reason, proof) = (caller("t", "op"), String::new(), None);
            let escalate = Escalate { caller, execution_id, lease_epoch, escalated, reason, proof };
            self.said.push(Command::Escalate(escalate));
        }
    }

    fn fence(&mut self) {
        for (execution_id, lease_epoch) in self.held() {
            let (caller, reason, proof) = (caller("t", "op"), String::new(), None);
            self.said.push(Command::ForceFence(ForceFence { caller, execution_id, lease_epoch, reason, proof }));
        }
    }

    /// As whoever expects what stands, and as whoever expects the worst.
    fn mend(&mut self, key: u64, kind: RepairKind) {
        let Some(record) = self.world.record(key) else { return };
        for expected in [record.state(), State::Unknown] {
            let (caller, reason, proof, operation_id) = (caller("t", "op"), String::new(), None, record.id);
            self.said.push(Command::Repair(Repair { caller, operation_id, kind, expected, reason, proof }));
        }
    }
}

/// What a claim says, where it says more than its key.
#[derive(Debug, Clone, Copy)]
struct Said {
    claim: u64,
    client: &'static str,
    key: u64,
    digest: u8,
    capability: Option<u64>,
    message: Option<u64>,
    bound: Option<u64>,
    resource: bool,
}

impl Default for Said {
    fn default() -> Self {
        Self {
            claim: 0,
            client: "w",
            key: 1,
            digest: 1,
            capability: None,
            message: None,
            bound: None,
            resource: false,
        }
    }
}

fn register(key: u64) -> Command {
    Command::Register(Register {
        caller: caller("t", "dec"),
        namespace: NamespaceName::new("n"),
        internal_key: internal_key(key),
        slot: Slot(7),
        digest: Digest([1; 32]),
        correlation_id: None,
        resource: None,
        key_created_at: None,
    })
}

fn binding(value: u64) -> Binding {
    Binding { scope: EpochScope::new("s"), value: AuthorityEpoch(value) }
}

fn resource() -> Resource {
    Resource::new("r")
}
