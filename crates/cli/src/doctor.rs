//! `netchannel doctor`: what this host lacks, and how to mend it.

mod checks;

use crate::arguments::Asking;
use crate::show::print;
use crate::socket::socket_path;
use serde::Serialize;
use std::ffi::c_int;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, but could work better.
    Warn,
    /// It can not work.
    Fail,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// The command that mends it, or what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

/// Runs the command.
pub fn doctor(arguments: &Asking) -> c_int {
    let mut findings = checks::host();
    match socket_path(arguments.socket.as_deref()) {
        Ok(socket) => findings.extend(checks::installation(&socket)),
        Err(error) => findings.push(Finding {
            check: "socket path",
            verdict: Verdict::Fail,
            found: error.to_string(),
            mend: Some("name one with --socket PATH".to_owned()),
        }),
    }
    let text = if arguments.json {
        serde_json::to_string_pretty(&findings).unwrap_or_default() + "\n"
    } else {
        shown(&findings)
    };
    print(&text);
    c_int::from(findings.iter().any(|one| one.verdict == Verdict::Fail))
}

fn shown(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let verdict = match finding.verdict {
            Verdict::Ok => "ok  ",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        text.push_str(&format!(
            "{verdict}  {:<18} {}\n",
            finding.check, finding.found
        ));
        if let Some(mend) = &finding.mend {
            text.push_str(&format!("{:>24} {mend}\n", "->"));
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
                finding.mend.is_none(),
                "{finding:?}"
            );
        }
        let text = shown(&findings);
        assert!(text.contains("memfd") && text.lines().count() >= findings.len());
    }
}
