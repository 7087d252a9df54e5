//! `POST /v1/batch`: up to 256 calls in one body, each answered by itself, in order.
//!
//! Each item is read by the very reader of the single call, so that the two cannot disagree: an item is the single
//! call's body with `kind` and the ids of its path beside it, and as a whole no larger than a single body may be. A
//! key stands in the item, never in a header, and no item waits. A malformed item gets its own 400, whose pointer leads
//! into the batch, and the others go on; a malformed envelope fails the whole.

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::capability::{IssueBoundedRequest, IssueRequest, RevokeRequest};
use crate::claim::{Claim, ClaimRequest};
use crate::codes::Code;
use crate::endpoints;
use crate::epoch::BumpRequest;
use crate::execution::{EvidenceRequest, OutcomeRequest, RenewRequest, ResolveRequest};
use crate::json::{Cursor, RawJson};
use crate::limits::Limits;
use crate::problem::Problem;
use crate::reconcile::{EscalateRequest, FenceRequest, ReconcileRequest};
use crate::register::{Register, RegisterRequest};
use crate::repair::{RepairRequest, SupersedeRequest};
use crate::request::{Body, Fields, Invalid, Kind, Known, required};
use crate::text::{CapabilityId, EpochScope, ExecutionId, OperationId, words};

words! {
    /// What an item of a batch does.
    ItemKind {
        /// `POST /v1/claims`, without `wait_ms`.
        Claim = "claim",
        /// `POST /v1/operations`.
        Register = "register",
        /// `POST /v1/operations/{operation_id}/capabilities`.
        Issue = "issue",
        /// `POST /v1/capabilities`.
        IssueBounded = "issue_bounded",
        /// `POST /v1/capabilities/{capability_id}/revoke`.
        Revoke = "revoke",
        /// `POST /v1/executions/{execution_id}/renew`.
        Renew = "renew",
        /// `POST /v1/executions/{execution_id}/outcome`.
        Outcome = "outcome",
        /// `POST /v1/executions/{execution_id}/evidence`.
        Evidence = "evidence",
        /// `POST /v1/executions/{execution_id}/resolve`.
        Resolve = "resolve",
        /// `POST /v1/executions/{execution_id}/escalate`.
        Escalate = "escalate",
        /// `POST /v1/executions/{execution_id}/fence`.
        Fence = "fence",
        /// `POST /v1/operations/{operation_id}/quarantine`.
        Quarantine = "quarantine",
        /// `POST /v1/operations/{operation_id}/release`.
        Release = "release",
        /// `POST /v1/operations/{operation_id}/supersede`.
        Supersede = "supersede",
        /// `POST /v1/operations/{operation_id}/close`.
        Close = "close",
        /// `POST /v1/reconciliations/lease`.
        Reconcile = "reconcile",
        /// `POST /v1/epochs/{scope}/bump`.
        Bump = "bump",
    }
}

impl ItemKind {
    /// The path of the single call.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            ItemKind::Claim => endpoints::CLAIMS,
            ItemKind::Register => endpoints::OPERATIONS,
            ItemKind::Issue => endpoints::ISSUE,
            ItemKind::IssueBounded => endpoints::CAPABILITIES,
            ItemKind::Revoke => endpoints::REVOKE,
            ItemKind::Renew => endpoints::RENEW,
            ItemKind::Outcome => endpoints::OUTCOME,
            ItemKind::Evidence => endpoints::EVIDENCE,
            ItemKind::Resolve => endpoints::RESOLVE,
            ItemKind::Escalate => endpoints::ESCALATE,
            ItemKind::Fence => endpoints::FENCE,
            ItemKind::Quarantine => endpoints::QUARANTINE,
            ItemKind::Release => endpoints::RELEASE,
            ItemKind::Supersede => endpoints::SUPERSEDE,
            ItemKind::Close => endpoints::CLOSE,
            ItemKind::Reconcile => endpoints::RECONCILE,
            ItemKind::Bump => endpoints::BUMP,
        }
    }
}

