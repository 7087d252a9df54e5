//! What one run came to, as lines of text: how a simulated machine tells the process that started it.

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{Call, What};
use crate::invariants::Observed;

/// What a run came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Broken promises: letter, and how.
    pub violations: Vec<(String, String)>,
    /// How often each thing happened: faults, and calls by kind and answer.
    pub counts: BTreeMap<String, u64>,
}

/// The kind of a call, in a word.
fn kind(call: &Call) -> &'static str {
    match &call.what {
        What::Claim { capability: Some(_), .. } => "claim with a capability",
        What::Claim { .. } => "claim",
        What::Renew { .. } => "renew",
        What::Report { .. } => "report",
        What::End { verb, .. } => verb,
        What::Reconcile { .. } => "reconcile",
        What::Get { .. } => "get",
        What::Register { .. } => "register",
        What::Issue { .. } => "issue",
        What::Capability { .. } => "capability",
        What::Epoch { bump: Some(_) } => "bump",
        What::Epoch { .. } => "epoch",
    }
}

impl Report {
    /// Judges a run.
    pub fn of(observed: &Observed) -> Self {
        let mut counts = observed.counts.clone();
        for call in observed.calls.iter().chain(&observed.closing.calls) {
            let answer = match &call.answer {
                None => "lost".to_owned(),
                Some((_, status, _)) => status.to_string(),
            };
            *counts.entry(format!("{} {answer}", kind(call))).or_default() += 1;
        }
        let violations = observed.violations().into_iter().map(|found| (format!("{:?}", found.name), found.text));
        Self { violations: violations.collect(), counts }
    }

    /// Reads what [`fmt::Display`] wrote.
    pub fn parse(text: &str) -> Self {
        let mut report = Self::default();
        for line in text.lines() {
            match line.split_once('\t') {
                Some((name, count)) if name.len() > 1 => {
                    *report.counts.entry(name.to_owned()).or_default() += count.parse().unwrap_or(0);
                }
                Some((name, how)) => report.violations.push((name.to_owned(), how.to_owned())),
                None => {}
            }
        }
        report
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, how) in &self.violations {
            writeln!(f, "{name}\t{}", how.replace('\n', " "))?;
        }
        self.counts.iter().try_for_each(|(name, count)| writeln!(f, "{name}\t{count}"))
    }
}
