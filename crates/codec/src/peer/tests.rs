//! Pins the bytes of the peer protocol, and checks that decoding is total and inverts encoding.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::call::{ReadIndex, Reply, Request, Status};
use super::hello::{Channel, ClusterId, Hello, Refusal, VERSION, Welcome};
use super::raft::{
    AppendReply, AppendRequest, Entry, LogId, Membership, Node, Payload, TransferReply, TransferRequest, Vote,
    VoteReply, VoteRequest,
};
use super::snapshot::{Begin, Chunk, Done, Failed, File, FileEnd, Meta, is_plain_name};
use super::{DecodeError, Frame, Kind, MAX_FRAME_LEN, PREFIX_LEN};
use crate::membership::DataId;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The body after its kind, having checked the prefix and the kind.
fn body(frame: &Frame, kind: Kind) -> Bytes {
    let all = frame.to_bytes();
    assert_eq!(all.len(), frame.wire_len());
    let announced = u32::from_be_bytes(all[..PREFIX_LEN].try_into().expect("four bytes"));
    assert_eq!(announced as usize, all.len() - PREFIX_LEN);
    let mut body = frame.to_body();
    assert_eq!(Kind::take(&mut body), Ok(kind));
    body
}

fn log_id(term: u64, index: u64) -> LogId {
    LogId { term, index }
}

fn vote() -> Vote {
    Vote { term: 3, node: 2, committed: true }
}

#[test]
fn hello_bytes_are_pinned() {
    let hello = Hello {
        version: 1,
        cluster: ClusterId([7; 16]),
        from: 1,
        to: 2,
        channel: Channel::App,
        data: DataId([9; 16]),
    };
    let expected = concat!(
        "0000003b",
        "4841504158505200",
        "0001",
        "07070707070707070707070707070707",
        "0000000000000001",
        "0000000000000002",
        "04",
        "09090909090909090909090909090909"
    );
    assert_eq!(hex(&hello.encode().to_bytes()), expected);
    assert_eq!(Hello::decode(hello.encode().to_body()), Ok(hello));

    let welcome = Welcome { verdict: Ok(1), node: 2, data: DataId([9; 16]) };
    assert_eq!(
        hex(&welcome.encode().to_body()),
        concat!("48415041585052000000010000000000000002", "09090909090909090909090909090909")
    );
    let refused = Welcome { verdict: Err(Refusal::Cluster), node: 2, data: DataId([9; 16]) };
    assert_eq!(
        hex(&refused.encode().to_body()),
        concat!("48415041585052000300000000000000000002", "09090909090909090909090909090909")
    );
}

#[test]
fn append_bytes_are_pinned() {
    let request = AppendRequest {
        vote: vote(),
        prev_log_id: Some(log_id(2, 4)),
        leader_commit: None,
        entries: vec![
            Entry { log_id: log_id(3, 5), payload: Payload::Blank },
            Entry { log_id: log_id(3, 6), payload: Payload::Normal(Bytes::from_static(b"xyz")) },
        ],
    };
    let expected = concat!(
        "01",
        "0000000000000009",
        "0000000000000003",
        "0000000000000002",
        "01",
        "0100000000000000020000000000000004",
        "00",
        "00000002",
        "00000000000000030000000000000005",
        "00",
        "00000000000000030000000000000006",
        "0100000003",
        "78797a"
    );
    assert_eq!(hex(&request.encode(9).to_body()), expected);
    assert_eq!(
        hex(&AppendReply::Accepted(Some(log_id(3, 6))).encode(9).to_body()),
        concat!("02", "0000000000000009", "00", "0100000000000000030000000000000006")
    );
    assert_eq!(hex(&AppendReply::Conflict(log_id(3, 6)).to_payload()), "0100000000000000030000000000000006");
}

#[test]
fn call_bytes_are_pinned() {
    let request = Request { id: 5, op: 3, budget_ms: 250, payload: Bytes::from_static(b"q") };
    assert_eq!(hex(&request.encode().to_body()), "03000000000000000503000000fa71");
    let reply = Reply { id: 5, status: Status::Ok, payload: Bytes::from_static(b"a") };
    assert_eq!(hex(&reply.encode().to_body()), "0400000000000000050061");
    let vote = VoteRequest { vote: vote(), last_log_id: None, leadership_transfer: true };
    assert_eq!(hex(&vote.to_payload()), "00000000000000030000000000000002010001");
    assert_eq!(hex(&Frame::bare(Kind::Ping).to_bytes()), "000000010c");
}

