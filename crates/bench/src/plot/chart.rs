//! The layout: a heading, then for each case a card with rates to the left and latencies (or,
//! where there are none, CPU cost) to the right.

use super::PlotError;
use super::canvas::{Align, Canvas, Letters};
use crate::measurement::Latency;
use crate::options::Transport;
use crate::report::{CaseReport, Report, Row};
use crate::table::{cost, rate_text, ratio_text, time_text, with_unit};
use plotters::prelude::DrawingBackend;
use plotters::style::RGBColor;

const WIDTH: i32 = 1180;
const MARGIN: i32 = 28;
const HEADING: i32 = 96;
const FOOTER: i32 = 44;
const CARD_GAP: i32 = 12;
const CARD_TOP: i32 = 48;
const CARD_BOTTOM: i32 = 14;
const LINE: i32 = 30;
const BAR: i32 = 16;

const BARS_LEFT: i32 = 138;
const BARS_WIDTH: i32 = 230;
const RATIO_RIGHT: i32 = 598;
const STRIP_LEFT: i32 = 644;
const STRIP_WIDTH: i32 = 250;
const CARD_RIGHT: i32 = WIDTH - MARGIN;

const PAPER: RGBColor = RGBColor(243, 245, 248);
const CARD: RGBColor = RGBColor(255, 255, 255);
const EDGE: RGBColor = RGBColor(224, 229, 236);
const INK: RGBColor = RGBColor(27, 35, 48);
const FAINT: RGBColor = RGBColor(106, 117, 133);
/// For a ratio where kernel TCP is better.
const WORSE: RGBColor = RGBColor(190, 97, 12);
/// From this ratio on to kernel TCP something is no worse: figures of one machine differ by more.
const ALIKE: f64 = 0.97;
const TRACK: RGBColor = RGBColor(238, 241, 245);

fn color(row: &Row) -> RGBColor {
    match row.transport {
        _ if row.fallback.is_some() => RGBColor(152, 162, 179),
        Transport::Tcp => RGBColor(152, 162, 179),
        Transport::Unix => RGBColor(92, 139, 200),
        Transport::Slirp4netns | Transport::Pasta => RGBColor(201, 160, 84),
        Transport::Netchannel => RGBColor(14, 150, 118),
    }
}

/// Points to the right and down.
pub fn size(report: &Report) -> Result<(u32, u32), PlotError> {
    if report.cases.is_empty() {
        return Err(PlotError::Empty);
    }
    let cards: i32 = report
        .cases
        .iter()
        .map(|case| card_height(case) + CARD_GAP)
        .sum();
    Ok((
        WIDTH.unsigned_abs(),
        (HEADING + cards + FOOTER).unsigned_abs(),
    ))
}

fn lines(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(0) * LINE
}

fn card_height(case: &CaseReport) -> i32 {
    CARD_TOP + lines(case.rows.len()) + CARD_BOTTOM
}

/// Draws everything.
pub fn draw<DB: DrawingBackend>(report: &Report, canvas: &Canvas<DB>) -> Result<(), PlotError> {
    canvas.background(PAPER)?;
    heading(report, canvas)?;
    let mut top = HEADING;
    for case in &report.cases {
        card(case, top, canvas)?;
        top += card_height(case) + CARD_GAP;
    }
    footer(report, top, canvas)?;
    canvas.finish()
}

fn heading<DB: DrawingBackend>(report: &Report, canvas: &Canvas<DB>) -> Result<(), PlotError> {
    canvas.text(
        report.place.title(),
        (MARGIN, 38),
        Letters::new(27.0, INK).bold(),
    )?;
    let how = match report.place.line() {
        Some(line) => format!("{}; {line}", report.method()),
        None => report.method(),
    };
    canvas.text(&how, (MARGIN, 68), Letters::new(15.0, FAINT))
}

fn footer<DB: DrawingBackend>(
    report: &Report,
    top: i32,
    canvas: &Canvas<DB>,
) -> Result<(), PlotError> {
    let look = Letters::new(13.0, FAINT);
    canvas.text(&report.host.line(), (MARGIN, top + 16), look)?;
    let explanation = "× : ratio to kernel TCP (of latency: P50 unless said), median over the pairs; amber: kernel TCP is better";
    canvas.text(
        explanation,
        (CARD_RIGHT, top + 16),
        look.align(Align::Right),
    )
}

fn card<DB: DrawingBackend>(
    case: &CaseReport,
    top: i32,
    canvas: &Canvas<DB>,
) -> Result<(), PlotError> {
    let height = card_height(case);
    let width = CARD_RIGHT - MARGIN;
    canvas.rectangle((MARGIN, top), (width, height), EDGE)?;
    canvas.rectangle((MARGIN + 1, top + 1), (width - 2, height - 2), CARD)?;
    canvas.text(
        case.title,
        (MARGIN + 18, top + 25),
        Letters::new(17.0, INK).bold(),
    )?;

    let first = top + CARD_TOP + LINE / 2;
    rates(case, first, canvas)?;
    match case.latency_of {
        Some(what) => {
            let of = if case.case.is_about_the_tail() {
                "; × of P99.9"
            } else {
                ""
            };
            let label = format!("latency, {what}: P50, P99, P99.9 (log scale, left is better){of}");
            canvas.text(&label, (STRIP_LEFT, top + 25), Letters::new(13.0, FAINT))?;
            latencies(case, first, canvas)
        }
        None => {
            let unit = match case.case.is_throughput() {
                true => "gigabyte",
                false => case.unit.strip_suffix("s/s").unwrap_or("operation"),
            };
            let label = format!("CPU time per {unit}, all processes (shorter is better)");
            canvas.text(&label, (STRIP_LEFT, top + 25), Letters::new(13.0, FAINT))?;
            costs(case, first, canvas)
        }
    }
}

