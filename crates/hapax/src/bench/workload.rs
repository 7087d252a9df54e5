//! The workloads: what one connection calls, in which order, and which answers are right.

use std::sync::Arc;

use hapax_api::endpoints;
use hapax_load::http1::Ask;
use hapax_load::log::Part;
use hapax_load::run::{Stop, Worker};
use tokio::time::Instant;

use super::Workload;
use super::body::{self, Bodies, Claim, Results, each_with, number_field, text_field};
use super::node::{Node, Target};

/// Bytes of a result that make a record of about 1.1 KiB: `scripts/record-bytes` measures what stands beside it.
pub(super) const MIX_RESULT_BYTES: u64 = 700;
/// Of so many operations of the mix ...
const MIX_OF: u64 = 50;
/// ... so many need a second attempt: 1.06 attempts an operation.
const MIX_TWICE: u64 = 3;
/// ... and so many are asked for again: 2 %.
const MIX_AGAIN: u64 = 1;

/// What all connections have in common.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) workload: Workload,
    pub(super) namespace: String,
    pub(super) prefix: String,
    /// The value of each request.
    pub(super) value: String,
    /// The results that are reported.
    pub(super) results: Option<Arc<Results>>,
    /// Keys that are read, replayed or hot.
    pub(super) keys: u64,
    pub(super) connections: u64,
    pub(super) batch: usize,
}

/// One connection's caller.
pub(super) struct Caller {
    settings: Settings,
    node: Node,
    bodies: Bodies,
    number: u64,
    calls: u64,
    /// Its keys, or the paths of their operations, that stand before the window begins.
    known: Vec<String>,
}

/// An execution that was granted.
struct Grant {
    execution: String,
    lease_epoch: u64,
    operation: String,
}

/// A claim's answer.
enum Answer {
    Granted(Grant),
    Other { status: u16, what: String },
}

impl Caller {
    pub(super) fn new(settings: &Settings, targets: &[Target], number: usize) -> Caller {
        Caller {
            settings: settings.clone(),
            node: Node::new(targets, number),
            bodies: Bodies::default(),
            number: number as u64,
            calls: 0,
            known: Vec::new(),
        }
    }

    /// The key of this connection's call numbered so.
    fn key(&self, call: u64) -> String {
        format!("{}-{}-{call}", self.settings.prefix, self.number)
    }

    /// Claims, and says what the answer was.
    async fn claim(
        &mut self,
        key: &str,
        authority: Option<(&str, u64)>,
        log: Option<Part<'_>>,
    ) -> Result<Answer, Stop> {
        let Settings { namespace, value, .. } = &self.settings;
        let body = self.bodies.one(|out| Claim { namespace, key, value, authority }.write(out));
        self.node.ask(Ask::Post(endpoints::CLAIMS, body), log, read_claim).await
    }

    /// Reports; whether it was accepted.
    async fn report(&mut self, grant: &Grant, outcome: &str, log: Option<Part<'_>>) -> Result<Option<String>, Stop> {
        let result = self.settings.results.as_deref().filter(|_| outcome == "completed").map(Results::draw);
        let body = self.bodies.one(|out| body::outcome(grant.lease_epoch, outcome, result, out));
        let path = endpoints::OUTCOME.replace("{execution_id}", &grant.execution);
        self.node.ask(Ask::Post(&path, body), log, |status, body| (status != 200).then(|| said(status, body))).await
    }

    /// Claims a fresh key; `None` where the answer was another one, which is on the log then.
    async fn fresh(&mut self, since: Instant, log: Part<'_>) -> Result<Option<Grant>, Stop> {
        self.calls += 1;
        let key = self.key(self.calls);
        match self.claim(&key, None, Some(log)).await? {
            Answer::Granted(grant) => {
                log.answered("claimed", since);
                Ok(Some(grant))
            }
            Answer::Other { what, .. } => {
                log.unexpected(&what);
                Ok(None)
            }
        }
    }

    async fn complete(&mut self, grant: &Grant, outcome: &'static str, log: Part<'_>) -> Result<(), Stop> {
        let since = Instant::now();
        match self.report(grant, outcome, Some(log)).await? {
            None => log.answered(outcome, since),
            Some(what) => log.unexpected(&what),
        }
        Ok(())
    }

    /// Claims fresh keys in one body; what was granted, where the workload reports it.
    async fn batch(&mut self, since: Instant, log: Part<'_>) -> Result<Vec<(String, u64)>, Stop> {
        let keys: Vec<String> = (0..self.settings.batch as u64).map(|item| self.key(self.calls + 1 + item)).collect();
        self.calls += keys.len() as u64;
        let Settings { namespace, value, workload, .. } = &self.settings;
        let claims = keys.iter().map(|key| {
            let claim = Claim { namespace, key, value, authority: None };
            move |out: &mut Vec<u8>| claim.fields(out)
        });
        let body = self.bodies.batch("claim", claims);
        let reports = *workload == Workload::ClaimReport;
        let read = |status, body: &[u8]| {
            (count(body, CLAIMED), said(status, body), if reports { grants(body) } else { Vec::new() })
        };
        let (claimed, said, granted) = self.node.ask(Ask::Post(endpoints::BATCH, body), Some(log), read).await?;
        items([claimed, keys.len()], "claimed", &said, since, log);
        Ok(granted)
    }

