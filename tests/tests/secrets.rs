//! What a node must not keep and must not say: tokens, keys, what a request says, and plaintext of what was sealed are in no file of a
//! data directory, no log line at any level, no metric and no answer; results and digests are stored, and in no log line or metric.
//! (REQUIREMENTS 97, 98, 128)
//!
//! Every such word is drawn at random and looked for in every form in which a program may write bytes down. What must be found, because
//! it is stored, shows that the search sees what is there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use hapax_tests::admin::{everybody_knows, from_now, token};
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::content::{Content, settle};
use hapax_tests::wait::until;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

/// Where a word may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    /// Nowhere but in the hands of those who made it.
    Nowhere,
    /// In the files and in answers to those who may see it.
    Stored,
}

/// A word that is looked for.
#[derive(Debug, Clone)]
struct Needle {
    name: String,
    kept: Kept,
    /// Every way in which it may be written.
    forms: Vec<Vec<u8>>,
}

impl Needle {
    fn new(name: &str, kept: Kept, bytes: &[u8]) -> Self {
        let hex: String = bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let listed = format!("{bytes:?}");
        let forms = vec![
            bytes.to_vec(),
            hex.to_uppercase().into_bytes(),
            hex.into_bytes(),
            listed.trim_matches(['[', ']']).as_bytes().to_vec(),
            base64(bytes).into_bytes(),
        ];
        Self { name: name.to_owned(), kept, forms }
    }

    fn is_in(&self, hay: &[u8]) -> bool {
        self.forms.iter().any(|form| holds(hay, form))
    }
}

fn holds(hay: &[u8], form: &[u8]) -> bool {
    let Some((first, rest)) = form.split_first() else { return false };
    let mut from = 0;
    while let Some(at) = hay[from..].iter().position(|byte| byte == first) {
        from += at + 1;
        if hay[from..].starts_with(rest) {
            return true;
        }
    }
    false
}

/// Base64 of as many whole groups as there are, so that what follows the bytes makes no difference.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |three: &[u8]| {
        let bits = three.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| char::from(LETTERS[bits >> shift & 63]))
    };
    bytes.chunks_exact(3).flat_map(group).collect()
}

/// The words of the story, and all that was answered.
struct Story {
    needles: Vec<Needle>,
    words: BTreeMap<&'static str, String>,
    answers: Vec<(&'static str, Answer)>,
}

impl Story {
    fn new() -> Self {
        Self { needles: Vec::new(), words: BTreeMap::new(), answers: Vec::new() }
    }

    /// A word that nothing else in the world says.
    fn word(&mut self, name: &'static str, kept: Kept) -> String {
        let word = format!("{name}-{:024x}", rand::rng().random::<u128>() >> 32);
        self.needles.push(Needle::new(name, kept, word.as_bytes()));
        self.words.insert(name, word.clone());
        word
    }

    fn hide(&mut self, name: &str, bytes: &[u8]) {
        self.needles.push(Needle::new(name, Kept::Nowhere, bytes));
    }

