//! The run: connects everybody, lets all go together, and ends when the window does.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use crate::log::{Log, Part, Seen, Window};
use crate::schedule::Schedule;

/// Parts of the log: enough that two threads seldom want the same one.
const SHARDS: usize = 8;
/// After the window ends, calls under way may take this long.
const GRACE: Duration = Duration::from_secs(30);

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Connections, each with one call under way at most.
    pub connections: usize,
    /// Calls a second over all connections; as fast as answers come where absent.
    pub rate: Option<u64>,
    /// Load before the window.
    pub warm_up: Duration,
    /// The window.
    pub measured: Duration,
}

/// Why a run was given up.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Stop(pub String);

/// One connection's work.
pub trait Worker: Send + 'static {
    /// What must stand before the window begins, such as keys to be read.
    ///
    /// # Errors
    /// It cannot be made; the run is given up.
    fn prepare(&mut self) -> impl Future<Output = Result<(), Stop>> + Send {
        async { Ok(()) }
    }

    /// One call, or several that follow from each other. The first one's latency counts from `since`.
    ///
    /// # Errors
    /// Nothing further can be measured; the run is given up.
    fn call(&mut self, since: Instant, log: Part<'_>) -> impl Future<Output = Result<(), Stop>> + Send;
}

/// How a run goes on, told about once a second.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Since the window began; zero while warming up.
    pub measured: Duration,
    /// Answers within the last second.
    pub answers: u64,
    /// Their median and 99th percentile in microseconds; roughly.
    pub latencies_us: (u64, u64),
}

/// Runs `workers` by `plan`.
///
/// # Errors
/// A worker gave up, or did not end in time.
pub async fn run<W: Worker>(
    plan: &Plan,
    workers: Vec<W>,
    mut progress: impl FnMut(Progress),
) -> Result<(Window, Seen), Stop> {
    let workers = prepare(workers).await?;
    let connections = workers.len();
    let begin = Instant::now();
    let window = Window { from: begin + plan.warm_up, length: plan.measured };
    let log = Arc::new(Log::new(window, SHARDS));
    let mut tasks = JoinSet::new();
    for (connection, worker) in workers.into_iter().enumerate() {
        let schedule = plan.rate.map(|rate| Schedule::new(rate, connection, connections));
        tasks.spawn(work(worker, connection, begin, schedule, Arc::clone(&log)));
    }
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut told = 0;
    let ended = async {
        loop {
            tokio::select! {
                ended = tasks.join_next() => match ended {
                    None => return Ok(()),
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(stop))) => return Err(stop),
                    Some(Err(error)) => return Err(Stop(format!("a connection's task ended: {error}"))),
                },
                _ = seconds.tick() => tell(&log, &mut told, &mut progress),
            }
        }
    };
    let limit = plan.warm_up + plan.measured + GRACE;
    timeout(limit, ended)
        .await
        .map_err(|_| Stop(format!("calls are under way {} s after the end", GRACE.as_secs())))??;
    Ok((window, log.seen()))
}

async fn prepare<W: Worker>(workers: Vec<W>) -> Result<Vec<W>, Stop> {
    let mut tasks = JoinSet::new();
    for mut worker in workers {
        tasks.spawn(async move { worker.prepare().await.map(|()| worker) });
    }
    let mut ready = Vec::new();
    while let Some(worker) = tasks.join_next().await {
        ready.push(worker.map_err(|error| Stop(format!("a connection's task ended: {error}")))??);
    }
    Ok(ready)
}

fn tell(log: &Log, told: &mut u64, progress: &mut impl FnMut(Progress)) {
    let seen = log.seen();
    let all = seen.all.values().sum();
    let measured = Instant::now().saturating_duration_since(log.window().from);
    let last = seen.slots.iter().rev().find(|slot| slot.count > 0);
    let latencies_us = last.map_or((0, 0), |slot| (slot.quantile_us(0.5), slot.quantile_us(0.99)));
    progress(Progress { measured, answers: all - *told, latencies_us });
    *told = all;
}

async fn work<W: Worker>(
    mut worker: W,
    connection: usize,
    begin: Instant,
    schedule: Option<Schedule>,
    log: Arc<Log>,
) -> Result<(), Stop> {
    let until = log.window().until();
    for number in 0.. {
        let now = Instant::now();
        let due = schedule.map_or(now, |schedule| begin + schedule.due(number));
        if now.max(due) >= until {
            break;
        }
        let since = if due > now {
            sleep_until(due).await;
            // The connection was idle: that the timer is coarse is not the server's doing.
            Instant::now()
        } else {
            due
        };
        worker.call(since, log.of(connection)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Duration = Duration::from_millis(1);
    const STALL: Duration = Duration::from_millis(400);

    /// Takes a millisecond for each call, but for one long stall.
    struct Stalls {
        calls: u32,
    }

    impl Worker for Stalls {
        async fn call(&mut self, since: Instant, log: Part<'_>) -> Result<(), Stop> {
            self.calls += 1;
            tokio::time::sleep(if self.calls == 10 { STALL } else { CALL }).await;
            log.answered("done", since);
            Ok(())
        }
    }

    /// All calls of a second, and those that took more than 100 ms.
    async fn calls(rate: Option<u64>) -> (u64, u64) {
        let plan = Plan { connections: 1, rate, warm_up: Duration::ZERO, measured: Duration::from_secs(1) };
        let (_, seen) = run(&plan, vec![Stalls { calls: 0 }], |_| {}).await.expect("it runs");
        let latencies = &seen.answers["done"];
        (latencies.len(), latencies.count_between(100_500, 1_000_000))
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_is_charged_for_every_call_that_was_due_meanwhile() {
        // 200 are due within the second. Those that were due within the first 300 ms of the stall waited for more than 100: one
        // for each 5 ms, and the next ones until the backlog of 80 calls, each a millisecond, is gone.
        let (all, slow) = calls(Some(200)).await;
        assert_eq!(all, 200);
        assert!((60..=80).contains(&slow), "{slow} slow ones of {all}");
        let (_, slow) = calls(None).await;
        assert_eq!(slow, 1, "a closed loop sees one slow call");
    }

    struct Gives;

    impl Worker for Gives {
        async fn call(&mut self, _: Instant, _: Part<'_>) -> Result<(), Stop> {
            Err(Stop("no more".to_owned()))
        }
    }

    #[tokio::test]
    async fn the_first_to_give_up_ends_the_run() {
        let plan = Plan {
            connections: 2,
            rate: None,
            warm_up: Duration::from_secs(600),
            measured: Duration::from_secs(600),
        };
        let error = run(&plan, vec![Gives, Gives], |_| {}).await.expect_err("it gives up");
        assert_eq!(error.to_string(), "no more");
    }
}
