//! Seeds, each run in a process of its own that is a simulated machine; the same seed twice; and clusters that are wrong on purpose.
//!
//! `HAPAX_SIMULATION_SEEDS=0..1000` asks for other seeds than the default ones. A failure prints its seed and its command.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hapax_simulation::invariants::Name;
use hapax_simulation::mutant::Mutant;
use hapax_simulation::report::Report;
use hapax_simulation::time::is_simulated;
use hapax_simulation::trace::Trace;
use hapax_simulation::world;

/// The seeds that run where nobody asks for others.
const SEEDS: Range<u64> = 0..40;
/// The seeds that run twice.
const TWICE: Range<u64> = 1_000..1_024;
/// The seeds that mutants run first, and how often as many more, until everything that must convict them has.
const MUTANT_SEEDS: Range<u64> = 2_000..2_006;
const MUTANT_BATCHES_MAX: u64 = 6;

const SEED: &str = "HAPAX_SIMULATION_SEED";
const MUTANT: &str = "HAPAX_SIMULATION_MUTANT";
const REPORT: &str = "HAPAX_SIMULATION_REPORT";
const TRACE: &str = "HAPAX_SIMULATION_TRACE";
const LOG: &str = "HAPAX_SIMULATION_LOG";
const WANTED: &str = "HAPAX_SIMULATION_SEEDS";

/// One run in this process: what every other test starts as a process of its own.
#[test]
fn one_seed() {
    let Ok(seed) = std::env::var(SEED) else {
        assert!(!is_simulated(), "the clock stands still, though nobody asked for a simulated machine");
        return;
    };
    let seed = seed.parse().expect("a seed is a number");
    let mutant = std::env::var(MUTANT).map_or(Mutant::None, |name| Mutant::named(&name).expect("a known mutant"));
    assert!(is_simulated(), "the machine's clock goes on by itself");
    if let Ok(filter) = std::env::var(LOG) {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
    let path = std::env::var_os(TRACE);
    let trace = Trace::new(path.is_some());
    // On a thread of its own, whose chance begins anew: what this one has drawn for a log must not make another run of it.
    let writes = trace.clone();
    let ran = std::thread::spawn(move || world::run(seed, mutant, &writes)).join();
    let observed = ran.expect("the run does not panic").expect("the run is made");
    let report = Report::of(&observed);
    if let Some(path) = path {
        fs::write(path, trace.text()).expect("a place for the trace");
    }
    match std::env::var_os(REPORT) {
        Some(path) => fs::write(path, report.to_string()).expect("a place for the report"),
        None => assert!(report.violations.is_empty(), "{report}"),
    }
}

/// What a seed came to.
struct Ran {
    report: Report,
    trace: String,
}

/// How a person runs it again.
fn command(seed: u64, mutant: Mutant) -> String {
    let mutant = if mutant == Mutant::None { String::new() } else { format!("{MUTANT}={mutant:?} ") };
    format!(
        "{SEED}={seed} {mutant}{TRACE}=trace.txt cargo test --release --workspace --test simulation -- \
         --exact one_seed --test-threads=1 --nocapture"
    )
}

fn run(seed: u64, mutant: Mutant, traced: bool) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    let [report, trace] = ["report", "trace"].map(|name| folder.path().join(name));
    let mut child = Command::new(std::env::current_exe().expect("this test has a file"));
    child.args(["--exact", "one_seed", "--test-threads=1", "--nocapture"]);
    child.env_remove(MUTANT).env_remove(TRACE).env(SEED, seed.to_string()).env(REPORT, &report);
    if mutant != Mutant::None {
        child.env(MUTANT, format!("{mutant:?}"));
    }
    if traced {
        child.env(TRACE, &trace);
    }
    let output = child.output().expect("the process starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "seed {seed} was not run:\n{said}\nagain: {}", command(seed, mutant));
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    Ran { report: Report::parse(&read(report)), trace: read(trace) }
}

/// Runs all of them, as many at once as there are processors, and gives what they came to, in order.
fn run_all<T: Send>(seeds: Vec<u64>, of: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, ran) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let one = of(*seed);
                    ran.lock().expect("nobody panicked").insert(*seed, one);
                }
            });
        }
    });
    ran.into_inner().expect("nobody panicked").into_values().collect()
}

fn wanted() -> Range<u64> {
    let Ok(text) = std::env::var(WANTED) else { return SEEDS };
    let (from, to) = text.split_once("..").expect("a range of seeds, as 0..1000");
    from.parse().expect("the first seed")..to.parse().expect("the seed after the last")
}

