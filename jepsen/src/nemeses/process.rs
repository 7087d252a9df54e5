//! Faults of processes: killed, or stopped without their noticing.

use anyhow::{Result, ensure};

use super::{Nemesis, sides};
use crate::history::Node;
use crate::nodes::Backend;

/// Whom it meets, given the leader and the two others.
type Whom = fn(Node, &[Node]) -> Vec<Node>;

struct Kill(&'static str, Whom);

struct Pause(&'static str, Whom);

fn everyone(leader: Node, others: &[Node]) -> Vec<Node> {
    [&[leader][..], others].concat()
}

/// The faults of this family.
pub(super) fn all() -> Vec<Box<dyn Nemesis>> {
    vec![
        Box::new(Kill("kill-leader", |leader, _| vec![leader])),
        Box::new(Kill("kill-one", |_, others| vec![others[0]])),
        Box::new(Kill("kill-all", everyone)),
        Box::new(Pause("pause-leader", |leader, _| vec![leader])),
        Box::new(Pause("pause-one", |_, others| vec![others[0]])),
    ]
}

impl Nemesis for Kill {
    fn name(&self) -> &'static str {
        self.0
    }

    fn install(&self, backend: &dyn Backend, draw: u64) -> Result<String> {
        let (leader, others) = sides(backend, draw)?;
        let whom = (self.1)(leader, &others);
        for node in &whom {
            backend.kill(*node)?;
            ensure!(!backend.runs(*node)?, "node {} still runs", node.0);
        }
        Ok(format!("leader {}: killed {whom:?}", leader.0))
    }

    fn heal(&self, backend: &dyn Backend) -> Result<String> {
        let mut started = Vec::new();
        for node in backend.nodes() {
            if !backend.runs(node)? {
                backend.start(node)?;
                started.push(node);
            }
        }
        Ok(format!("started {started:?}"))
    }
}

impl Nemesis for Pause {
    fn name(&self) -> &'static str {
        self.0
    }

    fn install(&self, backend: &dyn Backend, draw: u64) -> Result<String> {
        let (leader, others) = sides(backend, draw)?;
        let whom = (self.1)(leader, &others);
        whom.iter().try_for_each(|node| backend.pause(*node))?;
        Ok(format!("leader {}: stopped {whom:?}", leader.0))
    }

    fn heal(&self, backend: &dyn Backend) -> Result<String> {
        for node in backend.nodes() {
            if backend.runs(node)? {
                backend.resume(node)?;
            }
        }
        Ok("no process is stopped".to_owned())
    }
}
