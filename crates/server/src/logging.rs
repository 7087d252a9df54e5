//! What a node logs, and in which form. Keys, digests and secrets are never logged.

use std::io::IsTerminal;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// For people.
    #[default]
    Pretty,
    /// One JSON object a line.
    Json,
}

/// Sends this process's log to standard error. `level` is a level or a filter of targets, as `info` or
/// `hapax=debug`; one that does not parse is refused by the configuration check.
pub fn init(format: Format, level: &str) {
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let lines = lines.with_ansi(std::io::stderr().is_terminal());
    // Failing means that the process has a subscriber already, as in tests.
    let _ = match format {
        Format::Pretty => lines.try_init(),
        Format::Json => lines.json().flatten_event(true).try_init(),
    };
}
