//! From answers and rows to a script's text.

use std::fmt::Write as _;

use goldenscript::ArgumentConsumer;
use hapax_machine::capability::{Bound, CapabilityRecord};
use hapax_machine::change::{Change, Changes, Event};
use hapax_machine::command::{Caller, Message};
use hapax_machine::evidence::{EvidenceRecord, linked};
use hapax_machine::ids::{CapabilityId, EpochScope, ExecutionId, NamespaceName, OperationId, OperationKey};
use hapax_machine::inbox::InboxRecord;
use hapax_machine::namespace::ConflictStyle;
use hapax_machine::operation::{Execution, OperationRecord, OutcomeRecord};
use hapax_machine::outcome::{Answer, Grant, Receipt, ReconcileItem, Standing};
use hapax_machine::read::{self, Reading};
use hapax_machine::refusal::RefusalRecord;

use super::verbs::{claim_name, positional, row};
use super::{Fallible, Trace};

impl Trace {
    /// What a line asks to be shown; `None` where it asks for something else.
    pub(super) fn show(
        &mut self,
        what: &str,
        who: &Caller,
        args: &mut ArgumentConsumer<'_>,
    ) -> Fallible<Option<String>> {
        Ok(Some(match what {
            "head" => self.head(),
            "look" => self.reading(read::by_execution(&self.memory, who, &self.execution(args)?)?),
            "read" => {
                let key = row(&who.tenant, args)?;
                let reading = read::by_key(&self.memory, who, &key)?;
                if let Some(reading) = &reading {
                    let by_id = read::by_id(&self.memory, who, &reading.record.id)?;
                    assert_eq!(by_id.as_ref(), Some(reading), "an operation reads the same by id");
                }
                self.reading(reading)
            }
            "rows" => self.rows(&row(&who.tenant, args)?),
            "capability" => {
                let id = self.capability(&positional(args, "capability")?);
                let found = read::capability(&self.memory, who, &id)?;
                found.map_or("absent".into(), |record| self.capability_text(&record)) + "\n"
            }
            "stands" => {
                let scope = EpochScope::new(positional(args, "scope")?);
                format!("{}\n", read::register(&self.memory, who, &scope)?)
            }
            "status" => {
                let name = NamespaceName::new(positional(args, "namespace")?);
                let status = self.memory.statuses.get(&(who.tenant.clone(), name)).copied().unwrap_or_default();
                let (floors, pace) = (status.floors, status.pace);
                format!(
                    "open={} unknown={} compact_before={} forget_before={} pace={}@{}\n",
                    status.open,
                    status.unknown,
                    floors.compact_before,
                    floors.forget_before,
                    pace.granted,
                    pace.since
                )
            }
            "refusals" => {
                let shown = |key| read::refusal(&self.memory, who, key).transpose();
                let found = self.memory.refusals.keys().filter_map(shown).collect::<Result<Vec<_>, _>>()?;
                lines(found.iter().map(|row| self.refusal_text(row)))
            }
            "inbox" => lines(self.memory.inbox.values().map(|row| self.inbox_text(row))),
            "events" => {
                let news = lines(self.memory.events[self.watched..].iter().map(|event| self.event_text(event)));
                self.watched = self.memory.events.len();
                news
            }
            "chain" => self.chain(&row(&who.tenant, args)?),
            "locally" => {
                let command = self.claim(who.clone(), args)?;
                self.locally(&command)?
            }
            "reclaim" => format!("{} rows\n", self.memory.reclaim(|_| true)),
            _ => return Ok(None),
        }))
    }

    fn head(&self) -> String {
        let head = &self.memory.head;
        let clocks = &head.clocks;
        let hash = head.state_hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect::<String>();
        format!(
            "incarnation={} term={} lead={} lease_time={} wall={} grants={} hash={hash}\n",
            head.incarnation, clocks.term, clocks.lead_ms, clocks.lease_time, clocks.wall, head.grants.0
        )
    }

    fn locally(&self, command: &hapax_machine::command::Claim) -> Fallible<String> {
        let found = read::definite(&self.memory, hapax_machine::ids::GroupId(0), self.index, command)?;
        let Some(read::Definite { outcome, repeated }) = found else { return Ok("not from here\n".into()) };
        let mut text = format!("here: {} at {}", self.answer(&outcome.answer), outcome.revision);
        if !repeated.is_empty() {
            write!(
                text,
                ", repeats {}",
                repeated.iter().map(|one| one.times.to_string()).collect::<Vec<_>>().join("+")
            )?;
        }
        Ok(text + "\n")
    }

