//! A peer's connection on one channel, made when it is needed and made again when it broke.
//! Owns the rhythm of reconnecting; callers never wait longer than they want to.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::hello::ConnectError;

/// What a link needs to know of its connections.
pub trait Connection: Send + Sync + 'static {
    /// Whether it has ended.
    fn is_closed(&self) -> bool;
}

type Connect<C> = Box<dyn Fn() -> BoxFuture<'static, Result<C, ConnectError>> + Send + Sync>;

enum State<C> {
    Idle,
    /// A task is connecting.
    Connecting,
    Up(Arc<C>),
    /// The last attempt failed; none is made before `until`.
    Down {
        why: String,
        until: Instant,
        failures: u32,
    },
}

/// The connection to one peer on one channel.
pub struct Link<C> {
    state: watch::Sender<State<C>>,
    connect: Connect<C>,
    pause: Duration,
    pause_max: Duration,
}

enum Next<C> {
    Ready(Arc<C>),
    Start(u32),
    Wait,
    Fail(ConnectError),
}

impl<C: Connection> Link<C> {
    /// A link without a connection. `connect` makes one and bounds its own time.
    pub fn new(connect: Connect<C>, pause: Duration, pause_max: Duration) -> Arc<Self> {
        Arc::new(Self { state: watch::Sender::new(State::Idle), connect, pause, pause_max })
    }

    /// The connection, made if need be. Between two attempts to connect it fails at once; while one is
    /// being made it waits until the deadline, and the attempt goes on without the caller.
    pub async fn get(self: &Arc<Self>, deadline: Instant) -> Result<Arc<C>, ConnectError> {
        let mut changes = self.state.subscribe();
        loop {
            // Marked as seen before looking, so that no later change is missed.
            changes.mark_unchanged();
            match self.next(Instant::now()) {
                Next::Ready(conn) => return Ok(conn),
                Next::Fail(error) => return Err(error),
                Next::Start(failures) => {
                    tokio::spawn(Arc::clone(self).attempt(failures));
                }
                Next::Wait => {}
            }
            // The sender lives in `self`: the channel cannot close while it is waited for.
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return Err(ConnectError::Connecting);
            }
        }
    }

    fn next(&self, now: Instant) -> Next<C> {
        let mut next = Next::Wait;
        self.state.send_if_modified(|state| {
            let failures = match state {
                State::Connecting => return false,
                State::Up(conn) if !conn.is_closed() => {
                    next = Next::Ready(Arc::clone(conn));
                    return false;
                }
                State::Down { why, until, .. } if now < *until => {
                    next = Next::Fail(ConnectError::Backoff(why.clone()));
                    return false;
                }
                State::Down { failures, .. } => *failures,
                State::Up(_) | State::Idle => 0,
            };
            next = Next::Start(failures);
            *state = State::Connecting;
            // Nobody waits for the beginning of an attempt.
            false
        });
        next
    }

    async fn attempt(self: Arc<Self>, failures: u32) {
        let state = match (self.connect)().await {
            Ok(conn) => State::Up(Arc::new(conn)),
            Err(error) => {
                let pause = self.pause.saturating_mul(1 << failures.min(16)).min(self.pause_max);
                let why = error.to_string();
                State::Down { why, until: Instant::now() + pause, failures: failures.saturating_add(1) }
            }
        };
        self.state.send_replace(state);
    }

    /// Whether there is a connection now.
    pub fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(conn) if !conn.is_closed())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use futures::FutureExt;
    use tokio::sync::Notify;

    use super::*;

    #[derive(Default)]
    struct Fake(AtomicBool);

    impl Connection for Fake {
        fn is_closed(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[tokio::test]
    async fn many_callers_share_one_attempt_and_one_connection() {
        let attempts = Arc::new(AtomicUsize::new(0));
        let go = Arc::new(Notify::new());
        let (counted, gate) = (Arc::clone(&attempts), Arc::clone(&go));
        let connect = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let gate = Arc::clone(&gate);
            async move {
                gate.notified().await;
                Ok(Fake::default())
            }
            .boxed()
        };
        let link = Link::new(Box::new(connect), Duration::ZERO, Duration::ZERO);
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                let link = Arc::clone(&link);
                tokio::spawn(async move { link.get(soon()).await })
            })
            .collect();
        // A caller with a short deadline leaves; the attempt goes on.
        let early = link.get(Instant::now()).await;
        assert!(matches!(early, Err(ConnectError::Connecting)));
        go.notify_one();
        let mut conns = Vec::new();
        for task in waiting {
            conns.push(task.await.expect("joined").expect("connected"));
        }
        assert_eq!(attempts.load(Ordering::Relaxed), 1);
        assert!(conns.iter().all(|conn| Arc::ptr_eq(conn, &conns[0])));

        conns[0].0.store(true, Ordering::Relaxed);
        assert!(!link.is_up());
        go.notify_one();
        link.get(soon()).await.expect("connected again");
        assert_eq!(attempts.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn between_attempts_it_fails_at_once() {
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        let connect = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            futures::future::ready(Err::<Fake, _>(ConnectError::UnknownNode(7))).boxed()
        };
        let hour = Duration::from_secs(3_600);
        let link = Link::new(Box::new(connect), hour, hour);
        for _ in 0..5 {
            assert!(matches!(link.get(soon()).await, Err(ConnectError::Backoff(_))));
        }
        assert_eq!(attempts.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn after_the_pause_it_tries_again() {
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        let connect = move || {
            let nth = counted.fetch_add(1, Ordering::Relaxed);
            let result = if nth < 3 { Err(ConnectError::UnknownNode(7)) } else { Ok(Fake::default()) };
            futures::future::ready(result).boxed()
        };
        let link = Link::new(Box::new(connect), Duration::ZERO, Duration::ZERO);
        let deadline = soon();
        while link.get(deadline).await.is_err() {
            assert!(Instant::now() < deadline);
        }
        assert_eq!(attempts.load(Ordering::Relaxed), 4);
    }
}
