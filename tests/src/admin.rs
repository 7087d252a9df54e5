//! What the tests administer: tenants, namespaces with a policy, tokens; each made once, by whoever may.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use hapax_api::time::Instant;
use serde_json::{Value, json};

use crate::caller::{Answer, Caller};

/// The precondition of whatever is made and not replaced.
pub const ABSENT: (&str, &str) = ("if-none-match", "*");

/// Makes a tenant.
///
/// # Errors
/// It is not made.
pub async fn tenant(by: &Caller, name: &str, body: &Value) -> Result<Answer> {
    made(by.put(&format!("/v1/tenants/{name}"), ABSENT, body).await?)
}

/// Makes a namespace; `of` is its tenant where that is not the caller's.
///
/// # Errors
/// It is not made.
pub async fn namespace(by: &Caller, of: Option<&str>, name: &str, policy: &Value) -> Result<Answer> {
    let query = of.map(|tenant| format!("?tenant={tenant}")).unwrap_or_default();
    made(by.put(&format!("/v1/namespaces/{name}{query}"), ABSENT, policy).await?)
}

/// Makes a token and gives a caller of the same node with it; `of` is its tenant where that is not the caller's.
///
/// # Errors
/// It is not made.
pub async fn token(by: &Caller, of: Option<&str>, client: &str, roles: &[&str]) -> Result<Caller> {
    let mut body = json!({ "client": client, "roles": roles });
    if let Some(tenant) = of {
        body["tenant"] = json!(tenant);
    }
    let answer = made(by.post("/v1/tokens", &body).await?)?;
    Ok(by.with_token(answer.text("token")))
}

fn made(answer: Answer) -> Result<Answer> {
    ensure!(answer.status == 201, "not made: {answer:?}");
    Ok(answer)
}

/// Makes each of these nodes know everything that was acknowledged before this call.
///
/// # Errors
/// One cannot read.
pub async fn everybody_knows(nodes: &[Caller]) -> Result<()> {
    for node in nodes {
        // A linearizable read is answered from a state that has all of it.
        let read = node.get("/v1/epochs/known").await?;
        ensure!(read.status == 200, "{read:?}");
    }
    Ok(())
}

/// The instant this far from now, before it where negative, as the wire writes it.
pub fn from_now(from_now_ms: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    Instant(u64::try_from(now.saturating_add(from_now_ms)).unwrap_or_default()).to_string()
}

/// An instant of the wire in milliseconds since 1970; 0 where it is none.
pub fn millis(text: &str) -> u64 {
    text.parse::<Instant>().map_or(0, |instant| instant.0)
}
