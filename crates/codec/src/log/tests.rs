//! Literals that pin the bytes of version 1, round trips, and decoders fed with anything at all.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::side::{Damage, GROUPS_MAX, Promise, SECTOR_LEN, SLOT_LEN, Slot};
use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn frame(entry: &Entry, group: u32, previous: u64) -> Bytes {
    let (head, _) = entry.encode_head(group, previous).unwrap();
    [head.as_slice(), &entry.payload].concat().into()
}

fn sample_entry() -> Entry {
    let id = LogId { term: 0x0102, node: 3, index: 0x0405_0607 };
    Entry { id, kind: EntryKind::Normal, payload: Bytes::from_static(b"hapax") }
}

#[test]
fn entry_bytes_are_pinned() {
    assert_eq!(hex(&chain_start(7, 9).to_le_bytes()), "4d0c9bebdf7f1be2");
    assert_eq!(
        hex(&frame(&sample_entry(), 7, chain_start(7, 9))),
        "01020700000007060504000000000201000000000000030000000000000005000000d1e9c78417aa5ce36861706178"
    );
    let blank = Entry { kind: EntryKind::Blank, payload: Bytes::new(), ..sample_entry() };
    assert_eq!(
        hex(&frame(&blank, 0, 0)),
        "01010000000007060504000000000201000000000000030000000000000000000000a8a6089c0d62b557"
    );
    let membership = Entry { kind: EntryKind::Membership, ..blank };
    assert_eq!(
        hex(&frame(&membership, 0, 0)),
        "010300000000070605040000000002010000000000000300000000000000000000008bab0f3a26f7b9ac"
    );
}

#[test]
fn record_bytes_are_pinned() {
    let vote = Vote { term: 5, node: 0x0203, committed: true };
    assert_eq!(hex(&vote.encode(1)), "01010500000000000000030200000000000049e11e2d52e345fb");
    let start = Start { purged: Some(LogId { term: 2, node: 1, index: 41 }), first: 42, chain: 0xaabb_ccdd };
    assert_eq!(
        hex(&start.encode(1)),
        "01010200000000000000010000000000000029000000000000002a00000000000000ddccbbaa000000009634f6d0b13f4195"
    );
    assert_eq!(
        hex(&Start::at(1, 3).encode(1)),
        "010000000000000000000000000000000000000000000000000003000000000000000c4c2af15e8d231a54d14dcbe3bf7632"
    );
    assert_eq!(
        hex(&Committed(LogId { term: 2, node: 1, index: 41 }).encode(1)),
        "0100020000000000000001000000000000002900000000000000eaf83532e233a72f"
    );
}

