//! The sections of `docs/benchmarks.md`: a template with its tables and facts filled in from a results file. Rates are
//! medians over the rounds, with the least and the greatest, so that a reader sees how far the rounds disagree.

use std::fmt::Write;

use anyhow::{Context, bail};

use crate::results::{Kind, Results, Sample, median};

const PEERS: &str = include_str!("../templates/peers.md");
const WAN: &str = include_str!("../templates/wan.md");
const GROWTH: &str = include_str!("../templates/growth.md");

/// Systems that do the same work, one key a request.
const SINGLE: [&str; 4] = ["hapax", "etcd-grpc", "etcd-json", "postgres"];
/// What else Hapax was asked for.
const MORE: [&str; 3] = ["hapax-batch", "hapax-replay", "hapax-read"];

/// Which section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Section {
    /// Hapax, etcd and PostgreSQL on one machine.
    Peers,
    /// Hapax with distance between its nodes.
    Wan,
    /// Hapax while its state grows.
    Growth,
}

impl Section {
    fn name(self) -> &'static str {
        match self {
            Section::Peers => "peers",
            Section::Wan => "wan",
            Section::Growth => "growth",
        }
    }

    /// The section as Markdown.
    pub fn markdown(self, results: &Results) -> anyhow::Result<String> {
        match self {
            Section::Peers => fill(PEERS, results),
            Section::Wan => fill(WAN, results),
            Section::Growth => fill(GROWTH, results),
        }
    }

    /// `document` with this section in place of what stands between its markers.
    pub fn put_into(self, document: &str, section: &str) -> anyhow::Result<String> {
        let name = self.name();
        let (begin, end) = (format!("<!-- begin: {name} -->\n"), format!("<!-- end: {name} -->\n"));
        for marker in [&begin, &end] {
            let found = document.matches(marker.as_str()).count();
            anyhow::ensure!(found == 1, "the document has the marker {:?} {found} times", marker.trim_end());
        }
        let (before, rest) = document.split_once(&begin).context("no beginning")?;
        let (_, after) = rest.split_once(&end).context("the end stands before the beginning")?;
        Ok(format!("{before}{begin}{section}{end}{after}"))
    }
}

/// Each `{{name}}` of the template becomes a table or a fact; one that is neither is an error.
fn fill(template: &str, results: &Results) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").context("a {{ without its }}")?;
        out.push_str(before);
        out.push_str(&value(name, results)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn value(name: &str, results: &Results) -> anyhow::Result<String> {
    Ok(match name {
        "creations" => {
            let own = |load| rate_of_claims(results, |kind| kind.in_flight == load);
            rates(results, &SINGLE, ["creations/s", "Hapax ÷ it"], |rate, load| own(load).map(|own| own / rate))?
        }
        "more" => {
            let best = rate_of_claims(results, |_| true);
            rates(results, &MORE, ["keys/s", "÷ most single claims/s"], |rate, _| best.map(|best| rate / best))?
        }
        "syncs" => syncs(results)?,
        "settings" => settings(results)?,
        "distances" => distances(results)?,
        "pipelining" => pipelining(results)?,
        name if name.starts_with("table:") => table(&name["table:".len()..], results)?,
        fact => match results.facts.get(fact) {
            Some(value) => value.clone(),
            None => bail!("the results have no fact {fact:?}"),
        },
    })
}

/// A table as the script wrote it; all but the first column are numbers.
fn table(name: &str, results: &Results) -> anyhow::Result<String> {
    let rows = results.tables.get(name).with_context(|| format!("the results have no table {name:?}"))?;
    let columns = rows[0].len();
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        anyhow::ensure!(row.len() == columns, "the table {name:?} has a row of another length: {row:?}");
        writeln!(out, "| {} |", row.join(" | "))?;
        if number == 0 {
            writeln!(out, "|{}", "---:|".repeat(columns))?;
        }
    }
    Ok(out.trim_end().to_owned())
}

fn title(kind: &Kind) -> String {
    let name = match kind.system.as_str() {
        "hapax" => "Hapax, HTTP",
        "hapax-batch" => "Hapax, batches of 128",
        "hapax-replay" => "Hapax, replays",
        "hapax-read" => "Hapax, reads",
        "etcd-grpc" => "etcd, gRPC",
        "etcd-json" => "etcd, JSON gateway",
        "postgres" => "PostgreSQL",
        other => other,
    };
    match kind.streams {
        1 => name.to_owned(),
        streams => format!("{name}, over {} connections", kind.in_flight / streams),
    }
}

