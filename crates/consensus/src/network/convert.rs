//! Between openraft's messages and the peer protocol's. Total in one direction; in the other it
//! refuses memberships that openraft would refuse.

use hapax_codec::peer::DecodeError;
use hapax_codec::peer::raft as wire;
use hapax_codec::peer::snapshot::Meta;
use openraft::EntryPayload;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, StreamAppendError, StreamAppendResult, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};

use crate::types::{
    CommittedLeaderId, Entry, LogId, Membership, PeerNode, Proposal, SnapshotMeta, StoredMembership, TypeConfig, Vote,
};

pub(crate) fn log_id_out(id: LogId) -> wire::LogId {
    wire::LogId { term: id.leader_id.term, index: id.index }
}

pub(crate) fn log_id_in(id: wire::LogId) -> LogId {
    LogId::new(CommittedLeaderId::new(id.term), id.index)
}

pub(crate) fn vote_out(vote: &Vote) -> wire::Vote {
    wire::Vote { term: vote.leader_id.term, node: vote.leader_id.voted_for, committed: vote.committed }
}

pub(crate) fn vote_in(vote: wire::Vote) -> Vote {
    if vote.committed { Vote::new_committed(vote.term, vote.node) } else { Vote::new(vote.term, vote.node) }
}

fn membership_out(membership: &Membership) -> wire::Membership {
    let node_out = |node: &PeerNode| wire::Node {
        addr: node.addr.clone(),
        region: node.region.clone(),
        client_url: node.client_url.clone(),
        data: node.data,
    };
    wire::Membership {
        configs: membership.get_joint_config().iter().map(|c| c.iter().copied().collect()).collect(),
        nodes: membership.nodes().map(|(id, node)| (*id, node_out(node))).collect(),
    }
}

fn membership_in(membership: wire::Membership) -> Result<Membership, DecodeError> {
    let node_in = |node: wire::Node| {
        let wire::Node { addr, region, client_url, data } = node;
        PeerNode { addr, region, client_url, data }
    };
    let configs = membership.configs.into_iter().map(|c| c.into_iter().collect()).collect();
    let nodes: std::collections::BTreeMap<_, _> =
        membership.nodes.into_iter().map(|(id, node)| (id, node_in(node))).collect();
    Membership::new(configs, nodes).map_err(|_| DecodeError::Invalid("membership"))
}

fn entry_out(entry: Entry) -> wire::Entry {
    let payload = match entry.payload {
        EntryPayload::Blank => wire::Payload::Blank,
        EntryPayload::Normal(Proposal(bytes)) => wire::Payload::Normal(bytes),
        EntryPayload::Membership(membership) => wire::Payload::Membership(membership_out(&membership)),
    };
    wire::Entry { log_id: log_id_out(entry.log_id), payload }
}

fn entry_in(entry: wire::Entry) -> Result<Entry, DecodeError> {
    let payload = match entry.payload {
        wire::Payload::Blank => EntryPayload::Blank,
        wire::Payload::Normal(bytes) => EntryPayload::Normal(Proposal(bytes)),
        wire::Payload::Membership(membership) => EntryPayload::Membership(membership_in(membership)?),
    };
    Ok(Entry { log_id: log_id_in(entry.log_id), payload })
}

pub(crate) fn append_out(request: AppendEntriesRequest<TypeConfig>) -> wire::AppendRequest {
    wire::AppendRequest {
        vote: vote_out(&request.vote),
        prev_log_id: request.prev_log_id.map(log_id_out),
        leader_commit: request.leader_commit.map(log_id_out),
        entries: request.entries.into_iter().map(entry_out).collect(),
    }
}

/// Refuses entries that are not consecutive, which openraft takes for granted.
pub(crate) fn append_in(request: wire::AppendRequest) -> Result<AppendEntriesRequest<TypeConfig>, DecodeError> {
    let mut prev = request.prev_log_id;
    for entry in &request.entries {
        let next = prev.map_or(Some(0), |id| id.index.checked_add(1));
        if next != Some(entry.log_id.index) || prev.is_some_and(|id| id.term > entry.log_id.term) {
            return Err(DecodeError::Invalid("order of entries"));
        }
        prev = Some(entry.log_id);
    }
    let entries: Result<Vec<_>, _> = request.entries.into_iter().map(entry_in).collect();
    Ok(AppendEntriesRequest {
        vote: vote_in(request.vote),
        prev_log_id: request.prev_log_id.map(log_id_in),
        leader_commit: request.leader_commit.map(log_id_in),
        entries: entries?,
    })
}

