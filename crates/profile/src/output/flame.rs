//! A flame graph: an SVG in one file, each function coloured by the category that most of its samples are in.

use super::folded::Folded;
use crate::report::{Counts, percent};
use netchannel_taxonomy::Category;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

const WIDTH: f64 = 1200.0;
const LINE: f64 = 17.0;
/// Above the flames: the title and the colours.
const TOP: f64 = 66.0;
/// A letter is about so wide.
const LETTER: f64 = 6.6;
/// Narrower boxes can not be seen.
const NARROWEST: f64 = 0.4;

/// A function called along one way, and what it calls.
#[derive(Default)]
struct Node {
    counts: Counts,
    calls: BTreeMap<String, Node>,
}

impl Node {
    fn depth(&self, whole: u64) -> usize {
        let calls = self.calls.values();
        let shown = calls.filter(|node| width(node.counts.total(), whole) >= NARROWEST);
        1 + shown.map(|node| node.depth(whole)).max().unwrap_or(0)
    }

    fn category(&self) -> Category {
        let mut all = Category::BUSY.into_iter();
        let first = Category::Unclassified;
        let most = |best, category| {
            let is_more = self.counts.get(category) > self.counts.get(best);
            if is_more { category } else { best }
        };
        all.by_ref().fold(first, most)
    }
}

/// The colour of a category: the study's in warm and cold ones, NetChannel's own in violet, the program's in grey.
pub fn colour(category: Category) -> &'static str {
    match category {
        Category::Copy => "#e4572e",
        Category::TcpIp => "#2e86ab",
        Category::Netdevice => "#76b041",
        Category::Skb => "#f3a712",
        Category::Memory => "#d8973c",
        Category::Locks => "#c33149",
        Category::Scheduling => "#a8c686",
        Category::Other => "#7fb7be",
        Category::Socket => "#9d7ad2",
        Category::Ring => "#7b5ea7",
        Category::WakeUp => "#c774b2",
        Category::Waiting => "#d3b5e5",
        Category::Program => "#c8c8c8",
        Category::Unclassified | Category::Idle => "#f0f0f0",
    }
}

fn width(samples: u64, whole: u64) -> f64 {
    WIDTH * percent(samples, whole) / 100.0
}

/// Draws folded chains.
///
/// # Errors
/// Never: writing into a text does not fail.
pub fn flame(title: &str, folded: &Folded) -> Result<String, fmt::Error> {
    let mut root = Node::default();
    for ((chain, category), count) in folded {
        let mut node = &mut root;
        node.counts.add(*category, *count);
        for name in chain {
            node = node.calls.entry(name.clone()).or_default();
            node.counts.add(*category, *count);
        }
    }
    let whole = root.counts.total();
    let depth = u32::try_from(root.depth(whole)).unwrap_or(u32::MAX);
    let height = TOP + LINE * f64::from(depth) + 8.0;
    let mut svg = String::new();
    writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">"#
    )?;
    writeln!(svg, r#"<rect width="100%" height="100%" fill="white"/>"#)?;
    writeln!(
        svg,
        r#"<text x="8" y="18" font-size="14">{} ({whole} samples)</text>"#,
        escaped(title)
    )?;
    legend(&root.counts, &mut svg)?;
    let mut x = 0.0;
    for (name, node) in &root.calls {
        draw(name, node, whole, x, height - 8.0 - LINE, &mut svg)?;
        x += width(node.counts.total(), whole);
    }
    writeln!(svg, "</svg>")?;
    Ok(svg)
}

fn legend(counts: &Counts, svg: &mut String) -> fmt::Result {
    let (mut x, mut y) = (8.0, 28.0);
    for category in Category::BUSY {
        if counts.get(category) == 0 {
            continue;
        }
        let text = format!("{} {:.1} %", category.name(), counts.share(category));
        let letters = u32::try_from(text.len()).unwrap_or(0);
        let width = 22.0 + LETTER * f64::from(letters);
        if x + width > WIDTH {
            (x, y) = (8.0, y + LINE);
        }
        writeln!(
            svg,
            r#"<rect x="{x:.1}" y="{y}" width="11" height="11" fill="{}"/><text x="{:.1}" y="{}">{text}</text>"#,
            colour(category),
            x + 15.0,
            y + 10.0
        )?;
        x += width;
    }
    Ok(())
}

fn draw(name: &str, node: &Node, whole: u64, x: f64, y: f64, svg: &mut String) -> fmt::Result {
    let samples = node.counts.total();
    let wide = width(samples, whole);
    if wide < NARROWEST {
        return Ok(());
    }
    let category = node.category();
    let name = escaped(name);
    writeln!(
        svg,
        r#"<g><title>{name}: {:.2} %, {samples} samples, mostly {}</title><rect x="{x:.2}" y="{y}" width="{wide:.2}" height="{}" fill="{}" stroke="white" stroke-width="0.5"/>"#,
        percent(samples, whole),
        category.name(),
        LINE - 1.0,
        colour(category)
    )?;
    // Escaped text is longer than it looks: the plain letters are counted.
    let letters = name.chars().count();
    let fitting = (0..=letters)
        .rev()
        .find(|count| LETTER * f64::from(u32::try_from(*count).unwrap_or(u32::MAX)) + 6.0 <= wide);
    if let Some(count) =
        fitting.filter(|count| *count >= 3 && (*count == letters || !name.contains('&')))
    {
        let text: String = name.chars().take(count).collect();
        writeln!(
            svg,
            r#"<text x="{:.2}" y="{}">{text}</text>"#,
            x + 3.0,
            y + 12.0
        )?;
    }
    writeln!(svg, "</g>")?;
    let mut x = x;
    for (name, node) in &node.calls {
        draw(name, node, whole, x, y - LINE, svg)?;
        x += width(node.counts.total(), whole);
    }
    Ok(())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_every_function_in_the_colour_of_its_category() {
        let mut folded = Folded::new();
        let chain = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        folded.insert((chain(&["p", "main", "copy<T>"]), Category::Copy), 90);
        folded.insert((chain(&["p", "main", "x"]), Category::Program), 10);
        let svg = flame("a & b", &folded).unwrap();
        for part in [
            "a &amp; b (100 samples)",
            "copy&lt;T&gt;: 90.00 %, 90 samples, mostly copy",
            "main: 100.00 %, 100 samples, mostly copy",
            "x: 10.00 %, 10 samples, mostly program",
            "program 10.0 %",
        ] {
            assert!(svg.contains(part), "{part:?} in\n{svg}");
        }
        assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
    }

    #[test]
    fn no_samples_are_an_empty_picture() {
        assert!(
            flame("nothing", &Folded::new())
                .unwrap()
                .contains("0 samples")
        );
    }
}
