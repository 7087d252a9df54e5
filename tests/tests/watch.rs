//! The stream of changes: whoever was told a position goes on from there at any node, and misses nothing and hears
//! nothing twice, through killed leaders; each sees their own and nothing else; and what cannot be is said.
//! (REQUIREMENTS 80, 94, 95, 137; DESIGN §7)

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail, ensure};
use hapax_api::operation::State;
use hapax_api::text::Revision;
use hapax_api::watch::{Event, OperationEvent, Position, WatchQuery};
use hapax_tests::admin::{everybody_knows, namespace, tenant, token};
use hapax_tests::caller::{Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::load::{Acknowledged, Load};
use hapax_tests::wait::until;
use hapax_tests::watcher::Watcher;
use serde_json::{Value, json};
use uuid::Uuid;

const WORKERS: usize = 12;
const KILLS: u64 = 3;
/// Claims that are acknowledged between two kills, at least.
const STEP: u64 = 400;
/// Changes that a reader takes before it changes the node: few and many.
const TAKEN: [usize; 5] = [1, 7, 40, 3, 150];

fn from(position: Position) -> WatchQuery {
    WatchQuery { from: Some(position), namespace: None }
}

/// Opens a stream from now on; it says where now is before anything else.
async fn from_now_on(node: &Caller) -> Result<(Watcher, Position)> {
    let mut watcher = Watcher::open(node, &WatchQuery::default()).await?;
    match watcher.next().await? {
        Some(Event::Position(event)) => Ok((watcher, event.position)),
        other => bail!("a stream begins with its position, not with {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_at_any_node_without_loss_or_repeat_while_leaders_are_killed() -> Result<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let (mut steady, begin) = from_now_on(&nodes[0]).await?;
    let over = Arc::new(OnceLock::new());
    let readers: Vec<_> =
        (0..3).map(|first| tokio::spawn(hopping(nodes.clone(), first, begin, Arc::clone(&over)))).collect();
    let load = Load::start("watch", &nodes, WORKERS);
    for kill in 1..=KILLS {
        until(async || {
            ensure!(load.count() >= kill * STEP, "the load is slow: {}", load.count());
            Ok(())
        })
        .await?;
        let leader = cluster.leader().await?;
        cluster.nodes[leader].kill()?;
        cluster.nodes[leader].start()?;
        cluster.nodes[leader].ready().await?;
    }
    let (acknowledged, _) = load.stop().await;
    // What ends every stream: its claim comes after everything else that was acknowledged.
    let last = until(async || nodes[0].claim(&Claim::of("watch/last")).await?.is(201, "claimed")).await?;
    let last = last.text("operation_id").to_owned();
    over.set(last.clone()).ok().context("it was over before")?;
    // And one more, for whoever was told of the last one before it was known to be that.
    nodes[0].claim(&Claim::of("watch/after")).await?.is(201, "claimed")?;

    let truth = until_last(&nodes[1], begin, &last).await?;
    complete(&truth, &acknowledged)?;
    for reader in readers {
        let (seen, hops) = reader.await??;
        println!("{} changes over {hops} connections", seen.len());
        ensure!(hops > KILLS as usize, "a reader that did not hop");
        ensure!(seen.len() >= truth.len(), "a reader saw {} of {} changes", seen.len(), truth.len());
        let same = seen[..truth.len()] == truth[..];
        ensure!(same, "a reader saw something else: {:?}", first_difference(&seen, &truth));
    }
    // The one that never changed its node, if that node was never killed, saw the same.
    let mut whole = Vec::new();
    while let Ok(event) = steady.operation().await {
        let ends = event.operation_id.as_str() == last;
        whole.push(event);
        if ends {
            break;
        }
    }
    ensure!(whole[..] == truth[..whole.len()], "the first stream saw something else");
    Ok(())
}

fn first_difference(
    seen: &[OperationEvent],
    truth: &[OperationEvent],
) -> Option<(usize, OperationEvent, OperationEvent)> {
    let at = seen.iter().zip(truth).position(|(seen, truth)| seen != truth)?;
    Some((at, seen[at].clone(), truth[at].clone()))
}

/// Reads from `position`, and changes the node after some changes or when the connection breaks, until the last change is
/// known and there. Returns the changes and the number of connections.
async fn hopping(
    nodes: Vec<Caller>,
    first: usize,
    mut position: Position,
    over: Arc<OnceLock<String>>,
) -> Result<(Vec<OperationEvent>, usize)> {
    let mut seen: Vec<OperationEvent> = Vec::new();
    for hop in 0.. {
        let node = &nodes[(first + hop) % nodes.len()];
        let Ok(mut watcher) = Watcher::open(node, &from(position)).await else {
            // A node that is down refuses at once; the next one may not.
            tokio::task::yield_now().await;
            continue;
        };
        let mut left = TAKEN[(first + hop) % TAKEN.len()];
        while left > 0 {
            // A connection that breaks is what this is about; a stream that says that it cannot go on is not.
            match watcher.next().await {
                Ok(Some(Event::Operation(event))) => {
                    position = event.position;
                    seen.push(event);
                    left -= 1;
                }
                Ok(Some(Event::Position(event))) => position = event.position,
                Ok(Some(Event::Problem(problem))) if !problem.retryable => bail!("hop {hop} ended: {problem:?}"),
                Ok(Some(Event::Problem(_)) | None) | Err(_) => break,
            }
            if let Some(last) = over.get()
                && seen.iter().rev().any(|event| event.operation_id.as_str() == last)
            {
                return Ok((seen, hop + 1));
            }
        }
    }
    bail!("hops do not end")
}

/// Everything from `begin` to the first change of the operation `last`, over one connection.
async fn until_last(node: &Caller, begin: Position, last: &str) -> Result<Vec<OperationEvent>> {
    let mut watcher = Watcher::open(node, &from(begin)).await?;
    let mut all = Vec::new();
    loop {
        let event = watcher.operation().await?;
        let ends = event.operation_id.as_str() == last;
        all.push(event);
        if ends {
            return Ok(all);
        }
    }
}

fn order(event: &OperationEvent) -> (u64, u64, u32) {
    let Position { revision, part } = event.position;
    (revision.index, revision.ordinal, part.unwrap_or_default())
}

/// Positions grow strictly, and each acknowledged claim and outcome is there once.
fn complete(truth: &[OperationEvent], acknowledged: &[Acknowledged]) -> Result<()> {
    for pair in truth.windows(2) {
        ensure!(order(&pair[0]) < order(&pair[1]), "not in order: {pair:?}");
    }
    let mut by_operation: BTreeMap<&str, Vec<State>> = BTreeMap::new();
    for event in truth {
        by_operation.entry(event.operation_id.as_str()).or_default().push(event.state);
    }
    ensure!(acknowledged.len() as u64 >= KILLS * STEP, "only {} were acknowledged", acknowledged.len());
    for one in acknowledged {
        let states = by_operation.get(one.operation_id.as_str()).cloned().unwrap_or_default();
        let expected: &[State] =
            if one.completed { &[State::Executing, State::Completed] } else { &[State::Executing] };
        ensure!(states == expected, "{one:?} was told as {states:?}");
    }
    println!("{} changes, {} acknowledged operations", truth.len(), acknowledged.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_is_told_their_own_and_what_cannot_be_is_said() -> Result<()> {
    let cluster = Cluster::start(Options { limits: "watches = 8".to_owned(), ..Options::default() }).await?;
    let nodes = cluster.callers();
    tenant(&nodes[0], "acme", &json!({})).await?;
    namespace(&nodes[0], Some("acme"), "default", &json!({})).await?;
    namespace(&nodes[0], None, "second", &json!({})).await?;
    let acme = token(&nodes[0], Some("acme"), "acme", &["claim", "read"]).await?;
    everybody_knows(&nodes).await?;
    filters_and_tenants(&nodes, &acme).await?;
    every_change_is_told_and_nothing_else(&nodes[1]).await?;
    positions_that_cannot_be(&nodes[2]).await?;
    a_revision_of_an_answer_is_a_position(&nodes).await?;
    a_revoked_watcher_is_told_no_more(&nodes).await?;
    there_is_room_for_so_many(&nodes[0]).await
}

async fn filters_and_tenants(nodes: &[Caller], acme: &Caller) -> Result<()> {
    let narrow = json!({ "client": "narrow", "namespaces": ["second"], "roles": ["read"] });
    let narrow = nodes[1].post("/v1/tokens", &narrow).await?.is(201, "")?;
    let narrow = nodes[1].with_token(narrow.text("token"));
    let (_, begin) = from_now_on(&nodes[1]).await?;
    let only = |name: &str| -> Result<WatchQuery> {
        Ok(WatchQuery { from: Some(begin), namespace: Some(name.parse().ok().context("a name")?) })
    };
    let mut made = BTreeMap::new();
    for (name, caller, space) in [
        ("mine", &nodes[0], "default"),
        ("second", &nodes[1], "second"),
        ("theirs", acme, "default"),
        ("end", &nodes[2], "default"),
        ("end of second", &nodes[2], "second"),
        ("end of theirs", acme, "default"),
    ] {
        let claimed =
            caller.claim(&Claim { namespace: space, ..Claim::of(format!("own/{}", name.replace(' ', "-"))) }).await?;
        made.insert(claimed.is(201, "claimed")?.text("operation_id").to_owned(), name);
    }
    let told = async |node: &Caller, query: WatchQuery, end: &str| -> Result<Vec<&str>> {
        let mut watcher = Watcher::open(node, &query).await?;
        let mut names = Vec::new();
        loop {
            let event = watcher.operation().await?;
            names.push(*made.get(event.operation_id.as_str()).context("an operation of nobody")?);
            if names.last() == Some(&end) {
                return Ok(names);
            }
        }
    };
    ensure!(told(&nodes[0], from(begin), "end of second").await? == ["mine", "second", "end", "end of second"]);
    ensure!(told(&nodes[1], only("second")?, "end of second").await? == ["second", "end of second"]);
    ensure!(told(&nodes[2], only("default")?, "end").await? == ["mine", "end"]);
    ensure!(told(&narrow, from(begin), "end of second").await? == ["second", "end of second"]);
    ensure!(told(acme, from(begin), "end of theirs").await? == ["theirs", "end of theirs"]);

    nodes[0].get("/v1/watch?namespace=absent").await?.is(404, "not-found")?;
    narrow.get("/v1/watch?namespace=default").await?.is(403, "auth.forbidden")?;
    acme.get("/v1/watch?namespace=second").await?.is(404, "not-found")?;
    nodes[0].with_token("").get("/v1/watch").await?.is(401, "auth.invalid").map(drop)
}

/// An operation through many states: each change is one event that says where it stands; what changes nothing is none.
async fn every_change_is_told_and_nothing_else(node: &Caller) -> Result<()> {
    let (mut watcher, _) = from_now_on(node).await?;
    let claim = Claim::of("changes/1");
    let operation = node.register(&claim).await?.is(201, "")?.text("operation_id").to_owned();
    node.register(&claim).await?.is(200, "")?;
    let first = node.claim(&claim).await?.is(201, "claimed")?;
    node.claim(&claim).await?.is(201, "claimed")?;
    node.claim(&claim.again()).await?.is(202, "in_progress")?;
    node.renew(first.text("execution_id"), first.epoch(), 60_000).await?.is(200, "")?;
    node.report(first.text("execution_id"), first.epoch(), "not_applied").await?.in_state("not_applied")?;
    let second = node.claim(&claim.again()).await?.is(201, "claimed")?;
    let (execution, epoch) = (second.text("execution_id").to_owned(), second.epoch());
    node.report(&execution, epoch, "unknown").await?.in_state("unknown")?;
    let escalate = json!({ "lease_epoch": epoch, "reason": "nobody answers" });
    node.post(&format!("/v1/executions/{execution}/escalate"), &escalate).await?.in_state("unknown")?;
    node.resolve(&execution, epoch, "completed", json!({})).await?.in_state("completed")?;
    node.repair(&operation, "quarantine", "completed").await?.in_state("completed")?;
    node.repair(&operation, "release", "completed").await?.in_state("completed")?;

    let expected = [
        ("requested", 0, false, false),
        ("executing", 1, false, false),
        ("not_applied", 1, false, false),
        ("executing", 2, false, false),
        ("unknown", 2, false, false),
        ("unknown", 2, true, false),
        ("completed", 2, false, false),
        ("completed", 2, false, true),
        ("completed", 2, false, false),
    ];
    let mut told = Vec::new();
    for _ in expected {
        let event = watcher.operation().await?;
        ensure!(event.operation_id.as_str() == operation, "{event:?}");
        let of_second = event.attempt == 2;
        let id = event.execution_id.as_ref().map(|id| id.as_str().to_owned());
        ensure!(of_second == (id.as_deref() == Some(&execution)), "{event:?}");
        told.push((event.state.as_str(), event.attempt, event.escalated, event.quarantined));
    }
    ensure!(told == expected, "{told:?}");
    Ok(())
}

/// Positions of another life of the cluster, of before its beginning, and of what nobody wrote.
async fn positions_that_cannot_be(node: &Caller) -> Result<()> {
    let (_, now) = from_now_on(node).await?;
    let Revision { incarnation, group, index, ordinal } = now.revision;
    for (incarnation, index) in [(incarnation + 1, index), (incarnation + 1, 1), (incarnation.wrapping_sub(1), index)]
    {
        let path = format!("/v1/watch?from={incarnation}.{group}.{index}.{ordinal}");
        node.get(&path).await?.is(410, "watch.compacted").context(path)?;
    }
    for wrong in ["now", "1.0.1", "1.0.1.0:", "1.0.1.0:01", "-1.0.1.0", ""] {
        let path = format!("/v1/watch?from={wrong}");
        node.get(&path).await?.is(400, "request.invalid").context(path)?;
    }
    let header = node.send(reqwest::Method::GET, "/v1/watch", &[("last-event-id", "now")], None).await?;
    header.is(400, "request.invalid").map(drop)
}

/// What was true at a revision is followed by what changed after it, at a node that may be behind.
async fn a_revision_of_an_answer_is_a_position(nodes: &[Caller]) -> Result<()> {
    for round in 0..20 {
        let (one, other) = (&nodes[round % 3], &nodes[(round + 1) % 3]);
        let before = one.claim(&Claim::of(format!("position/{round}"))).await?.is(201, "claimed")?;
        let revision: Revision = before.text("revision").parse().ok().context("a revision")?;
        let mut watcher = Watcher::open(other, &from(revision.into())).await?;
        let next = one.claim(&Claim::of(format!("position/{round}/next"))).await?.is(201, "claimed")?;
        let event = watcher.operation().await?;
        ensure!(event.operation_id.as_str() == next.text("operation_id"), "round {round}: {event:?}");
    }
    Ok(())
}

async fn a_revoked_watcher_is_told_no_more(nodes: &[Caller]) -> Result<()> {
    let watching = token(&nodes[0], None, "watching", &["read"]).await?;
    let (mut watcher, _) = from_now_on(&watching).await?;
    nodes[0].claim(&Claim::of("revoked/before")).await?.is(201, "claimed")?;
    watcher.operation().await.context("it watches")?;
    let path = format!("/v1/tokens/{}/revoke", watching.token_id().context("a token")?);
    nodes[0].post(&path, &json!({})).await?.is(200, "")?;
    nodes[0].claim(&Claim::of("revoked/after")).await?.is(201, "claimed")?;
    match watcher.next().await? {
        Some(Event::Operation(event)) => bail!("a revoked token was told {event:?}"),
        Some(Event::Problem(problem)) => ensure!(problem.code.as_str() == "auth.invalid", "{problem:?}"),
        Some(Event::Position(_)) | None => {}
    }
    Ok(())
}

async fn there_is_room_for_so_many(node: &Caller) -> Result<()> {
    // Those of before are closed; how soon a node notices is its own business.
    let mut held = until(async || {
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(from_now_on(node).await?.0);
        }
        Ok(held)
    })
    .await?;
    node.get("/v1/watch").await?.is(503, "store.overloaded")?;
    node.claim(&Claim::of("room/1")).await?.is(201, "claimed")?;
    for watcher in &mut held {
        watcher.operation().await?;
    }
    held.pop();
    until(async || from_now_on(node).await.map(drop)).await
}

/// Batches of claims that a reader does not read at first: more bytes than the buffers on the way hold.
const SLOW_BATCHES: usize = 120;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_in_nobodys_way_and_misses_nothing() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let (mut slow, begin) = from_now_on(&nodes[1]).await?;
    let node = nodes[1].clone();
    let fast = tokio::spawn(async move {
        let mut watcher = Watcher::open(&node, &from(begin)).await?;
        let mut told = Vec::new();
        while told.len() < SLOW_BATCHES * 256 {
            told.push(watcher.operation().await?);
        }
        anyhow::Ok(told)
    });
    let mut made = Vec::new();
    for number in 0..SLOW_BATCHES {
        made.extend(claimed_in_one(&nodes[number % 3], number).await?);
    }
    // Whoever reads is told everything while the other one still has not begun.
    let fast = fast.await??;
    let mut told = Vec::new();
    for _ in 0..made.len() {
        told.push(slow.operation().await?);
    }
    ensure!(told == fast, "the slow one was told something else: {:?}", first_difference(&told, &fast));
    for pair in told.windows(2) {
        ensure!(order(&pair[0]) < order(&pair[1]), "not in order: {pair:?}");
    }
    let mut told: Vec<String> = told.iter().map(|event| event.operation_id.as_str().to_owned()).collect();
    told.sort_unstable();
    made.sort_unstable();
    ensure!(told == made, "what was told is not what was made");
    Ok(())
}

/// A full batch of claims; their operations.
async fn claimed_in_one(node: &Caller, number: usize) -> Result<Vec<String>> {
    let item = |item: usize| {
        let key = format!("slow/{number}/{item}");
        json!({ "kind": "claim", "namespace": "default", "key": key, "request": {}, "claim_id": Uuid::new_v4() })
    };
    let items: Vec<Value> = (0..256).map(item).collect();
    let answer = node.post("/v1/batch", &json!({ "items": items })).await?.is(200, "")?;
    let results = answer.body["results"].as_array().context("results")?;
    ensure!(results.iter().all(|result| result["status"] == 201), "{results:?}");
    let id = |result: &Value| result["body"]["operation_id"].as_str().unwrap_or_default().to_owned();
    Ok(results.iter().map(id).collect())
}
