//! A profile as a table.

use super::cost;
use crate::report::{ByChain, Counts, Report, percent};
use netchannel_taxonomy::{Category, Side};
use std::fmt::{self, Write};

/// The limit of shown programs, and of threads of each.
const PROGRAMS: usize = 8;
const THREADS: usize = 4;
/// Less than this share of the busy samples is not worth a line.
const LEAST: f64 = 0.5;

/// A short explanation of each category.
fn explained(category: Category) -> &'static str {
    match category {
        Category::Copy => "bytes between the program and the stack",
        Category::TcpIp => "packets, connections",
        Category::Netdevice => "devices, queues, NAPI, GRO and GSO",
        Category::Skb => "socket buffers built, split, released",
        Category::Memory => "memory given and taken, page faults",
        Category::Locks => "locks, and waiting for them",
        Category::Scheduling => "threads chosen, switched, woken",
        Category::Other => "all else of the kernel",
        Category::Socket => "NetChannel: the face of a socket",
        Category::Ring => "NetChannel: rings, queues, slots",
        Category::WakeUp => "NetChannel: waking the other side",
        Category::Waiting => "NetChannel: waiting for news",
        Category::Program => "the program's own: none of the stack",
        Category::Unclassified => "not in the taxonomy",
        Category::Idle => "",
    }
}

/// The whole as text.
///
/// # Errors
/// Never: writing into a text does not fail.
pub fn table(report: &Report) -> Result<String, fmt::Error> {
    let mut text = String::new();
    head(report, &mut text)?;
    categories(report, &mut text)?;
    sides(report, &mut text)?;
    programs(report, &mut text)?;
    foot(report, &mut text)?;
    Ok(text)
}

fn head(report: &Report, text: &mut String) -> fmt::Result {
    let runs = match report.repeats {
        0 | 1 => String::new(),
        count => format!(", {count} runs"),
    };
    writeln!(
        text,
        "{}: {:.1} s{runs}, busy for {:.2} s of processor time, {} samples ({}, {} Hz)",
        report.target,
        report.seconds,
        report.busy_seconds(),
        report.categories.total(),
        report.clock,
        report.frequency,
    )?;
    writeln!(
        text,
        "Linux {}, {} processors",
        report.kernel, report.processors
    )?;
    if let Some(work) = report.work {
        writeln!(text, "{} ({})", cost::done(work), work.source.text())?;
    }
    writeln!(text)
}

fn categories(report: &Report, text: &mut String) -> fmt::Result {
    let has_spread = !report.spread.is_empty();
    let spread = if has_spread { "   lowest-highest" } else { "" };
    write!(text, "  {:<13}{:>7}{spread}", "category", "%")?;
    cost::heading(report, text)?;
    writeln!(text)?;
    for category in Category::BUSY {
        // The eight categories of the study are always shown, since a zero is informative too.
        let is_of_the_study = category <= Category::Other;
        let counts = &report.categories;
        if counts.get(category) == 0 && !is_of_the_study {
            continue;
        }
        write!(
            text,
            "  {:<13}{:>7.1}",
            category.name(),
            counts.share(category)
        )?;
        if has_spread {
            let (low, high) = report.spread.get(&category).copied().unwrap_or_default();
            write!(text, "{:>17}", format!("{low:.1}-{high:.1}"))?;
        }
        cost::of(report, counts.get(category), text)?;
        writeln!(text, "   {}", explained(category))?;
    }
    if report.work.is_some() {
        let indent = if has_spread { 17 } else { 0 };
        write!(text, "  {:<13}{:>7}{:indent$}", "all", "100.0", "")?;
        cost::of(report, report.categories.total(), text)?;
        writeln!(text)?;
    }
    writeln!(text)
}

/// The categories as columns, for those that any of the rows has.
fn columns<'a>(rows: impl Iterator<Item = &'a Counts>) -> Vec<Category> {
    let mut whole = Counts::default();
    rows.for_each(|row| whole.merge(row));
    let mut all = Category::BUSY.to_vec();
    all.retain(|category| whole.share(*category) >= LEAST);
    all
}

fn row(
    text: &mut String,
    name: &str,
    counts: &Counts,
    whole: u64,
    columns: &[Category],
) -> fmt::Result {
    write!(
        text,
        "  {:<24}{:>7.1}",
        cut(name),
        percent(counts.total(), whole)
    )?;
    for category in columns {
        let width = category.name().len().max(5) + 2;
        write!(text, "{:>width$.1}", percent(counts.get(*category), whole))?;
    }
    writeln!(text)
}

fn heading(text: &mut String, what: &str, columns: &[Category]) -> fmt::Result {
    write!(text, "  {what:<24}{:>7}", "% of all")?;
    for category in columns {
        let width = category.name().len().max(5) + 2;
        write!(text, "{:>width$}", category.name())?;
    }
    writeln!(text)
}

fn cut(name: &str) -> String {
    match name.char_indices().nth(23) {
        Some((place, _)) => format!("{}~", name.get(..place).unwrap_or(name)),
        None => name.to_owned(),
    }
}

fn sides(report: &Report, text: &mut String) -> fmt::Result {
    let known = [Side::Sender, Side::Receiver];
    if !known.iter().any(|side| report.sides.contains_key(side)) {
        return Ok(());
    }
    let columns = columns(report.sides.values());
    heading(text, "side", &columns)?;
    let whole = report.categories.total();
    for side in Side::ALL {
        if let Some(counts) = report.sides.get(&side) {
            row(text, side.name(), counts, whole, &columns)?;
        }
    }
    let mut by_chain = ByChain::default();
    report
        .programs
        .iter()
        .for_each(|program| by_chain.merge(program.by_chain));
    if by_chain.told > 0 {
        let ByChain { told, wrong } = by_chain;
        writeln!(
            text,
            "  by processor; of {told} samples whose chain tells a side, {:.1} % tell the other one",
            percent(wrong, told)
        )?;
    }
    writeln!(text)
}

