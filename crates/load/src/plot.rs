//! A run as a picture, and as a page to be read and kept: throughput above, latency below, over the same time.

use std::fmt::Write as _;

use plotters::prelude::*;

use crate::report::{Answers, Point, Report};

const WIDTH: u32 = 960;
const HEIGHT: u32 = 560;
const RATE: RGBColor = RGBColor(0x1f, 0x6f, 0xb2);
const MEDIAN: RGBColor = RGBColor(0x2b, 0x8a, 0x3e);
const TAIL: RGBColor = RGBColor(0xc0, 0x39, 0x2b);
const FONT: &str = "sans-serif";

/// The picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the plot cannot be drawn: {0}")]
pub struct Undrawn(String);

/// Throughput and latency over time, as an SVG document.
///
/// # Errors
/// The library refused; there is nothing that a caller could change about it.
pub fn svg(report: &Report) -> Result<String, Undrawn> {
    let mut text = String::new();
    draw(&mut text, report).map_err(|error| Undrawn(error.to_string()))?;
    Ok(text)
}

/// The middle of each point, where there is one.
fn middles(report: &Report) -> Vec<(f64, Point)> {
    let width = report.timeline.get(1).map_or(report.measured_s, |second| second.at_s);
    let middle = |point: &Point| (point.at_s + width.min(report.measured_s - point.at_s) / 2.0, *point);
    report.timeline.iter().map(middle).collect()
}

fn draw(text: &mut String, report: &Report) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(text, (WIDTH, HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(&report.title, (FONT, 18))?;
    let (upper, lower) = root.split_vertically(HEIGHT / 2);
    throughput(&upper, report)?;
    latency(&lower, report)?;
    root.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn throughput(area: &Area<'_>, report: &Report) -> Result<(), Box<dyn std::error::Error>> {
    let points = middles(report);
    let highest = points.iter().map(|(_, point)| point.per_second).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin_right(16)
        .x_label_area_size(30)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..report.measured_s, 0.0..highest * 1.15)?;
    let style = (FONT, 13);
    chart.configure_mesh().light_line_style(WHITE).y_desc("answers a second").label_style(style).draw()?;
    let line = points.iter().map(|(at, point)| (*at, point.per_second));
    chart.draw_series(AreaSeries::new(line, 0.0, RATE.mix(0.18)).border_style(RATE.stroke_width(2)))?;
    Ok(())
}

fn latency(area: &Area<'_>, report: &Report) -> Result<(), Box<dyn std::error::Error>> {
    let points: Vec<_> = middles(report).into_iter().filter(|(_, point)| point.p99_us > 0).collect();
    let ms = |us: u64| us.max(1) as f64 / 1_000.0;
    let lowest = points.iter().map(|(_, point)| ms(point.p50_us)).fold(f64::MAX, f64::min).min(1.0);
    let highest = points.iter().map(|(_, point)| ms(point.p99_us)).fold(lowest * 10.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin_right(16)
        .x_label_area_size(42)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..report.measured_s, (lowest / 1.5..highest * 1.5).log_scale())?;
    let style = (FONT, 13);
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(WHITE).x_desc("seconds").y_desc("latency, ms").label_style(style);
    mesh.y_label_formatter(&|ms| format!("{ms}")).draw()?;
    let lines = [("half of the answers", MEDIAN, 0), ("99 of 100", TAIL, 1)];
    for (name, colour, which) in lines {
        let line = points.iter().map(|(at, point)| (*at, ms([point.p50_us, point.p99_us][which])));
        let series = chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
        series.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    let mut legend = chart.configure_series_labels();
    legend.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.85)).border_style(WHITE);
    legend.label_font(style).draw()?;
    Ok(())
}

/// The page: title, picture, table.
///
/// # Errors
/// As for [`svg`].
pub fn html(report: &Report) -> Result<String, Undrawn> {
    let mut page = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>\n\
         body {{ font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }}\n\
         table {{ border-collapse: collapse; margin: 1em 0 }}\n\
         th, td {{ text-align: right; padding: .2em .8em; border-bottom: 1px solid #ddd }}\n\
         th:first-child, td:first-child {{ text-align: left }}\n\
         svg {{ max-width: 100%; height: auto }}\n</style>\n<h1>{title}</h1>\n{picture}\n",
        title = escaped(&report.title),
        picture = svg(report)?,
    );
    page.push_str(
        "<table>\n<tr><th>answer<th>a second<th>count<th>p50 ms<th>p90 ms<th>p99 ms<th>p99.9 ms<th>longest ms\n",
    );
    for answers in report.answers.iter().chain([&report.total]) {
        page.push_str(&row(answers));
    }
    page.push_str("</table>\n");
    for (what, list) in [("not expected", &report.unexpected), ("sent again", &report.sent_again)] {
        for (text, count) in list {
            // Writing to a string cannot fail.
            let _ = writeln!(page, "<p>{what}, {count} times: <code>{}</code></p>", escaped(text));
        }
    }
    Ok(page)
}

fn row(answers: &Answers) -> String {
    let latencies = &answers.latencies;
    let ms = |us: u64| format!("{:.2}", us as f64 / 1_000.0);
    let cells = [latencies.p50_us, latencies.p90_us, latencies.p99_us, latencies.p999_us, latencies.max_us].map(ms);
    format!(
        "<tr><td>{}<td>{:.0}<td>{}<td>{}\n",
        escaped(&answers.answer),
        answers.per_second,
        answers.count,
        cells.join("<td>")
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Latencies;

    fn report(points: &[(f64, u64, u64)]) -> Report {
        let latencies =
            Latencies { mean_us: 1.0, p50_us: 1_000, p90_us: 2_000, p99_us: 3_000, p999_us: 4_000, max_us: 5_000 };
        let answers = Answers { answer: "claimed".to_owned(), count: 7, per_second: 3.5, latencies, in_all: 9 };
        let point = |(number, &(per_second, p50_us, p99_us)): (usize, &(f64, u64, u64))| Point {
            at_s: number as f64,
            per_second,
            p50_us,
            p99_us,
        };
        Report {
            title: "claims < 256 & more".to_owned(),
            measured_s: points.len().max(1) as f64,
            total: Answers { answer: "all".to_owned(), ..answers.clone() },
            answers: vec![answers],
            unexpected: vec![("500 <oops>".to_owned(), 1)],
            sent_again: Vec::new(),
            timeline: points.iter().enumerate().map(point).collect(),
        }
    }

    #[test]
    fn a_picture_has_two_panels_and_three_lines() {
        let text =
            svg(&report(&[(1_000.0, 900, 5_000), (1_100.0, 950, 9_000), (900.0, 1_000, 80_000)])).expect("drawn");
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
        for words in ["answers a second", "latency, ms", "seconds", "half of the answers", "99 of 100"] {
            assert!(text.contains(words), "no {words} in {text}");
        }
        assert!(text.matches("<polyline").count() >= 3, "{text}");
    }

    #[test]
    fn a_run_without_answers_is_drawn_too() {
        for points in [&[][..], &[(0.0, 0, 0)], &[(0.0, 0, 0), (0.0, 0, 0)]] {
            assert!(svg(&report(points)).is_ok());
        }
    }

    #[test]
    fn a_page_tells_all_and_escapes_it() {
        let page = html(&report(&[(1_000.0, 900, 5_000)])).expect("drawn");
        for words in ["claims &lt; 256 &amp; more", "<td>claimed<td>4<td>7<td>1.00", "500 &lt;oops&gt;", "<svg"] {
            assert!(page.contains(words), "no {words} in {page}");
        }
        assert!(!page.contains("<oops>"));
    }
}
