//! What the guide owes its readers: each question of the texts' contract, profile, mechanism table and checklists has a row that
//! answers it, and each page says where its promises end. (REQUIREMENTS 12, 46, 65, 68, 81, 86, 90, 91, 140, 141)

/// A table that must answer these questions: page, heading, and words that begin or fill the cell that asks.
struct Owed {
    page: &'static str,
    heading: &'static str,
    questions: &'static [&'static str],
}

const OWED: [Owed; 9] = [
    // 001 §6: what an API documents about its keys.
    Owed {
        page: "01-plain-key.md",
        heading: "The contract",
        questions: &[
            "who carries the key",
            "length and characters",
            "scope",
            "which calls need a key",
            "same key, another request",
            "somebody is at work",
            "finished before",
            "how long",
            "status",
            "when a credential changes",
            "operation id, execution id",
        ],
    },
    // 000: the lease comfortably exceeds the provider's timeout, and is not the broker's lock.
    Owed {
        page: "08-providers.md",
        heading: "A provider profile",
        questions: &[
            "recognition window",
            "same key, first request *succeeded*",
            "same key, first request *failed before execution*",
            "same key, first request *failed during execution*",
            "same key, *outside the window*",
            "call timeout that you use",
        ],
    },
    Owed {
        page: "06-identifiers.md",
        heading: "The five questions",
        questions: &["correlation id", "decision id", "capability id", "operation id (and its key)", "effect key"],
    },
    // 001 §16, in its order.
    Owed {
        page: "07-mechanisms.md",
        heading: "Which mechanism",
        questions: &[
            "set a resource to a known state",
            "create a resource with the caller's id",
            "an effect in your own database",
            "a message consumer's effect in its database",
            "publish after a local commit",
            "a remote API with idempotency keys",
            "a remote API that can be queried, without keys",
            "a remote API, irreversible, not queryable",
        ],
    },
    Owed {
        page: "07-mechanisms.md",
        heading: "Before accepting retries: twelve questions (001 §16)",
        questions: &[
            "What is one logical operation?",
            "Where is its stable key generated and retained?",
            "What scope makes it unique?",
            "Which fields bind its semantics?",
            "Where is the atomic effect boundary?",
            "What does a concurrent duplicate receive?",
            "How does an abandoned execution recover?",
            "How long can anything repeat it?",
            "Is uniqueness global across every region that can execute?",
            "How is access to a stored outcome authorised?",
            "What happens when the store is unavailable?",
            "How does an operator reconcile ambiguity?",
        ],
    },
    Owed {
        page: "07-mechanisms.md",
        heading: "A short review checklist (000)",
        questions: &[
            "for each duplicate path, what catches it?",
            "Are the five identifiers distinct",
            "Does the message carry identifiers only?",
            "rejected before operation logic?",
            "Is consumption one atomic transition",
            "Is spent authority never reset",
            "Is the provider key derived from operation and attempt",
            "Is there an unknown state",
            "Does lease expiry fence writes by epoch",
            "Does reconciliation read by your own reference",
            "Is the claim stated as boundaries?",
            "Do rejected replays record",
            "Do tests assert on the provider's ledger?",
        ],
    },
    Owed {
        page: "07-mechanisms.md",
        heading: "Ten failure modes, and where each ends here",
        questions: &[
            "the provider key as replay protection",
            "a consumed capability taken as a completed operation",
            "new authority to get past an unknown outcome",
            "a fresh effect key per attempt or send",
            "one identifier with several meanings",
            "transport deduplication trusted for authority",
            "unknown recorded as failure",
            "spent authority reset after a failure",
            "an outcome inferred from a duplicate delivery",
            "never repeats and never fails to happen",
        ],
    },
    // 001 §9: whatever can repeat a call bounds the retention from below.
    Owed {
        page: "09-retention.md",
        heading: "Planning the horizon",
        questions: &["client retry", "queue", "workflow replay", "offline", "restore", "manual repair", "margin"],
    },
    // 001 §10.
    Owed {
        page: "10-regions.md",
        heading: "Four designs, and which of them this is",
        questions: &[
            "globally consistent store",
            "home region per operation",
            "downstream-owned",
            "region-scoped identity",
        ],
    },
];

/// Words that a section must have, where the requirement is no table.
const SAID: [(&str, &str, &[&str]); 6] = [
    ("01-plain-key.md", "When you need less than Hapax", &["does not make its effect so"]),
    (
        "01-plain-key.md",
        "The digest, where you compute it yourself",
        &["NFC", "RFC 8785", "UTF-16", "transport", "operation_version", "twice", "64", "null", "SHA-256"],
    ),
    ("02-outcomes.md", "The lease", &["provider", "broker"]),
    ("08-providers.md", "An effect in your own database", &["Both orders", "One transaction"]),
    ("08-providers.md", "Messages", &["Acknowledge **after** the report", "No lock is held"]),
    ("09-retention.md", "Sizing", &["result_ref", "one node gone", "bytes per node", "199 TiB"]),
];

