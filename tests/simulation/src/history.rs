//! What callers asked and what they were told, as they saw it: the only thing, beside what nodes hold in the end, that
//! invariants judge by. Knows the wire's JSON, and nothing of the product.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::time::now_ms;

/// What a call was for. Epochs, ids and times as the caller said them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A claim of a key.
    Claim {
        /// Namespace and key.
        key: (&'static str, String),
        /// The version of the request: other versions are other requests.
        version: u64,
        /// The id of the claim.
        claim_id: String,
        /// For how long.
        lease_ms: u64,
        /// The capability that was presented.
        capability: Option<String>,
        /// The register's value that it was decided under.
        epoch: Option<u64>,
        /// The message that it was made because of.
        message: Option<String>,
    },
    /// A renewal of a lease.
    Renew {
        /// The execution.
        execution: String,
        /// Its lease epoch.
        epoch: u64,
        /// For how long from now.
        lease_ms: u64,
    },
    /// A report by an owner.
    Report {
        /// The execution.
        execution: String,
        /// Its lease epoch.
        epoch: u64,
        /// What is reported.
        outcome: &'static str,
    },
    /// Evidence, a resolution or a fence: what ends an execution without its lease.
    End {
        /// The execution.
        execution: String,
        /// What was said of it.
        outcome: &'static str,
        /// The verb.
        verb: &'static str,
    },
    /// A reconciler's lease.
    Reconcile {
        /// Its owner.
        owner: String,
    },
    /// An operation is looked at.
    Get {
        /// Which.
        operation: String,
    },
    /// An operation is registered.
    Register {
        /// Namespace and key.
        key: (&'static str, String),
    },
    /// Authority is issued.
    Issue {
        /// How many uses it has.
        uses: u64,
    },
    /// A capability is looked at.
    Capability {
        /// Which.
        capability: String,
    },
    /// A register of authority is looked at, or raised.
    Epoch {
        /// What it was expected to be, where it is raised.
        bump: Option<u64>,
    },
}

/// A call, and its answer if there was one.
#[derive(Debug, Clone)]
pub struct Call {
    /// When it was sent.
    pub at: u64,
    /// The node that it was sent to.
    pub node: u64,
    /// What for.
    pub what: What,
    /// When the answer arrived, its status and its body.
    pub answer: Option<(u64, u16, Value)>,
}

impl Call {
    /// When the answer arrived; never, where none did.
    pub fn end(&self) -> u64 {
        self.answer.as_ref().map_or(u64::MAX, |(end, _, _)| *end)
    }

    /// The body of an answer with this status.
    pub fn told(&self, status: u16) -> Option<&Value> {
        self.answer.as_ref().filter(|(_, found, _)| *found == status).map(|(_, _, body)| body)
    }

    /// The body of a success.
    pub fn success(&self) -> Option<&Value> {
        self.answer.as_ref().filter(|(_, status, _)| (200..300).contains(status)).map(|(_, _, body)| body)
    }

    /// The body of any answer that says how things are, rather than that the node cannot know.
    pub fn known(&self) -> Option<&Value> {
        let (_, status, body) = self.answer.as_ref()?;
        (!matches!(status, 408 | 429 | 500..)).then_some(body)
    }

    /// The answer as something that a quorum stands behind: neither an inability, nor marked as the node's own view.
    pub fn authoritative(&self) -> Option<&Value> {
        self.known().filter(|body| body["consistency"] != "local")
    }

    /// The problem's code, or the claim's result.
    pub fn verdict(&self) -> &str {
        let Some((_, _, body)) = &self.answer else { return "" };
        body["code"].as_str().or(body["result"].as_str()).unwrap_or_default()
    }
}

/// The revision that an answer carries.
pub fn revision(body: &Value) -> Option<[u64; 4]> {
    let mut numbers = [0; 4];
    let mut parts = body["revision"].as_str()?.split('.');
    for number in &mut numbers {
        *number = parts.next()?.parse().ok()?;
    }
    Some(numbers)
}

/// A lease that somebody was told to hold.
#[derive(Debug, Clone)]
pub struct Grant<'h> {
    /// The call.
    pub call: &'h Call,
    /// Namespace and key.
    pub key: &'h (&'static str, String),
    /// The claim that got it.
    pub claim_id: &'h str,
    /// The operation.
    pub operation: &'h str,
    /// The execution.
    pub execution: &'h str,
    /// The attempt.
    pub attempt: u64,
    /// Its epoch.
    pub epoch: u64,
}

/// Everything that was asked. Clones are the same history.
#[derive(Debug, Clone, Default)]
pub struct History(Arc<Mutex<Vec<Call>>>);

impl History {
    fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call that is about to be sent, and gives its number.
    pub fn begin(&self, node: u64, what: What) -> usize {
        let mut calls = self.calls();
        calls.push(Call { at: now_ms(), node, what, answer: None });
        calls.len() - 1
    }

    /// Notes the answer to a call.
    pub fn end(&self, number: usize, status: u16, body: Value) {
        if let Some(call) = self.calls().get_mut(number) {
            call.answer = Some((now_ms(), status, body));
        }
    }

    /// The calls so far.
    pub fn take(&self) -> Vec<Call> {
        self.calls().clone()
    }
}

/// The leases that were acknowledged to claimants.
pub fn grants(calls: &[Call]) -> Vec<Grant<'_>> {
    let granted = calls.iter().filter_map(|call| {
        let (What::Claim { key, claim_id, .. }, Some(body)) = (&call.what, call.told(201)) else { return None };
        Some(Grant {
            call,
            key,
            claim_id,
            operation: body["operation_id"].as_str()?,
            execution: body["execution_id"].as_str()?,
            attempt: body["attempt"].as_u64()?,
            epoch: body["lease_epoch"].as_u64()?,
        })
    });
    granted.collect()
}