    fn rows(&self, key: &OperationKey) -> String {
        let mut lines = Vec::new();
        if let Some(record) = self.memory.operations.get(key) {
            lines.push(operation_text(record, |id| self.operation_name(id)));
            lines.extend(record.execution.as_ref().map(|execution| format!("newest {}", self.stored(execution))));
        }
        for row in self.memory.executions.values().filter(|row| row.operation == *key) {
            lines.extend(row.past.as_ref().map(|past| format!("past {}", self.stored(past))));
        }
        for ((_, _, claim), row) in self.memory.grants.iter().filter(|((of, ..), _)| of == key) {
            let (execution, claim) = (self.name(&row.execution), claim_name(claim));
            lines.push(format!("grant {claim} {execution} client={} epoch={}", row.client, row.lease_epoch));
        }
        for ((_, _, number), row) in self.memory.evidence.iter().filter(|((of, ..), _)| of == key) {
            lines.push(format!("evidence {number} {}", self.evidence_text(row)));
        }
        lines.into_iter().map(|line| line + "\n").collect()
    }

    fn evidence_text(&self, row: &EvidenceRecord) -> String {
        let mut text = format!("{:?} by {}", row.source, row.client);
        add(&mut text, "about", row.execution.as_ref().map(|id| self.name(id)), ' ');
        add(&mut text, "said", row.outcome.map(|outcome| format!("{outcome:?}")), ' ');
        let (proof, external) = (&row.proof, &row.external_id);
        write!(text, " met {:?} proof={proof:?} external={external:?}", row.met).expect("a string grows");
        add(&mut text, "reason", row.reason.as_ref(), '=');
        text
    }

    /// Follows the links of the rows of evidence to the one that the operation carries.
    fn chain(&self, key: &OperationKey) -> String {
        let Some(record) = self.memory.operations.get(key) else { return "absent\n".into() };
        let (mut before, mut followed) = (None, 0);
        for ((of, birth, _), row) in &self.memory.evidence {
            if of == key && *birth == record.id.birth {
                let link = linked(before, row);
                assert_eq!(row.chain, link, "a row carries its own link");
                (before, followed) = (Some(link), followed + 1);
            }
        }
        assert_eq!(before, record.chain, "the links lead to the operation's");
        format!("{followed} links\n")
    }

    fn stored(&self, execution: &Execution) -> String {
        let mut text = format!(
            "{} attempt={} {:?} owner={} client={} claim={} epoch={} deadline={} renewed={} sole={} unknown_since={:?}",
            self.name(&execution.id),
            execution.attempt,
            execution.state,
            execution.owner,
            execution.client,
            claim_name(&execution.claim_id),
            execution.lease_epoch,
            execution.deadline,
            execution.renewed,
            execution.sole_holder,
            execution.unknown_since.map(|since| since.0),
        );
        add(&mut text, "capability", execution.capability.as_ref().map(|id| self.capability_name(id)), '=');
        for binding in &execution.authority {
            write!(text, " bound={}@{}", binding.scope, binding.value).expect("a string grows");
        }
        let reconciler = execution.reconciler.as_ref();
        add(&mut text, "reconciler", reconciler.map(|held| format!("{}/{}", held.owner, held.client)), '=');
        add(&mut text, "escalated", execution.escalated_at, '=');
        text + &execution.outcome.as_ref().map(outcome_text).unwrap_or_default()
    }

    pub(super) fn name(&self, id: &ExecutionId) -> String {
        let named = self.drawn.iter().find(|(_, known)| known == id);
        named.map_or("x?".into(), |(name, _)| name.clone())
    }

    fn capability_name(&self, id: &CapabilityId) -> String {
        let named = self.issued.iter().find(|(_, known)| known == id);
        named.map_or("c?".into(), |(name, _)| name.clone())
    }

    /// An operation by its birth: scripts know no other name of it that is short.
    fn operation_name(&self, id: &OperationId) -> String {
        format!("#{}", id.birth)
    }

    fn reading(&self, reading: Option<Reading>) -> String {
        let Some(reading) = reading else { return "absent\n".into() };
        let record = &reading.record;
        let mut text = format!("{:?}", reading.state);
        if let Some(execution) = &record.execution {
            write!(text, " {} attempt={}", self.name(&execution.id), execution.attempt).expect("a string grows");
        }
        add(&mut text, "epoch", reading.lease_epoch, '=');
        add(&mut text, "remaining", reading.lease_remaining_ms, '=');
        add(&mut text, "quarantined", record.quarantined.then_some("yes"), '=');
        if let Some((held, remaining_ms)) = &reading.reconciler {
            write!(text, " reconciler={} for={remaining_ms}", held.owner).expect("a string grows");
        }
        let escalated = record.execution.as_ref().and_then(|execution| execution.escalated_at);
        add(&mut text, "escalated", escalated, '=');
        text += &record.outcome().as_ref().map(outcome_text).unwrap_or_default();
        add(&mut text, "result", reading.result.map(|body| String::from_utf8_lossy(&body).into_owned()), '=');
        add(&mut text, "result", reading.result_compacted.then_some("compacted"), '=');
        text + "\n"
    }