/// The lines of a section, up to the next heading of its level.
fn section<'p>(page: &'p str, heading: &str) -> Vec<&'p str> {
    let from = page.lines().skip_while(|line| line.strip_prefix("## ") != Some(heading)).skip(1);
    from.take_while(|line| !line.starts_with("## ")).collect()
}

/// One sentence for each question that no row answers.
fn unanswered(section: &[&str], questions: &[&str]) -> Vec<String> {
    let rows: Vec<Vec<&str>> = section
        .iter()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim().trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let answered = |question: &str| {
        rows.iter().any(|cells| {
            let at = cells.iter().position(|cell| cell.replace("**", "").contains(question));
            at.is_some_and(|at| cells[at + 1..].iter().any(|answer| answer.len() > 3))
        })
    };
    questions
        .iter()
        .filter(|question| !answered(question))
        .map(|question| format!("no answer to {question:?}"))
        .collect()
}

fn page(name: &str) -> String {
    super::read(&format!("docs/guide/{name}"))
}

#[test]
fn every_question_of_the_texts_has_an_answer() {
    let mut found = Vec::new();
    for Owed { page: name, heading, questions } in OWED {
        let text = page(name);
        let missing = unanswered(&section(&text, heading), questions);
        found.extend(missing.into_iter().map(|missing| format!("{name}, {heading:?}: {missing}")));
    }
    for (name, heading, words) in SAID {
        let text = section(&page(name), heading).join(" ");
        let missing = words.iter().filter(|word| !text.contains(**word));
        found.extend(missing.map(|word| format!("{name}, {heading:?}: nothing about {word:?}")));
    }
    super::must_be_clean(&found);
}

#[test]
fn a_question_without_an_answer_is_convicted() {
    let text = "# Page\n## Asked\n| what? | because of that |\n| **why**? | — |\n## Next\n| when? | at once |\n";
    let asked = section(text, "Asked");
    assert!(unanswered(&asked, &["what?"]).is_empty());
    assert_eq!(unanswered(&asked, &["what?", "why?", "when?"]).len(), 2);
    assert_eq!(unanswered(&section(text, "Absent"), &["what?"]).len(), 1);
}

/// The number in the cell after the one that begins with `name`, on the first row that has one.
fn measured(section: &[&str], name: &str, column: usize) -> f64 {
    let rows = section.iter().map(|line| line.trim().trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let mut named = rows.filter(|cells| cells.first().is_some_and(|cell| cell.starts_with(name)));
    let cell = named.find_map(|cells| cells.get(column)?.parse().ok());
    cell.unwrap_or_else(|| panic!("no number in column {column} of {name:?}"))
}

/// What the page says of the example is what its own measured bytes come to: a new measurement that stays in one place is found.
/// (REQUIREMENTS 90)
#[test]
fn the_sizing_is_what_the_measured_bytes_come_to() {
    const PER_SECOND: f64 = 25_000.0;
    const DAY_S: f64 = 86_400.0;
    let text = page("09-retention.md");
    let sizing = section(&text, "Sizing");
    let tib = |bytes: f64, days: f64| PER_SECOND * DAY_S * days * bytes / 1024_f64.powi(4);
    let inline = measured(&sizing, "inline claim and `completed`", 1);
    let body = measured(&sizing, "the same, with a 256-byte result", 2);
    let capability = measured(&sizing, "registered, capability, message", 1);
    let mut wrong = Vec::new();
    for (row, raw) in [
        ("their 1.1 KiB", tib(1.1 * 1024.0, 30.0)),
        ("measured inline record", tib(inline, 30.0)),
        ("measured, with a 256-byte result", tib(inline, 30.0) + tib(body, 7.0)),
        ("measured capability record", tib(capability, 30.0)),
    ] {
        let line = sizing.iter().find(|line| line.starts_with(&format!("| {row}"))).copied().unwrap_or_default();
        let (one, three) =
            (format!("| {raw:.1} TiB |"), [format!(" {:.1} TiB |", 3.0 * raw), format!(" {:.0} TiB |", 3.0 * raw)]);
        if !line.contains(&one) || !three.iter().any(|three| line.ends_with(three)) {
            wrong.push(format!("{row:?} is {raw:.1} TiB, {:.1} on three nodes, and not {line:?}", 3.0 * raw));
        }
    }
    super::must_be_clean(&wrong);
}

#[test]
fn every_page_says_where_its_promises_end_and_what_was_measured() {
    let mut found = Vec::new();
    let pages = super::files("docs/guide", "md");
    assert!(pages.len() >= 12, "the walk found almost nothing: {pages:?}");
    for path in pages {
        let text = super::read(&path);
        let end = section(&text, "What is not promised");
        if end.iter().map(|line| line.len()).sum::<usize>() < 80 {
            found.push(format!("{path}: does not say what is not promised"));
        }
        if text.contains("<!-- measured") {
            found.push(format!("{path}: a number that nobody measured yet"));
        }
    }
    super::must_be_clean(&found);
}
