//! Runs the golden scripts in `tests/scripts`: one per concept, each read as a trace of the protocol.
//! `UPDATE_GOLDENFILES=1` rewrites the expected answers; read the difference before it is committed.
//!
//! | command | does |
//! |---|---|
//! | `bootstrap [wall=MS]` | begins the cluster's life with the namespaces plain, over, explicit, ietf of tenant t, and plain of tenant u |
//! | `CLIENT: claim KEY id=ID [ns= digest= owner= lease= attempt= correlation=]` | claims; the claim id names the execution it may open: `x-ID` |
//! | `CLIENT: renew x-ID epoch=E [lease=]` | extends |
//! | `CLIENT: report x-ID epoch=E OUTCOME [external= status= result= reason=]` | reports |
//! | `CLIENT: evidence x-ID claim=ID OUTCOME [external= proof=]` | late evidence |
//! | `CLIENT: resolve x-ID epoch=E OUTCOME [proof= external=]` | resolves |
//! | `lapse KEY [ns= epoch= deadline=]` | the sweep; names what is stored unless told otherwise |
//! | `pass MS`, `elect`, `stamp wall= lead= [term=]` | a tick after MS; another leader; a raw stamp |
//! | `advance wall= [operator]` | moves the wall |
//! | `read KEY`, `look x-ID`, `rows KEY`, `head` | what stands |
//! | `begin`, `end` | what is between them is one log entry |
//!
//! Everywhere: `tenant=` (t), `only=NS` (a credential for one namespace), `by=MS` (not_after). Rows written stand in
//! brackets, so an answer without brackets changed nothing.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use goldenscript::{ArgumentConsumer, Command as Line, Runner};
use hapax_machine::change::Change;
use hapax_machine::clock::Stamp;
use hapax_machine::command::{
    AdvanceWall, Bootstrap, Caller, Claim, Command, Envelope, Evidence, Lapse, Renew, Report, Resolve, ResultData,
};
use hapax_machine::ids::{
    Attempt, ClaimId, CorrelationId, Digest, ExecutionId, InternalKey, LeaseEpoch, LeaseTime, NamespaceName,
    OperationKey, ScopeOf, TenantId, WallTime, internal_key, slot,
};
use hapax_machine::namespace::{Attempts, ConflictStyle, NamespaceRecord, OnLapse};
use hapax_machine::operation::{Definite, Execution, OutcomeRecord};
use hapax_machine::outcome::{Answer, Receipt, Standing};
use hapax_machine::read::{self, Reading};
use hapax_machine::{Changes, Outcome};

use crate::memory::{Memory, bytes16, caller, entry, namespace};

type Fallible<T> = Result<T, Box<dyn Error>>;

#[test]
fn every_script_answers_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut scripts: Vec<_> = folder
        .read_dir()
        .expect("the scripts are there")
        .map(|file| file.expect("a readable folder").path())
        .collect();
    scripts.sort();
    assert!(scripts.len() >= 10, "the scripts were found");
    for script in scripts {
        goldenscript::run(&mut Trace::default(), &script).expect("a script that can be run");
    }
}

/// A replica, and what the script said so far.
#[derive(Default)]
struct Trace {
    memory: Memory,
    index: u64,
    term: u64,
    stamp: Stamp,
    calls: u64,
    /// Every execution id drawn, with the name of the claim that drew it: each call of a claim draws another.
    drawn: Vec<(String, ExecutionId)>,
    batch: Option<Vec<Envelope>>,
}

impl Runner for Trace {
    fn run(&mut self, line: &Line) -> Fallible<String> {
        let mut args = line.consume_args();
        let not_after = args.lookup_parse("by")?.map(LeaseTime);
        let client = line.prefix.as_deref().unwrap_or("alice");
        let who = who(client, &mut args);
        let command = match line.name.as_str() {
            "begin" => {
                self.batch = Some(Vec::new());
                return Ok(String::new());
            }
            "end" => {
                let commands = self.batch.take().ok_or("no entry was begun")?;
                return Ok(self.apply(&commands));
            }
            "read" | "look" | "rows" | "head" => return self.show(line.name.as_str(), &who, &mut args),
            "pass" | "elect" | "stamp" => self.time(line.name.as_str(), &mut args)?,
            "bootstrap" => bootstrap(args.lookup_parse("wall")?.unwrap_or(0)),
            "claim" => self.claim(who, &mut args)?,
            "renew" => self.renew(who, &mut args)?,
            "report" => self.report(who, &mut args)?,
            "evidence" => self.evidence(who, &mut args)?,
            "resolve" => self.resolve(who, &mut args)?,
            "lapse" => self.lapse(&who, &mut args)?,
            "advance" => advance(&mut args)?,
            other => return Err(format!("unknown command {other}").into()),
        };
        args.reject_rest()?;
        let envelope = Envelope { not_after: not_after.unwrap_or(LeaseTime(u64::MAX)), command };
        match &mut self.batch {
            Some(batch) => batch.push(envelope),
            None => return Ok(self.apply(&[envelope])),
        }
        Ok(String::new())
    }
}

