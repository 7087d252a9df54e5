//! The faults, one file per family. A fault says that it is installed, or healed, only after the backend has looked.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::history::Node;
use crate::http::{self, Exchange};
use crate::nodes::Backend;

pub mod network;

pub mod process;

pub mod clock;

/// How long a node may take to say who leads.
const ASK_LIMIT: Duration = Duration::from_secs(1);

/// A fault that can be put on a cluster and taken off again.
pub trait Nemesis: Send + Sync {
    /// Its name in the catalogue, on the command line and in the record.
    fn name(&self) -> &'static str;
    /// Puts it on and says upon what.
    ///
    /// # Errors
    /// It may or may not be in force.
    fn install(&self, backend: &dyn Backend, draw: u64) -> Result<String>;
    /// Takes it off and says what was seen.
    ///
    /// # Errors
    /// It may or may not still be in force.
    fn heal(&self, backend: &dyn Backend) -> Result<String>;
}

/// Every fault there is.
pub fn all() -> Vec<Box<dyn Nemesis>> {
    [network::all(), process::all(), clock::all()].into_iter().flatten().collect()
}

/// What a node says of the cluster.
pub fn cluster(backend: &dyn Backend, node: Node) -> Option<Value> {
    match http::call(&backend.url(node), &backend.token(), "GET", "/v1/cluster", None, ASK_LIMIT) {
        Exchange::Answer { status: 200, body } => Some(body),
        _ => None,
    }
}

/// The node that says of itself that it leads, in the highest term, and that term.
pub fn leader(backend: &dyn Backend) -> Option<(Node, u64)> {
    let views = backend.nodes().into_iter().filter_map(|node| {
        let view = cluster(backend, node)?;
        (view["leader_id"].as_u64() == Some(node.0)).then(|| (node, view["term"].as_u64().unwrap_or_default()))
    });
    views.max_by_key(|(_, term)| *term)
}

/// The leader and the others, in the order of their ids from a drawn one.
fn sides(backend: &dyn Backend, draw: u64) -> Result<(Node, Vec<Node>)> {
    let (leader, _) = leader(backend).context("no node says that it leads")?;
    let mut others: Vec<Node> = backend.nodes().into_iter().filter(|node| *node != leader).collect();
    let by = usize::try_from(draw % others.len() as u64)?;
    others.rotate_left(by);
    Ok((leader, others))
}
