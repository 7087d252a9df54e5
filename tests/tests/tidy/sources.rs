//! What every Rust file must have and must not: a `//!` head, a length that a reader can hold, none of the
//! marks of unfinished or hidden work; and below the proposer no clock, no randomness and no hash order.

/// Lines after which a file must be split. About 400 is the aim; this is the wall.
const LINES_MAX: usize = 800;

/// Marks of unfinished work, or of tests that cannot fail. Written in two halves, so that this file passes.
const BANNED: [(&str, &str); 5] = [
    (concat!("#[", "ignore"), "a test that does not run proves nothing"),
    (concat!("#[", "should_panic"), "it passes on any panic: assert the error instead"),
    (concat!("todo", "!("), "unfinished work is left out, not stubbed"),
    (concat!("unimplemented", "!("), "unfinished work is left out, not stubbed"),
    (concat!("dbg", "!("), "left over from debugging"),
];

/// Where replicas must compute the same from the same log.
const BELOW_THE_PROPOSER: [&str; 3] = ["crates/machine/src/", "crates/codec/src/", "crates/store/src/"];

/// What differs from node to node, or from run to run.
const UNREPEATABLE: [&str; 5] = ["SystemTime", "Instant::now", "rand::", "HashMap", "HashSet"];

/// The only files of the crates that read a clock where it would matter: elapsed time of the disk, for a lag and a
/// metric; the proposer's clocks; the expiry of a credential.
const CLOCKS: [&str; 3] =
    ["crates/store/src/log/clock.rs", "crates/consensus/src/clock.rs", "crates/server/src/auth.rs"];

/// One sentence for each thing of the file that two replicas could see differently. Tests may.
fn unrepeatable(path: &str, text: &str) -> Vec<String> {
    if CLOCKS.contains(&path) || path.contains("/tests/") || path.ends_with("/tests.rs") || path.starts_with("tests/")
    {
        return Vec::new();
    }
    let below = BELOW_THE_PROPOSER.iter().any(|folder| path.starts_with(folder));
    let banned = if below { &UNREPEATABLE[..] } else { &UNREPEATABLE[..1] };
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(number, line)| {
            let found = banned.iter().filter(|word| line.contains(*word));
            found
                .map(move |word| format!("{path}:{}: `{word}`: time and chance enter above the proposer", number + 1))
        })
        .collect()
}

/// One sentence for each rule that the file breaks.
fn complaints(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if !text.starts_with("//!") {
        found.push(format!("{path}: does not open with `//!`: say what the file owns, in two lines"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        found.push(format!("{path}: {lines} lines, more than {LINES_MAX}: split it where a reader would"));
    }
    for (number, line) in text.lines().enumerate() {
        for (mark, reason) in BANNED {
            if line.contains(mark) {
                found.push(format!("{path}:{}: `{mark}`: {reason}", number + 1));
            }
        }
    }
    found
}

#[test]
fn every_source_file_keeps_the_rules() {
    let paths = [super::files("crates", "rs"), super::files("jepsen", "rs"), super::files("tests", "rs")].concat();
    assert!(paths.len() > 10, "the walk found almost nothing: {paths:?}");
    let found: Vec<String> = paths.iter().flat_map(|path| complaints(path, &super::read(path))).collect();
    super::must_be_clean(&found);
}

#[test]
fn replicas_have_no_clock_and_no_chance() {
    let paths = super::files("crates", "rs");
    let found: Vec<String> = paths.iter().flat_map(|path| unrepeatable(path, &super::read(path))).collect();
    super::must_be_clean(&found);
}

#[test]
fn a_clock_below_the_proposer_is_convicted() {
    let text = "use std::time::Instant;\nfn now() { Instant::now(); }\nfn map() -> HashMap<u8, u8>;\n";
    assert_eq!(unrepeatable("crates/store/src/state/rows.rs", text).len(), 2);
    assert_eq!(unrepeatable("crates/store/src/state/tests/rows.rs", text).len(), 0);
    assert_eq!(unrepeatable("crates/server/src/routes/mod.rs", text).len(), 0);
    assert_eq!(unrepeatable("crates/server/src/routes/mod.rs", "SystemTime::now()").len(), 1);
}

#[test]
fn a_file_that_breaks_the_rules_is_convicted() {
    let mut text = format!("use std::io;\n{}]\nfn f() {{ {}) }}\n", BANNED[0].0, BANNED[2].0);
    text.push_str(&"\n".repeat(LINES_MAX));
    let found = complaints("a.rs", &text);
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found[0].contains("does not open"), "{found:?}");
    assert!(found[1].contains("803 lines"), "{found:?}");
    assert!(found[2].starts_with("a.rs:2:"), "{found:?}");
    assert!(found[3].starts_with("a.rs:3:"), "{found:?}");
    assert_eq!(complaints("b.rs", "//! Owns nothing.\n"), Vec::<String>::new());
}

/// Test files of a folder that its binary does not name: they would be compiled by nobody, and pass for ever.
fn untold(files: &[String], binary: &str) -> Vec<String> {
    let told = |name: &str| binary.lines().any(|line| line == format!("mod {name};"));
    files.iter().filter(|name| !told(name)).map(|name| format!("tests/tests/{name}.rs: no line of e2e.rs")).collect()
}

#[test]
fn every_story_is_told() {
    let paths = super::files("tests/tests", "rs");
    let names = paths.iter().filter_map(|path| path.strip_prefix("tests/tests/")?.strip_suffix(".rs"));
    // The binary itself, the binary that needs Docker, and the folder of this file.
    let stories: Vec<String> =
        names.filter(|name| !name.contains('/') && !["e2e", "compose"].contains(name)).map(str::to_owned).collect();
    assert!(stories.len() > 20, "the walk found almost nothing: {stories:?}");
    super::must_be_clean(&untold(&stories, &super::read("tests/tests/e2e.rs")));
    assert_eq!(untold(&["herd".to_owned(), "lost".to_owned()], "mod herd;\n// mod lost;\n").len(), 1);
}
