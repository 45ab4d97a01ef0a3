//! Looks into the kernel's own table of TCP connections, to know that what is reported as
//! NetChannel's was not carried by TCP after all. It believes the kernel, not NetChannel.

use std::collections::BTreeSet;
use std::fs;

const ESTABLISHED: &str = "01";
const LISTENING: &str = "0A";

/// Whether anybody listens at a port, in the network namespace of the calling thread.
pub fn listens(port: u16) -> bool {
    let tables = ["tcp", "tcp6"].map(|table| format!("/proc/thread-self/net/{table}"));
    let texts = tables.map(|table| fs::read_to_string(table).unwrap_or_default());
    texts.iter().any(|text| has_listener(text, port))
}

fn has_listener(table: &str, port: u16) -> bool {
    let own = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_own = words.next().is_some_and(|address| address.ends_with(&own));
        is_own && words.nth(1) == Some(LISTENING)
    })
}

/// Established kernel TCP connections with this port at either end, in the network namespace of a process.
pub fn established(process: libc::pid_t, port: u16) -> usize {
    let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{process}/net/{table}"));
    // Without IPv6 in the kernel there is no second table.
    let texts = tables.map(|table| fs::read_to_string(table).unwrap_or_default());
    texts.iter().map(|text| count(text, port)).sum()
}

/// Each connection counts once: while others come and go, the kernel may list one twice.
fn count(table: &str, port: u16) -> usize {
    let port = format!("{port:04X}");
    let has_port = |address: &str| address.rsplit_once(':').is_some_and(|(_, of)| of == port);
    let connection = |line: &'_ str| {
        let mut words = line.split_whitespace().skip(1);
        let ends = (words.next()?.to_owned(), words.next()?.to_owned());
        let is_there = words.next() == Some(ESTABLISHED);
        (is_there && (has_port(&ends.0) || has_port(&ends.1))).then_some(ends)
    };
    let connections = table.lines().skip(1).filter_map(connection);
    connections.collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn only_established_connections_with_the_port_count() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:9C40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0100007F:9C40 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 2
   2: 0100007F:D431 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 3
   3: 0100007F:D432 0100007F:9C40 06 00000000:00000000 03:00000000 00000000     0        0 0
   2: 0100007F:D431 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 3
   4: 9C400000:D433 0100007F:9C41 01 00000000:00000000 00:00000000 00000000     0        0 4
";
        assert_eq!(count(table, 40_000), 2);
        assert_eq!(count(table, 40_001), 1);
        assert_eq!(count(table, 1), 0);
        assert_eq!(count("", 40_000), 0);
        assert!(has_listener(table, 40_000) && !has_listener(table, 40_001));
    }

    #[test]
    fn a_connection_of_our_own_is_seen_while_it_lives() {
        let own = libc::pid_t::try_from(std::process::id()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(established(own, port), 0);
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert_eq!(established(own, port), 2);
        drop(stream);
    }
}