/// Things that must have happened in the default seeds, all together: a run in which nothing happens proves nothing.
const HAPPENED: [(&str, u64); 29] = [
    ("hapax_snapshots_installed_total", 5),
    ("get 404", 1),
    ("claim 201", 500),
    ("claim 200", 50),
    ("claim 202", 50),
    ("claim 409", 50),
    ("claim lost", 20),
    ("claim with a capability 201", 30),
    ("claim with a capability 409", 10),
    ("renew 200", 50),
    ("report 200", 200),
    ("report 409", 30),
    ("evidence 200", 10),
    ("resolve 200", 20),
    ("fence 200", 10),
    ("reconcile 200", 50),
    ("bump 200", 20),
    ("get 200", 500),
    ("issue 201", 50),
    ("leaders", 80),
    ("Crash", 5),
    ("PowerCut", 5),
    ("Blackout", 2),
    ("Isolate", 10),
    ("Pause", 3),
    ("Jump", 3),
    ("Storm", 5),
    ("BreakDisk", 3),
    ("ShutDown", 3),
];

#[test]
fn every_promise_is_kept() {
    let seeds = wanted();
    let default = seeds == SEEDS;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut broken = Vec::new();
    let numbers: Vec<u64> = seeds.clone().collect();
    for (seed, ran) in seeds.zip(run_all(numbers, |seed| run(seed, Mutant::None, false))) {
        for (name, count) in ran.report.counts {
            *counts.entry(name).or_default() += count;
        }
        if !ran.report.violations.is_empty() {
            let shown: Vec<String> =
                ran.report.violations.iter().take(3).map(|(name, how)| format!("  {name}: {how}")).collect();
            let (many, again) = (ran.report.violations.len(), command(seed, Mutant::None));
            broken.push(format!("seed {seed}, {many} violations:\n{}\n  again: {again}", shown.join("\n")));
        }
    }
    for (name, count) in &counts {
        eprintln!("{count:>9}  {name}");
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
    let rare = HAPPENED.iter().filter(|(name, least)| counts.get(*name).copied().unwrap_or(0) < *least);
    let rare: Vec<_> = rare.map(|(name, least)| format!("{name}: {:?} of {least}", counts.get(*name))).collect();
    assert!(!default || rare.is_empty(), "too little happened: {rare:?}");
}

#[test]
fn a_seed_is_a_run() {
    let different = run_all(TWICE.collect(), |seed| {
        let [first, second] = [(); 2].map(|()| run(seed, Mutant::None, true).trace);
        assert!(first.lines().count() > 1_000, "seed {seed} has no trace: {first}");
        let line = first.lines().zip(second.lines()).position(|(a, b)| a != b);
        let line = line.or((first != second).then_some(first.lines().count().min(second.lines().count())));
        line.map(|at| format!("seed {seed}, line {at}: {:?} and {:?}", first.lines().nth(at), second.lines().nth(at)))
    });
    let different: Vec<String> = different.into_iter().flatten().collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn every_mutant_is_convicted() {
    let mut acquitted = Vec::new();
    let mut convicting = BTreeMap::new();
    for (mutant, by) in Mutant::ALL {
        let mut broken: BTreeSet<String> = BTreeSet::new();
        for batch in 0..MUTANT_BATCHES_MAX {
            let first = MUTANT_SEEDS.start + batch * MUTANT_SEEDS.count() as u64;
            let seeds = MUTANT_SEEDS.map(|seed| seed - MUTANT_SEEDS.start + first).collect();
            let ran = run_all(seeds, |seed| run(seed, mutant, false));
            broken.extend(ran.into_iter().flat_map(|ran| ran.report.violations).map(|(name, _)| name));
            if by.iter().all(|name| broken.contains(&format!("{name:?}"))) {
                break;
            }
        }
        for name in by {
            let name = format!("{name:?}");
            if broken.contains(&name) {
                convicting.insert(name, mutant);
            } else {
                acquitted.push(format!("{mutant:?} was not convicted by {name}, only by {broken:?}"));
            }
        }
    }
    assert!(acquitted.is_empty(), "{}", acquitted.join("\n"));
    let all =
        [Name::U, Name::E, Name::F, Name::T, Name::D, Name::R, Name::C, Name::L, Name::H, Name::M, Name::Q, Name::X];
    let unproven: Vec<_> = all.iter().filter(|name| !convicting.contains_key(&format!("{name:?}"))).collect();
    assert!(unproven.is_empty(), "nothing breaks {unproven:?}");
}