impl Trace {
    fn apply(&mut self, commands: &[Envelope]) -> String {
        self.index += 1;
        let head = entry(self.index, self.term.max(1), self.stamp);
        let (changes, outcomes) = self.memory.apply(&head, commands);
        let mut text = String::new();
        for Outcome { answer, .. } in &outcomes {
            writeln!(text, "{}", self.answer(answer)).expect("a string grows");
        }
        if let Some(rows) = rows_written(&changes) {
            text.truncate(text.trim_end().len());
            writeln!(text, " [{rows}]").expect("a string grows");
        }
        text
    }

    fn time(&mut self, name: &str, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        self.term = self.term.max(1);
        match name {
            "pass" => {
                let ms: u64 = positional(args, "milliseconds")?.parse()?;
                self.stamp.lead_ms += ms;
                self.stamp.wall_ms = self.stamp.wall_ms.max(self.memory.head.clocks.wall.0) + ms;
            }
            "elect" => {
                self.term += 1;
                self.stamp.lead_ms = 0;
            }
            _ => {
                self.stamp.wall_ms = args.lookup_parse("wall")?.unwrap_or(self.stamp.wall_ms);
                self.stamp.lead_ms = args.lookup_parse("lead")?.unwrap_or(self.stamp.lead_ms);
                self.term = args.lookup_parse("term")?.unwrap_or(self.term);
            }
        }
        Ok(Command::Tick)
    }

    fn claim(&mut self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        self.calls += 1;
        let name = NamespaceName::new(text(args, "ns").unwrap_or("plain".into()));
        let slot = slot(&caller.tenant, &name, 0);
        let execution_id = ExecutionId { slot, random: bytes16(self.calls) };
        let key = positional(args, "key")?;
        let claim_id = claim_id(args, "id")?;
        self.drawn.push((format!("x-{}", claim_name(&claim_id)), execution_id));
        Ok(Command::Claim(Claim {
            internal_key: internal_key(&caller.tenant, &name, ScopeOf::Namespace, &key, None),
            slot,
            digest: Digest(filled(&text(args, "digest").unwrap_or("d".into()))),
            claim_id,
            owner: text(args, "owner").unwrap_or("worker".into()),
            lease_ms: args.lookup_parse("lease")?.unwrap_or(10_000),
            attempt: args.lookup_parse("attempt")?.map(Attempt),
            correlation_id: text(args, "correlation").map(CorrelationId::new),
            namespace: name,
            caller,
            execution_id,
        }))
    }

    fn renew(&self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let (execution_id, lease_epoch) = (self.execution(args)?, epoch(args)?);
        let lease_ms = args.lookup_parse("lease")?.unwrap_or(10_000);
        Ok(Command::Renew(Renew { caller, execution_id, lease_epoch, lease_ms }))
    }

    fn report(&self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let (execution_id, lease_epoch) = (self.execution(args)?, epoch(args)?);
        let outcome = outcome(args)?;
        Ok(Command::Report(Report { caller, execution_id, lease_epoch, outcome, data: data(args)? }))
    }

    fn evidence(&self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let (execution_id, claim_id) = (self.execution(args)?, claim_id(args, "claim")?);
        let (outcome, proof) = (outcome(args)?.ok_or("evidence is definite")?, text(args, "proof"));
        Ok(Command::Evidence(Evidence { caller, execution_id, claim_id, outcome, data: data(args)?, proof }))
    }

    fn resolve(&self, caller: Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let (execution_id, lease_epoch) = (self.execution(args)?, epoch(args)?);
        let outcome = outcome(args)?.ok_or("a resolution is definite")?;
        let proof = text(args, "proof").unwrap_or("seen".into());
        Ok(Command::Resolve(Resolve { caller, execution_id, lease_epoch, outcome, data: data(args)?, proof }))
    }

    fn lapse(&self, caller: &Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
        let operation = row(&caller.tenant, args)?;
        let stored = self.memory.operations.get(&operation).map(|found| &found.execution);
        let lease_epoch = args.lookup_parse("epoch")?.map(LeaseEpoch).or(stored.map(|found| found.lease_epoch));
        let deadline = args.lookup_parse("deadline")?.map(LeaseTime).or(stored.map(|found| found.deadline));
        Ok(Command::Lapse(Lapse {
            operation,
            lease_epoch: lease_epoch.unwrap_or_default(),
            deadline: deadline.unwrap_or_default(),
        }))
    }

