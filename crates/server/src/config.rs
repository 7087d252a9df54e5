//! A node's configuration: flags over `HAPAX_SECTION__KEY` environment over TOML, checked before anything starts.
//! Every error names the setting; an unknown setting is an error, because a misspelt limit would be no limit.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use figment::Figment;
use figment::providers::{Env, Format as _, Toml};
use hapax_api::Limits;
use hapax_codec::peer::hello::ClusterId;
use hapax_consensus::config::{LogLimits, NodeConfig, Reads, Retention, Scrub, Timing};
use hapax_consensus::transport;
use hapax_consensus::types::PeerNode;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::logging::Format;

mod namespaces;

pub(crate) use namespaces::refuse_retention;
pub use namespaces::{
    Attempts, Authority, ConflictStyle, ExpiredKeys, NamespaceSection, OnLapse, RetentionSection, Scope,
};

/// More threads than any machine that this is meant for has processors.
const WORKER_THREADS_MAX: usize = 1_024;

/// Everything a node is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Who this node is.
    pub node: NodeSection,
    /// Where it listens.
    pub listen: ListenSection,
    /// The cluster it belongs to.
    pub cluster: ClusterSection,
    /// Consensus.
    #[serde(default)]
    pub raft: RaftSection,
    /// When floors are raised, and when bytes are given back.
    #[serde(default)]
    pub retention: RetentionPaceSection,
    /// How recent this node's own state must be for local answers.
    #[serde(default)]
    pub reads: ReadsSection,
    /// What callers may send and how much at once.
    #[serde(default)]
    pub limits: LimitsSection,
    /// Credentials.
    #[serde(default)]
    pub auth: AuthSection,
    /// What the first commit contains; used once, by the node that bootstraps.
    #[serde(default)]
    pub bootstrap: BootstrapSection,
    /// Logging.
    #[serde(default)]
    pub log: LogSection,
}

/// `[node]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSection {
    /// A number never used for another node of this cluster.
    pub id: u64,
    /// The node's region.
    pub region: String,
    /// Where it keeps everything.
    pub data_dir: PathBuf,
    /// Threads that serve calls and agree with the other nodes; 0 for as many as there are processors.
    #[serde(default)]
    pub worker_threads: usize,
}

/// `[listen]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenSection {
    /// For callers.
    pub client: SocketAddr,
    /// For the other nodes.
    pub peer: SocketAddr,
    /// For Prometheus.
    pub metrics: SocketAddr,
}

/// `[cluster]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSection {
    /// A name for people.
    pub name: String,
    /// Every node, this one too.
    #[serde(deserialize_with = "list_or_commas")]
    pub peers: Vec<String>,
    /// Whether this node begins the cluster's life: true on exactly one node. Without effect once it has data.
    #[serde(default)]
    pub bootstrap: bool,
}

/// For which distances the timings are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Voters less than a few milliseconds apart.
    #[default]
    Lan,
    /// Voters up to 100 ms apart.
    Wan,
}

/// `[raft]`: a profile, and what is set differently.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RaftSection {
    /// Where the timings start from.
    pub profile: Profile,
    /// How often a leader is heard, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u64>,
    /// How long a leader may go without a quorum's word, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub election_min_ms: Option<u64>,
    /// How long a follower waits, and up to as long again, before it campaigns, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub election_max_ms: Option<u64>,
    /// How far the wall clocks of two healthy nodes may be apart, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_clock_skew_ms: Option<u64>,
    /// A snapshot is made after this many entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_after_entries: Option<u64>,
    /// Entries kept behind a snapshot for a follower that was away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_entries: Option<u64>,
    /// Entries purged at once, at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purge_batch: Option<u64>,
    /// How often the state is written to disk, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_interval_ms: Option<u64>,
    /// Appends under way to one follower at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_window: Option<usize>,
}

impl RaftSection {
    fn timing(&self) -> Timing {
        let base = match self.profile {
            Profile::Lan => Timing::LAN,
            Profile::Wan => Timing::WAN,
        };
        Timing {
            heartbeat_ms: self.heartbeat_ms.unwrap_or(base.heartbeat_ms),
            election_min_ms: self.election_min_ms.unwrap_or(base.election_min_ms),
            election_max_ms: self.election_max_ms.unwrap_or(base.election_max_ms),
            max_clock_skew_ms: self.max_clock_skew_ms.unwrap_or(base.max_clock_skew_ms),
            ..base
        }
    }

    fn log(&self) -> LogLimits {
        let base = LogLimits::DEFAULT;
        LogLimits {
            snapshot_after_entries: self.snapshot_after_entries.unwrap_or(base.snapshot_after_entries),
            keep_entries: self.keep_entries.unwrap_or(base.keep_entries),
            purge_batch: self.purge_batch.unwrap_or(base.purge_batch),
            flush_interval: self.flush_interval_ms.map_or(base.flush_interval, Duration::from_millis),
            ..base
        }
    }

