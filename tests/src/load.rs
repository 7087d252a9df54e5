//! A recorded load of claims: every reply is kept, and a call without a definite one is sent again under the same
//! claim id, to any node, until it has one. What was acknowledged is known exactly at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinSet;

use crate::caller::{Answer, Caller, Claim};

/// An acknowledged election, and what became of it.
#[derive(Debug, Clone)]
pub struct Acknowledged {
    /// The key.
    pub key: String,
    /// The operation.
    pub operation_id: String,
    /// The execution.
    pub execution_id: String,
    /// The epoch.
    pub lease_epoch: u64,
    /// Whether `completed` was acknowledged.
    pub completed: bool,
    /// When the claim was acknowledged.
    pub at: Instant,
}

/// A load that runs until it is stopped.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    workers: JoinSet<Vec<Acknowledged>>,
    begun: Instant,
}

impl Load {
    /// Starts `workers` callers, each going round the nodes: claim a fresh key, and report every second one.
    pub fn start(name: &'static str, callers: &[Caller], workers: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let mut set = JoinSet::new();
        for worker in 0..workers {
            let worker = Worker {
                name,
                number: worker,
                callers: callers.to_vec(),
                stop: Arc::clone(&stop),
                acknowledged: Arc::clone(&acknowledged),
            };
            set.spawn(worker.run());
        }
        Self { stop, acknowledged, workers: set, begun: Instant::now() }
    }

    /// Claims acknowledged so far.
    pub fn count(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Stops the callers, lets each finish what it has begun, and returns all that was acknowledged.
    pub async fn stop(self) -> (Vec<Acknowledged>, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        let all = self.workers.join_all().await.into_iter().flatten().collect();
        (all, self.begun.elapsed())
    }
}

struct Worker {
    name: &'static str,
    number: usize,
    callers: Vec<Caller>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
}

impl Worker {
    async fn run(self) -> Vec<Acknowledged> {
        let mut kept = Vec::new();
        let mut next = self.number;
        for number in 0u64.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let claim = Claim::of(format!("{}/{}/{number}", self.name, self.number));
            let granted = self.until_definite(&mut next, Call::Claim(&claim)).await;
            assert_eq!(granted.verdict(), "claimed", "{}: {:?}", claim.key, granted.body);
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
            let mut acknowledged = Acknowledged {
                key: claim.key,
                operation_id: granted.text("operation_id").to_owned(),
                execution_id: granted.text("execution_id").to_owned(),
                lease_epoch: granted.epoch(),
                completed: false,
                at: Instant::now(),
            };
            if number % 2 == 1 {
                let call = Call::Complete(&acknowledged.execution_id, acknowledged.lease_epoch);
                let reported = self.until_definite(&mut next, call).await;
                assert_eq!(reported.text("state"), "completed", "{:?}", reported.body);
                acknowledged.completed = true;
            }
            kept.push(acknowledged);
        }
        kept
    }

    /// Sends the same call again, to the next node, while its answer is missing, 503 or 504.
    async fn until_definite(&self, next: &mut usize, call: Call<'_>) -> Answer {
        loop {
            *next += 1;
            match call.send(&self.callers[*next % self.callers.len()]).await {
                Ok(answer) if answer.status.as_u16() < 500 && answer.body != Value::Null => return answer,
                // A node that is down refuses at once: without a pause the others would not get a turn on this box.
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

/// A call that may be sent again.
#[derive(Clone, Copy)]
enum Call<'a> {
    Claim(&'a Claim),
    Complete(&'a str, u64),
}

impl Call<'_> {
    async fn send(self, caller: &Caller) -> anyhow::Result<Answer> {
        match self {
            Self::Claim(claim) => caller.claim(claim).await,
            Self::Complete(execution, epoch) => caller.report(execution, epoch, "completed").await,
        }
    }
}
