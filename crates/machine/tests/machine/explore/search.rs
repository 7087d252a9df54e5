//! Breadth-first search of everything that may happen, each state once, with the shortest path to a broken promise.

use std::collections::{HashSet, VecDeque};

/// A search that grows beyond this is no longer a small scope.
const STATES_MAX: usize = 90_000;

/// What an exploration found.
pub(super) struct Found<A> {
    pub(super) states: usize,
    pub(super) steps: usize,
    pub(super) landmarks: u64,
    /// The promise that was broken, and how to get there.
    pub(super) broken: Option<(&'static str, Vec<A>)>,
}

/// What one step came to: the state after it, the promise that it broke, and the landmarks that it met.
pub(super) struct Taken<W> {
    pub(super) after: W,
    pub(super) broken: Option<&'static str>,
    pub(super) landmarks: u64,
}

/// Takes every action in every state that can be reached from `start`.
pub(super) fn search<W, A: Clone>(
    start: W,
    key: impl Fn(&W) -> Vec<u64>,
    actions: impl Fn(&W) -> Vec<A>,
    take: impl Fn(&W, &A) -> Taken<W>,
) -> Found<A> {
    let mut seen = HashSet::from([key(&start)]);
    // How each state was first reached: the state before it and the step from there.
    let mut origins: Vec<Option<(usize, A)>> = vec![None];
    let mut queue = VecDeque::from([(0, start)]);
    let mut found = Found { states: 0, steps: 0, landmarks: 0, broken: None };
    while let Some((at, world)) = queue.pop_front() {
        found.states += 1;
        assert!(found.states <= STATES_MAX, "the scope is not small any more: {} more to visit", queue.len());
        for action in actions(&world) {
            let taken = take(&world, &action);
            found.steps += 1;
            found.landmarks |= taken.landmarks;
            if let Some(name) = taken.broken {
                found.broken = Some((name, path(&origins, at, action)));
                return found;
            }
            if seen.insert(key(&taken.after)) {
                origins.push(Some((at, action)));
                queue.push_back((origins.len() - 1, taken.after));
            }
        }
    }
    found
}

fn path<A: Clone>(origins: &[Option<(usize, A)>], mut at: usize, last: A) -> Vec<A> {
    let mut path = vec![last];
    while let Some((before, action)) = &origins[at] {
        path.push(action.clone());
        at = *before;
    }
    path.reverse();
    path
}
