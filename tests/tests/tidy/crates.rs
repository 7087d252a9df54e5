//! Holds the table "Crates" of `docs/architecture.md` against `cargo metadata`: no crate imports what the table
//! does not grant, none is missing from it, and each outside library with one owner stays with that owner.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Libraries that only these crates may name, so that replacing one touches one crate; a command line, each crate that has one.
const OWNERS: [(&str, &[&str]); 4] = [
    ("openraft", &["crates/consensus"]),
    ("rocksdb", &["crates/store"]),
    ("axum", &["crates/server"]),
    ("clap", &["crates/hapax", "jepsen"]),
];

/// All that `machine` may link besides core and alloc: it has no clock, no randomness and no IO.
const MACHINE_LIBRARIES: [&str; 1] = ["sha2"];

/// What one workspace member may import, or does.
#[derive(Debug, Default, PartialEq)]
struct Member {
    /// Folders of the members it names; for the table, `None` stands for "any".
    imports: Option<BTreeSet<String>>,
    /// Outside libraries that it names for itself, without those of its tests.
    libraries: BTreeSet<String>,
}

/// Reads the granted imports per folder out of the document's table.
fn granted(document: &str) -> BTreeMap<String, Member> {
    let section = document.lines().skip_while(|line| *line != "## Crates");
    let rows = section.skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| {
        let cells: Vec<&str> = row.trim().trim_matches('|').split('|').map(str::trim).collect();
        let folder = cells.first()?.strip_prefix('`')?.strip_suffix('`')?.to_owned();
        let last = *cells.last()?;
        let imports = match last {
            "any" => None,
            "none" => Some(BTreeSet::new()),
            names => Some(names.split(',').map(|name| format!("crates/{}", name.trim().trim_matches('`'))).collect()),
        };
        Some((folder, Member { imports, libraries: BTreeSet::new() }))
    })
    .collect()
}

/// Reads what each member names in its manifest, tests and build scripts included.
fn actual(metadata: &Value) -> BTreeMap<String, Member> {
    let root = metadata["workspace_root"].as_str().expect("cargo names the root");
    let relative = |path: &str| path.strip_prefix(root).unwrap_or(path).trim_matches('/').to_owned();
    let packages = metadata["packages"].as_array().expect("cargo lists packages");
    packages
        .iter()
        .map(|package| {
            let manifest = relative(package["manifest_path"].as_str().expect("a manifest"));
            let folder = manifest.trim_end_matches("Cargo.toml").trim_matches('/').to_owned();
            let mut member = Member { imports: Some(BTreeSet::new()), libraries: BTreeSet::new() };
            for dependency in package["dependencies"].as_array().expect("a list") {
                match dependency["path"].as_str() {
                    Some(path) => {
                        member.imports.get_or_insert_default().insert(relative(path));
                    }
                    None if dependency["kind"].is_null() => {
                        let name = dependency["name"].as_str().expect("a name");
                        member.libraries.insert(name.to_owned());
                    }
                    None => {}
                }
            }
            (folder, member)
        })
        .collect()
}

/// Compares both; one sentence for each difference.
fn complaints(granted: &BTreeMap<String, Member>, actual: &BTreeMap<String, Member>) -> Vec<String> {
    let mut found = Vec::new();
    for folder in granted.keys().filter(|folder| !actual.contains_key(*folder)) {
        found.push(format!("{folder}: the table names it, but the workspace has no such member"));
    }
    for (folder, member) in actual {
        let Some(grant) = granted.get(folder) else {
            found.push(format!("{folder}: a workspace member that the table does not name"));
            continue;
        };
        if let (Some(grant), Some(imports)) = (&grant.imports, &member.imports) {
            for import in imports.difference(grant) {
                found.push(format!("{folder}: imports {import}, which the table does not grant"));
            }
        }
        for (library, owners) in OWNERS {
            if member.libraries.contains(library) && !owners.contains(&folder.as_str()) {
                found.push(format!("{folder}: names {library}, which only {} may", owners.join(" and ")));
            }
        }
        if folder == "crates/machine" {
            for library in member.libraries.iter().filter(|name| !MACHINE_LIBRARIES.contains(&name.as_str())) {
                found.push(format!("{folder}: links {library}; the state machine stays pure"));
            }
        }
    }
    found
}

