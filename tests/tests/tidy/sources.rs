//! What every Rust file must have and must not: a `//!` head, a length that a reader can hold, and none of the
//! marks of unfinished or hidden work.

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
    let paths = [super::files("crates", "rs"), super::files("tests", "rs")].concat();
    assert!(paths.len() > 10, "the walk found almost nothing: {paths:?}");
    let found: Vec<String> = paths.iter().flat_map(|path| complaints(path, &super::read(path))).collect();
    super::must_be_clean(&found);
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
