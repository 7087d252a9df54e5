//! Faults of the links between nodes; callers still reach every node.

use anyhow::Result;

use super::{Nemesis, sides};
use crate::history::Node;
use crate::nodes::{Backend, Link, Trouble};

/// Which links suffer, given the leader and the two others.
type Links = fn(Node, &[Node]) -> Vec<Link>;

struct Cut {
    name: &'static str,
    links: Links,
    trouble: fn(u64) -> Trouble,
}

fn around(leader: Node, others: &[Node]) -> Vec<Link> {
    others.iter().map(|other| Link::Both(leader, *other)).collect()
}

fn everywhere(leader: Node, others: &[Node]) -> Vec<Link> {
    [around(leader, others), vec![Link::Both(others[0], others[1])]].concat()
}

fn black(_draw: u64) -> Trouble {
    Trouble::Blackhole
}

/// The faults of this family.
pub(super) fn all() -> Vec<Box<dyn Nemesis>> {
    let cuts = [
        Cut { name: "isolate-leader", links: around, trouble: black },
        Cut { name: "reset-leader", links: around, trouble: |_| Trouble::Reset },
        Cut {
            name: "isolate-follower",
            links: |leader, others| around(others[0], &[leader, others[1]]),
            trouble: black,
        },
        // With three nodes, one link cut leaves the third node as the bridge between majorities that overlap.
        Cut { name: "bridge", links: |leader, others| vec![Link::Both(leader, others[0])], trouble: black },
        Cut { name: "one-way-out", links: |leader, others| one_way(leader, others, true), trouble: black },
        Cut { name: "one-way-in", links: |leader, others| one_way(leader, others, false), trouble: black },
        Cut { name: "peers-cut", links: everywhere, trouble: black },
        Cut { name: "loss", links: everywhere, trouble: |draw| Trouble::Loss(0.3 + (draw % 21) as f64 / 100.0) },
    ];
    cuts.into_iter().map(|cut| Box::new(cut) as Box<dyn Nemesis>).collect()
}

fn one_way(leader: Node, others: &[Node], out: bool) -> Vec<Link> {
    let link = |other: &Node| if out { Link::OneWay(leader, *other) } else { Link::OneWay(*other, leader) };
    others.iter().map(link).collect()
}

impl Nemesis for Cut {
    fn name(&self) -> &'static str {
        self.name
    }

    fn install(&self, backend: &dyn Backend, draw: u64) -> Result<String> {
        let (leader, others) = sides(backend, draw)?;
        let (links, trouble) = ((self.links)(leader, &others), (self.trouble)(draw));
        for link in &links {
            backend.trouble(*link, trouble)?;
        }
        Ok(format!("leader {}: {trouble:?} on {links:?}", leader.0))
    }

    fn heal(&self, backend: &dyn Backend) -> Result<String> {
        backend.heal()?;
        Ok("every node answers every other".to_owned())
    }
}
