//! Every limit of the wire, in one place: the ceilings, and the values that a node may lower.
//! A node that lowers one refuses earlier; none can be raised, because stored records rely on them.

use thiserror::Error;

/// Characters in an idempotency key; at least one, visible ASCII.
pub const KEY_CHARS_MAX: usize = 255;
/// Bytes in a request body.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of an inline result after insignificant white space is removed; beyond it a reference and a digest.
pub const RESULT_BYTES_MAX: usize = 16 * 1024;
/// Longest wait of a claim or a long poll, in milliseconds.
pub const WAIT_MS_MAX: u64 = 60_000;
/// Shortest lease, in milliseconds.
pub const LEASE_MS_MIN: u64 = 1_000;
/// Longest lease, in milliseconds.
pub const LEASE_MS_MAX: u64 = 15 * 60 * 1_000;
/// Lease of a claim that names none, in milliseconds.
pub const LEASE_MS_DEFAULT: u64 = 60_000;
/// Arrays and objects inside one another, in any one field of a request.
pub const JSON_DEPTH_MAX: usize = 64;
/// Largest magnitude of an integer: what every JSON implementation represents exactly, 2^53 − 1.
pub const INTEGER_MAX: i64 = (1 << 53) - 1;
/// Characters in a namespace name.
pub const NAMESPACE_CHARS_MAX: usize = 64;
/// Characters in a business epoch.
pub const BUSINESS_EPOCH_CHARS_MAX: usize = 64;
/// Characters in an operation version or a result's schema version.
pub const VERSION_CHARS_MAX: usize = 64;
/// Characters in an owner, a correlation id or a provider's own id.
pub const LABEL_CHARS_MAX: usize = 255;
/// Bytes of a reason, or of a reference to a result kept elsewhere.
pub const REASON_BYTES_MAX: usize = 1_024;
/// Bytes of a proof; a longer one is kept elsewhere and named here.
pub const PROOF_BYTES_MAX: usize = 4_096;
/// Characters in an operation, execution, capability or token id.
pub const ID_CHARS_MAX: usize = 128;
/// Characters in a whole token.
pub const TOKEN_CHARS_MAX: usize = 255;
/// Characters in a cursor.
pub const CURSOR_CHARS_MAX: usize = 512;
/// Bytes of the position inside a cursor.
pub const CURSOR_POSITION_BYTES_MAX: usize = 256;
/// Items of one page.
pub const PAGE_ITEMS_MAX: u64 = 500;
/// Items of a page where the caller names no limit.
pub const PAGE_ITEMS_DEFAULT: u64 = 100;
/// Items of one batch; at least one.
pub const BATCH_ITEMS_MAX: usize = 256;
/// Bytes in the body of a batch.
pub const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Uses of one bounded-use capability, at most; at least two, because one use is bound to an operation instead.
pub const USES_MAX: u64 = 1_000_000;
/// Executions that one call leases for reconciliation.
pub const RECONCILE_ITEMS_MAX: u64 = 100;
/// Shortest retention, in milliseconds.
pub const RETENTION_MS_MIN: u64 = 60_000;
/// Longest retention, in milliseconds: a hundred years.
pub const RETENTION_MS_MAX: u64 = 100 * 366 * 24 * 60 * 60 * 1_000;
/// Partitions of one namespace: the number of slots.
pub const PARTITIONS_MAX: u64 = 4_096;
/// Names of fields that a namespace leaves out of the digest.
pub const TRANSPORT_FIELDS_MAX: usize = 64;
/// Namespaces that one token names.
pub const TOKEN_NAMESPACES_MAX: usize = 256;
/// Any rate or quota that a policy sets.
pub const QUOTA_MAX: u64 = 1_000_000_000;
/// Bytes in a query.
pub const QUERY_BYTES_MAX: usize = 4_096;
/// Bytes of a problem's `pointer` or `detail`: what a caller sent is not echoed at length.
pub const ECHO_BYTES_MAX: usize = 256;

/// The limits that one node applies: the ceilings above, or lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in a request body.
    pub body_bytes: usize,
    /// Characters in a key.
    pub key_chars: usize,
    /// Bytes of an inline result.
    pub result_bytes: usize,
    /// Longest wait, in milliseconds.
    pub wait_ms: u64,
    /// Longest lease, in milliseconds.
    pub lease_ms: u64,
    /// Items in a batch.
    pub batch_items: usize,
    /// Bytes in the body of a batch.
    pub batch_bytes: usize,
    /// Items on a page.
    pub page_items: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: BODY_BYTES_MAX,
            key_chars: KEY_CHARS_MAX,
            result_bytes: RESULT_BYTES_MAX,
            wait_ms: WAIT_MS_MAX,
            lease_ms: LEASE_MS_MAX,
            batch_items: BATCH_ITEMS_MAX,
            batch_bytes: BATCH_BYTES_MAX,
            page_items: PAGE_ITEMS_MAX,
        }
    }
}

/// A configured limit outside its range.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("limits.{name} is {value}; it must be between {least} and {most}")]
pub struct OutOfRange {
    /// The limit's configuration name.
    pub name: &'static str,
    /// The value asked for.
    pub value: u64,
    /// The least value allowed.
    pub least: u64,
    /// The greatest value allowed: the ceiling.
    pub most: u64,
}

impl Limits {
    /// Refuses a limit raised above its ceiling, or lowered until nothing works.
    ///
    /// # Errors
    /// [`OutOfRange`] names the first limit that is wrong.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let rows = [
            ("body_bytes", self.body_bytes as u64, 1_024, BODY_BYTES_MAX as u64),
            ("key_chars", self.key_chars as u64, 1, KEY_CHARS_MAX as u64),
            ("result_bytes", self.result_bytes as u64, 0, RESULT_BYTES_MAX as u64),
            ("wait_ms", self.wait_ms, 0, WAIT_MS_MAX),
            ("lease_ms", self.lease_ms, LEASE_MS_MIN, LEASE_MS_MAX),
            ("batch_items", self.batch_items as u64, 1, BATCH_ITEMS_MAX as u64),
            ("batch_bytes", self.batch_bytes as u64, 1_024, BATCH_BYTES_MAX as u64),
            ("page_items", self.page_items, 1, PAGE_ITEMS_MAX),
        ];
        for (name, value, least, most) in rows {
            if value < least || value > most {
                return Err(OutOfRange { name, value, least, most });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_only_go_down() {
        assert_eq!(Limits::default().check(), Ok(()));
        assert_eq!(Limits { wait_ms: 0, ..Limits::default() }.check(), Ok(()));
        let raised = Limits { key_chars: 256, ..Limits::default() };
        assert_eq!(raised.check().unwrap_err().name, "key_chars");
        let useless = Limits { lease_ms: 999, ..Limits::default() };
        assert_eq!(
            useless.check().unwrap_err().to_string(),
            "limits.lease_ms is 999; it must be between 1000 and 900000"
        );
    }
}
