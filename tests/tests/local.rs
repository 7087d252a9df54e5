//! Definite facts are answered where the caller is: three nodes in three regions with an ocean between each two of them. What
//! nothing can change any more crosses none, everything else crosses at least one; and a node that is cut off answers facts for
//! as long as its state is recent, and no longer. (REQUIREMENTS 27, 87, 88, 92; DESIGN §4)

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hapax_api::text::Revision;
use hapax_tests::admin::{everybody_knows, token};
use hapax_tests::caller::{Answer, Caller, Claim, nothing};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::refunds::SECTION;
use hapax_tests::wait::until;
use serde_json::json;

/// Each byte between two regions takes so long, each way.
const ONE_WAY: Duration = Duration::from_millis(40);
const ROUND_TRIP: Duration = Duration::from_millis(80);
/// What a local answer may take, which is what the loopback and this machine make of it.
const AT_HOME: Duration = Duration::from_millis(2);
/// `reads.local_fact_max_staleness_ms` as it is by default.
const STALENESS: Duration = Duration::from_secs(2);
/// The nodes' own deadline, in milliseconds, and that with some slack for a busy machine.
const DEADLINE_MS: u64 = 1_500;
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Answers that a median is taken of.
const SAMPLES: usize = 41;
/// A busy machine makes a round slower, never faster: the quickest of so many counts.
const ROUNDS: usize = 8;
const SPENT: &str = "capability.already-consumed";

/// Three nodes, each an ocean away from the others, and one fact of each kind that all of them know.
struct World {
    cluster: Cluster,
    nodes: Vec<Caller>,
    leader: usize,
    facts: Facts,
}

/// Claims whose answers can never change.
struct Facts {
    receipt: Claim,
    operation: String,
    capability: String,
}

impl World {
    async fn new() -> Result<Self> {
        let options = Options {
            raft: "profile = \"wan\"".to_owned(),
            limits: format!("request_timeout_ms = {DEADLINE_MS}"),
            sections: SECTION.to_owned(),
            ..Options::default()
        };
        let cluster = Cluster::start(options).await?;
        for (a, b) in [(1, 2), (1, 3), (2, 3)] {
            cluster.network.delay(a, b, ONE_WAY);
        }
        let (nodes, leader) = (cluster.callers(), cluster.leader().await?);
        let facts = Facts::new(&nodes[leader]).await?;
        everybody_knows(&nodes).await?;
        Ok(Self { cluster, nodes, leader, facts })
    }

    /// A node in another region than the leader's.
    fn far(&self) -> &Caller {
        &self.nodes[(self.leader + 1) % 3]
    }

    fn isolate(&self, at: usize) {
        let ids: Vec<u64> = self.cluster.nodes.iter().map(|node| node.id).collect();
        let others: Vec<u64> = ids.iter().copied().filter(|id| *id != ids[at]).collect();
        self.cluster.network.isolate(ids[at], &others);
    }
}

impl Facts {
    async fn new(node: &Caller) -> Result<Self> {
        let receipt = Claim::of("local/receipt");
        let operation = completed(node, &receipt).await?.text("operation_id").to_owned();
        let refund = Claim { namespace: "refunds", ..Claim::of("local/refund") };
        let (_, capability) = node.approve(&refund, "DEC-1").await?;
        node.claim(&refund.presenting(&capability)).await?.is(201, "claimed")?;
        node.bump("superseded", 0).await?.is(200, "")?;
        Ok(Self { receipt, operation, capability })
    }

    /// One claim of each kind, as another call each, and what it is told.
    fn claims(&self) -> [(Claim, &'static str, u16, &'static str); 3] {
        let spent = Claim { namespace: "refunds", ..Claim::of("local/refund") }.presenting(&self.capability);
        let stale = Claim::of("local/never").under("superseded", 0);
        [
            (self.receipt.again(), "a receipt", 200, "replayed"),
            (spent, "a spent capability", 409, SPENT),
            (stale, "a superseded epoch", 403, "epoch.stale"),
        ]
    }
}

async fn completed(node: &Caller, claim: &Claim) -> Result<Answer> {
    let granted = node.claim(claim).await?.is(201, "claimed")?;
    node.report(granted.text("execution_id"), granted.epoch(), "completed").await?.in_state("completed")
}

fn is_local(answer: &Answer) -> bool {
    answer.text("consistency") == "local"
}

fn revision(answer: &Answer) -> Result<Revision> {
    answer.text("revision").parse().with_context(|| format!("no revision: {answer:?}"))
}

