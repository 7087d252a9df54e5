//! The cluster as a run sees it: where nodes answer, and what can be done to them. Two backends keep this promise.

use std::time::Duration;

use anyhow::Result;

use crate::history::Node;

/// Which direction of a link is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Peer traffic that the first node sends to the second.
    OneWay(Node, Node),
    /// Peer traffic between the two.
    Both(Node, Node),
}

/// How traffic suffers on a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trouble {
    /// Nothing arrives, nothing is closed.
    Blackhole,
    /// Connections are reset.
    Reset,
    /// This share of packets is lost, from 0 to 1.
    Loss(f64),
    /// Bytes take this long, give or take the jitter.
    Delay {
        /// The mean.
        mean: Duration,
        /// The most by which it differs.
        jitter: Duration,
    },
}

/// A cluster under test. A method that returns without an error has looked at what it did.
pub trait Backend: Send + Sync {
    /// Its name on the command line and in reports.
    fn name(&self) -> &'static str;
    /// The nodes.
    fn nodes(&self) -> Vec<Node>;
    /// Where callers reach a node, without a trailing slash.
    fn url(&self, node: Node) -> String;
    /// The token that callers present.
    fn token(&self) -> String;

    /// Starts a node's process, which does not run.
    ///
    /// # Errors
    /// It cannot be started.
    fn start(&self, node: Node) -> Result<()>;
    /// `kill -9`.
    ///
    /// # Errors
    /// It does not run.
    fn kill(&self, node: Node) -> Result<()>;
    /// SIGSTOP.
    ///
    /// # Errors
    /// It does not run.
    fn pause(&self, node: Node) -> Result<()>;
    /// SIGCONT.
    ///
    /// # Errors
    /// It does not run.
    fn resume(&self, node: Node) -> Result<()>;
    /// Whether the process runs.
    ///
    /// # Errors
    /// Nobody can tell.
    fn runs(&self, node: Node) -> Result<bool>;

    /// Troubles a link, in place of what troubled it before.
    ///
    /// # Errors
    /// The trouble cannot be installed; what was there before may or may not be.
    fn trouble(&self, link: Link, trouble: Trouble) -> Result<()>;
    /// Ends every trouble on every link.
    ///
    /// # Errors
    /// Some trouble may be left.
    fn heal(&self) -> Result<()>;
    /// Moves a node's wall clock, and only that, to this much from the true time.
    ///
    /// # Errors
    /// The backend cannot, or could not.
    fn set_clock(&self, node: Node, offset_ms: i64) -> Result<()>;
}
