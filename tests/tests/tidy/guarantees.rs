//! Holds `docs/guarantees.md` to its word: a row for each of the 141 requirements, and behind every row that is
//! not open a file that enforces it and a test that exists; behind a row that is the caller's, also the page that tells the caller.

use super::docs::{defines, named_paths};

/// How many requirements there are. They are numbered from 1 and never renumbered.
const REQUIREMENTS: usize = 141;
/// The status of what no store can keep for its callers.
const THE_CALLERS: &str = "the caller's";
/// Where callers are told.
const GUIDE: &str = "docs/guide/";

/// One row of the table, its cells as they stand.
#[derive(Debug)]
struct Row<'a> {
    number: usize,
    enforced_by: &'a str,
    proved_by: &'a str,
    status: &'a str,
}

/// Reads the rows: those of any table whose first cell is a number.
fn rows(document: &str) -> Vec<Row<'_>> {
    let tables = document.lines().filter(|line| line.starts_with('|'));
    tables
        .filter_map(|line| {
            let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
            let number = cells.first()?.parse().ok()?;
            let [_, _, enforced_by, proved_by, status] = cells[..] else { return None };
            Some(Row { number, enforced_by, proved_by, status })
        })
        .collect()
}

/// One sentence for each row that is missing, misplaced or not backed by the tree.
fn complaints(document: &str, exists: impl Fn(&str) -> bool, contents: impl Fn(&str) -> String) -> Vec<String> {
    let rows = rows(document);
    let numbers: Vec<usize> = rows.iter().map(|row| row.number).collect();
    let mut found = Vec::new();
    if numbers != (1..=REQUIREMENTS).collect::<Vec<_>>() {
        found.push(format!("the rows are not 1 to {REQUIREMENTS}, each with five cells, in order: {numbers:?}"));
    }
    for row in rows {
        let number = row.number;
        match row.status {
            "open" => continue,
            "partly" | "proven" | THE_CALLERS => {}
            other => {
                found.push(format!("row {number}: status {other:?} is none of open, partly, proven, {THE_CALLERS}"))
            }
        }
        let told = named_paths(row.enforced_by).iter().any(|(path, _)| path.starts_with(GUIDE) && exists(path));
        if row.status == THE_CALLERS && !told {
            found.push(format!("row {number}: it is the caller's, and no page of the guide says so"));
        }
        if !named_paths(row.enforced_by).iter().any(|(path, _)| exists(path)) {
            found.push(format!("row {number}: no existing file enforces it: {}", row.enforced_by));
        }
        let proofs = named_paths(row.proved_by);
        if proofs.is_empty() {
            found.push(format!("row {number}: no test proves it"));
        }
        for (path, name) in proofs {
            let is_rust = path.ends_with(".rs");
            let proves = exists(&path)
                && match name {
                    Some(name) if is_rust => defines(&contents(&path), &name),
                    Some(_) => false,
                    // A golden script is a test in itself; a Rust file has to say which.
                    None => !is_rust,
                };
            if !proves {
                found.push(format!("row {number}: `{path}` is no test: name an existing file::function or script"));
            }
        }
    }
    found
}

#[test]
fn every_guarantee_names_its_proof() {
    let document = super::read("docs/guarantees.md");
    let exists = |path: &str| super::root().join(path).exists();
    super::must_be_clean(&complaints(&document, exists, super::read));
}

#[test]
fn a_guarantee_without_proof_is_convicted() {
    let mut document = String::new();
    for number in 1..=REQUIREMENTS {
        let rest = match number {
            2 => "`crates/a.rs` | `tests/t.rs::real` | proven",
            3 => "`crates/none.rs` | `tests/t.rs::unreal` | proven",
            4 => "`crates/a.rs` | `tests/t.rs` | partly",
            5 => "`crates/a.rs` | believe me | proven",
            6 => "— | — | done",
            7 => "`crates/a.rs` | `tests/golden/script` | partly",
            8 => "`crates/a.rs` | `tests/t.rs::real` | the caller's",
            10 => "`crates/a.rs`, `docs/guide/p.md` | `tests/t.rs::real` | the caller's",
            11 => "`docs/guide/p.md` | — | the caller's",
            _ => "— | — | open",
        };
        document.push_str(&format!("| {number} | text | {rest} |\n"));
    }
    let exists = |path: &str| ["crates/a.rs", "docs/guide/p.md", "tests/t.rs", "tests/golden/script"].contains(&path);
    let contents = |_: &str| "#[test]\nfn real() {}".to_owned();
    let found = complaints(&document, exists, contents);
    let rows: Vec<&str> = found.iter().filter_map(|text| text.split(':').next()).collect();
    assert_eq!(rows, ["row 3", "row 3", "row 4", "row 5", "row 6", "row 6", "row 6", "row 8", "row 11"], "{found:?}");

    let short = document.replace("| 9 |", "| nine |");
    assert!(complaints(&short, exists, contents)[0].contains("not 1 to 141"));
}
