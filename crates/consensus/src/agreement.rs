//! Whether the replicas hold the same state: state hashes at equal indexes, heard from the peers, judged here.
//! Pure; the status poll feeds it and acts on its verdict.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::NodeId;

/// A state hash.
pub(crate) type Hash = [u8; 32];

/// Indexes of which hashes are remembered: peers are asked at different moments and name different indexes.
const INDEXES_MAX: usize = 64;

/// What a comparison showed, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// Nobody holds another state at this index, as far as was heard.
    Same,
    /// Somebody does, and a strict majority of the voters agrees with this node: the other one has to stop.
    OtherIsOutlier,
    /// Somebody does, and it cannot be told who is wrong.
    Undecided,
    /// A strict majority of the voters agrees on another state than this node's.
    Outlier,
}

/// What the peers said.
#[derive(Debug, Default)]
pub(crate) struct Heard(BTreeMap<u64, BTreeMap<NodeId, Hash>>);

impl Heard {
    /// Notes a peer's hash at an index.
    pub(crate) fn note(&mut self, peer: NodeId, index: u64, hash: Hash) {
        self.0.entry(index).or_default().insert(peer, hash);
        while self.0.len() > INDEXES_MAX {
            self.0.pop_first();
        }
    }

    /// Compares at every index that somebody has named, with the hashes of this node `own`; gives the worst verdict and its
    /// index. `held` answers `None` where this node has not applied the index or does not keep its hash any more.
    pub(crate) fn judge(
        &self,
        own: NodeId,
        voter_sets: &[BTreeSet<NodeId>],
        held: impl Fn(u64) -> Option<Hash>,
    ) -> Option<(u64, Verdict)> {
        let compared = self.0.iter().filter_map(|(index, others)| {
            let held = held(*index)?;
            Some((*index, compare(own, held, others, voter_sets)))
        });
        let mut compared: Vec<(u64, Verdict, BTreeSet<NodeId>)> =
            compared.map(|(index, (verdict, differ))| (index, verdict, differ)).collect();
        // States never meet again once they differ: whoever was an outlier once is not listened to elsewhere.
        let outliers: BTreeSet<NodeId> = (compared.iter())
            .filter(|(_, verdict, _)| *verdict == Verdict::OtherIsOutlier)
            .flat_map(|(_, _, differ)| differ.iter().copied())
            .collect();
        for (_, verdict, differ) in &mut compared {
            if *verdict == Verdict::Undecided && differ.is_subset(&outliers) {
                *verdict = Verdict::OtherIsOutlier;
            }
        }
        let worst = compared.into_iter().max_by_key(|(index, verdict, _)| (*verdict, *index));
        worst.map(|(index, verdict, _)| (index, verdict)).filter(|(_, verdict)| *verdict != Verdict::Same)
    }
}

