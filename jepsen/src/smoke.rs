//! A small workload that drives a run: callers claim keys of their own and keys that they share.
//! Its checkers look at grants and at the end only; they do not replace the checkers of a full workload.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::history::{Event, History, Kind, Node, Process};
use crate::http::{self, Exchange};
use crate::nodes::Backend;
use crate::recorder::Recorder;
use crate::verdict::{Judgement, Verdict};

/// How many callers there are.
const CALLERS: u32 = 4;
/// Keys that callers share are taken from this many at a time.
const SHARED: u32 = 20;
/// How long a call may take.
const CALL_LIMIT: Duration = Duration::from_secs(2);
/// A caller's pause after each call, so that two cores are not all taken by callers.
const PAUSE: Duration = Duration::from_millis(10);
/// Fewer successes than this prove nothing.
const LEAST: usize = 50;

/// A random UUID of the system.
///
/// # Errors
/// The system gives none.
pub fn uuid() -> Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

/// Calls until `over`, each caller at a node of its own.
pub fn work(backend: &dyn Backend, recorder: &Recorder, over: &AtomicBool) {
    let processes = AtomicU32::new(CALLERS);
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let processes = &processes;
            scope.spawn(move || {
                let nodes = backend.nodes();
                let (node, mut process) = (nodes[caller as usize % nodes.len()], Process(caller));
                for turn in 0_u32.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let key =
                        if turn % 2 == 0 { format!("own-{caller}-{turn}") } else { format!("all-{}", turn / SHARED) };
                    if claim(backend, recorder, process, node, &key) == Kind::Info {
                        process = Process(processes.fetch_add(1, Ordering::Relaxed));
                    }
                    std::thread::sleep(PAUSE);
                }
            });
        }
    });
}

/// Claims a key once, and records it.
pub fn claim(backend: &dyn Backend, recorder: &Recorder, process: Process, node: Node, key: &str) -> Kind {
    let claim_id = uuid().unwrap_or_default();
    let body = json!({
        "namespace": "default", "key": key, "request": {"key": key}, "claim_id": claim_id,
        "owner": format!("process-{}", process.0), "lease_ms": 10_000, "wait_ms": 0,
    });
    let blank = Event {
        index: 0,
        time_ns: 0,
        process,
        node,
        kind: Kind::Invoke,
        f: "claim".to_owned(),
        object: key.to_owned(),
        value: json!({ "claim_id": claim_id }),
        revision: None,
        local: false,
        error: None,
    };
    recorder.event(blank.clone());
    let answer = http::call(&backend.url(node), &backend.token(), "POST", "/v1/claims", Some(&body), CALL_LIMIT);
    let (kind, value, error) = match answer {
        Exchange::Answer { status, body } if status < 300 || status == 409 || status == 412 => {
            (Kind::Ok, json!({ "claim_id": claim_id, "status": status, "body": body }), None)
        }
        Exchange::Answer { status, body } if status < 500 => {
            (Kind::Fail, Value::Null, Some(format!("{status} {body}")))
        }
        Exchange::Answer { status, body } => (Kind::Info, Value::Null, Some(format!("{status} {}", body["code"]))),
        Exchange::NotSent(error) => (Kind::Fail, Value::Null, Some(error)),
        Exchange::Unknown(error) => (Kind::Info, Value::Null, Some(error)),
    };
    let revision = value["body"]["revision"].as_u64();
    recorder.event(Event { kind, value, error, revision, ..blank });
    kind
}

/// What the history says of grants, and whether it says enough. Nobody reports here, and a lease that lapses leaves its key unknown:
/// so a key is granted once, whatever becomes of its owner.
pub fn judge(history: &History) -> Verdict {
    let mut grants: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
    let (mut twice, mut nameless, mut count) = (Vec::new(), Vec::new(), 0);
    for event in granted(history) {
        count += 1;
        let epoch = event.value["body"]["lease_epoch"].as_u64();
        let (Some(_), Some(claim)) = (epoch, event.value["claim_id"].as_str()) else {
            nameless.push(event.index);
            continue;
        };
        let (first, index) = *grants.entry(event.object.as_str()).or_insert((claim, event.index));
        if first != claim {
            twice.extend([index, event.index]);
        }
    }
    let (judgement, reason, events) = if !twice.is_empty() {
        (Judgement::False, "two claims were granted one key".to_owned(), twice)
    } else if !nameless.is_empty() {
        (Judgement::Unknown, "grants without a lease epoch".to_owned(), nameless)
    } else if count < LEAST {
        (Judgement::Unknown, format!("{count} grants prove nothing: at least {LEAST} are wanted"), Vec::new())
    } else {
        (Judgement::True, format!("{count} grants, no key twice"), Vec::new())
    };
    Verdict { checker: "U".to_owned(), judgement, reason, events }
}

