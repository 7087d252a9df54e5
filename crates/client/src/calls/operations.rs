//! Operations: registered, read, found, listed, repaired; and the record of evidence.

use std::time::Duration;

use hapax_api::batch::{BatchAnswer, BatchRequest};
use hapax_api::endpoints;
use hapax_api::evidence::{EvidencePage, EvidenceQuery};
use hapax_api::execution::Accepted;
use hapax_api::find::{ListQuery, LookupRequest, OperationPage};
use hapax_api::json::RawJson;
use hapax_api::operation::{Consistency, OperationQuery, OperationView};
use hapax_api::register::{RegisterRequest, Registered};
use hapax_api::repair::{RepairRequest, SupersedeRequest};
use hapax_api::text::{BusinessEpoch, Key, Namespace, OperationId};
use http::HeaderName;
use http::header::IF_NONE_MATCH;

use crate::client::{Client, Tagged, get, path, post, tagged, with_query};
use crate::outcome::Outcome;
use crate::transport::{Answered, Call, Identity};

const PREFER: HeaderName = HeaderName::from_static("prefer");

fn of(template: &str, id: &OperationId) -> String {
    path(template, "operation_id", id.as_str())
}

impl Client {
    /// `POST /v1/operations`.
    pub async fn register(&self, request: &RegisterRequest) -> Outcome<Registered> {
        self.change(endpoints::OPERATIONS.to_owned(), request).await
    }

    /// `POST /v1/batch`. Sent again, it is the same batch, and each item has the identity of its single call. Where an
    /// item has none that a second answer could show (a bump, a fence), its refusal in the answer may be its own doing.
    pub async fn batch(&self, request: &BatchRequest) -> Outcome<BatchAnswer> {
        self.change(endpoints::BATCH.to_owned(), request).await
    }

    /// The same, for a batch that was written elsewhere: the server reads it, and says what is wrong with it.
    pub async fn batch_as_written(&self, body: &RawJson) -> Outcome<BatchAnswer> {
        self.change(endpoints::BATCH.to_owned(), body).await
    }

    /// `GET /v1/operations/{id}`.
    pub async fn operation(&self, id: &OperationId) -> Outcome<Tagged<OperationView>> {
        self.read_tagged(of(endpoints::OPERATION, id)).await
    }

    /// `GET /v1/operations/{id}?consistency=local`: what the answering node has applied, which may be behind.
    pub async fn operation_local(&self, id: &OperationId) -> Outcome<Tagged<OperationView>> {
        let query = OperationQuery { consistency: Some(Consistency::Local) };
        self.read_tagged(with_query(&of(endpoints::OPERATION, id), &query.to_text())).await
    }

    /// `GET /v1/operations/{id}`, which waits up to `wait` (whole seconds) until the operation is no longer as
    /// `etag` says. `None` where it still is.
    pub async fn operation_change(
        &self,
        id: &OperationId,
        etag: &str,
        wait: Duration,
    ) -> Outcome<Option<Tagged<OperationView>>> {
        let headers = vec![(IF_NONE_MATCH, etag.to_owned()), (PREFER, format!("wait={}", wait.as_secs()))];
        let call = Call { wait, headers, ..get(of(endpoints::OPERATION, id)) };
        match self.transport().call(&call).await {
            Outcome::Done(Answered { value: None, .. }) => Outcome::Done(None),
            other => tagged(other).map(Some),
        }
    }

    /// `POST /v1/operations/lookup`: a page, empty where nothing is found.
    pub async fn lookup(&self, request: &LookupRequest) -> Outcome<OperationPage> {
        let call = post(endpoints::LOOKUP.to_owned(), request, Duration::ZERO);
        self.call(call.map(|call| Call { identity: Identity::Read, ..call })).await
    }

    /// `POST /v1/operations/lookup`, by key: at most one operation has it.
    pub async fn operation_by_key(
        &self,
        namespace: Namespace,
        key: Key,
        business_epoch: Option<BusinessEpoch>,
    ) -> Outcome<Option<OperationView>> {
        let found = self.lookup(&LookupRequest::by_key(namespace, key, business_epoch)).await;
        found.map(|page| page.operations.into_iter().next())
    }

    /// `GET /v1/operations`: one page, oldest first. The next one is asked for with its `next_cursor`.
    pub async fn operations(&self, query: &ListQuery) -> Outcome<OperationPage> {
        self.read(with_query(endpoints::OPERATIONS, &query.to_text())).await
    }

    /// `GET /v1/evidence`: one page, oldest first. The next one is asked for with its `next_cursor`.
    pub async fn evidence_record(&self, query: &EvidenceQuery) -> Outcome<EvidencePage> {
        self.read(with_query(endpoints::EVIDENCE_RECORD, &query.to_text())).await
    }

    /// `POST /v1/operations/{id}/quarantine`.
    pub async fn quarantine(&self, id: &OperationId, request: &RepairRequest) -> Outcome<Accepted> {
        self.change(of(endpoints::QUARANTINE, id), request).await
    }

    /// `POST /v1/operations/{id}/release`.
    pub async fn release(&self, id: &OperationId, request: &RepairRequest) -> Outcome<Accepted> {
        self.change(of(endpoints::RELEASE, id), request).await
    }

    /// `POST /v1/operations/{id}/supersede`.
    pub async fn supersede(&self, id: &OperationId, request: &SupersedeRequest) -> Outcome<Accepted> {
        self.change(of(endpoints::SUPERSEDE, id), request).await
    }

    /// `POST /v1/operations/{id}/close`.
    pub async fn close(&self, id: &OperationId, request: &RepairRequest) -> Outcome<Accepted> {
        self.change(of(endpoints::CLOSE, id), request).await
    }
}
