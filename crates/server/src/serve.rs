//! One node from start to end: configuration in, listeners up, and down again in the order that loses nothing.
//!
//! ```text
//! check -> open stores, start consensus -> client, metrics and peer listeners -> (first node) bootstrap
//! SIGTERM, SIGINT -> refuse new work, drain, hand leadership over, stop
//! fatal           -> stop at once, with an error: nothing is acknowledged after a storage fault
//! ```

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hapax_consensus::bootstrap::BootstrapError;
use hapax_consensus::clock::{NodeClock, SystemClock};
use hapax_consensus::fatal::Fatal;
use hapax_consensus::node::{Node, Seams, StartError};
use hapax_consensus::storage::{Storage, StorageError};
use hapax_consensus::transport::{TcpDialer, TcpListener};
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::auth::LocalTokens;
use crate::config::{Config, ConfigError};
use crate::http::{Connections, Timeouts, bind};
use crate::pace::Pace;
use crate::room::Room;
use crate::state::{App, Shared};
use crate::waits::Waits;
use crate::{bootstrap, metrics, routes};

/// How much longer than the longest wait a silent connection may stay.
const IDLE_BEYOND_WAIT: Duration = Duration::from_secs(30);

/// Why a node does not run, or no longer.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A setting is wrong.
    #[error("configuration: {0}")]
    Config(#[from] ConfigError),
    /// The stores or consensus did not start.
    #[error("{0}")]
    Start(#[from] StartError),
    /// The data directory was not opened: the reason names the file.
    #[error("{0}")]
    Storage(#[from] StorageError),
    /// A listener, or a file of the node's own.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The cluster was to be begun, and cannot be.
    #[error("the cluster was not bootstrapped: {0}")]
    Bootstrap(#[from] BootstrapError),
    /// The metrics recorder.
    #[error("metrics: {0}")]
    Metrics(String),
    /// The node stopped because going on would have been unsafe.
    #[error("halted: {0}")]
    Fatal(String),
}

/// What callers find room in, or not.
pub(crate) struct Rooms {
    connections: Room,
    pub(crate) requests: Room,
    /// They hold a request each, and must not take the room of those who do not wait.
    waits: Room,
    watches: Room,
}

impl Rooms {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            connections: Room::new(config.limits.connections),
            requests: Room::new(config.limits.requests),
            waits: Room::new((config.limits.requests / 2).max(1)),
            watches: Room::new(config.limits.watches),
        }
    }

    /// Each under the name by which its saturation is shown.
    fn named(&self) -> [(&'static str, Room); 4] {
        let Self { connections, requests, waits, watches } = self;
        [("connections", connections), ("requests", requests), ("waits", waits), ("watches", watches)]
            .map(|(name, room)| (name, room.clone()))
    }
}

/// Runs a node until a signal or `until` ends it, or it must stop.
///
/// # Errors
/// [`ServeError`] says why it did not start, or why it halted.
pub async fn serve(config: Config, until: impl Future<Output = ()>) -> Result<(), ServeError> {
    config.check()?;
    let recorder = metrics::install().map_err(|error| ServeError::Metrics(error.to_string()))?;
    let client_listener = bind(config.listen.client).await?;
    let metrics_listener = bind(config.listen.metrics).await?;
    let node = start(&config).await?;
    let stop = CancellationToken::new();
    let timeouts = Timeouts {
        header_read: Duration::from_millis(config.limits.header_timeout_ms),
        idle: Duration::from_millis(config.limits.wait_ms) + config.request_timeout() + IDLE_BEYOND_WAIT,
    };
    let rooms = Rooms::new(&config);
    let app = app(&config, node.clone(), &rooms, stop.clone())?;
    let router = routes::router(app, rooms.requests.clone());
    let connections = Connections::new(client_listener, rooms.connections.clone(), timeouts);
    let clients = tokio::spawn(connections.serve(router, stop.clone()));
    let scrapes = tokio::spawn(metrics::serve(
        metrics_listener,
        recorder,
        metrics::Shown { data_dir: config.node.data_dir.clone(), rooms: rooms.named() },
        timeouts,
        stop.clone(),
    ));
    tracing::info!(node = config.node.id, region = %config.node.region, client = %config.listen.client, "serving");
    until_told(&config, &node, until).await?;
    tracing::info!("stopping: no new work is taken");
    stop.cancel();
    let stopped = async {
        let _ = clients.await;
        node.shutdown().await;
        let _ = scrapes.await;
    };
    // What must not go on must not be drained either.
    tokio::select! {
        reason = node.fatal() => return Err(ServeError::Fatal(reason)),
        () = stopped => {}
    }
    tracing::info!("stopped");
    Ok(())
}

/// Opens the stores and starts consensus. What a storage fault raises from here on ends the process.
async fn start(config: &Config) -> Result<Node, ServeError> {
    let node_config = config.node_config()?;
    let fatal = Fatal::new();
    let listener = TcpListener::bind(config.listen.peer).await?;
    let (opened, hook) = (node_config.clone(), fatal.clone());
    let storage = tokio::task::spawn_blocking(move || Storage::open(&opened, &hook)).await;
    let storage = storage.map_err(|error| ServeError::Fatal(error.to_string()))??;
    let clock: Arc<dyn NodeClock> = Arc::new(SystemClock);
    Ok(Node::start(node_config, Seams { clock, storage, dialer: TcpDialer, listener, fatal }).await?)
}

pub(crate) fn app(config: &Config, node: Node, rooms: &Rooms, stop: CancellationToken) -> Result<App, ServeError> {
    Ok(App(Arc::new(Shared {
        node,
        cluster: config.cluster.name.clone(),
        limits: config.limits.wire(),
        tokens: LocalTokens::new(bootstrap::local_tokens(config)?),
        request_timeout: config.request_timeout(),
        body_timeout: Duration::from_millis(config.limits.body_timeout_ms),
        waits: Waits::new(rooms.waits.clone(), stop.clone()),
        pace: Pace::default(),
        client_requests_per_second: config.limits.client_requests_per_second,
        watches: rooms.watches.clone(),
        stop,
    })))
}

/// Begins the cluster's life, once every peer is there; does nothing where it has begun.
async fn begin(config: &Config, node: &Node) -> Result<(), ServeError> {
    if !node.is_bootstrapped() {
        let token = bootstrap::first_token(config)?;
        let command = bootstrap::command(config, &token, rand::random(), SystemClock.wall_ms());
        node.bootstrap(command).await?;
        tracing::info!("the cluster is bootstrapped");
    }
    bootstrap::done(config);
    Ok(())
}

/// Completes when the node is told to stop, and fails when it must: also where it was to begin a cluster and cannot,
/// for it would never be of any use.
async fn until_told(config: &Config, node: &Node, until: impl Future<Output = ()>) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let begun = async {
        if bootstrap::asked_for(config) {
            begin(config, node).await?;
        }
        std::future::pending().await
    };
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        () = until => Ok(()),
        failed = begun => failed,
        reason = node.fatal() => Err(ServeError::Fatal(reason)),
    }
}
