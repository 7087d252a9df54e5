//! The guide's examples, run as they are printed: all blocks of a page in one shell, in order, against real nodes; and what the
//! page says that they print is what they print. (REQUIREMENTS 68, 140)

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hapax_tests::cluster::{Cluster, Options, binary};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

/// How long a page may take: some wait for a lease to lapse.
const PAGE_WITHIN: Duration = Duration::from_secs(60);
/// Where the pages say that the three nodes of `hapax dev` listen.
const PRINTED: [&str; 3] = ["http://127.0.0.1:7101", "http://127.0.0.1:7102", "http://127.0.0.1:7103"];
/// What begins a line that says what the command before it prints.
const PRINTS: &str = "#=> ";

/// The shell blocks of a page, as one script, and the lines that it must print.
fn script(page: &str) -> (String, Vec<String>) {
    let (mut script, mut printed, mut inside) = (String::new(), Vec::new(), false);
    for line in page.lines() {
        match (inside, line) {
            (false, "```sh") => inside = true,
            (true, "```") => inside = false,
            (true, line) => match line.strip_prefix(PRINTS) {
                Some(text) => printed.push(text.to_owned()),
                None => script = script + line + "\n",
            },
            (false, _) => {}
        }
    }
    (script, printed)
}

#[test]
fn blocks_are_found_and_what_they_print() {
    let page = "text\n```sh\none\n#=> 1\ntwo\n```\n#=> no\n```\nnot this\n```\n```sh\n#=> 3\n```\n";
    assert_eq!(script(page), ("one\ntwo\n".to_owned(), vec!["1".to_owned(), "3".to_owned()]));
}

fn pages() -> Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide");
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut pages: Vec<PathBuf> = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    pages.sort();
    Ok(pages)
}

/// Runs a page's script; whatever it leaves behind ends with it.
async fn run(script: &str, cluster: &Cluster, tools: &TempDir) -> Result<(String, String)> {
    let mut script = script.to_owned();
    for (printed, node) in PRINTED.iter().zip(&cluster.nodes) {
        script = script.replace(printed, &node.url);
    }
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.args(["-c", &script]).env("PATH", path).env_remove("HAPAX_URL").env_remove("HAPAX_TOKEN");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = timeout(PAGE_WITHIN, command.output()).await.context("it does not end")??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    Ok((text(&output.stdout), text(&output.stderr)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_of_the_guide_prints_what_the_page_says() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let tools = tempfile::tempdir()?;
    symlink(binary(), tools.path().join("hapax"))?;
    let (mut ran, mut lines) = (0, 0);
    for page in pages()? {
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (script, expected) = script(&fs::read_to_string(&page)?);
        if script.is_empty() {
            continue;
        }
        let (stdout, stderr) = run(&script, &cluster, &tools).await.context(name.clone())?;
        let printed: Vec<&str> = stdout.lines().collect();
        for (number, (printed, expected)) in printed.iter().zip(&expected).enumerate() {
            ensure!(printed == expected, "{name}, line {number}: {printed:?}, not {expected:?}\n{stderr}");
        }
        ensure!(printed.len() == expected.len(), "{name}: {printed:?}, not {expected:?}\n{stderr}");
        (ran, lines) = (ran + 1, lines + expected.len());
    }
    println!("{ran} pages, {lines} lines");
    ensure!(ran >= 8 && lines >= 60, "only {ran} pages with {lines} lines: the walk found almost nothing");
    Ok(())
}
