//! The callers: workers, some of them slow, forgetful or dead for a while; deciders, reconcilers and an operator.
//! What they do next is drawn; what they did is in the history. They share a board, so that they meddle with each other's work.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hapax_api::time::Instant as WireInstant;
use http::Method;
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::time::sleep;
use uuid::Builder;

use crate::client::{Client, Told};
use crate::history::What;
use crate::node::{BRIEF, TAKEOVER, UNKNOWN};
use crate::time::{WALL_MS, now_ms};

/// The register of authority that some claims are decided under.
pub const SCOPE: &str = "scope";
/// How often a call without a definite answer is sent again.
const AGAIN_MAX: u32 = 2;
/// Things of each kind that the board remembers; older ones are overwritten.
const BOARD_MAX: usize = 64;

/// A lease that somebody holds, or held.
#[derive(Debug, Clone)]
struct Held {
    execution: String,
    claim_id: String,
    epoch: u64,
    lease_ms: u64,
}

/// Authority that was issued.
#[derive(Debug, Clone)]
struct Issued {
    capability: String,
    /// The only key that it is good for, or a resource whose keys it is good for.
    bound: Result<String, String>,
}

/// What callers know of each other's work.
#[derive(Debug, Default)]
struct Notes {
    operations: Vec<String>,
    held: Vec<Held>,
    issued: Vec<Issued>,
    register: u64,
    drawn: usize,
}

/// See [`Notes`]. Clones are the same board.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<Notes>>);

impl Board {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep<T>(list: &mut Vec<T>, drawn: &mut usize, one: T) {
    *drawn += 1;
    if list.len() < BOARD_MAX {
        list.push(one);
    } else {
        let at = *drawn % BOARD_MAX;
        list[at] = one;
    }
}

fn pick<T: Clone>(list: &[T], rng: &mut StdRng) -> Option<T> {
    (!list.is_empty()).then(|| list[rng.random_range(0..list.len())].clone())
}

/// One caller.
pub struct Caller {
    /// How it calls.
    pub client: Client,
    /// What it knows of others.
    pub board: Board,
    /// Its name.
    pub name: String,
}

impl Caller {
    /// Works for as long as it is let.
    pub async fn run(mut self) {
        loop {
            match self.client.rng.random_range(0..100) {
                0..42 => self.work().await,
                42..54 => self.look().await,
                54..64 => self.meddle().await,
                64..70 => self.approve().await,
                70..78 => self.present().await,
                78..82 => self.allow().await,
                82..90 => self.reconcile().await,
                90..95 => self.authority().await,
                _ => self.fence().await,
            }
            let pause = self.client.rng.random_range(0..60);
            sleep(Duration::from_millis(pause)).await;
        }
    }

    fn drawn_id(&mut self) -> String {
        Builder::from_random_bytes(self.client.rng.random()).into_uuid().to_string()
    }

    /// Keys come and go, so that there are always fresh ones, contested ones and old ones.
    fn key(&mut self) -> (&'static str, String) {
        let generation = now_ms() / 4_000;
        let old = self.client.rng.random_range(0..2).min(generation);
        let namespace = match self.client.rng.random_range(0..10) {
            0..5 => UNKNOWN,
            5..8 => TAKEOVER,
            _ => BRIEF,
        };
        let keys = if namespace == TAKEOVER { 2 } else { 4 };
        (namespace, format!("key-{}-{}", generation - old, self.client.rng.random_range(0..keys)))
    }

    /// Sends a post, and again elsewhere while nobody says what became of it.
    async fn post(&mut self, what: What, path: &str, body: &Value) -> Told {
        let mut told = Told::Nothing;
        for _ in 0..=AGAIN_MAX {
            let node = self.client.any_node();
            told = self.client.call(node, what.clone(), Method::POST, path, body).await;
            // Some believe a node that says that their call was not applied, and go away.
            let believed = told.with(503).is_some() && self.client.rng.random_bool(0.5);
            if told.is_definite() || believed {
                break;
            }
            let pause = self.client.rng.random_range(20..400);
            sleep(Duration::from_millis(pause)).await;
        }
        told
    }

