//! Lists and look-ups: each set, oldest first, in pages that meet everything that stays and nothing twice while the data
//! changes; a cursor is good for its own question; and whoever looks by key, provider's id or resource finds what there is.
//! (REQUIREMENTS 58, 68, 74, 84, 94, 125, 129)

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use hapax_api::query::encoded;
use hapax_tests::admin::{everybody_knows, from_now, millis, namespace, tenant, token};
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use serde_json::{Value, json};

const STATES: [&str; 8] =
    ["requested", "executing", "unknown", "escalated", "not_applied", "completed", "failed", "quarantined"];

fn ids(page: &Answer) -> Vec<String> {
    let operations = page.body["operations"].as_array().into_iter().flatten();
    operations.map(|operation| operation["operation_id"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A list from its first page to its last, each page from the next node.
async fn listed(nodes: &[Caller], question: &str, limit: usize) -> Result<Vec<String>> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    for page in 0.. {
        let node = &nodes[page % nodes.len()];
        let answer = node.get(&format!("/v1/operations?{question}&limit={limit}{cursor}")).await?.is(200, "")?;
        let found = ids(&answer);
        ensure!(found.len() <= limit, "{} on a page of {limit}", found.len());
        all.extend(found);
        match answer.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    Ok(all)
}

fn of(state: &str) -> String {
    format!("namespace=lists&state={state}")
}

/// One operation, brought into a state. Returns its id.
async fn make(node: &Caller, key: &str, state: &str) -> Result<String> {
    let claim = Claim { namespace: "lists", ..Claim::of(key) };
    if state == "requested" {
        return Ok(node.register(&claim).await?.is(201, "")?.text("operation_id").to_owned());
    }
    let granted = node.claim(&claim).await?.is(201, "claimed")?;
    let (operation, execution) = (granted.text("operation_id").to_owned(), granted.text("execution_id"));
    match state {
        "executing" => {}
        "escalated" => {
            node.report(execution, granted.epoch(), "unknown").await?.in_state("unknown")?;
            let body = json!({ "lease_epoch": granted.epoch(), "reason": "nobody answers" });
            node.post(&format!("/v1/executions/{execution}/escalate"), &body).await?.in_state("unknown")?;
        }
        "quarantined" => {
            node.report(execution, granted.epoch(), "unknown").await?.in_state("unknown")?;
            node.repair(&operation, "quarantine", "unknown").await?.in_state("unknown")?;
        }
        outcome => {
            node.report(execution, granted.epoch(), outcome).await?.in_state(outcome)?;
        }
    }
    Ok(operation)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_set_is_listed_oldest_first_in_pages_that_survive_change() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    namespace(&nodes[0], None, "lists", &json!({})).await?;
    let made = each_state_has_its_list(&nodes).await?;
    older_than_is_since_when(&nodes, &made).await?;
    operations_move_between_lists(&nodes, &made).await?;
    pages_over_changing_data(&nodes).await?;
    a_cursor_is_good_for_its_own_question(&nodes).await
}

/// Seven of each state, made in turn through all nodes, are in the list of their state in the order in which they came
/// into it, on every node and in pages of every size.
async fn each_state_has_its_list(nodes: &[Caller]) -> Result<BTreeMap<&'static str, Vec<String>>> {
    let mut made: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for round in 0..7 {
        for (at, state) in STATES.into_iter().enumerate() {
            let id = make(&nodes[(round + at) % 3], &format!("{state}/{round}"), state).await?;
            made.entry(state).or_default().push(id);
        }
    }
    for limit in [1, 3, 7, 500] {
        for state in STATES {
            let mut expected = made[state].clone();
            if state == "unknown" {
                // What is quarantined is in the list of its state too; they came in turn, and the quarantined after.
                expected = made["unknown"]
                    .iter()
                    .zip(&made["quarantined"])
                    .flat_map(|(one, other)| [one, other].map(String::clone))
                    .collect();
            }
            let found = listed(nodes, &of(state), limit).await?;
            ensure!(found == expected, "{state} in pages of {limit}: {found:?} is not {expected:?}");
        }
    }
    let usage = nodes[2].get("/v1/namespaces/lists").await?.is(200, "")?;
    // Requested, executing, unknown, escalated, not_applied, quarantined; of these unknown, escalated, quarantined.
    ensure!(usage.body["usage"] == json!({ "open_operations": 42, "unknown": 21 }), "{usage:?}");
    for (limit, status) in [("0", 400), ("501", 400), ("x", 400), ("500", 200)] {
        let answer = nodes[0].get(&format!("/v1/operations?{}&limit={limit}", of("failed"))).await?;
        ensure!(answer.status == status, "limit {limit}: {answer:?}");
    }
    for question in
        ["", "namespace=lists", "state=failed", "namespace=lists&state=done", "namespace=lists&state=failed&x=1"]
    {
        nodes[0].get(&format!("/v1/operations?{question}")).await?.is(400, "request.invalid").context(question)?;
    }
    nodes[0].get("/v1/operations?namespace=absent&state=failed").await?.is(404, "not-found")?;
    Ok(made)
}

async fn older_than_is_since_when(nodes: &[Caller], made: &BTreeMap<&str, Vec<String>>) -> Result<()> {
    // By the times that the operations themselves show: the boundary itself is not older.
    let completed = &made["completed"];
    let fourth = nodes[0].operation(&completed[3]).await?;
    let since = fourth.body["outcome"]["completed_at"].as_str().context("a time")?.to_owned();
    let before = async |at: &str| listed(nodes, &format!("{}&older_than={}", of("completed"), encoded(at)), 2).await;
    let found = before(&since).await?;
    ensure!(!found.contains(&completed[3]) && found == completed[..found.len()], "{found:?} before {since}");
    for id in &completed[found.len()..] {
        let read = nodes[1].operation(id).await?;
        let at = read.body["outcome"]["completed_at"].as_str().map(millis).unwrap_or_default();
        ensure!(at >= millis(&since), "{id} is older than {since} and not listed");
    }
    ensure!(before("1970-01-01T00:00:00.000Z").await?.is_empty());
    ensure!(before(&from_now(3_600_000)).await? == *completed, "all are older than what is to come");
    let path = format!("/v1/operations?{}&older_than=yesterday", of("completed"));
    nodes[0].get(&path).await?.is(400, "request.invalid").map(drop)
}

/// What leaves a set is in its list no longer, from the answer to what made it leave; it is last in its new one.
async fn operations_move_between_lists(nodes: &[Caller], made: &BTreeMap<&str, Vec<String>>) -> Result<()> {
    let first = &made["escalated"][0];
    let read = nodes[0].operation(first).await?;
    let (execution, epoch) = (
        read.body["execution"]["execution_id"].as_str().context("an execution")?,
        read.body["execution"]["lease_epoch"].as_u64().context("an epoch")?,
    );
    let body = json!({ "lease_epoch": epoch, "escalated": false, "reason": "somebody answers" });
    nodes[0].post(&format!("/v1/executions/{execution}/escalate"), &body).await?.in_state("unknown")?;
    ensure!(!listed(nodes, &of("escalated"), 500).await?.contains(first));
    // It is as long unknown as it was: an old one is not put behind younger ones.
    let unknown = listed(nodes, &of("unknown"), 500).await?;
    let at = unknown.iter().position(|id| id == first).context("it is unknown again")?;
    ensure!(at == 1 || at == 2, "after the first unknown, and not at {at}: {unknown:?}");
    nodes[1].resolve(execution, epoch, "failed", json!({})).await?.in_state("failed")?;
    ensure!(!listed(nodes, &of("unknown"), 500).await?.contains(first));
    ensure!(listed(nodes, &of("failed"), 500).await?.last() == Some(first));

    let kept = &made["quarantined"][0];
    nodes[2].repair(kept, "release", "unknown").await?.in_state("unknown")?;
    ensure!(!listed(nodes, &of("quarantined"), 500).await?.contains(kept));
    ensure!(listed(nodes, &of("unknown"), 500).await?.contains(kept));
    Ok(())
}

/// Between any two pages some leave the set, some come into it, and the node changes.
async fn pages_over_changing_data(nodes: &[Caller]) -> Result<()> {
    namespace(&nodes[0], None, "churn", &json!({})).await?;
    let mut granted = Vec::new();
    for n in 0..60 {
        let claim = Claim { namespace: "churn", ..Claim::of(format!("churn/{n}")) };
        granted.push(nodes[n % 3].claim(&claim).await?.is(201, "claimed")?);
    }
    let mut left = BTreeSet::new();
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    for page in 0.. {
        let node = &nodes[page % 3];
        let path = format!("/v1/operations?namespace=churn&state=executing&limit=7{cursor}");
        let answer = node.get(&path).await?.is(200, "")?;
        for id in ids(&answer) {
            ensure!(!left.contains(&id), "{id} had left before the page was asked for");
            seen.push(id);
        }
        let Some(next) = answer.body["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
        // The one after the next, the one that the cursor stands at, and one far behind: seen or not, they go.
        for at in [seen.len() + 1, seen.len() - 1, 59 - page] {
            let one = &granted[at.min(59)];
            let node = &nodes[(page + 1) % 3];
            node.report(one.text("execution_id"), one.epoch(), "completed").await?.in_state("completed")?;
            left.insert(one.text("operation_id").to_owned());
        }
        let claim = Claim { namespace: "churn", ..Claim::of(format!("churn/new/{page}")) };
        granted.push(nodes[(page + 2) % 3].claim(&claim).await?.is(201, "claimed")?);
    }
    let distinct: BTreeSet<&String> = seen.iter().collect();
    ensure!(distinct.len() == seen.len(), "something was listed twice: {seen:?}");
    let order: BTreeMap<&str, usize> =
        granted.iter().enumerate().map(|(n, one)| (one.text("operation_id"), n)).collect();
    let places: Vec<usize> = seen.iter().filter_map(|id| order.get(id.as_str()).copied()).collect();
    ensure!(places.len() == seen.len() && places.is_sorted(), "not oldest first: {places:?}");
    for one in &granted[..60] {
        let id = one.text("operation_id");
        ensure!(left.contains(id) || seen.iter().any(|seen| seen == id), "{id} stayed and was not listed");
    }
    Ok(())
}

async fn a_cursor_is_good_for_its_own_question(nodes: &[Caller]) -> Result<()> {
    let first = nodes[0].get(&format!("/v1/operations?{}&limit=2", of("failed"))).await?.is(200, "")?;
    let cursor = first.body["next_cursor"].as_str().context("more than one page")?.to_owned();
    let good = format!("/v1/operations?{}&limit=5&cursor={cursor}", of("failed"));
    nodes[1].get(&good).await?.is(200, "").context("another page size, at another node")?;
    let at = from_now(0);
    let others = [
        of("completed"),
        "namespace=churn&state=failed".to_owned(),
        format!("{}&older_than={}", of("failed"), encoded(&at)),
    ];
    for question in others {
        let answer = nodes[0].get(&format!("/v1/operations?{question}&cursor={cursor}")).await?;
        answer.is(400, "request.invalid").context(question)?;
    }
    let lookup = json!({ "namespace": "lists", "resource": "R/1", "cursor": cursor });
    nodes[0].post("/v1/operations/lookup", &lookup).await?.is(400, "request.invalid")?;
    nodes[0].get(&format!("/v1/tokens?cursor={cursor}")).await?.is(400, "request.invalid")?;
    // Another tenant asks the same question, of its own namespace of the same name.
    tenant(&nodes[0], "acme", &json!({})).await?;
    namespace(&nodes[0], Some("acme"), "lists", &json!({})).await?;
    let acme = token(&nodes[0], Some("acme"), "acme", &["read"]).await?;
    ensure!(ids(&acme.get(&format!("/v1/operations?{}", of("failed"))).await?.is(200, "")?).is_empty());
    acme.get(&good).await?.is(400, "request.invalid")?;
    for wrong in ["", "c1_", "c2_AAAA", &cursor[3..], &format!("{cursor}="), &"c1_".repeat(300)] {
        let answer = nodes[0].get(&format!("/v1/operations?{}&cursor={wrong}", of("failed"))).await?;
        answer.is(400, "request.invalid").with_context(|| wrong.to_owned())?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_are_found_by_key_by_the_providers_id_and_by_resource() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    namespace(&nodes[0], None, "lists", &json!({})).await?;
    by_key(&nodes).await?;
    by_others_names(&nodes).await?;
    nothing_is_an_empty_page(&nodes).await?;
    by_a_clients_own_scope(&nodes).await
}

async fn found(node: &Caller, body: &Value) -> Result<Vec<String>> {
    Ok(ids(&node.post("/v1/operations/lookup", body).await?.is(200, "")?))
}

async fn by_key(nodes: &[Caller]) -> Result<()> {
    let mut made = Vec::new();
    for epoch in [None, Some("2026-07"), Some("2026-08")] {
        let mut claim = Claim { namespace: "lists", ..Claim::of("rent") };
        if let Some(epoch) = epoch {
            claim = claim.with("business_epoch", epoch);
        }
        let granted = nodes[0].claim(&claim).await?.is(201, "claimed")?;
        made.push((epoch, granted.text("operation_id").to_owned()));
    }
    for node in nodes {
        for (epoch, id) in &made {
            let mut body = json!({ "namespace": "lists", "key": "rent" });
            if let Some(epoch) = epoch {
                body["business_epoch"] = json!(epoch);
            }
            ensure!(found(node, &body).await? == [id.clone()], "{epoch:?}");
        }
    }
    // The whole status, as its own path shows it, but for when it was read.
    let page = nodes[1].post("/v1/operations/lookup", &json!({ "namespace": "lists", "key": "rent" })).await?;
    let own = nodes[1].operation(&made[0].1).await?;
    for (name, value) in own.body.as_object().into_iter().flatten() {
        let same = name == "revision" || name == "execution" || page.body["operations"][0][name] == *value;
        ensure!(same, "{name}: {page:?} is not {own:?}");
    }
    Ok(())
}

/// Five operations about a resource, three of which the provider calls by one name.
async fn by_others_names(nodes: &[Caller]) -> Result<()> {
    let mut about = Vec::new();
    for n in 0..5 {
        let claim = Claim { namespace: "lists", ..Claim::of(format!("about/{n}")) }.with("resource", "order/82%");
        let granted = nodes[n % 3].claim(&claim).await?.is(201, "claimed")?;
        about.push(granted.text("operation_id").to_owned());
        if n < 3 {
            let path = format!("/v1/executions/{}/outcome", granted.text("execution_id"));
            let body = json!({ "lease_epoch": granted.epoch(), "outcome": "completed", "external_id": "ch_7" });
            nodes[n % 3].post(&path, &body).await?.in_state("completed")?;
        }
    }
    // The same names in another namespace are other operations'.
    namespace(&nodes[0], None, "elsewhere", &json!({})).await?;
    let claim = Claim { namespace: "elsewhere", ..Claim::of("about/0") }.with("resource", "order/82%");
    nodes[0].claim(&claim).await?.is(201, "claimed")?;
    for node in nodes {
        ensure!(found(node, &json!({ "namespace": "lists", "resource": "order/82%" })).await? == about);
        ensure!(found(node, &json!({ "namespace": "lists", "external_id": "ch_7" })).await? == about[..3]);
    }
    let (mut paged, mut cursor) = (Vec::new(), Value::Null);
    for page in 0.. {
        let mut body = json!({ "namespace": "lists", "resource": "order/82%", "limit": 2 });
        if !cursor.is_null() {
            body["cursor"] = cursor.clone();
            let mut other = body.clone();
            other["resource"] = json!("order/83");
            nodes[0].post("/v1/operations/lookup", &other).await?.is(400, "request.invalid")?;
        }
        let answer = nodes[page % 3].post("/v1/operations/lookup", &body).await?.is(200, "")?;
        paged.extend(ids(&answer));
        cursor = answer.body["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    ensure!(paged == about, "{paged:?} is not {about:?}");
    // A provider's id that comes with a resolution finds as well, from then on.
    let granted =
        nodes[0].claim(&Claim { namespace: "lists", ..Claim::of("about/late") }).await?.is(201, "claimed")?;
    nodes[0].report(granted.text("execution_id"), granted.epoch(), "unknown").await?.in_state("unknown")?;
    let more = json!({ "external_id": "ch_8" });
    nodes[1]
        .resolve(granted.text("execution_id"), granted.epoch(), "completed", more)
        .await?
        .in_state("completed")?;
    ensure!(
        found(&nodes[2], &json!({ "namespace": "lists", "external_id": "ch_8" })).await?
            == [granted.text("operation_id")]
    );
    Ok(())
}

async fn nothing_is_an_empty_page(nodes: &[Caller]) -> Result<()> {
    for (name, value) in [("key", "absent"), ("external_id", "absent"), ("resource", "absent")] {
        ensure!(found(&nodes[0], &json!({ "namespace": "lists", name: value })).await?.is_empty(), "{name}");
    }
    let wrong = [
        json!({ "namespace": "lists" }),
        json!({ "namespace": "lists", "key": "k", "resource": "r" }),
        json!({ "namespace": "lists", "key": "k", "external_id": "e" }),
        json!({ "namespace": "lists", "resource": "r", "business_epoch": "b" }),
        json!({ "namespace": "lists", "key": "k", "limit": 501 }),
    ];
    for body in wrong {
        nodes[0].post("/v1/operations/lookup", &body).await?.is(400, "request.invalid").context(body.to_string())?;
    }
    let absent = json!({ "namespace": "absent", "key": "k" });
    nodes[0].post("/v1/operations/lookup", &absent).await?.is(404, "not-found").map(drop)
}

/// Where each client has keys of its own, a look-up by key finds the caller's.
async fn by_a_clients_own_scope(nodes: &[Caller]) -> Result<()> {
    namespace(&nodes[0], None, "own", &json!({ "scope": "client" })).await?;
    let mut made = Vec::new();
    for client in ["one", "other"] {
        let caller = token(&nodes[0], None, client, &["claim", "read"]).await?;
        let granted = caller.claim(&Claim { namespace: "own", ..Claim::of("mine") }).await?.is(201, "claimed")?;
        made.push((caller, granted.text("operation_id").to_owned()));
    }
    everybody_knows(nodes).await?;
    for (caller, id) in &made {
        for node in nodes {
            let body = json!({ "namespace": "own", "key": "mine" });
            ensure!(found(&node.with_token_of(caller), &body).await? == std::slice::from_ref(id));
        }
    }
    Ok(())
}