/// One call of a batch; `C` and `R` are a claim and a registration as they are sent, or as they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<C, R> {
    /// Elect an executor.
    Claim(C),
    /// Make an operation known.
    Register(R),
    /// Issue a capability for one attempt.
    Issue(OperationId, IssueRequest),
    /// Issue a capability for a resource.
    IssueBounded(IssueBoundedRequest),
    /// Take a capability back.
    Revoke(CapabilityId, RevokeRequest),
    /// Go on holding a lease.
    Renew(ExecutionId, RenewRequest),
    /// Say what an execution came to, as its owner.
    Outcome(ExecutionId, OutcomeRequest),
    /// Say what it came to, as the one who lost it.
    Evidence(ExecutionId, EvidenceRequest),
    /// Say what it came to, with proof.
    Resolve(ExecutionId, ResolveRequest),
    /// Let it wait for people, or no longer.
    Escalate(ExecutionId, EscalateRequest),
    /// End its lease.
    Fence(ExecutionId, FenceRequest),
    /// Stop claims.
    Quarantine(OperationId, RepairRequest),
    /// Let claims go on.
    Release(OperationId, RepairRequest),
    /// Let another operation take its place.
    Supersede(OperationId, SupersedeRequest),
    /// End an operation that nobody executes.
    Close(OperationId, RepairRequest),
    /// Lease unknown executions.
    Reconcile(ReconcileRequest),
    /// Raise a register of authority.
    Bump(EpochScope, BumpRequest),
}

/// An item as it is sent.
pub type BatchItem = Item<ClaimRequest, RegisterRequest>;
/// An item as it was read: complete, and within every limit.
pub type ReadItem = Item<Claim, Register>;

impl<C, R> Item<C, R> {
    /// What it does.
    #[must_use]
    pub const fn kind(&self) -> ItemKind {
        match self {
            Item::Claim(_) => ItemKind::Claim,
            Item::Register(_) => ItemKind::Register,
            Item::Issue(..) => ItemKind::Issue,
            Item::IssueBounded(_) => ItemKind::IssueBounded,
            Item::Revoke(..) => ItemKind::Revoke,
            Item::Renew(..) => ItemKind::Renew,
            Item::Outcome(..) => ItemKind::Outcome,
            Item::Evidence(..) => ItemKind::Evidence,
            Item::Resolve(..) => ItemKind::Resolve,
            Item::Escalate(..) => ItemKind::Escalate,
            Item::Fence(..) => ItemKind::Fence,
            Item::Quarantine(..) => ItemKind::Quarantine,
            Item::Release(..) => ItemKind::Release,
            Item::Supersede(..) => ItemKind::Supersede,
            Item::Close(..) => ItemKind::Close,
            Item::Reconcile(_) => ItemKind::Reconcile,
            Item::Bump(..) => ItemKind::Bump,
        }
    }
}

/// Writes the ids of the path beside the body.
#[derive(Serialize)]
struct Written<'a, B> {
    kind: ItemKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation_id: Option<&'a OperationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_id: Option<&'a ExecutionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capability_id: Option<&'a CapabilityId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'a EpochScope>,
    #[serde(flatten)]
    body: &'a B,
}

impl<'a, B> Written<'a, B> {
    fn of(kind: ItemKind, body: &'a B) -> Written<'a, B> {
        Written { kind, operation_id: None, execution_id: None, capability_id: None, scope: None, body }
    }
}

impl Serialize for BatchItem {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fn operation<'a, B>(kind: ItemKind, id: &'a OperationId, body: &'a B) -> Written<'a, B> {
            Written { operation_id: Some(id), ..Written::of(kind, body) }
        }
        fn execution<'a, B>(kind: ItemKind, id: &'a ExecutionId, body: &'a B) -> Written<'a, B> {
            Written { execution_id: Some(id), ..Written::of(kind, body) }
        }
        let kind = self.kind();
        match self {
            Item::Claim(body) => Written::of(kind, body).serialize(serializer),
            Item::Register(body) => Written::of(kind, body).serialize(serializer),
            Item::IssueBounded(body) => Written::of(kind, body).serialize(serializer),
            Item::Reconcile(body) => Written::of(kind, body).serialize(serializer),
            Item::Issue(id, body) => operation(kind, id, body).serialize(serializer),
            Item::Supersede(id, body) => operation(kind, id, body).serialize(serializer),
            Item::Quarantine(id, body) | Item::Release(id, body) | Item::Close(id, body) => {
                operation(kind, id, body).serialize(serializer)
            }
            Item::Renew(id, body) => execution(kind, id, body).serialize(serializer),
            Item::Outcome(id, body) => execution(kind, id, body).serialize(serializer),
            Item::Evidence(id, body) => execution(kind, id, body).serialize(serializer),
            Item::Resolve(id, body) => execution(kind, id, body).serialize(serializer),
            Item::Escalate(id, body) => execution(kind, id, body).serialize(serializer),
            Item::Fence(id, body) => execution(kind, id, body).serialize(serializer),
            Item::Revoke(id, body) => {
                Written { capability_id: Some(id), ..Written::of(kind, body) }.serialize(serializer)
            }
            Item::Bump(scope, body) => {
                Written { scope: Some(scope), ..Written::of(kind, body) }.serialize(serializer)
            }
        }
    }
}

