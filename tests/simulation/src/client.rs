//! How calls reach nodes: over a network of their own that loses requests and replies, and that no partition of the nodes cuts.
//! Every call is noted before it is sent and after its answer arrived.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hapax_consensus::types::NodeId;
use http::{Method, Request};
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::history::{History, What};
use crate::node::Ask;
use crate::trace::Trace;

/// How long a caller waits for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Of a thousand requests, and of a thousand replies, so many are lost.
const LOST_PER_MILLE: u32 = 40;

/// Where nodes take calls.
#[derive(Clone, Default)]
pub struct Doors(Arc<Mutex<BTreeMap<NodeId, mpsc::UnboundedSender<Ask>>>>);

impl Doors {
    /// The node takes calls there, or nowhere.
    pub fn set(&self, node: NodeId, door: Option<mpsc::UnboundedSender<Ask>>) {
        let mut doors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match door {
            Some(door) => drop(doors.insert(node, door)),
            None => drop(doors.remove(&node)),
        }
    }

    fn of(&self, node: NodeId) -> Option<mpsc::UnboundedSender<Ask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&node).cloned()
    }
}

/// What a caller was told.
#[derive(Debug, Clone)]
pub enum Told {
    /// Nothing: the call may have been applied.
    Nothing,
    /// The connection was refused: it was certainly not.
    Refused,
    /// This status and this body.
    Answer(u16, Value),
}

impl Told {
    /// The body of an answer with this status.
    pub fn with(&self, wanted: u16) -> Option<&Value> {
        match self {
            Self::Answer(status, body) if *status == wanted => Some(body),
            _ => None,
        }
    }

    /// Whether the caller knows what became of its call.
    pub fn is_definite(&self) -> bool {
        matches!(self, Self::Answer(status, _) if *status < 500 && *status != 429)
    }
}

/// Somebody who calls.
pub struct Client {
    /// The nodes' doors.
    pub doors: Doors,
    /// Where calls are noted.
    pub history: History,
    /// What happened.
    pub trace: Trace,
    /// Its own chance.
    pub rng: StdRng,
    /// How many nodes there are.
    pub nodes: u64,
    /// Whether requests and replies get lost.
    pub loses: bool,
}

impl Client {
    /// A random node.
    pub fn any_node(&mut self) -> NodeId {
        self.rng.random_range(1..=self.nodes)
    }

    fn loses(&mut self) -> bool {
        self.loses && self.rng.random_range(0..1_000) < LOST_PER_MILLE
    }

    async fn travel(&mut self) {
        let ms = if self.rng.random_bool(0.02) { 60 } else { self.rng.random_range(1..4) };
        sleep(Duration::from_millis(ms)).await;
    }

    /// Sends a call to a node.
    pub async fn call(&mut self, node: NodeId, what: What, method: Method, path: &str, body: &Value) -> Told {
        self.trace.line(format_args!("call {node} {path} {body}"));
        let number = self.history.begin(node, what);
        self.travel().await;
        if self.loses() {
            sleep(PATIENCE).await;
            return Told::Nothing;
        }
        let told = self.ask(node, method, path, body).await;
        if let Told::Answer(status, body) = &told {
            if self.loses() {
                return Told::Nothing;
            }
            self.travel().await;
            self.trace.line(format_args!("told {node} {path} {status} {body}"));
            self.history.end(number, *status, body.clone());
        }
        told
    }

    async fn ask(&self, node: NodeId, method: Method, path: &str, body: &Value) -> Told {
        let payload = if method == Method::GET { Bytes::new() } else { body.to_string().into() };
        let built = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "node")
            .header("authorization", "Bearer dev")
            .header("content-type", "application/json")
            .body(payload);
        let (Ok(request), Some(door)) = (built, self.doors.of(node)) else { return Told::Refused };
        let (reply, answered) = oneshot::channel();
        if door.send(Ask { request, reply }).is_err() {
            return Told::Refused;
        }
        match timeout(PATIENCE, answered).await {
            Ok(Ok(answer)) => {
                let body = serde_json::from_slice(answer.body()).unwrap_or_default();
                Told::Answer(answer.status().as_u16(), body)
            }
            // The node died, or takes too long.
            Ok(Err(_)) | Err(_) => Told::Nothing,
        }
    }
}
