//! What the verbs print: a table for people, JSON for scripts. The only file that prints to standard output.
#![allow(clippy::print_stdout)]

use std::io::Write;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

/// The form of what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For scripts: one JSON document.
    Json,
}

/// Prints one line.
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// Prints a text as it is.
pub(crate) fn text(text: &str) {
    print!("{text}");
}

/// The standard output, for what writes itself.
pub(crate) fn stdout() -> impl Write {
    std::io::stdout().lock()
}

/// Prints an answer: name and value in two columns, or JSON.
pub(crate) fn answer<T: Serialize>(format: Format, answer: &T) -> anyhow::Result<()> {
    match format {
        Format::Json => println!("{}", serde_json::to_string_pretty(answer)?),
        Format::Table => {
            let mut rows = Vec::new();
            flatten("", &serde_json::to_value(answer)?, &mut rows);
            let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            for (name, value) in rows {
                println!("{name:width$}  {value}");
            }
        }
    }
    Ok(())
}

/// Prints rows under headings, each column as wide as its widest cell.
pub(crate) fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) {
    let mut widths = headings.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    let print = |cells: [&str; N]| {
        let padded: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        println!("{}", padded.join("  ").trim_end());
    };
    print(headings);
    for row in rows {
        print(std::array::from_fn(|at| row[at].as_str()));
    }
}

fn flatten(prefix: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                flatten(&name, value, rows);
            }
        }
        Value::String(text) => rows.push((prefix.to_owned(), text.clone())),
        other => rows.push((prefix.to_owned(), other.to_string())),
    }
}
