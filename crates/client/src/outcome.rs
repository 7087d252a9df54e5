//! What a call came to, told apart by what the caller may conclude from it.

use std::fmt;

use hapax_api::Problem;

/// What a call came to, after its retries.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It was answered.
    Done(T),
    /// It was refused, and changed nothing.
    Refused(Problem),
    /// It was certainly not applied; nobody answered, or nobody could.
    Unavailable(Failure),
    /// It may have been applied. The same call, with the same identity, gets the one true answer later.
    Unknown(Failure),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong last.
    pub detail: String,
    /// What a node said last, if one did.
    pub problem: Option<Problem>,
}

impl<T> Outcome<T> {
    /// Changes the answer and leaves everything else.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Outcome::Done(answer) => Outcome::Done(change(answer)),
            Outcome::Refused(problem) => Outcome::Refused(problem),
            Outcome::Unavailable(failure) => Outcome::Unavailable(failure),
            Outcome::Unknown(failure) => Outcome::Unknown(failure),
        }
    }

    /// The answer, if there is one.
    #[must_use]
    pub fn done(self) -> Option<T> {
        match self {
            Outcome::Done(answer) => Some(answer),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Some(problem) => write!(f, "{}: {}", problem.code, self.detail),
            None => f.write_str(&self.detail),
        }
    }
}