/// A batch as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BatchRequest {
    /// The calls, 1 to 256 of them.
    pub items: Vec<BatchItem>,
}

/// A batch as it was read: each item, or why it is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The items, in order.
    pub items: Vec<Result<ReadItem, Invalid>>,
}

impl Batch {
    /// Reads a body. The faults of an item are its own.
    ///
    /// # Errors
    /// [`Invalid`]: the envelope is wrong, too large, empty, or of too many items.
    pub fn read(body: &[u8], limits: &Limits) -> Result<Batch, Invalid> {
        if body.len() > limits.batch_bytes {
            let detail = format!("the body has more than {} bytes", limits.batch_bytes);
            return Err(Invalid { code: Code::RequestTooLarge, pointer: None, detail });
        }
        let mut cursor = Cursor::default();
        let mut reader = serde_json::Deserializer::from_slice(body);
        let read = reader.deserialize_any(Envelope { cursor: &mut cursor, most: limits.batch_items });
        let items = match read.and_then(|items| reader.end().map(|()| items)) {
            Ok(items) => items,
            Err(error) => return Err(cursor.fault(&error).into()),
        };
        let read = |(at, item): (usize, &RawValue)| {
            item_of(item.get().as_bytes(), limits).map_err(|invalid| invalid.under(&format!("/items/{at}")))
        };
        Ok(Batch { items: items.into_iter().enumerate().map(read).collect() })
    }
}

/// Reads `{"items": [...]}` without looking into the items.
struct Envelope<'c> {
    cursor: &'c mut Cursor,
    most: usize,
}

impl<'de> Visitor<'de> for Envelope<'_> {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        use serde::de::Error as _;
        let mut found: Option<Self::Value> = None;
        while let Some(name) = members.next_key::<String>()? {
            let mark = self.cursor.enter(&name);
            if name != "items" {
                return Err(A::Error::custom("the field is unknown"));
            }
            if found.is_some() {
                return Err(A::Error::custom("the field appears twice"));
            }
            found = Some(members.next_value_seed(Items { most: self.most })?);
            self.cursor.leave(mark);
        }
        let items = found.unwrap_or_default();
        if items.is_empty() {
            self.cursor.enter("items");
            return Err(A::Error::custom(format_args!("must be an array of 1 to {} items", self.most)));
        }
        Ok(items)
    }
}

struct Items {
    most: usize,
}

impl<'de> serde::de::DeserializeSeed<'de> for Items {
    type Value = Vec<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an array of 1 to {} items", self.most)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element::<&RawValue>()? {
            if items.len() == self.most {
                return Err(serde::de::Error::custom(format_args!("must be an array of 1 to {} items", self.most)));
            }
            items.push(item);
        }
        Ok(items)
    }
}

const KIND: Known = &[("kind", Kind::Plain)];
const OPERATION: Known = &[("kind", Kind::Plain), ("operation_id", Kind::Plain)];
const EXECUTION: Known = &[("kind", Kind::Plain), ("execution_id", Kind::Plain)];
const CAPABILITY: Known = &[("kind", Kind::Plain), ("capability_id", Kind::Plain)];
const SCOPE: Known = &[("kind", Kind::Plain), ("scope", Kind::Plain)];

/// One item, its kind looked for first: that says which fields it may have.
fn item_of(body: &[u8], limits: &Limits) -> Result<ReadItem, Invalid> {
    let kind = kind_of(body, limits)?;
    let one = One { body, limits };
    Ok(match kind {
        ItemKind::Claim => Item::Claim(one.claim()?),
        ItemKind::Register => Item::Register(one.alone()?),
        ItemKind::IssueBounded => Item::IssueBounded(one.alone()?),
        ItemKind::Reconcile => Item::Reconcile(one.alone()?),
        ItemKind::Issue => one.operation(Item::Issue)?,
        ItemKind::Quarantine => one.operation(Item::Quarantine)?,
        ItemKind::Release => one.operation(Item::Release)?,
        ItemKind::Supersede => one.operation(Item::Supersede)?,
        ItemKind::Close => one.operation(Item::Close)?,
        ItemKind::Renew => one.execution(Item::Renew)?,
        ItemKind::Outcome => one.execution(Item::Outcome)?,
        ItemKind::Evidence => one.execution(Item::Evidence)?,
        ItemKind::Resolve => one.execution(Item::Resolve)?,
        ItemKind::Escalate => one.execution(Item::Escalate)?,
        ItemKind::Fence => one.execution(Item::Fence)?,
        ItemKind::Revoke => {
            let (mut fields, body) = one.read(CAPABILITY)?;
            Item::Revoke(required("capability_id", fields.text("capability_id")?)?, body)
        }
        ItemKind::Bump => {
            let (mut fields, body) = one.read(SCOPE)?;
            Item::Bump(required("scope", fields.text("scope")?)?, body)
        }
    })
}

