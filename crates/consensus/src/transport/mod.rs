//! Byte streams between the nodes of a cluster: dialling, handshake, frames, calls, and the server.
//! Knows the peer protocol's messages and nothing of consensus; [`crate::network`] joins the two.
//!
//! ```text
//!  network (openraft)      Peers ── one Link per peer and channel ── Connection ──┐
//!                                                                                  │ frames
//!  network (openraft)  ◄── Service ◄── server: accept, hello, one task each ◄──────┘
//! ```
//!
//! Invariants:
//! - **A call knows whether it was written.** Each request is claimed by the writer before any of
//!   its bytes is handed to the stream, or abandoned by its caller, never both ([`call::CallError`]).
//! - **Nobody waits for a dead peer.** Connecting runs in the background, bounded; callers wait for it
//!   no longer than their own deadline and fail at once between two attempts ([`link::Link`]).
//! - **A silent connection dies.** A peer that answers neither requests nor pings for `stall_timeout`
//!   loses the connection, whatever the kernel thinks of it ([`pipe`]).
//! - **A member is who it was.** A node that comes under a member's id with another data directory is neither dialled
//!   nor welcomed ([`known::KnownData`]).
//! - **Channels do not queue behind each other**: appends, control, application calls and snapshots
//!   each have a connection of their own.
//! - **Every queue is bounded**, here by the constants and by [`Config`].

pub mod append;
pub mod call;
pub mod frame;
pub mod hello;
pub mod io;
pub mod known;
pub mod link;
pub mod mem;
pub mod peers;
pub mod pipe;
pub mod server;
pub mod tcp;

#[cfg(test)]
mod tests;

use std::time::Duration;

use thiserror::Error;

pub use self::call::CallError;
pub use self::hello::{ConnectError, Identity};
pub use self::io::{Accepted, BoxIo, Dialer, Incoming, Listener};
pub use self::known::KnownData;
pub use self::mem::MemNetwork;
pub use self::peers::Peers;
pub use self::server::{Service, serve};
pub use self::tcp::{TcpDialer, TcpListener};

/// Requests that wait to be written on one connection.
pub(crate) const SEND_QUEUE_LEN: usize = 1_024;
/// Requests of one connection that wait for their replies.
pub(crate) const MAX_PENDING_CALLS: usize = 4_096;
/// Bytes after which the writer stops claiming further requests for one write.
pub(crate) const MAX_WRITE_LEN: usize = 256 << 10;
/// Frames that the writer takes from its queue at once.
pub(crate) const MAX_WRITE_FRAMES: usize = 64;
/// Replies that wait to be written on one accepted connection.
pub(crate) const REPLY_QUEUE_LEN: usize = 256;
/// Append requests of one session that the follower's consensus has not taken yet; no window is
/// wider, so that the reader never waits and always answers pings.
pub const MAX_APPEND_WINDOW: usize = 64;

/// Times and limits of the transport. [`Config::lan`] and [`Config::wan`] are starting points.
#[derive(Debug, Clone)]
pub struct Config {
    /// Bounds dialling together with the hello. At least three round trips.
    pub connect_timeout: Duration,
    /// Pause after a first failed attempt to connect; doubles up to `reconnect_pause_max`.
    pub reconnect_pause: Duration,
    /// The longest pause between attempts to connect.
    pub reconnect_pause_max: Duration,
    /// A connection dies when the peer lets a ping go unanswered for about this long.
    pub stall_timeout: Duration,
    /// A quiet connection is pinged this often.
    pub ping_interval: Duration,
    /// An accepted connection that says nothing for this long is closed. Above `ping_interval`.
    pub idle_timeout: Duration,
    /// An accepted connection must introduce itself within this time.
    pub handshake_timeout: Duration,
    /// Append requests under way to one follower, at most [`MAX_APPEND_WINDOW`].
    pub append_window: usize,
    /// Bytes of entries in one append frame, at most half of the longest frame.
    pub append_frame_len: usize,
    /// Accepted connections, and connections that have not introduced themselves, each.
    pub max_connections: usize,
    /// Requests of one accepted connection that are handled at once.
    pub max_calls: usize,
    /// How fast one snapshot is sent, in bytes per second.
    pub snapshot_bytes_per_s: u64,
    /// A snapshot transfer is given up when the other side shows no sign of life for this long.
    pub snapshot_stall_timeout: Duration,
}

/// A relation between the transport's settings that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("peer transport: {0}")]
pub struct ConfigError(&'static str);

impl Config {
    /// For nodes less than a millisecond apart.
    pub fn lan() -> Self {
        Self {
            connect_timeout: Duration::from_millis(500),
            reconnect_pause: Duration::from_millis(20),
            reconnect_pause_max: Duration::from_millis(250),
            stall_timeout: Duration::from_millis(1_000),
            ping_interval: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(2),
            append_window: 16,
            // Short enough for a slow link to carry one within the stall timeout.
            append_frame_len: 1 << 20,
            max_connections: 256,
            max_calls: 1_024,
            snapshot_bytes_per_s: 128 << 20,
            snapshot_stall_timeout: Duration::from_secs(10),
        }
    }

    /// For nodes up to 100 ms apart.
    pub fn wan() -> Self {
        Self {
            connect_timeout: Duration::from_millis(1_000),
            reconnect_pause_max: Duration::from_millis(500),
            stall_timeout: Duration::from_millis(2_000),
            append_window: 48,
            snapshot_bytes_per_s: 32 << 20,
            ..Self::lan()
        }
    }

    /// Refuses settings that contradict each other.
    pub fn check(&self) -> Result<(), ConfigError> {
        let rules = [
            (self.append_window >= 1, "append_window is zero"),
            (self.append_window <= MAX_APPEND_WINDOW, "append_window is above 64"),
            (self.append_frame_len >= 1, "append_frame_len is zero"),
            (
                self.append_frame_len <= hapax_codec::peer::MAX_FRAME_LEN / 2,
                "append_frame_len is above half of the longest frame",
            ),
            (self.ping_interval * 2 <= self.idle_timeout, "idle_timeout is below two ping intervals"),
            (self.stall_timeout >= Duration::from_millis(20), "stall_timeout is below 20 ms"),
            (self.reconnect_pause <= self.reconnect_pause_max, "reconnect_pause is above its maximum"),
            (self.max_connections >= 1, "max_connections is zero"),
            (self.max_calls >= 1, "max_calls is zero"),
            // Slower, and a receiver would take the pause between two pieces for silence.
            (self.snapshot_bytes_per_s >= 1 << 20, "snapshot_bytes_per_s is below one MiB"),
            (self.snapshot_stall_timeout >= Duration::from_secs(1), "snapshot_stall_timeout is below one second"),
        ];
        rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, rule)| Err(ConfigError(rule)))
    }
}