    fn transport(&self) -> transport::Config {
        let base = match self.profile {
            Profile::Lan => transport::Config::lan(),
            Profile::Wan => transport::Config::wan(),
        };
        transport::Config { append_window: self.append_window.unwrap_or(base.append_window), ..base }
    }
}

/// `[retention]`: a node's part in forgetting; what is forgotten is each namespace's policy.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionPaceSection {
    /// How often the leader looks whether floors can be raised, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// Time from one pass that gives bytes back to the next, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_interval_ms: Option<u64>,
    /// How fast such a pass goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_bytes_per_s: Option<u64>,
}

impl RetentionPaceSection {
    fn consensus(&self) -> Retention {
        let base = Retention::DEFAULT;
        Retention {
            interval: self.interval_ms.map_or(base.interval, Duration::from_millis),
            compact_interval: self.compact_interval_ms.map_or(base.compact_interval, Duration::from_millis),
            compact_bytes_per_s: self.compact_bytes_per_s.unwrap_or(base.compact_bytes_per_s),
        }
    }
}

/// `[reads]`: answers from this node's own state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReadsSection {
    /// While such answers are asked for, the state is confirmed this often, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_fact_renew_ms: Option<u64>,
    /// What was confirmed longer ago answers nothing, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_fact_max_staleness_ms: Option<u64>,
}

impl ReadsSection {
    fn consensus(&self) -> Reads {
        let base = Reads::DEFAULT;
        let max_staleness = self.local_fact_max_staleness_ms.map(Duration::from_millis);
        Reads {
            local_fact_renew: self.local_fact_renew_ms.map_or(base.local_fact_renew, Duration::from_millis),
            local_fact_max_staleness: max_staleness.unwrap_or(base.local_fact_max_staleness),
        }
    }
}

/// `[limits]`: the wire's limits, which only go down, and this node's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsSection {
    /// Bytes of a request body.
    pub body_bytes: usize,
    /// Characters of a key.
    pub key_chars: usize,
    /// Bytes of an inline result.
    pub result_bytes: usize,
    /// Longest wait, in milliseconds.
    pub wait_ms: u64,
    /// Longest lease, in milliseconds.
    pub lease_ms: u64,
    /// Items in a batch.
    pub batch_items: usize,
    /// Bytes in the body of a batch.
    pub batch_bytes: usize,
    /// Items on a page.
    pub page_items: u64,
    /// Connections of callers at once; more are closed.
    pub connections: usize,
    /// Requests at work at once, over all connections; more are answered 503 `store.overloaded`.
    pub requests: usize,
    /// What a call may take, apart from the wait it asked for, in milliseconds.
    pub request_timeout_ms: u64,
    /// What the head of a request may take to arrive, in milliseconds.
    pub header_timeout_ms: u64,
    /// What a body may take to arrive, in milliseconds.
    pub body_timeout_ms: u64,
    /// Calls a second that one client may make on this node; 0 for no limit of this kind.
    pub client_requests_per_second: u32,
    /// Watches at once, over all callers; more are answered 503 `store.overloaded`.
    pub watches: usize,
}

impl Default for LimitsSection {
    fn default() -> Self {
        let wire = Limits::default();
        Self {
            body_bytes: wire.body_bytes,
            key_chars: wire.key_chars,
            result_bytes: wire.result_bytes,
            wait_ms: wire.wait_ms,
            lease_ms: wire.lease_ms,
            batch_items: wire.batch_items,
            batch_bytes: wire.batch_bytes,
            page_items: wire.page_items,
            connections: 4_096,
            requests: 8_192,
            request_timeout_ms: 5_000,
            header_timeout_ms: 10_000,
            body_timeout_ms: 10_000,
            client_requests_per_second: 0,
            watches: 256,
        }
    }
}

impl LimitsSection {
    /// The wire's limits as this node applies them.
    pub fn wire(&self) -> Limits {
        Limits {
            body_bytes: self.body_bytes,
            key_chars: self.key_chars,
            result_bytes: self.result_bytes,
            wait_ms: self.wait_ms,
            lease_ms: self.lease_ms,
            batch_items: self.batch_items,
            batch_bytes: self.batch_bytes,
            page_items: self.page_items,
        }
    }
}

/// `[auth]`
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthSection {
    /// The first token, `hpx_<id>_<secret>`; read once, by the node that bootstraps. Absent: one is drawn and
    /// written to `bootstrap-token` in the data directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_token: Option<String>,
    /// A file that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_token_file: Option<PathBuf>,
    /// Further tokens, hashed; good on this node only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<TokenSection>,
    /// Whether the plain token `dev` is good; only `hapax dev` asks for it.
    #[serde(skip)]
    pub dev_token: bool,
}

