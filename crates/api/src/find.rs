//! Finding operations: the look-up by key, provider's id or resource, and the lists by state, oldest first.
//! A key is in a body, so that no access log holds it. What is not there is an empty page, whatever it was asked by.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cursor::Cursor;
use crate::limits::{self, Limits};
use crate::operation::OperationView;
use crate::query::{Query, Writer};
use crate::request::{Body, Fields, Invalid, Kind, Known, reads, required};
use crate::text::{BusinessEpoch, Key, Label, Namespace, Resource, Revision, words};
use crate::time::Instant;

/// `POST /v1/operations/lookup`: exactly one of `key`, `external_id` and `resource`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LookupRequest {
    /// The namespace.
    pub namespace: Namespace,
    /// The key; at most one operation has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// The business epoch that the key was claimed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub business_epoch: Option<BusinessEpoch>,
    /// The provider's own id of the effect, as an outcome reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_id: Option<Label>,
    /// The business entity that the operation is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// Items on the page; 100 where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 500)]
    pub limit: Option<u64>,
    /// Where an earlier page of the same look-up ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
}

impl LookupRequest {
    /// A look-up by key.
    #[must_use]
    pub fn by_key(namespace: Namespace, key: Key, business_epoch: Option<BusinessEpoch>) -> LookupRequest {
        LookupRequest { key: Some(key), business_epoch, ..LookupRequest::in_namespace(namespace) }
    }

    /// A look-up by the provider's own id.
    #[must_use]
    pub fn by_external_id(namespace: Namespace, external_id: Label) -> LookupRequest {
        LookupRequest { external_id: Some(external_id), ..LookupRequest::in_namespace(namespace) }
    }

    /// A look-up by business entity.
    #[must_use]
    pub fn by_resource(namespace: Namespace, resource: Resource) -> LookupRequest {
        LookupRequest { resource: Some(resource), ..LookupRequest::in_namespace(namespace) }
    }

    fn in_namespace(namespace: Namespace) -> LookupRequest {
        LookupRequest {
            namespace,
            key: None,
            business_epoch: None,
            external_id: None,
            resource: None,
            limit: None,
            cursor: None,
        }
    }
}

/// What a look-up goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupBy {
    /// The caller's key.
    Key {
        /// The key.
        key: Key,
        /// The business epoch.
        business_epoch: Option<BusinessEpoch>,
    },
    /// The provider's own id.
    ExternalId(Label),
    /// The business entity.
    Resource(Resource),
}

/// A look-up as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The namespace.
    pub namespace: Namespace,
    /// What it goes by.
    pub by: LookupBy,
    /// Items on the page.
    pub limit: u64,
    /// Where an earlier page ended.
    pub cursor: Option<Cursor>,
}

impl Body for Lookup {
    const FIELDS: Known = &[
        ("namespace", Kind::Plain),
        ("key", Kind::Plain),
        ("business_epoch", Kind::Plain),
        ("external_id", Kind::Plain),
        ("resource", Kind::Plain),
        ("limit", Kind::Plain),
        ("cursor", Kind::Plain),
    ];

    fn take(fields: &mut Fields, limits: &Limits) -> Result<Lookup, Invalid> {
        let namespace = required("namespace", fields.text("namespace")?)?;
        let by_key: Option<Key> = fields.text("key")?;
        let business_epoch = fields.text("business_epoch")?;
        let by = match (by_key, fields.text("external_id")?, fields.text("resource")?) {
            (Some(key), None, None) => LookupBy::Key { key, business_epoch },
            (None, Some(_), None) | (None, None, Some(_)) if business_epoch.is_some() => {
                return Err(Invalid::field("business_epoch", "belongs to key, which is absent"));
            }
            (None, Some(external_id), None) => LookupBy::ExternalId(external_id),
            (None, None, Some(resource)) => LookupBy::Resource(resource),
            (None, None, None) => return Err(Invalid::field("key", "is required, or external_id, or resource")),
            (Some(_), Some(_), _) | (None, Some(_), Some(_)) => {
                return Err(Invalid::field("external_id", "excludes key and resource"));
            }
            (Some(_), None, Some(_)) => return Err(Invalid::field("resource", "excludes key and external_id")),
        };
        let limit = fields.integer("limit", 1..=limits.page_items)?;
        Ok(Lookup {
            namespace,
            by,
            limit: limit.unwrap_or(limits::PAGE_ITEMS_DEFAULT.min(limits.page_items)),
            cursor: fields.text("cursor")?,
        })
    }
}

reads!(Lookup);

words! {
    /// A set of operations that can be listed, oldest first.
    ListState {
        /// Known, and nobody was elected yet.
        Requested = "requested",
        /// An executor is at work.
        Executing = "executing",
        /// The outcome is unknown, without those that wait for people.
        Unknown = "unknown",
        /// The outcome is unknown, and they wait for people.
        Escalated = "escalated",
        /// The last attempt certainly did nothing.
        NotApplied = "not_applied",
        /// The effect happened.
        Completed = "completed",
        /// The effect was rejected for good, or the operation was closed.
        Failed = "failed",
        /// Claims are stopped, whatever the state.
        Quarantined = "quarantined",
    }
}

/// The query of `GET /v1/operations`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// The namespace.
    pub namespace: Namespace,
    /// The set.
    pub state: ListState,
    /// Only those that are in the set since before this instant.
    pub older_than: Option<Instant>,
    /// Items on the page.
    pub limit: Option<u64>,
    /// Where an earlier page of the same list ended.
    pub cursor: Option<Cursor>,
}

impl ListQuery {
    /// The first page of a list.
    #[must_use]
    pub fn new(namespace: Namespace, state: ListState) -> ListQuery {
        ListQuery { namespace, state, older_than: None, limit: None, cursor: None }
    }

    /// Reads a query string; `limit` is there afterwards.
    ///
    /// # Errors
    /// [`Invalid`] names the first parameter that is wrong.
    pub fn read(query: &str, limits: &Limits) -> Result<ListQuery, Invalid> {
        let mut query = Query::read(query, &["namespace", "state", "older_than", "limit", "cursor"])?;
        Ok(ListQuery {
            namespace: query.required("namespace")?,
            state: query.required("state")?,
            older_than: query.parsed("older_than")?,
            limit: Some(query.limit(limits)?),
            cursor: query.parsed("cursor")?,
        })
    }

    /// The query string, without its question mark.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut query = Writer::default();
        query.put("namespace", &self.namespace);
        query.put("state", self.state);
        query.optional("older_than", self.older_than);
        query.optional("limit", self.limit);
        query.optional("cursor", self.cursor.as_ref());
        query.finish()
    }
}

/// A page of operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationPage {
    /// The operations, in the order of the list.
    pub operations: Vec<OperationView>,
    /// Where the next page begins; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
    /// When this was true.
    pub revision: Revision,
}
