//! Where the nodes are, who is calling, and how long to try. Everything is bounded.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

/// How a client reaches its cluster.
#[derive(Clone)]
pub struct Settings {
    /// Base URLs of nodes, nearest first: `http://host:port`.
    pub urls: Vec<String>,
    /// The token, as `hpx_<id>_<secret>`.
    pub token: String,
    /// How often a call is sent at most, the first time included.
    pub attempts: u32,
    /// How long one attempt may take, beside the time that the call itself asks the node to wait.
    pub attempt_timeout: Duration,
    /// How long a call may take with all its retries, beside the time that it asks the node to wait.
    pub deadline: Duration,
    /// The pause after every node was tried once; doubled after every further round, and drawn at random below it.
    pub first_pause: Duration,
    /// The longest pause, unless a node's `Retry-After` asks for a longer one.
    pub longest_pause: Duration,
    /// How long a watched node may say nothing before it is taken for lost. Nodes repeat their position more often.
    pub watch_silence: Duration,
}

impl Settings {
    /// Settings with the default times.
    pub fn new<U: Into<String>>(urls: impl IntoIterator<Item = U>, token: impl Into<String>) -> Settings {
        Settings {
            urls: urls.into_iter().map(Into::into).collect(),
            token: token.into(),
            attempts: 32,
            attempt_timeout: Duration::from_secs(10),
            deadline: Duration::from_secs(30),
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(2),
            watch_silence: Duration::from_secs(45),
        }
    }
}

/// The token stays out of logs.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("urls", &self.urls)
            .field("attempts", &self.attempts)
            .field("attempt_timeout", &self.attempt_timeout)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// Settings that no call could succeed with.
#[derive(Debug, Error)]
pub enum Unusable {
    /// No URL.
    #[error("no URL of a node is given")]
    NoUrl,
    /// Not a base URL.
    #[error("{url:?} is not a URL http://host:port without a path, a query or a user")]
    Url {
        /// The URL.
        url: String,
    },
    /// The token cannot be a header's value.
    #[error("the token has characters that no token has")]
    Token,
    /// The HTTP client cannot be made.
    #[error("the HTTP client cannot be set up: {0}")]
    Http(#[from] reqwest::Error),
}
