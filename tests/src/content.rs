//! What a stopped node holds: every logical row of its state, read from its files by `hapax doctor state`.
//! Content is compared, not a hash of it.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::cluster::{Cluster, Node, binary};
use crate::load::Acknowledged;

/// The rows of a node's state by key, as the tool prints them, and where the node had got to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The last applied log index.
    pub applied: u64,
    /// The state hashes that were kept at certain indexes.
    pub hashes: BTreeMap<u64, String>,
    /// Every row: its family and key, and what it decodes to.
    pub rows: BTreeMap<String, String>,
    /// Family and the last part of the key, which is what ids hold, to the whole of it.
    keys: BTreeMap<(String, String), String>,
}

impl Content {
    /// Reads the files of a node that does not run.
    ///
    /// # Errors
    /// The files are not readable as a state.
    pub fn of(node: &Node) -> Result<Self> {
        ensure!(!node.runs(), "node {} still runs", node.id);
        let output = Command::new(binary()).args(["doctor", "state", "--data-dir"]).arg(&node.data).output()?;
        ensure!(output.status.success(), "doctor: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let mut head = BTreeMap::new();
        let mut rows = BTreeMap::new();
        for line in text.lines() {
            if let Some((name, value)) = line.split_once('\t') {
                head.insert(name.to_owned(), value.to_owned());
                continue;
            }
            let end = line.match_indices(' ').nth(1).with_context(|| format!("not a row: {line}"))?.0;
            rows.insert(line[..end].to_owned(), line[end + 1..].to_owned());
        }
        let said = |name: &str| head.get(name).cloned().with_context(|| format!("no {name}"));
        let keys = rows.keys().filter_map(|whole| Some((last_part(whole)?, whole.clone()))).collect();
        let mut hashes = BTreeMap::new();
        for (name, hash) in &head {
            if let Some(index) = name.strip_prefix("#state_hash@") {
                hashes.insert(index.parse()?, hash.clone());
            }
        }
        Ok(Self { applied: said("#applied")?.parse()?, hashes, rows, keys })
    }
}

impl Content {
    /// Whether this acknowledged claim, and its outcome where one was acknowledged, is here.
    pub fn holds(&self, one: &Acknowledged) -> bool {
        // op_ + slot (3) + hash (40) + birth (14); ex_ + slot (3) + random (32): the rows' keys end in hash and random.
        let (hash, random) = (&one.operation_id[6..46], &one.execution_id[6..]);
        let ending = |family: &str, ending: &str| {
            self.keys.get(&(family.to_owned(), ending.to_owned())).and_then(|key| self.rows.get(key))
        };
        let live = ending("live", hash);
        let terminal = ending("terminal", hash);
        let epoch = format!("LeaseEpoch({})", one.lease_epoch);
        let row = if one.completed { terminal } else { live.or(terminal) };
        row.is_some_and(|row| row.contains(&epoch)) && ending("execution", random).is_some()
    }

    /// The newest index at which both kept a state hash, and whether it was the same.
    pub fn agrees_at(&self, other: &Self) -> Option<(u64, bool)> {
        let (index, hash) = self.hashes.iter().rfind(|(index, _)| other.hashes.contains_key(*index))?;
        Some((*index, other.hashes.get(index) == Some(hash)))
    }

    /// The keys of rows that are not the same in both.
    pub fn difference(&self, other: &Self) -> Vec<String> {
        let keys = self.rows.keys().chain(other.rows.keys());
        let mut keys: Vec<String> = keys.filter(|key| self.rows.get(*key) != other.rows.get(*key)).cloned().collect();
        keys.dedup();
        keys
    }
}

fn last_part(whole: &str) -> Option<(String, String)> {
    let (family, key) = whole.split_once(' ')?;
    let length = match family {
        "live" | "terminal" => 40,
        "execution" => 32,
        _ => return None,
    };
    Some((family.to_owned(), key.get(key.len().checked_sub(length)?..)?.to_owned()))
}

/// Waits until every node has applied the same index: the followers learn what is committed from a later message.
///
/// # Errors
/// They do not come together in time.
pub async fn settle(cluster: &Cluster) -> Result<u64> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        let leader = cluster.leader().await?;
        let view = cluster.callers()[leader].cluster().await?;
        let lags: Vec<Option<u64>> =
            view["members"].as_array().into_iter().flatten().map(|member| member["lag"].as_u64()).collect();
        if lags.len() == cluster.nodes.len() && lags.iter().all(|lag| *lag == Some(0)) {
            return view["members"][0]["applied_index"].as_u64().context("no applied index");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the nodes do not come to the same index")
}