#[test]
fn chunk_bytes_are_pinned() {
    let chunk = Chunk { file: 1, offset: 2, data: Bytes::from_static(b"data") };
    let bytes = chunk.encode().to_body();
    assert_eq!(hex(&bytes[..13]), "06000000010000000000000002");
    assert_eq!(hex(&bytes[21..]), "64617461");
}

#[test]
fn a_long_payload_is_neither_copied_out_nor_in() {
    let data = Bytes::from(vec![7u8; 100_000]);
    let entry = Entry { log_id: log_id(1, 1), payload: Payload::Normal(data.clone()) };
    let request = AppendRequest { vote: vote(), prev_log_id: None, leader_commit: None, entries: vec![entry] };
    let frame = request.encode(1);
    let shared = frame.clone().into_segments().into_iter().any(|segment| segment.as_ptr() == data.as_ptr());
    assert!(shared, "the payload is a segment of its own");

    let received = frame.to_body();
    let range = received.as_ptr_range();
    let mut rest = received;
    Kind::take(&mut rest).expect("a kind");
    let (_, decoded) = AppendRequest::decode(rest).expect("a request");
    let Payload::Normal(out) = &decoded.entries[0].payload else { panic!("normal payload") };
    assert!(range.contains(&out.as_ptr()), "the payload is a slice of the frame");
}

#[test]
fn a_moved_or_damaged_chunk_is_refused() {
    let chunk = Chunk { file: 1, offset: 4096, data: Bytes::from(vec![1; 64]) };
    let good = body(&chunk.encode(), Kind::SnapshotChunk);
    assert_eq!(Chunk::decode(good.clone()), Ok(chunk));
    for at in 0..good.len() {
        let mut bad = good.to_vec();
        bad[at] ^= 1;
        assert!(Chunk::decode(Bytes::from(bad)).is_err(), "flip at {at}");
    }
}

#[test]
fn names_that_leave_the_directory_are_refused() {
    for good in ["CURRENT", "000123.sst", "MANIFEST-000005", "OPTIONS_1.dbtmp"] {
        assert!(is_plain_name(good), "{good}");
    }
    for bad in ["", ".", "..", "../x", "a/b", "/etc", "a\\b", ".hidden", "a b", "ä", "nul\0"] {
        assert!(!is_plain_name(bad), "{bad}");
        let files = vec![File { name: bad.to_owned(), len: 1 }];
        let begin = Begin { vote: vote(), meta: Meta::default(), files };
        assert!(Begin::decode(body(&begin.encode(), Kind::SnapshotBegin)).is_err(), "{bad}");
    }
    let twice = vec![File { name: "a".into(), len: 1 }, File { name: "a".into(), len: 2 }];
    let begin = Begin { vote: vote(), meta: Meta::default(), files: twice };
    let refused = Begin::decode(body(&begin.encode(), Kind::SnapshotBegin));
    assert_eq!(refused, Err(DecodeError::Invalid("repeated file name")));
}

#[test]
fn an_announced_count_allocates_nothing() {
    let request = AppendRequest { vote: vote(), prev_log_id: None, leader_commit: None, entries: vec![] };
    let mut bytes = request.to_payload().to_vec();
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&60_000u32.to_be_bytes());
    assert_eq!(AppendRequest::from_payload(bytes.clone().into()), Err(DecodeError::Truncated("entries")));
    bytes[at..].copy_from_slice(&u32::MAX.to_be_bytes());
    let refused = AppendRequest::from_payload(bytes.into());
    assert_eq!(refused, Err(DecodeError::TooLong { what: "entries", len: u64::from(u32::MAX) }));
}

