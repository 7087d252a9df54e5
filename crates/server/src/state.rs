//! What every route shares: the node, the limits, the credentials of the configuration.

use std::sync::Arc;
use std::time::Duration;

use hapax_api::Limits;
use hapax_consensus::node::Node;

use tokio_util::sync::CancellationToken;

use crate::auth::LocalTokens;
use crate::pace::Pace;
use crate::room::Room;
use crate::waits::Waits;

/// Shared by all requests.
#[derive(Clone)]
pub(crate) struct App(pub(crate) Arc<Shared>);

/// See [`App`].
pub(crate) struct Shared {
    pub(crate) node: Node,
    pub(crate) cluster: String,
    pub(crate) limits: Limits,
    pub(crate) tokens: LocalTokens,
    /// What a call that waits for nothing may take.
    pub(crate) request_timeout: Duration,
    /// What a body may take to arrive.
    pub(crate) body_timeout: Duration,
    /// Where callers wait for changes.
    pub(crate) waits: Waits,
    /// How fast callers may go.
    pub(crate) pace: Pace,
    /// Calls a second that one client may make; 0 for no limit of this kind.
    pub(crate) client_requests_per_second: u32,
    /// The room for watches.
    pub(crate) watches: Room,
    /// Cancelled when the node stops.
    pub(crate) stop: CancellationToken,
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
