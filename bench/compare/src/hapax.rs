//! Hapax's requests: a claim, many of them in a batch, the claim of a completed key, and the status of its operation.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use uuid::Uuid;

use crate::client::{Done, count};
use crate::http1::Http1;

/// Claims in one batch.
pub const BATCH_ITEMS: usize = 128;
/// Completed keys that each client asks for in turn.
pub const COMPLETED_KEYS: usize = 4;

/// A connection to one node.
pub struct Hapax {
    http: Http1,
    value: String,
}

impl Hapax {
    /// Connects.
    pub async fn connect(target: SocketAddr, token: &str, value: String) -> anyhow::Result<Hapax> {
        let http = Http1::connect(target, &format!("authorization: Bearer {token}\r\n")).await?;
        Ok(Hapax { http, value })
    }

    /// The members of a claim, without the braces: never with a `claim_id` that was used before.
    fn members(&self, key: &str) -> String {
        let (claim_id, value) = (Uuid::new_v4(), &self.value);
        format!(
            r#""namespace":"default","key":"{key}","claim_id":"{claim_id}","owner":"bench","lease_ms":600000,"request":{{"value":"{value}"}}"#
        )
    }

    /// Claims a fresh key.
    pub async fn claim(&mut self, key: &str) -> anyhow::Result<Done> {
        self.elected(key).await?;
        Ok(Done { created: 1, ..Done::default() })
    }

    /// The answer to a claim that must elect this caller.
    async fn elected(&mut self, key: &str) -> anyhow::Result<&[u8]> {
        let body = format!("{{{}}}", self.members(key));
        let (status, answer) = self.http.post("/v1/claims", &body).await?;
        let claimed = status == 201 && count(answer, r#""result":"claimed""#) == 1;
        ensure!(claimed, "not claimed: {status} {}", String::from_utf8_lossy(answer));
        Ok(answer)
    }

    /// Claims [`BATCH_ITEMS`] fresh keys with one request.
    pub async fn batch(&mut self, prefix: &str) -> anyhow::Result<Done> {
        let items: Vec<String> = (0..BATCH_ITEMS)
            .map(|item| format!(r#"{{"kind":"claim",{}}}"#, self.members(&format!("{prefix}-{item}"))))
            .collect();
        let body = format!(r#"{{"items":[{}]}}"#, items.join(","));
        let (status, answer) = self.http.post("/v1/batch", &body).await?;
        let claimed = count(answer, r#""status":201,"body":{"result":"claimed""#);
        let all = status == 200 && claimed == BATCH_ITEMS;
        ensure!(all, "{claimed} of {BATCH_ITEMS} claimed: {status} {}", String::from_utf8_lossy(answer));
        Ok(Done { created: BATCH_ITEMS as u64, ..Done::default() })
    }

    /// Claims a fresh key and reports it completed, with the value as its result. Returns the operation's id.
    pub async fn complete(&mut self, key: &str) -> anyhow::Result<String> {
        let grant = std::str::from_utf8(self.elected(key).await?)?;
        let operation = field(grant, r#""operation_id":""#, '"').context("no operation_id")?.to_owned();
        let execution = field(grant, r#""execution_id":""#, '"').context("no execution_id")?;
        let epoch = field(grant, r#""lease_epoch":"#, ',').context("no lease_epoch")?;
        let path = format!("/v1/executions/{execution}/outcome");
        let report = format!(r#"{{"lease_epoch":{epoch},"outcome":"completed","result":{{"value":""#);
        let body = format!(r#"{report}{}"}}}}"#, self.value);
        let (status, answer) = self.http.post(&path, &body).await?;
        ensure!(status == 200, "not completed: {status} {}", String::from_utf8_lossy(answer));
        Ok(operation)
    }

    /// Claims a completed key: the receipt must come back, and it tells where it was read.
    pub async fn replay(&mut self, key: &str) -> anyhow::Result<Done> {
        let body = format!("{{{}}}", self.members(key));
        let (status, answer) = self.http.post("/v1/claims", &body).await?;
        let replayed = status == 200 && count(answer, r#""result":"replayed""#) == 1;
        ensure!(replayed, "not replayed: {status} {}", String::from_utf8_lossy(answer));
        let local = count(answer, r#""consistency":"local""#) as u64;
        Ok(Done { created: 0, found: 1, local })
    }

    /// Reads the status of a completed operation: a read that a quorum confirms.
    pub async fn read(&mut self, operation: &str) -> anyhow::Result<Done> {
        let (status, answer) = self.http.get(&format!("/v1/operations/{operation}")).await?;
        let completed = status == 200 && count(answer, r#""state":"completed""#) >= 1;
        ensure!(completed, "not read as completed: {status} {}", String::from_utf8_lossy(answer));
        let local = count(answer, r#""consistency":"local""#) as u64;
        Ok(Done { created: 0, found: 1, local })
    }
}

/// What stands between `before` and the next `end`.
fn field<'a>(text: &'a str, before: &str, end: char) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(end).map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn a_grant_is_read() {
        let grant = r#"{"result":"claimed","execution_id":"ex_1","attempt":1,"lease_epoch":47,"effect_key":"op-a1"}"#;
        assert_eq!(field(grant, r#""execution_id":""#, '"'), Some("ex_1"));
        assert_eq!(field(grant, r#""lease_epoch":"#, ','), Some("47"));
        assert_eq!(field(grant, r#""missing":""#, '"'), None);
    }
}
