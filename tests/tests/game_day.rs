//! A game day: high-value refunds are stuck, unknown, doubled and wrong, the leader is dead, and people repair all of it from the
//! command line, each with the roles of their own, without a hand on any database. The provider's ledger and the record say whether
//! they did. (REQUIREMENTS 26, 58–61, 98, 129–134, 137; 001 §14, §15.12)

use anyhow::{Context, Result, ensure};
use hapax_tests::authority::configured_token;
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::refunds::{Message, NAMESPACE, Refunds, SECTION};
use hapax_tests::shell::{Shell, text};
use serde_json::{Value, json};

/// As long as leases may be: nobody waits for one to lapse on a game day.
const LEASE_MS: u64 = 900_000;

/// Who repairs, and what there is to repair.
struct Day {
    nodes: Vec<Caller>,
    refunds: Refunds,
    reconciler: Shell,
    operator: Shell,
}

impl Day {
    /// A worker is elected under a long lease, sends or does not, and is never heard of again.
    async fn hangs(&self, order: &str, sends: bool) -> Result<(Message, Answer)> {
        let message = self.refunds.approve(order, "250000.00").await?;
        let claim = Claim { lease_ms: LEASE_MS, owner: "w-7".to_owned(), ..self.refunds.claim(&message)? };
        let granted = self.nodes[0].claim(&claim).await?.is(201, "claimed")?;
        if sends {
            let payment = self.refunds.payment(&message.operation)?;
            self.refunds.provider.refund(granted.text("effect_key"), &payment).await;
        }
        Ok((message, granted))
    }

    /// The operator finds who holds the operation, and ends it. Nobody else may.
    fn fenced(&self, message: &Message) -> Result<()> {
        let listed = self.operator.done(&["list", "executing", "--namespace", NAMESPACE])?;
        let stuck = listed["operations"].as_array().into_iter().flatten();
        ensure!(stuck.clone().any(|one| one["operation_id"] == message.operation.as_str()), "{listed}");
        let read = self.operator.done(&["get", &message.operation])?;
        let execution = text(&read["execution"], "execution_id")?;
        ensure!(read["execution"]["owner"] == "w-7", "{read}");
        let epoch = read["execution"]["lease_epoch"].to_string();
        let fence =
            ["operation", "fence", execution, "--lease-epoch", &epoch, "--reason", "w-7 lost its disk, OPS-12"];
        self.reconciler.refused(&fence, "auth.forbidden")?;
        self.operator.done(&fence)?;
        Ok(())
    }

    /// What the reconciler holds of this operation.
    fn leased(&self, message: &Message) -> Result<(String, String)> {
        let lease = ["reconcile", "lease", "--owner", "night-shift", "--namespace", NAMESPACE, "--limit", "100"];
        let leased = self.reconciler.done(&lease)?;
        let mut items = leased["items"].as_array().into_iter().flatten();
        let item = items.find(|item| item["operation_id"] == message.operation.as_str());
        let item = item.with_context(|| format!("{} is not among {leased}", message.operation))?;
        Ok((text(item, "execution_id")?.to_owned(), item["lease_epoch"].to_string()))
    }

