//! The end of this node's log, for those who send it to followers: when there is something for them, and when it is only the news
//! that what they have is committed, which can wait a little and then mostly travels with the next entries.
//!
//! Nothing depends on it but how soon a follower hears of a commit. **A request is never held here that has been made**: what is
//! delayed is the moment at which openraft is asked for one, so that each says what is true when it leaves.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// How long a follower may have to wait for the news of a commit, where no entries bring it. Whoever reads there asks this node
/// first, and is told at once: see [`Tail::commit_wanted`].
pub(crate) const COMMIT_DELAY: Duration = Duration::from_millis(5);

/// Where the log ends.
#[derive(Debug, Clone, Default)]
pub struct Tail(watch::Sender<Seen>);

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// The index of the last entry.
    last: u64,
    /// How often somebody has asked for the news of a commit.
    wanted: u64,
}

impl Tail {
    /// The log ends at this index now.
    pub(crate) fn appended(&self, last: u64) {
        self.0.send_modify(|seen| seen.last = last);
    }

    /// A follower is about to wait for what is committed here: all of them are told at once.
    pub(crate) fn commit_wanted(&self) {
        self.0.send_modify(|seen| seen.wanted += 1);
    }

    pub(crate) fn listen(&self) -> Listener {
        let seen = self.0.subscribe();
        let wanted = seen.borrow().wanted;
        Listener { seen, wanted }
    }
}

/// One sender's ear at the log's end.
#[derive(Debug)]
pub(crate) struct Listener {
    seen: watch::Receiver<Seen>,
    wanted: u64,
}

impl Listener {
    /// Waits until there is an entry after `sent`, until somebody wants the news of a commit, or until this instant. Nothing is
    /// lost when the future is dropped.
    pub(crate) async fn worth_sending(&mut self, sent: u64, until: Instant) {
        let wanted = self.wanted;
        let seen = self.seen.wait_for(|seen| seen.last > sent || seen.wanted != wanted);
        // An error says that the log is gone: then nothing is held any more.
        if let Ok(Ok(seen)) = timeout_at(until, seen).await {
            self.wanted = seen.wanted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    /// How long it waits.
    async fn waits(listener: &mut Listener, sent: u64, at_most: Duration) -> Duration {
        let begun = Instant::now();
        listener.worth_sending(sent, begun + at_most).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn entries_are_sent_at_once_and_news_of_a_commit_waits() {
        let tail = Tail::default();
        let mut listener = tail.listen();
        assert_eq!(waits(&mut listener, 0, COMMIT_DELAY).await, COMMIT_DELAY, "nothing is new");
        tail.appended(7);
        assert_eq!(waits(&mut listener, 6, LONG).await, Duration::ZERO);
        assert_eq!(waits(&mut listener, 7, COMMIT_DELAY).await, COMMIT_DELAY, "it was sent");
        let appending = tokio::spawn(async move { tail.appended(8) });
        assert_eq!(waits(&mut listener, 7, LONG).await, Duration::ZERO, "it comes meanwhile");
        appending.await.unwrap();
        assert_eq!(waits(&mut listener, 8, LONG).await, Duration::ZERO, "the log is gone: nothing is held");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_wants_the_news_gets_it_from_everybody_once() {
        let tail = Tail::default();
        let mut listeners = [tail.listen(), tail.listen()];
        tail.commit_wanted();
        for listener in &mut listeners {
            assert_eq!(waits(listener, 0, LONG).await, Duration::ZERO);
            assert_eq!(waits(listener, 0, COMMIT_DELAY).await, COMMIT_DELAY);
        }
        assert_eq!(waits(&mut tail.listen(), 0, COMMIT_DELAY).await, COMMIT_DELAY, "what was wanted before");
    }
}
