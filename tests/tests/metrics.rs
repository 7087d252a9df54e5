//! The series that the texts ask for, on a real cluster, each moved by what it counts, by exactly so much and no other; and that no
//! label is a key, a digest, an id or a tenant. (REQUIREMENTS 117–128)

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use hapax_api::watch::WatchQuery;
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Node, Options};
use hapax_tests::wait::until;
use hapax_tests::watcher::Watcher;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// The series of all nodes, summed over those whose name and labels contain every one of `parts`.
async fn total(cluster: &Cluster, parts: &[&str]) -> Result<f64> {
    let mut sum = 0.0;
    for node in &cluster.nodes {
        let text = reqwest::get(&node.metrics_url).await?.text().await?;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap_or((line, "0"));
            if parts.iter().all(|part| series.contains(part)) {
                sum += value.parse::<f64>()?;
            }
        }
    }
    Ok(sum)
}

/// Waits until the series is at least `least`: a series is taken now and then.
async fn reaches(cluster: &Cluster, least: f64, parts: &[&str]) -> Result<()> {
    until(async || {
        let found = total(cluster, parts).await?;
        ensure!(found >= least, "{parts:?} is {found}, not {least}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_texts_ask_for_is_counted_and_nothing_secret_is_a_label() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let caller = cluster.callers().remove(0);
    let secret = "the-key-of-one-order";
    let claim = Claim::of(secret);
    let granted = caller.claim(&claim).await?.is(201, "claimed")?;
    let (execution, epoch) = (granted.text("execution_id").to_owned(), granted.epoch());
    caller.claim(&claim.again()).await?.is(202, "in_progress")?;
    caller.report(&execution, epoch, "not_applied").await?.in_state("not_applied")?;
    let second = caller.claim(&claim.again()).await?.is(201, "claimed")?;
    caller.report(&execution, epoch, "completed").await?.is(409, "lease.stale-epoch")?;
    caller.report(second.text("execution_id"), second.epoch(), "completed").await?.in_state("completed")?;
    caller.claim(&claim.again()).await?.is(200, "replayed")?;
    let other = Claim { request: json!({ "another": "amount" }), ..claim.again() };
    caller.claim(&other).await?.is(409, "key.digest-mismatch")?;
    let unknown = caller.claim(&Claim::of("ambiguous")).await?.is(201, "claimed")?;
    caller.report(unknown.text("execution_id"), unknown.epoch(), "unknown").await?.in_state("unknown")?;
    caller
        .with_token(format!("hpx_{}_{}", "0".repeat(20), "0".repeat(64)))
        .get("/v1/operations/op_1")
        .await?
        .is(401, "auth.invalid")?;
    caller.report("ex_absent", 1, "completed").await?.is(404, "not-found")?;
    let repair = json!({ "expected_state": "unknown", "reason": "metrics" });
    let path = format!("/v1/operations/{}/quarantine", unknown.text("operation_id"));
    caller.post(&path, &repair).await?.in_state("unknown")?;
    for (least, parts) in [
        (2.0, &["hapax_attempts_total", "first"][..]),
        (1.0, &["hapax_attempts_total", "later"]),
        (1.0, &["hapax_claims_total", "replayed"]),
        (1.0, &["hapax_refusals_total", "key.digest-mismatch"]),
        (1.0, &["hapax_refusals_total", "lease.stale-epoch"]),
        (1.0, &["hapax_outcomes_total", "completed"]),
        (1.0, &["hapax_outcomes_total", "not_applied"]),
        (1.0, &["hapax_calls_total", "quarantine", "done"]),
        (1.0, &["hapax_auth_rejections_total", "unknown"]),
        (1.0, &["hapax_auth_rejections_total", "absent"]),
        (1.0, &["hapax_executions_unknown", "default"]),
        (1.0, &["hapax_operations_open", "default"]),
        (1.0, &["hapax_disk_size_bytes", "state"]),
        (1.0, &["hapax_http_request_duration_seconds_count", "/v1/claims"]),
        (1.0, &["hapax_proposals_committed"]),
    ] {
        reaches(&cluster, least, parts).await?;
    }
    for node in &cluster.nodes {
        let text = reqwest::get(&node.metrics_url).await?.text().await?;
        for hidden in [secret, "sha256:", "op_", "ex_0", "cap_"] {
            ensure!(!text.contains(hidden), "{hidden} is in the metrics of node {}", node.id);
        }
        ensure!(!text.contains("tenant=\"dev\""), "a tenant is a label");
    }
    Ok(())
}

/// The samples of a series that are not 0, summed over the nodes, by their labels as they are written, without `but`.
async fn all_of(cluster: &Cluster, name: &str, but: &[&str]) -> Result<BTreeMap<String, f64>> {
    let mut found = BTreeMap::new();
    for node in &cluster.nodes {
        let text = reqwest::get(&node.metrics_url).await?.text().await?;
        for line in text.lines() {
            let Some((series, value)) = line.strip_prefix(name).and_then(|rest| rest.rsplit_once(' ')) else {
                continue;
            };
            if !series.is_empty() && !series.starts_with('{') {
                continue;
            }
            let labels = series
                .trim_matches(['{', '}'])
                .split(',')
                .filter(|label| !label.is_empty() && !but.iter().any(|but| label.starts_with(&format!("{but}="))));
            let labels: Vec<String> = labels.map(|label| label.replace('"', "")).collect();
            *found.entry(labels.join(" ")).or_insert(0.0) += value.parse::<f64>()?;
        }
    }
    found.retain(|_, value| *value > 0.0);
    Ok(found)
}

/// These are the samples of a series, these exactly and no other.
async fn stands_at(cluster: &Cluster, name: &str, but: &[&str], expected: &[(&str, f64)]) -> Result<()> {
    let expected: BTreeMap<String, f64> =
        expected.iter().map(|(labels, value)| ((*labels).to_owned(), *value)).collect();
    until(async || {
        let found = all_of(cluster, name, but).await?;
        ensure!(found == expected, "{name} is {found:?}, not {expected:?}");
        Ok(())
    })
    .await
}

const EXECUTING: &str = "hapax_executing_duration_seconds";
const UNKNOWN: &str = "hapax_unknown_duration_seconds";
/// The shortest lease that there is.
const SHORT_MS: u64 = 1_000;

/// A cluster in which nobody is elected because a machine is slow: what the leader counts, one leader counts.
async fn calm(limits: &str) -> Result<Cluster> {
    let raft = "profile = \"wan\"".to_owned();
    Cluster::start(Options { raft, limits: limits.to_owned(), ..Options::default() }).await
}

fn in_takeover(key: &str) -> Claim {
    Claim { namespace: "takeover", ..Claim::of(key) }
}

async fn elected(node: &Caller, claim: &Claim) -> Result<(Answer, String, u64)> {
    let granted = node.claim(claim).await?.is(201, "claimed")?;
    let (execution, epoch) = (granted.text("execution_id").to_owned(), granted.epoch());
    Ok((granted, execution, epoch))
}

/// Waits until an operation is unknown in the log, not only to readers: the epoch that this draws is shown from then on.
async fn ended(node: &Caller, granted: &Answer) -> Result<u64> {
    until(async || {
        let read = node.operation(granted.text("operation_id")).await?.in_state("unknown")?;
        let drawn = read.body["execution"]["lease_epoch"].as_u64();
        drawn.filter(|drawn| *drawn > granted.epoch()).with_context(|| format!("no new epoch: {read:?}"))
    })
    .await
}

/// A series, labels that do not count, and all its samples.
type Moved = (&'static str, &'static [&'static str], &'static [(&'static str, f64)]);

/// What the calls of the story below come to.
const MOVED: &[Moved] = &[
    // The replay and the spent capability may be answered locally or by the quorum.
    (
        "hapax_claims_total",
        &["from"],
        &[
            ("result=claimed", 11.0),
            ("result=duplicate_delivery", 1.0),
            ("result=in_progress", 1.0),
            ("result=refused", 2.0),
            ("result=replayed", 1.0),
        ],
    ),
    // Who takes over is granted the first attempt once more.
    ("hapax_attempts_total", &[], &[("attempt=first", 10.0), ("attempt=later", 1.0)]),
    (
        "hapax_outcomes_total",
        &[],
        &[
            ("outcome=completed", 4.0),
            ("outcome=failed", 1.0),
            ("outcome=not_applied", 1.0),
            ("outcome=unknown", 1.0),
        ],
    ),
    (
        "hapax_refusals_total",
        &[],
        &[
            ("code=capability.already-consumed", 1.0),
            ("code=key.digest-mismatch", 1.0),
            ("code=lease.stale-epoch", 3.0),
        ],
    ),
    ("hapax_lease_lapses_total", &[], &[("", 1.0)]),
    ("hapax_lease_takeovers_total", &[], &[("", 1.0)]),
    ("hapax_settled_by_bump_total", &[], &[("", 1.0)]),
    (
        "hapax_calls_total",
        &[],
        &[
            ("kind=bump result=done", 1.0),
            ("kind=claim result=done", 14.0),
            ("kind=claim result=refused", 2.0),
            ("kind=escalate result=done", 1.0),
            ("kind=fence result=done", 1.0),
            ("kind=issue result=done", 1.0),
            ("kind=outcome result=done", 7.0),
            ("kind=outcome result=refused", 2.0),
            ("kind=reconcile result=done", 1.0),
            ("kind=register result=done", 1.0),
            ("kind=renew result=refused", 1.0),
            ("kind=resolve result=done", 2.0),
        ],
    ),
    ("hapax_claim_duration_seconds_count", &[], &[("", 16.0)]),
    (
        "hapax_executing_duration_seconds_count",
        &[],
        &[
            ("into=completed", 4.0),
            ("into=executing", 1.0),
            ("into=failed", 1.0),
            ("into=not_applied", 1.0),
            ("into=unknown", 4.0),
        ],
    ),
    ("hapax_unknown_duration_seconds_count", &[], &[("into=completed", 1.0), ("into=not_applied", 1.0)]),
    ("hapax_executions_unknown", &["namespace"], &[("", 6.0)]),
    ("hapax_operations_open", &["namespace"], &[("", 9.0)]),
    ("hapax_auth_rejections_total", &[], &[]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_count_is_what_was_done_and_no_other_moved() -> Result<()> {
    let cluster = calm("").await?;
    let nodes = cluster.callers();
    claims_and_reports(&nodes).await?;
    refusals(&nodes).await?;
    reclaims(&nodes).await?;
    for (name, but, expected) in MOVED {
        stands_at(&cluster, name, but, expected).await?;
    }
    times(&cluster).await
}

/// Claims, one of them for a later attempt; every way to be told that it was done before, or is being done.
async fn claims_and_reports(nodes: &[Caller]) -> Result<()> {
    let claim = Claim::of("one");
    let (_, first, epoch) = elected(&nodes[0], &claim).await?;
    nodes[1].claim(&claim.again()).await?.is(202, "in_progress")?;
    nodes[1].report(&first, epoch, "not_applied").await?.in_state("not_applied")?;
    let (_, second, later) = elected(&nodes[2], &claim.again()).await?;
    nodes[0].report(&second, later, "completed").await?.in_state("completed")?;
    nodes[1].claim(&claim.again()).await?.is(200, "replayed")?;
    let delivered = Claim::of("delivered").because_of("M-1");
    let (_, execution, epoch) = elected(&nodes[0], &delivered).await?;
    nodes[1].claim(&delivered.again()).await?.is(200, "duplicate_delivery")?;
    nodes[2].report(&execution, epoch, "failed").await?.in_state("failed").map(drop)
}

/// What is refused, and counted under its reason.
async fn refusals(nodes: &[Caller]) -> Result<()> {
    let claim = Claim::of("paid");
    let (_, capability) = nodes[0].approve(&claim, "D-1").await?;
    let paid = claim.because_of("M-2").presenting(&capability);
    let (_, execution, epoch) = elected(&nodes[1], &paid).await?;
    nodes[1].report(&execution, epoch, "completed").await?.in_state("completed")?;
    nodes[2].claim(&paid.again().because_of("M-3")).await?.is(409, "capability.already-consumed")?;
    let bound = Claim::of("bound");
    let (_, execution, epoch) = elected(&nodes[0], &bound).await?;
    let other = Claim { request: json!({ "another": "amount" }), ..bound.again() };
    nodes[1].claim(&other).await?.is(409, "key.digest-mismatch")?;
    nodes[1].report(&execution, epoch, "completed").await?.in_state("completed").map(drop)
}

/// A lease that lapses, one that is taken over, a fence and a bump; and what reconcilers make of two of them.
async fn reclaims(nodes: &[Caller]) -> Result<()> {
    let short = |claim: Claim| Claim { lease_ms: SHORT_MS, ..claim };
    let (lapsed, lapsed_execution, _) = elected(&nodes[0], &short(Claim::of("lapses"))).await?;
    ended(&nodes[1], &lapsed).await?;

    let (_, execution, old) = elected(&nodes[1], &short(in_takeover("taken"))).await?;
    let waiting = Claim { wait_ms: 20_000, ..in_takeover("taken") };
    let (_, same, new) = elected(&nodes[2], &waiting).await?;
    ensure!(same == execution && new > old, "it was not taken over: {same} {new}");
    for node in &nodes[..2] {
        node.report(&execution, old, "completed").await?.is(409, "lease.stale-epoch")?;
    }
    nodes[2].report(&execution, new, "completed").await?.in_state("completed")?;

    let (_, fenced, epoch) = elected(&nodes[0], &Claim::of("fenced")).await?;
    let body = json!({ "lease_epoch": epoch, "reason": "its machine burns" });
    nodes[1].post(&format!("/v1/executions/{fenced}/fence"), &body).await?.in_state("unknown")?;
    nodes[2].renew(&fenced, epoch, 60_000).await?.is(409, "lease.stale-epoch")?;

    let (bumped, ..) = elected(&nodes[0], &Claim::of("bumped").under("payments", 0)).await?;
    nodes[1].bump("payments", 0).await?.is(200, "")?;
    let drawn = ended(&nodes[1], &bumped).await?;

    let (_, said, epoch) = elected(&nodes[2], &Claim::of("ambiguous")).await?;
    nodes[2].report(&said, epoch, "unknown").await?.in_state("unknown")?;

    let leased = nodes[0].reconcile("default", "metrics", 2, 60_000).await?.is(200, "")?;
    let items = leased.body["items"].as_array().context("items")?;
    ensure!(items.len() == 2 && items[0]["execution_id"] == lapsed_execution.as_str(), "{leased:?}");
    for (item, outcome) in items.iter().zip(["completed", "not_applied"]) {
        let execution = item["execution_id"].as_str().context("an execution")?;
        let epoch = item["lease_epoch"].as_u64().context("an epoch")?;
        nodes[1].resolve(execution, epoch, outcome, json!({})).await?.in_state(outcome)?;
    }
    let path = format!("/v1/executions/{}/escalate", bumped.text("execution_id"));
    let body = json!({ "lease_epoch": drawn, "reason": "nobody knows" });
    nodes[2].post(&path, &body).await?.in_state("unknown").map(drop)
}

/// How long it took is what it took: nobody executed for longer than his lease, and what waits for people is the older one.
async fn times(cluster: &Cluster) -> Result<()> {
    let sum = async |name: &str, into: &str| {
        let sums = all_of(cluster, &format!("{name}_sum"), &[]).await?;
        sums.get(&format!("into={into}")).copied().with_context(|| format!("no {name} into {into}"))
    };
    let short = SHORT_MS as f64 / 1_000.0;
    let taken = sum(EXECUTING, "executing").await?;
    ensure!((short..short + 10.0).contains(&taken), "{taken} s until a lease of {short} s was taken over");
    // One of the four lapsed, the others ended at once.
    let lapsed = sum(EXECUTING, "unknown").await?;
    ensure!((short..short + 10.0).contains(&lapsed), "{lapsed} s until a lease of {short} s lapsed");
    let unknown = sum(UNKNOWN, "completed").await?;
    ensure!((short..60.0).contains(&unknown), "the lapsed one was unknown for {unknown} s");
    until(async || {
        for node in &cluster.nodes {
            let all = async |name: &str| node.metric(&format!("{name}{{namespace=\"default\"}}")).await;
            let oldest = all("hapax_oldest_unknown_seconds").await?;
            let to_reconcile = all("hapax_oldest_to_reconcile_seconds").await?;
            ensure!(to_reconcile > 0.0 && oldest > to_reconcile, "{oldest} s, and {to_reconcile} s to reconcile");
            ensure!(oldest < 120.0, "{oldest} s");
        }
        Ok(())
    })
    .await
}

/// Requests at work that a node has room for; half of them may wait.
const ROOM: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_node_shows_that_it_is_full_and_how_long_what_passes_takes() -> Result<()> {
    let cluster = calm(&format!("requests = {ROOM}\nwatches = 2")).await?;
    let nodes = cluster.callers();
    let (_, execution, epoch) = elected(&nodes[1], &Claim::of("held")).await?;
    let look = json!({ "namespace": "default", "key": "held" });
    for _ in 0..3 {
        nodes[0].post("/v1/operations/lookup", &look).await?.is(200, "")?;
    }
    let node = &cluster.nodes[0];
    saturated(node, "requests", 0.0).await?;
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let (caller, claim) = (nodes[0].clone(), Claim { wait_ms: 20_000, ..Claim::of("held") });
            tokio::spawn(async move { caller.claim(&claim).await })
        })
        .collect();
    saturated(node, "waits", 1.0).await?;
    saturated(node, "requests", 0.5).await?;
    let watcher = Watcher::open(&nodes[0], &WatchQuery::default()).await?;
    saturated(node, "watches", 0.5).await?;
    // Bodies that do not come take the rest of the room.
    let mut silent = Vec::new();
    for _ in 0..ROOM / 2 {
        let mut stream = TcpStream::connect(node.url.trim_start_matches("http://")).await?;
        let head = "POST /v1/claims HTTP/1.1\r\nhost: h\r\nauthorization: Bearer dev\r\n\
                    content-type: application/json\r\ncontent-length: 100\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        silent.push(stream);
    }
    saturated(node, "requests", 1.0).await?;
    nodes[0].operation("op_1").await?.is(503, "store.overloaded")?;
    ensure!(node.metric("hapax_requests_refused_total").await? >= 1.0, "who found no room is counted");
    ensure!(nodes[0].ready().await, "a full node lives");
    let open = node.metric("hapax_saturation_ratio{of=\"connections\"}").await?;
    ensure!(open > 0.0 && open < 0.1, "{open} of the connections");
    drop((silent, watcher));
    nodes[1].report(&execution, epoch, "completed").await?.in_state("completed")?;
    for waited in waiting {
        waited.await??.is(200, "replayed")?;
    }
    for of in ["requests", "waits", "watches"] {
        saturated(node, of, 0.0).await.with_context(|| of.to_owned())?;
    }
    let lookups = "hapax_http_request_duration_seconds_count{route=\"/v1/operations/lookup\",code=\"200\"}";
    until(async || {
        let found = node.metric(lookups).await?;
        ensure!(found == 3.0, "{found} look-ups");
        Ok(())
    })
    .await?;
    let claims = node.metric("hapax_claim_duration_seconds_sum").await?;
    ensure!(claims > 0.0 && node.metric("hapax_claim_duration_seconds_count").await? == 2.0, "{claims} s of claims");
    for series in ["hapax_read_index_duration_seconds_count", "hapax_log_fsync_duration_seconds_count"] {
        ensure!(node.metric(series).await? >= 1.0, "{series}");
    }
    node.metric("hapax_proposals_pending").await.map(drop)
}

/// Waits until this part of a node's places is taken.
async fn saturated(node: &Node, of: &str, part: f64) -> Result<()> {
    let series = format!("hapax_saturation_ratio{{of=\"{of}\"}}");
    until(async || {
        let found = node.metric(&series).await?;
        ensure!((found - part).abs() < 1e-9, "{series} is {found}, not {part}");
        Ok(())
    })
    .await
}