    async fn claim(&mut self, key: (&'static str, String), with: Option<Issued>) -> Option<Held> {
        let version = if self.client.rng.random_bool(0.06) { 2 } else { 1 };
        let lease_ms = [1_000, 1_000, 1_500, 3_000, 8_000][self.client.rng.random_range(0..5)];
        let claim_id = self.drawn_id();
        let register = self.board.notes().register;
        let epoch = self.client.rng.random_bool(0.08).then_some(register);
        let mut body = json!({
            "namespace": key.0, "key": key.1, "request": { "key": key.1, "version": version },
            "claim_id": claim_id, "owner": format!("{}/{claim_id}", self.name), "lease_ms": lease_ms,
        });
        if let Some(value) = epoch {
            body["epoch"] = json!({ "scope": SCOPE, "value": value });
        }
        if let Some(issued) = &with {
            body["capability_id"] = issued.capability.clone().into();
            if let Err(resource) = &issued.bound {
                body["resource"] = resource.clone().into();
            }
        }
        if self.client.rng.random_bool(0.1) {
            body["wait_ms"] = 500.into();
        }
        let message = (key.0 == UNKNOWN && self.client.rng.random_bool(0.12))
            .then(|| format!("message-{}-{}", now_ms() / 4_000, self.client.rng.random_range(0..4)));
        if let Some(id) = &message {
            body["message"] = json!({ "consumer": "worker", "id": id });
        }
        let capability = with.map(|issued| issued.capability);
        let what = What::Claim { key, version, claim_id: claim_id.clone(), lease_ms, capability, epoch, message };
        let told = self.post(what, "/v1/claims", &body).await;
        if let Told::Answer(_, body) = &told
            && let Some(operation) = body["operation_id"].as_str()
        {
            let notes = &mut *self.board.notes();
            keep(&mut notes.operations, &mut notes.drawn, operation.to_owned());
        }
        let body = told.with(201)?;
        let execution = body["execution_id"].as_str()?.to_owned();
        let held = Held { execution, claim_id, epoch: body["lease_epoch"].as_u64()?, lease_ms };
        let notes = &mut *self.board.notes();
        keep(&mut notes.held, &mut notes.drawn, held.clone());
        Some(held)
    }

    async fn renew(&mut self, held: &Held) -> Told {
        let body = json!({ "lease_epoch": held.epoch, "lease_ms": held.lease_ms });
        let what = What::Renew { execution: held.execution.clone(), epoch: held.epoch, lease_ms: held.lease_ms };
        self.post(what, &format!("/v1/executions/{}/renew", held.execution), &body).await
    }

    async fn report(&mut self, held: &Held) -> Told {
        let outcome = ["completed", "completed", "completed", "failed", "not_applied", "unknown"]
            [self.client.rng.random_range(0..6)];
        let mut body = json!({ "lease_epoch": held.epoch, "outcome": outcome });
        if outcome == "completed" {
            body["result"] = json!({ "by": held.execution, "epoch": held.epoch });
        }
        let what = What::Report { execution: held.execution.clone(), epoch: held.epoch, outcome };
        self.post(what, &format!("/v1/executions/{}/outcome", held.execution), &body).await
    }

    /// Claims a key, and does with the lease what workers do.
    async fn work(&mut self) {
        let key = self.key();
        let forgetful = key.0 == TAKEOVER;
        if let Some(held) = self.claim(key, None).await {
            self.hold(held, forgetful).await;
        }
    }

    /// Those that are forgetful leave more to others.
    async fn hold(&mut self, held: Held, forgetful: bool) {
        match self.client.rng.random_range(0..if forgetful { 16 } else { 10 }) {
            // At once, or after a while.
            0..4 => {
                let busy = self.client.rng.random_range(0..900);
                sleep(Duration::from_millis(busy)).await;
            }
            // With renewals in between.
            4..6 => {
                for _ in 0..self.client.rng.random_range(1..4) {
                    sleep(Duration::from_millis(held.lease_ms / 2)).await;
                    self.renew(&held).await;
                }
            }
            // Too late.
            6..8 => {
                let late = self.client.rng.random_range(100..2_500);
                sleep(Duration::from_millis(held.lease_ms + late)).await;
                if self.client.rng.random_bool(0.3) {
                    self.renew(&held).await;
                }
            }
            // Never.
            _ => return,
        }
        self.report(&held).await;
    }

    async fn look(&mut self) {
        let found =
            pick(&self.board.0.lock().unwrap_or_else(PoisonError::into_inner).operations, &mut self.client.rng);
        if let Some(operation) = found {
            let node = self.client.any_node();
            let path = format!("/v1/operations/{operation}");
            self.client.call(node, What::Get { operation }, Method::GET, &path, &Value::Null).await;
        }
    }

    /// Uses a lease that is somebody else's, or was its own long ago; or gives late evidence.
    async fn meddle(&mut self) {
        let held = pick(&self.board.0.lock().unwrap_or_else(PoisonError::into_inner).held, &mut self.client.rng);
        let Some(held) = held else { return };
        match self.client.rng.random_range(0..3) {
            0 => drop(self.renew(&held).await),
            1 => drop(self.report(&held).await),
            _ => {
                let outcome = ["completed", "not_applied"][self.client.rng.random_range(0..2)];
                let body = json!({ "claim_id": held.claim_id, "outcome": outcome, "proof": "seen" });
                let what = What::End { execution: held.execution.clone(), outcome, verb: "evidence" };
                self.post(what, &format!("/v1/executions/{}/evidence", held.execution), &body).await;
            }
        }
    }

    /// Registers an operation and issues authority for its first attempt.
    async fn approve(&mut self) {
        let key = format!("approved-{}", self.client.rng.random_range(0..1_000_000));
        let body = json!({ "namespace": UNKNOWN, "key": key, "request": { "key": key, "version": 1 } });
        let told = self.post(What::Register { key: (UNKNOWN, key.clone()) }, "/v1/operations", &body).await;
        let Told::Answer(200 | 201, answer) = &told else { return };
        let Some(operation) = answer["operation_id"].as_str() else { return };
        let body = json!({ "decision_id": format!("decision-{key}"), "attempt": 1, "expires_at": later() });
        let path = format!("/v1/operations/{operation}/capabilities");
        let told = self.post(What::Issue { uses: 1 }, &path, &body).await;
        self.note_issued(&told, Ok(key));
    }

    /// Issues authority for several operations of a resource.
    async fn allow(&mut self) {
        let uses = self.client.rng.random_range(2..4);
        let resource = format!("resource-{}", self.client.rng.random_range(0..1_000_000));
        let body = json!({
            "namespace": UNKNOWN, "resource": resource, "decision_id": format!("decision-{resource}"),
            "expires_at": later(), "max_uses": uses,
        });
        let told = self.post(What::Issue { uses }, "/v1/capabilities", &body).await;
        self.note_issued(&told, Err(resource));
    }

    fn note_issued(&self, told: &Told, bound: Result<String, String>) {
        if let Told::Answer(200 | 201, body) = told
            && let Some(capability) = body["capability_id"].as_str()
        {
            let notes = &mut *self.board.notes();
            keep(&mut notes.issued, &mut notes.drawn, Issued { capability: capability.to_owned(), bound });
        }
    }

    /// Presents a capability, spent or not.
    async fn present(&mut self) {
        let issued = {
            let notes = self.board.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Mostly one of the newest: they are what others present too.
            let newest = &notes.issued[notes.issued.len().saturating_sub(3)..];
            pick(if self.client.rng.random_bool(0.8) { newest } else { &notes.issued }, &mut self.client.rng)
        };
        let Some(issued) = issued else { return };
        let key = match &issued.bound {
            Ok(key) => key.clone(),
            Err(resource) => format!("{resource}-{}", self.client.rng.random_range(0..6)),
        };
        if let Some(held) = self.claim((UNKNOWN, key), Some(issued)).await {
            self.hold(held, false).await;
        }
    }

    async fn reconcile(&mut self) {
        let owner = self.name.clone();
        let body = json!({ "namespace": UNKNOWN, "owner": owner, "limit": 3, "lease_ms": 2_000 });
        let told = self.post(What::Reconcile { owner }, "/v1/reconciliations/lease", &body).await;
        let Some(items) = told.with(200).and_then(|body| body["items"].as_array()) else { return };
        for item in items {
            let (Some(execution), Some(epoch)) = (item["execution_id"].as_str(), item["lease_epoch"].as_u64()) else {
                continue;
            };
            let outcome = ["completed", "not_applied", "failed"][self.client.rng.random_range(0..3)];
            let body = json!({ "lease_epoch": epoch, "outcome": outcome, "proof": "the provider's record" });
            let what = What::End { execution: execution.to_owned(), outcome, verb: "resolve" };
            self.post(what, &format!("/v1/executions/{execution}/resolve"), &body).await;
        }
    }

    async fn authority(&mut self) {
        let known = self.board.notes().register;
        let told = if self.client.rng.random_bool(0.5) {
            let node = self.client.any_node();
            let path = format!("/v1/epochs/{SCOPE}");
            self.client.call(node, What::Epoch { bump: None }, Method::GET, &path, &Value::Null).await
        } else {
            let path = format!("/v1/epochs/{SCOPE}/bump");
            self.post(What::Epoch { bump: Some(known) }, &path, &json!({ "expected": known })).await
        };
        if let Some(value) = told.with(200).and_then(|body| body["value"].as_u64()) {
            let mut notes = self.board.notes();
            notes.register = notes.register.max(value);
        }
    }

    /// An operator ends somebody's lease.
    async fn fence(&mut self) {
        let held = pick(&self.board.0.lock().unwrap_or_else(PoisonError::into_inner).held, &mut self.client.rng);
        let Some(held) = held else { return };
        let body = json!({ "lease_epoch": held.epoch, "reason": "a drill" });
        let what = What::End { execution: held.execution.clone(), outcome: "unknown", verb: "fence" };
        self.post(what, &format!("/v1/executions/{}/fence", held.execution), &body).await;
    }
}

/// A time that no run reaches, not even one whose clocks are moved by hours.
fn later() -> String {
    WireInstant(WALL_MS + 30 * 24 * 3_600_000).to_string()
}
