//! The calls of deciders, reconcilers and operators, as a caller sends them; workers' calls are in `caller.rs`.

use anyhow::{Result, ensure};
use hapax_api::query::encoded;
use hapax_auth::Token;
use reqwest::Method;
use serde_json::{Value, json};

use crate::admin::from_now;
use crate::caller::{Answer, Caller, Claim};

/// A token of each node's configuration: its text, and the section that makes it good. No two have the same seed.
pub fn configured_token(seed: u8, tenant: &str, client: &str, roles: &[&str]) -> (String, String) {
    let token = Token::mint([seed; 10], [seed; 32]);
    let hash: String = token.secret_hash().iter().map(|byte| format!("{byte:02x}")).collect();
    let section = format!(
        "[[auth.tokens]]\nid = \"{}\"\nsecret_sha256 = \"{hash}\"\ntenant = \"{tenant}\"\nclient = \"{client}\"\n\
         roles = {roles:?}\n",
        token.id()
    );
    (token.to_text(), section)
}

impl Claim {
    /// The same claim, presenting a capability.
    #[must_use]
    pub fn presenting(self, capability: &str) -> Self {
        self.with("capability_id", capability)
    }

    /// The same claim, because of a message to the consumer `worker`.
    #[must_use]
    pub fn because_of(self, message: &str) -> Self {
        self.with("message", json!({ "consumer": "worker", "id": message }))
    }

    /// The same claim, decided under a value of a register of authority.
    #[must_use]
    pub fn under(self, scope: &str, value: u64) -> Self {
        self.with("epoch", json!({ "scope": scope, "value": value }))
    }
}

impl Caller {
    /// Registers the operation that `claim` would claim.
    ///
    /// # Errors
    /// No answer arrived.
    pub async fn register(&self, claim: &Claim) -> Result<Answer> {
        let mut body = json!({ "namespace": claim.namespace, "key": claim.key, "request": claim.request });
        for name in ["resource", "correlation_id", "business_epoch"] {
            if let Some(value) = claim.more.get(name) {
                body[name] = value.clone();
            }
        }
        self.post("/v1/operations", &body).await
    }

    /// Issues a capability for an attempt at an operation, good for an hour; `more` may say otherwise.
    ///
    /// # Errors
    /// No answer arrived.
    pub async fn issue(&self, operation: &str, decision: &str, attempt: u32, more: Value) -> Result<Answer> {
        let mut body = json!({ "decision_id": decision, "attempt": attempt, "expires_at": from_now(3_600_000) });
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        self.post(&format!("/v1/operations/{operation}/capabilities"), &body).await
    }

    /// Registers and issues what `claim` needs, and returns the operation and the capability.
    ///
    /// # Errors
    /// Either is refused.
    pub async fn approve(&self, claim: &Claim, decision: &str) -> Result<(String, String)> {
        let registered = self.register(claim).await?.is(201, "")?;
        let operation = registered.text("operation_id").to_owned();
        let issued = self.issue(&operation, decision, 1, json!({})).await?.is(201, "")?;
        Ok((operation, issued.text("capability_id").to_owned()))
    }

    /// A capability.
    ///
    /// # Errors
    /// No answer arrived.
    pub async fn capability(&self, id: &str) -> Result<Answer> {
        self.get(&format!("/v1/capabilities/{id}")).await
    }

    /// Checks that a capability stands so, with so many uses left.
    ///
    /// # Errors
    /// It does not.
    pub async fn capability_is(&self, id: &str, state: &str, uses_left: u64) -> Result<Answer> {
        let answer = self.capability(id).await?.in_state(state)?;
        ensure!(answer.body["uses_left"] == uses_left, "not {uses_left} uses left: {answer:?}");
        Ok(answer)
    }

    /// Late evidence of an ex-owner.
    ///
    /// # Errors
    /// No answer arrived.
    pub async fn evidence(&self, execution: &str, claim: &Claim, outcome: &str) -> Result<Answer> {
        let body = json!({ "claim_id": claim.claim_id, "outcome": outcome, "proof": format!("saw it {outcome}") });
        self.post(&format!("/v1/executions/{execution}/evidence"), &body).await
    }

    /// Leases unknown executions of a namespace.
    ///
    /// # Errors
    /// No answer arrived.
    pub async fn reconcile(&self, namespace: &str, owner: &str, limit: u64, lease_ms: u64) -> Result<Answer> {
        let body = json!({ "namespace": namespace, "owner": owner, "limit": limit, "lease_ms": lease_ms });
        self.post("/v1/reconciliations/lease", &body).await
    }

    /// Resolves an unknown execution with proof.
    ///
    /// # Errors
    /// No answer arrived.
    pub async fn resolve(&self, execution: &str, epoch: u64, outcome: &str, more: Value) -> Result<Answer> {
        let mut body = json!({ "lease_epoch": epoch, "outcome": outcome, "proof": "the provider's record" });
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        self.post(&format!("/v1/executions/{execution}/resolve"), &body).await
    }

    /// Sends a repair of an operation: quarantine, release, close.
    ///
    /// # Errors
    /// No answer arrived.
    pub async fn repair(&self, operation: &str, verb: &str, expected: &str) -> Result<Answer> {
        let body =
            json!({ "expected_state": expected, "reason": format!("to {verb}"), "proof": format!("{verb} form") });
        self.post(&format!("/v1/operations/{operation}/{verb}"), &body).await
    }

    /// Where a register of authority stands.
    ///
    /// # Errors
    /// It was not answered.
    pub async fn authority(&self, scope: &str) -> Result<u64> {
        let answer = self.get(&format!("/v1/epochs/{scope}")).await?.is(200, "")?;
        Ok(answer.body["value"].as_u64().unwrap_or_default())
    }

    /// Raises a register of authority.
    ///
    /// # Errors
    /// No answer arrived.
    pub async fn bump(&self, scope: &str, expected: u64) -> Result<Answer> {
        self.post(&format!("/v1/epochs/{scope}/bump"), &json!({ "expected": expected })).await
    }

    /// The record of evidence by one question, `name=value`; all pages, each of at most `limit` entries.
    ///
    /// # Errors
    /// A page is refused, or the cursor does not come to an end.
    pub async fn record(&self, name: &str, value: &str, limit: u64) -> Result<Vec<Value>> {
        // A message is named by its consumer too.
        let consumer = if name == "message_id" { "&consumer=worker" } else { "" };
        let question = format!("/v1/evidence?{name}={}{consumer}&limit={limit}", encoded(value));
        let (mut entries, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("{question}{cursor}")).await?.is(200, "")?;
            let found = page.body["entries"].as_array().cloned().unwrap_or_default();
            ensure!(found.len() as u64 <= limit, "{} entries on a page of {limit}", found.len());
            ensure!(!found.is_empty() || page.body["next_cursor"].is_null(), "an empty page that is not the last");
            entries.extend(found);
            match page.body["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(entries),
            }
        }
    }

    /// Waits until an operation no longer is as `tag` says, at most ten seconds, without asking for anything else.
    ///
    /// # Errors
    /// No answer arrived.
    pub async fn changed(&self, operation: &str, tag: &str) -> Result<Answer> {
        let headers = [("if-none-match", tag), ("prefer", "wait=10")];
        self.send(Method::GET, &format!("/v1/operations/{operation}"), &headers, None).await
    }
}
