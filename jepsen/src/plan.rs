//! What a run will do, drawn from its seed alone: the same seed and names give the same plan.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::nemeses;

/// The first fault comes after this, in milliseconds, when there has been something to disturb.
const CALM_MS: u64 = 3_000;
/// The shortest and longest time that a fault lasts, and the pause after it, in milliseconds.
const LASTS_MS: (u64, u64) = (3_000, 7_000);

/// One planned fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Its name.
    pub fault: String,
    /// When it is to be installed, in milliseconds since the workload began.
    pub at_ms: u64,
    /// How long it is to last.
    pub lasts_ms: u64,
    /// What the fault draws its own choices from.
    pub draw: u64,
}

/// A sequence of numbers that a seed gives: splitmix64, so that no library's next version changes a plan.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn within(&mut self, (least, most): (u64, u64)) -> u64 {
        least + self.next() % (most - least + 1)
    }
}

/// The faults of a run: the named ones in turn, or drawn from all where none is named.
///
/// # Errors
/// A name is no fault, or the time is too short for every named fault to have its turn.
pub fn draw(seed: u64, seconds: u64, named: &[String]) -> Result<Vec<Step>> {
    let known: Vec<&str> = nemeses::all().iter().map(|nemesis| nemesis.name()).collect();
    for name in named {
        known.iter().find(|one| *one == name).with_context(|| format!("{name} is no fault: {}", known.join(", ")))?;
    }
    let (mut draws, mut steps, mut at_ms) = (Draws(seed), Vec::new(), CALM_MS);
    loop {
        let (lasts_ms, pause_ms, draw) = (draws.within(LASTS_MS), draws.within(LASTS_MS), draws.next());
        if at_ms + lasts_ms > seconds * 1_000 {
            break;
        }
        let fault = match named.len() {
            0 => known[usize::try_from(draws.next() % known.len() as u64)?].to_owned(),
            count => named[steps.len() % count].clone(),
        };
        steps.push(Step { fault, at_ms, lasts_ms, draw });
        at_ms += lasts_ms + pause_ms;
    }
    let (planned, least) = (steps.len(), named.len().max(1));
    ensure!(planned >= least, "{seconds} s have room for {planned} faults, and {least} are wanted: more --seconds");
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_plan_and_another_seed_another() {
        assert_eq!(draw(7, 120, &[]).unwrap(), draw(7, 120, &[]).unwrap());
        assert_ne!(draw(7, 120, &[]).unwrap(), draw(8, 120, &[]).unwrap());
    }

    #[test]
    fn a_plan_without_room_or_with_a_wrong_name_is_refused() {
        assert!(draw(1, 2, &[]).is_err());
        assert!(draw(1, 60, &["no-such".to_owned()]).is_err());
    }
}
