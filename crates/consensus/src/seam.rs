//! What proposing, reading and the leader's chores need of consensus, and openraft as its implementation.
//! The one place where openraft's write and read errors are told apart: everything above sees [`Appended`].

use std::future::Future;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use hapax_codec::peer::raft::LogId;
use hapax_machine::Outcome;
use openraft::ReadPolicy;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, LinearizableReadError, RaftError};
use openraft::impls::ProgressResponder;
use openraft::vote::RaftLeaderId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::types::{NodeId, Proposal, Raft};

/// Who leads, as far as this node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// This node, in this term.
    Leader {
        /// The term of its leadership.
        term: u64,
    },
    /// Another node, or nobody that this node knows of.
    Follower {
        /// The leader.
        leader: Option<NodeId>,
    },
}

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Appended {
    /// It was committed and applied: one outcome per command, in order.
    Applied(Vec<Outcome>),
    /// It is in no log and never will be: this node was asked to append it and did not.
    NotAppended {
        /// The leader that this node knows of, or is handing over to.
        leader: Option<NodeId>,
    },
    /// It may be committed, now or later.
    Unknown,
}

/// Why there is no read index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoReadIndex {
    /// This node does not lead; the leader that it knows of.
    NotLeader(Option<NodeId>),
    /// No quorum confirmed the leadership in time, or consensus has stopped.
    Unconfirmed,
}

/// Consensus, as its users in this crate see it.
pub trait Consensus: Send + Sync + 'static {
    /// Who leads.
    fn role(&self) -> Role;

    /// Waits until the role is another one than `seen`.
    fn role_changed(&self, seen: Role) -> BoxFuture<'_, ()>;

    /// Hands an entry to the log, in the order of the calls; only a leadership of `term` may append it.
    /// The outer future ends once it was handed over, the inner one once its fate is known.
    ///
    /// Both may be dropped; the entry may be appended all the same.
    fn append(&self, term: u64, entry: Bytes) -> BoxFuture<'_, BoxFuture<'static, Appended>>;

    /// The send time of the newest message of this leadership that a quorum has acknowledged.
    fn quorum_acked(&self) -> Option<Instant>;

    /// The place of an entry that no acknowledged entry lies beyond. Leadership is confirmed with a quorum by messages that are
    /// sent after the call; never by a lease.
    fn read_index(&self) -> BoxFuture<'_, Result<LogId, NoReadIndex>>;

    /// This node.
    fn id(&self) -> NodeId;

    /// The voters: one set, or two while the membership changes. A quorum is a majority of each set.
    fn voter_sets(&self) -> Vec<Vec<NodeId>>;
}

/// Does `work` in each leadership of this node, until `stopping`. It is dropped where the leadership ends, so every wait in it
/// must be one that may be left; it never ends by itself.
pub(crate) async fn whenever_leading<F: Future<Output = ()>>(
    consensus: &dyn Consensus,
    stopping: &CancellationToken,
    work: impl Fn(u64) -> F,
) {
    let run = async {
        loop {
            let role = consensus.role();
            if let Role::Leader { term } = role {
                tokio::select! {
                    () = consensus.role_changed(role) => {}
                    () = work(term) => {}
                }
            } else {
                consensus.role_changed(role).await;
            }
        }
    };
    stopping.run_until_cancelled(run).await;
}

/// Consensus by openraft.
#[derive(Clone)]
pub struct RaftConsensus(Raft);

impl RaftConsensus {
    /// Wraps a running raft.
    pub fn new(raft: Raft) -> Self {
        Self(raft)
    }
}

impl Consensus for RaftConsensus {
    fn role(&self) -> Role {
        let server = self.0.server_metrics();
        let server = server.borrow_watched();
        // The vote here is the flushed one: a leader whose own vote could still be lost does not count as one.
        let vote = &server.vote;
        if server.state.is_leader() && vote.is_committed() && *vote.leader_id().node_id() == server.id {
            return Role::Leader { term: vote.leader_id().term() };
        }
        Role::Follower { leader: server.current_leader.filter(|leader| *leader != server.id) }
    }