#[test]
fn slot_bytes_are_pinned() {
    let promise = Promise {
        vote: Some(Vote { term: 5, node: 2, committed: true }),
        acknowledged: Some(LogId { term: 4, node: 1, index: 99 }),
    };
    let slot = Slot { sequence: 17, groups: BTreeMap::from([(0, promise), (8, Promise::default())]) };
    let bytes = slot.encode().unwrap();
    assert_eq!(
        hex(&bytes[..106]),
        "48585344010002001100000000000000000000000705000000000000000200000000000000040000000000000001000000000000006300000000000000080000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    );
    assert!(bytes[106..504].iter().all(|byte| *byte == 0));
    assert_eq!(hex(&bytes[504..512]), "731835db3863f229");
    assert_eq!(hex(&bytes[512..528]), "48585344010102001100000000000000");
}

#[test]
fn an_unknown_version_is_an_error() {
    let mut entry = frame(&sample_entry(), 7, 1).to_vec();
    entry[0] = 2;
    assert_eq!(Frame::decode(&entry.into()), Err(Error::Version { what: "log entry", found: 2 }));
    let mut vote = Vote { term: 1, node: 1, committed: false }.encode(0);
    vote[0] = 9;
    assert_eq!(Vote::decode(0, &vote), Err(Error::Version { what: "vote", found: 9 }));
}

#[test]
fn a_record_of_another_group_is_refused() {
    let vote = Vote { term: 1, node: 1, committed: false }.encode(3);
    assert_eq!(Vote::decode(4, &vote), Err(Error::Checksum { what: "vote" }));
}

#[test]
fn votes_only_move_forward() {
    let vote = |term, node, committed| Vote { term, node, committed };
    assert!(vote(2, 1, false).covers(&vote(1, 9, true)));
    assert!(vote(2, 1, true).covers(&vote(2, 2, false)), "the candidate lost, another was elected");
    assert!(vote(2, 1, false).covers(&vote(2, 1, false)), "the same vote again");
    assert!(!vote(2, 1, false).covers(&vote(2, 2, false)), "two votes in one term");
    assert!(!vote(2, 1, true).covers(&vote(2, 2, true)), "two leaders in one term");
    assert!(!vote(2, 1, false).covers(&vote(2, 1, true)), "an election is not forgotten");
    assert!(!vote(1, 1, true).covers(&vote(2, 1, false)));
}

#[test]
fn a_payload_above_the_limit_is_refused() {
    let entry = Entry { payload: vec![0; PAYLOAD_MAX + 1].into(), ..sample_entry() };
    assert_eq!(entry.encode_head(0, 0), Err(Error::PayloadTooLarge { len: PAYLOAD_MAX + 1 }));
}

#[test]
fn a_slot_of_two_writes_is_torn_and_a_flipped_bit_is_not() {
    let old = Slot { sequence: 4, groups: BTreeMap::from([(0, Promise::default())]) }.encode().unwrap();
    let new = Slot { sequence: 6, groups: BTreeMap::from([(0, Promise::default())]) }.encode().unwrap();
    for sectors in 1..SLOT_LEN / SECTOR_LEN {
        let mut torn = old.clone();
        torn[..sectors * SECTOR_LEN].copy_from_slice(&new[..sectors * SECTOR_LEN]);
        assert_eq!(Slot::decode(&torn), Err(Damage::Torn));
    }
    for bit in 0..SLOT_LEN * 8 {
        let mut flipped = new.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let damage = Damage::Sector { sector: bit / 8 / SECTOR_LEN, reason: "checksum mismatch" };
        assert_eq!(Slot::decode(&flipped), Err(damage), "bit {bit}");
    }
}

#[test]
fn a_slot_has_a_limit() {
    let groups: BTreeMap<_, _> = (0..GROUPS_MAX as u32).map(|group| (group, Promise::default())).collect();
    let mut slot = Slot { sequence: 1, groups };
    assert_eq!(Slot::decode(&slot.encode().unwrap()), Ok(slot.clone()));
    slot.groups.insert(u32::MAX, Promise::default());
    assert!(slot.encode().is_err());
}

fn log_id() -> impl Strategy<Value = LogId> {
    (any::<u64>(), any::<u64>(), 0..u64::MAX).prop_map(|(term, node, index)| LogId { term, node, index })
}

fn any_vote() -> impl Strategy<Value = Vote> {
    (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(term, node, committed)| Vote { term, node, committed })
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let kind = prop_oneof![Just(EntryKind::Blank), Just(EntryKind::Normal), Just(EntryKind::Membership)];
    (log_id(), kind, vec(any::<u8>(), 0..300)).prop_map(|(id, kind, payload)| Entry {
        id,
        kind,
        payload: payload.into(),
    })
}

fn any_slot() -> impl Strategy<Value = Slot> {
    let promise = (option::of(any_vote()), option::of(log_id()))
        .prop_map(|(vote, acknowledged)| Promise { vote, acknowledged });
    (any::<u64>(), btree_map(any::<u32>(), promise, 0..=GROUPS_MAX))
        .prop_map(|(sequence, groups)| Slot { sequence, groups })
}

proptest! {
    #[test]
    fn entries_round_trip_and_chain(entry in any_entry(), group: u32, previous: u64) {
        let bytes = frame(&entry, group, previous);
        let read = Frame::decode(&bytes).unwrap();
        prop_assert!(read.follows(previous));
        prop_assert!(!read.follows(previous.wrapping_add(1)));
        let head = FrameHead::decode(&bytes).unwrap();
        prop_assert!(head.follows(&bytes, previous));
        prop_assert_eq!((head.group, head.id, head.kind, head.chain), (group, entry.id, entry.kind, read.chain));
        prop_assert_eq!(read.entry, entry);
    }

    #[test]
    fn every_flipped_bit_of_an_entry_is_found(entry in any_entry(), group: u32, previous: u64, bit: prop::sample::Index) {
        let mut bytes = frame(&entry, group, previous).to_vec();
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(read) = Frame::decode(&Bytes::from(bytes)) {
            prop_assert!(!read.follows(previous));
        }
    }

    #[test]
    fn records_round_trip(vote in any_vote(), purged in option::of(log_id()), id in log_id(), above: u64, chain: u64, group: u32) {
        prop_assert_eq!(Vote::decode(group, &vote.encode(group)), Ok(vote));
        let first = purged.map_or(above, |id| id.index + 1);
        let start = Start { purged, first, chain };
        prop_assert_eq!(Start::decode(group, &start.encode(group)), Ok(start));
        prop_assert_eq!(Committed::decode(group, &Committed(id).encode(group)), Ok(Committed(id)));
    }

    #[test]
    fn every_flipped_bit_of_a_record_is_found(vote in any_vote(), id in log_id(), group: u32, bit: prop::sample::Index) {
        let start = Start { purged: Some(id), first: id.index + 1, chain: 1 };
        for (number, mut bytes) in [vote.encode(group), start.encode(group), Committed(id).encode(group)].into_iter().enumerate() {
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let refused = match number {
                0 => Vote::decode(group, &bytes).is_err(),
                1 => Start::decode(group, &bytes).is_err(),
                _ => Committed::decode(group, &bytes).is_err(),
            };
            prop_assert!(refused);
        }
    }

    #[test]
    fn slots_round_trip(slot in any_slot()) {
        prop_assert_eq!(Slot::decode(&slot.encode().unwrap()), Ok(slot));
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(mut bytes in vec(any::<u8>(), 0..120), versioned: bool, group: u32) {
        if let (true, Some(first)) = (versioned, bytes.first_mut()) {
            *first = VERSION;
        }
        let _ = Vote::decode(group, &bytes);
        let _ = Start::decode(group, &bytes);
        let _ = Committed::decode(group, &bytes);
        if let Ok(frame) = Frame::decode(&Bytes::from(bytes)) {
            let _ = frame.follows(0);
        }
    }

    #[test]
    fn no_slot_makes_the_decoder_panic(slot in any_slot(), edits in vec((0..SLOT_LEN, any::<u8>()), 1..8), resum: bool) {
        let mut bytes = slot.encode().unwrap();
        for (at, value) in edits {
            bytes[at] = value;
        }
        // With right checksums, the fields themselves are put to the test.
        if resum {
            for sector in bytes.chunks_exact_mut(SECTOR_LEN) {
                let sum = xxh3_64_with_seed(&sector[..SECTOR_LEN - 8], 0x4861_7061_7853_4431);
                sector[SECTOR_LEN - 8..].copy_from_slice(&sum.to_le_bytes());
            }
        }
        if let Ok(read) = Slot::decode(&bytes) {
            prop_assert_eq!(read.encode().unwrap(), bytes);
        }
    }
}