fn granted(history: &History) -> impl Iterator<Item = &Event> {
    history.events.iter().filter(|event| event.kind == Kind::Ok && event.value["status"] == 201)
}

/// Looks for the operation of every grant through every node.
pub fn remembered(backend: &dyn Backend, history: &History) -> Verdict {
    let looked: Vec<(Node, Vec<Look>)> = std::thread::scope(|scope| {
        let looking: Vec<_> = backend
            .nodes()
            .into_iter()
            .map(|node| {
                (
                    node,
                    scope.spawn(move || granted(history).map(|event| look(backend, node, event)).collect::<Vec<_>>()),
                )
            })
            .collect();
        // A thread that panicked has seen nothing.
        looking.into_iter().map(|(node, thread)| (node, thread.join().unwrap_or_default())).collect()
    });
    verdict(granted(history).count(), &looked)
}

/// What a look for one grant found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The grant's event.
    event: u64,
    /// Whether it is there; nobody can tell where nothing was answered.
    there: Option<bool>,
}

fn look(backend: &dyn Backend, node: Node, event: &Event) -> Look {
    let id = event.value["body"]["operation_id"].as_str().unwrap_or_default();
    let path = format!("/v1/operations/{id}");
    let answer = http::call(&backend.url(node), &backend.token(), "GET", &path, None, CALL_LIMIT);
    let there = match answer {
        Exchange::Answer { status: 200, body } => Some(body["operation_id"] == id),
        Exchange::Answer { status: 404, .. } => Some(false),
        _ => None,
    };
    Look { event: event.index, there }
}

fn verdict(grants: usize, looked: &[(Node, Vec<Look>)]) -> Verdict {
    let all = || looked.iter().flat_map(|(_, looks)| looks);
    let gone: Vec<u64> = all().filter(|look| look.there == Some(false)).map(|look| look.event).collect();
    let found = all().filter(|look| look.there == Some(true)).count();
    let (judgement, reason) = match () {
        () if !gone.is_empty() => (Judgement::False, format!("{} grants are not there any more", gone.len())),
        () if grants == 0 || found < grants * looked.len() => {
            (Judgement::Unknown, format!("{found} of {grants} grants at {} nodes were found", looked.len()))
        }
        () => (Judgement::True, format!("{grants} grants, each found through {} nodes", looked.len())),
    };
    Verdict { checker: "D".to_owned(), judgement, reason, events: gone }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(claims: &[(&str, &str, u64)]) -> History {
        let recorder = Recorder::default();
        for (key, claim, epoch) in claims {
            recorder.event(Event {
                index: 0,
                time_ns: 0,
                process: Process(0),
                node: Node(1),
                kind: Kind::Ok,
                f: "claim".to_owned(),
                object: (*key).to_owned(),
                value: json!({ "claim_id": claim, "status": 201, "body": { "lease_epoch": epoch } }),
                revision: None,
                local: false,
                error: None,
            });
        }
        recorder.history()
    }

    #[test]
    fn a_double_grant_is_convicted_and_little_is_not_enough() {
        for epoch in [1, 2] {
            let verdict = judge(&history(&[("a", "x", 1), ("a", "y", epoch)]));
            assert_eq!((verdict.judgement, verdict.events.as_slice()), (Judgement::False, [0, 1].as_slice()));
        }
        assert_eq!(judge(&history(&[("a", "x", 1), ("b", "y", 2)])).judgement, Judgement::Unknown);
        assert_eq!(judge(&history(&[("a", "x", 1); 60])).judgement, Judgement::True);
    }

    #[test]
    fn a_grant_that_is_gone_is_convicted_and_one_that_nobody_found_is_not_enough() {
        let looked = |there: [Option<bool>; 2]| there.map(|there| (Node(1), vec![Look { event: 7, there }]));
        assert_eq!(verdict(1, &looked([Some(true), Some(true)])).judgement, Judgement::True);
        let gone = verdict(1, &looked([Some(true), Some(false)]));
        assert_eq!((gone.judgement, gone.events.as_slice()), (Judgement::False, [7].as_slice()));
        assert_eq!(verdict(1, &looked([Some(true), None])).judgement, Judgement::Unknown);
        assert_eq!(verdict(2, &looked([Some(true), Some(true)])).judgement, Judgement::Unknown);
        assert_eq!(verdict(0, &[]).judgement, Judgement::Unknown);
    }
}