#[test]
fn crates_import_only_what_the_table_grants() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(super::root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let granted = granted(&super::read("docs/architecture.md"));
    assert!(granted.len() >= 9, "the table Crates was not found: {granted:?}");
    super::must_be_clean(&complaints(&granted, &actual(&metadata)));
}

#[test]
fn every_crate_is_described() {
    let manifests = super::files("crates", "toml").into_iter().filter(|path| path.ends_with("/Cargo.toml"));
    let silent: Vec<String> = manifests
        .filter(|path| {
            let text = super::read(path);
            let described = text.lines().find_map(|line| line.strip_prefix("description = \""));
            described.is_none_or(|text| text.split(' ').count() < 3)
        })
        .map(|path| format!("{path}: its description says nothing"))
        .collect();
    super::must_be_clean(&silent);
}

/// Names in the workspace's table of dependencies that the record of dependencies does not justify.
fn unjustified(manifest: &str, record: &str) -> Vec<String> {
    let table = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let entries = table.take_while(|line| !line.starts_with('['));
    let names = entries.filter_map(|line| Some(line.split_once(" = ")?.0.trim()));
    let rows: Vec<&str> = record.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next()).collect();
    let justified: BTreeSet<&str> = rows.iter().flat_map(|cell| cell.split(',').map(str::trim)).collect();
    let outside = names.filter(|name| !name.starts_with("hapax-"));
    outside.filter(|name| !justified.contains(name)).map(str::to_owned).collect()
}

#[test]
fn every_library_is_justified() {
    let found = unjustified(&super::read("Cargo.toml"), &super::read("docs/adr/0007-dependencies.md"));
    assert!(found.is_empty(), "no row in docs/adr/0007-dependencies.md: {found:?}");
}

#[test]
fn an_unjustified_library_is_convicted() {
    let manifest = "[workspace.dependencies]\nhapax-api = { path = \"x\" }\nrand = \"1\"\nleft-pad = \"1\"\n\n[profile.x]\na = 1\n";
    assert_eq!(unjustified(manifest, "| library | for |\n|---|---|\n| rand, uuid | ids |\n"), ["left-pad"]);
}

#[test]
fn a_forbidden_import_is_convicted() {
    let document = "## Crates\n\n| crate | owns | imports |\n|---|---|---|\n| `crates/machine` | x | none |\n\
                    | `crates/codec` | x | `machine` |\n| `crates/gone` | x | none |\n";
    let metadata = serde_json::json!({ "workspace_root": "/r", "packages": [
        { "manifest_path": "/r/crates/machine/Cargo.toml", "dependencies": [
            { "name": "rand", "kind": null }, { "name": "proptest", "kind": "dev" },
            { "name": "hapax-codec", "kind": "dev", "path": "/r/crates/codec" } ] },
        { "manifest_path": "/r/crates/codec/Cargo.toml", "dependencies": [
            { "name": "openraft", "kind": null }, { "name": "hapax-machine", "kind": null, "path": "/r/crates/machine" } ] },
        { "manifest_path": "/r/crates/stray/Cargo.toml", "dependencies": [] },
    ]});
    let found = complaints(&granted(document), &actual(&metadata));
    assert_eq!(
        found,
        [
            "crates/gone: the table names it, but the workspace has no such member",
            "crates/codec: names openraft, which only crates/consensus may",
            "crates/machine: imports crates/codec, which the table does not grant",
            "crates/machine: links rand; the state machine stays pure",
            "crates/stray: a workspace member that the table does not name",
        ]
    );
}
