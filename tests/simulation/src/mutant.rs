//! Clusters that are wrong on purpose, one way each: what an invariant must convict. Owns what is wrong, and for which invariant
//! it stands; [`Mutant::None`] is the cluster as it is shipped.
//!
//! Some change what a node is made of (its disks, its state), some stand in its door and change what is asked or answered, as a
//! node would that forgot the rule.

use bytes::Bytes;
use hapax_consensus::node::Node;
use hapax_machine::command::Caller;
use hapax_machine::ids::{ClientId, ExecutionId, TenantId};
use hapax_machine::read;
use http::{Method, Request, Response, StatusCode};
use serde_json::Value;

use crate::invariants::Name;
use crate::plan::{Fault, Plan, Victim};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Nothing.
    None,
    /// Disks that say "synced" and keep nothing.
    LyingDisks,
    /// Whoever asks for a key that is being worked on is elected too.
    EveryoneElected,
    /// A node answers reads from its own state, as if it had asked a quorum.
    LocalReads,
    /// A report or renewal counts whatever its lease epoch says.
    NoFence,
    /// Capabilities and messages are looked at by nobody: every claim counts as inline, and as the first.
    FreeAuthority,
    /// A lease ends long before what was asked for.
    ShortLeases,
    /// A node's disk keeps how far the log was applied, and not what was applied.
    TornFlush,
    /// A partition that never heals.
    NoHealing,
    /// A node goes on after its disk has failed.
    DeafToFaults,
}

impl Mutant {
    /// All that are wrong, and the invariants that must convict each.
    pub const ALL: [(Self, &'static [Name]); 9] = [
        (Self::LyingDisks, &[Name::D, Name::E, Name::T]),
        (Self::EveryoneElected, &[Name::U]),
        (Self::LocalReads, &[Name::M, Name::R]),
        (Self::NoFence, &[Name::F]),
        (Self::FreeAuthority, &[Name::C]),
        (Self::ShortLeases, &[Name::L]),
        (Self::TornFlush, &[Name::H]),
        (Self::NoHealing, &[Name::Q]),
        (Self::DeafToFaults, &[Name::X]),
    ];

    /// The mutant of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().map(|(mutant, _)| *mutant).find(|mutant| format!("{mutant:?}") == name)
    }

    /// Makes sure that what is wrong can show.
    pub(crate) fn adapt(self, plan: &mut Plan) {
        let middle = plan.length_ms / 2;
        let shows = match self {
            Self::LyingDisks => vec![(middle, Fault::Blackout(300))],
            Self::LocalReads => vec![(middle, Fault::Isolate(Victim::Leader, 3_000))],
            Self::TornFlush => vec![(middle, Fault::PowerCut(Victim::Node(2), 300))],
            Self::NoHealing => vec![(middle, Fault::Isolate(Victim::Node(2), 1_000))],
            Self::DeafToFaults => vec![(middle, Fault::BreakDisk(Victim::Leader))],
            _ => return,
        };
        plan.faults.extend(shows);
        plan.faults.sort_by_key(|(at, _)| *at);
    }

    /// What the node makes of a request.
    pub(crate) fn request(self, request: Request<Bytes>, node: &Node) -> Request<Bytes> {
        match self {
            Self::LocalReads if request.method() == Method::GET => locally(request),
            Self::NoFence => with_body(request, |path, body| {
                if let Some(current) = current_epoch(path, node)
                    && body.get("lease_epoch").is_some()
                {
                    body["lease_epoch"] = current.into();
                }
            }),
            Self::FreeAuthority => with_body(request, |_, body| {
                if let Some(body) = body.as_object_mut() {
                    body.remove("capability_id");
                    body.remove("message");
                }
            }),
            Self::ShortLeases => with_body(request, |_, body| {
                if body["lease_ms"].as_u64().is_some_and(|ms| ms > 1_000) {
                    body["lease_ms"] = 1_000.into();
                }
            }),
            _ => request,
        }
    }

    /// What the node makes of its answer.
    pub(crate) fn answer(self, answer: Response<Bytes>, node: &Node) -> Response<Bytes> {
        if !matches!(self, Self::LocalReads | Self::EveryoneElected) {
            return answer;
        }
        let (mut head, bytes) = answer.into_parts();
        let Ok(mut body) = serde_json::from_slice::<Value>(&bytes) else { return Response::from_parts(head, bytes) };
        if self == Self::EveryoneElected && head.status == StatusCode::ACCEPTED {
            let path = format!("/v1/executions/{}", body["execution_id"].as_str().unwrap_or_default());
            if let Some(epoch) = current_epoch(&path, node) {
                head.status = StatusCode::CREATED;
                body["lease_epoch"] = epoch.into();
            }
        } else if let (Self::LocalReads, Some(body)) = (self, body.as_object_mut()) {
            body.remove("consistency");
        }
        Response::from_parts(head, body.to_string().into())
    }
}

fn locally(request: Request<Bytes>) -> Request<Bytes> {
    let (mut head, body) = request.into_parts();
    if head.uri.path().starts_with("/v1/operations/")
        && let Ok(uri) = format!("{}?consistency=local", head.uri.path()).parse()
    {
        head.uri = uri;
    }
    Request::from_parts(head, body)
}

fn with_body(request: Request<Bytes>, change: impl FnOnce(&str, &mut Value)) -> Request<Bytes> {
    let (head, bytes) = request.into_parts();
    let Ok(mut body) = serde_json::from_slice::<Value>(&bytes) else { return Request::from_parts(head, bytes) };
    change(head.uri.path(), &mut body);
    Request::from_parts(head, body.to_string().into())
}

/// The lease epoch under which the execution that a path names stands now, as this node knows.
fn current_epoch(path: &str, node: &Node) -> Option<u64> {
    let id = ExecutionId::parse(path.strip_prefix("/v1/executions/")?.split('/').next()?)?;
    let caller = Caller { tenant: TenantId::new("dev"), client: ClientId::new("dev"), namespaces: Vec::new() };
    let seen = read::by_execution(&*node.local(), &caller, &id).ok()??;
    Some(seen.lease_epoch?.0)
}
