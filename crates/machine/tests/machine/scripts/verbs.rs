//! From a script's line to a command: every verb that asks for something.

use goldenscript::ArgumentConsumer;
use hapax_machine::command::{
    AdvanceWall, Bootstrap, BumpEpoch, Caller, Candidate, Claim, Command, CountedRefusal, CreateToken, Escalate,
    Evidence, Expected, ForceFence, Issue, IssueBounded, Lapse, Message, PutNamespace, PutTenant, RaiseFloors,
    ReconcileLease, Register, Renew, Repair, RepairKind, Report, Resolve, ResultData, Revoke, RevokeToken,
};
use hapax_machine::epoch::Binding;
use hapax_machine::ids::{
    Attempt, AuthorityEpoch, Birth, CapabilityId, ClaimId, ClientId, Consumer, CorrelationId, DecisionId, Digest,
    EpochScope, ExecutionId, InternalKey, LeaseEpoch, LeaseTime, MessageId, NamespaceName, OperationId, OperationKey,
    Resource, ScopeOf, Slot, TenantId, Version, WallTime, internal_key, slot,
};
use hapax_machine::namespace::{
    Attempts, Authority, ConflictStyle, ExpiredKeys, Floors, NamespaceRecord, OnLapse, Scope,
};
use hapax_machine::operation::{Definite, State};
use hapax_machine::refusal::Subject;
use hapax_machine::tenant::{TenantRecord, TokenRecord};

use super::{Fallible, Trace};
use crate::memory::{bytes16, namespace};

impl Trace {
    /// The command that a line asks for.
    pub(super) fn command(&mut self, name: &str, who: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        Ok(match name {
            "pass" | "elect" | "stamp" => self.time(name, args)?,
            "bootstrap" => bootstrap(args.lookup_parse("wall")?.unwrap_or(0)),
            "register" => register(who, args)?,
            "claim" => Command::Claim(self.claim(who, args)?),
            "renew" => self.renew(who, args)?,
            "report" => self.report(who, args)?,
            "evidence" => self.evidence(who, args)?,
            "resolve" => self.resolve(who, args)?,
            "issue" => self.issue(who, args)?,
            "issue-bounded" => self.issue_bounded(who, args)?,
            "revoke" => self.revoke(who, args)?,
            "bump" => self.bump(who, args)?,
            "reconcile" => self.reconcile(who, args)?,
            "escalate" | "deescalate" => self.escalate(name == "escalate", who, args)?,
            "fence" => self.fence(who, args)?,
            "quarantine" | "release" | "close" | "supersede" => self.repair(name, who, args)?,
            "lapse" => self.lapse(&who, args)?,
            "settle" => Command::Settle(row(&who.tenant, args)?),
            "floors" => floors(&who, args)?,
            "count" => self.count(args)?,
            "namespace" => put_namespace(who, args)?,
            "tenant" => put_tenant(who, args)?,
            "token" => create_token(who, args)?,
            "revoke-token" => Command::RevokeToken(RevokeToken { caller: who, id: positional(args, "token")? }),
            "advance" => advance(args)?,
            other => return Err(format!("unknown command {other}").into()),
        })
    }

