//! Corner 15: a limit of address space, as servers set it to confine their workers.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use crate::case::cases;
use crate::corner_05_exec::ask_echo;

cases! {
    families: [
        corner_15_addresses_connections_go_on_under_a_limit,
        corner_15_addresses_limit_is_as_it_was_set,
        corner_15_addresses_limit_goes_with_an_exec,
        corner_15_addresses_limit_of_data,
    ];
}

const MEBIBYTE: usize = 1 << 20;
/// More than this program takes, and less than a link of the library takes.
const LIMIT: libc::rlimit = libc::rlimit {
    rlim_cur: 300 << 20,
    rlim_max: 400 << 20,
};

fn limits(of: &libc::rlimit) -> (u64, u64) {
    (of.rlim_cur, of.rlim_max)
}

/// Maps memory, and unmaps it.
fn map(length: usize) -> sys::Outcome<()> {
    let mapped = sys::map_private(length)?;
    sys::unmap(mapped, length)
}

fn corner_15_addresses_connections_go_on_under_a_limit(family: Family) {
    let (listening, address) = listener(family);
    let (before, before_server) = pair(family);
    let served = fork_child(|| {
        sys::set_limit(libc::RLIMIT_AS, &LIMIT).unwrap();
        for text in [b"before", b"and on"] {
            expect_bytes(before_server, text);
            send_all(before_server, text);
        }
        for _ in 0..4 {
            let server = sys::accept(listening).unwrap();
            let bytes = receive_exact(server, 6);
            send_all(server, &bytes);
            sys::close(server).unwrap();
        }
        // As much room is left as before.
        assert_eq!(map(16 * MEBIBYTE), Ok(()));
    });
    ask_echo(before, b"before");
    ask_echo(before, b"and on");
    for _ in 0..4 {
        // A client in its own process, to which there is no link yet.
        let client = fork_child(|| {
            let client = connect_to(address);
            ask_echo(client, b"within");
            expect_end(client);
        });
        client.join();
    }
    served.join();
}

fn corner_15_addresses_limit_is_as_it_was_set(family: Family) {
    let (client, server) = pair(family);
    let child = fork_child(|| {
        sys::set_limit(libc::RLIMIT_AS, &LIMIT).unwrap();
        let seen = sys::limit(libc::RLIMIT_AS).unwrap();
        assert_eq!(limits(&seen), limits(&LIMIT));
        assert_eq!(map(64 * MEBIBYTE), Ok(()));
        assert_eq!(map(310 * MEBIBYTE), Err(Errno(libc::ENOMEM)));
        ask_echo_of_peer(client, server);
        let raised = libc::rlimit {
            rlim_cur: LIMIT.rlim_max + 1,
            ..LIMIT
        };
        let refused = sys::set_limit(libc::RLIMIT_AS, &raised);
        assert_eq!(refused, Err(Errno(libc::EINVAL)));
        let raised = libc::rlimit {
            rlim_cur: LIMIT.rlim_max,
            ..LIMIT
        };
        sys::set_limit(libc::RLIMIT_AS, &raised).unwrap();
        assert_eq!(map(310 * MEBIBYTE), Ok(()));
        assert_eq!(map(410 * MEBIBYTE), Err(Errno(libc::ENOMEM)));
    });
    child.join();
}

/// Both ends are in this process.
fn ask_echo_of_peer(client: sys::Descriptor, server: sys::Descriptor) {
    send_all(client, b"there");
    expect_bytes(server, b"there");
    send_all(server, b"back");
    expect_bytes(client, b"back");
}

fn corner_15_addresses_limit_goes_with_an_exec(family: Family) {
    let (_client, _server) = pair(family);
    let child = fork_child(|| {
        let limit = libc::rlimit {
            rlim_cur: 3 << 30,
            rlim_max: 4 << 30,
        };
        sys::set_limit(libc::RLIMIT_AS, &limit).unwrap();
        let words = [limit.rlim_cur, limit.rlim_max].map(|word| word.to_string());
        exec_helper(&["expect-addresses", &words[0], &words[1]], true);
    });
    child.join();
}

/// As FTP servers set the limit for a client's process, which then switches to that client's user.
fn corner_15_addresses_limit_of_data(family: Family) {
    const DATA: libc::rlimit = libc::rlimit {
        rlim_cur: 70 << 20,
        rlim_max: 70 << 20,
    };
    let (listening, address) = listener(family);
    let clients: Vec<_> = (0..8).map(|_| connect_to(address)).collect();
    let served = fork_child(|| {
        let servers: Vec<_> = clients
            .iter()
            .map(|_| sys::accept(listening).unwrap())
            .collect();
        sys::set_limit(libc::RLIMIT_DATA, &DATA).unwrap();
        // SAFETY: no pointers. A user other than root stays the same user.
        unsafe { libc::setuid(65534) };
        for server in servers {
            let bytes = receive_exact(server, 6);
            send_all(server, &bytes);
        }
        assert_eq!(map(32 * MEBIBYTE), Ok(()));
    });
    clients
        .iter()
        .for_each(|client| ask_echo(*client, b"within"));
    served.join();
}
