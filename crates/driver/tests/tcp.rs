//! The contract, kept by TCP over both families; what TCP alone promises.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use netchannel_driver::{Channel, Options, Run, Tcp, Transport, contract, transport};

const V4: &str = "127.0.0.1:0";
const V6: &str = "[::1]:0";

/// A port at which nobody listens: bound and not listened at, so that nobody else gets it.
fn nobody(at: &str) -> (rustix::fd::OwnedFd, SocketAddr) {
    use rustix::net::{AddressFamily, SocketType};
    let at: SocketAddr = at.parse().unwrap();
    let family = if at.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = rustix::net::socket(family, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &at).unwrap();
    let address = rustix::net::getsockname(&socket)
        .unwrap()
        .try_into()
        .unwrap();
    (socket, address)
}

#[test]
fn the_contract_is_kept() {
    for at in [V4, V6] {
        let (_held, nobody) = nobody(at);
        contract::check(&Tcp, at.parse().unwrap(), nobody);
    }
}

/// Whatever the configuration offers keeps the contract, and its page says so.
#[test]
fn every_transport_that_is_offered_keeps_the_contract() {
    let page = include_str!("../../../docs/transports.md");
    for (name, make) in netchannel_driver::TRANSPORTS {
        let (_held, nobody) = nobody(V4);
        contract::check(&*make(), V4.parse().unwrap(), nobody);
        assert!(
            page.lines()
                .any(|line| line.starts_with(&format!("| `{name}` |"))),
            "docs/transports.md: the table of transports has no row for `{name}`"
        );
    }
}

#[test]
fn a_transport_is_found_by_its_name() {
    for (name, _) in netchannel_driver::TRANSPORTS {
        assert_eq!(
            transport(name).unwrap().name(),
            *name,
            "TRANSPORTS in crates/driver/src/lib.rs and Transport::name say different names"
        );
    }
    assert!(transport("pigeon").is_none());
}

#[test]
fn both_families_can_have_one_port() {
    let options = Options::default();
    let acceptor = Tcp.listen("0.0.0.0:0".parse().unwrap(), &options).unwrap();
    let port = acceptor.address().port();
    let at = SocketAddr::new("::".parse().unwrap(), port);
    assert_eq!(Tcp.listen(at, &options).unwrap().address().port(), port);
    assert!(Tcp.listen(acceptor.address(), &options).is_err());
}

#[test]
fn options_are_set() {
    let listener = TcpListener::bind(V4).unwrap();
    let options = Options {
        congestion_control: Some("reno".to_owned()),
        send_buffer: Some(100_000),
        receive_buffer: Some(200_000),
        unsent_low_water: Some(131_072),
        priority: Some(5),
        dscp: Some(10),
        unanswered: Some(Duration::from_secs(9)),
        from: Some("127.3.2.1".parse().unwrap()),
    };
    let channel = Tcp
        .connect(listener.local_addr().unwrap(), &options)
        .unwrap();
    let (_, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), options.from.unwrap());
    let socket = channel.descriptor();
    use rustix::net::sockopt;
    assert!(sockopt::tcp_nodelay(socket).unwrap());
    assert_eq!(sockopt::tcp_congestion(socket).unwrap(), "reno");
    // The kernel doubles them, for its own structures.
    assert_eq!(sockopt::socket_send_buffer_size(socket).unwrap(), 200_000);
    assert_eq!(sockopt::socket_recv_buffer_size(socket).unwrap(), 400_000);
    assert_eq!(sockopt::ip_tos(socket).unwrap(), 40);
    assert_eq!(sockopt::tcp_user_timeout(socket).unwrap(), 9000);
    assert_eq!(
        sockopt::tcp_keepidle(socket).unwrap(),
        Duration::from_secs(3)
    );
    assert!(sockopt::socket_keepalive(socket).unwrap());
    assert_eq!(number(&*channel, libc::SOL_SOCKET, libc::SO_PRIORITY), 5);
    assert_eq!(
        number(&*channel, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
        131_072
    );
}

fn number(channel: &dyn Channel, level: i32, name: i32) -> u32 {
    use std::os::fd::AsRawFd;
    let (mut value, mut size) = (0u32, 4);
    let socket = channel.descriptor().as_raw_fd();
    // SAFETY: one number of the size that is told.
    let result =
        unsafe { libc::getsockopt(socket, level, name, (&raw mut value).cast(), &raw mut size) };
    assert_eq!(result, 0);
    value
}

#[test]
fn the_status_tells_what_waits() {
    let (mut one, mut other) = contract::pair(&Tcp, V4.parse().unwrap());
    assert_eq!((one.status().unacknowledged, one.status().unread), (0, 0));
    let block = vec![7; 1 << 20];
    let mut sent = 0u64;
    loop {
        match one.enqueue(&[Run::from(&block[..])]).unwrap() {
            0 => break,
            count => sent += count as u64,
        }
    }
    let (there, here) = (other.status().unread, one.status());
    assert!(there > 0 && here.unsent > 0, "{there} {here:?}");
    assert!(here.unsent <= here.unacknowledged && here.unacknowledged <= sent);
    assert!(here.round_trip > Duration::ZERO);
    // It is the other end that does not read, not the network.
    assert!(!here.congestion_limited, "{here:?}");
}
