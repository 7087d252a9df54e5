//! Whether the replicas hold the same state: state hashes at equal indexes, heard from the peers, judged here.
//! Pure; the status poll feeds it and acts on its verdict.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::NodeId;

/// A state hash.
pub(crate) type Hash = [u8; 32];

/// Indexes of which hashes are remembered: peers are asked at different moments and name different indexes.
const INDEXES_MAX: usize = 64;

/// What a comparison showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nobody holds another state at this index, as far as was heard.
    Same,
    /// Somebody does, and it cannot be told who is wrong.
    Differs,
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

    /// Compares at every index that somebody has named, with this node's own hashes; gives the worst verdict and its
    /// index. `own` answers `None` where this node has not applied the index or does not keep its hash any more.
    pub(crate) fn judge(
        &self,
        voter_sets: &[BTreeSet<NodeId>],
        own: impl Fn(u64) -> Option<Hash>,
    ) -> Option<(u64, Verdict)> {
        let compared =
            self.0.iter().filter_map(|(index, others)| Some((*index, judge(own(*index)?, others, voter_sets))));
        compared
            .filter(|(_, verdict)| *verdict != Verdict::Same)
            .max_by_key(|(_, verdict)| *verdict == Verdict::Outlier)
    }
}

fn judge(own: Hash, others: &BTreeMap<NodeId, Hash>, voter_sets: &[BTreeSet<NodeId>]) -> Verdict {
    let against: BTreeSet<Hash> = others.values().copied().filter(|hash| *hash != own).collect();
    if against.is_empty() {
        return Verdict::Same;
    }
    // While the membership changes, a majority of each set must agree: one set may be mostly newcomers.
    let majority = |hash: &Hash| {
        let agree = |set: &BTreeSet<NodeId>| set.iter().filter(|voter| others.get(voter) == Some(hash)).count();
        !voter_sets.is_empty() && voter_sets.iter().all(|set| agree(set) * 2 > set.len())
    };
    if against.iter().any(majority) { Verdict::Outlier } else { Verdict::Differs }
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

    fn verdict(said: &[(NodeId, Hash)], voters: &[&[NodeId]]) -> Option<Verdict> {
        let sets: Vec<BTreeSet<NodeId>> = voters.iter().map(|set| set.iter().copied().collect()).collect();
        heard(said).judge(&sets, |index| (index == 1_024).then_some(A)).map(|(_, verdict)| verdict)
    }

    #[test]
    fn equal_states_are_nothing_to_tell() {
        assert_eq!(verdict(&[(2, A), (3, A)], &[&[1, 2, 3]]), None);
        assert_eq!(verdict(&[], &[&[1, 2, 3]]), None);
    }

    #[test]
    fn only_a_strict_majority_makes_an_outlier() {
        assert_eq!(verdict(&[(2, B), (3, B)], &[&[1, 2, 3]]), Some(Verdict::Outlier));
        assert_eq!(verdict(&[(2, B)], &[&[1, 2, 3]]), Some(Verdict::Differs));
        assert_eq!(verdict(&[(2, B), (3, [3; 32])], &[&[1, 2, 3]]), Some(Verdict::Differs));
        assert_eq!(verdict(&[(2, B), (3, B)], &[&[1, 2, 3, 4]]), Some(Verdict::Differs), "two of four");
        assert_eq!(verdict(&[(2, B), (3, B)], &[&[1, 4, 5]]), Some(Verdict::Differs), "learners do not count");
        assert_eq!(verdict(&[(2, B), (3, B)], &[&[1, 2, 3], &[3, 4, 5]]), Some(Verdict::Differs), "one set of two");
        assert_eq!(verdict(&[(2, B), (3, B)], &[]), Some(Verdict::Differs), "no voters known");
    }

    #[test]
    fn other_indexes_are_not_compared() {
        let mut heard = Heard::default();
        heard.note(2, 2_048, B);
        heard.note(3, 2_048, B);
        assert_eq!(heard.judge(&[BTreeSet::from([1, 2, 3])], |index| (index == 1_024).then_some(A)), None);
    }

    #[test]
    fn what_was_said_at_different_moments_is_joined_and_forgotten_in_the_end() {
        let mut heard = heard(&[(2, B)]);
        for n in 2..=INDEXES_MAX as u64 {
            heard.note(2, n * 1_024, A);
        }
        heard.note(3, 1_024, B);
        let voters = [BTreeSet::from([1, 2, 3])];
        assert_eq!(heard.judge(&voters, |_| Some(A)), Some((1_024, Verdict::Outlier)));
        heard.note(2, 1_024 * 1_024, A);
        assert_eq!(heard.judge(&voters, |_| Some(A)), None);
    }
}