    /// The execution that a claim opened; any other name is an id that opened nothing.
    fn execution(&self, args: &mut ArgumentConsumer<'_>) -> Fallible<ExecutionId> {
        let name = positional(args, "execution")?;
        let nobodys =
            ExecutionId { slot: slot(&TenantId::new("t"), &NamespaceName::new("plain"), 0), random: [9; 16] };
        let opened = |id: &ExecutionId| self.memory.executions.keys().any(|(_, known)| known == id);
        let found = self.drawn.iter().find(|(drawn, id)| *drawn == name && opened(id));
        Ok(found.map_or(nobodys, |(_, id)| *id))
    }

    fn show(&self, what: &str, who: &Caller, args: &mut ArgumentConsumer<'_>) -> Fallible<String> {
        let shown = match what {
            "head" => {
                let head = &self.memory.head;
                let clocks = &head.clocks;
                let hash = head.state_hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect::<String>();
                format!(
                    "incarnation={} term={} lead={} lease_time={} wall={} grants={} hash={hash}\n",
                    head.incarnation, clocks.term, clocks.lead_ms, clocks.lease_time, clocks.wall, head.grants.0
                )
            }
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
            _ => self.rows(&row(&who.tenant, args)?),
        };
        args.reject_rest()?;
        Ok(shown)
    }

    fn rows(&self, key: &OperationKey) -> String {
        let mut lines = Vec::new();
        if let Some(record) = self.memory.operations.get(key) {
            lines.push(format!(
                "operation birth={} grants={} evidence={} quarantined={} created={} updated={} terminal={:?}",
                record.id.birth,
                record.grants,
                record.evidence,
                record.quarantined,
                record.created_at,
                record.updated_at,
                record.terminal_at.map(|at| at.0),
            ));
            lines.push(format!("newest {}", self.stored(&record.execution)));
        }
        for row in self.memory.executions.values().filter(|row| row.operation == *key) {
            lines.extend(row.past.as_ref().map(|past| format!("past {}", self.stored(past))));
        }
        for ((_, _, claim), row) in self.memory.grants.iter().filter(|((of, ..), _)| of == key) {
            let (execution, claim) = (self.name(&row.execution), claim_name(claim));
            lines.push(format!("grant {claim} {execution} client={} epoch={}", row.client, row.lease_epoch));
        }
        for ((_, _, number), row) in self.memory.evidence.iter().filter(|((of, ..), _)| of == key) {
            lines.push(format!(
                "evidence {number} {:?} by {} about {} said {:?} met {:?} proof={:?} external={:?}",
                row.source,
                row.client,
                self.name(&row.execution),
                row.outcome,
                row.met,
                row.proof,
                row.external_id,
            ));
        }
        lines.into_iter().map(|line| line + "\n").collect()
    }

    fn stored(&self, execution: &Execution) -> String {
        format!(
            "{} attempt={} {:?} owner={} client={} claim={} epoch={} deadline={} renewed={} sole={} unknown_since={:?}{}",
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
            execution.outcome.as_ref().map(outcome_text).unwrap_or_default(),
        )
    }

    fn name(&self, id: &ExecutionId) -> String {
        let named = self.drawn.iter().find(|(_, known)| known == id);
        named.map_or("x?".into(), |(name, _)| name.clone())
    }

    fn reading(&self, reading: Option<Reading>) -> String {
        let Some(Reading { record, state, lease_epoch, lease_remaining_ms, result, .. }) = reading else {
            return "absent\n".into();
        };
        let execution = &record.execution;
        let mut text = format!("{:?} {} attempt={}", state, self.name(&execution.id), execution.attempt);
        add(&mut text, "epoch", lease_epoch);
        add(&mut text, "remaining", lease_remaining_ms);
        add(&mut text, "quarantined", record.quarantined.then_some("yes"));
        text += &execution.outcome.as_ref().map(outcome_text).unwrap_or_default();
        add(&mut text, "result", result.map(|body| String::from_utf8_lossy(&body).into_owned()));
        text + "\n"
    }