#[test]
fn hello_refusals_are_typed() {
    let hello = Hello {
        version: VERSION,
        cluster: ClusterId([1; 16]),
        from: 1,
        to: 2,
        channel: Channel::Append,
        data: DataId([9; 16]),
    };
    let good = hello.encode().to_body();
    let mut channel = good.to_vec();
    let at = channel.len() - 17;
    channel[at] = 99;
    assert_eq!(Hello::decode(channel.into()), Err(Refusal::Channel));
    let mut longer = good.to_vec();
    longer.push(0);
    assert_eq!(Hello::decode(longer.into()), Err(Refusal::NotHello));
    assert_eq!(Hello::decode(Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n")), Err(Refusal::NotHello));
    for refusal in [
        Refusal::NotHello,
        Refusal::Version,
        Refusal::Cluster,
        Refusal::Node,
        Refusal::Channel,
        Refusal::Identity,
        Refusal::Busy,
        Refusal::Data,
    ] {
        let welcome = Welcome { verdict: Err(refusal), node: 9, data: DataId([9; 16]) };
        assert_eq!(Welcome::decode(welcome.encode().to_body()), Ok(welcome));
    }
}

fn any_log_id() -> impl Strategy<Value = LogId> {
    (any::<u64>(), any::<u64>()).prop_map(|(term, index)| LogId { term, index })
}

fn any_vote() -> impl Strategy<Value = Vote> {
    (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(term, node, committed)| Vote { term, node, committed })
}

fn any_membership() -> impl Strategy<Value = Membership> {
    let node = ("[a-z0-9:.]{0,20}", "\\PC{0,9}", "[a-z:/]{0,20}", any::<[u8; 16]>())
        .prop_map(|(addr, region, client_url, data)| Node { addr, region, client_url, data: DataId(data) });
    (vec(vec(any::<u64>(), 0..5), 0..3), vec((any::<u64>(), node), 0..4))
        .prop_map(|(configs, nodes)| Membership { configs, nodes })
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let payload = prop_oneof![
        Just(Payload::Blank),
        vec(any::<u8>(), 0..4000).prop_map(|data| Payload::Normal(data.into())),
        any_membership().prop_map(Payload::Membership),
    ];
    (any_log_id(), payload).prop_map(|(log_id, payload)| Entry { log_id, payload })
}

fn any_append() -> impl Strategy<Value = AppendRequest> {
    (any_vote(), option::of(any_log_id()), option::of(any_log_id()), vec(any_entry(), 0..8)).prop_map(
        |(vote, prev_log_id, leader_commit, entries)| AppendRequest { vote, prev_log_id, leader_commit, entries },
    )
}

fn any_append_reply() -> impl Strategy<Value = AppendReply> {
    prop_oneof![
        option::of(any_log_id()).prop_map(AppendReply::Accepted),
        any_log_id().prop_map(AppendReply::Conflict),
        any_vote().prop_map(AppendReply::HigherVote),
        Just(AppendReply::Stopped),
    ]
}

proptest! {
    #[test]
    fn append_round_trip(request in any_append(), session: u64) {
        let decoded = AppendRequest::decode(body(&request.encode(session), Kind::Append));
        prop_assert_eq!(decoded, Ok((session, request.clone())));
        prop_assert_eq!(AppendRequest::from_payload(request.to_payload()), Ok(request));
    }

    #[test]
    fn append_reply_round_trip(reply in any_append_reply(), session: u64) {
        let decoded = AppendReply::decode(body(&reply.encode(session), Kind::AppendReply));
        prop_assert_eq!(decoded, Ok((session, reply)));
    }

    #[test]
    fn votes_round_trip(vote in any_vote(), id in option::of(any_log_id()), flag: bool) {
        let request = VoteRequest { vote, last_log_id: id, leadership_transfer: flag };
        prop_assert_eq!(VoteRequest::from_payload(request.to_payload()), Ok(request));
        let reply = VoteReply { vote, granted: flag, last_log_id: id };
        prop_assert_eq!(VoteReply::from_payload(reply.to_payload()), Ok(reply));
        let transfer = TransferRequest { from_leader: vote, to: 7, last_log_id: id };
        prop_assert_eq!(TransferRequest::from_payload(transfer.to_payload()), Ok(transfer));
        for reply in [
            TransferReply::Accepted,
            TransferReply::VoteChanged { expected: vote, actual: vote },
            TransferReply::LogNotFlushed { expected: id, actual: None },
        ] {
            prop_assert_eq!(TransferReply::from_payload(reply.to_payload()), Ok(reply));
        }
        for reply in [ReadIndex::At(id), ReadIndex::NotLeader(Some(4)), ReadIndex::NotLeader(None), ReadIndex::NoQuorum] {
            prop_assert_eq!(ReadIndex::from_payload(reply.to_payload()), Ok(reply));
        }
    }

    #[test]
    fn calls_round_trip(id: u64, op: u8, budget_ms: u32, data in vec(any::<u8>(), 0..3000)) {
        let request = Request { id, op, budget_ms, payload: data.clone().into() };
        prop_assert_eq!(Request::decode(body(&request.encode(), Kind::Request)), Ok(request));
        let reply = Reply { id, status: Status::Ok, payload: data.into() };
        prop_assert_eq!(Reply::decode(body(&reply.encode(), Kind::Reply)), Ok(reply));
    }

    #[test]
    fn snapshot_round_trip(
        vote in any_vote(),
        membership in any_membership(),
        last in option::of(any_log_id()),
        names in proptest::collection::btree_set("[A-Za-z0-9_-]{1,12}", 0..6),
        checksum: u64,
    ) {
        let files = names.into_iter().map(|name| File { name, len: checksum }).collect();
        let begin = Begin { vote, meta: Meta { last_log_id: last, membership_log_id: last, membership }, files };
        prop_assert_eq!(Begin::decode(body(&begin.encode(), Kind::SnapshotBegin)), Ok(begin));
        let end = FileEnd { file: 3, checksum };
        prop_assert_eq!(FileEnd::decode(body(&end.encode(), Kind::SnapshotFileEnd)), Ok(end));
        let done = Done { vote };
        prop_assert_eq!(Done::decode(body(&done.encode(), Kind::SnapshotDone)), Ok(done));
        let failed = Failed { reason: "disk full".into() };
        prop_assert_eq!(Failed::decode(body(&failed.encode(), Kind::SnapshotFailed)), Ok(failed));
    }

    /// Whatever a peer sends is a value or an error.
    #[test]
    fn decoding_is_total(bytes in vec(any::<u8>(), 0..400)) {
        decode_everything(&bytes.into());
    }

    /// Damaged messages get further into the decoders than noise does.
    #[test]
    fn damaged_messages_do_not_panic(request in any_append(), at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut bytes = request.to_payload().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(cut.index(bytes.len() + 1));
        decode_everything(&bytes.into());
    }

    /// The parts of a split request are consecutive, carry everything once, and fit.
    #[test]
    fn split_keeps_everything(request in any_append(), limit in 1usize..6000) {
        let parts = request.clone().split(limit);
        let mut prev = request.prev_log_id;
        let mut entries = Vec::new();
        for part in &parts {
            prop_assert_eq!(part.prev_log_id, prev);
            prop_assert_eq!(part.leader_commit, request.leader_commit);
            let len: usize = part.entries.iter().map(Entry::wire_len).sum();
            prop_assert!(len <= limit || part.entries.len() == 1);
            prop_assert!(!part.entries.is_empty() || parts.len() == 1);
            prev = part.last_log_id();
            entries.extend(part.entries.iter().cloned());
        }
        prop_assert_eq!(entries, request.entries);
    }
}

fn decode_everything(bytes: &Bytes) {
    let _ = Kind::take(&mut bytes.clone());
    let _ = Hello::decode(bytes.clone());
    let _ = Welcome::decode(bytes.clone());
    let _ = AppendRequest::decode(bytes.clone());
    let _ = AppendRequest::from_payload(bytes.clone());
    let _ = AppendReply::decode(bytes.clone());
    let _ = VoteRequest::from_payload(bytes.clone());
    let _ = VoteReply::from_payload(bytes.clone());
    let _ = TransferRequest::from_payload(bytes.clone());
    let _ = TransferReply::from_payload(bytes.clone());
    let _ = ReadIndex::from_payload(bytes.clone());
    let _ = Request::decode(bytes.clone());
    let _ = Reply::decode(bytes.clone());
    let _ = Begin::decode(bytes.clone());
    let _ = Chunk::decode(bytes.clone());
    let _ = FileEnd::decode(bytes.clone());
    let _ = Done::decode(bytes.clone());
    let _ = Failed::decode(bytes.clone());
}

#[test]
fn an_oversized_frame_is_noticed_by_its_sender() {
    let payload = Bytes::from(vec![0; MAX_FRAME_LEN]);
    let request = Request { id: 1, op: 1, budget_ms: 1, payload };
    assert!(request.encode().is_oversized());
    let payload = Bytes::from(vec![0; MAX_FRAME_LEN - 14]);
    let request = Request { id: 1, op: 1, budget_ms: 1, payload };
    assert!(!request.encode().is_oversized());
}
