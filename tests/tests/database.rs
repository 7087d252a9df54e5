//! An effect in the caller's own database. The transaction is the caller's; what Hapax gives it is an identity and an epoch that only
//! grows, under which it can refuse a stale owner and find what a dead one committed. With both, owners that die, wake up and take over
//! leave one effect for each operation; a database that checks neither is convicted by its own balance.
//! (REQUIREMENTS 20, 47, 52–55; 001 §5, 002; the guide's page 8)

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::wait::until;
use serde_json::json;

const POINTS: u64 = 100;
/// As short as leases may be: each is to lapse.
const LEASE_MS: u64 = 1_000;

/// What is in the database.
#[derive(Debug, Default)]
struct Tables {
    balance: u64,
    /// The receipts, unique by operation: the balance after the grant.
    grants: HashMap<String, u64>,
    /// The highest epoch that was seen, by operation.
    fences: HashMap<String, u64>,
}

/// A transaction that changed nothing: a later owner has been here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stale;

/// A database with one account; the lock is its transaction.
#[derive(Debug, Default)]
struct Database {
    tables: Mutex<Tables>,
    /// Neither looks at the epoch, nor has a unique constraint.
    careless: bool,
}

impl Database {
    /// Grants the points and keeps the receipt, in one transaction; what was committed before is returned as it was.
    fn grant(&self, operation: &str, epoch: u64) -> Result<u64, Stale> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.careless {
            let fence = tables.fences.entry(operation.to_owned()).or_default();
            if epoch < *fence {
                return Err(Stale);
            }
            *fence = epoch;
            if let Some(receipt) = tables.grants.get(operation) {
                return Ok(*receipt);
            }
        }
        tables.balance += POINTS;
        let receipt = tables.balance;
        tables.grants.insert(operation.to_owned(), receipt);
        Ok(receipt)
    }

    fn balance(&self) -> u64 {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).balance
    }
}

fn claim(key: &str) -> Claim {
    Claim { namespace: "takeover", lease_ms: LEASE_MS, ..Claim::of(key) }
}

/// The next owner, once the one before is past its lease.
async fn takes_over(node: &Caller, key: &str, before: &Answer) -> Result<Answer> {
    let granted = until(async || node.claim(&claim(key)).await?.is(201, "claimed")).await?;
    ensure!(granted.text("execution_id") == before.text("execution_id"), "a takeover is the same execution");
    ensure!(granted.epoch() > before.epoch(), "{} after {}", granted.epoch(), before.epoch());
    Ok(granted)
}

async fn report(node: &Caller, granted: &Answer, receipt: u64) -> Result<Answer> {
    let path = format!("/v1/executions/{}/outcome", granted.text("execution_id"));
    let body = json!({ "lease_epoch": granted.epoch(), "outcome": "completed", "result": { "balance": receipt } });
    node.post(&path, &body).await
}

/// The first owner commits, or does not, and is silent; the second takes over; then the first wakes up.
async fn owner_after_owner(nodes: &[Caller], database: &Database, key: &str, commits: bool) -> Result<()> {
    let first = nodes[0].claim(&claim(key)).await?.is(201, "claimed")?;
    let operation = first.text("operation_id");
    let committed = commits.then(|| database.grant(operation, first.epoch()));
    let second = takes_over(&nodes[1], key, &first).await?;
    let receipt = database.grant(operation, second.epoch());
    // What the database says to the one who wakes up, and what Hapax does.
    let woken = database.grant(operation, first.epoch());
    let Ok(receipt) = receipt else { anyhow::bail!("the current owner's transaction failed") };
    report(&nodes[0], &first, receipt).await?.is(409, "lease.stale-epoch")?;
    report(&nodes[1], &second, receipt).await?.in_state("completed")?;
    for node in nodes {
        let replay = node.claim(&claim(key)).await?.is(200, "replayed")?;
        ensure!(replay.body["outcome"]["result"]["balance"] == receipt, "{replay:?}");
    }
    if !database.careless {
        ensure!(woken == Err(Stale), "a stale owner's transaction: {woken:?}");
        ensure!(
            committed.is_none_or(|before| before == Ok(receipt)),
            "{before:?} is not {receipt}",
            before = committed
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_transaction_under_the_epoch_leaves_one_effect() -> Result<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let careful = Database::default();
    owner_after_owner(&nodes, &careful, "points/1", true).await?;
    owner_after_owner(&nodes, &careful, "points/2", false).await?;
    ensure!(careful.balance() == 2 * POINTS, "{}", careful.balance());

    // The leader dies with the first owner, after its commit.
    let first = nodes[0].claim(&claim("points/3")).await?.is(201, "claimed")?;
    let receipt = careful.grant(first.text("operation_id"), first.epoch());
    let leader = cluster.leader().await?;
    cluster.nodes[leader].kill()?;
    cluster.nodes[leader].start()?;
    cluster.ready().await?;
    let second = takes_over(&nodes[2], "points/3", &first).await?;
    ensure!(careful.grant(second.text("operation_id"), second.epoch()) == receipt, "another receipt");
    ensure!(careful.balance() == 3 * POINTS, "{}", careful.balance());

    let careless = Database { careless: true, ..Database::default() };
    owner_after_owner(&nodes, &careless, "careless/1", true).await?;
    ensure!(careless.balance() == 3 * POINTS, "the careless database was not convicted: {}", careless.balance());
    Ok(())
}
