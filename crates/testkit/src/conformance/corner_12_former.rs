//! Corner 12, the state of a socket whose connection has ended and that can be connected anew: its port, its address,
//! an error.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::helpers::{expect_no_urgent, send_and_wait, send_urgent};

cases! {
    families: [
        corner_12_former_port_after_a_connect_that_was_reset,
        corner_12_former_port_after_a_connect_to_nowhere,
        corner_12_former_port_is_not_kept,
        corner_12_former_address_is_kept,
        corner_12_former_address_of_the_listener_is_kept,
        corner_12_former_port_can_be_bound_beside,
        corner_12_former_error_is_told,
        corner_12_former_error_is_told_once,
        corner_12_former_error_of_a_connect_is_told_once,
        corner_12_former_urgent_byte_is_gone,
        corner_12_former_peer_is_reset_all_the_same,
        corner_12_former_owner_is_kept,
        corner_12_former_address_goes_with_a_bind_that_fails,
        corner_12_former_socket_listens_with_a_timeout,
    ];
}

const RESET: Errno = Errno(libc::ECONNRESET);
const PIPE: Errno = Errno(libc::EPIPE);

fn connect_unspecified(socket: Descriptor) {
    let dissolved = sys::connect_raw(socket, &sys::RawAddress::empty());
    assert_eq!(dissolved, Ok(()));
}

fn begun(socket: Descriptor, address: std::net::SocketAddr) {
    set_nonblocking(socket);
    let connected = sys::connect(socket, address);
    assert_eq!(connected, Err(Errno(libc::EINPROGRESS)));
    await_events(socket, libc::POLLOUT);
}

/// A connect in progress, whose connection the listener has reset. The error has been returned.
fn reset_and_reported(family: Family, socket: Descriptor) -> u16 {
    let (listening, address) = listener(family);
    begun(socket, address);
    let port = sys::getsockname(socket).unwrap().port();
    sys::close(listening).unwrap();
    await_events(socket, libc::POLLERR);
    assert_eq!(sys::connect(socket, address), Err(RESET));
    port
}

fn corner_12_former_port_after_a_connect_that_was_reset(family: Family) {
    let client = tcp(family);
    let port = reset_and_reported(family, client);
    let named = sys::getsockname(client).unwrap();
    assert_eq!(named.port(), port);
    assert!(named.ip().is_unspecified(), "{named}");
}

fn corner_12_former_port_after_a_connect_to_nowhere(family: Family) {
    let (client, _server) = pair(family);
    let port = sys::getsockname(client).unwrap().port();
    connect_unspecified(client);
    let named = sys::getsockname(client).unwrap();
    assert_eq!(named.port(), port);
    assert!(named.ip().is_unspecified(), "{named}");
}

/// The next bind or connect gives the socket another port.
fn corner_12_former_port_is_not_kept(family: Family) {
    let (client, _server) = pair(family);
    connect_unspecified(client);
    let _ = socket_error(client);
    let free = tcp(family);
    sys::bind(free, family.loopback(0)).unwrap();
    let wanted = sys::getsockname(free).unwrap();
    sys::close(free).unwrap();
    sys::bind(client, wanted).unwrap();
    assert_eq!(sys::getsockname(client), Ok(wanted));
    let again = tcp(family);
    reset_and_reported(family, again);
    let (listening, address) = listener(family);
    set_blocking(again);
    sys::connect(again, address).unwrap();
    let (_, from) = sys::accept_from(listening).unwrap();
    assert_eq!(sys::getsockname(again), Ok(from));
}

/// A port that the kernel chose is released with the connection, an address stays.
fn corner_12_former_address_is_kept(family: Family) {
    let client = tcp(family);
    sys::bind(client, family.loopback(0)).unwrap();
    let port = reset_and_reported(family, client);
    let named = sys::getsockname(client).unwrap();
    assert_eq!((named.ip(), named.port()), (family.loopback(0).ip(), port));
    let (listening, address) = listener(family);
    set_blocking(client);
    sys::connect(client, address).unwrap();
    let server = sys::accept(listening).unwrap();
    expect_alive(client, server);
}

fn corner_12_former_address_of_the_listener_is_kept(family: Family) {
    let (listening, address) = listener(family);
    let _client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    connect_unspecified(server);
    assert_eq!(sys::getsockname(server), Ok(address));
}

fn corner_12_former_port_can_be_bound_beside(family: Family) {
    let client = tcp(family);
    sys::bind(client, family.loopback(0)).unwrap();
    reset_and_reported(family, client);
    let (_listening, taken) = listener(family);
    let bound = sys::bind(client, taken);
    assert_eq!(bound, Err(Errno(libc::EADDRINUSE)));
    sys::bind(client, family.loopback(0)).unwrap();
}

fn corner_12_former_error_is_told(family: Family) {
    let (client, server) = pair(family);
    sys::close(server).unwrap();
    await_events(client, libc::POLLRDHUP);
    send_all(client, b"late");
    await_events(client, libc::POLLERR);
    connect_unspecified(client);
    assert_eq!(sys::recv(client, &mut [0; 8], 0), Err(PIPE));
    let not = Err(Errno(libc::ENOTCONN));
    assert_eq!(sys::recv(client, &mut [0; 8], 0), not);
    let (listening, address) = listener(family);
    sys::connect(client, address).unwrap();
    expect_alive(client, sys::accept(listening).unwrap());
}