/// Median, least–greatest of the rates.
fn spread(samples: &[Sample]) -> (f64, String) {
    let least = samples.iter().map(|run| run.rate).fold(f64::INFINITY, f64::min);
    let greatest = samples.iter().map(|run| run.rate).fold(0.0, f64::max);
    (median(samples, |run| run.rate), format!("{least:.0}–{greatest:.0}"))
}

/// Median p50 and p99, in milliseconds.
fn latencies(samples: &[Sample]) -> (f64, f64) {
    (median(samples, |run| run.p50_us) / 1000.0, median(samples, |run| run.p99_us) / 1000.0)
}

/// The highest median rate of Hapax's single claims, over the loads that are `wanted`.
fn rate_of_claims(results: &Results, wanted: impl Fn(&Kind) -> bool) -> Option<f64> {
    let claims = results.runs.iter().filter(|(kind, _)| kind.system == "hapax" && wanted(kind));
    claims.map(|(_, samples)| spread(samples).0).max_by(f64::total_cmp)
}

/// The runs of some systems, greatest load first; the headings are of the rate and of `ratio`, which is told the rate
/// and the load.
fn rates(
    results: &Results,
    systems: &[&str],
    [unit, heading]: [&str; 2],
    ratio: impl Fn(f64, usize) -> Option<f64>,
) -> anyhow::Result<String> {
    let chosen = || results.runs.iter().filter(|(kind, _)| systems.contains(&kind.system.as_str()));
    let mut loads: Vec<usize> = chosen().map(|(kind, _)| kind.in_flight).collect();
    loads.sort_unstable();
    loads.dedup();
    let mut out = format!(
        "| in flight | system | {unit}, median | least–greatest | {heading} | p50 ms | p99 ms | rounds |\n\
         |---:|---|---:|---:|---:|---:|---:|---:|\n"
    );
    for load in loads.into_iter().rev() {
        for system in systems {
            for (kind, samples) in chosen().filter(|(kind, _)| kind.in_flight == load && kind.system == *system) {
                let (rate, between) = spread(samples);
                let ratio = ratio(rate, load).map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
                let (p50, p99) = latencies(samples);
                let (title, rounds) = (title(kind), samples.len());
                writeln!(
                    out,
                    "| {load} | {title} | {rate:.0} | {between} | {ratio} | {p50:.2} | {p99:.2} | {rounds} |"
                )?;
            }
        }
    }
    Ok(out)
}

fn syncs(results: &Results) -> anyhow::Result<String> {
    let mut out = String::from(
        "| in flight | system | keys created | answers besides | syncs on node 1 | node 2 | node 3 | keys per sync |\n\
         |---:|---|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut rows: Vec<_> = results.syncs.iter().collect();
    rows.sort_by_key(|((_, in_flight), _)| std::cmp::Reverse(*in_flight));
    for ((system, in_flight), sum) in rows {
        let kind = Kind { system: system.clone(), case: String::new(), in_flight: *in_flight, streams: 1 };
        let shown = sum.nodes.map(|count| count.map_or("–".to_owned(), |count| count.to_string())).join(" | ");
        let counted: Vec<u64> = sum.nodes.into_iter().flatten().collect();
        let syncs: u64 = counted.iter().sum();
        let per_sync = (sum.created * counted.len() as u64) as f64 / syncs.max(1) as f64;
        let (title, created, found) = (title(&kind), sum.created, sum.found);
        writeln!(out, "| {in_flight} | {title} | {created} | {found} | {shown} | {per_sync:.1} |")?;
    }
    Ok(out)
}

fn settings(results: &Results) -> anyhow::Result<String> {
    let mut out = String::from("| system | setting | value |\n|---|---|---|\n");
    for [system, name, value] in &results.settings {
        writeln!(out, "| {system} | {name} | {value} |")?;
    }
    Ok(out)
}

/// What the case of a run over a distance says: `80 leader`, `10 other`, `80 leader sequential`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Distance {
    round_trip_ms: u64,
    /// The clients are not where the leader is.
    away: bool,
    /// Each append waits for the answer to the one before.
    sequential: bool,
}

impl Distance {
    fn parse(case: &str) -> anyhow::Result<Distance> {
        let words: Vec<&str> = case.split(' ').collect();
        let (round_trip, away, sequential) = match words[..] {
            [round_trip, "leader"] => (round_trip, false, false),
            [round_trip, "other"] => (round_trip, true, false),
            [round_trip, "leader", "sequential"] => (round_trip, false, true),
            _ => bail!("the case {case:?}"),
        };
        Ok(Distance { round_trip_ms: round_trip.parse()?, away, sequential })
    }
}

