//! What a node is told at its start, and the relations between the numbers that must hold.
//! A configuration that breaks one is refused before any file is opened ([`NodeConfig::check`]).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hapax_codec::peer::hello::ClusterId;
use hapax_machine::limits::RETENTION_MARGIN_MS;
use openraft::{Config as RaftConfig, SnapshotPolicy};

use crate::transport;
use crate::types::{NodeId, PeerNode};

/// Everything that a node is told at its start.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// This node's number; never given to another node, nor to this one after its data was lost.
    pub id: NodeId,
    /// What peers must agree on before they talk: nodes of two clusters never do.
    pub cluster: ClusterId,
    /// Where this node keeps its log, state and snapshots.
    pub data_dir: PathBuf,
    /// The members that the cluster begins with, this node among them. Later members come by
    /// membership changes; a node that has a membership of its own does not read these any more.
    pub members: BTreeMap<NodeId, PeerNode>,
    /// When nodes give up on each other.
    pub timing: Timing,
    /// How much of the log is kept, and how it is cut up.
    pub log: LogLimits,
    /// How the state is read through for rotten blocks.
    pub scrub: Scrub,
    /// How what is over is forgotten.
    pub retention: Retention,
    /// How recent this node's own state must be for answers that do not go through the log.
    pub reads: Reads,
    /// Times and limits of the connections between nodes.
    pub transport: transport::Config,
}

/// When nodes give up on each other, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The longest round trip between two voters that the cluster is meant for.
    pub round_trip_ms: u64,
    /// How often a leader is heard. It is also how long one heartbeat may take.
    pub heartbeat_ms: u64,
    /// A leader that a quorum has not acknowledged for this long may have been replaced.
    pub election_min_ms: u64,
    /// A follower waits this long, and up to as long again, before it campaigns.
    pub election_max_ms: u64,
    /// How long a leader without a quorum keeps silent before it tries again.
    pub quorum_loss_probe_ms: u64,
    /// How far the wall clocks of two healthy nodes may be apart.
    pub max_clock_skew_ms: u64,
}

impl Timing {
    /// For voters less than a few milliseconds apart: a dead leader is replaced within a second.
    pub const LAN: Self = Self {
        round_trip_ms: 10,
        heartbeat_ms: 50,
        election_min_ms: 150,
        election_max_ms: 300,
        quorum_loss_probe_ms: 1_000,
        max_clock_skew_ms: 500,
    };

    /// For voters up to 100 ms apart.
    pub const WAN: Self = Self {
        round_trip_ms: 100,
        heartbeat_ms: 250,
        election_min_ms: 1_000,
        election_max_ms: 1_500,
        quorum_loss_probe_ms: 3_000,
        max_clock_skew_ms: 500,
    };
}

/// How much of the log is kept, and how it is cut up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// Entries in one message to a follower.
    pub payload_entries: u64,
    /// A snapshot is made after this many entries. It costs a flush and hard links, and pins the
    /// files it links, so it is rare; nothing but the length of the log depends on it.
    pub snapshot_after_entries: u64,
    /// Entries kept behind a snapshot, so that a follower that was away catches up from the log.
    pub keep_entries: u64,
    /// Entries purged at once, at least.
    pub purge_batch: u64,
    /// How often the state is written to disk, so that a restart replays little.
    pub flush_interval: Duration,
}

impl LogLimits {
    /// A log of 100,000 to 200,000 entries: some minutes at full load, hours at a light one.
    pub const DEFAULT: Self = Self {
        payload_entries: 1_024,
        snapshot_after_entries: 100_000,
        keep_entries: 100_000,
        purge_batch: 10_000,
        flush_interval: Duration::from_secs(10),
    };
}

/// How the state is read through for rotten blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scrub {
    /// Time from one scrub to the next.
    pub interval: Duration,
    /// How fast it reads, in bytes per second.
    pub bytes_per_s: u64,
}

impl Scrub {
    /// Every six hours, at a rate that a disk does not notice.
    pub const DEFAULT: Self = Self { interval: Duration::from_secs(6 * 3_600), bytes_per_s: 16 << 20 };
}