/// Also where another process has the socket.
fn corner_12_former_error_is_told_once(family: Family) {
    let (client, server) = pair(family);
    send_and_wait(client, server, b"never read");
    sys::close(server).unwrap();
    await_events(client, libc::POLLERR);
    assert_eq!(sys::recv(client, &mut [0; 8], 0), Err(RESET));
    let child = fork_child(|| {
        connect_unspecified(client);
        let received = sys::recv(client, &mut [0; 8], libc::MSG_DONTWAIT);
        assert_ne!(received, Err(RESET));
    });
    child.join();
}

/// The connection ended before the program was notified that it is established.
fn corner_12_former_error_of_a_connect_is_told_once(family: Family) {
    let (listening, address) = listener(family);
    let client = tcp(family);
    begun(client, address);
    let server = sys::accept(listening).unwrap();
    send_and_wait(client, server, b"never read");
    sys::close(server).unwrap();
    await_events(client, libc::POLLERR);
    let child = fork_child(|| {
        assert_eq!(sys::connect(client, address), Err(RESET));
        assert_eq!(sys::send(client, b"x", libc::MSG_NOSIGNAL), Err(PIPE));
    });
    child.join();
    assert_eq!(sys::send(client, b"x", libc::MSG_NOSIGNAL), Err(PIPE));
    let not = Err(Errno(libc::ENOTCONN));
    assert_eq!(sys::recv(client, &mut [0; 8], libc::MSG_DONTWAIT), not);
}

fn corner_12_former_urgent_byte_is_gone(family: Family) {
    let (client, server) = pair(family);
    send_urgent(server, b"a!");
    await_events(client, libc::POLLPRI);
    let child = fork_child(|| {
        connect_unspecified(client);
        expect_no_urgent(client);
    });
    child.join();
}

/// A sender whose bytes meet a peer that has shut both directions is notified of the reset. The peer finds the reset,
/// too, whatever becomes of the sender.
fn corner_12_former_peer_is_reset_all_the_same(family: Family) {
    let (listening, address) = listener(family);
    let client = tcp(family);
    begun(client, address);
    let server = sys::accept(listening).unwrap();
    sys::shutdown(server, libc::SHUT_RDWR).unwrap();
    await_events(client, libc::POLLRDHUP);
    send_all(client, b"too late");
    await_events(client, libc::POLLERR);
    assert_eq!(sys::connect(client, address), Err(PIPE));
    assert_eq!(sys::recv(server, &mut [0; 8], 0), Err(RESET));
}

/// The owner to signal belongs to the open file.
fn corner_12_former_owner_is_kept(family: Family) {
    let own = sys::getpid();
    let own_as = |socket| {
        sys::fcntl(socket, libc::F_SETOWN, own).unwrap();
        sys::fcntl(socket, F_SETSIG, libc::SIGUSR1).unwrap();
    };
    let expect = |socket| {
        assert_eq!(sys::fcntl(socket, libc::F_GETOWN, 0), Ok(own));
        assert_eq!(sys::fcntl(socket, F_GETSIG, 0), Ok(libc::SIGUSR1));
    };
    let (client, _server) = pair(family);
    own_as(client);
    connect_unspecified(client);
    expect(client);
    // A connect that fails.
    let (listening, address) = listener(family);
    let client = tcp(family);
    begun(client, address);
    own_as(client);
    sys::close(listening).unwrap();
    await_events(client, libc::POLLERR);
    assert_eq!(sys::connect(client, address), Err(RESET));
    expect(client);
}

const F_SETSIG: libc::c_int = 10;
const F_GETSIG: libc::c_int = 11;

/// A socket whose connection has ended keeps its address until a `bind` finds another address in use.
fn corner_12_former_address_goes_with_a_bind_that_fails(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    let before = sys::getsockname(client).unwrap();
    close_with_reset(sys::accept(listening).unwrap());
    await_events(client, libc::POLLERR);
    assert_eq!(sys::getsockname(client), Ok(before));
    assert_eq!(
        sys::bind(client, address),
        Err(Errno(libc::EADDRINUSE)),
        "the listener's"
    );
    let after = sys::getsockname(client).unwrap();
    assert_eq!(after.port(), before.port());
    assert!(after.ip().is_unspecified(), "{after}");
}

/// Options that are set after a connect that failed are the listener's, too.
fn corner_12_former_socket_listens_with_a_timeout(family: Family) {
    let listening = tcp(family);
    let refused = sys::connect(listening, unused_address(family));
    assert_eq!(refused, Err(Errno(libc::ECONNREFUSED)));
    let short = [0_i64, 20_000];
    sys::set_option(listening, libc::SOL_SOCKET, libc::SO_RCVTIMEO, short).unwrap();
    sys::listen(listening, 1).unwrap();
    assert_eq!(sys::accept(listening), Err(Errno(libc::EAGAIN)));
    let address = family.loopback(sys::getsockname(listening).unwrap().port());
    let client = connect_to(address);
    expect_alive(client, sys::accept(listening).unwrap());
}
