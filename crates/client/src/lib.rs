//! The Rust client: typed calls, retries that keep a call's identity, and a lease that renews itself.
//! It owns no rule of the domain; it only makes sure that a lost answer is asked for again and never guessed.
//!
//! Every mutating call is idempotent by its own identity: a claim by its claim id, renew, outcome and resolve by
//! the lease epoch, evidence by the claim that it names, issuing by its decision. That is why the client may send a call again after a
//! 503, a 504 or a lost connection, to any node. What it must not do is to make a new identity for a retry, so a
//! [`Claim`] draws its claim id once, when it is made.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use hapax_client::{Claim, Client, Election, Outcome, Reported, ResultData, Settings};
//!
//! let client = Client::new(Settings::new(["http://127.0.0.1:7101", "http://127.0.0.1:7102"], "dev"))?;
//! let request = std::collections::BTreeMap::from([("order", "ORD-8841"), ("amount", "120.00")]);
//! let claim = Claim::new("default".parse()?, "order-82/payment-1".parse()?, &request)?;
//! match client.elect(&claim).await {
//!     Outcome::Done(Election::Held(lease)) => {
//!         // Cause the effect here, with `lease.claimed().effect_key`, and stop when `lease.lost()` completes.
//!         lease.report(Reported::Completed, ResultData::default()).await;
//!     }
//!     Outcome::Done(Election::InProgress(_)) => { /* not done yet, and not ours */ }
//!     Outcome::Done(Election::Replayed(replayed)) => drop(replayed.outcome),
//!     Outcome::Done(Election::DuplicateDelivery(_)) => { /* the same message again: nothing is to be done for it */ }
//!     Outcome::Refused(problem) => eprintln!("{}", problem.code),
//!     // Nobody may cause the effect on such an answer.
//!     Outcome::Unavailable(failure) | Outcome::Unknown(failure) => eprintln!("{failure}"),
//! }
//! # Ok(())
//! # }
//! ```

mod claim;
mod client;
mod lease;

mod calls;
mod watch;

mod outcome;
pub mod provider;

mod settings;
mod transport;

pub use claim::{Claim, Election, NotARequest, new_claim_id};
pub use client::{Client, Tagged};
pub use lease::{LeaseGuard, LeaseState};
pub use outcome::{Failure, Outcome};
pub use settings::{Settings, Unusable};
pub use watch::Watch;

pub use hapax_api as api;
pub use hapax_api::execution::{Reported, ResultData};