/// How what is over is forgotten: when floors are raised, and when its bytes are given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How often the leader looks whether floors can be raised.
    pub interval: Duration,
    /// Time from one pass over the state that gives back what is gone to the next. One reads and writes all of it, and takes half
    /// of this time.
    pub compact_interval: Duration,
    /// How fast such a pass goes at most, in bytes per second; where that is too slow for half of the interval, it takes longer.
    pub compact_bytes_per_s: u64,
}

/// A pass goes no slower, in bytes per second: what is small is done soon.
const PASS_BYTES_PER_S_MIN: u64 = 1 << 20;

impl Retention {
    /// A look a minute; a pass every six hours at most, at a rate that leaves the disk to claims.
    pub const DEFAULT: Self = Self {
        interval: Duration::from_secs(60),
        compact_interval: Duration::from_secs(6 * 3_600),
        compact_bytes_per_s: 32 << 20,
    };

    /// How fast a pass over so many bytes goes. Nobody waits for it, so it goes no faster than it must.
    pub(crate) fn pass_bytes_per_s(&self, bytes: u64) -> u64 {
        let half_ms = u64::try_from(self.compact_interval.as_millis() / 2).unwrap_or(u64::MAX).max(1);
        let enough = (bytes / half_ms).saturating_mul(1_000);
        enough.max(PASS_BYTES_PER_S_MIN).min(self.compact_bytes_per_s)
    }
}

/// How recent this node's own state must be for answers that do not go through the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reads {
    /// While such answers are asked for, the state is confirmed this often.
    pub local_fact_renew: Duration,
    /// What was confirmed longer ago answers nothing.
    pub local_fact_max_staleness: Duration,
}

impl Reads {
    /// Twice a second, for two seconds.
    pub const DEFAULT: Self =
        Self { local_fact_renew: Duration::from_millis(500), local_fact_max_staleness: Duration::from_secs(2) };
}

/// A configuration that contradicts itself. Names the settings and says which relation must hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A relation between two settings does not hold.
    #[error("{left} ({left_value}) must be {must} {right} ({right_value}): {why}")]
    Relation {
        /// The setting that is wrong relative to the other.
        left: &'static str,
        /// Its value.
        left_value: u64,
        /// The relation.
        must: &'static str,
        /// The other side.
        right: &'static str,
        /// Its value.
        right_value: u64,
        /// What would go wrong.
        why: &'static str,
    },
    /// A setting is wrong by itself.
    #[error("{setting}: {why}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// Why.
        why: String,
    },
    /// A relation between the transport's settings does not hold.
    #[error(transparent)]
    Transport(#[from] transport::ConfigError),
}

/// `left` must be above `right`, or equal to it at the least.
struct Relation {
    left: &'static str,
    left_value: u64,
    must: &'static str,
    right: &'static str,
    right_value: u64,
    why: &'static str,
}

const ABOVE: &str = "above";
const AT_LEAST: &str = "at least";

impl Relation {
    fn check(&self) -> Result<(), ConfigError> {
        let Self { left, left_value, must, right, right_value, why } = *self;
        let holds = if must == ABOVE { left_value > right_value } else { left_value >= right_value };
        if holds { Ok(()) } else { Err(ConfigError::Relation { left, left_value, must, right, right_value, why }) }
    }
}