    /// The operation's record: who said what, in this order.
    fn said(&self, operation: &str, expected: &[(&str, &str)]) -> Result<()> {
        let record = self.operator.done(&["evidence", "list", "--operation", operation])?;
        let words =
            record["entries"].as_array().context("no entries")?.iter().filter(|entry| entry["kind"] == "word");
        let found: Vec<(&Value, &Value)> = words.clone().map(|word| (&word["said"], &word["client"])).collect();
        let expected: Vec<_> = expected.iter().map(|(said, client)| (json!(said), json!(client))).collect();
        ensure!(found == expected.iter().map(|(said, by)| (said, by)).collect::<Vec<_>>(), "{record}");
        ensure!(words.clone().all(|word| word["reason"].is_string() || word["proof"].is_string()), "{record}");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_repaired_from_the_command_line() -> Result<()> {
    let (reconciler, first) = configured_token(11, "dev", "rita", &["reconcile", "read"]);
    let (operator, second) = configured_token(12, "dev", "olga", &["operate", "read"]);
    let sections = format!("{SECTION}{first}{second}");
    let mut cluster = Cluster::start(Options { sections, ..Options::default() }).await?;
    let urls: Vec<&str> = cluster.nodes.iter().map(|node| node.url.as_str()).collect();
    let urls = urls.join(",");
    // The leader dies in the morning and is not there all day.
    let dead = cluster.leader().await?;
    cluster.nodes[dead].kill()?;
    cluster.leader().await?;
    let mut nodes = cluster.callers();
    nodes.remove(dead);
    let refunds = Refunds::new(nodes[0].clone());
    let (reconciler, operator) = (Shell::new(urls.as_str(), reconciler), Shell::new(urls.as_str(), operator));
    let day = Day { nodes, refunds, reconciler, operator };

    let sent = sent_and_never_told(&day).await?;
    let unsent = never_sent(&day).await?;
    let doubled = refunded_twice(&day).await?;
    let (wrong, right) = the_wrong_request(&day).await?;

    // The evening: the node that was away tells the same as the others.
    cluster.nodes[dead].start()?;
    cluster.ready().await?;
    for node in cluster.callers() {
        for operation in [&sent, &unsent, &doubled, &right] {
            let read = node.operation(operation).await?.in_state("completed")?;
            ensure!(read.body["quarantined"] == false, "{read:?}");
        }
        node.operation(&wrong).await?.in_state("failed")?;
    }
    for state in ["executing", "unknown", "escalated", "quarantined"] {
        let left = day.operator.done(&["list", state, "--namespace", NAMESPACE])?;
        ensure!(left["operations"] == json!([]), "still {state}: {left}");
    }
    Ok(())
}

/// The worker sent and hangs. The provider knows the refund: the reconciler says so, with the provider's reference.
async fn sent_and_never_told(day: &Day) -> Result<String> {
    let (message, granted) = day.hangs("ORD-SENT", true).await?;
    let operation = &message.operation;
    day.fenced(&message)?;
    let (execution, epoch) = day.leased(&message)?;
    let refund = day.refunds.provider.find(operation).context("the provider has it")?;
    let resolve =
        ["reconcile", "resolve", &execution, "--lease-epoch", &epoch, "completed", "--proof", "GET by reference"];
    day.reconciler.done(&[&resolve[..], &["--external-id", &refund.id]].concat())?;
    // The worker comes back, and is told that it is not its turn.
    let late = day.nodes[1].report(granted.text("execution_id"), granted.epoch(), "not_applied").await?;
    late.is(409, "lease.stale-epoch")?;
    let found = day.operator.done(&["lookup", "--namespace", NAMESPACE, "--external-id", &refund.id])?;
    ensure!(found["operations"][0]["operation_id"] == operation.as_str(), "{found}");
    day.refunds.ledger_shows(operation, 1, 1)?;
    day.said(operation, &[("fence", "olga"), ("resolve", "rita")])?;
    Ok(message.operation)
}

/// The worker hung before it sent. The provider does not know the refund, which proves nothing: people ask its people. Then it is
/// decided again.
async fn never_sent(day: &Day) -> Result<String> {
    let (message, _) = day.hangs("ORD-UNSENT", false).await?;
    let operation = &message.operation;
    day.fenced(&message)?;
    let (execution, epoch) = day.leased(&message)?;
    ensure!(day.refunds.provider.look_up(operation) == Ok(None), "the provider has it");
    let held = [execution.as_str(), "--lease-epoch", &epoch];
    day.reconciler
        .done(&[&["reconcile", "escalate"][..], &held, &["--reason", "not found, ask the bank"]].concat())?;
    let waiting = day.operator.done(&["list", "escalated", "--namespace", NAMESPACE])?;
    ensure!(waiting["operations"][0]["operation_id"] == operation.as_str(), "{waiting}");
    let early = day.refunds.decide(operation, "DEC-EARLY", 1, json!({})).await?;
    let early = message.with_authority("MSG-EARLY", &early);
    day.refunds.deliver(&day.nodes[1], &early).await?.claim.is(409, "operation.outcome-unknown")?;
    let proof = ["not_applied", "--proof", "the bank, by letter: no such transfer"];
    day.operator.done(&[&["reconcile", "resolve"][..], &held, &proof].concat())?;
    let again = day.refunds.decide(operation, "DEC-AGAIN", 2, json!({})).await?;
    let again = message.with_authority("MSG-AGAIN", &again);
    let delivered = day.refunds.deliver(&day.nodes[1], &again).await?;
    delivered.report.context("the provider was not called")?.in_state("completed")?;
    day.refunds.ledger_shows(operation, 1, 1)?;
    day.said(operation, &[("fence", "olga"), ("escalate", "rita"), ("resolve", "olga")])?;
    Ok(message.operation)
}

/// Somebody refunded by hand too. The contradiction stops claims until the second refund was taken back, which is an effect of its own.
async fn refunded_twice(day: &Day) -> Result<String> {
    let message = day.refunds.approve("ORD-DOUBLED", "90000.00").await?;
    let operation = &message.operation;
    let delivered = day.refunds.deliver(&day.nodes[0], &message).await?;
    let (execution, epoch) = (delivered.claim.text("execution_id"), delivered.claim.epoch().to_string());
    day.refunds.provider.refund("by hand", &day.refunds.payment(operation)?).await;
    let second = day.refunds.provider.refunds(operation).pop().context("the second refund")?;
    let resolve = ["reconcile", "resolve", execution, "--lease-epoch", &epoch, "completed", "--proof", "statement"];
    day.reconciler.refused(&[&resolve[..], &["--external-id", &second.id]].concat(), "outcome.conflict")?;
    let stopped = day.operator.done(&["list", "quarantined", "--namespace", NAMESPACE])?;
    ensure!(stopped["operations"][0]["operation_id"] == operation.as_str(), "{stopped}");
    let take_back = ["--expected-state", "completed", "--reason", "taken back, OPS-13", "--proof", "reversal-1"];
    let release = [&["operation", "release", operation.as_str()][..], &take_back].concat();
    day.reconciler.refused(&release, "auth.forbidden")?;
    day.operator.done(&release)?;
    day.refunds.deliver(&day.nodes[1], &message).await?.claim.is(200, "duplicate_delivery")?;
    // Two are on the provider's ledger, and the record says why.
    day.refunds.ledger_shows(operation, 2, 2)?;
    day.said(operation, &[("resolve", "rita"), ("release", "olga")])?;
    Ok(message.operation)
}

/// A request with two digits too many waits for its worker: it is ended, and the right one takes its place under a key of its own.
async fn the_wrong_request(day: &Day) -> Result<(String, String)> {
    let wrong = day.refunds.approve("ORD-WRONG", "9000.00").await?;
    let why = ["--reason", "two digits too many, OPS-14", "--proof", "the customer's letter"];
    let close = ["operation", "close", wrong.operation.as_str(), "--expected-state", "requested"];
    day.operator.done(&[&close[..], &why].concat())?;
    day.refunds.deliver(&day.nodes[0], &wrong).await?.claim.is(409, "operation.failed")?;
    let right = day.refunds.approve("ORD-RIGHT", "90.00").await?;
    let supersede =
        ["operation", "supersede", wrong.operation.as_str(), "--expected-state", "failed", "--by", &right.operation];
    day.operator.done(&[&supersede[..], &why].concat())?;
    let delivered = day.refunds.deliver(&day.nodes[1], &right).await?;
    delivered.report.context("the provider was not called")?.in_state("completed")?;
    day.refunds.ledger_shows(&wrong.operation, 0, 0)?;
    day.refunds.ledger_shows(&right.operation, 1, 1)?;
    day.said(&wrong.operation, &[("close", "olga"), ("supersede", "olga")])?;
    Ok((wrong.operation, right.operation))
}
