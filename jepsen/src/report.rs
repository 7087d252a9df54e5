//! The page of a run that a person reads: verdicts, a timeline of calls under bands of faults, leaders, and the command.
//! One file without anything from elsewhere, made from the files of the run's folder alone.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;

use crate::fault::{Became, Record};
use crate::history::{Event, Kind};
use crate::recorder::Led;
use crate::verdict::Verdict;

const STYLE: &str = "body{font:14px sans-serif;margin:2em;max-width:1100px}td,th{padding:3px 9px;text-align:left;\
border-bottom:1px solid #ddd}.true{color:#17803d}.false{color:#c01c28;font-weight:bold}.unknown{color:#b35c00}\
pre{background:#f4f4f4;padding:8px;overflow:auto}svg{width:100%}text{font:10px sans-serif}";
/// The drawing's size, and the height that stands for the longest latency, on a scale of logarithms.
const WIDTH: f64 = 1_060.0;
/// See [`WIDTH`].
const HEIGHT: f64 = 260.0;

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(text.lines().filter(|line| !line.is_empty()).map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// Writes `report.html` from the other files of the folder.
///
/// # Errors
/// A file is missing or cannot be read.
pub fn write(out: &Path) -> Result<()> {
    let events: Vec<Event> = read(&out.join("history.jsonl"))?;
    let faults: Vec<Record> = read(&out.join("faults.jsonl"))?;
    let leaders: Vec<Led> = read(&out.join("leaders.jsonl"))?;
    let verdicts: Vec<Verdict> = serde_json::from_str(&fs::read_to_string(out.join("verdicts.json"))?)?;
    let command = fs::read_to_string(out.join("command.txt"))?;
    let mut page =
        format!("<!doctype html><meta charset=utf-8><title>Hapax run</title><style>{STYLE}</style><h1>Run</h1>");
    write!(page, "<p>Again, the same plan:</p><pre>{}</pre><h2>Verdicts</h2><table>", escaped(&command))?;
    for verdict in &verdicts {
        let word = format!("{:?}", verdict.judgement).to_lowercase();
        let (checker, reason) = (escaped(&verdict.checker), escaped(&verdict.reason));
        write!(page, "<tr><th>{checker}<td class={word}>{word}<td>{reason}")?;
        for event in verdict.events.iter().filter_map(|index| events.iter().find(|event| event.index == *index)) {
            write!(page, "<pre>{}</pre>", escaped(&serde_json::to_string(event)?))?;
        }
    }
    write!(page, "</table><h2>Calls</h2>{}", drawing(&events, &faults, &leaders)?)?;
    page += "<p>Height: latency from 1 ms to 10 s, by logarithm. Green: answered; red: certainly without effect; orange: \
             nobody can tell. Grey bands: faults. Blue lines: another leader.</p><h2>Faults</h2><table>";
    for one in &faults {
        let (time, became, detail) = (one.time_ns as f64 / 1e9, one.became, escaped(&one.detail));
        write!(page, "<tr><td>{time:.2} s<td>{}<td>{became:?}<td>{detail}", escaped(&one.fault))?;
    }
    page += "</table><h2>Leaders</h2><table>";
    for one in &leaders {
        let who = one.leader.map_or("none".to_owned(), |id| format!("node {id}, term {}", one.term));
        write!(page, "<tr><td>{:.2} s<td>{who}", one.time_ns as f64 / 1e9)?;
    }
    Ok(fs::write(out.join("report.html"), page + "</table>")?)
}

fn drawing(events: &[Event], faults: &[Record], leaders: &[Led]) -> Result<String> {
    let end = events.last().map_or(1, |event| event.time_ns).max(1) as f64;
    let across = |time_ns: u64| time_ns as f64 / end * WIDTH;
    let mut svg = format!("<svg viewBox='0 0 {WIDTH} {HEIGHT}'>");
    for one in faults.iter().filter(|one| one.became != Became::Healed) {
        let heal = faults.iter().find(|other| other.occurrence == one.occurrence && other.became == Became::Healed);
        let (left, right) = (across(one.time_ns), heal.map_or(WIDTH, |heal| across(heal.time_ns)));
        write!(svg, "<rect x='{left:.1}' y='0' width='{:.1}' height='{HEIGHT}' fill='#e4e4e4'/>", right - left)?;
        write!(svg, "<text x='{left:.1}' y='10'>{}</text>", escaped(&one.fault))?;
    }
    for at in leaders.iter().map(|one| across(one.time_ns)) {
        write!(svg, "<line x1='{at:.1}' x2='{at:.1}' y1='14' y2='{HEIGHT}' stroke='#3465a4'/>")?;
    }
    let mut begun = std::collections::BTreeMap::new();
    for event in events {
        let colour = match event.kind {
            Kind::Invoke => {
                begun.insert(event.process, event.time_ns);
                continue;
            }
            Kind::Ok => "#2a9d4a",
            Kind::Fail => "#d0312d",
            Kind::Info => "#f08c00",
        };
        let took_ms = begun.get(&event.process).map_or(0, |at| event.time_ns - at) as f64 / 1e6;
        let down = HEIGHT - took_ms.max(1.0).log10() / 4.0 * (HEIGHT - 20.0);
        write!(svg, "<circle cx='{:.1}' cy='{down:.1}' r='1.5' fill='{colour}'/>", across(event.time_ns))?;
    }
    Ok(svg + "</svg>")
}