struct One<'a> {
    body: &'a [u8],
    limits: &'a Limits,
}

impl One<'_> {
    /// The body as the single call reads it, and what stands beside it.
    fn read<T: Body>(&self, beside: Known) -> Result<(Fields, T), Invalid> {
        let mut fields = Fields::read(self.body, &[beside, T::FIELDS], self.limits)?;
        let body = T::take(&mut fields, self.limits)?;
        Ok((fields, body))
    }

    fn alone<T: Body>(&self) -> Result<T, Invalid> {
        self.read(KIND).map(|(_, body)| body)
    }

    /// A batch is answered as a whole: an item that waits would keep all others from their answers.
    fn claim(&self) -> Result<Claim, Invalid> {
        let mut fields = Fields::read(self.body, &[KIND, Claim::FIELDS], self.limits)?;
        if fields.has("wait_ms") {
            return Err(Invalid::field("wait_ms", "has no place in a batch, which is answered as a whole"));
        }
        Claim::take(&mut fields, self.limits)
    }

    fn operation<T: Body>(&self, item: impl FnOnce(OperationId, T) -> ReadItem) -> Result<ReadItem, Invalid> {
        let (mut fields, body) = self.read(OPERATION)?;
        Ok(item(required("operation_id", fields.text("operation_id")?)?, body))
    }

    fn execution<T: Body>(&self, item: impl FnOnce(ExecutionId, T) -> ReadItem) -> Result<ReadItem, Invalid> {
        let (mut fields, body) = self.read(EXECUTION)?;
        Ok(item(required("execution_id", fields.text("execution_id")?)?, body))
    }
}

/// Finds the kind and passes over everything else, which is read afterwards.
fn kind_of(body: &[u8], limits: &Limits) -> Result<ItemKind, Invalid> {
    struct Find;

    impl<'de> Visitor<'de> for Find {
        type Value = Option<&'de RawValue>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
            let mut kind = None;
            while let Some(name) = members.next_key::<String>()? {
                if name == "kind" && kind.is_none() {
                    kind = Some(members.next_value()?);
                } else {
                    members.next_value::<IgnoredAny>()?;
                }
            }
            Ok(kind)
        }
    }

    if body.len() > limits.body_bytes {
        let detail = format!("the item has more than {} bytes", limits.body_bytes);
        return Err(Invalid { code: Code::RequestTooLarge, pointer: Some(String::new()), detail });
    }
    let found = serde_json::Deserializer::from_slice(body).deserialize_any(Find);
    let found = found.map_err(|error| Invalid::from(Cursor::default().fault(&error)))?;
    let kind = required("kind", found)?;
    let text: String = serde_json::from_str(kind.get()).map_err(|_| Invalid::field("kind", "must be a string"))?;
    text.parse().map_err(|wrong: crate::text::Malformed| Invalid::field("kind", wrong.0))
}

/// The answer to one item: what the single call would have been answered with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchResult {
    /// The HTTP status of the single call.
    #[schema(minimum = 200, maximum = 599)]
    pub status: u16,
    /// Its body: of the single call's type, or a problem.
    pub body: RawJson,
}

impl BatchResult {
    /// An answer on its way out.
    ///
    /// # Errors
    /// `body` cannot be written as JSON.
    pub fn new(status: u16, body: &impl Serialize) -> Result<BatchResult, serde_json::Error> {
        Ok(BatchResult { status, body: RawJson::of(body)? })
    }

    /// The answer as the single call's type, or the problem that it is.
    ///
    /// # Errors
    /// The body is neither, by its status.
    pub fn answer<T: for<'de> Deserialize<'de>>(&self) -> Result<Result<T, Problem>, serde_json::Error> {
        if (200..300).contains(&self.status) {
            serde_json::from_str(self.body.as_str()).map(Ok)
        } else {
            serde_json::from_str(self.body.as_str()).map(Err)
        }
    }
}

/// 200: every item was answered, however.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchAnswer {
    /// One for each item, in order.
    pub results: Vec<BatchResult>,
}