pub(crate) fn append_reply_out(result: StreamAppendResult<TypeConfig>) -> wire::AppendReply {
    match result {
        Ok(id) => wire::AppendReply::Accepted(id.map(log_id_out)),
        Err(StreamAppendError::Conflict(id)) => wire::AppendReply::Conflict(log_id_out(id)),
        Err(StreamAppendError::HigherVote(vote)) => wire::AppendReply::HigherVote(vote_out(&vote)),
    }
}

/// `None`: the follower's consensus has stopped.
pub(crate) fn append_reply_in(reply: wire::AppendReply) -> Option<StreamAppendResult<TypeConfig>> {
    Some(match reply {
        wire::AppendReply::Accepted(id) => Ok(id.map(log_id_in)),
        wire::AppendReply::Conflict(id) => Err(StreamAppendError::Conflict(log_id_in(id))),
        wire::AppendReply::HigherVote(vote) => Err(StreamAppendError::HigherVote(vote_in(vote))),
        wire::AppendReply::Stopped => return None,
    })
}

/// The answer to one request by itself, as the answer of a session. `prev` and `last` bound it.
pub(crate) fn heartbeat_reply_out(
    response: AppendEntriesResponse<TypeConfig>,
    prev: Option<wire::LogId>,
    last: Option<wire::LogId>,
) -> wire::AppendReply {
    match response {
        AppendEntriesResponse::Success => wire::AppendReply::Accepted(last),
        AppendEntriesResponse::PartialSuccess(id) => wire::AppendReply::Accepted(id.map(log_id_out)),
        AppendEntriesResponse::HigherVote(vote) => wire::AppendReply::HigherVote(vote_out(&vote)),
        // Nothing conflicts with the beginning of the log; if it were said to, it is not accepted either.
        AppendEntriesResponse::Conflict => prev.map_or(wire::AppendReply::Stopped, wire::AppendReply::Conflict),
    }
}

pub(crate) fn vote_request_out(request: &VoteRequest<TypeConfig>) -> wire::VoteRequest {
    wire::VoteRequest {
        vote: vote_out(&request.vote),
        last_log_id: request.last_log_id.map(log_id_out),
        leadership_transfer: request.leadership_transfer,
    }
}

pub(crate) fn vote_request_in(request: wire::VoteRequest) -> VoteRequest<TypeConfig> {
    VoteRequest {
        vote: vote_in(request.vote),
        last_log_id: request.last_log_id.map(log_id_in),
        leadership_transfer: request.leadership_transfer,
    }
}

pub(crate) fn vote_reply_out(reply: &VoteResponse<TypeConfig>) -> wire::VoteReply {
    wire::VoteReply {
        vote: vote_out(&reply.vote),
        granted: reply.vote_granted,
        last_log_id: reply.last_log_id.map(log_id_out),
    }
}

pub(crate) fn vote_reply_in(reply: wire::VoteReply) -> VoteResponse<TypeConfig> {
    VoteResponse {
        vote: vote_in(reply.vote),
        vote_granted: reply.granted,
        last_log_id: reply.last_log_id.map(log_id_in),
    }
}

pub(crate) fn transfer_out(request: &TransferLeaderRequest<TypeConfig>) -> wire::TransferRequest {
    wire::TransferRequest {
        from_leader: vote_out(request.from_leader()),
        to: *request.to_node_id(),
        last_log_id: request.last_log_id().copied().map(log_id_out),
    }
}

pub(crate) fn transfer_in(request: wire::TransferRequest) -> TransferLeaderRequest<TypeConfig> {
    let last_log_id = request.last_log_id.map(log_id_in);
    TransferLeaderRequest::new(vote_in(request.from_leader), request.to, last_log_id)
}

pub(crate) fn transfer_reply_out(reply: &TransferLeaderResponse<TypeConfig>) -> wire::TransferReply {
    match reply {
        Ok(()) => wire::TransferReply::Accepted,
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            wire::TransferReply::VoteChanged { expected: vote_out(expected), actual: vote_out(actual) }
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
            wire::TransferReply::LogNotFlushed { expected: expected.map(log_id_out), actual: actual.map(log_id_out) }
        }
    }
}

pub(crate) fn transfer_reply_in(reply: wire::TransferReply) -> TransferLeaderResponse<TypeConfig> {
    Err(match reply {
        wire::TransferReply::Accepted => return Ok(()),
        wire::TransferReply::VoteChanged { expected, actual } => {
            TransferLeaderError::VoteChanged { expected: vote_in(expected), actual: vote_in(actual) }
        }
        wire::TransferReply::LogNotFlushed { expected, actual } => {
            TransferLeaderError::LogNotFlushed { expected: expected.map(log_id_in), actual: actual.map(log_id_in) }
        }
    })
}