    pub(super) fn answer(&self, answer: &Answer) -> String {
        match answer {
            Answer::Claimed(grant) => self.grant_text(grant),
            Answer::InProgress(standing) => format!("in progress: {}", self.standing(standing)),
            Answer::DuplicateDelivery(standing) => format!("duplicate delivery: {}", self.standing(standing)),
            Answer::Replayed(Receipt { standing, outcome, result }) => {
                let mut text = format!("replayed: {}{}", self.standing(standing), outcome_text(outcome));
                add(&mut text, "result", result.as_ref().map(|body| String::from_utf8_lossy(body)), '=');
                text
            }
            Answer::Renewed(lease) => format!("renewed epoch={} remaining={}", lease.lease_epoch, lease.remaining_ms),
            Answer::Accepted(standing) => format!("accepted: {}", self.standing(standing)),
            Answer::Registered { standing, created } => {
                format!("{}: {}", if *created { "registered" } else { "known" }, self.standing(standing))
            }
            Answer::Capability { record, created } => {
                format!("{} {}", if *created { "issued" } else { "stands" }, self.capability_text(record))
            }
            Answer::Epoch(value) => format!("stands at {value}"),
            Answer::Reconciling(items) => {
                format!(
                    "reconcile [{}]",
                    items.iter().map(|item| self.item_text(item)).collect::<Vec<_>>().join("; ")
                )
            }
            Answer::Floors(floors) => {
                format!("floors compact_before={} forget_before={}", floors.compact_before, floors.forget_before)
            }
            Answer::Namespace(record) => {
                let since = record.takeover_since.map_or(String::new(), |since| format!(" takeover_since={since}"));
                format!("namespace {} version={}{since}", record.name, record.version)
            }
            Answer::Tenant(record) => format!(
                "tenant {} version={} system={} disabled={}",
                record.id, record.version, record.system, record.disabled
            ),
            Answer::Token(record) => format!(
                "token {} of {} for {} created={} revoked={:?}",
                record.id,
                record.tenant,
                record.client,
                record.created_at,
                record.revoked_at.map(|at| at.0)
            ),
            Answer::Refused(refused) => {
                let style = if refused.conflict_style == ConflictStyle::Ietf { " (ietf)" } else { "" };
                let whose = if refused.operation_id.is_none() { "" } else { " of an operation" };
                format!("refused: {:?}{whose}{style}", refused.reason)
            }
            other => format!("{other:?}"),
        }
    }

    fn grant_text(&self, grant: &Grant) -> String {
        let key = grant.effect_key.rsplit('-').next().unwrap_or_default();
        format!(
            "claimed {} attempt={} epoch={} remaining={} effect=…-{key}",
            self.name(&grant.execution_id),
            grant.attempt,
            grant.lease.lease_epoch,
            grant.lease.remaining_ms
        )
    }

    fn item_text(&self, item: &ReconcileItem) -> String {
        let key = item.effect_key.rsplit('-').next().unwrap_or_default();
        format!(
            "{} attempt={} epoch={} remaining={} unknown_since={} effect=…-{key}",
            self.name(&item.execution_id),
            item.attempt,
            item.lease.lease_epoch,
            item.lease.remaining_ms,
            item.unknown_since
        )
    }

    fn standing(&self, standing: &Standing) -> String {
        let mut text = format!("{:?}", standing.state);
        if let Some(id) = &standing.execution_id {
            write!(text, " {} attempt={}", self.name(id), standing.attempt).expect("a string grows");
        }
        add(&mut text, "remaining", standing.lease_remaining_ms, '=');
        text
    }

    fn capability_text(&self, record: &CapabilityRecord) -> String {
        let mut text = format!("{} of {}", self.capability_name(&record.id), record.decision);
        match &record.bound {
            Bound::Attempt { operation, attempt, effect_attempt, consumed } => {
                let name = self.operation_name(operation);
                write!(text, " for {name} attempt={attempt} effect=…-a{effect_attempt}").expect("a string grows");
                add(&mut text, "consumed", consumed.as_ref().map(|by| self.name(&by.execution)), '=');
            }
            Bound::Resource { resource, .. } => write!(text, " for {resource}").expect("a string grows"),
        }
        write!(text, " left={} expires={}", record.uses_left(), record.expires_at).expect("a string grows");
        add(&mut text, "bound", record.authority.as_ref().map(|it| format!("{}@{}", it.scope, it.value)), '=');
        add(&mut text, "revoked", record.revoked.as_ref().map(|revoked| &revoked.client), '=');
        add(&mut text, "refusals", (record.refusals > 0).then_some(record.refusals), '=');
        text
    }

