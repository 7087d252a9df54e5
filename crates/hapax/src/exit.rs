//! Exit codes: what a script may branch on.

use std::process::ExitCode;

use thiserror::Error;

/// A failure with an exit code of its own.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// The answer was no.
    #[error("{0}")]
    Refused(String),
    /// The command line, or a file that it names, is wrong.
    #[error("{0}")]
    Usage(String),
    /// Nobody could answer; nothing was done.
    #[error("{0}")]
    Unavailable(String),
    /// It may have been done.
    #[error("{0}")]
    Unknown(String),
}

/// The exit code of a failure.
pub(crate) fn code(failure: &anyhow::Error) -> ExitCode {
    ExitCode::from(match failure.downcast_ref::<Failure>() {
        Some(Failure::Refused(_)) | None => 1,
        Some(Failure::Usage(_)) => 2,
        Some(Failure::Unavailable(_)) => 3,
        Some(Failure::Unknown(_)) => 4,
    })
}