impl NodeConfig {
    /// Checks every relation that the cluster's safety or liveness rests on.
    ///
    /// # Errors
    /// The first one that does not hold.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.timing.check()?;
        self.log.check()?;
        self.transport.check()?;
        self.retention.check()?;
        self.reads.check()?;
        Relation {
            left: "retention.interval_ms",
            left_value: millis(self.retention.interval),
            must: ABOVE,
            right: "reads.local_fact_max_staleness_ms",
            right_value: millis(self.reads.local_fact_max_staleness),
            why: "a node could answer from a state that has not heard of what is forgotten",
        }
        .check()?;
        if self.scrub.interval.is_zero() {
            return Err(ConfigError::Setting { setting: "scrub.interval", why: "zero is too little".to_owned() });
        }
        let setting = |setting, why: &str| Err(ConfigError::Setting { setting, why: why.to_owned() });
        if self.id == 0 {
            return setting("node.id", "zero is not a node id");
        }
        let Some(own) = self.members.get(&self.id) else {
            return setting("cluster.peers", "this node is not among the members");
        };
        if own.addr.is_empty() {
            return setting("cluster.peers", "this node has no address that its peers could dial");
        }
        let mut addrs: Vec<&str> = self.members.values().map(|member| member.addr.as_str()).collect();
        addrs.sort_unstable();
        if addrs.windows(2).any(|pair| pair[0] == pair[1]) {
            return setting("cluster.peers", "two members have the same address");
        }
        let stall_ms = millis(self.transport.stall_timeout);
        Relation {
            left: "transport.stall_timeout",
            left_value: stall_ms,
            must: ABOVE,
            right: "two round trips",
            right_value: self.timing.round_trip_ms.saturating_mul(2),
            why: "healthy connections would be closed",
        }
        .check()
    }

    /// openraft's configuration.
    ///
    /// # Errors
    /// openraft refuses it.
    pub(crate) fn raft(&self) -> Result<RaftConfig, ConfigError> {
        let Timing { heartbeat_ms, election_min_ms, election_max_ms, quorum_loss_probe_ms, .. } = self.timing;
        let config = RaftConfig {
            cluster_name: self.cluster.to_string(),
            heartbeat_interval: heartbeat_ms,
            election_timeout_min: election_min_ms,
            election_timeout_max: election_max_ms,
            quorum_loss_probe_interval: Some(quorum_loss_probe_ms),
            // A node that was cut off must not depose a healthy leader when it comes back.
            enable_pre_vote: Some(true),
            // The state is not synced with each apply: a restarted leader would not know how old it is.
            enable_leader_restore: Some(false),
            max_payload_entries: self.log.payload_entries,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.log.snapshot_after_entries),
            max_in_snapshot_log_to_keep: self.log.keep_entries,
            purge_batch_size: self.log.purge_batch,
            // A transfer is watched by the transport, which knows whether bytes still flow.
            install_snapshot_timeout: SNAPSHOT_TIMEOUT_MS,
            ..RaftConfig::default()
        };
        config.validate().map_err(|error| ConfigError::Setting { setting: "raft", why: error.to_string() })
    }
}

/// The longest that one snapshot may take to be sent and installed.
const SNAPSHOT_TIMEOUT_MS: u64 = 3_600_000;

impl Timing {
    fn check(&self) -> Result<(), ConfigError> {
        let relations = [
            Relation {
                left: "raft.heartbeat_ms",
                left_value: self.heartbeat_ms,
                must: ABOVE,
                right: "raft.round_trip_ms",
                right_value: self.round_trip_ms,
                why: "no heartbeat would be answered in time, and no read would ever be confirmed",
            },
            Relation {
                left: "raft.election_min_ms",
                left_value: self.election_min_ms,
                must: ABOVE,
                right: "two heartbeats and a round trip",
                right_value: self.heartbeat_ms.saturating_mul(2).saturating_add(self.round_trip_ms),
                why: "one lost heartbeat would depose a healthy leader",
            },
            Relation {
                left: "raft.election_max_ms",
                left_value: self.election_max_ms,
                must: ABOVE,
                right: "raft.election_min_ms",
                right_value: self.election_min_ms,
                why: "followers would campaign at the same moment",
            },
            Relation {
                left: "raft.quorum_loss_probe_ms",
                left_value: self.quorum_loss_probe_ms,
                must: AT_LEAST,
                right: "twice raft.election_max_ms",
                right_value: self.election_max_ms.saturating_mul(2),
                why: "a leader that lost its quorum could keep others from electing a new one",
            },
            Relation {
                left: "raft.heartbeat_ms",
                left_value: self.heartbeat_ms,
                must: AT_LEAST,
                right: "the shortest heartbeat",
                right_value: HEARTBEAT_MS_MIN,
                why: "heartbeats alone would load the machine",
            },
        ];
        if self.election_max_ms > ELECTION_MS_MAX {
            return Err(ConfigError::Setting {
                setting: "raft.election_max_ms",
                why: format!("{} is above a minute", self.election_max_ms),
            });
        }
        relations.iter().try_for_each(Relation::check)
    }

    /// The shorter bound of the election timeout.
    pub fn election_min(&self) -> Duration {
        Duration::from_millis(self.election_min_ms)
    }

