//! The digest, computed by another implementation in another language from the written profile, is the one that nodes bind: the shared
//! vectors, and many requests that nobody chose. (REQUIREMENTS 13–15, 76, 101, 137; 001 §3.1, §15.5)

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use hapax_tests::caller::{Answer, Caller};
use hapax_tests::cluster::{Cluster, Options};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::Method;
use serde_json::{Value, json};

/// How many requests are drawn.
const DRAWN: usize = 400;
/// The namespaces that they are sent to, and what each drops from a request's top level.
const NAMESPACES: [(&str, &[&str]); 2] = [("default", &[]), ("ietf", &["trace"])];

fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)
}

/// Runs the implementation in Python with these lines to read.
fn python(arguments: &[&str], lines: &[String]) -> Result<String> {
    let mut command = Command::new("python3");
    command.arg(document("digest_vectors_check.py")).args(arguments).env("PYTHONUTF8", "1");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("a pipe")?;
    let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let feeding = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    feeding.join().map_err(|_| anyhow::anyhow!("the feeder died"))??;
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn the_shared_vectors_agree_in_python() -> Result<()> {
    let vectors: Value = serde_json::from_str(include_str!("../../docs/digest-vectors.json"))?;
    let count = |which: &str| vectors[which].as_array().map_or(0, Vec::len);
    let said = python(&[], &[])?;
    ensure!(count("accepted") > 40 && count("refused") > 20, "almost no vectors");
    let expected = format!("{} accepted and {} refused", count("accepted"), count("refused"));
    ensure!(said.starts_with(&expected), "{said}");
    Ok(())
}

/// Text of a JSON value that somebody might send: written in one of many ways, and now and then not to be had.
fn drawn(rng: &mut StdRng, depth: usize) -> String {
    const WORDS: [&str; 12] = [
        "amount",
        "caf\u{e9}",
        "cafe\u{301}",
        "\u{fb01}n",
        "\u{212b}",
        "\\u0061mount",
        "\u{1f600}",
        "\\ud83d\\ude00",
        "trace",
        "",
        "\\n\\u001f\u{7f}",
        "\u{5d0}\\/<>",
    ];
    const NUMBERS: [&str; 10] =
        ["0", "-1", "17", "9007199254740991", "-9007199254740991", "120", "9007199254740992", "-0", "1.5", "1e2"];
    let space = |rng: &mut StdRng| ["", "", "", " ", "\n\t"][rng.random_range(0..5)];
    let word = |rng: &mut StdRng| format!("\"{}\"", WORDS[rng.random_range(0..WORDS.len())]);
    match rng.random_range(0..if depth == 0 { 6 } else { 9 }) {
        0 => "null".to_owned(),
        1 => rng.random_bool(0.5).to_string(),
        // The last four are refused.
        2 | 3 => {
            let those = if rng.random_bool(0.1) { NUMBERS.len() } else { 6 };
            NUMBERS[rng.random_range(0..those)].to_owned()
        }
        4 | 5 => word(rng),
        6 => {
            let items: Vec<_> = (0..rng.random_range(0..4)).map(|_| drawn(rng, depth - 1)).collect();
            format!("[{}{}]", space(rng), items.join(&format!("{},", space(rng))))
        }
        _ => object(rng, depth),
    }
}

fn object(rng: &mut StdRng, depth: usize) -> String {
    const NAMES: [&str; 8] =
        ["amount", "\\u0061mount", "caf\u{e9}", "cafe\u{301}", "trace", "\u{fb33}", "\u{1f600}", "order"];
    let mut members = Vec::new();
    for name in NAMES {
        // A name that is written in two ways is there twice, now and then.
        if rng.random_bool(0.3) {
            members.push(format!("\"{name}\" :{}", drawn(rng, depth.saturating_sub(1))));
        }
    }
    for at in (1..members.len()).rev() {
        members.swap(at, rng.random_range(0..=at));
    }
    format!("{{ {} }}", members.join(","))
}

/// Claims with the request as it is written.
async fn by_request(node: &Caller, namespace: &str, key: &str, request: &str) -> Result<Answer> {
    let body = format!("{{\"namespace\":\"{namespace}\",\"key\":\"{key}\",\"request\":{request}}}");
    node.send(Method::POST, "/v1/claims", &[], Some(&body)).await
}

/// Claims with a digest that somebody else computed.
async fn by_digest(node: &Caller, namespace: &str, key: &str, digest: &str) -> Result<Answer> {
    let body = json!({ "namespace": namespace, "key": key, "digest": digest, "digest_profile": "hapax-c14n/1" });
    node.post("/v1/claims", &body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_python_computes_from_the_profile_is_what_nodes_bind() -> Result<()> {
    let seed = rand::random::<u64>();
    let cluster = Cluster::start(Options::default()).await?;
    agree(&cluster.callers(), seed).await.with_context(|| format!("StdRng::seed_from_u64({seed})"))
}

async fn agree(nodes: &[Caller], seed: u64) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let vectors: Value = serde_json::from_str(include_str!("../../docs/digest-vectors.json"))?;
    let chosen =
        ["accepted", "refused"].into_iter().flat_map(|which| vectors[which].as_array().cloned().unwrap_or_default());
    let mut requests: Vec<String> =
        chosen.filter_map(|vector| Some(vector["request_json"].as_str()?.to_owned())).collect();
    requests.extend((0..DRAWN).map(|_| object(&mut rng, 3)));
    let asked: Vec<(String, &str, String)> = requests
        .into_iter()
        .enumerate()
        .map(|(at, request)| {
            let (namespace, dropped) = NAMESPACES[at % 2];
            let line = json!({ "tenant": "dev", "namespace": namespace, "operation_version": "1",
                               "transport_fields": dropped, "request_json": request });
            (request, namespace, line.to_string())
        })
        .collect();
    let lines: Vec<String> = asked.iter().map(|(_, _, line)| line.clone()).collect();
    let computed = python(&["--digest"], &lines)?;
    let computed: Vec<&str> = computed.lines().collect();
    ensure!(computed.len() == asked.len(), "{} answers to {} requests", computed.len(), asked.len());
    let (mut bound, mut refused) = (0, 0);
    for (at, ((request, namespace, _), digest)) in asked.iter().zip(&computed).enumerate() {
        let (node, key) = (&nodes[at % 3], format!("digest/{at}"));
        let claimed = by_request(node, namespace, &key, request).await?;
        if *digest == "refused" {
            claimed.is(400, "request.invalid").with_context(|| format!("{request:?} in {namespace}"))?;
            refused += 1;
            continue;
        }
        claimed.is(201, "claimed").with_context(|| format!("{request:?} in {namespace}"))?;
        // The namespace `ietf` has another way to say that somebody is at work, and that it is another request.
        let (busy, other) =
            if *namespace == "ietf" { ((409, "operation.executing"), 422) } else { ((202, "in_progress"), 409) };
        let again = by_digest(&nodes[(at + 1) % 3], namespace, &key, digest).await?;
        again.is(busy.0, busy.1).with_context(|| format!("{request:?} in {namespace} is not {digest}"))?;
        let wrong = format!("{}{}", &digest[..digest.len() - 1], if digest.ends_with('0') { '1' } else { '0' });
        by_digest(node, namespace, &key, &wrong).await?.is(other, "key.digest-mismatch")?;
        bound += 1;
    }
    println!("{bound} digests are bound as Python computes them, {refused} requests are refused by both");
    ensure!(bound > DRAWN / 3 && refused > DRAWN / 10, "almost nothing was compared: {bound} and {refused}");
    Ok(())
}