    fn refusal_text(&self, row: &RefusalRecord) -> String {
        let mut text = format!("{:?} times={}", row.reason, row.times);
        add(&mut text, "capability", row.capability.as_ref().map(|id| self.capability_name(id)), '=');
        add(&mut text, "message", row.message.as_ref().map(message_text), '=');
        add(&mut text, "known", row.known_redelivery.then_some("yes"), '=');
        add(&mut text, "operation", row.operation.as_ref().map(|id| self.operation_name(id)), '=');
        add(&mut text, "state", row.state.map(|state| format!("{state:?}")), '=');
        add(&mut text, "attempt", row.attempt, '=');
        add(&mut text, "correlation", row.correlation_id.as_ref(), '=');
        write!(text, " by {} first={} last={}", row.client, row.first_at, row.last_at).expect("a string grows");
        text
    }

    fn inbox_text(&self, row: &InboxRecord) -> String {
        let mut text = format!("{} for {}", message_text(&row.message), self.operation_name(&row.operation));
        add(&mut text, "capability", row.capability.as_ref().map(|id| self.capability_name(id)), '=');
        write!(text, " claim={} by {} at={}", claim_name(&row.claim_id), row.client, row.at).expect("a string grows");
        text
    }

    fn event_text(&self, event: &Event) -> String {
        let mut text = format!("{}:{} {}", event.revision, event.part, self.operation_name(&event.operation));
        write!(text, " {:?} attempt={}", event.state, event.attempt).expect("a string grows");
        add(&mut text, "execution", event.execution.as_ref().map(|id| self.name(id)), '=');
        add(&mut text, "escalated", event.escalated.then_some("yes"), '=');
        add(&mut text, "quarantined", event.quarantined.then_some("yes"), '=');
        text
    }
}

fn lines(texts: impl Iterator<Item = String>) -> String {
    texts.map(|text| text + "\n").collect()
}

fn operation_text(record: &OperationRecord, name: impl Fn(&OperationId) -> String) -> String {
    let mut text = format!(
        "operation birth={} grants={} evidence={} quarantined={} created={} updated={} terminal={:?}",
        record.id.birth,
        record.grants,
        record.evidence,
        record.quarantined,
        record.created_at,
        record.updated_at,
        record.terminal_at.map(|at| at.0),
    );
    add(&mut text, "resource", record.resource.as_ref(), '=');
    add(&mut text, "capabilities", (record.capabilities > 0).then_some(record.capabilities), '=');
    add(&mut text, "refusals", (record.refusals > 0).then_some(record.refusals), '=');
    add(&mut text, "made", record.key_created_at, '=');
    add(&mut text, "superseded_by", record.superseded_by.as_ref().map(&name), '=');
    add(&mut text, "supersedes", record.supersedes.as_ref().map(&name), '=');
    add(&mut text, "closed", record.closed.as_ref().map(|closed| &closed.client), '=');
    text
}

fn message_text(message: &Message) -> String {
    format!("{}/{}", message.consumer, message.id)
}

fn add(text: &mut String, name: &str, value: Option<impl std::fmt::Display>, sign: char) {
    if let Some(value) = value {
        write!(text, " {name}{sign}{value}").expect("a string grows");
    }
}

fn outcome_text(outcome: &OutcomeRecord) -> String {
    let mut text = format!(" outcome={:?}", outcome.outcome);
    add(&mut text, "status", outcome.status_code, '=');
    add(&mut text, "external", outcome.external_id.as_ref(), '=');
    add(&mut text, "reason", outcome.reason.as_ref(), '=');
    text
}

/// The rows that were written, by kind; the counts of a namespace go with the operations that they follow.
pub(super) fn rows_written(changes: &Changes) -> Option<String> {
    let name = |row: &Change| match row {
        Change::Namespace(row) => format!("namespace {}/{}", row.tenant, row.name),
        Change::Status(_, name, _) => format!("status {name}"),
        Change::Tenant(row) => format!("tenant {}", row.id),
        Change::Token(row) => format!("token {}", row.id),
        Change::Epoch(row) => format!("register {}", row.scope),
        Change::Operation { .. } => "operation".into(),
        Change::Execution(..) => "execution".into(),
        Change::Grant(..) => "grant".into(),
        Change::Body(..) => "body".into(),
        Change::Evidence(..) => "evidence".into(),
        Change::Capability(_) => "capability".into(),
        Change::Decision(..) => "decision".into(),
        Change::Use(..) => "use".into(),
        Change::Inbox(..) => "inbox".into(),
        Change::Refusal(..) => "refusal".into(),
    };
    let counted = changes.rows.iter().any(|row| matches!(row, Change::Operation { .. }));
    let told = changes.rows.iter().filter(|row| !(counted && matches!(row, Change::Status(..))));
    (!changes.rows.is_empty()).then(|| told.map(name).collect::<Vec<_>>().join(", "))
}