/// `[[auth.tokens]]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenSection {
    /// The public part.
    pub id: String,
    /// SHA-256 of the secret part, in hexadecimal.
    pub secret_sha256: String,
    /// Whose it is.
    pub tenant: String,
    /// The stable client it stands for.
    pub client: String,
    /// The namespaces it is good for; empty means all.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Its roles.
    pub roles: Vec<String>,
}

/// `[bootstrap]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BootstrapSection {
    /// The first tenant.
    pub tenant: String,
    /// Its namespaces.
    pub namespaces: Vec<NamespaceSection>,
}

impl Default for BootstrapSection {
    fn default() -> Self {
        let namespace = NamespaceSection { name: "default".to_owned(), ..NamespaceSection::default() };
        Self { tenant: "default".to_owned(), namespaces: vec![namespace] }
    }
}

/// `[log]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    /// The form of a line.
    pub format: Format,
    /// A level, or a filter of targets.
    pub level: String,
}

impl Default for LogSection {
    fn default() -> Self {
        Self { format: Format::Pretty, level: DEFAULT_LEVEL.to_owned() }
    }
}

/// What a node says of itself; what its libraries say only where something is wrong.
const DEFAULT_LEVEL: &str = "info,openraft=error,rocksdb=error";

/// A node of the cluster as `cluster.peers` names it: `id=host:port`, and for people `@region` and `@client-url`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Where the other nodes reach it; resolved anew at each connection.
    pub address: String,
    /// Its region, where it was said.
    pub region: Option<String>,
    /// Where callers reach it, where it was said.
    pub client_url: Option<String>,
}

/// Why a configuration is refused.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// It cannot be read as a configuration.
    #[error("{0}")]
    Read(Box<figment::Error>),
    /// A setting is wrong.
    #[error("{setting}: {reason}")]
    Setting {
        /// Which.
        setting: String,
        /// Why.
        reason: String,
    },
}

impl Config {
    /// Reads `file` and the environment over it, and checks the result.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        if !file.is_file() {
            return Err(wrong("--config", format!("there is no file {}", file.display())));
        }
        let figment = Figment::new().merge(Toml::file_exact(file)).merge(environment());
        let config: Self = figment.extract().map_err(|error| ConfigError::Read(Box::new(error)))?;
        config.check()?;
        Ok(config)
    }

    /// Checks what a type cannot say.
    ///
    /// # Errors
    /// [`ConfigError`] names the first setting that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        let peers = self.peers()?;
        if self.node.worker_threads > WORKER_THREADS_MAX {
            return Err(wrong("node.worker_threads", format!("is above {WORKER_THREADS_MAX}")));
        }
        if !peers.contains_key(&self.node.id) {
            return Err(wrong("cluster.peers", format!("does not name node.id {}", self.node.id)));
        }
        if peers.len().is_multiple_of(2) {
            let reason =
                format!("names {} nodes; an odd number tolerates as many failures with fewer nodes", peers.len());
            return Err(wrong("cluster.peers", reason));
        }
        self.limits.wire().check().map_err(|error| wrong(&format!("limits.{}", error.name), error.to_string()))?;
        let bounded = [
            ("limits.connections", self.limits.connections as u64, 1, 1 << 20),
            ("limits.requests", self.limits.requests as u64, 1, 1 << 20),
            ("limits.request_timeout_ms", self.limits.request_timeout_ms, 100, 60_000),
            ("limits.header_timeout_ms", self.limits.header_timeout_ms, 100, 60_000),
            ("limits.body_timeout_ms", self.limits.body_timeout_ms, 100, 60_000),
            ("limits.watches", self.limits.watches as u64, 0, 1 << 16),
        ];
        for (setting, value, least, most) in bounded {
            if value < least || value > most {
                return Err(wrong(setting, format!("is {value}; it must be between {least} and {most}")));
            }
        }
        self.node_config()?.check().map_err(|error| wrong("consensus", error.to_string()))?;
        if tracing_subscriber::EnvFilter::try_new(&self.log.level).is_err() {
            return Err(wrong("log.level", "is neither a level nor a filter".to_owned()));
        }
        crate::bootstrap::check(self)
    }

    /// The nodes of `cluster.peers`, by id.
    ///
    /// # Errors
    /// [`ConfigError`]: an entry is not `id=host:port`, or an id appears twice.
    pub fn peers(&self) -> Result<BTreeMap<u64, Peer>, ConfigError> {
        let mut peers = BTreeMap::new();
        for entry in &self.cluster.peers {
            let parsed = parse_peer(entry);
            let (id, peer) = parsed.ok_or_else(|| {
                wrong("cluster.peers", format!("{entry:?} is not id=host:port[@region[@client-url]]"))
            })?;
            if peers.insert(id, peer).is_some() {
                return Err(wrong("cluster.peers", format!("names node {id} twice")));
            }
        }
        Ok(peers)
    }

    /// The configuration as TOML, without its secrets.
    ///
    /// # Errors
    /// [`ConfigError`]: a value has no form in TOML.
    pub fn show(&self) -> Result<String, ConfigError> {
        let mut shown = self.clone();
        if let Some(token) = &mut shown.auth.bootstrap_token {
            *token = "(hidden)".to_owned();
        }
        for token in &mut shown.auth.tokens {
            token.secret_sha256 = "(hidden)".to_owned();
        }
        toml::to_string_pretty(&shown).map_err(|error| wrong("config", error.to_string()))
    }

    /// What consensus is told.
    ///
    /// # Errors
    /// [`ConfigError`]: `cluster.peers` cannot be read.
    pub fn node_config(&self) -> Result<NodeConfig, ConfigError> {
        let members = self.peers()?.into_iter().map(|(id, peer)| {
            let own = id == self.node.id;
            let region = peer.region.unwrap_or_else(|| if own { self.node.region.clone() } else { String::new() });
            let client_url = peer.client_url.unwrap_or_default();
            (id, PeerNode { addr: peer.address, region, client_url, ..PeerNode::default() })
        });
        Ok(NodeConfig {
            id: self.node.id,
            cluster: cluster_id(&self.cluster.name),
            data_dir: self.node.data_dir.clone(),
            members: members.collect(),
            timing: self.raft.timing(),
            log: self.raft.log(),
            scrub: Scrub::DEFAULT,
            retention: self.retention.consensus(),
            reads: self.reads.consensus(),
            transport: self.raft.transport(),
        })
    }

    /// What a call may take.
    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.limits.request_timeout_ms)
    }
}