    fn answer(&self, answer: &Answer) -> String {
        match answer {
            Answer::Claimed(grant) => {
                let key = grant.effect_key.rsplit('-').next().unwrap_or_default();
                format!(
                    "claimed {} attempt={} epoch={} remaining={} effect=…-{key}",
                    self.name(&grant.execution_id),
                    grant.attempt,
                    grant.lease.lease_epoch,
                    grant.lease.remaining_ms
                )
            }
            Answer::InProgress(standing) => format!("in progress: {}", self.standing(standing)),
            Answer::Replayed(Receipt { standing, outcome, result }) => {
                let mut text = format!("replayed: {}{}", self.standing(standing), outcome_text(outcome));
                add(&mut text, "result", result.as_ref().map(|body| String::from_utf8_lossy(body)));
                text
            }
            Answer::Renewed(lease) => format!("renewed epoch={} remaining={}", lease.lease_epoch, lease.remaining_ms),
            Answer::Accepted(standing) => format!("accepted: {}", self.standing(standing)),
            Answer::Refused(refused) => {
                let style = if refused.conflict_style == ConflictStyle::Ietf { " (ietf)" } else { "" };
                let whose = if refused.operation_id.is_none() { "" } else { " of an operation" };
                format!("refused: {:?}{whose}{style}", refused.reason)
            }
            other => format!("{other:?}"),
        }
    }

    fn standing(&self, standing: &Standing) -> String {
        let mut text =
            format!("{:?} {} attempt={}", standing.state, self.name(&standing.execution_id), standing.attempt);
        add(&mut text, "remaining", standing.lease_remaining_ms);
        text
    }
}

fn add(text: &mut String, name: &str, value: Option<impl std::fmt::Display>) {
    if let Some(value) = value {
        write!(text, " {name}={value}").expect("a string grows");
    }
}

fn outcome_text(outcome: &OutcomeRecord) -> String {
    let mut text = format!(" outcome={:?}", outcome.outcome);
    add(&mut text, "status", outcome.status_code);
    add(&mut text, "external", outcome.external_id.as_ref());
    add(&mut text, "reason", outcome.reason.as_ref());
    text
}

fn rows_written(changes: &Changes) -> Option<String> {
    let name = |row: &Change| match row {
        Change::Namespace(row) => format!("namespace {}/{}", row.tenant, row.name),
        Change::Token(row) => format!("token {}", row.id),
        Change::Operation(_) => "operation".into(),
        Change::Execution(..) => "execution".into(),
        Change::Grant(..) => "grant".into(),
        Change::Body(..) => "body".into(),
        Change::Evidence(..) => "evidence".into(),
    };
    (!changes.rows.is_empty()).then(|| changes.rows.iter().map(name).collect::<Vec<_>>().join(", "))
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
    Command::Bootstrap(Bootstrap { cluster_id: [7; 16], wall_ms, namespaces, tokens: Vec::new() })
}

fn advance(args: &mut ArgumentConsumer<'_>) -> Fallible<Command> {
    let target = WallTime(args.lookup_parse("wall")?.ok_or("a wall")?);
    let by_operator = args.next_pos().is_some();
    Ok(Command::AdvanceWall(AdvanceWall { target, by_operator }))
}

fn who(client: &str, args: &mut ArgumentConsumer<'_>) -> Caller {
    let mut caller = caller(&text(args, "tenant").unwrap_or("t".into()), client);
    caller.namespaces = text(args, "only").map(NamespaceName::new).into_iter().collect();
    caller
}

fn text(args: &mut ArgumentConsumer<'_>, name: &str) -> Option<String> {
    args.lookup(name).map(|found| found.value.clone())
}

fn positional(args: &mut ArgumentConsumer<'_>, what: &str) -> Fallible<String> {
    Ok(args.next_pos().ok_or_else(|| format!("no {what} given"))?.value.clone())
}

fn epoch(args: &mut ArgumentConsumer<'_>) -> Fallible<LeaseEpoch> {
    Ok(LeaseEpoch(args.lookup_parse("epoch")?.ok_or("no epoch given")?))
}

/// A claim id is the text itself, padded; so a script's names read back from rows.
fn claim_id(args: &mut ArgumentConsumer<'_>, name: &str) -> Fallible<ClaimId> {
    let given = text(args, name).ok_or_else(|| format!("no {name} given"))?;
    let mut bytes = [0; 16];
    bytes.get_mut(..given.len()).ok_or("a short claim id")?.copy_from_slice(given.as_bytes());
    Ok(ClaimId(bytes))
}

fn claim_name(id: &ClaimId) -> String {
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

fn row(tenant: &TenantId, args: &mut ArgumentConsumer<'_>) -> Fallible<OperationKey> {
    let name = NamespaceName::new(text(args, "ns").unwrap_or("plain".into()));
    let key: InternalKey = internal_key(tenant, &name, ScopeOf::Namespace, &positional(args, "key")?, None);
    Ok(OperationKey::new(tenant, &key))
}