    /// How far healthy wall clocks may be apart.
    pub fn max_clock_skew(&self) -> Duration {
        Duration::from_millis(self.max_clock_skew_ms)
    }

    /// The longest that followers wait for a silent leader before one of them campaigns.
    pub fn failover(&self) -> Duration {
        Duration::from_millis(self.election_max_ms.saturating_mul(2))
    }
}

const HEARTBEAT_MS_MIN: u64 = 5;
const ELECTION_MS_MAX: u64 = 60_000;

impl LogLimits {
    fn check(&self) -> Result<(), ConfigError> {
        let positive = [
            ("log.payload_entries", self.payload_entries),
            ("log.snapshot_after_entries", self.snapshot_after_entries),
            ("log.purge_batch", self.purge_batch),
            ("log.flush_interval", millis(self.flush_interval)),
        ];
        match positive.iter().find(|(_, value)| *value == 0) {
            Some((setting, _)) => Err(ConfigError::Setting { setting, why: "zero is too little".to_owned() }),
            None => Ok(()),
        }
    }
}

impl Retention {
    fn check(&self) -> Result<(), ConfigError> {
        let positive = [
            ("retention.interval_ms", millis(self.interval)),
            ("retention.compact_interval_ms", millis(self.compact_interval)),
            ("retention.compact_bytes_per_s", self.compact_bytes_per_s),
        ];
        match positive.iter().find(|(_, value)| *value == 0) {
            Some((setting, _)) => Err(ConfigError::Setting { setting, why: "zero is too little".to_owned() }),
            None => Ok(()),
        }
    }
}

/// Retention stays a margin of a minute behind what a policy allows: a state that is older could show what is forgotten.
const STALENESS_MS_MAX: u64 = RETENTION_MARGIN_MS / 6;

