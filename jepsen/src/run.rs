//! One run: set up, work while faults come and go, heal, look at every node, judge, save.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use crate::fault::{Became, Record};
use crate::history::{Kind, Node, Process};
use crate::http::{self, Exchange};
use crate::nemeses::{self, Nemesis};
use crate::nodes::Backend;
use crate::plan::Step;
use crate::recorder::Recorder;
use crate::verdict::{Judgement, Verdict};
use crate::{report, smoke};

/// How long nodes may take to serve after healing.
const SERVES_WITHIN: Duration = Duration::from_secs(60);
/// Pause between looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs the plan and saves all of it into `out`.
///
/// # Errors
/// The cluster does not come up, or nothing can be saved.
pub fn run(backend: &dyn Backend, plan: &[Step], seconds: u64, out: &Path, command: &str) -> Result<Vec<Verdict>> {
    backend.nodes().into_iter().try_for_each(|node| backend.start(node))?;
    serves(backend)?;
    let (recorder, over, watched) = (Recorder::default(), AtomicBool::new(false), AtomicBool::new(false));
    let (recovered, ends) = std::thread::scope(|scope| {
        scope.spawn(|| smoke::work(backend, &recorder, &over));
        scope.spawn(|| watch(backend, &recorder, &watched));
        disturb(backend, plan, seconds, &recorder);
        over.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        let recovered = serves(backend).map(|()| begun.elapsed());
        let ends = last_words(backend, &recorder);
        watched.store(true, Ordering::Relaxed);
        (recovered, ends)
    });
    let history = recorder.history();
    let mut verdicts = vec![smoke::judge(&history), smoke::remembered(backend, &history)];
    let judgement = if recovered.is_ok() && ends { Judgement::True } else { Judgement::False };
    let reason = format!("after healing: {recovered:?}; a claim at every node: {ends}");
    verdicts.push(Verdict { checker: "Q".to_owned(), judgement, reason, events: Vec::new() });
    verdicts.push(witnessed(plan, &recorder.faults()));
    save(out, &recorder, &verdicts, plan, command)?;
    Ok(verdicts)
}

fn serves(backend: &dyn Backend) -> Result<()> {
    let begun = Instant::now();
    for node in backend.nodes() {
        let ready =
            || http::call(&backend.url(node), &backend.token(), "GET", "/readyz", None, Duration::from_secs(1));
        while !matches!(ready(), Exchange::Answer { status: 200, .. }) {
            ensure!(backend.runs(node)?, "node {} has ended; see its log", node.0);
            ensure!(begun.elapsed() < SERVES_WITHIN, "node {} is not ready within {SERVES_WITHIN:?}", node.0);
            std::thread::sleep(LOOK_EVERY);
        }
    }
    Ok(())
}

fn watch(backend: &dyn Backend, recorder: &Recorder, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let leader = nemeses::leader(backend);
        recorder.led(leader.map(|(node, _)| node.0), leader.map(|(_, term)| term).unwrap_or_default());
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Installs and heals each fault in its time.
fn disturb(backend: &dyn Backend, plan: &[Step], seconds: u64, recorder: &Recorder) {
    let (begun, all) = (Instant::now(), nemeses::all());
    let until = |at_ms: u64| std::thread::sleep(Duration::from_millis(at_ms).saturating_sub(begun.elapsed()));
    for (occurrence, step) in (0_u32..).zip(plan) {
        until(step.at_ms);
        let Some(nemesis) = all.iter().find(|one| one.name() == step.fault) else { continue };
        let said = nemesis.install(backend, step.draw);
        note(recorder, nemesis.as_ref(), occurrence, Became::Installed, said);
        until(step.at_ms + step.lasts_ms);
        note(recorder, nemesis.as_ref(), occurrence, Became::Healed, nemesis.heal(backend));
    }
    until(seconds * 1_000);
}

fn note(recorder: &Recorder, nemesis: &dyn Nemesis, occurrence: u32, became: Became, said: Result<String>) {
    let (became, detail) = match said {
        Ok(detail) => (became, detail),
        Err(error) => (Became::Indeterminate, format!("{error:#}")),
    };
    recorder.fault(nemesis.name(), occurrence, became, detail);
}

/// A last claim at every node: each must take a write and say so.
fn last_words(backend: &dyn Backend, recorder: &Recorder) -> bool {
    let claim = |node: Node| {
        smoke::claim(backend, recorder, Process(u32::MAX - node.0 as u32), node, &format!("last-{node:?}"))
    };
    backend.nodes().into_iter().map(claim).all(|kind| kind == Kind::Ok)
}

/// Whether every planned fault was seen to be installed and seen to be healed.
fn witnessed(plan: &[Step], faults: &[Record]) -> Verdict {
    let seen =
        |occurrence: u32, became| faults.iter().any(|one| one.occurrence == occurrence && one.became == became);
    let whole = |at: &u32| seen(*at, Became::Installed) && seen(*at, Became::Healed);
    let count = (0_u32..).zip(plan).filter(|(at, _)| whole(at)).count();
    let judgement = if count == plan.len() { Judgement::True } else { Judgement::Unknown };
    let reason = format!("{count} of {} planned faults were seen installed and seen healed", plan.len());
    Verdict { checker: "faults".to_owned(), judgement, reason, events: Vec::new() }
}

fn lines<T: Serialize>(path: &Path, all: &[T]) -> Result<()> {
    let lines = all.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(fs::write(path, lines.join("\n") + "\n")?)
}

fn save(out: &Path, recorder: &Recorder, verdicts: &[Verdict], plan: &[Step], command: &str) -> Result<()> {
    lines(&out.join("history.jsonl"), &recorder.history().events)?;
    lines(&out.join("faults.jsonl"), &recorder.faults())?;
    lines(&out.join("leaders.jsonl"), &recorder.leaders())?;
    lines(&out.join("plan.jsonl"), plan)?;
    fs::write(out.join("verdicts.json"), serde_json::to_string_pretty(verdicts)?)?;
    fs::write(out.join("command.txt"), command)?;
    report::write(out)
}

/// The exit code of a run: 0 where all is true, 1 where something is false, 2 where nobody can tell.
///
/// # Errors
/// There is no verdict.
pub fn code(verdicts: &[Verdict]) -> Result<u8> {
    if verdicts.is_empty() {
        bail!("no verdict")
    }
    let any = |judgement| verdicts.iter().any(|verdict| verdict.judgement == judgement);
    Ok(if any(Judgement::False) { 1 } else { u8::from(any(Judgement::Unknown)) * 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planned_fault_that_nobody_saw_is_no_pass() {
        let plan = crate::plan::draw(1, 20, &["loss".to_owned()]).unwrap();
        let verdict = witnessed(&plan, &[]);
        assert_eq!(verdict.judgement, Judgement::Unknown);
        assert_eq!(code(&[verdict]).unwrap(), 2);
        assert!(code(&[]).is_err());
    }
}
