//! Authority epochs: `GET /v1/epochs/{scope}` and its bump. Whatever is bound to a lower value than its register
//! stands at is refused from the moment the bump is acknowledged.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::{INTEGER_MAX, Limits};
use crate::operation::Consistency;
use crate::request::{Body, Fields, Invalid, Kind, Known, reads, required};
use crate::text::{EpochScope, Revision};

/// The value of a register that something was decided under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EpochBinding {
    /// The register.
    pub scope: EpochScope,
    /// Its value; 0 where it was never bumped.
    pub value: u64,
}

impl EpochBinding {
    const FIELDS: Known = &[("scope", Kind::Plain), ("value", Kind::Plain)];

    /// Takes a field that is a binding.
    pub(crate) fn within(fields: &mut Fields, name: &'static str) -> Result<Option<EpochBinding>, Invalid> {
        fields.nested(name, EpochBinding::FIELDS, |fields| {
            Ok(EpochBinding {
                scope: required("scope", fields.text("scope")?)?,
                value: required("value", fields.integer("value", 0..=INTEGER_MAX.unsigned_abs())?)?,
            })
        })
    }
}

/// `POST /v1/epochs/{scope}/bump`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BumpRequest {
    /// Where the caller believes the register to stand; 0 where it was never bumped. Another value is a 412.
    pub expected: u64,
}

impl Body for BumpRequest {
    const FIELDS: Known = &[("expected", Kind::Plain)];

    fn take(fields: &mut Fields, _: &Limits) -> Result<BumpRequest, Invalid> {
        let expected = fields.integer("expected", 0..=INTEGER_MAX.unsigned_abs())?;
        Ok(BumpRequest { expected: required("expected", expected)? })
    }
}

reads!(BumpRequest);

/// Where a register stands: the answer to a read and to a bump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EpochView {
    /// The register.
    pub scope: EpochScope,
    /// Its value; 0 where it was never bumped. A bump makes it greater, not necessarily by one.
    pub value: u64,
    /// When this was true.
    pub revision: Revision,
    /// Present where this node answered from its own applied state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
}