fn programs(report: &Report, text: &mut String) -> fmt::Result {
    let whole = report.categories.total();
    let columns = columns(report.programs.iter().map(|program| &program.categories));
    heading(text, "program, thread", &columns)?;
    let mut left = Counts::default();
    for (place, program) in report.programs.iter().enumerate() {
        let share = percent(program.categories.total(), whole);
        if place >= PROGRAMS || share < LEAST {
            left.merge(&program.categories);
            continue;
        }
        row(text, &program.name, &program.categories, whole, &columns)?;
        let threads = program.threads.iter().take(THREADS);
        let is_one = program.threads.len() < 2;
        for thread in threads.filter(|_| !is_one) {
            if percent(thread.categories.total(), whole) >= LEAST {
                let name = format!("  {}", thread.name);
                row(text, &name, &thread.categories, whole, &columns)?;
            }
        }
    }
    if left.total() > 0 {
        row(text, "(all others)", &left, whole, &columns)?;
    }
    writeln!(text)
}

fn foot(report: &Report, text: &mut String) -> fmt::Result {
    let busy = report.categories.total();
    write!(
        text,
        "sampled late {:.1} %, unclassified {:.1} %, ",
        percent(report.late, busy),
        report.categories.share(Category::Unclassified),
    )?;
    if report.idle > 0 {
        let all = busy + report.idle;
        write!(text, "processors idle {:.0} %, ", percent(report.idle, all))?;
    }
    let elapsed = report.seconds.max(1e-9);
    writeln!(
        text,
        "the profiler itself {:.1} % of a processor",
        100.0 * report.own_seconds / elapsed
    )?;
    for note in &report.notes {
        writeln!(text, "note: {note}")?;
    }
    Ok(())
}

/// The functions that most samples were in.
///
/// # Errors
/// Never: writing into a text does not fail.
pub fn functions(report: &Report, count: usize) -> Result<String, fmt::Error> {
    let mut text = String::new();
    writeln!(text, "\n  {:>6}  {:<13}function", "%", "category")?;
    for function in report.functions.iter().take(count) {
        let share = percent(function.samples, report.categories.total());
        let category = function.category.name();
        writeln!(text, "  {share:>6.1}  {category:<13}{}", function.name)?;
    }
    Ok(text)
}

/// The functions of this kernel that the taxonomy lacks.
///
/// # Errors
/// Never: writing into a text does not fail.
pub fn unclassified(report: &Report) -> Result<String, fmt::Error> {
    let mut text = String::new();
    if report.unclassified.is_empty() {
        writeln!(text, "every busy sample is in a category")?;
        return Ok(text);
    }
    writeln!(
        text,
        "  {:>6}  chain that is in no category, innermost function first",
        "%"
    )?;
    for missing in &report.unclassified {
        let share = percent(missing.samples, report.categories.total());
        writeln!(text, "  {share:>6.2}  {}", missing.chain.join(" < "))?;
    }
    writeln!(
        text,
        "\nname them in a file for --taxonomy, such as: [kernel]\nother = [\"name\", \"family_*\"]"
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Missing, Program, Thread};
    use crate::work::{Source, Work};

    fn report() -> Report {
        let mut report = Report {
            target: "sleep".to_owned(),
            clock: "cpu-clock".to_owned(),
            kernel: "6.18".to_owned(),
            frequency: 1000,
            seconds: 2.0,
            processors: 2,
            late: 5,
            ..Report::default()
        };
        report.categories.add(Category::Copy, 60);
        report.categories.add(Category::Program, 40);
        let sender = report.sides.entry(Side::Sender).or_default();
        sender.add(Category::Copy, 60);
        report.programs.push(Program {
            name: "a-program-with-a-name-that-is-long".to_owned(),
            categories: report.categories.clone(),
            threads: vec![Thread::default(), Thread::default()],
            ..Program::default()
        });
        report
    }

    #[test]
    fn a_table_has_what_was_counted() {
        let text = table(&report()).unwrap();
        for part in [
            "sleep: 2.0 s, busy for 0.10 s of processor time, 100 samples (cpu-clock, 1000 Hz)",
            "  copy            60.0   bytes",
            "  locks            0.0",
            "  program         40.0",
            "a-program-with-a-name-t~  100.0",
            "sampled late 5.0 %, unclassified 0.0 %",
            "  sender",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        assert!(!text.contains("wake-up"));
    }

    #[test]
    fn what_was_done_has_its_cost() {
        let mut report = report();
        report.work = Work::of(2_000_000_000, 0, Source::Told);
        let text = table(&report).unwrap();
        for part in [
            "2.00 GB (as the command told)",
            "category           %    ms/GB\n",
            "  copy            60.0     30.0   bytes",
            "  all            100.0     50.0\n",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        report.work = Work::of(2_000_000_000, 1000, Source::Said);
        let text = table(&report).unwrap();
        assert!(
            text.contains("  all            100.0     50.0   100.00\n"),
            "{text}"
        );
        report.spread.insert(Category::Copy, (50.0, 70.0));
        let text = table(&report).unwrap();
        assert!(text.contains("    ms/GB    us/op\n"), "{text}");
    }

    #[test]
    fn what_is_missing_is_told_with_how_to_add_it() {
        let mut report = report();
        assert!(unclassified(&report).unwrap().contains("every busy sample"));
        report.unclassified.push(Missing {
            chain: vec!["new_thing".to_owned(), "outer".to_owned()],
            samples: 1,
        });
        let text = unclassified(&report).unwrap();
        assert!(text.contains("1.00  new_thing < outer"), "{text}");
    }
}
