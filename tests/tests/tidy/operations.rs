//! Holds `docs/operations/running.md` against the sources, both ways: a row for each setting and each metric series,
//! and no row for one that does not exist.

use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = "docs/operations/running.md";
const SETTINGS: [&str; 2] = ["crates/server/src/config.rs", "crates/server/src/config/namespaces.rs"];

/// What a struct's fields are called, and of which type, without those that no configuration can name.
type Fields<'a> = Vec<(&'a str, &'a str)>;

/// The public structs of a Rust source, as rustfmt writes them.
fn structs(source: &str) -> BTreeMap<&str, Fields<'_>> {
    let mut found: BTreeMap<&str, Fields<'_>> = BTreeMap::new();
    let mut open = None;
    let mut skipped = false;
    for line in source.lines() {
        if let Some(name) = line.strip_prefix("pub struct ").and_then(|rest| rest.strip_suffix(" {")) {
            open = Some(name);
        } else if line == "}" {
            open = None;
        }
        let field = line.strip_prefix("    pub ").and_then(|rest| rest.strip_suffix(',')?.split_once(": "));
        match (open, field) {
            (Some(name), Some(field)) if !std::mem::take(&mut skipped) => found.entry(name).or_default().push(field),
            _ => skipped |= line.trim() == "#[serde(skip)]",
        }
    }
    found
}

/// The settings below one section, each under its whole name.
fn settings(structs: &BTreeMap<&str, Fields<'_>>, section: &str, prefix: &str) -> BTreeSet<String> {
    let fields = structs.get(section).map(Vec::as_slice).unwrap_or_default();
    let below = fields.iter().flat_map(|(name, kind)| {
        let inner = kind.trim_start_matches("Option<").trim_start_matches("Vec<").trim_end_matches('>');
        let name = format!("{prefix}{name}");
        if structs.contains_key(inner) {
            settings(structs, inner, &format!("{name}."))
        } else {
            BTreeSet::from([name])
        }
    });
    below.collect()
}

/// Names of metric series in a Rust source.
fn series(source: &str) -> BTreeSet<String> {
    let named = source.match_indices("\"hapax_").filter_map(|(at, _)| source[at + 1..].split('"').next());
    named.filter(|text| text.chars().all(|c| c.is_ascii_lowercase() || c == '_')).map(str::to_owned).collect()
}

/// What the first cells of a section's tables name in backticks, without labels.
fn rows(page: &str, heading: &str) -> BTreeSet<String> {
    let section = page.lines().skip_while(|line| *line != heading).skip(1);
    let section = section.take_while(|line| !line.starts_with("## "));
    let cells = section.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    cells.filter_map(|cell| cell.split('{').next()).map(str::to_owned).collect()
}

/// One sentence for each name that only one side has.
fn differences(what: &str, documented: &BTreeSet<String>, real: &BTreeSet<String>) -> Vec<String> {
    let missing = real.difference(documented).map(|name| format!("{PAGE}: no row for the {what} {name}"));
    let invented = documented.difference(real).map(|name| format!("{PAGE}: there is no {what} {name}"));
    missing.chain(invented).collect()
}

#[test]
fn every_setting_and_every_series_has_its_row() {
    let page = super::read(PAGE);
    let source = SETTINGS.map(super::read).concat();
    let real = settings(&structs(&source), "Config", "");
    assert!(real.len() > 20, "the settings were not found: {real:?}");
    let mut found = differences("setting", &rows(&page, "## Settings"), &real);
    let sources = super::files("crates", "rs").into_iter().filter(|path| path.contains("/src/"));
    let real: BTreeSet<String> = sources.flat_map(|path| series(&super::read(&path))).collect();
    assert!(real.len() > 10, "the series were not found: {real:?}");
    found.extend(differences("series", &rows(&page, "## Metrics"), &real));
    super::must_be_clean(&found);
}

#[test]
fn an_undocumented_and_an_invented_name_are_convicted() {
    let source = "pub struct Config {\n    /// It.\n    pub one: One,\n}\n\npub struct One {\n    pub a: u64,\n    \
                  #[serde(skip)]\n    pub hidden: bool,\n    pub many: Vec<Many>,\n}\n\npub struct Many {\n    pub b: \
                  Option<u64>,\n}\n";
    let real = settings(&structs(source), "Config", "");
    assert_eq!(real.iter().map(String::as_str).collect::<Vec<_>>(), ["one.a", "one.many.b"]);
    let page = "## Settings\n\n| setting |\n|---|\n| `one.a` |\n| `one.c` |\n\n## Metrics\n\n| `hapax_x{y}` |\n";
    let found = differences("setting", &rows(page, "## Settings"), &real);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("one.many.b") && found[1].contains("one.c"), "{found:?}");
    assert_eq!(rows(page, "## Metrics"), series("gauge!(\"hapax_x\").set(1); \"Hapax_no\""));
}