pub(crate) fn meta_out(meta: &SnapshotMeta) -> Meta {
    Meta {
        last_log_id: meta.last_log_id.map(log_id_out),
        membership_log_id: meta.last_membership.log_id().map(log_id_out),
        membership: membership_out(meta.last_membership.membership()),
    }
}

pub(crate) fn meta_in(meta: Meta) -> Result<SnapshotMeta, DecodeError> {
    let membership = membership_in(meta.membership)?;
    Ok(SnapshotMeta {
        last_log_id: meta.last_log_id.map(log_id_in),
        last_membership: StoredMembership::new(meta.membership_log_id.map(log_id_in), membership),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use bytes::Bytes;

    use super::*;

    fn membership() -> Membership {
        let node = |n: u64| PeerNode {
            addr: format!("h{n}:1"),
            region: "eu".into(),
            client_url: "u".into(),
            data: crate::types::DataId([n as u8; 16]),
        };
        let nodes: BTreeMap<u64, PeerNode> = (1..=4).map(|n| (n, node(n))).collect();
        Membership::new(vec![BTreeSet::from([1, 2]), BTreeSet::from([2, 3])], nodes).expect("valid")
    }

    #[test]
    fn appends_round_trip() {
        let id = |index| LogId::new(CommittedLeaderId::new(3), index);
        let request = AppendEntriesRequest::<TypeConfig> {
            vote: Vote::new_committed(3, 1),
            prev_log_id: Some(id(6)),
            leader_commit: Some(id(5)),
            entries: vec![
                Entry { log_id: id(7), payload: EntryPayload::Blank },
                Entry { log_id: id(8), payload: EntryPayload::Normal(Proposal(Bytes::from_static(b"x"))) },
                Entry { log_id: id(9), payload: EntryPayload::Membership(membership()) },
            ],
        };
        let back = append_in(append_out(request.clone())).expect("valid");
        assert_eq!(back.vote, request.vote);
        assert_eq!(back.prev_log_id, request.prev_log_id);
        assert_eq!(back.leader_commit, request.leader_commit);
        assert_eq!(back.entries, request.entries);

        let mut gap = append_out(request.clone());
        gap.entries.remove(1);
        assert!(append_in(gap).is_err());
        let mut backwards = append_out(request);
        backwards.entries[1].log_id.term = 2;
        assert!(append_in(backwards).is_err());
    }

    #[test]
    fn replies_and_votes_round_trip() {
        let id = LogId::new(CommittedLeaderId::new(3), 7);
        for vote in [Vote::new(4, 2), Vote::new_committed(4, 2)] {
            assert_eq!(vote_in(vote_out(&vote)), vote);
            let request = VoteRequest { vote, last_log_id: Some(id), leadership_transfer: true };
            assert_eq!(vote_request_in(vote_request_out(&request)), request);
            let reply = VoteResponse { vote, last_log_id: None, vote_granted: true };
            assert_eq!(vote_reply_in(vote_reply_out(&reply)), reply);
            let transfer = TransferLeaderRequest::new(vote, 3, Some(id));
            assert_eq!(transfer_in(transfer_out(&transfer)), transfer);
            for result in [
                Ok(None),
                Ok(Some(id)),
                Err(StreamAppendError::Conflict(id)),
                Err(StreamAppendError::HigherVote(vote)),
            ] {
                assert_eq!(append_reply_in(append_reply_out(result.clone())), Some(result));
            }
            for reply in [
                Ok(()),
                Err(TransferLeaderError::VoteChanged { expected: vote, actual: Vote::new(9, 9) }),
                Err(TransferLeaderError::LogNotFlushed { expected: Some(id), actual: None }),
            ] {
                assert_eq!(transfer_reply_in(transfer_reply_out(&reply)), reply);
            }
        }
    }

    #[test]
    fn snapshot_meta_round_trips_and_bad_memberships_are_refused() {
        let id = LogId::new(CommittedLeaderId::new(3), 7);
        let meta =
            SnapshotMeta { last_log_id: Some(id), last_membership: StoredMembership::new(Some(id), membership()) };
        assert_eq!(meta_in(meta_out(&meta)), Ok(meta.clone()));
        assert_eq!(meta_in(meta_out(&SnapshotMeta::default())), Ok(SnapshotMeta::default()));
        let mut bad = meta_out(&meta);
        bad.membership.configs[0].push(99);
        assert!(meta_in(bad).is_err(), "a voter without a node");
    }
}