    /// Keeps what was answered, for the search.
    fn told(&mut self, by: &'static str, answer: Answer) -> Answer {
        self.answers.push((by, answer.clone()));
        answer
    }
}

fn secret_of(token: &Caller) -> Result<(String, Vec<u8>)> {
    let text = token.token_text().to_owned();
    let secret = text.rsplit('_').next().context("a token's secret")?;
    let bytes: Result<Vec<u8>, _> =
        (0..secret.len() / 2).map(|n| u8::from_str_radix(&secret[2 * n..2 * n + 2], 16)).collect();
    Ok((secret.to_owned(), bytes?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_keys_and_requests_are_nowhere_and_what_is_stored_is_not_logged() -> Result<()> {
    let options = Options {
        // So much is written that logs are purged and snapshots made, and every way of writing a line is taken.
        raft: "snapshot_after_entries = 40\nkeep_entries = 5\npurge_batch = 1\nflush_interval_ms = 500".to_owned(),
        sections: "[log]\nlevel = \"trace\"\n".to_owned(),
        environment: vec![(2, "HAPAX_LOG__FORMAT".to_owned(), "json".to_owned())],
        ..Options::default()
    };
    let mut cluster = Cluster::start(options).await?;
    let nodes = cluster.callers();
    let mut story = Story::new();
    let roles = ["claim", "read", "issue", "reconcile", "operate", "admin"];
    let mut workers = Vec::new();
    for node in &nodes {
        let worker = token(node, None, "worker", &roles).await?;
        let (secret, bytes) = secret_of(&worker)?;
        story.hide("token", secret.as_bytes());
        story.hide("the bytes of a token", &bytes);
        workers.push(worker);
    }
    everybody_knows(&nodes).await?;
    claims(&mut story, &workers).await?;
    authority(&mut story, &workers).await?;
    doubts(&mut story, &workers).await?;
    sealed(&mut story, &workers).await?;
    malformed(&mut story, &workers[0]).await?;
    over_http2(&mut story, &workers[1]).await?;

    let leader = cluster.leader().await?;
    cluster.nodes[leader].kill()?;
    let other = &workers[(leader + 1) % 3];
    let key = story.words["key"].clone();
    until(async || {
        other.claim(&Claim { request: story_request(&story), ..Claim::of(key.clone()) }).await?.is(200, "replayed")
    })
    .await?;
    cluster.nodes[leader].start()?;
    cluster.ready().await?;
    for n in 0..60 {
        workers[n % 3].claim(&Claim::of(format!("filler/{n}"))).await?.is(201, "claimed")?;
    }
    settle(&cluster).await?;
    let mut metrics = Vec::new();
    for node in &cluster.nodes {
        metrics.push(reqwest::get(&node.metrics_url).await?.text().await?);
    }
    // One leaves its files as a power cut would, the others as their end does.
    cluster.nodes[0].kill()?;
    for node in &mut cluster.nodes[1..] {
        node.stop().await?;
    }
    for (node, metrics) in cluster.nodes.iter().zip(&metrics) {
        let log = node.log_text();
        ensure!(log.contains("TRACE") && log.len() > 10_000, "node {} logs too little to prove anything", node.id);
        no_word_is_in(
            &story,
            &format!("the log of node {}", node.id),
            log.as_bytes(),
            &[Kept::Nowhere, Kept::Stored],
        )?;
        no_word_is_in(
            &story,
            &format!("the metrics of node {}", node.id),
            metrics.as_bytes(),
            &[Kept::Nowhere, Kept::Stored],
        )?;
    }
    answers(&story)?;
    files(&cluster, &story)
}

fn no_word_is_in(story: &Story, place: &str, hay: &[u8], kept: &[Kept]) -> Result<()> {
    for needle in story.needles.iter().filter(|needle| kept.contains(&needle.kept)) {
        if let Some(form) = needle.forms.iter().find(|form| holds(hay, form)) {
            let at = hay.windows(form.len()).position(|window| window == &form[..]).unwrap_or_default();
            let around = String::from_utf8_lossy(&hay[at.saturating_sub(300)..hay.len().min(at + 300)]).into_owned();
            bail!("{} is in {place}: {around}", needle.name);
        }
    }
    Ok(())
}

/// No answer says a secret, a key or a request; no problem says what is stored either.
fn answers(story: &Story) -> Result<()> {
    ensure!(story.answers.len() > 40, "only {} answers", story.answers.len());
    for (by, answer) in &story.answers {
        let mut whole = format!("{:?}\n", answer.headers).into_bytes();
        whole.extend_from_slice(&answer.bytes);
        no_word_is_in(story, &format!("an answer to {by}"), &whole, &[Kept::Nowhere])?;
        if !answer.status.is_success() {
            no_word_is_in(story, &format!("the problem that {by} got"), &whole, &[Kept::Stored])?;
        }
    }
    Ok(())
}

/// Every file under a directory.
fn files_of(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files_of(&path)?) } else { found.push(path) }
    }
    Ok(found)
}

/// The bytes of all files, and what the rows of the state decode to where compression may hide it.
fn files(cluster: &Cluster, story: &Story) -> Result<()> {
    for node in &cluster.nodes {
        let mut all = Vec::new();
        for path in files_of(&node.data)? {
            let bytes = fs::read(&path)?;
            no_word_is_in(story, &path.display().to_string(), &bytes, &[Kept::Nowhere])?;
            all.extend(bytes);
        }
        let content = Content::of(node)?;
        let mut rows = String::new();
        for (key, row) in &content.rows {
            let _ = writeln!(rows, "{key} {row}");
        }
        no_word_is_in(story, &format!("the rows of node {}", node.id), rows.as_bytes(), &[Kept::Nowhere])?;
        for needle in story.needles.iter().filter(|needle| needle.kept == Kept::Stored) {
            let seen = needle.is_in(rows.as_bytes()) || needle.is_in(&all);
            ensure!(seen, "node {}: {} is stored, and the search does not see it", node.id, needle.name);
        }
        println!("node {}: {} bytes of files, {} rows", node.id, all.len(), content.rows.len());
    }
    Ok(())
}

fn story_request(story: &Story) -> Value {
    json!({ "amount": "120.00", "destination": story.words["request"] })
}

/// A key from its first claim to its replays, through every call that takes one.
async fn claims(story: &mut Story, nodes: &[Caller]) -> Result<()> {
    let key = story.word("key", Kept::Nowhere);
    story.word("request", Kept::Nowhere);
    let (owner, result) = (story.word("owner", Kept::Stored), story.word("result", Kept::Stored));
    let (resource, external) = (story.word("resource", Kept::Stored), story.word("external", Kept::Stored));
    let claim =
        Claim { request: story_request(story), owner, ..Claim::of(key.clone()) }.with("resource", resource.clone());
    let granted = story.told("a claim", nodes[0].claim(&claim).await?.is(201, "claimed")?);
    let bare = Claim { more: json!({}), ..claim.again() };
    story.told("a claim", nodes[1].claim(&bare).await?.is(202, "in_progress")?);
    let (execution, epoch) = (granted.text("execution_id"), granted.epoch());
    story.told("renew", nodes[2].renew(execution, epoch, 60_000).await?.is(200, "")?);
    let body = json!({ "lease_epoch": epoch, "outcome": "completed", "result": { "card": result }, "external_id": external });
    let path = format!("/v1/executions/{execution}/outcome");
    story.told("outcome", nodes[1].post(&path, &body).await?.in_state("completed")?);
    let other = json!({ "lease_epoch": epoch, "outcome": "failed", "external_id": external, "reason": result });
    story.told("another outcome", nodes[2].post(&path, &other).await?.is(409, "outcome.conflict")?);
    for node in nodes {
        story.told("a replay", node.claim(&bare.again()).await?.is(200, "replayed")?);
        let lied = Claim { request: json!({ "destination": result }), ..bare.again() };
        story.told("a mismatch", node.claim(&lied).await?.is(409, "key.digest-mismatch")?);
        for look in
            [json!({ "namespace": "default", "key": key }), json!({ "namespace": "default", "resource": resource })]
        {
            story.told("look-up", node.post("/v1/operations/lookup", &look).await?.is(200, "")?);
        }
        story.told("status", node.operation(granted.text("operation_id")).await?.is(200, "")?);
        story.told("a list", node.get("/v1/operations?namespace=default&state=completed").await?.is(200, "")?);
        story.told(
            "the record",
            node.get(&format!("/v1/evidence?operation_id={}", granted.text("operation_id"))).await?,
        );
    }
    let carried = story.word("carried-key", Kept::Nowhere);
    let body = json!({ "namespace": "default", "request": story_request(story), "claim_id": Uuid::new_v4() });
    let headers = [("idempotency-key", carried.as_str())];
    story.told(
        "a header",
        nodes[2].send(Method::POST, "/v1/claims", &headers, Some(&body.to_string())).await?.is(201, "claimed")?,
    );
    let in_batch = story.word("batch-key", Kept::Nowhere);
    let item = json!({ "kind": "claim", "namespace": "default", "key": in_batch, "request": story_request(story),
                       "claim_id": Uuid::new_v4() });
    story.told("batch", nodes[1].post("/v1/batch", &json!({ "items": [item, { "kind": in_batch }] })).await?);
    // A digest that the caller made is stored, and correlates just as a key does.
    let mut digest = [0; 32];
    rand::rng().fill_bytes(&mut digest);
    story.needles.push(Needle::new("digest", Kept::Stored, &digest));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let digested = story.word("digested-key", Kept::Nowhere);
    let body = json!({ "namespace": "default", "key": digested, "digest": format!("sha256:{hex}"),
                       "digest_profile": "hapax-c14n/1", "claim_id": Uuid::new_v4() });
    story.told("a digest", nodes[0].post("/v1/claims", &body).await?.is(201, "claimed")?);
    let mut other = body.clone();
    other["claim_id"] = json!(Uuid::new_v4());
    other["digest"] = json!(format!("sha256:{}", "0".repeat(64)));
    story.told("another digest", nodes[1].post("/v1/claims", &other).await?.is(409, "key.digest-mismatch")?);
    Ok(())
}

/// Authority that is issued, spent and presented again.
async fn authority(story: &mut Story, nodes: &[Caller]) -> Result<()> {
    let key = story.word("authorised-key", Kept::Nowhere);
    let (decision, message) = (story.word("decision", Kept::Stored), story.word("message", Kept::Stored));
    let claim = Claim { request: story_request(story), ..Claim::of(key) };
    let registered = story.told("register", nodes[0].register(&claim).await?.is(201, "")?);
    let issued = nodes[1].issue(registered.text("operation_id"), &decision, 1, json!({})).await?.is(201, "")?;
    let capability = story.told("issue", issued).text("capability_id").to_owned();
    let presented = claim.because_of(&message).presenting(&capability);
    story.told("a claim", nodes[2].claim(&presented).await?.is(201, "claimed")?);
    story.told("a delivery", nodes[0].claim(&presented.again()).await?.is(200, "duplicate_delivery")?);
    for node in nodes {
        let replay = presented.again().because_of("M-other");
        story.told("spent authority", node.claim(&replay).await?.is(409, "capability.already-consumed")?);
        story.told("a capability", node.capability(&capability).await?);
        story.told("the record", node.get(&format!("/v1/evidence?capability_id={capability}")).await?.is(200, "")?);
    }
    Ok(())
}

/// What is unknown, with the words of people about it.
async fn doubts(story: &mut Story, nodes: &[Caller]) -> Result<()> {
    let key = story.word("doubtful-key", Kept::Nowhere);
    let (reason, proof) = (story.word("reason", Kept::Stored), story.word("proof", Kept::Stored));
    let claim = Claim { request: story_request(story), ..Claim::of(key) };
    let granted = story.told("a claim", nodes[0].claim(&claim).await?.is(201, "claimed")?);
    let execution = granted.text("execution_id").to_owned();
    let body = json!({ "lease_epoch": granted.epoch(), "outcome": "unknown", "reason": reason });
    story.told(
        "outcome",
        nodes[1].post(&format!("/v1/executions/{execution}/outcome"), &body).await?.in_state("unknown")?,
    );
    story.told("a claim", nodes[2].claim(&claim.again()).await?.is(409, "operation.outcome-unknown")?);
    let leased = story.told("reconcile", nodes[0].reconcile("default", "secrets", 10, 60_000).await?.is(200, "")?);
    let epoch = leased.body["items"][0]["lease_epoch"].as_u64().context("an epoch")?;
    let more = json!({ "proof": proof, "reason": reason });
    story.told(
        "resolve",
        nodes[2].resolve(&execution, epoch, "completed", more.clone()).await?.in_state("completed")?,
    );
    // A contradiction is kept, quarantines, and is told to operators only.
    let late = json!({ "claim_id": claim.claim_id, "outcome": "failed", "proof": proof, "external_id": reason });
    story.told("evidence", nodes[1].post(&format!("/v1/executions/{execution}/evidence"), &late).await?);
    let stale = nodes[0].resolve(&execution, epoch, "failed", more).await?;
    story.told("another resolution", stale);
    story.told("a claim", nodes[0].claim(&claim.again()).await?);
    Ok(())
}

/// The caller's own encryption: Hapax replays what it cannot read. A keystream from a seed stands for a cipher here; what matters is
/// that only callers have the seed.
fn sealing(seed: [u8; 32], text: &[u8]) -> Vec<u8> {
    let mut key = StdRng::from_seed(seed);
    text.iter().map(|byte| byte ^ key.random::<u8>()).collect()
}

/// A sensitive response: sealed by the caller, it is replayed digit for digit, and what it says is nowhere.
async fn sealed(story: &mut Story, nodes: &[Caller]) -> Result<()> {
    let plain = story.word("sealed-response", Kept::Nowhere);
    let seed: [u8; 32] = rand::rng().random();
    story.hide("the key of the seal", &seed);
    let shut: Vec<String> = sealing(seed, plain.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let result = json!({ "sealed_under": "k-1", "bytes": shut.concat() });
    story.needles.push(Needle::new("the ciphertext", Kept::Stored, shut.concat().as_bytes()));
    let key = story.word("sealed-key", Kept::Nowhere);
    let claim = Claim { request: story_request(story), ..Claim::of(key) };
    let granted = story.told("a claim", nodes[1].claim(&claim).await?.is(201, "claimed")?);
    let body = json!({ "lease_epoch": granted.epoch(), "outcome": "completed", "result": result });
    let path = format!("/v1/executions/{}/outcome", granted.text("execution_id"));
    story.told("outcome", nodes[0].post(&path, &body).await?.in_state("completed")?);
    for node in nodes {
        let replay = story.told("a replay", node.claim(&claim.again()).await?.is(200, "replayed")?);
        let back = &replay.body["outcome"]["result"];
        ensure!(*back == result, "{back} is not {result}");
        let hex = back["bytes"].as_str().context("the ciphertext")?;
        let bytes: Vec<u8> =
            (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16)).collect::<Result<_, _>>()?;
        ensure!(sealing(seed, &bytes) == plain.as_bytes(), "it does not open");
    }
    Ok(())
}

/// Values that are wrong wherever they stand: no problem says them back, and no log line.
async fn malformed(story: &mut Story, node: &Caller) -> Result<()> {
    let bad = story.word("malformed", Kept::Nowhere);
    let good = json!({ "namespace": "default", "key": "good", "request": {}, "claim_id": Uuid::new_v4(), "lease_ms": 60_000,
                       "owner": "tests" });
    for field in [
        "namespace",
        "key",
        "claim_id",
        "lease_ms",
        "wait_ms",
        "owner",
        "digest",
        "digest_profile",
        "capability_id",
        "message",
        "epoch",
        "resource",
        "key_created_at",
        "correlation_id",
        "operation_version",
        "attempt",
    ] {
        for value in [json!(format!("{bad} \u{1}\n")), json!([bad]), json!({ "nothing": bad })] {
            let mut body = good.clone();
            body[field] = value;
            let answer = node.post("/v1/claims", &body).await?;
            ensure!(!answer.status.is_success(), "{field}: {answer:?}");
            story.told("a malformed claim", answer);
        }
    }
    let long = json!({ "namespace": "default", "key": bad.repeat(20), "request": {}, "claim_id": Uuid::new_v4() });
    story.told("a long key", node.post("/v1/claims", &long).await?.is(400, "request.invalid")?);
    for text in [
        format!("{{\"key\": \"{bad}\", "),
        format!("\"{bad}\""),
        bad.clone(),
        format!("{{\"request\": {{\"a\": 1.5, \"b\": \"{bad}\"}}}}"),
    ] {
        story.told("no JSON", node.send(Method::POST, "/v1/claims", &[], Some(&text)).await?);
    }
    let both = good.to_string();
    let headers = [("idempotency-key", bad.as_str())];
    story.told("two keys", node.send(Method::POST, "/v1/claims", &headers, Some(&both)).await?);
    for path in [
        format!("/v1/operations/{bad}"),
        format!("/v1/operations?namespace={bad}"),
        format!("/v1/executions/{bad}"),
        format!("/v1/operations?namespace=default&cursor={bad}"),
        format!("/{bad}"),
        format!("/v1/watch?from={bad}"),
    ] {
        let answer = node.get(&path).await?;
        ensure!(!answer.status.is_success(), "{path}: {answer:?}");
        story.told("a wrong path", answer);
    }
    for wrong in [bad.clone(), format!("hpx_{bad}"), format!("hpx_{}_{bad}", "0".repeat(20))] {
        story
            .told("a wrong token", node.with_token(wrong).get("/v1/operations/op_1").await?.is(401, "auth.invalid")?);
    }
    let expires = json!({ "client": bad.repeat(30), "roles": [bad], "expires_at": from_now(60_000) });
    story.told("a wrong token to make", node.post("/v1/tokens", &expires).await?);
    Ok(())
}

/// The other protocol has a log of its own.
async fn over_http2(story: &mut Story, node: &Caller) -> Result<()> {
    let key = story.word("http2-key", Kept::Nowhere);
    let client = reqwest::Client::builder().http2_prior_knowledge().build()?;
    for claim_id in [Uuid::new_v4(), Uuid::new_v4()] {
        let body = json!({ "namespace": "default", "request": story_request(story), "claim_id": claim_id });
        let sent = client
            .post(format!("{}/v1/claims", node.url()))
            .bearer_auth(node.token_text())
            .header("idempotency-key", &key)
            .json(&body)
            .send()
            .await?;
        ensure!(sent.version() == reqwest::Version::HTTP_2 && sent.status().is_success(), "{sent:?}");
    }
    Ok(())
}

#[test]
fn a_word_is_seen_in_every_form_in_which_bytes_are_written() {
    let needle = Needle::new("x", Kept::Nowhere, b"needle-7");
    for hay in [
        "before needle-7 after",
        "6e6565646c652d37",
        "6E6565646C652D37",
        "Bytes([1, 110, 101, 101, 100, 108, 101, 45, 55, 2])",
        "token=bmVlZGxlLTc=",
    ] {
        assert!(needle.is_in(hay.as_bytes()), "{hay}");
    }
    assert!(!needle.is_in(b"needle-6 nnneedle- 6e6565646c652d36"));
    assert!(needle.is_in(b"nneedle-7"));
}
