//! The last look, once everything has healed: does every node serve, and does it know what was acknowledged.
//! Owns which questions are asked; `invariants` judges the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hapax_consensus::types::NodeId;
use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::caller::SCOPE;
use crate::client::Client;
use crate::history::{Call, What};
use crate::node::UNKNOWN;
use crate::time::now_ms;

/// How long one question is asked again and again.
const ASKED_MS_MAX: u64 = 20_000;

/// What the last look found.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// When everything had healed.
    pub healed_at: u64,
    /// When each node first granted a claim and read it back.
    pub served: BTreeMap<NodeId, u64>,
    /// Questions and answers.
    pub calls: Vec<Call>,
    done: BTreeSet<NodeId>,
}

/// The look under way. Clones are the same look.
#[derive(Clone)]
pub struct Closing {
    operations: Arc<BTreeSet<String>>,
    capabilities: Arc<BTreeSet<String>>,
    found: Arc<Mutex<Found>>,
}

impl Closing {
    /// Prepares the questions.
    pub fn begin(calls: &[Call], healed_at: u64) -> Self {
        let named = |field: &'static str| {
            calls.iter().filter_map(move |call| call.known()?[field].as_str().map(str::to_owned)).collect()
        };
        let found = Found { healed_at, ..Found::default() };
        Self {
            operations: Arc::new(named("operation_id")),
            capabilities: Arc::new(named("capability_id")),
            found: Arc::new(Mutex::new(found)),
        }
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every node was asked everything.
    pub fn is_over(&self, nodes: u64) -> bool {
        self.found().done.len() as u64 >= nodes
    }

    /// What was found.
    pub fn take(&self) -> Found {
        self.found().clone()
    }

    /// Asks one node everything.
    pub async fn look(self, node: NodeId, mut client: Client) {
        self.serves(node, &mut client).await;
        let path = format!("/v1/epochs/{SCOPE}");
        ask(node, &mut client, What::Epoch { bump: None }, &path).await;
        for operation in self.operations.iter() {
            let path = format!("/v1/operations/{operation}");
            ask(node, &mut client, What::Get { operation: operation.clone() }, &path).await;
        }
        for capability in self.capabilities.iter() {
            let path = format!("/v1/capabilities/{capability}");
            ask(node, &mut client, What::Capability { capability: capability.clone() }, &path).await;
        }
        let mut found = self.found();
        found.calls.extend(client.history.take());
        found.done.insert(node);
    }

    /// Claims a fresh key through the node and reads it back, until both succeed.
    async fn serves(&self, node: NodeId, client: &mut Client) {
        let deadline = now_ms() + ASKED_MS_MAX;
        while now_ms() < deadline {
            let key = format!("closing-{node}-{}", now_ms());
            let claim_id = uuid::Builder::from_u128(u128::from(now_ms()) << 64 | u128::from(node)).into_uuid();
            let body = json!({
                "namespace": UNKNOWN, "key": key, "request": {}, "claim_id": claim_id.to_string(),
                "owner": "closing", "lease_ms": 1_000,
            });
            let what = What::Register { key: (UNKNOWN, key) };
            let told = client.call(node, what, Method::POST, "/v1/claims", &body).await;
            if let Some(operation) = told.with(201).and_then(|body| body["operation_id"].as_str()) {
                let (path, what) =
                    (format!("/v1/operations/{operation}"), What::Get { operation: operation.to_owned() });
                if client.call(node, what, Method::GET, &path, &Value::Null).await.with(200).is_some() {
                    self.found().served.insert(node, now_ms());
                    return;
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Asks until there is an answer that says how things are.
async fn ask(node: NodeId, client: &mut Client, what: What, path: &str) {
    let deadline = now_ms() + ASKED_MS_MAX;
    while now_ms() < deadline {
        if client.call(node, what.clone(), Method::GET, path, &Value::Null).await.is_definite() {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
}