/// Compares one index; gives who differs from this node, too.
fn compare(
    own: NodeId,
    held: Hash,
    others: &BTreeMap<NodeId, Hash>,
    voter_sets: &[BTreeSet<NodeId>],
) -> (Verdict, BTreeSet<NodeId>) {
    let differ: BTreeSet<NodeId> = others.iter().filter(|(_, hash)| **hash != held).map(|(node, _)| *node).collect();
    if differ.is_empty() {
        return (Verdict::Same, differ);
    }
    let said = |node: &NodeId| if *node == own { Some(&held) } else { others.get(node) };
    // While the membership changes, a majority of each set must agree: one set may be mostly newcomers.
    let majority = |hash: &Hash| {
        let agree = |set: &BTreeSet<NodeId>| set.iter().filter(|voter| said(voter) == Some(hash)).count();
        !voter_sets.is_empty() && voter_sets.iter().all(|set| agree(set) * 2 > set.len())
    };
    let verdict = match () {
        () if majority(&held) => Verdict::OtherIsOutlier,
        () if differ.iter().filter_map(|node| others.get(node)).any(majority) => Verdict::Outlier,
        () => Verdict::Undecided,
    };
    (verdict, differ)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Hash = [1; 32];
    const B: Hash = [2; 32];

    fn heard(said: &[(NodeId, Hash)]) -> Heard {
        let mut heard = Heard::default();
        said.iter().for_each(|(peer, hash)| heard.note(*peer, 1_024, *hash));
        heard
    }

    fn sets(voters: &[&[NodeId]]) -> Vec<BTreeSet<NodeId>> {
        voters.iter().map(|set| set.iter().copied().collect()).collect()
    }

    /// What node 1, which holds A, makes of it.
    fn verdict(said: &[(NodeId, Hash)], voters: &[&[NodeId]]) -> Option<Verdict> {
        let held = |index| (index == 1_024).then_some(A);
        heard(said).judge(1, &sets(voters), held).map(|(_, verdict)| verdict)
    }

    #[test]
    fn equal_states_are_nothing_to_tell() {
        assert_eq!(verdict(&[(2, A), (3, A)], &[&[1, 2, 3]]), None);
        assert_eq!(verdict(&[], &[&[1, 2, 3]]), None);
    }

    #[test]
    fn only_a_strict_majority_makes_an_outlier() {
        let (outlier, undecided) = (Some(Verdict::Outlier), Some(Verdict::Undecided));
        assert_eq!(verdict(&[(2, B), (3, B)], &[&[1, 2, 3]]), outlier);
        assert_eq!(verdict(&[(2, B)], &[&[1, 2, 3]]), undecided);
        assert_eq!(verdict(&[(2, B), (3, [3; 32])], &[&[1, 2, 3]]), undecided);
        assert_eq!(verdict(&[(2, B), (3, B)], &[&[1, 2, 3, 4]]), undecided, "two of four");
        assert_eq!(verdict(&[(2, B), (3, B)], &[&[1, 4, 5]]), undecided, "learners do not count");
        assert_eq!(verdict(&[(2, B), (3, B)], &[&[1, 2, 3], &[3, 4, 5]]), undecided, "one set of two");
        assert_eq!(verdict(&[(2, B), (3, B)], &[]), undecided, "no voters known");
    }

    #[test]
    fn a_majority_with_this_node_makes_the_other_an_outlier() {
        let other = Some(Verdict::OtherIsOutlier);
        assert_eq!(verdict(&[(2, A), (3, B)], &[&[1, 2, 3]]), other);
        assert_eq!(verdict(&[(2, A), (3, B)], &[&[1, 2, 3], &[1, 2, 4]]), other);
        assert_eq!(verdict(&[(9, B)], &[&[1]]), other, "a learner beside the only voter");
        assert_eq!(verdict(&[(2, A), (3, B)], &[&[1, 2, 3, 4]]), Some(Verdict::Undecided), "two of four");
        assert_eq!(verdict(&[(2, A), (3, B)], &[&[2, 3, 4]]), Some(Verdict::Undecided), "this node has no vote");
    }

    #[test]
    fn who_was_an_outlier_once_is_not_listened_to_elsewhere() {
        let mut heard = heard(&[(2, A), (3, B)]);
        heard.note(3, 2_048, B);
        let voters = sets(&[&[1, 2, 3]]);
        assert_eq!(heard.judge(1, &voters, |_| Some(A)), Some((2_048, Verdict::OtherIsOutlier)));
        heard.note(2, 3_072, B);
        assert_eq!(heard.judge(1, &voters, |_| Some(A)), Some((3_072, Verdict::Undecided)), "but others are");
    }

    #[test]
    fn other_indexes_are_not_compared() {
        let mut heard = Heard::default();
        heard.note(2, 2_048, B);
        heard.note(3, 2_048, B);
        assert_eq!(heard.judge(1, &sets(&[&[1, 2, 3]]), |index| (index == 1_024).then_some(A)), None);
    }

    #[test]
    fn what_was_said_at_different_moments_is_joined_and_forgotten_in_the_end() {
        let mut heard = heard(&[(2, B)]);
        for n in 2..=INDEXES_MAX as u64 {
            heard.note(2, n * 1_024, A);
        }
        heard.note(3, 1_024, B);
        let voters = sets(&[&[1, 2, 3]]);
        assert_eq!(heard.judge(1, &voters, |_| Some(A)), Some((1_024, Verdict::Outlier)));
        heard.note(2, 1_024 * 1_024, A);
        assert_eq!(heard.judge(1, &voters, |_| Some(A)), None);
    }
}