/// All runs over a distance, near before far, claims before replays, the leader's node before the other, few clients
/// before many.
fn by_distance(results: &Results) -> anyhow::Result<Vec<(Distance, &Kind, &[Sample])>> {
    let mut rows = Vec::new();
    for (kind, samples) in &results.runs {
        rows.push((Distance::parse(&kind.case)?, kind, samples.as_slice()));
    }
    rows.sort_by_key(|(at, kind, _)| (at.round_trip_ms, kind.system.as_str(), at.away, kind.in_flight));
    Ok(rows)
}

fn distances(results: &Results) -> anyhow::Result<String> {
    let mut out = String::from(
        "| round trip ms, asked (measured) | request | clients at | in flight | per second, median | least–greatest | \
         p50 ms | p99 ms | measured requests | answered locally | rounds |\n\
         |---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for (at, kind, samples) in by_distance(results)?.into_iter().filter(|(at, ..)| !at.sequential) {
        let asked = at.round_trip_ms;
        let measured = results.rtts.get(&asked).with_context(|| format!("nobody measured the {asked} ms"))?;
        let shortest = measured.iter().copied().fold(f64::INFINITY, f64::min);
        let longest = measured.iter().copied().fold(0.0, f64::max);
        let request = if kind.system == "hapax-replay" { "replay" } else { "claim" };
        let place = if at.away { "another node" } else { "the leader" };
        let (rate, between) = spread(samples);
        let (p50, p99) = latencies(samples);
        let requests: u64 = samples.iter().map(|run| run.requests).sum();
        writeln!(
            out,
            "| {asked} ({shortest:.1}–{longest:.1}) | {request} | {place} | {} | {rate:.0} | {between} | \
             {p50:.2} | {p99:.2} | {requests} | {} | {} |",
            kind.in_flight,
            share(samples),
            samples.len()
        )?;
    }
    Ok(out)
}

/// Each run with one append under way at a time, below the same run as nodes do it by themselves.
fn pipelining(results: &Results) -> anyhow::Result<String> {
    let mut out = String::from(
        "| round trip ms | in flight | appends under way | claims/s, median | least–greatest | p50 ms | p99 ms | \
         rounds |\n\
         |---:|---:|---|---:|---:|---:|---:|---:|\n",
    );
    let rows = by_distance(results)?;
    let sequential = rows.iter().filter(|(at, ..)| at.sequential);
    for (at, kind, one_at_a_time) in sequential {
        let same = |(other, its, _): &&(Distance, &Kind, &[Sample])| {
            *other == Distance { sequential: false, ..*at }
                && (&its.system, its.in_flight) == (&kind.system, kind.in_flight)
        };
        let (.., pipelined) = rows.iter().find(same).context("a run with one append at a time, and none without")?;
        for (appends, samples) in [("as many as the window", pipelined), ("one", one_at_a_time)] {
            let (rate, between) = spread(samples);
            let (p50, p99) = latencies(samples);
            let (round_trip, in_flight, rounds) = (at.round_trip_ms, kind.in_flight, samples.len());
            writeln!(
                out,
                "| {round_trip} | {in_flight} | {appends} | {rate:.0} | {between} | {p50:.2} | {p99:.2} | {rounds} |"
            )?;
        }
    }
    Ok(out)
}

/// How many of the receipts the asked node gave from its own state.
fn share(samples: &[Sample]) -> String {
    let found: u64 = samples.iter().map(|run| run.found).sum();
    let local: u64 = samples.iter().map(|run| run.local).sum();
    if found == 0 { "–".to_owned() } else { format!("{:.2} %", local as f64 * 100.0 / found as f64) }
}

#[cfg(test)]
mod tests {
    use super::{Section, distances, fill, pipelining, value};
    use crate::results::Results;

    const RUNS: &str = "run\thapax\t\t256\t1\t9000.0\t20000\t50000\t1\t1\t0\t0\n\
                        run\thapax\t\t256\t1\t100.0\t30000\t60000\t1\t1\t0\t0\n\
                        run\thapax\t\t256\t1\t8000.0\t25000\t70000\t1\t1\t0\t0\n\
                        run\thapax-batch\t\t256\t1\t16000.0\t40000\t90000\t1\t1\t0\t0\n\
                        run\tpostgres\t\t256\t1\t5000.0\t40000\t90000\t1\t1\t0\t0\n\
                        run\tpostgres\t\t256\t1\t3000.0\t60000\t80000\t1\t1\t0\t0\n\
                        run\tetcd-grpc\t\t256\t16\t2000.0\t60000\t80000\t1\t1\t0\t0\n";

