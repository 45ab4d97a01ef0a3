//! Corner 2: close while a thread sleeps in a call, of a socket that another process has, too.

use netchannel_testkit::support::*;
use netchannel_testkit::sys;

use crate::case::cases;
use crate::corner_02_close::close_while_accepting;

cases! {
    families: [
        corner_02_shared_close_while_blocked_recv,
        corner_02_shared_dup2_while_blocked_recv,
        corner_02_shared_close_of_one_number_while_blocked_recv,
        corner_02_shared_close_while_blocked_poll,
        corner_02_shared_close_listener_while_blocked_accept,
    ];
}

/// A child that has what this process has, but for `but`.
fn relative(but: Option<sys::Descriptor>) -> Child {
    fork_child(|| {
        but.inspect(|number| sys::close(*number).unwrap());
        loop {
            std::thread::park();
        }
    })
}

/// `close` closes the number while a thread receives, which keeps the connection.
fn receives_after(family: Family, close: impl FnOnce(sys::Descriptor)) {
    let (client, server) = pair(family);
    let child = relative(Some(server));
    let (thread, task) = start_thread(move || {
        let mut bytes = [0_u8; 8];
        (sys::recv(client, &mut bytes, 0), bytes)
    });
    await_asleep(task);
    close(client);
    send_all(server, b"late");
    let (size, bytes) = join_thread(thread);
    assert_eq!((size, &bytes[..4]), (Ok(4), &b"late"[..]));
    expect_quiet(server, libc::POLLRDHUP);
    child.kill();
    // Only then this process has it no more, either.
    expect_end(server);
}

fn corner_02_shared_close_while_blocked_recv(family: Family) {
    receives_after(family, |client| sys::close(client).unwrap());
}

fn corner_02_shared_dup2_while_blocked_recv(family: Family) {
    // Also with a handler for urgent bytes.
    for handles in [false, true] {
        if handles {
            sys::handle_signal(libc::SIGURG, crate::helpers::nothing, 0).unwrap();
        }
        receives_after(family, |client| {
            let other = tcp(family);
            assert_eq!(sys::dup2(other, client), Ok(client));
        });
    }
}

fn corner_02_shared_close_of_one_number_while_blocked_recv(family: Family) {
    receives_after(family, |client| {
        let other = sys::dup(client).unwrap();
        sys::close(client).unwrap();
        sys::close(other).unwrap();
    });
}

/// The poll keeps the connection until it returns, and then looks it up by number.
fn corner_02_shared_close_while_blocked_poll(family: Family) {
    let (client, server) = pair(family);
    let child = relative(Some(server));
    let (thread, task) = start_thread(move || poll_one(client, libc::POLLIN, -1));
    await_asleep(task);
    sys::close(client).unwrap();
    send_all(server, b"late");
    assert_eq!(join_thread(thread), libc::POLLNVAL);
    child.kill();
}

fn corner_02_shared_close_listener_while_blocked_accept(family: Family) {
    let (listening, address) = listener(family);
    let child = relative(None);
    close_while_accepting(listening, address);
    child.kill();
}