/// Waits until the node answers this claim from its own state: the first one to ask in a while goes through the log.
async fn until_local(node: &Caller, claim: &Claim) -> Result<Answer> {
    until(async || {
        let answer = node.claim(&claim.again()).await?;
        ensure!(is_local(&answer), "not local: {answer:?}");
        Ok(answer)
    })
    .await
}

async fn timed(call: impl Future<Output = Result<Answer>>) -> Result<(Duration, Answer)> {
    let begun = Instant::now();
    let answer = call.await?;
    Ok((begun.elapsed(), answer))
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(Duration::MAX)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_are_answered_at_home_and_all_else_crosses_an_ocean() -> Result<()> {
    let world = World::new().await?;
    for (claim, name, status, verdict) in world.facts.claims() {
        for (region, node) in [("another region", world.far()), ("the leader's region", &world.nodes[world.leader])] {
            let took = quickest(node, &claim, status, verdict).await.context(name)?;
            println!("{name} in {region}: {} us", took.as_micros());
            ensure!(took < AT_HOME, "{name} in {region} took {took:?}");
        }
    }
    let mut claimed = Vec::new();
    for (region, node) in [("another region", world.far()), ("the leader's region", &world.nodes[world.leader])] {
        let mut all = Vec::new();
        for n in 0..SAMPLES {
            let claim = Claim::of(format!("local/fresh/{region}/{n}").replace(' ', "-"));
            let (took, answer) = timed(node.claim(&claim)).await?;
            let answer = answer.is(201, "claimed")?;
            ensure!(answer.body["consistency"].is_null(), "a local grant: {answer:?}");
            all.push(took);
        }
        claimed.push(median(all));
        println!("a fresh claim in {region}: {} ms", claimed[claimed.len() - 1].as_millis());
    }
    // To the leader and back, and from the leader to the nearest quorum and back.
    ensure!(claimed[0] >= 2 * ROUND_TRIP, "elected from afar within {:?}", claimed[0]);
    ensure!(claimed[1] >= ROUND_TRIP && claimed[1] < claimed[0], "elected by the leader within {:?}", claimed[1]);
    never_local(&world).await?;
    reads(&world).await
}

/// The median of the quickest round, in which every answer is local and the right one.
async fn quickest(node: &Caller, claim: &Claim, status: u16, verdict: &str) -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        until_local(node, claim).await?;
        let mut all = Vec::new();
        for _ in 0..SAMPLES {
            let (took, answer) = timed(node.claim(&claim.again())).await?;
            let answer = answer.is(status, verdict)?;
            if is_local(&answer) {
                revision(&answer)?;
                all.push(took);
            }
        }
        // A machine that is stopped for seconds confirms nothing meanwhile; most of a round it is not.
        if all.len() > SAMPLES / 2 {
            best = best.min(median(all));
        }
        if best < AT_HOME {
            break;
        }
    }
    Ok(best)
}

/// What is absent, at work, unknown, quarantined, or granted is never answered from a node's own state, however recent that is.
async fn never_local(world: &World) -> Result<()> {
    let leader = &world.nodes[world.leader];
    let said = async |key: &str, outcome: &str| {
        let claim = Claim::of(key);
        let granted = leader.claim(&claim).await?.is(201, "claimed")?;
        if !outcome.is_empty() {
            leader.report(granted.text("execution_id"), granted.epoch(), outcome).await?.in_state(outcome)?;
        }
        Ok::<_, anyhow::Error>((claim, granted.text("operation_id").to_owned()))
    };
    let (executing, _) = said("never/executing", "").await?;
    let (unknown, _) = said("never/unknown", "unknown").await?;
    let (doubted, operation) = said("never/doubted", "unknown").await?;
    leader.repair(&operation, "quarantine", "unknown").await?;
    let (conflicting, operation) = said("never/conflicting", "completed").await?;
    leader.repair(&operation, "quarantine", "completed").await?;
    let refund = Claim { namespace: "refunds", ..Claim::of("never/refund") };
    let (operation, capability) = leader.approve(&refund, "DEC-2").await?;
    let delivered = refund.presenting(&capability).because_of("MSG-1");
    everybody_knows(&world.nodes).await?;

    let asked = [
        (executing.again(), 202, "in_progress"),
        (executing.clone(), 201, "claimed"),
        (unknown.again(), 409, "operation.outcome-unknown"),
        (unknown.clone(), 409, "lease.lost"),
        (doubted.again(), 409, "operation.quarantined"),
        (conflicting.again(), 409, "operation.quarantined"),
        (Claim { request: json!({}), ..executing.again() }, 409, "key.digest-mismatch"),
        (Claim::of("never/ahead").under("superseded", 1 << 52), 403, "epoch.unknown"),
        // The first presentation elects; the message again is a duplicate, and the same call the same grant.
        (delivered.clone(), 201, "claimed"),
        (delivered.again(), 200, "duplicate_delivery"),
        (delivered, 201, "claimed"),
    ];
    for (claim, status, verdict) in asked {
        for _ in 0..3 {
            // With a state that was just asked for a fact, and gave it.
            until_local(world.far(), &world.facts.receipt).await?;
            let (took, answer) = timed(world.far().claim(&claim)).await?;
            let answer = answer.is(status, verdict)?;
            ensure!(answer.body["consistency"].is_null(), "local: {answer:?}");
            ensure!(took >= ROUND_TRIP, "{verdict} from nowhere within {took:?}");
        }
    }
    world.far().operation(&operation).await?.in_state("executing").map(drop)
}