    #[test]
    fn medians_and_ratios() {
        let results = Results::parse(RUNS).unwrap();
        let table = value("creations", &results).unwrap();
        assert!(table.contains("| 256 | Hapax, HTTP | 8000 | 100–9000 | 1.00 | 25.00 | 60.00 | 3 |"), "{table}");
        assert!(table.contains("| 256 | PostgreSQL | 4000 | 3000–5000 | 2.00 | 50.00 | 85.00 | 2 |"), "{table}");
        assert!(table.contains("| 256 | etcd, gRPC, over 16 connections | 2000 | 2000–2000 | 4.00 |"), "{table}");
        let table = value("more", &results).unwrap();
        assert!(table.contains("| 256 | Hapax, batches of 128 | 16000 | 16000–16000 | 2.00 |"), "{table}");
    }

    #[test]
    fn tables_as_they_were_written() {
        let text = "row\tgrowth\trecords\trate\nrow\tgrowth\t10\t7\nrow\tother\ta\tb\nrow\tother\tc\n";
        let results = Results::parse(text).unwrap();
        assert_eq!(value("table:growth", &results).unwrap(), "| records | rate |\n|---:|---:|\n| 10 | 7 |");
        assert!(value("table:other", &results).is_err(), "a row of another length");
        assert!(value("table:absent", &results).is_err());
    }

    #[test]
    fn distances_in_order() {
        let text = "run\thapax\t80 other\t1\t1\t6.0\t160000\t161000\t36\t40\t0\t0\n\
                    run\thapax\t10 leader\t1\t1\t90.0\t11000\t12000\t540\t600\t0\t0\n\
                    run\thapax-replay\t10 other\t1\t1\t2000.0\t500\t900\t9000\t8\t10000\t9999\n\
                    rtt\t10\t10.24\nrtt\t10\t10.96\nrtt\t80\t80.5\n";
        let table = distances(&Results::parse(text).unwrap()).unwrap();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| 10 (10.2–11.0) | claim | the leader | 1 | 90 | 90–90 | 11.00 | 12.00 | 540 | – | 1 |",
                "| 10 (10.2–11.0) | replay | another node | 1 | 2000 | 2000–2000 | 0.50 | 0.90 | 9000 | 99.99 % | 1 |",
                "| 80 (80.5–80.5) | claim | another node | 1 | 6 | 6–6 | 160.00 | 161.00 | 36 | – | 1 |",
            ]
        );
        assert!(distances(&Results::parse(RUNS).unwrap()).is_err());
    }

    #[test]
    fn pipelined_beside_one_at_a_time() {
        let one = "run\thapax\t80 leader sequential\t64\t1\t400.0\t160000\t170000\t9\t9\t0\t0\n";
        let many = "run\thapax\t80 leader\t64\t1\t780.0\t81000\t90000\t9\t9\t0\t0\n\
                    run\thapax\t80 other\t64\t1\t390.0\t161000\t170000\t9\t9\t0\t0\n";
        let table = pipelining(&Results::parse(&format!("{one}{many}")).unwrap()).unwrap();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| 80 | 64 | as many as the window | 780 | 780–780 | 81.00 | 90.00 | 1 |",
                "| 80 | 64 | one | 400 | 400–400 | 160.00 | 170.00 | 1 |",
            ]
        );
        assert!(pipelining(&Results::parse(one).unwrap()).is_err());
    }

    #[test]
    fn syncs_are_held_against_keys() {
        let text = "syncs\tpostgres\t64\t1000\t0\t10\t-\t-\nsyncs\thapax\t64\t900\t7\t20\t30\t40\n";
        let table = value("syncs", &Results::parse(text).unwrap()).unwrap();
        assert!(table.contains("| 64 | PostgreSQL | 1000 | 0 | 10 | – | – | 100.0 |"), "{table}");
        assert!(table.contains("| 64 | Hapax, HTTP | 900 | 7 | 20 | 30 | 40 | 30.0 |"), "{table}");
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        let results = Results::parse("fact\tmachine\ta box\n").unwrap();
        assert_eq!(fill("On {{machine}}.\n", &results).unwrap(), "On a box.\n");
        assert!(fill("On {{another}}.\n", &results).is_err());
    }

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let document = "a\n<!-- begin: wan -->\nold\n<!-- end: wan -->\nb\n";
        let changed = Section::Wan.put_into(document, "new\n").unwrap();
        assert_eq!(changed, "a\n<!-- begin: wan -->\nnew\n<!-- end: wan -->\nb\n");
        assert!(Section::Peers.put_into(document, "new\n").is_err());
    }
}
