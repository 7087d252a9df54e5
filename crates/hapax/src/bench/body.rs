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

    /// A batch of calls of one kind, each written by its fields.
    pub(super) fn batch<W: FnOnce(&mut Vec<u8>)>(&mut self, kind: &str, items: impl IntoIterator<Item = W>) -> &[u8] {
        self.one(|out| {
            out.extend_from_slice(b"{\"items\":[");
            for (number, fields) in items.into_iter().enumerate() {
                let comma = if number == 0 { "" } else { "," };
                let _ = write!(out, "{comma}{{\"kind\":\"{kind}\",");
                fields(out);
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

    pub(super) fn fields(&self, out: &mut Vec<u8>) {
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
    out.push(b'{');
    outcome_fields(lease_epoch, outcome, result, out);
    out.push(b'}');
}

/// What stands in it.
pub(super) fn outcome_fields(lease_epoch: u64, outcome: &str, result: Option<&str>, out: &mut Vec<u8>) {
    let _ = write!(out, "\"lease_epoch\":{lease_epoch},\"outcome\":\"{outcome}\"");
    if let Some(result) = result {
        let _ = write!(out, ",\"result\":{{\"receipt\":\"{result}\"}}");
    }
}

/// The report of a completed execution in a batch.
pub(super) fn report_fields(execution: &str, lease_epoch: u64, result: Option<&str>, out: &mut Vec<u8>) {
    let _ = write!(out, "\"execution_id\":\"{execution}\",");
    outcome_fields(lease_epoch, "completed", result, out);
}

/// A random id without asking the system for randomness each time.
fn claim_id() -> Uuid {
    Builder::from_random_bytes(rand::random()).into_uuid()
}

const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

/// Printable text of this length in no short period.
pub(super) fn noise(length: usize) -> String {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let letters = (0..length).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(LETTERS[(state >> 58) as usize])
    });
    letters.collect()
}

/// Results of one length that are alike in nothing, so that a store cannot press many of them into one.
#[derive(Debug)]
pub(super) struct Results {
    pool: String,
    length: usize,
}

impl Results {
    /// Much more than a store presses together at a time.
    const POOL: usize = 4 << 20;

    pub(super) fn of(length: usize) -> Results {
        Results { pool: noise(Self::POOL + length), length }
    }

    /// One of them.
    pub(super) fn draw(&self) -> &str {
        let from = rand::random_range(0..=Self::POOL);
        &self.pool[from..from + self.length]
    }
}

/// A field of an answer that is a text without escapes, such as an id.
pub(super) fn text_field<'b>(body: &'b [u8], name: &str) -> Option<&'b str> {
    let body = std::str::from_utf8(body).ok()?;
    let from = body.find(&format!("\"{name}\":\""))? + name.len() + 4;
    body[from..].split('"').next()
}

/// Everything in an answer from each place on where a field of this name begins that is a text.
pub(super) fn each_with<'b>(body: &'b [u8], name: &str) -> impl Iterator<Item = &'b [u8]> {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let wanted = format!("\"{name}\":\"");
    let places: Vec<usize> = text.match_indices(&wanted).map(|(at, _)| at).collect();
    places.into_iter().map(move |at| &body[at..])
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
        let claims = bodies.batch("claim", [CLAIM; 3].map(|claim| move |out: &mut Vec<u8>| claim.fields(out)));
        let batch = Batch::read(claims, &limits).expect("a batch");
        assert!(batch.items.len() == 3 && batch.items.iter().all(Result::is_ok));
        let execution = format!("ex_{}", uuid::Uuid::nil());
        let reports = bodies.batch(
            "outcome",
            [None, Some("r")].map(|result| {
                let execution = &execution;
                move |out: &mut Vec<u8>| report_fields(execution, 7, result, out)
            }),
        );
        let batch = Batch::read(reports, &limits).expect("a batch");
        assert!(batch.items.len() == 2 && batch.items.iter().all(Result::is_ok), "{batch:?}");
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