    /// Reports them in one body.
    async fn batch_report(&mut self, granted: &[(String, u64)], log: Part<'_>) -> Result<(), Stop> {
        let (since, results) = (Instant::now(), &self.settings.results);
        let reports = granted.iter().map(|(execution, epoch)| {
            let result = results.as_deref().map(Results::draw);
            move |out: &mut Vec<u8>| body::report_fields(execution, *epoch, result, out)
        });
        let body = self.bodies.batch("outcome", reports);
        let read = |status, body: &[u8]| (count(body, COMPLETED), said(status, body));
        let (completed, said) = self.node.ask(Ask::Post(endpoints::BATCH, body), Some(log), read).await?;
        items([completed, granted.len()], "completed", &said, since, log);
        Ok(())
    }

    /// A claim of a key that is completed.
    async fn replay(&mut self, key: &str, since: Instant, log: Part<'_>) -> Result<(), Stop> {
        match self.claim(key, None, Some(log)).await? {
            Answer::Other { status: 200, what } if what == "replayed" => log.answered("replayed", since),
            Answer::Other { what, .. } => log.unexpected(&what),
            Answer::Granted(_) => log.unexpected("a key that was completed is granted"),
        }
        Ok(())
    }

    async fn hot(&mut self, since: Instant, log: Part<'_>) -> Result<(), Stop> {
        self.calls += 1;
        let key = format!("{}-hot-{}", self.settings.prefix, (self.number + self.calls) % self.settings.keys);
        match self.claim(&key, None, Some(log)).await? {
            Answer::Granted(_) => log.answered("claimed", since),
            Answer::Other { status: 202, what } if what == "in_progress" => log.answered("in_progress", since),
            Answer::Other { what, .. } => log.unexpected(&what),
        }
        Ok(())
    }

    async fn read(&mut self, since: Instant, log: Part<'_>) -> Result<(), Stop> {
        self.calls += 1;
        let path = &self.known[(self.calls % self.known.len() as u64) as usize];
        let read = |status, body: &[u8]| if status == 200 { Ok(()) } else { Err(said(status, body)) };
        match self.node.ask(Ask::Get(path), Some(log), read).await? {
            Ok(()) => log.answered("read", since),
            Err(what) => log.unexpected(&what),
        }
        Ok(())
    }

    /// Register, issue, claim with what was issued, report.
    async fn capability(&mut self, since: Instant, log: Part<'_>) -> Result<(), Stop> {
        self.calls += 1;
        let key = self.key(self.calls);
        let Settings { namespace, value, .. } = &self.settings;
        let claim = Claim { namespace, key: &key, value, authority: None };
        let body = self.bodies.one(|out| body::register(&claim, out));
        let made = self.node.ask(Ask::Post(endpoints::OPERATIONS, body), Some(log), id_of("operation_id")).await?;
        let Some(operation) = noted(made, "registered", since, log) else { return Ok(()) };
        let since = Instant::now();
        let path = endpoints::ISSUE.replace("{operation_id}", &operation);
        let body = self.bodies.one(body::issue);
        let made = self.node.ask(Ask::Post(&path, body), Some(log), id_of("capability_id")).await?;
        let Some(capability) = noted(made, "issued", since, log) else { return Ok(()) };
        let since = Instant::now();
        match self.claim(&key, Some((&capability, self.calls)), Some(log)).await? {
            Answer::Granted(grant) => {
                log.answered("claimed", since);
                self.complete(&grant, "completed", log).await
            }
            Answer::Other { what, .. } => {
                log.unexpected(&what);
                Ok(())
            }
        }
    }

    async fn mix(&mut self, since: Instant, log: Part<'_>) -> Result<(), Stop> {
        let Some(mut grant) = self.fresh(since, log).await? else { return Ok(()) };
        let (key, place) = (self.key(self.calls), (self.calls + self.number) % MIX_OF);
        if place < MIX_TWICE {
            self.complete(&grant, "not_applied", log).await?;
            let since = Instant::now();
            match self.claim(&key, None, Some(log)).await? {
                Answer::Granted(second) => {
                    log.answered("claimed", since);
                    grant = second;
                }
                Answer::Other { what, .. } => {
                    log.unexpected(&what);
                    return Ok(());
                }
            }
        }
        self.complete(&grant, "completed", log).await?;
        if place >= MIX_OF - MIX_AGAIN {
            self.replay(&key, Instant::now(), log).await?;
        }
        Ok(())
    }