/// `HAPAX_SECTION__KEY`; an empty value means that nothing was set. Variables without `__` belong to the CLI.
fn environment() -> Figment {
    let set = Env::prefixed("HAPAX_").filter(|key| {
        let name = key.as_str();
        let value = std::env::var(format!("HAPAX_{}", name.to_uppercase())).unwrap_or_default();
        name.contains("__") && !value.is_empty()
    });
    Figment::from(set.split("__"))
}

pub(crate) fn wrong(setting: &str, reason: String) -> ConfigError {
    ConfigError::Setting { setting: setting.to_owned(), reason }
}

/// What peers must agree on before they talk, from the name that an operator gave the cluster.
fn cluster_id(name: &str) -> ClusterId {
    let hash = Sha256::digest(name.as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hash[..16]);
    ClusterId(id)
}

fn parse_peer(entry: &str) -> Option<(u64, Peer)> {
    let (id, rest) = entry.trim().split_once('=')?;
    let mut parts = rest.splitn(3, '@');
    let address = parts.next().filter(|address| {
        address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
    })?;
    let mut said = || parts.next().filter(|part| !part.is_empty()).map(str::to_owned);
    let (region, client_url) = (said(), said());
    Some((id.parse().ok()?, Peer { address: address.to_owned(), region, client_url }))
}

fn list_or_commas<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        List(Vec<String>),
        Commas(String),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::List(list) => list,
        Either::Commas(text) => text.split(',').map(|entry| entry.trim().to_owned()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use figment::Figment;
    use figment::providers::{Format as _, Toml};

    use super::Config;

    /// The configuration of one node with these lines in its `[raft]` section.
    fn with_raft(lines: &str) -> Config {
        let text = format!(
            "[node]\nid = 1\nregion = \"r\"\ndata_dir = \"d\"\n\
             [listen]\nclient = \"127.0.0.1:1\"\npeer = \"127.0.0.1:2\"\nmetrics = \"127.0.0.1:3\"\n\
             [cluster]\nname = \"c\"\npeers = \"1=127.0.0.1:2\"\n[raft]\n{lines}\n"
        );
        Figment::from(Toml::string(&text)).extract().unwrap()
    }

    #[test]
    fn the_window_is_the_profiles_unless_it_is_set() {
        let window = |lines| with_raft(lines).node_config().unwrap().transport.append_window;
        assert_eq!((window(""), window("profile = \"wan\"")), (16, 48));
        assert_eq!(window("profile = \"wan\"\nappend_window = 1"), 1);
        with_raft("append_window = 64").check().unwrap();
        for wrong in ["append_window = 0", "append_window = 65"] {
            let refused = with_raft(wrong).check().unwrap_err().to_string();
            assert!(refused.contains("append_window"), "{refused}");
        }
    }
}
