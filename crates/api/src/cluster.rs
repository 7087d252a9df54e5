//! What a node says about itself and its cluster: `/v1/cluster`, `/livez`, `/readyz`.
//! These answer from what this node knows; none of them needs a quorum, and readiness says whether there is one.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a member is to consensus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Votes and leads.
    Leader,
    /// Votes.
    Voter,
    /// Receives the log and does not vote.
    Learner,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Its node id, never used again for another node.
    pub id: u64,
    /// Its region.
    pub region: String,
    /// What it is to consensus.
    pub role: Role,
    /// Where clients reach it.
    pub client_url: String,
    /// The last log index that it is known to have; of itself, applied. Absent where the answering node cannot know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_index: Option<u64>,
    /// Log entries behind the leader. Absent where the answering node cannot know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// Whether the answering node hears from it. Absent where it cannot know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reachable: Option<bool>,
}

/// `GET /v1/cluster`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterView {
    /// The cluster's name.
    pub cluster: String,
    /// The node that answers.
    pub node_id: u64,
    /// The leader, if this node knows one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_id: Option<u64>,
    /// The term.
    pub term: u64,
    /// The members, by id.
    pub members: Vec<Member>,
}

/// `GET /livez`: the process runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Liveness {
    /// Always true: a process that does not run does not answer.
    pub alive: bool,
}

/// One condition of readiness.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// Whether it holds.
    pub ok: bool,
    /// What was found, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// `GET /readyz`: 200 where this node can answer, 503 where it cannot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// Whether every check holds.
    pub ready: bool,
    /// The checks, with `?verbose`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}
