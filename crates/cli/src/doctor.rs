//! `netchannel doctor`: what this host lacks, and how to fix it.

mod checks;
mod hosts;

use crate::arguments::Asking;
use crate::show::print;
use crate::socket::socket_path;
use serde::Serialize;
use std::ffi::c_int;
use std::io::IsTerminal;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// In order.
    Ok,
    /// It works, but could work better.
    Warn,
    /// It can not work.
    Fail,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject.
    pub check: &'static str,
    /// The result.
    pub verdict: Verdict,
    /// The details.
    pub found: String,
    /// The command that fixes it, or what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// Runs the command.
pub fn doctor(arguments: &Asking) -> c_int {
    let mut findings = checks::host();
    match socket_path(arguments.socket.as_deref()) {
        Ok(socket) => {
            findings.extend(checks::installation(&socket));
            findings.extend(hosts::hosts(&socket));
        }
        Err(error) => findings.push(Finding {
            check: "socket path",
            verdict: Verdict::Fail,
            found: error.to_string(),
            fix: Some("name one with --socket PATH".to_owned()),
        }),
    }
    let text = if arguments.json {
        serde_json::to_string_pretty(&findings).unwrap_or_default() + "\n"
    } else {
        shown(&findings, is_coloured())
    };
    let code = c_int::from(findings.iter().any(|one| one.verdict == Verdict::Fail));
    print(&text).max(code)
}

/// Whether the output is a terminal that shows colours, and the user wants them.
fn is_coloured() -> bool {
    let said = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
    std::io::stdout().is_terminal() && !dumb && !said("NO_COLOR")
}

fn shown(findings: &[Finding], coloured: bool) -> String {
    let mut text = String::new();
    for finding in findings {
        let (verdict, colour) = match finding.verdict {
            Verdict::Ok => ("ok  ", 32),
            Verdict::Warn => ("warn", 33),
            Verdict::Fail => ("FAIL", 31),
        };
        let verdict = if coloured {
            format!("\x1b[{colour}m{verdict}\x1b[0m")
        } else {
            verdict.to_owned()
        };
        text.push_str(&format!(
            "{verdict}  {:<18} {}\n",
            finding.check, finding.found
        ));
        if let Some(fix) = &finding.fix {
            text.push_str(&format!("{:>24} {fix}\n", "->"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_comes_with_what_to_do() {
        let place = tempfile::tempdir().unwrap();
        let findings = [
            checks::host(),
            checks::installation(&place.path().join("a.sock")),
        ]
        .concat();
        assert!(findings.len() > 8);
        for finding in &findings {
            assert_eq!(
                finding.verdict == Verdict::Ok,
                finding.fix.is_none(),
                "{finding:?}"
            );
        }
        let text = shown(&findings, false);
        assert!(text.contains("memfd") && text.lines().count() >= findings.len());
        assert!(!text.contains('\x1b') && shown(&findings, true).contains("\x1b[3"));
    }
}
