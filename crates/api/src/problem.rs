//! The body of every refusal: RFC 9457 `application/problem+json`, extended by what a caller branches on.
//! A refusal of something absent and of something that is another's are equal in every byte.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::codes::{Code, ConflictStyle, Outcome};
use crate::operation::Consistency;
use crate::request::Invalid;
use crate::text::{OperationId, Revision};

/// Media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Reference to the code's page, relative to the server: `/errors/<code>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// One line for people.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What to branch on.
    pub code: Code,
    /// Whether the same call, sent again after a pause, may succeed and should be sent.
    pub retryable: bool,
    /// Whether this answer tells what happened.
    pub outcome: Outcome,
    /// What is wrong with this request; never part of what it asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// RFC 6901 pointer to the field at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// The operation whose state is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<OperationId>,
    /// Present where this node answered from its own copy of a fact that cannot change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
    /// When that was true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
}

impl Problem {
    /// A refusal in the default style.
    #[must_use]
    pub fn new(code: Code) -> Problem {
        Problem::styled(code, ConflictStyle::Hapax)
    }

    /// A refusal in a namespace's style.
    #[must_use]
    pub fn styled(code: Code, style: ConflictStyle) -> Problem {
        Problem {
            kind: format!("/errors/{code}"),
            title: code.title().to_owned(),
            status: code.status_in(style),
            code,
            retryable: code.retryable(),
            outcome: code.outcome(),
            detail: None,
            pointer: None,
            operation_id: None,
            consistency: None,
            revision: None,
        }
    }

    /// Says what is wrong with this request.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Problem {
        self.detail = Some(detail.into());
        self
    }

    /// Names the operation whose state is the reason.
    #[must_use]
    pub fn operation(mut self, id: OperationId) -> Problem {
        self.operation_id = Some(id);
        self
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Problem {
        let mut problem = Problem::new(invalid.code).detail(invalid.detail);
        problem.pointer = invalid.pointer;
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_on_the_wire() {
        let problem: Problem = Invalid::field("lease_ms", "must be an integer from 1000 to 900000").into();
        insta::assert_json_snapshot!(problem, @r#"
        {
          "type": "/errors/request.invalid",
          "title": "The request is malformed",
          "status": 400,
          "code": "request.invalid",
          "retryable": false,
          "outcome": "definite",
          "detail": "must be an integer from 1000 to 900000",
          "pointer": "/lease_ms"
        }
        "#);
        let text = serde_json::to_string(&problem).unwrap();
        assert_eq!(serde_json::from_str::<Problem>(&text).unwrap(), problem);
    }

    #[test]
    fn a_style_changes_the_status_only() {
        let id: OperationId = "op_1".parse().unwrap();
        let plain = Problem::new(Code::KeyDigestMismatch).operation(id.clone());
        let styled = Problem::styled(Code::KeyDigestMismatch, ConflictStyle::Ietf).operation(id);
        assert_eq!((plain.status, styled.status), (409, 422));
        assert_eq!(Problem { status: 409, ..styled }, plain);
    }
}
