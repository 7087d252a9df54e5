//! A held lease: renewed in the background, and lost as soon as nobody can be sure that it is still held.
//!
//! The deadline that the guard keeps is never later than the store's: it counts from when the call that was
//! answered was sent. When it passes without a renewal, or a renewal is refused, the lease is lost, for good.
//! A lost lease stops new sends to the provider and resends; it cannot recall what was already sent.
//!
//! The guard's clock stands still while a machine is suspended. What such a machine sends on waking is stopped by
//! nothing here: where that can happen, the effect itself must check the lease epoch or use the effect key.

use std::time::Duration;

use hapax_api::claim::Claimed;
use hapax_api::execution::{Accepted, OutcomeRequest, RenewRequest, Reported, ResultData};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::client::Client;
use crate::outcome::Outcome;

/// The pause between renewals that failed without a refusal.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Whether a lease is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// At least until this instant, if nothing more is heard.
    Held {
        /// The instant, never later than the store's.
        until: Instant,
    },
    /// Not any more, and never again.
    Lost,
}

/// A lease that renews itself while this value lives. Dropping it stops renewing and reports nothing: the lease
/// then lapses, and the outcome is unknown until somebody finds out.
#[derive(Debug)]
pub struct LeaseGuard {
    client: Client,
    claimed: Claimed,
    state: watch::Receiver<LeaseState>,
    task: JoinHandle<()>,
}

impl LeaseGuard {
    /// Starts to renew; `sent` is when the call was sent that `claimed` answers.
    pub(crate) fn start(client: Client, claimed: Claimed, sent: Instant, lease_ms: u64) -> LeaseGuard {
        let lease = Lease {
            until: sent + Duration::from_millis(claimed.lease_expires_in_ms),
            renew_at: sent + Duration::from_millis(claimed.renew_by_ms),
        };
        let (sender, state) = watch::channel(LeaseState::Held { until: lease.until });
        let request = RenewRequest { lease_epoch: claimed.lease_epoch, lease_ms };
        let task = tokio::spawn(keep(client.clone(), claimed.clone(), request, lease, sender));
        LeaseGuard { client, claimed, state, task }
    }

    /// What the claim was granted: execution id, lease epoch, effect key.
    #[must_use]
    pub fn claimed(&self) -> &Claimed {
        &self.claimed
    }

    /// Whether the lease is held now. Ask before every send to the provider, resends included.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match *self.state.borrow() {
            LeaseState::Held { until } => Instant::now() < until,
            LeaseState::Lost => false,
        }
    }

    /// Completes when the lease is lost; to be raced against the work.
    pub async fn lost(&self) {
        let mut state = self.state.clone();
        // An error means that the task ended, which it does only after it said Lost.
        let _ = state.wait_for(|state| *state == LeaseState::Lost).await;
    }

    /// A signal for others: it changes with every renewal, and for the last time to `Lost`.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<LeaseState> {
        self.state.clone()
    }

    /// Stops renewing and reports what happened. Where the lease was lost before, the report is refused with
    /// `lease.lost` or `lease.stale-epoch`: what is known is then given as evidence.
    pub async fn report(self, outcome: Reported, data: ResultData) -> Outcome<Accepted> {
        self.task.abort();
        let request = OutcomeRequest { lease_epoch: self.claimed.lease_epoch, outcome, data };
        self.client.report(&self.claimed.execution_id, &request).await
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Lease {
    until: Instant,
    renew_at: Instant,
}

async fn keep(
    client: Client,
    claimed: Claimed,
    request: RenewRequest,
    mut lease: Lease,
    state: watch::Sender<LeaseState>,
) {
    loop {
        sleep_until(lease.renew_at.min(lease.until)).await;
        let renewal = timeout_at(lease.until, client.renew_timed(&claimed.execution_id, &request)).await;
        match renewal {
            Ok(Outcome::Done((renewed, sent))) => {
                lease.until = lease.until.max(sent + Duration::from_millis(renewed.lease_expires_in_ms));
                // At least a pause: an answer that asks for a renewal at once must not make a busy loop.
                lease.renew_at =
                    (sent + Duration::from_millis(renewed.renew_by_ms)).max(Instant::now() + RETRY_PAUSE);
                state.send_replace(LeaseState::Held { until: lease.until });
            }
            Ok(Outcome::Refused(problem)) => {
                tracing::warn!(execution_id = %claimed.execution_id, code = %problem.code, "the lease is lost");
                break;
            }
            Ok(Outcome::Unavailable(failure) | Outcome::Unknown(failure)) => {
                tracing::debug!(execution_id = %claimed.execution_id, %failure, "a renewal failed");
                lease.renew_at = Instant::now() + RETRY_PAUSE;
            }
            Err(_) => {}
        }
        if Instant::now() >= lease.until {
            tracing::warn!(execution_id = %claimed.execution_id, "the lease ended before it could be renewed");
            break;
        }
    }
    state.send_replace(LeaseState::Lost);
}
