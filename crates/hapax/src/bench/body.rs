//! The bodies that the generator sends, written by hand: it shares the cores with what it measures, so a body costs one
//! formatted write into a buffer that is used again.

use std::io::Write as _;

use uuid::{Builder, Uuid};

/// A buffer for bodies.
#[derive(Debug, Default)]
pub(super) struct Bodies(Vec<u8>);

impl Bodies {
    /// One call's body.
    pub(super) fn one(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        self.0.clear();
        write(&mut self.0);
        &self.0
    }

    /// A batch of claims.
    pub(super) fn batch<'c>(&mut self, claims: impl IntoIterator<Item = Claim<'c>>) -> &[u8] {
        self.one(|out| {
            out.extend_from_slice(b"{\"items\":[");
            for (number, claim) in claims.into_iter().enumerate() {
                out.extend_from_slice(if number == 0 { b"{\"kind\":\"claim\"," } else { b",{\"kind\":\"claim\"," });
                claim.fields(out);
                out.push(b'}');
            }
            out.extend_from_slice(b"]}");
        })
    }
}

/// What a claim says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim<'a> {
    pub(super) namespace: &'a str,
    pub(super) key: &'a str,
    pub(super) value: &'a str,
    /// A capability, and the message that brought it.
    pub(super) authority: Option<(&'a str, u64)>,
}

impl Claim<'_> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.fields(out);
        out.push(b'}');
    }

    fn fields(&self, out: &mut Vec<u8>) {
        let Claim { namespace, key, value, authority } = self;
        let id = claim_id();
        // Writing to memory cannot fail.
        let _ = write!(
            out,
            "\"namespace\":\"{namespace}\",\"key\":\"{key}\",\"claim_id\":\"{id}\",\"owner\":\"bench\",\"lease_ms\":600000,\
             \"request\":{{\"value\":\"{value}\"}}"
        );
        if let Some((capability, message)) = authority {
            let _ = write!(
                out,
                ",\"capability_id\":\"{capability}\",\"message\":{{\"consumer\":\"bench\",\"id\":\"{key}-{message}\"}}"
            );
        }
    }
}

/// A registration of the same request.
pub(super) fn register(claim: &Claim<'_>, out: &mut Vec<u8>) {
    let Claim { namespace, key, value, .. } = claim;
    let _ = write!(out, "{{\"namespace\":\"{namespace}\",\"key\":\"{key}\",\"request\":{{\"value\":\"{value}\"}}}}");
}

/// A decision for the first attempt, good for a long time.
pub(super) fn issue(out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"decision_id":"bench","attempt":1,"expires_at":"2099-01-01T00:00:00.000Z"}"#);
}

/// The report of an outcome.
pub(super) fn outcome(lease_epoch: u64, outcome: &str, result: Option<&str>, out: &mut Vec<u8>) {
    let _ = write!(out, "{{\"lease_epoch\":{lease_epoch},\"outcome\":\"{outcome}\"");
    if let Some(result) = result {
        let _ = write!(out, ",\"result\":{{\"receipt\":\"{result}\"}}");
    }
    out.push(b'}');
}

/// A random id without asking the system for randomness each time.
fn claim_id() -> Uuid {
    Builder::from_random_bytes(rand::random()).into_uuid()
}

/// Printable text of this length in no short period.
pub(super) fn noise(length: usize) -> String {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let letters = (0..length).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state % 26) as u8)
    });
    letters.collect()
}

/// A field of an answer that is a text without escapes, such as an id.
pub(super) fn text_field<'b>(body: &'b [u8], name: &str) -> Option<&'b str> {
    let body = std::str::from_utf8(body).ok()?;
    let from = body.find(&format!("\"{name}\":\""))? + name.len() + 4;
    body[from..].split('"').next()
}

/// A field of an answer that is a number.
pub(super) fn number_field(body: &[u8], name: &str) -> Option<u64> {
    let body = std::str::from_utf8(body).ok()?;
    let from = body.find(&format!("\"{name}\":"))? + name.len() + 3;
    let digits = body[from..].find(|c: char| !c.is_ascii_digit()).unwrap_or(body.len() - from);
    body[from..from + digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use hapax_api::Limits;
    use hapax_api::batch::Batch;
    use hapax_api::capability::IssueRequest;
    use hapax_api::execution::OutcomeRequest;
    use hapax_api::register::Register;

    use super::*;

    const CLAIM: Claim<'_> = Claim { namespace: "default", key: "k/1", value: "abc", authority: None };

    #[test]
    fn the_api_reads_what_is_written() {
        let limits = Limits::default();
        let mut bodies = Bodies::default();
        let capability = format!("cap_{}", "0".repeat(35));
        for authority in [None, Some((capability.as_str(), 7))] {
            let body = bodies.one(|out| Claim { authority, ..CLAIM }.write(out));
            let read = hapax_api::claim::Claim::read(body, None, &limits).expect("a claim");
            assert_eq!(read.capability_id.is_some(), authority.is_some());
        }
        Register::read(bodies.one(|out| register(&CLAIM, out)), None, &limits).expect("a registration");
        IssueRequest::read(bodies.one(issue), &limits).expect("a decision");
        for result in [None, Some("r")] {
            let body = bodies.one(|out| outcome(7, "completed", result, out));
            OutcomeRequest::read(body, &limits).expect("a report");
        }
        let body = bodies.batch([CLAIM, CLAIM, CLAIM]);
        let batch = Batch::read(body, &limits).expect("a batch");
        assert!(batch.items.len() == 3 && batch.items.iter().all(Result::is_ok));
    }

    #[test]
    fn fields_are_found() {
        let body = br#"{"result":"claimed","execution_id":"ex_1","lease_epoch":471,"x":{"y":1}}"#;
        assert_eq!(text_field(body, "execution_id"), Some("ex_1"));
        assert_eq!(number_field(body, "lease_epoch"), Some(471));
        assert_eq!(number_field(b"{\"n\":12", "n"), Some(12));
        assert_eq!((text_field(body, "absent"), number_field(body, "result")), (None, None));
    }
}