/// A read crosses the ocean, unless the caller allows that it may be behind.
async fn reads(world: &World) -> Result<()> {
    let (took, read) = timed(world.far().operation(&world.facts.operation)).await?;
    let read = read.in_state("completed")?;
    ensure!(read.body["consistency"].is_null() && took >= ROUND_TRIP, "within {took:?}: {read:?}");
    let path = format!("/v1/operations/{}?consistency=local", world.facts.operation);
    let mut all = Vec::new();
    for _ in 0..SAMPLES {
        let (took, read) = timed(world.far().get(&path)).await?;
        ensure!(is_local(&read.in_state("completed")?), "allowed to be local, and is not");
        all.push(took);
    }
    println!("a local read: {} us", median(all.clone()).as_micros());
    ensure!(median(all) < ROUND_TRIP / 2, "a local read crossed an ocean");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_is_cut_off_answers_facts_for_two_seconds_and_no_longer() -> Result<()> {
    let mut world = World::new().await?;
    let victim = (world.leader + 1) % 3;
    cut_off(&world, victim).await?;
    // Started again while it is still alone, it knows all of that, and says none of it.
    world.cluster.nodes[victim].kill()?;
    world.cluster.nodes[victim].start()?;
    let node = &world.nodes[victim];
    until(async || node.get("/livez").await?.is(200, "").map(drop)).await?;
    let begun = Instant::now();
    while begun.elapsed() < 2 * STALENESS {
        for (claim, ..) in world.facts.claims() {
            nothing(node, ANSWER_WITHIN, async |node| node.claim(&claim.again()).await).await?;
        }
    }
    healed(&world, victim).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_answers_facts_for_two_seconds_and_no_longer() -> Result<()> {
    let world = World::new().await?;
    let victim = world.leader;
    cut_off(&world, victim).await?;
    healed(&world, victim).await
}

/// Cuts the node off, changes on the other side what it would say, and asks it all the while.
async fn cut_off(world: &World, victim: usize) -> Result<()> {
    let (node, other) = (&world.nodes[victim], &world.nodes[(victim + 1) % 3]);
    for (claim, ..) in world.facts.claims() {
        until_local(node, &claim).await?;
    }
    world.isolate(victim);
    // No read index that was begun from here on is confirmed, so nothing is recent after this and the staleness.
    let cut = Instant::now();
    let elsewhere = async {
        let operation = &world.facts.operation;
        until(async || other.repair(operation, "quarantine", "completed").await?.in_state("completed")).await?;
        until(async || other.claim(&Claim::of("local/majority")).await?.is(201, "claimed")).await.map(drop)
    };
    let ((), (local, last)) = tokio::try_join!(elsewhere, asked(world, node, cut))?;
    println!("{local} facts after the cut, the last one {} ms after it", last.as_millis());
    ensure!(local > 0, "no fact was answered after the cut: nothing was proven");
    Ok(())
}

/// Asks a node that was cut off until it says nothing any more: how often it said a fact, and when it last did.
async fn asked(world: &World, node: &Caller, cut: Instant) -> Result<(usize, Duration)> {
    let (mut local, mut last, mut silent) = (0, Duration::ZERO, 0);
    while silent < 3 {
        for (claim, name, status, verdict) in world.facts.claims() {
            let sent = cut.elapsed();
            let answer = node.claim(&claim.again()).await?;
            if is_local(&answer) {
                answer.is(status, verdict)?;
                ensure!(sent < STALENESS, "{name} was answered {sent:?} after the cut");
                (local, last, silent) = (local + 1, sent, 0);
            } else {
                nothing(node, ANSWER_WITHIN, async |_| Ok(answer.clone())).await.context(name)?;
                silent += usize::from(sent > STALENESS);
            }
        }
        nothing(node, ANSWER_WITHIN, async |node| node.claim(&Claim::of("local/alone")).await).await?;
    }
    Ok((local, last))
}

/// Back among the others, the node says what was changed meanwhile, and what did not change.
async fn healed(world: &World, victim: usize) -> Result<()> {
    world.cluster.network.heal();
    let node = &world.nodes[victim];
    let first = until(async || {
        let answer = node.claim(&world.facts.receipt.again()).await?;
        ensure!(!answer.status.is_server_error(), "{answer:?}");
        Ok(answer)
    })
    .await?;
    first.is(409, "operation.quarantined")?;
    for (claim, name, status, verdict) in world.facts.claims().into_iter().skip(1) {
        until_local(node, &claim).await.context(name)?.is(status, verdict)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_answer_is_true_at_its_revision() -> Result<()> {
    let world = World::new().await?;
    let (leader, far) = (&world.nodes[world.leader], world.far());
    let mut seen = revision(&until_local(far, &world.facts.receipt).await?)?;
    for round in 0..8 {
        let claim = Claim::of(format!("true/{round}"));
        let reported = completed(leader, &claim).await?;
        // Before it was applied here, it is no fact here.
        let told = until_local(far, &claim).await?.is(200, "replayed")?;
        let at = revision(&told)?;
        ensure!(at >= revision(&reported)? && at >= seen, "{told:?} before {reported:?}");
        ensure!(told.body["operation_id"] == reported.body["operation_id"], "{told:?}");
        ensure!(told.body["outcome"]["result"]["by"] == told.body["execution_id"], "{told:?}");
        seen = at;
    }
    bumped_meanwhile(leader, far).await?;
    revoked(&world).await
}

/// While a register is bumped elsewhere, claims under its value are accepted until then, and refused from then on.
async fn bumped_meanwhile(leader: &Caller, far: &Caller) -> Result<()> {
    let mut value = 0;
    for round in 0..6 {
        let claiming = tokio::spawn({
            let far = far.clone();
            async move {
                let (mut accepted, mut n) = (Vec::new(), 0);
                loop {
                    n += 1;
                    let claim = Claim::of(format!("bumped/{round}/{n}")).under("bumped", value);
                    let answer = far.claim(&claim).await?;
                    match answer.verdict() {
                        "claimed" => accepted.push(revision(&answer)?),
                        _ if is_local(&answer) => return Ok::<_, anyhow::Error>((accepted, answer)),
                        _ => drop(answer.is(403, "epoch.stale")?),
                    }
                }
            }
        });
        let bump = leader.bump("bumped", value).await?.is(200, "")?;
        let (accepted, refused) = claiming.await??;
        let (moved, refused) = (revision(&bump)?, revision(&refused.is(403, "epoch.stale")?)?);
        ensure!(refused >= moved, "refused at {refused:?}, before {moved:?}");
        ensure!(accepted.iter().all(|at| *at < moved), "accepted after {moved:?}: {accepted:?}");
        value = bump.body["value"].as_u64().context("no value")?;
    }
    Ok(())
}

/// Whoever may no longer ask is told nothing, from the moment that this node has applied it, without crossing an ocean for that.
async fn revoked(world: &World) -> Result<()> {
    let (leader, far) = (&world.nodes[world.leader], world.far());
    let holder = token(leader, None, "regional", &["claim", "read"]).await?;
    everybody_knows(std::slice::from_ref(far)).await?;
    let held = far.with_token_of(&holder);
    until_local(&held, &world.facts.receipt).await?;
    let path = format!("/v1/tokens/{}/revoke", holder.token_id().context("a token of the form hpx_id_secret")?);
    leader.post(&path, &json!({})).await?.is(200, "")?;
    everybody_knows(std::slice::from_ref(far)).await?;
    let (mut best, victim) = (Duration::MAX, (world.leader + 1) % 3);
    for _ in 0..ROUNDS {
        let mut all = Vec::new();
        for _ in 0..SAMPLES {
            let (took, answer) = timed(held.claim(&world.facts.receipt.again())).await?;
            answer.is(401, "auth.invalid")?;
            all.push(took);
        }
        best = best.min(median(all));
        if best < AT_HOME {
            break;
        }
    }
    println!("a revoked token in another region: {} us", best.as_micros());
    ensure!(best < AT_HOME, "refusing a token took {best:?}");
    until_local(far, &world.facts.receipt).await?;
    world.isolate(victim);
    for (claim, ..) in world.facts.claims() {
        held.claim(&claim).await?.is(401, "auth.invalid")?;
    }
    Ok(())
}