fn rates<DB: DrawingBackend>(
    case: &CaseReport,
    first: i32,
    canvas: &Canvas<DB>,
) -> Result<(), PlotError> {
    let most = largest(case.rows.iter().map(|row| row.median.rate));
    for (row, y) in case.rows.iter().zip((first..).step_by(30)) {
        let ours = row.transport == Transport::Netchannel && row.fallback.is_none();
        let label = Letters::new(15.0, INK);
        let label = if ours { label.bold() } else { label };
        canvas.text(row.name(), (MARGIN + 18, y), label)?;
        let length = share(row.median.rate / most, BARS_WIDTH).max(2);
        canvas.rectangle((BARS_LEFT, y - BAR / 2), (length, BAR), color(row))?;
        let rate = with_unit(case.case, &rate_text(case.case, row.median.rate));
        canvas.text(&rate, (BARS_LEFT + length + 8, y), Letters::new(14.0, INK))?;
        if let Some(ratio) = &row.ratio_to_tcp
            && row.transport != Transport::Tcp
        {
            let text = format!("{}×", ratio_text(ratio.rate));
            badge(&text, row, ratio.rate > ALIKE, (RATIO_RIGHT, y), canvas)?;
        }
    }
    Ok(())
}

/// A ratio at the right end of a half.
fn badge<DB: DrawingBackend>(
    text: &str,
    row: &Row,
    good: bool,
    at: (i32, i32),
    canvas: &Canvas<DB>,
) -> Result<(), PlotError> {
    let look = if row.transport == Transport::Netchannel && row.fallback.is_none() {
        let color = if good { color(row) } else { WORSE };
        Letters::new(19.0, color).bold()
    } else {
        Letters::new(15.0, FAINT)
    };
    canvas.text(text, at, look.align(Align::Right))
}

fn latencies<DB: DrawingBackend>(
    case: &CaseReport,
    first: i32,
    canvas: &Canvas<DB>,
) -> Result<(), PlotError> {
    let known = || case.rows.iter().filter_map(|row| row.median.latency);
    let low = known()
        .map(|latency| latency.p50)
        .fold(f64::INFINITY, f64::min)
        .max(1.0);
    let high = largest(known().map(|latency| latency.p999)).max(low * 2.0);
    let position = |value: f64| {
        let place = (value.max(low) / low).ln() / (high / low).ln();
        STRIP_LEFT + 8 + share(place, STRIP_WIDTH - 16)
    };
    for (row, y) in case.rows.iter().zip((first..).step_by(30)) {
        let Some(Latency { p50, p99, p999 }) = row.median.latency else {
            continue;
        };
        canvas.rectangle((STRIP_LEFT, y - 8), (STRIP_WIDTH, 16), TRACK)?;
        let color = color(row);
        canvas.line((position(p50), y), (position(p999), y), 2, color)?;
        for (value, radius) in [(p50, 7), (p99, 5), (p999, 3)] {
            canvas.dot((position(value), y), radius, color)?;
        }
        let text = format!(
            "{} · {} · {}",
            time_text(p50),
            time_text(p99),
            time_text(p999)
        );
        canvas.text(
            &text,
            (STRIP_LEFT + STRIP_WIDTH + 12, y),
            Letters::new(13.0, INK),
        )?;
        if let Some(ratio) = row.ratio_to_tcp.and_then(|ratio| ratio.latency)
            && row.transport != Transport::Tcp
        {
            let ratio = if case.case.is_about_the_tail() {
                ratio.p999
            } else {
                ratio.p50
            };
            let text = format!("{}×", ratio_text(ratio));
            let at = (CARD_RIGHT - 18, y);
            badge(&text, row, ratio < 1.0 / ALIKE, at, canvas)?;
        }
    }
    Ok(())
}

fn costs<DB: DrawingBackend>(
    case: &CaseReport,
    first: i32,
    canvas: &Canvas<DB>,
) -> Result<(), PlotError> {
    let most = largest(case.rows.iter().map(|row| cost(case.case, &row.median)));
    for (row, y) in case.rows.iter().zip((first..).step_by(30)) {
        let value = cost(case.case, &row.median);
        let length = share(value / most, STRIP_WIDTH).max(2);
        canvas.rectangle((STRIP_LEFT, y - BAR / 2), (length, BAR), color(row))?;
        let text = time_text(value * 1e9);
        canvas.text(&text, (STRIP_LEFT + length + 8, y), Letters::new(14.0, INK))?;
        if let Some(ratio) = &row.ratio_to_tcp
            && row.transport != Transport::Tcp
        {
            let text = format!("{}×", ratio_text(ratio.cpu_per_unit));
            let (good, at) = (ratio.cpu_per_unit < 1.0 / ALIKE, (CARD_RIGHT - 18, y));
            badge(&text, row, good, at, canvas)?;
        }
    }
    Ok(())
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// A part of a length, clamped to the length.
fn share(part: f64, whole: i32) -> i32 {
    let steps = 0..=whole;
    let wanted = part.clamp(0.0, 1.0) * f64::from(whole);
    // Lengths are a few hundred points: the nearest is found by looking, without a cast.
    steps
        .take_while(|step| f64::from(*step) <= wanted + 0.5)
        .last()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_clamped_and_rounded() {
        let shares = [-1.0, 0.0, 0.5, 0.996, 1.0, 7.0, f64::NAN].map(|part| share(part, 100));
        assert_eq!(shares, [0, 0, 50, 100, 100, 100, 0]);
    }
}
