//! Faults of wall clocks; monotonic time stays true.

use anyhow::Result;

use super::{Nemesis, sides};
use crate::nodes::Backend;

/// The leader's clock, this far off in milliseconds; and, for a skew, another node's as far the other way.
struct Jump {
    name: &'static str,
    offset_ms: i64,
    skew: bool,
}

/// The faults of this family.
pub(super) fn all() -> Vec<Box<dyn Nemesis>> {
    vec![
        Box::new(Jump { name: "clock-forward", offset_ms: 3_600_000, skew: false }),
        Box::new(Jump { name: "clock-back", offset_ms: -3_600_000, skew: false }),
        Box::new(Jump { name: "clock-skew", offset_ms: 20_000, skew: true }),
    ]
}

impl Nemesis for Jump {
    fn name(&self) -> &'static str {
        self.name
    }

    fn install(&self, backend: &dyn Backend, draw: u64) -> Result<String> {
        let (leader, others) = sides(backend, draw)?;
        backend.set_clock(leader, self.offset_ms)?;
        if self.skew {
            backend.set_clock(others[0], -self.offset_ms)?;
        }
        Ok(format!("leader {}: its clock is seen {} ms off", leader.0, self.offset_ms))
    }

    fn heal(&self, backend: &dyn Backend) -> Result<String> {
        backend.nodes().into_iter().try_for_each(|node| backend.set_clock(node, 0))?;
        Ok("every clock is seen to be true".to_owned())
    }
}
