//! What rows cost. Ten million stored operations and 26,000 claims a second on three replicas stand behind these numbers: a
//! change that raises one says why. The table is the document's own, so that it shows nothing but what was measured.

use super::samples::{self, authority};
use super::*;

const DOCUMENT: &str = include_str!("../../../../docs/adr/0006-encoding.md");

fn completed(has_result: bool) -> Vec<u8> {
    let mut record = samples::completed();
    let outcome = record.execution.as_mut().and_then(|execution| execution.outcome.as_mut());
    outcome.expect("the sample is completed").has_result = has_result;
    bytes_of(encode_operation, &record)
}

fn events(count: usize) -> Vec<u8> {
    let started = authority::events().remove(0);
    bytes_of(|all: &Vec<_>, out| encode_events(all, out), &vec![started; count])
}

fn measured() -> String {
    let terminal = completed(true).len();
    let body = bytes_of(|body: &Vec<u8>, out| encode_body(body, out), &vec![0; 200]).len();
    let rows = [
        ("plain claim, in the log", bytes_of(encode_envelope, &samples::claim()).len()),
        ("operation, executing", bytes_of(encode_operation, &samples::operation()).len()),
        ("operation, completed without a body", completed(false).len()),
        ("operation, completed with a body of 200 bytes", terminal),
        ("that body, a row of its own", body),
        ("execution, the newest attempt", bytes_of(encode_execution, &samples::execution_row()).len()),
        ("execution, a past attempt", bytes_of(encode_execution, &samples::past_execution_row()).len()),
        ("grant, a claim that was superseded", bytes_of(encode_grant, &samples::grant_row()).len()),
        ("evidence, every field set", bytes_of(encode_evidence, &samples::evidence()).len()),
        ("capability, issued", bytes_of(encode_capability, &authority::capability()).len()),
        ("capability, consumed, bound to a register", bytes_of(encode_capability, &authority::consumed()).len()),
        ("decision", bytes_of(encode_decision, &authority::decision()).len()),
        ("use of a bounded capability", bytes_of(encode_use, &authority::use_row()).len()),
        ("inbox, a delivery that presented a capability", bytes_of(encode_inbox, &authority::inbox()).len()),
        ("refusal, every field set", bytes_of(encode_refusal, &authority::refusal()).len()),
        ("events, an entry of one event", events(1).len()),
        ("events, each further event of the entry", events(2).len() - events(1).len()),
    ];
    rows.map(|(row, len)| format!("| {row} | {len} |\n")).concat()
}

#[test]
fn sizes_are_documented_as_measured() {
    let (_, after) = DOCUMENT.split_once("| value | bytes |\n|---|---|\n").expect("the document has the table");
    let documented: String =
        after.lines().take_while(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect();
    let now = measured();
    assert!(now == documented, "docs/adr/0006-encoding.md shows other sizes; measured are:\n{now}");
}

#[test]
fn a_body_costs_its_operation_nothing() {
    assert_eq!(completed(true).len(), completed(false).len());
}
