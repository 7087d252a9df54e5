//! What must hold in every run, one promise per file, judged from outside: by what callers were told, and by what nodes hold.
//! None of them shares a judgement with the rules of the product.

mod authority;
mod durable;
mod executor;
mod epochs;
mod fencing;
mod halting;
mod leases;
mod minority;
mod outcomes;
mod revisions;
mod service;
mod state;

use std::collections::{BTreeMap, BTreeSet};

use hapax_consensus::types::NodeId;

use crate::closing::Found;
use crate::history::Call;

/// The promises by their letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// One executor per key and lease epoch.
    U,
    /// Epochs strictly increase.
    E,
    /// No write under a stale epoch after a newer grant was acknowledged.
    F,
    /// A terminal outcome never changes, and the request is bound.
    T,
    /// What was acknowledged is there in the end, on every node.
    D,
    /// An answer is no older than what was acknowledged before it was asked for.
    R,
    /// No more uses than there is authority for.
    C,
    /// No lapse and no takeover before a lease is over.
    L,
    /// Equal indexes, equal states.
    H,
    /// A minority never answers as if it knew.
    M,
    /// After healing every node serves.
    Q,
    /// A node whose disk fails halts, and no other does.
    X,
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub name: Name,
    /// How.
    pub text: String,
}

/// A time in which a node could reach no quorum.
#[derive(Debug, Clone, Copy)]
pub struct Isolation {
    /// Which node.
    pub node: NodeId,
    /// Since then.
    pub from: u64,
    /// Until then.
    pub until: u64,
}

/// A node that said that it must not go on, or should have.
#[derive(Debug, Clone)]
pub struct Halt {
    /// Which node.
    pub node: NodeId,
    /// When its disk began to fail, if it did.
    pub disk_failed_at: Option<u64>,
    /// When it said so, and why; or never.
    pub said: Option<(u64, String)>,
}

/// By log index: whatever was held by those who had applied up to there, and by whom.
pub type ByIndex<T> = BTreeMap<u64, BTreeMap<T, BTreeSet<NodeId>>>;

/// Everything that was observed of a run.
#[derive(Debug, Default)]
pub struct Observed {
    /// What callers asked and were told.
    pub calls: Vec<Call>,
    /// The last look.
    pub closing: Found,
    /// Who was cut off, and when.
    pub isolations: Vec<Isolation>,
    /// Hashes of all changes.
    pub heads: ByIndex<[u8; 32]>,
    /// Whole contents.
    pub contents: ByIndex<String>,
    /// Nodes that halted, or should have.
    pub halts: Vec<Halt>,
    /// Nodes that did not open what they wrote, and why.
    pub unopened: Vec<String>,
    /// How often each thing happened.
    pub counts: BTreeMap<String, u64>,
    /// Who led last.
    pub last_leader: Option<NodeId>,
}

impl Observed {
    /// Counts something.
    pub fn count(&mut self, name: &str) {
        *self.counts.entry(name.to_owned()).or_default() += 1;
    }

    /// Every promise that was broken, how and how often.
    pub fn violations(&self) -> Vec<Violation> {
        type Judge = fn(&Observed) -> Vec<String>;
        let judges: [(Name, Judge); 12] = [
            (Name::U, executor::violations),
            (Name::E, epochs::violations),
            (Name::F, fencing::violations),
            (Name::T, outcomes::violations),
            (Name::D, durable::violations),
            (Name::R, revisions::violations),
            (Name::C, authority::violations),
            (Name::L, leases::violations),
            (Name::H, state::violations),
            (Name::M, minority::violations),
            (Name::Q, service::violations),
            (Name::X, halting::violations),
        ];
        let found = judges
            .iter()
            .flat_map(|(name, judge)| judge(self).into_iter().map(|text| Violation { name: *name, text }));
        found.collect()
    }
}