    /// This connection's part of the keys that stand before the window begins.
    async fn known(&mut self) -> Result<(), Stop> {
        let Settings { keys, connections, .. } = self.settings;
        // Every connection has one, so that all of them have something to call.
        let mine = (keys / connections + u64::from(self.number < keys % connections)).max(1);
        for number in 0..mine {
            let key = format!("{}-known", self.key(number));
            let grant = match self.claim(&key, None, None).await? {
                Answer::Granted(grant) => grant,
                Answer::Other { what, .. } => return Err(Stop(format!("a key cannot be claimed: {what}"))),
            };
            if let Some(what) = self.report(&grant, "completed", None).await? {
                return Err(Stop(format!("an outcome cannot be reported: {what}")));
            }
            self.known.push(match self.settings.workload {
                Workload::Read => endpoints::OPERATION.replace("{operation_id}", &grant.operation),
                _ => key,
            });
        }
        Ok(())
    }
}

impl Worker for Caller {
    async fn prepare(&mut self) -> Result<(), Stop> {
        match self.settings.workload {
            Workload::Replay | Workload::Read => self.known().await,
            _ => Ok(()),
        }
    }

    async fn call(&mut self, since: Instant, log: Part<'_>) -> Result<(), Stop> {
        match self.settings.workload {
            Workload::Claim if self.settings.batch > 1 => self.batch(since, log).await.map(drop),
            Workload::ClaimReport if self.settings.batch > 1 => {
                let granted = self.batch(since, log).await?;
                if granted.is_empty() { Ok(()) } else { self.batch_report(&granted, log).await }
            }
            Workload::Claim => self.fresh(since, log).await.map(drop),
            Workload::ClaimReport => match self.fresh(since, log).await? {
                Some(grant) => self.complete(&grant, "completed", log).await,
                None => Ok(()),
            },
            Workload::Replay => {
                self.calls += 1;
                let key = self.known[(self.calls % self.known.len() as u64) as usize].clone();
                self.replay(&key, since, log).await
            }
            Workload::HotKey => self.hot(since, log).await,
            Workload::Capability => self.capability(since, log).await,
            Workload::Read => self.read(since, log).await,
            Workload::Mix => self.mix(since, log).await,
        }
    }
}

/// What an answer to a fresh claim has in it.
const CLAIMED: &[u8] = b"\"result\":\"claimed\"";
/// What an answer to a report has in it.
const COMPLETED: &[u8] = b"\"state\":\"completed\"";

/// Notes the right answers to the items of a batch, and those that are missing: the batch said a refusal's code somewhere.
fn items([right, sent]: [usize; 2], answer: &'static str, said: &str, since: Instant, log: Part<'_>) {
    (0..right.min(sent)).for_each(|_| log.answered(answer, since));
    (right..sent).for_each(|_| log.unexpected(&format!("an item of a batch that was answered {said}")));
}

/// The executions that a batch of claims was granted, and their epochs.
fn grants(body: &[u8]) -> Vec<(String, u64)> {
    let grant =
        |from: &[u8]| Some((text_field(from, "execution_id")?.to_owned(), number_field(from, "lease_epoch")?));
    each_with(body, "execution_id").filter_map(grant).collect()
}

fn read_claim(status: u16, body: &[u8]) -> Answer {
    let grant = || {
        Some(Grant {
            execution: text_field(body, "execution_id")?.to_owned(),
            lease_epoch: number_field(body, "lease_epoch")?,
            operation: text_field(body, "operation_id")?.to_owned(),
        })
    };
    match grant().filter(|_| status == 201 && count(body, CLAIMED) == 1) {
        Some(grant) => Answer::Granted(grant),
        None if status == 200 || status == 202 => {
            Answer::Other { status, what: text_field(body, "result").unwrap_or_default().to_owned() }
        }
        None => Answer::Other { status, what: said(status, body) },
    }
}

/// The id of something that was made, or what the answer said instead.
fn id_of(name: &'static str) -> impl Fn(u16, &[u8]) -> Result<String, String> {
    move |status, body| match text_field(body, name).filter(|_| status == 201) {
        Some(id) => Ok(id.to_owned()),
        None => Err(said(status, body)),
    }
}

fn noted(made: Result<String, String>, what: &'static str, since: Instant, log: Part<'_>) -> Option<String> {
    match made {
        Ok(id) => {
            log.answered(what, since);
            Some(id)
        }
        Err(text) => {
            log.unexpected(&text);
            None
        }
    }
}

/// A status, and the code or the result that stands with it.
fn said(status: u16, body: &[u8]) -> String {
    let what = text_field(body, "code").or_else(|| text_field(body, "result")).unwrap_or("without a code");
    format!("{status} {what}")
}

fn count(text: &[u8], wanted: &[u8]) -> usize {
    text.windows(wanted.len()).filter(|window| *window == wanted).count()
}
