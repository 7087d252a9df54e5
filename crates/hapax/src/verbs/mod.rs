//! The verbs of the protocol beyond claim, renew, report and get: one file per noun, each with its arguments beside what they do.

pub(crate) mod administration;
pub(crate) mod authority;
pub(crate) mod operations;
pub(crate) mod repair;

use serde::Serialize;

use crate::output::{self, Format};

/// Prints a page: one line for each item, or the whole page as JSON.
fn page<T: Serialize, const N: usize>(
    format: Format,
    page: &T,
    headings: [&str; N],
    rows: Vec<[String; N]>,
    next: Option<String>,
) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::answer(format, page);
    }
    output::table(headings, &rows);
    if let Some(cursor) = next {
        output::line(&format!("There is more: --cursor {cursor}"));
    }
    Ok(())
}

/// A text that may be absent.
fn shown<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
