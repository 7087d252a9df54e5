//! Authority: capabilities and authority epochs.

use hapax_api::capability::{CapabilityView, IssueBoundedRequest, IssueRequest, RevokeRequest};
use hapax_api::endpoints;
use hapax_api::epoch::{BumpRequest, EpochView};
use hapax_api::text::{CapabilityId, EpochScope, OperationId};

use crate::client::{Client, path};
use crate::outcome::Outcome;

impl Client {
    /// `POST /v1/operations/{id}/capabilities`.
    pub async fn issue(&self, id: &OperationId, request: &IssueRequest) -> Outcome<CapabilityView> {
        self.change(path(endpoints::ISSUE, "operation_id", id.as_str()), request).await
    }

    /// `POST /v1/capabilities`.
    pub async fn issue_bounded(&self, request: &IssueBoundedRequest) -> Outcome<CapabilityView> {
        self.change(endpoints::CAPABILITIES.to_owned(), request).await
    }

    /// `GET /v1/capabilities/{id}`.
    pub async fn capability(&self, id: &CapabilityId) -> Outcome<CapabilityView> {
        self.read(path(endpoints::CAPABILITY, "capability_id", id.as_str())).await
    }

    /// `POST /v1/capabilities/{id}/revoke`.
    pub async fn revoke(&self, id: &CapabilityId, request: &RevokeRequest) -> Outcome<CapabilityView> {
        self.change(path(endpoints::REVOKE, "capability_id", id.as_str()), request).await
    }

    /// `GET /v1/epochs/{scope}`.
    pub async fn epoch(&self, scope: &EpochScope) -> Outcome<EpochView> {
        self.read(path(endpoints::EPOCH, "scope", scope.as_str())).await
    }

    /// `POST /v1/epochs/{scope}/bump`. Where an attempt was lost, a failed precondition may be its own doing, and is
    /// [`Outcome::Unknown`]: a register that stands above `expected` has been bumped, by this call or another.
    pub async fn bump_epoch(&self, scope: &EpochScope, request: &BumpRequest) -> Outcome<EpochView> {
        self.change(path(endpoints::BUMP, "scope", scope.as_str()), request).await
    }
}