    fn role_changed(&self, seen: Role) -> BoxFuture<'_, ()> {
        async move {
            let mut server = self.0.server_metrics();
            loop {
                // Marks the value as seen before it is looked at, so that no change falls between the two.
                drop(server.borrow_and_update());
                if self.role() != seen {
                    return;
                }
                if server.changed().await.is_err() {
                    // Raft has stopped: the role never changes again.
                    std::future::pending::<()>().await;
                }
            }
        }
        .boxed()
    }

    #[expect(clippy::async_yields_async, reason = "handed over and answered are two events")]
    fn append(&self, term: u64, entry: Bytes) -> BoxFuture<'_, BoxFuture<'static, Appended>> {
        async move {
            let (responder, answer) = ProgressResponder::complete_only();
            // Without the expected leader, an entry stamped in one leadership could be appended in a later one.
            let handed = self.0.write(Proposal(entry)).with_leader(term).responder(responder).await;
            if handed.is_err() {
                return async { Appended::Unknown }.boxed();
            }
            async move {
                match answer.await {
                    Ok(Ok(response)) => Appended::Applied(response.data.outcomes),
                    Ok(Err(error)) => refused(error),
                    // Raft stopped with the entry in hand.
                    Err(_) => Appended::Unknown,
                }
            }
            .boxed()
        }
        .boxed()
    }

    fn quorum_acked(&self) -> Option<Instant> {
        // Taken first: whatever time passes until the age is read makes the acknowledgement look older, not newer.
        let now = Instant::now();
        if self.voter_sets() == [[self.id()]] {
            // openraft notes nobody's acknowledgement where the leader alone is the quorum.
            return Some(now);
        }
        let data = self.0.data_metrics();
        let age = data.borrow_watched().last_quorum_acked.map(|acked| openraft::Instant::elapsed(&*acked));
        now.checked_sub(age?)
    }

    fn read_index(&self) -> BoxFuture<'_, Result<LogId, NoReadIndex>> {
        async move {
            match self.0.get_read_linearizer(ReadPolicy::ReadIndex).await {
                Ok(linearizer) => {
                    let id = linearizer.read_log_id();
                    Ok(LogId { term: id.committed_leader_id().term, index: id.index() })
                }
                Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
                    Err(NoReadIndex::NotLeader(forward.leader_id))
                }
                Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_)) | RaftError::Fatal(_)) => {
                    Err(NoReadIndex::Unconfirmed)
                }
            }
        }
        .boxed()
    }

    fn id(&self) -> NodeId {
        *self.0.node_id()
    }

    fn voter_sets(&self) -> Vec<Vec<NodeId>> {
        let server = self.0.server_metrics();
        let membership = std::sync::Arc::clone(&server.borrow_watched().membership_config);
        membership.membership().get_joint_config().iter().map(|set| set.iter().copied().collect()).collect()
    }
}

/// openraft's write errors. `ForwardToLeader` alone says that nothing was appended; an entry discarded from this log
/// may have reached another one first. The other two do not occur for commands, so they prove nothing.
fn refused(error: ClientWriteError<crate::types::TypeConfig>) -> Appended {
    match error {
        ClientWriteError::ForwardToLeader(forward) => Appended::NotAppended { leader: forward.leader_id },
        ClientWriteError::LogEntryDiscarded(_)
        | ClientWriteError::ChangeMembershipError(_)
        | ClientWriteError::PreconditionFailed(_) => Appended::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use openraft::errors::{ChangeMembershipError, EmptyMembership, ForwardToLeader};

    use super::*;
    use crate::types::PeerNode;

    /// The helper that openraft offers says "forward" for both of the first two.
    #[test]
    fn only_a_refusal_before_the_append_is_certain() {
        let to = || ForwardToLeader::new(2, PeerNode::default());
        assert_eq!(refused(ClientWriteError::ForwardToLeader(to())), Appended::NotAppended { leader: Some(2) });
        let empty = ForwardToLeader::empty();
        assert_eq!(refused(ClientWriteError::ForwardToLeader(empty)), Appended::NotAppended { leader: None });
        assert_eq!(refused(ClientWriteError::LogEntryDiscarded(to())), Appended::Unknown);
        let membership = ChangeMembershipError::EmptyMembership(EmptyMembership {});
        assert_eq!(refused(ClientWriteError::ChangeMembershipError(membership)), Appended::Unknown);
    }
}
