//! The results file, one line of tab-separated fields per run, and the Markdown made of it: medians over the rounds,
//! with the least and the greatest rate, so that a reader sees how far the rounds disagree.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Context;

use crate::load::{Plan, Report};

/// Runs of one kind: system, requests in flight, streams per connection.
type Kind = (String, usize, usize);

/// What one run measured.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    rate: f64,
    p50_us: f64,
    p99_us: f64,
}

/// The line for one run.
pub fn line(plan: &Plan, report: &Report) -> String {
    let rate = report.latencies.len() as f64 / plan.measured.as_secs_f64();
    let p50 = report.latencies.value_at_quantile(0.5);
    let p99 = report.latencies.value_at_quantile(0.99);
    let answered = report.answered;
    let (system, in_flight, streams) = (plan.system.name(), plan.in_flight, plan.streams);
    format!("{system}\t{in_flight}\t{streams}\t{rate:.1}\t{p50}\t{p99}\t{answered}")
}

/// All rounds as a table, greatest load first.
pub fn markdown(text: &str) -> anyhow::Result<String> {
    let mut kinds: BTreeMap<Kind, Vec<Sample>> = BTreeMap::new();
    for line in text.lines() {
        let (kind, sample) = parse(line).with_context(|| format!("the line {line:?}"))?;
        kinds.entry(kind).or_default().push(sample);
    }
    let mut loads: Vec<usize> = kinds.keys().map(|kind| kind.1).collect();
    loads.sort_unstable();
    loads.dedup();
    let mut out = String::from(
        "| in flight | system | creations/s, median | least–greatest | ratio to etcd gRPC | p50 ms | p99 ms | rounds |\n\
         |---:|---|---:|---:|---:|---:|---:|---:|\n",
    );
    for load in loads.into_iter().rev() {
        let of_grpc = kinds.get(&("etcd-grpc".to_owned(), load, 1)).map(|samples| median(samples, |run| run.rate));
        for ((system, _, streams), samples) in kinds.iter().filter(|(kind, _)| kind.1 == load) {
            let rate = median(samples, |run| run.rate);
            let ratio = of_grpc.map_or("–".to_owned(), |base| format!("{:.2}", rate / base));
            let least = samples.iter().map(|run| run.rate).fold(f64::INFINITY, f64::min);
            let greatest = samples.iter().map(|run| run.rate).fold(0.0, f64::max);
            let p50 = median(samples, |run| run.p50_us) / 1000.0;
            let p99 = median(samples, |run| run.p99_us) / 1000.0;
            let rounds = samples.len();
            writeln!(
                out,
                "| {load} | {} | {rate:.0} | {least:.0}–{greatest:.0} | {ratio} | {p50:.2} | {p99:.2} | {rounds} |",
                title(system, load / streams, *streams)
            )?;
        }
    }
    Ok(out)
}

fn title(system: &str, connections: usize, streams: usize) -> String {
    let name = match system {
        "hapax" => "Hapax, HTTP",
        "etcd-grpc" => "etcd, gRPC",
        "etcd-json" => "etcd, JSON gateway",
        other => other,
    };
    if streams == 1 { name.to_owned() } else { format!("{name}, over {connections} connections") }
}

fn parse(line: &str) -> anyhow::Result<(Kind, Sample)> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [system, in_flight, streams, rate, p50_us, p99_us, _answered] = fields[..] else {
        anyhow::bail!("it has {} fields", fields.len())
    };
    let kind = (system.to_owned(), in_flight.parse()?, streams.parse()?);
    Ok((kind, Sample { rate: rate.parse()?, p50_us: p50_us.parse()?, p99_us: p99_us.parse()? }))
}

/// The middle one; of an even number, the mean of the two in the middle.
fn median(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    let upper = values[values.len() / 2];
    let lower = values[(values.len() - 1) / 2];
    (upper + lower) / 2.0
}

#[cfg(test)]
mod tests {
    use super::markdown;

    #[test]
    fn medians_and_ratios() {
        let lines = "hapax\t256\t1\t9000.0\t20000\t50000\t1\nhapax\t256\t1\t100.0\t30000\t60000\t1\n\
                     hapax\t256\t1\t8000.0\t25000\t70000\t1\netcd-grpc\t256\t1\t5000.0\t40000\t90000\t1\n\
                     etcd-grpc\t256\t1\t3000.0\t60000\t80000\t1\n";
        let table = markdown(lines).unwrap();
        assert!(table.contains("| 256 | Hapax, HTTP | 8000 | 100–9000 | 2.00 | 25.00 | 60.00 | 3 |"), "{table}");
        assert!(table.contains("| 256 | etcd, gRPC | 4000 | 3000–5000 | 1.00 | 50.00 | 85.00 | 2 |"), "{table}");
        assert!(markdown("hapax\t256\n").is_err());
    }
}
