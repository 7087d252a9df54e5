//! A caller that shows what the wire said, without retries of its own: tests judge answers, they do not hide them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

/// How long a call may take: longer than any deadline of a node.
const CALL_WITHIN: Duration = Duration::from_secs(15);

/// A caller of one node.
#[derive(Debug, Clone)]
pub struct Caller {
    url: String,
    token: String,
    http: Client,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null where it was empty or is not JSON.
    pub body: Value,
    /// The body as it was sent.
    pub bytes: Bytes,
}

impl Answer {
    async fn read(sent: Response) -> Result<Self> {
        let (status, headers) = (sent.status(), sent.headers().clone());
        let bytes = sent.bytes().await?;
        Ok(Self { status, headers, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null), bytes })
    }

    /// A header as text; empty where it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// A field of the body as text; empty where it is absent.
    pub fn text(&self, field: &str) -> &str {
        self.body[field].as_str().unwrap_or_default()
    }

    /// The problem's code, or the claim's result.
    pub fn verdict(&self) -> &str {
        if self.status.is_success() { self.text("result") } else { self.text("code") }
    }

    /// The lease epoch.
    pub fn epoch(&self) -> u64 {
        self.body["lease_epoch"].as_u64().unwrap_or_default()
    }

    /// The answer itself, if it has this status and this verdict; where there is neither code nor result, that is "".
    ///
    /// # Errors
    /// It has not; the whole answer is part of the error.
    pub fn is(self, status: u16, verdict: &str) -> Result<Self> {
        ensure!(self.status.as_u16() == status && self.verdict() == verdict, "not {status} {verdict}: {self:?}");
        Ok(self)
    }

    /// The answer itself, if it is a success that tells of an operation in this state.
    ///
    /// # Errors
    /// It is not; the whole answer is part of the error.
    pub fn in_state(self, state: &str) -> Result<Self> {
        ensure!(self.status.is_success() && self.text("state") == state, "not {state}: {self:?}");
        Ok(self)
    }
}

/// A claim as the tests send it.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The namespace.
    pub namespace: &'static str,
    /// The key.
    pub key: String,
    /// The request bound to it.
    pub request: Value,
    /// The id of the call.
    pub claim_id: Uuid,
    /// The lease, in milliseconds.
    pub lease_ms: u64,
    /// How long to wait, in milliseconds.
    pub wait_ms: u64,
    /// Who will execute.
    pub owner: String,
    /// Further fields of the body: a capability, a message, an authority epoch, a resource.
    pub more: Value,
}

impl Claim {
    /// A claim of `key` in the namespace `default` with a fresh id.
    pub fn of(key: impl Into<String>) -> Self {
        let key = key.into();
        Self {
            namespace: "default",
            request: json!({ "key": key }),
            key,
            claim_id: Uuid::new_v4(),
            lease_ms: 60_000,
            wait_ms: 0,
            owner: "tests".to_owned(),
            more: json!({}),
        }
    }

    /// The same claim with one more field of the body.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.more[field] = value.into();
        self
    }

    /// The same claim as another call, in which its content may be said again.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { claim_id: Uuid::new_v4(), ..self.clone() }
    }
}

impl Caller {
    /// A caller of the node at `url`, with the token of a local cluster.
    ///
    /// # Panics
    /// No HTTP client can be made.
    pub fn new(url: &str) -> Self {
        let http = Client::builder().timeout(CALL_WITHIN).build().expect("an HTTP client without TLS");
        Self { url: url.to_owned(), token: "dev".to_owned(), http }
    }

    /// The same caller with another token.
    #[must_use]
    pub fn with_token(&self, token: impl Into<String>) -> Self {
        Self { token: token.into(), ..self.clone() }
    }

    /// The same caller with the token of another one, of another node for example.
    #[must_use]
    pub fn with_token_of(&self, other: &Self) -> Self {
        self.with_token(other.token.clone())
    }

    /// The node that is asked.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The public part of the token, where it has one.
    pub fn token_id(&self) -> Option<&str> {
        self.token.strip_prefix("hpx_")?.split('_').next()
    }

