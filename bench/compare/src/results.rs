//! The results file: a line for each thing measured or known, tab-separated, its kind first. `run` lines come from
//! here, the others from the scripts; the report is made of nothing else, so that it can be rendered again.
//!
//! ```text
//! run      system  case  in-flight  streams  rate/s  p50-us  p99-us  requests  created  found  local
//! syncs    system  in-flight  created  found  node-1  node-2  node-3
//! rtt      milliseconds  measured-milliseconds
//! setting  system  name  value
//! fact     name  value
//! row      table  cell  cell  …
//! ```
//!
//! A node that counts no syncs has a dash in its place.

use std::collections::BTreeMap;

use anyhow::{Context, bail};

use crate::load::{Plan, Report};

/// What kind of run: its rounds are compared with each other and summed up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// The system's name.
    pub system: String,
    /// What else distinguishes it, in the words of the script.
    pub case: String,
    /// Requests in flight.
    pub in_flight: usize,
    /// How many of them share a connection.
    pub streams: usize,
}

/// What one run measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Keys created, and receipts and states given, per second within the window.
    pub rate: f64,
    /// Median latency of a request.
    pub p50_us: f64,
    /// Latency that one request in a hundred exceeds.
    pub p99_us: f64,
    /// Requests answered within the window.
    pub requests: u64,
    /// Receipts and states given in all.
    pub found: u64,
    /// How many of these the asked node answered from its own state.
    pub local: u64,
}

/// Syncs of the logs during runs of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Syncs {
    /// Keys created.
    pub created: u64,
    /// Receipts and states given.
    pub found: u64,
    /// Syncs on each of the three nodes, where it counts them.
    pub nodes: [Option<u64>; 3],
}

/// A whole file.
#[derive(Debug, Default)]
pub struct Results {
    /// All rounds of each kind of run.
    pub runs: BTreeMap<Kind, Vec<Sample>>,
    /// By system and requests in flight, all rounds together.
    pub syncs: BTreeMap<(String, usize), Syncs>,
    /// Round trips measured, in milliseconds, by the one that was asked for.
    pub rtts: BTreeMap<u64, Vec<f64>>,
    /// System, name and value, in the order of the file.
    pub settings: Vec<[String; 3]>,
    /// Tables that are shown as they are, by name: the first row names the columns.
    pub tables: BTreeMap<String, Vec<Vec<String>>>,
    /// All else.
    pub facts: BTreeMap<String, String>,
}

/// The line for one run.
pub fn line(plan: &Plan, case: &str, report: &Report) -> String {
    let rate = report.within.units() as f64 / plan.measured.as_secs_f64();
    let p50 = report.latencies.value_at_quantile(0.5);
    let p99 = report.latencies.value_at_quantile(0.99);
    let (system, in_flight, streams) = (plan.system.name(), plan.in_flight, plan.streams);
    let (requests, all) = (report.latencies.len(), report.in_all);
    let (created, found, local) = (all.created, all.found, all.local);
    format!(
        "run\t{system}\t{case}\t{in_flight}\t{streams}\t{rate:.1}\t{p50}\t{p99}\t{requests}\t{created}\t{found}\t{local}"
    )
}

impl Results {
    /// Reads a file; a line that it does not know is an error.
    pub fn parse(text: &str) -> anyhow::Result<Results> {
        let mut results = Results::default();
        for line in text.lines() {
            results.take(line).with_context(|| format!("the line {line:?}"))?;
        }
        Ok(results)
    }

    fn take(&mut self, line: &str) -> anyhow::Result<()> {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["run", system, case, in_flight, streams, rate, p50, p99, requests, _created, found, local] => {
                let kind = Kind {
                    system: system.to_owned(),
                    case: case.to_owned(),
                    in_flight: in_flight.parse()?,
                    streams: streams.parse()?,
                };
                let sample = Sample {
                    rate: rate.parse()?,
                    p50_us: p50.parse()?,
                    p99_us: p99.parse()?,
                    requests: requests.parse()?,
                    found: found.parse()?,
                    local: local.parse()?,
                };
                self.runs.entry(kind).or_default().push(sample);
            }
            ["syncs", system, in_flight, created, found, one, two, three] => {
                let none = Syncs { created: 0, found: 0, nodes: [Some(0); 3] };
                let sum = self.syncs.entry((system.to_owned(), in_flight.parse()?)).or_insert(none);
                sum.created += created.parse::<u64>()?;
                sum.found += found.parse::<u64>()?;
                for (node, count) in sum.nodes.iter_mut().zip([one, two, three]) {
                    let count = if count == "-" { None } else { Some(count.parse::<u64>()?) };
                    *node = node.zip(count).map(|(sum, count)| sum + count);
                }
            }
            ["rtt", asked, measured] => self.rtts.entry(asked.parse()?).or_default().push(measured.parse()?),
            ["setting", system, name, value] => self.settings.push([system, name, value].map(str::to_owned)),
            ["row", table, ref cells @ ..] if !cells.is_empty() => {
                let row = cells.iter().map(|cell| (*cell).to_owned()).collect();
                self.tables.entry(table.to_owned()).or_default().push(row);
            }
            ["fact", name, value] => {
                self.facts.insert(name.to_owned(), value.to_owned());
            }
            _ => bail!("no kind has this name and {} fields", fields.len()),
        }
        Ok(())
    }
}

/// The middle one; of an even number, the mean of the two in the middle.
pub fn median(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    let upper = values[values.len() / 2];
    let lower = values[(values.len() - 1) / 2];
    (upper + lower) / 2.0
}

#[cfg(test)]
mod tests {
    use super::{Results, Syncs, median};

    #[test]
    fn rounds_come_together() {
        let text = "run\thapax\t\t64\t1\t10.0\t1\t2\t3\t4\t5\t6\nrun\thapax\t\t64\t1\t40.0\t1\t2\t3\t4\t5\t6\n\
                    run\thapax\t\t64\t1\t20.0\t1\t2\t3\t4\t5\t6\nsyncs\thapax\t64\t5\t0\t1\t2\t-\n\
                    syncs\thapax\t64\t6\t1\t10\t20\t-\nfact\ta\tb c\nrtt\t10\t10.5\n";
        let results = Results::parse(text).unwrap();
        let samples = results.runs.values().next().unwrap();
        assert_eq!((samples.len(), median(samples, |sample| sample.rate)), (3, 20.0));
        assert_eq!(median(&samples[..2], |sample| sample.rate), 25.0);
        let sum = Syncs { created: 11, found: 1, nodes: [Some(11), Some(22), None] };
        assert_eq!(results.syncs[&("hapax".to_owned(), 64)], sum);
        assert_eq!(results.facts["a"], "b c");
    }

    #[test]
    fn a_line_that_nobody_knows_is_an_error() {
        assert!(Results::parse("run\thapax\t\t64\n").is_err());
        assert!(Results::parse("syncs\thapax\t64\t5\t0\t1\t2\tx\n").is_err());
        assert!(Results::parse("other\ta\tb\n").is_err());
    }
}
