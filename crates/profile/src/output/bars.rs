//! Stacked bars as an SVG in one file: all samples, then each side's, so long as their share of all is, each category in its colour.

use super::flame::colour;
use crate::report::{Counts, Report, percent};
use netchannel_taxonomy::{Category, Side};
use std::fmt::{self, Write};

/// Pixels of all samples.
const WHOLE: f64 = 900.0;
const LEFT: f64 = 90.0;
const BAR: f64 = 34.0;
const STEP: f64 = 52.0;
const TOP: f64 = 46.0;
/// A category this narrow has no room for its share.
const LEGIBLE: f64 = 34.0;
/// Names of the colours, so many in a line.
const A_LINE: usize = 7;

/// Draws the shares of a profile.
///
/// # Errors
/// Never: writing into a text does not fail.
pub fn bars(report: &Report) -> Result<String, fmt::Error> {
    let mut rows = vec![("all", report.categories.clone())];
    let of = |side: Side| Some((side.name(), report.sides.get(&side)?.clone()));
    rows.extend(Side::ALL.into_iter().filter_map(of));
    let bars = STEP * f64::from(u32::try_from(rows.len()).unwrap_or(0));
    let legend = TOP + bars + 8.0;
    let (width, height) = (LEFT + WHOLE + 20.0, legend + 60.0);
    let mut svg = String::new();
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"10\" y=\"24\" font-size=\"15\">{}: \
         percent of {} busy samples</text>",
        escaped(&report.target),
        report.categories.total()
    )?;
    let mut y = TOP;
    for (name, counts) in &rows {
        writeln!(
            svg,
            "<text x=\"10\" y=\"{}\">{name}</text>",
            y + BAR / 2.0 + 4.0
        )?;
        bar(&mut svg, counts, report.categories.total(), y)?;
        y += STEP;
    }
    let used = Category::BUSY
        .into_iter()
        .filter(|category| report.categories.get(*category) > 0);
    for (place, category) in used.enumerate() {
        let at = |number: usize| f64::from(u32::try_from(number).unwrap_or(0));
        let (x, y) = (
            10.0 + 140.0 * at(place % A_LINE),
            legend + 22.0 * at(place / A_LINE),
        );
        writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"14\" height=\"14\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>",
            colour(category),
            x + 20.0,
            y + 12.0,
            category.name()
        )?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn bar(svg: &mut String, counts: &Counts, whole: u64, y: f64) -> fmt::Result {
    let mut x = LEFT;
    for category in Category::BUSY {
        let share = percent(counts.get(category), whole);
        let width = WHOLE * share / 100.0;
        if width <= 0.0 {
            continue;
        }
        writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{}\"><title>{} {share:.1} %</title></rect>",
            colour(category),
            category.name()
        )?;
        if width >= LEGIBLE {
            writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{share:.1}</text>",
                x + width / 2.0,
                y + BAR / 2.0 + 4.0
            )?;
        }
        x += width;
    }
    Ok(())
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_category_is_as_wide_as_its_share() {
        let mut report = Report {
            target: "a <b>".to_owned(),
            ..Report::default()
        };
        report.categories.add(Category::Copy, 75);
        report.categories.add(Category::TcpIp, 25);
        let mut sender = Counts::default();
        sender.add(Category::Copy, 50);
        report.sides.insert(Side::Sender, sender);
        let svg = bars(&report).unwrap();
        assert!(svg.contains("width=\"675.0\"") && svg.contains("copy 75.0 %"));
        assert!(svg.contains("width=\"225.0\"") && svg.contains("copy 50.0 %"));
        assert!(svg.contains("a &lt;b&gt;") && svg.contains(">sender<"));
        assert!(!svg.contains("receiver"));
    }
}
