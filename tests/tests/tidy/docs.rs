//! Documents name real things: every path in backticks and every relative link exists, a `path::name` is found in
//! that file, and no document promises what no store can keep.

use std::path::Path;

/// First parts of a path that make a span in backticks a path of this repository.
const ROOTS: [&str; 7] = ["crates/", "tests/", "docs/", "deploy/", "scripts/", ".ci/", ".config/"];

/// Every document of the repository.
fn documents() -> Vec<String> {
    let mut paths: Vec<String> = super::files("docs", "md");
    paths.extend(super::files("deploy", "md"));
    let at_the_root = std::fs::read_dir(super::root()).expect("a readable root");
    let names = at_the_root.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    paths.extend(names.filter(|name| name.ends_with(".md")));
    paths
}

/// The document without its fenced blocks: commands in there may name what does not exist yet.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            kept.push_str(line);
        }
        kept.push('\n');
    }
    kept
}

/// Spans in backticks that name a path of this repository, as (path, optional name in it).
pub(crate) fn named_paths(text: &str) -> Vec<(String, Option<String>)> {
    let text = prose(text);
    let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let paths = spans.filter(|span| {
        ROOTS.iter().any(|root| span.starts_with(root)) && !span.contains(|c: char| " *<>{}…".contains(c))
    });
    paths
        .map(|span| match span.split_once("::") {
            Some((path, name)) => (path.to_owned(), Some(name.to_owned())),
            None => (span.to_owned(), None),
        })
        .collect()
}

/// Targets of links that lead into the repository, without their anchors.
fn linked_paths(text: &str) -> Vec<String> {
    let text = prose(text);
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    local.map(|target| target.split('#').next().unwrap_or_default().to_owned()).collect()
}

/// Whether a Rust file has a function, type or constant of this name.
pub(crate) fn defines(text: &str, name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    ["fn", "struct", "enum", "trait", "const", "static", "type", "mod"].iter().any(|keyword| {
        text.match_indices(&format!("{keyword} {last}")).any(|(at, found)| {
            let next = text[at + found.len()..].chars().next().unwrap_or(' ');
            !next.is_alphanumeric() && next != '_'
        })
    })
}

/// One sentence for each path that leads nowhere; `exists` and `contents` answer for paths from the root.
fn complaints(
    document: &str,
    text: &str,
    exists: impl Fn(&str) -> bool,
    contents: impl Fn(&str) -> String,
) -> Vec<String> {
    let mut found = Vec::new();
    for (path, name) in named_paths(text) {
        if !exists(&path) {
            found.push(format!("{document}: names `{path}`, which does not exist"));
        } else if let Some(name) = name.filter(|name| !defines(&contents(&path), name)) {
            found.push(format!("{document}: names `{path}::{name}`, but the file has no such item"));
        }
    }
    let folder = Path::new(document).parent().unwrap_or(Path::new(""));
    for target in linked_paths(text) {
        if !exists(&folder.join(&target).to_string_lossy()) {
            found.push(format!("{document}: links to {target}, which does not exist"));
        }
    }
    found
}

/// Lines that promise it. Saying that it is never promised is allowed, and so is electing exactly one claimant.
fn promises(text: &str) -> Vec<&str> {
    let flat = |line: &str| line.to_lowercase().replace('-', " ");
    text.lines().filter(|line| flat(line).contains("exactly once") && !flat(line).contains("never")).collect()
}

#[test]
fn documents_name_real_paths() {
    let exists = |path: &str| super::root().join(path).exists();
    let all = documents();
    assert!(all.len() >= 10, "the walk found almost no document: {all:?}");
    let found: Vec<String> =
        all.iter().flat_map(|document| complaints(document, &super::read(document), exists, super::read)).collect();
    super::must_be_clean(&found);
}

#[test]
fn no_document_promises_exactly_once() {
    // The table repeats the requirements word for word, one of which is a list of failures to avoid.
    let all = documents().into_iter().filter(|path| path != "docs/guarantees.md");
    let found: Vec<String> = all
        .flat_map(|path| {
            let text = super::read(&path);
            promises(&text).into_iter().map(|line| format!("{path}: {line}")).collect::<Vec<_>>()
        })
        .collect();
    super::must_be_clean(&found);
}

#[test]
fn a_path_that_leads_nowhere_is_convicted() {
    let text = "See `crates/a.rs::real`, `crates/a.rs::rea`, `docs/none.md` and [it](../none.md#x).\n\
                ```\n`docs/fenced.md`\n```\nNot a path: `cargo test`, `crates/*/src`.\n";
    let exists = |path: &str| path == "crates/a.rs";
    let found = complaints("docs/x.md", text, exists, |_| "fn real() {}".to_owned());
    assert_eq!(
        found,
        [
            "docs/x.md: names `crates/a.rs::rea`, but the file has no such item",
            "docs/x.md: names `docs/none.md`, which does not exist",
            "docs/x.md: links to ../none.md, which does not exist",
        ]
    );
}

#[test]
fn a_promise_is_convicted() {
    let text = "Effects happen exactly-once.\nWe never say \"exactly once\".\nExactly one claimant.\n";
    assert_eq!(promises(text), ["Effects happen exactly-once."]);
}
