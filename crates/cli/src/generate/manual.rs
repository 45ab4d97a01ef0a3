//! Man pages: of each command from its `--help`, of netchannel.toml from its document.

use std::io;

use clap::{Arg, Command};
use clap_mangen::Man;

/// The headings of a command's examples and exit codes.
const EXAMPLES: &str = "Examples:\n";
const EXIT_CODES: &str = "Exit codes:\n";

/// The page of a command.
///
/// # Errors
/// None in practice: it is written into memory.
pub fn page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let shown = command.clone().display_name(name.to_owned());
    let man = Man::new(shown.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.extend(synopsis(command, name).bytes());
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let more = command
        .get_after_help()
        .map_or_else(String::new, ToString::to_string);
    let (before, rest) = more.split_once(EXAMPLES).unwrap_or(("", &more));
    let (examples, codes) = rest.split_once(EXIT_CODES).unwrap_or((rest, ""));
    let (examples, notes) = examples.split_once("\n\n").unwrap_or((examples, ""));
    let notes = [before.trim(), notes.trim()].join("\n\n");
    for (head, text) in [
        ("NOTES", notes.trim()),
        ("EXAMPLES", examples),
        ("\"EXIT STATUS\"", codes),
    ] {
        if !text.trim().is_empty() {
            page.extend(format!(".SH {head}\n.nf\n{}\n.fi\n", escaped(text.trim_end())).bytes());
        }
    }
    page.extend(b".SH \"SEE ALSO\"\nnetchannel(1), netchannel.toml(5)\n");
    Ok(page)
}

/// The synopsis of the command line, with the names of values.
fn synopsis(command: &Command, name: &str) -> String {
    let mut text = format!(
        ".SH SYNOPSIS\n\\fB{}\\fR",
        escaped(&name.replacen('-', " ", 1))
    );
    let said =
        |one: &&Arg| !one.is_hide_set() && !matches!(one.get_id().as_str(), "help" | "version");
    for argument in command.get_arguments().filter(said) {
        text.push(' ');
        let one = shown(argument);
        text.push_str(&if argument.is_required_set() {
            one
        } else {
            format!("[{one}]")
        });
    }
    if command.has_subcommands() {
        text.push_str(" \\fICOMMAND\\fR");
    }
    text + "\n"
}

fn shown(argument: &Arg) -> String {
    let values = if argument.get_action().takes_values() {
        let names = argument.get_value_names().unwrap_or_default();
        let names: Vec<String> = names
            .iter()
            .map(|name| format!("\\fI{}\\fR", escaped(name)))
            .collect();
        names.join(" ")
    } else {
        String::new()
    };
    let many = argument
        .get_num_args()
        .is_some_and(|range| range.max_values() > 1);
    let values = if many { values + "..." } else { values };
    let option = match (argument.get_long(), argument.get_short()) {
        (Some(long), _) => format!("\\fB\\-\\-{}\\fR", escaped(long)),
        (None, Some(short)) => format!("\\fB\\-{short}\\fR"),
        (None, None) => return values,
    };
    if values.is_empty() {
        option
    } else {
        format!("{option} {values}")
    }
}

/// A text in which nothing means anything to roff.
fn escaped(text: &str) -> String {
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            let line = line.replace('\\', "\\e").replace('-', "\\-");
            // A dot or a quote would begin a request.
            if line.starts_with(['.', '\'']) {
                format!("\\&{line}")
            } else {
                line
            }
        })
        .collect();
    lines.join("\n")
}

/// The page of netchannel.toml: its document.
pub fn configuration() -> String {
    let document = include_str!("../../../../docs/configuration.md");
    let mut page = String::from(
        ".TH netchannel.toml 5\n.SH NAME\nnetchannel.toml \\- the peers of this host, and how channels to them are used\n",
    );
    let mut lines = document.lines().skip(1).peekable();
    while let Some(line) = lines.next() {
        if let Some(head) = line
            .strip_prefix("## ")
            .or_else(|| line.strip_prefix("### "))
        {
            let macro_name = if line.starts_with("###") {
                ".SS"
            } else {
                ".SH"
            };
            page.push_str(&format!(
                "{macro_name} \"{}\"\n",
                plain(head).to_uppercase()
            ));
        } else if line.starts_with("```") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            page.push_str(&format!(".nf\n{}\n.fi\n", escaped(&block.join("\n"))));
        } else if line.starts_with('|') {
            row(
                &mut page,
                line,
                lines.peek().is_some_and(|next| next.starts_with("|---")),
            );
        } else if let Some(item) = line.strip_prefix("- ") {
            page.push_str(&format!(".IP \\(bu 2\n{}\n", plain(item)));
        } else if line.is_empty() {
            page.push_str(".PP\n");
        } else {
            page.push_str(&format!("{}\n", plain(line.trim_start())));
        }
    }
    page + ".SH \"SEE ALSO\"\nnetchannel(1), netchannel\\-config(1), netchannel\\-daemon(1)\n"
}

/// A row of a table as a paragraph with a hanging tag. The head of the table is left out.
fn row(page: &mut String, line: &str, is_head: bool) {
    let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
    if is_head || line.starts_with("|---") {
        return;
    }
    let tag = cells.next().unwrap_or_default();
    let rest: Vec<String> = cells.map(plain).collect();
    page.push_str(&format!(
        ".TP\n\\fB{}\\fR\n{}\n",
        plain(tag),
        rest.join("; ")
    ));
}

/// Words without marks of the document: code, emphasis, links.
fn plain(text: &str) -> String {
    let mut words = text.replace(['`', '*'], "");
    while let Some((before, rest)) = words.split_once("](") {
        let Some((name, after)) = before.rsplit_once('[').zip(rest.split_once(')')) else {
            break;
        };
        words = format!("{}{}{}", name.0, name.1, after.1);
    }
    escaped(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_documents_go_and_signs_of_roff_are_kept() {
        assert_eq!(plain("a `b-c` of [d](e.md#f) **g**"), "a b\\-c of d g");
        assert_eq!(escaped(".x\\y"), "\\&.x\\ey");
        let mut page = String::new();
        row(&mut page, "| `dial` | 5s | until it stands |", false);
        assert_eq!(page, ".TP\n\\fBdial\\fR\n5s; until it stands\n");
    }
}
