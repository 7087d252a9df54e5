//! A person at a terminal: the command line against a cluster, with one token.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cluster::binary;

/// A shell with a cluster to call.
#[derive(Debug, Clone)]
pub struct Shell {
    /// The nodes, separated by commas.
    pub urls: String,
    token: String,
}

impl Shell {
    /// A shell that calls these nodes with this token.
    pub fn new(urls: impl Into<String>, token: impl Into<String>) -> Self {
        Self { urls: urls.into(), token: token.into() }
    }

    /// What a verb prints and how it ends.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn output(&self, line: &[&str]) -> Result<Output> {
        let mut command = Command::new(binary());
        command.args(line).env("HAPAX_URL", &self.urls).env("HAPAX_TOKEN", &self.token).stdin(Stdio::null());
        command.output().with_context(|| format!("{line:?}"))
    }

    /// The answer of a verb that is done.
    ///
    /// # Errors
    /// It is not done; what it said is part of the error.
    pub fn done(&self, line: &[&str]) -> Result<Value> {
        let output = self.output(&[line, &["-o", "json"]].concat())?;
        ensure!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).with_context(|| format!("{line:?}"))
    }

    /// A verb that is refused with `code`.
    ///
    /// # Errors
    /// It is not, or for another reason.
    pub fn refused(&self, line: &[&str], code: &str) -> Result<()> {
        let output = self.output(line)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(1) && said.contains(code), "{line:?} is not {code}: {output:?}");
        Ok(())
    }
}

/// A field of an answer as text.
///
/// # Errors
/// There is none.
pub fn text<'v>(value: &'v Value, field: &str) -> Result<&'v str> {
    value[field].as_str().with_context(|| format!("{field} is in {value}"))
}
