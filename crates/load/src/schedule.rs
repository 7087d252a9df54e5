//! When calls are due: never, in a closed loop; at a fixed rate over all connections otherwise, whatever the answers do.

use std::time::Duration;

/// The calls of one connection among several that share a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Calls per second over all connections.
    rate: u64,
    /// This connection, from 0.
    connection: u64,
    /// How many share the rate.
    connections: u64,
}

impl Schedule {
    /// The schedule of connection `connection` of `connections`, which together make `rate` calls a second.
    ///
    /// # Panics
    /// A rate or a number of connections is 0, or there is no such connection.
    #[must_use]
    pub fn new(rate: u64, connection: usize, connections: usize) -> Schedule {
        let (connection, connections) = (connection as u64, connections as u64);
        assert!(rate > 0 && connection < connections, "a rate above 0, and one of the connections");
        Schedule { rate, connection, connections }
    }

    /// When call `number` (from 0) of this connection is due, after the beginning. Computed from the number alone: errors do not add up.
    #[must_use]
    pub fn due(&self, number: u64) -> Duration {
        let place = u128::from(number) * u128::from(self.connections) + u128::from(self.connection);
        let nanos = place * 1_000_000_000 / u128::from(self.rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn connections_take_turns_and_nothing_drifts() {
        let of = |connection| Schedule::new(1_000, connection, 4);
        assert_eq!(of(0).due(0), Duration::ZERO);
        assert_eq!(of(3).due(0), Duration::from_millis(3));
        assert_eq!(of(0).due(1), Duration::from_millis(4));
        // A third of a second has no end in nanoseconds; a day of them is still a day.
        assert_eq!(Schedule::new(3, 0, 1).due(3 * 86_400), Duration::from_secs(86_400));
    }

    proptest! {
        #[test]
        fn all_together_make_the_rate(rate in 1_u64..200_000, connections in 1_usize..300) {
            let mut due: Vec<Duration> =
                (0..connections).flat_map(|one| {
                    let schedule = Schedule::new(rate, one, connections);
                    (0..5).map(move |number| schedule.due(number))
                }).collect();
            due.sort();
            for (place, due) in due.iter().enumerate() {
                let exact = place as f64 / rate as f64;
                prop_assert!((due.as_secs_f64() - exact).abs() < 1e-6);
            }
        }
    }
}
