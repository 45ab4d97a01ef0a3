//! TCP's congestion control between two hosts: the same for kernel TCP and for channels, unless it is asked for otherwise.

use crate::error::BenchError;
use netchannel_namespaces::Hosts;

/// Its pacing needs a queueing discipline that a veth does not have, or a timer for each packet.
const PACED: &str = "bbr";
/// The replacement, the first available one; as for channels.
const INSTEAD: [&str; 2] = ["cubic", "reno"];

/// Sets it for all connections of both hosts. Returns its name.
pub fn set(hosts: &Hosts, asked: Option<&str>) -> Result<String, BenchError> {
    let setting = |name: &str| {
        let text = hosts.a.setting(&format!("ipv4/tcp_{name}"));
        text.map_err(BenchError::Directory)
    };
    let known = setting("available_congestion_control")?;
    let name = match asked {
        Some(name) => name.to_owned(),
        None => chosen(&setting("congestion_control")?, &known).to_owned(),
    };
    if !known.split_whitespace().any(|one| one == name) {
        return Err(BenchError::Options(format!(
            "the kernel does not have {name} as congestion control; it has: {known}"
        )));
    }
    hosts.congestion_control(&name)?;
    Ok(name)
}

fn chosen<'a>(own: &'a str, known: &str) -> &'a str {
    let is_known = |name: &&str| known.split_whitespace().any(|one| one == *name);
    if own != PACED {
        return own;
    }
    INSTEAD.into_iter().find(is_known).unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_paces_is_not_taken_where_there_is_another() {
        assert_eq!(chosen("bbr", "reno bbr cubic"), "cubic");
        assert_eq!(chosen("bbr", "reno bbr"), "reno");
        assert_eq!(chosen("bbr", "bbr"), "bbr");
        assert_eq!(chosen("dctcp", "reno dctcp cubic"), "dctcp");
    }
}