    pub(super) fn claim(&mut self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Claim> {
        self.calls += 1;
        let named = register(caller, args)?;
        let Command::Register(named) = named else { return Err("a registration".into()) };
        let execution_id = ExecutionId { slot: named.slot, random: bytes16(self.calls) };
        let claim_id = claim_id(args, "id")?;
        self.drawn.push((format!("x-{}", claim_name(&claim_id)), execution_id));
        let capability_id = text(args, "cap").map(|name| self.capability(&name));
        let epoch = self.binding(&named.caller, args)?;
        Ok(Claim {
            caller: named.caller,
            namespace: named.namespace,
            internal_key: named.internal_key,
            slot: named.slot,
            digest: named.digest,
            claim_id,
            owner: text(args, "owner").unwrap_or("worker".into()),
            lease_ms: args.lookup_parse("lease")?.unwrap_or(10_000),
            attempt: args.lookup_parse("attempt")?.map(Attempt),
            correlation_id: named.correlation_id,
            execution_id,
            capability_id,
            message: message(args)?,
            epoch,
            resource: named.resource,
            key_created_at: named.key_created_at,
        })
    }

    fn renew(&self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let (execution_id, lease_epoch) = self.execution_under(args)?;
        let lease_ms = args.lookup_parse("lease")?.unwrap_or(10_000);
        Ok(Command::Renew(Renew { caller, execution_id, lease_epoch, lease_ms }))
    }

    fn report(&self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let (execution_id, lease_epoch) = self.execution_under(args)?;
        let outcome = outcome(args)?;
        Ok(Command::Report(Report { caller, execution_id, lease_epoch, outcome, data: data(args)? }))
    }

    fn evidence(&self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let (execution_id, claim_id) = (self.execution(args)?, claim_id(args, "claim")?);
        let (outcome, proof) = (outcome(args)?.ok_or("evidence is definite")?, text(args, "proof"));
        Ok(Command::Evidence(Evidence { caller, execution_id, claim_id, outcome, data: data(args)?, proof }))
    }

    fn resolve(&self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let (execution_id, lease_epoch) = self.execution_under(args)?;
        let outcome = outcome(args)?.ok_or("a resolution is definite")?;
        let proof = text(args, "proof").unwrap_or("seen".into());
        Ok(Command::Resolve(Resolve { caller, execution_id, lease_epoch, outcome, data: data(args)?, proof }))
    }

    fn issue(&mut self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let key = row(&caller.tenant, args)?;
        let decision = text(args, "decision").ok_or("no decision given")?;
        let epoch = self.binding(&caller, args)?;
        Ok(Command::Issue(Issue {
            operation_id: self.operation(&key),
            caller,
            attempt: Attempt(args.lookup_parse("attempt")?.ok_or("no attempt given")?),
            expires_at: WallTime(args.lookup_parse("expires")?.unwrap_or(1_000_000_000)),
            epoch,
            effect_key_attempt: args.lookup_parse("effect")?.map(Attempt),
            capability_id: self.drawn_capability(text(args, "as").unwrap_or(decision.clone())),
            decision_id: DecisionId::new(decision),
        }))
    }

    fn issue_bounded(&mut self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let decision = text(args, "decision").ok_or("no decision given")?;
        let epoch = self.binding(&caller, args)?;
        Ok(Command::IssueBounded(IssueBounded {
            caller,
            namespace: NamespaceName::new(text(args, "ns").unwrap_or("plain".into())),
            resource: Resource::new(positional(args, "resource")?),
            expires_at: WallTime(args.lookup_parse("expires")?.unwrap_or(1_000_000_000)),
            max_uses: args.lookup_parse("uses")?.ok_or("no uses given")?,
            epoch,
            capability_id: self.drawn_capability(text(args, "as").unwrap_or(decision.clone())),
            decision_id: DecisionId::new(decision),
        }))
    }

    fn revoke(&self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let capability_id = self.capability(&positional(args, "capability")?);
        Ok(Command::Revoke(Revoke { caller, capability_id, reason: text(args, "reason") }))
    }

    fn reconcile(&self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let name = text(args, "ns");
        let seen = args.lookup_parse("seen")?.map(LeaseEpoch);
        let (owner, lease_ms) = (text(args, "owner"), args.lookup_parse("lease")?);
        let limit = args.lookup_parse("limit")?;
        let mut candidates = Vec::new();
        while let Some(key) = args.next_pos() {
            let operation = row_of(&caller.tenant, name.clone(), &key.value);
            let stored = self.memory.operations.get(&operation);
            let current = stored.and_then(|found| found.execution.as_ref()).map(|found| found.lease_epoch);
            candidates.push(Candidate {
                operation,
                birth: stored.map_or(Birth(0), |found| found.id.birth),
                lease_epoch: seen.or(current).unwrap_or_default(),
            });
        }
        Ok(Command::ReconcileLease(ReconcileLease {
            owner: owner.unwrap_or_else(|| caller.client.to_string()),
            caller,
            lease_ms: lease_ms.unwrap_or(10_000),
            limit: limit.unwrap_or(100),
            candidates,
        }))
    }

    fn escalate(&self, escalated: bool, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let (execution_id, lease_epoch) = self.execution_under(args)?;
        let (reason, proof) = why(args);
        Ok(Command::Escalate(Escalate { caller, execution_id, lease_epoch, escalated, reason, proof }))
    }

    fn fence(&self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let (execution_id, lease_epoch) = self.execution_under(args)?;
        let (reason, proof) = why(args);
        Ok(Command::ForceFence(ForceFence { caller, execution_id, lease_epoch, reason, proof }))
    }

    fn repair(&self, name: &str, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let namespace = text(args, "ns");
        let of = |key: &str, named: Option<String>| self.operation(&row_of(&caller.tenant, named, key));
        let operation_id = of(&positional(args, "key")?, namespace.clone());
        let kind = match name {
            "quarantine" => RepairKind::Quarantine,
            "release" => RepairKind::Release,
            "close" => RepairKind::Close,
            _ => {
                let other = text(args, "with").ok_or("no other operation given")?;
                RepairKind::Supersede(of(&other, text(args, "with_ns").or(namespace)))
            }
        };
        let expected = state(&text(args, "expect").ok_or("no state expected")?)?;
        let (reason, proof) = why(args);
        Ok(Command::Repair(Repair { caller, operation_id, kind, expected, reason, proof }))
    }

    fn lapse(&self, caller: &Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let operation = row(&caller.tenant, args)?;
        let stored = self.memory.operations.get(&operation).and_then(|found| found.execution.as_ref());
        let lease_epoch = args.lookup_parse("epoch")?.map(LeaseEpoch).or(stored.map(|found| found.lease_epoch));
        let deadline = args.lookup_parse("deadline")?.map(LeaseTime).or(stored.map(|found| found.deadline));
        Ok(Command::Lapse(Lapse {
            operation,
            lease_epoch: lease_epoch.unwrap_or_default(),
            deadline: deadline.unwrap_or_default(),
        }))
    }

    fn count(&self, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let subject = Subject::Capability(self.capability(&positional(args, "capability")?));
        let times = args.lookup_parse("times")?.ok_or("no times given")?;
        let keys = self.memory.refusals.keys().filter(|key| key.subject == subject);
        Ok(Command::CountRefusals(keys.map(|key| CountedRefusal { key: *key, times }).collect()))
    }

    /// The execution that a claim opened; any other name is an id that opened nothing.
    pub(super) fn execution(&self, args: &mut ArgumentConsumer<'_>) -> Fallible<ExecutionId> {
        let name = positional(args, "execution")?;
        let nobodys = ExecutionId { slot: nobodys_slot(), random: [9; 16] };
        let opened = |id: &ExecutionId| self.memory.executions.keys().any(|(_, known)| known == id);
        let found = self.drawn.iter().find(|(drawn, id)| *drawn == name && opened(id));
        Ok(found.map_or(nobodys, |(_, id)| *id))
    }

    /// An execution and the epoch that is named with it; `now` is the one that is stored.
    fn execution_under(&self, args: &mut ArgumentConsumer<'_>) -> Fallible<(ExecutionId, LeaseEpoch)> {
        let id = self.execution(args)?;
        let given = text(args, "epoch").ok_or("no epoch given")?;
        if given != "now" {
            return Ok((id, LeaseEpoch(given.parse()?)));
        }
        let row = self.memory.executions.iter().find(|((_, known), _)| *known == id).ok_or("no such execution")?;
        let newest = self.memory.operations.get(&row.1.operation).and_then(|found| found.execution.as_ref());
        Ok((id, newest.ok_or("nobody was elected")?.lease_epoch))
    }

    /// A value of a register; `now` is the one that it stands at.
    fn value(&self, caller: &Caller, scope: &EpochScope, given: &str) -> Fallible<AuthorityEpoch> {
        if given != "now" {
            return Ok(AuthorityEpoch(given.parse()?));
        }
        let row = self.memory.epochs.get(&(caller.tenant.clone(), scope.clone()));
        Ok(row.map_or(AuthorityEpoch(0), |row| row.value))
    }

    /// A register and a value of it: `scope@value`.
    fn binding(&self, caller: &Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Option<Binding>> {
        let Some(given) = text(args, "epoch") else { return Ok(None) };
        let (scope, value) = given.split_once('@').ok_or("a binding is scope@value")?;
        let scope = EpochScope::new(scope);
        Ok(Some(Binding { value: self.value(caller, &scope, value)?, scope }))
    }

    fn bump(&self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let scope = EpochScope::new(positional(args, "scope")?);
        let given = text(args, "expected").ok_or("no value expected")?;
        let expected = self.value(&caller, &scope, &given)?;
        Ok(Command::BumpEpoch(BumpEpoch { caller, scope, expected }))
    }

    /// The capability that was issued under a name; any other name is an id that nobody drew.
    pub(super) fn capability(&self, name: &str) -> CapabilityId {
        let issued = |id: &CapabilityId| self.memory.capabilities.keys().any(|(_, known)| known == id);
        let found = self.issued.iter().find(|(drawn, id)| drawn == name && issued(id));
        found.map_or(CapabilityId { slot: nobodys_slot(), random: [9; 16] }, |(_, id)| *id)
    }

    fn drawn_capability(&mut self, name: String) -> CapabilityId {
        self.calls += 1;
        let id = CapabilityId { slot: nobodys_slot(), random: bytes16(self.calls) };
        self.issued.push((format!("c-{name}"), id));
        id
    }

    /// The operation in a row; an id that was never drawn where there is none.
    fn operation(&self, key: &OperationKey) -> OperationId {
        let nobodys = OperationId { slot: nobodys_slot(), hash: key.hash, birth: Birth(0) };
        self.memory.operations.get(key).map_or(nobodys, |found| found.id)
    }
}

fn nobodys_slot() -> Slot {
    slot(&TenantId::new("t"), &NamespaceName::new("plain"), 0)
}

fn register(caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let namespace = NamespaceName::new(text(args, "ns").unwrap_or("plain".into()));
    let key = positional(args, "key")?;
    Ok(Command::Register(Register {
        internal_key: internal_key(&caller.tenant, &namespace, ScopeOf::Namespace, &key, None),
        slot: slot(&caller.tenant, &namespace, 0),
        digest: Digest(filled(&text(args, "digest").unwrap_or("d".into()))),
        correlation_id: text(args, "correlation").map(CorrelationId::new),
        resource: text(args, "resource").map(Resource::new),
        key_created_at: args.lookup_parse("made")?.map(WallTime),
        namespace,
        caller,
    }))
}

fn floors(who: &Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let namespace = NamespaceName::new(positional(args, "namespace")?);
    let floors = Floors {
        compact_before: WallTime(args.lookup_parse("compact")?.unwrap_or(0)),
        forget_before: WallTime(args.lookup_parse("forget")?.unwrap_or(0)),
    };
    Ok(Command::RaiseFloors(RaiseFloors { tenant: who.tenant.clone(), namespace, floors }))
}

fn bootstrap(wall_ms: u64) -> Command {
    use Attempts::{Automatic, Explicit};
    use OnLapse::{Takeover, Unknown};
    let ietf = NamespaceRecord { conflict_style: ConflictStyle::Ietf, ..namespace("t", "ietf", Unknown, Automatic) };
    let namespaces = vec![
        namespace("t", "plain", Unknown, Automatic),
        namespace("t", "over", Takeover, Automatic),
        namespace("t", "explicit", Unknown, Explicit),
        namespace("t", "explicit-over", Takeover, Explicit),
        ietf,
        namespace("u", "plain", Unknown, Automatic),
    ];
    let (tokens, tenants) = (Vec::new(), Vec::new());
    Command::Bootstrap(Bootstrap { cluster_id: [7; 16], wall_ms, namespaces, tokens, tenants })
}

fn put_namespace(caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let name = positional(args, "namespace")?;
    let tenant = text(args, "of").unwrap_or_else(|| caller.tenant.to_string());
    let mut record = namespace(&tenant, &name, OnLapse::Unknown, Attempts::Automatic);
    if text(args, "on_lapse").is_some_and(|given| given == "takeover") {
        record.on_lapse = OnLapse::Takeover;
    }
    if text(args, "attempts").is_some_and(|given| given == "explicit") {
        record.attempts = Attempts::Explicit;
    }
    if text(args, "authority").is_some_and(|given| given == "capability") {
        record.authority = Authority::Capability;
    }
    if text(args, "scope").is_some_and(|given| given == "client") {
        record.scope = Scope::Client;
    }
    record.transport_fields = text(args, "fields").into_iter().collect();
    record.partitions = args.lookup_parse("partitions")?.unwrap_or(1);
    record.retention.body_ms = args.lookup_parse("body")?.unwrap_or(record.retention.body_ms);
    record.retention.identity_ms = args.lookup_parse("identity")?.unwrap_or(record.retention.identity_ms);
    record.retention.expired_keys = match text(args, "keys").as_deref() {
        None | Some("new") => ExpiredKeys::New,
        Some("reject_older") => ExpiredKeys::RejectOlder,
        Some("durable") => ExpiredKeys::Durable,
        Some(other) => return Err(format!("no policy for expired keys: {other}").into()),
    };
    record.quota.open_operations = args.lookup_parse("open")?;
    record.reconcile_per_minute = args.lookup_parse("pace")?.unwrap_or(record.reconcile_per_minute);
    Ok(Command::PutNamespace(PutNamespace { caller, record, expected: expected(args)? }))
}

fn put_tenant(caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let mut record = TenantRecord::without_limits(TenantId::new(positional(args, "tenant")?));
    while let Some(flag) = args.next_pos() {
        match flag.value.as_str() {
            "system" => record.system = true,
            "disabled" => record.disabled = true,
            other => return Err(format!("no flag of a tenant: {other}").into()),
        }
    }
    Ok(Command::PutTenant(PutTenant { caller, record, expected: expected(args)? }))
}

fn create_token(caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let record = TokenRecord {
        id: positional(args, "token")?,
        secret_hash: filled(&text(args, "secret").unwrap_or("s".into())),
        tenant: text(args, "of").map_or(caller.tenant.clone(), TenantId::new),
        client: text(args, "holder").map_or(caller.client.clone(), ClientId::new),
        namespaces: Vec::new(),
        roles: 1,
        expires_at_ms: None,
        created_at: WallTime(0),
        revoked_at: None,
    };
    Ok(Command::CreateToken(CreateToken { caller, record }))
}

fn expected(args: &mut ArgumentConsumer<'_>) -> Fallible<Expected> {
    let version = args.lookup_parse("version")?.map(Version);
    Ok(version.map_or(Expected::Absent, Expected::Version))
}

fn advance(args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let target = WallTime(args.lookup_parse("wall")?.ok_or("a wall")?);
    let by_operator = args.next_pos().is_some();
    Ok(Command::AdvanceWall(AdvanceWall { target, by_operator }))
}

pub(super) fn text(args: &mut ArgumentConsumer<'_>, name: &str) -> Option<String> {
    args.lookup(name).map(|found| found.value.clone())
}

pub(super) fn positional(args: &mut ArgumentConsumer<'_>, what: &str) -> Fallible<String> {
    Ok(args.next_pos().ok_or_else(|| format!("no {what} given"))?.value.clone())
}

fn why(args: &mut ArgumentConsumer<'_>) -> (String, Option<String>) {
    (text(args, "reason").unwrap_or("because".into()), text(args, "proof"))
}

/// A delivery: `consumer/id`.
fn message(args: &mut ArgumentConsumer<'_>) -> Fallible<Option<Message>> {
    let Some(given) = text(args, "msg") else { return Ok(None) };
    let (consumer, id) = given.split_once('/').ok_or("a delivery is consumer/id")?;
    Ok(Some(Message { consumer: Consumer::new(consumer), id: MessageId::new(id) }))
}

fn state(name: &str) -> Fallible<State> {
    Ok(match name {
        "requested" => State::Requested,
        "executing" => State::Executing,
        "unknown" => State::Unknown,
        "not_applied" => State::NotApplied,
        "completed" => State::Completed,
        "failed" => State::Failed,
        other => return Err(format!("no state: {other}").into()),
    })
}

/// A claim id is the text itself, padded; so a script's names read back from rows.
fn claim_id(args: &mut ArgumentConsumer<'_>, name: &str) -> Fallible<ClaimId> {
    let given = text(args, name).ok_or_else(|| format!("no {name} given"))?;
    let mut bytes = [0; 16];
    bytes.get_mut(..given.len()).ok_or("a short claim id")?.copy_from_slice(given.as_bytes());
    Ok(ClaimId(bytes))
}

pub(super) fn claim_name(id: &ClaimId) -> String {
    String::from_utf8_lossy(&id.0).trim_end_matches('\0').to_owned()
}

fn outcome(args: &mut ArgumentConsumer<'_>) -> Fallible<Option<Definite>> {
    Ok(match positional(args, "outcome")?.as_str() {
        "completed" => Some(Definite::Completed),
        "failed" => Some(Definite::Failed),
        "not_applied" => Some(Definite::NotApplied),
        "unknown" => None,
        other => return Err(format!("no outcome: {other}").into()),
    })
}

fn data(args: &mut ArgumentConsumer<'_>) -> Fallible<ResultData> {
    Ok(ResultData {
        status_code: args.lookup_parse("status")?,
        result: text(args, "result").map(String::into_bytes),
        external_id: text(args, "external"),
        reason: text(args, "reason"),
        ..ResultData::default()
    })
}

fn filled(name: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(name.bytes()).for_each(|(byte, letter)| *byte = letter);
    bytes
}

pub(super) fn row(tenant: &TenantId, args: &mut ArgumentConsumer<'_>) -> Fallible<OperationKey> {
    let name = text(args, "ns");
    Ok(row_of(tenant, name, &positional(args, "key")?))
}

fn row_of(tenant: &TenantId, namespace: Option<String>, key: &str) -> OperationKey {
    let name = NamespaceName::new(namespace.unwrap_or("plain".into()));
    let key: InternalKey = internal_key(tenant, &name, ScopeOf::Namespace, key, None);
    OperationKey::new(tenant, &key)
}