impl Reads {
    fn check(&self) -> Result<(), ConfigError> {
        let renew_ms = millis(self.local_fact_renew);
        if renew_ms == 0 {
            let why = "zero is too little".to_owned();
            return Err(ConfigError::Setting { setting: "reads.local_fact_renew_ms", why });
        }
        let staleness_ms = millis(self.local_fact_max_staleness);
        if staleness_ms > STALENESS_MS_MAX {
            let why = format!("{staleness_ms} is above {STALENESS_MS_MAX}");
            return Err(ConfigError::Setting { setting: "reads.local_fact_max_staleness_ms", why });
        }
        Relation {
            left: "reads.local_fact_max_staleness_ms",
            left_value: staleness_ms,
            must: ABOVE,
            right: "twice reads.local_fact_renew_ms",
            right_value: renew_ms.saturating_mul(2),
            why: "one slow round would end local answers",
        }
        .check()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> NodeConfig {
        let member = |n: u64| (n, PeerNode { addr: format!("node{n}:1"), ..PeerNode::default() });
        NodeConfig {
            id: 1,
            cluster: ClusterId([7; 16]),
            data_dir: PathBuf::from("unused"),
            members: (1..=3).map(member).collect(),
            timing: Timing::LAN,
            log: LogLimits::DEFAULT,
            scrub: Scrub::DEFAULT,
            retention: Retention::DEFAULT,
            reads: Reads::DEFAULT,
            transport: transport::Config::lan(),
        }
    }

    #[test]
    fn both_profiles_hold() {
        assert_eq!(config().check(), Ok(()));
        let wan = NodeConfig { timing: Timing::WAN, transport: transport::Config::wan(), ..config() };
        assert_eq!(wan.check(), Ok(()));
        assert!(config().raft().is_ok() && wan.raft().is_ok());
    }

    #[test]
    fn a_pass_takes_half_of_the_interval_within_its_bounds() {
        let pace = |bytes, compact_interval| {
            Retention { compact_interval, compact_bytes_per_s: 32 << 20, ..Retention::DEFAULT }
                .pass_bytes_per_s(bytes)
        };
        let (hours, ms) = (Duration::from_hours(6), Duration::from_millis);
        assert_eq!(pace(0, hours), 1 << 20, "no slower");
        assert_eq!(pace(108_000_000_000, hours), 10_000_000);
        assert_eq!(pace(1 << 40, hours), 32 << 20, "no faster");
        assert_eq!(pace(4_000_000, ms(1_000)), 8_000_000);
        assert_eq!(pace(1 << 20, ms(0)), 32 << 20, "an interval that has no half");
        let slow = Retention { compact_bytes_per_s: 1_000, ..Retention::DEFAULT };
        assert_eq!(slow.pass_bytes_per_s(0), 1_000, "what is configured goes before");
    }

    #[test]
    fn openraft_runs_with_pre_vote_and_without_leader_restore() {
        let raft = config().raft().unwrap();
        assert_eq!(raft.enable_pre_vote, Some(true));
        assert_eq!(raft.enable_leader_restore, Some(false));
        assert_eq!(raft.quorum_loss_probe_interval, Some(1_000));
    }

    /// Breaks one relation at a time and gives the setting that the refusal names.
    fn refused(change: impl Fn(&mut NodeConfig)) -> String {
        let mut broken = config();
        change(&mut broken);
        broken.check().unwrap_err().to_string()
    }

    #[test]
    fn every_broken_relation_is_refused_by_name() {
        let heartbeat = refused(|config| config.timing.round_trip_ms = 50);
        assert!(heartbeat.starts_with("raft.heartbeat_ms (50) must be above raft.round_trip_ms (50)"), "{heartbeat}");
        let election = refused(|config| config.timing.election_min_ms = 110);
        assert!(election.starts_with("raft.election_min_ms (110) must be above two heartbeats"), "{election}");
        let order = refused(|config| config.timing.election_max_ms = 150);
        assert!(order.starts_with("raft.election_max_ms (150) must be above raft.election_min_ms"), "{order}");
        let probe = refused(|config| config.timing.quorum_loss_probe_ms = 599);
        assert!(probe.starts_with("raft.quorum_loss_probe_ms (599) must be at least twice"), "{probe}");
        let fast = refused(|config| (config.timing.heartbeat_ms, config.timing.round_trip_ms) = (4, 1));
        assert!(fast.contains("the shortest heartbeat"), "{fast}");
        let slow =
            refused(|config| (config.timing.election_max_ms, config.timing.quorum_loss_probe_ms) = (60_001, 200_000));
        assert!(slow.starts_with("raft.election_max_ms"), "{slow}");
        let stall = refused(|config| {
            config.timing = Timing {
                heartbeat_ms: 600,
                round_trip_ms: 500,
                election_min_ms: 2_000,
                election_max_ms: 3_000,
                quorum_loss_probe_ms: 9_000,
                ..Timing::LAN
            }
        });
        assert!(stall.starts_with("transport.stall_timeout"), "{stall}");
    }

    #[test]
    fn members_must_make_sense() {
        assert!(refused(|config| config.id = 0).starts_with("node.id"));
        assert!(refused(|config| config.id = 9).contains("not among the members"));
        assert!(refused(|config| config.members.get_mut(&1).unwrap().addr.clear()).contains("no address"));
        assert!(
            refused(|config| config.members.get_mut(&2).unwrap().addr = "node1:1".to_owned())
                .contains("same address")
        );
        assert!(refused(|config| config.log.purge_batch = 0).starts_with("log.purge_batch"));
        assert!(refused(|config| config.transport.append_window = 0).contains("append_window"));
    }

    #[test]
    fn local_answers_and_retention_must_fit_each_other() {
        let ms = Duration::from_millis;
        let slow = refused(|config| config.reads.local_fact_renew = ms(1_000));
        assert!(slow.starts_with("reads.local_fact_max_staleness_ms (2000) must be above twice"), "{slow}");
        let old = refused(|config| config.reads.local_fact_max_staleness = ms(10_001));
        assert!(old.starts_with("reads.local_fact_max_staleness_ms: 10001"), "{old}");
        let hasty = refused(|config| config.retention.interval = ms(2_000));
        assert!(hasty.starts_with("retention.interval_ms (2000) must be above reads.local_fact"), "{hasty}");
        assert!(refused(|config| config.reads.local_fact_renew = ms(0)).starts_with("reads.local_fact_renew_ms"));
        assert!(refused(|config| config.retention.interval = ms(0)).starts_with("retention.interval_ms"));
        assert!(
            refused(|config| config.retention.compact_bytes_per_s = 0).starts_with("retention.compact_bytes_per_s")
        );
    }
}
