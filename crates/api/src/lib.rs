//! The HTTP wire: request and answer types, problem codes, the canonical digest, limits and the OpenAPI document.
//! Nothing here stores or decides anything, and no type here is a command or a stored record.
//!
//! Requests are read by one strict parser ([`request`]): a duplicate name, an unknown field, a float or a
//! value outside its limit is refused with a JSON pointer, before anything is looked up. Answers are plain
//! serde types that a client reads leniently, so that a newer server may add a field.

pub mod endpoints;
pub mod request;

pub mod claim;
pub mod execution;
pub mod operation;

pub mod register;
pub mod capability;
pub mod epoch;

pub mod reconcile;
pub mod repair;
pub mod evidence;

pub mod batch;

pub mod find;
pub mod watch;

pub mod namespace;
pub mod tenant;
pub mod cluster;

pub mod codes;
pub mod problem;

pub mod digest;
pub mod json;

pub mod cursor;
pub mod query;

pub mod headers;
pub mod limits;
pub mod openapi;
pub mod text;
pub mod time;

pub use codes::{Code, ConflictStyle, Outcome as Certainty};
pub use limits::Limits;
pub use problem::Problem;
pub use request::Invalid;
