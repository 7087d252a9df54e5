//! Whom a connection of the generator calls, and what it does when nobody answers: the same call again, at the next node.

use std::time::Duration;

use hapax_load::http1::{Ask, Connection};
use hapax_load::log::Part;
use hapax_load::run::Stop;
use tokio::time::{Instant, sleep};

use crate::exit::Failure;

/// How long one call may be sent again before the run is given up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);
/// The pause before a call is sent again.
const PAUSE: Duration = Duration::from_millis(20);

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    authority: String,
    headers: String,
}

impl Target {
    /// The nodes of a comma-separated list of URLs.
    pub(crate) fn all(urls: &str, token: &str) -> anyhow::Result<Vec<Target>> {
        let target = |url: &str| {
            let url = url.trim().trim_end_matches('/');
            let authority = url.strip_prefix("http://").filter(|rest| !rest.is_empty() && !rest.contains('/'));
            let authority =
                authority.ok_or_else(|| Failure::Usage(format!("--url {url:?} is not http://host:port")))?;
            let authority = if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
            Ok(Target { authority, headers: format!("authorization: Bearer {token}\r\n") })
        };
        urls.split(',').map(target).collect()
    }
}

/// One connection, made when it is needed.
#[derive(Debug)]
pub(crate) struct Node {
    targets: Vec<Target>,
    at: usize,
    connection: Option<Connection>,
}

impl Node {
    /// The connection numbered so, whose first node is the one of that number.
    pub(crate) fn new(targets: &[Target], number: usize) -> Node {
        Node { targets: targets.to_vec(), at: number % targets.len(), connection: None }
    }

    /// Asks until somebody answers something else than that they cannot, and reads the answer with `read`.
    pub(crate) async fn ask<T>(
        &mut self,
        ask: Ask<'_>,
        log: Option<Part<'_>>,
        read: impl Fn(u16, &[u8]) -> T,
    ) -> Result<T, Stop> {
        let begun = Instant::now();
        loop {
            let why = match self.once(ask).await {
                Ok((503, _)) => "503",
                Ok((504, _)) => "504",
                Ok((status, body)) => return Ok(read(status, body)),
                Err(_) => {
                    self.connection = None;
                    "no answer"
                }
            };
            if let Some(log) = log {
                log.again(why);
            }
            if begun.elapsed() > GIVE_UP_AFTER {
                return Err(Stop(format!("nobody answers for {} s, the last was {why}", GIVE_UP_AFTER.as_secs())));
            }
            self.at = (self.at + 1) % self.targets.len();
            self.connection = None;
            sleep(PAUSE).await;
        }
    }

    async fn once(&mut self, ask: Ask<'_>) -> std::io::Result<(u16, &[u8])> {
        if self.connection.is_none() {
            let target = &self.targets[self.at];
            self.connection = Some(Connection::open(&target.authority, &target.headers).await?);
        }
        match &mut self.connection {
            Some(connection) => connection.ask(ask).await,
            None => Err(std::io::ErrorKind::NotConnected.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_hosts_and_ports() {
        let all = Target::all("http://127.0.0.1:7101, http://b.example/", "t").expect("two");
        assert_eq!(all[0].authority, "127.0.0.1:7101");
        assert_eq!(all[1].authority, "b.example:80");
        for wrong in ["", "https://a:1", "http://", "http://a:1/path", "127.0.0.1:1"] {
            assert!(Target::all(wrong, "t").is_err(), "{wrong}");
        }
    }
}