    /// The whole token, its secret too.
    pub fn token_text(&self) -> &str {
        &self.token
    }

    /// Sends a request as it is, with the caller's token.
    ///
    /// # Errors
    /// No answer arrived, or not a whole one.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Result<Answer> {
        let mut request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_owned());
        }
        Answer::read(request.send().await?).await
    }

    /// Sends a body to a path.
    ///
    /// # Errors
    /// No answer arrived, or not a whole one.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        let sent = self.http.post(format!("{}{path}", self.url)).bearer_auth(&self.token).json(body).send().await?;
        Answer::read(sent).await
    }

    /// Gets a path.
    ///
    /// # Errors
    /// No answer arrived, or not a whole one.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        let sent = self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.token).send().await?;
        Answer::read(sent).await
    }

    /// Gets a path whose answer is read as it comes, for at most `limit`.
    ///
    /// # Errors
    /// No answer began.
    pub async fn stream(&self, path: &str, limit: Duration) -> Result<Response> {
        Ok(self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.token).timeout(limit).send().await?)
    }

    /// Replaces, or makes, what is written under a version: `precondition` is `If-Match` or `If-None-Match` with its value.
    ///
    /// # Errors
    /// No answer arrived, or not a whole one.
    pub async fn put(&self, path: &str, precondition: (&str, &str), body: &Value) -> Result<Answer> {
        self.send(Method::PUT, path, &[precondition], Some(&body.to_string())).await
    }

    /// Claims.
    ///
    /// # Errors
    /// No answer arrived.
    pub async fn claim(&self, claim: &Claim) -> Result<Answer> {
        let mut body = json!({
            "namespace": claim.namespace,
            "key": claim.key,
            "request": claim.request,
            "claim_id": claim.claim_id,
            "lease_ms": claim.lease_ms,
            "wait_ms": claim.wait_ms,
            "owner": claim.owner,
        });
        for (name, value) in claim.more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        self.post("/v1/claims", &body).await
    }

    /// Renews a lease.
    ///
    /// # Errors
    /// No answer arrived.
    pub async fn renew(&self, execution: &str, epoch: u64, lease_ms: u64) -> Result<Answer> {
        self.post(
            &format!("/v1/executions/{execution}/renew"),
            &json!({ "lease_epoch": epoch, "lease_ms": lease_ms }),
        )
        .await
    }

    /// Reports an outcome with a result.
    ///
    /// # Errors
    /// No answer arrived.
    pub async fn report(&self, execution: &str, epoch: u64, outcome: &str) -> Result<Answer> {
        let mut body = json!({ "lease_epoch": epoch, "outcome": outcome });
        if outcome == "completed" {
            body["result"] = json!({ "by": execution });
        }
        self.post(&format!("/v1/executions/{execution}/outcome"), &body).await
    }

    /// An operation.
    ///
    /// # Errors
    /// No answer arrived.
    pub async fn operation(&self, id: &str) -> Result<Answer> {
        self.get(&format!("/v1/operations/{id}")).await
    }

    /// The node's view of its cluster.
    ///
    /// # Errors
    /// No answer arrived.
    pub async fn cluster(&self) -> Result<Value> {
        Ok(self.get("/v1/cluster").await?.body)
    }

    /// Whether the node says that it is ready.
    pub async fn ready(&self) -> bool {
        self.get("/readyz").await.is_ok_and(|answer| answer.status == StatusCode::OK)
    }
}

/// The call is answered within `limit`, and with nothing but "I cannot know".
///
/// # Errors
/// The node answered as if it knew, or too late.
pub async fn nothing(caller: &Caller, limit: Duration, call: impl AsyncFn(&Caller) -> Result<Answer>) -> Result<()> {
    let begun = Instant::now();
    let answer = call(caller).await?;
    let took = begun.elapsed();
    let known = matches!(
        (answer.status.as_u16(), answer.verdict()),
        (503, "store.unavailable" | "store.overloaded") | (504, "store.outcome-unknown")
    );
    ensure!(known, "a node that cannot know answered {answer:?}");
    ensure!(took < limit, "answered after {took:?}");
    Ok(())
}
