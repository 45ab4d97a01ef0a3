//! Corner 6: a socket that is not connected yet, or a listener for which connections wait, goes to another process in a
//! message or with a program that `posix_spawn` starts. Both have one open file: whoever connects it connects it for
//! both, and whoever accepts first has a connection.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::corner_06_rights::{receiver, unix_pair};
use crate::deferred::reported;

cases! {
    families: [
        corner_06_unconnected_then_sender_connects,
        corner_06_unconnected_then_receiver_connects,
        corner_06_unconnected_then_sender_listens,
        corner_06_unconnected_then_receiver_listens,
        corner_06_unconnected_both_listen,
        corner_06_unconnected_listens_after_a_failed_connect,
        corner_06_unconnected_listener_is_shut_by_the_other,
        corner_06_unconnected_spawned_then_connects,
        corner_06_flags_of_a_passed_listener,
        corner_06_waiting_for_a_passed_listener,
        corner_06_waiting_for_a_passed_listener_in_a_set,
        corner_06_waiting_for_the_receivers_first_look,
        corner_06_waiting_for_a_look_beside_a_member_of_the_kernel,
        corner_06_waiting_after_a_look_of_the_sender,
        corner_06_waiting_beside_a_set_that_does_not_ask,
        corner_06_waiting_and_sent_much_by_another,
        corner_06_waiting_between_message_and_receipt,
        corner_06_waiting_for_a_listener_in_a_message,
        corner_06_waiting_for_a_listener_sent_to_oneself,
        corner_06_waiting_for_a_listener_never_received,
        corner_06_waiting_for_a_listener_that_is_not_sent,
        corner_06_waiting_for_a_listener_that_is_passed_and_kept,
        corner_06_waiting_for_a_listener_of_before_the_fork,
        corner_06_waiting_for_a_spawned_program,
        corner_06_waiting_for_a_spawned_program_by_another_number,
    ];
}

/// A child that connects to the port that it is told and expects a word of whoever accepts.
fn client(family: Family) -> (Child, Baton, Baton) {
    let (port, connected) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        let port = u16::try_from(port.receive()).unwrap();
        let socket = connect_to(family.loopback(port));
        connected.pass();
        expect_bytes(socket, b"accepted");
        send_all(socket, b"thanks");
    });
    (child, port, connected)
}

fn serve_one(listening: Descriptor) {
    let server = sys::accept(listening).unwrap();
    send_all(server, b"accepted");
    expect_bytes(server, b"thanks");
}

fn port_of(listening: Descriptor) -> u64 {
    u64::from(sys::getsockname(listening).unwrap().port())
}

fn corner_06_unconnected_then_sender_connects(family: Family) {
    let go = Baton::new();
    let (child, channel) = receiver(|socket| {
        go.take();
        send_all(socket, b"receiver");
        expect_bytes(socket, b"to both");
    });
    let (listening, address) = listener(family);
    let socket = tcp(family);
    sys::send_descriptor(channel, socket).unwrap();
    sys::connect(socket, address).unwrap();
    go.pass();
    let server = sys::accept(listening).unwrap();
    expect_bytes(server, b"receiver");
    send_all(server, b"to both");
    child.join();
    expect_alive(socket, server);
}

fn corner_06_unconnected_then_receiver_connects(family: Family) {
    let (port, done) = (Baton::new(), Baton::new());
    let (child, channel) = receiver(|socket| {
        let port = u16::try_from(port.receive()).unwrap();
        sys::connect(socket, family.loopback(port)).unwrap();
        done.pass();
    });
    let (listening, address) = listener(family);
    let socket = tcp(family);
    sys::send_descriptor(channel, socket).unwrap();
    port.send(u64::from(address.port()));
    done.take();
    child.join();
    let server = sys::accept(listening).unwrap();
    assert_eq!(sys::connect(socket, address), Err(Errno(libc::EISCONN)));
    expect_alive(socket, server);
}

fn corner_06_unconnected_then_sender_listens(family: Family) {
    let (go, polls) = (Baton::new(), Baton::new());
    let (client, port, _) = client(family);
    let (child, channel) = receiver(|socket| {
        go.take();
        polls.pass();
        assert_eq!(await_events(socket, libc::POLLIN), libc::POLLIN);
        serve_one(socket);
    });
    let socket = tcp(family);
    sys::bind(socket, family.loopback(0)).unwrap();
    sys::send_descriptor(channel, socket).unwrap();
    sys::listen(socket, 8).unwrap();
    go.pass();
    polls.take();
    await_asleep(child.process);
    port.send(port_of(socket));
    client.join();
    child.join();
}

fn corner_06_unconnected_then_receiver_listens(family: Family) {
    let (listens, end) = (Baton::new(), Baton::new());
    let (client, port, _) = client(family);
    let (child, channel) = receiver(|socket| {
        sys::listen(socket, 8).unwrap();
        listens.pass();
        end.take();
    });
    let socket = tcp(family);
    sys::bind(socket, family.loopback(0)).unwrap();
    sys::send_descriptor(channel, socket).unwrap();
    listens.take();
    port.send(port_of(socket));
    assert_eq!(await_events(socket, libc::POLLIN), libc::POLLIN);
    serve_one(socket);
    client.join();
    end.pass();
    child.join();
}

/// The receiver listens, and gets the listener once more; the sender connects to it.
fn corner_06_unconnected_both_listen(family: Family) {
    let (listens, go) = (Baton::new(), Baton::new());
    let (child, channel) = receiver(|socket| {
        sys::listen(socket, 8).unwrap();
        listens.pass();
        go.take();
        assert_eq!(await_events(socket, libc::POLLIN), libc::POLLIN);
        let server = sys::accept(socket).unwrap();
        send_all(server, b"accepted");
        expect_end(server);
    });
    let socket = tcp(family);
    sys::bind(socket, family.loopback(0)).unwrap();
    sys::send_descriptor(channel, socket).unwrap();
    listens.take();
    let [one, other] = unix_pair();
    sys::send_descriptor(one, socket).unwrap();
    let copy = sys::recv_descriptor(other).expect("recvmsg");
    go.pass();
    await_asleep(child.process);
    let client = connect_to(sys::getsockname(copy).unwrap());
    expect_bytes(client, b"accepted");
    sys::close(client).unwrap();
    child.join();
}

/// A connect of the receiver has failed before the sender listens.
fn corner_06_unconnected_listens_after_a_failed_connect(family: Family) {
    let (failed, go) = (Baton::new(), Baton::new());
    let (client, port, connected) = client(family);
    let nobody = unused_address(family);
    let (child, channel) = receiver(|socket| {
        assert_eq!(sys::connect(socket, nobody), Err(Errno(libc::ECONNREFUSED)));
        failed.pass();
        go.take();
        serve_one(socket);
    });
    let socket = tcp(family);
    sys::send_descriptor(channel, socket).unwrap();
    failed.take();
    sys::listen(socket, 8).unwrap();
    port.send(port_of(socket));
    connected.take();
    go.pass();
    child.join();
    client.join();
}

fn corner_06_unconnected_listener_is_shut_by_the_other(family: Family) {
    let (listens, end) = (Baton::new(), Baton::new());
    let (child, channel) = receiver(|socket| {
        sys::listen(socket, 8).unwrap();
        listens.pass();
        end.take();
        assert_eq!(sys::accept(socket), Err(Errno(libc::EINVAL)));
    });
    let socket = tcp(family);
    sys::bind(socket, family.loopback(0)).unwrap();
    let address = sys::getsockname(socket).unwrap();
    sys::send_descriptor(channel, socket).unwrap();
    listens.take();
    sys::shutdown(socket, libc::SHUT_RD).unwrap();
    let refused = Err(Errno(libc::ECONNREFUSED));
    assert_eq!(sys::connect(tcp(family), address), refused);
    end.pass();
    child.join();
}

/// Both look at the listener before the other changes whether it blocks.
fn corner_06_flags_of_a_passed_listener(family: Family) {
    const NOTHING: Result<Descriptor, Errno> = Err(Errno(libc::EAGAIN));
    let (theirs, ours) = (Baton::new(), Baton::new());
    let (child, channel) = receiver(|socket| {
        assert_eq!(sys::accept(socket), NOTHING);
        set_blocking(socket);
        theirs.pass();
        ours.take();
        assert_eq!(sys::accept(socket), NOTHING);
        sys::ioctl_int(socket, libc::FIONBIO, 0).unwrap();
        theirs.pass();
        expect_bytes(sys::accept(socket).unwrap(), b"late");
    });
    let (listening, address) = listener(family);
    set_nonblocking(listening);
    assert_eq!(sys::accept(listening), NOTHING);
    sys::send_descriptor(channel, listening).unwrap();
    theirs.take();
    let flags = || sys::fcntl(listening, libc::F_GETFL, 0).unwrap();
    assert_eq!(flags(), libc::O_RDWR);
    sys::ioctl_int(listening, libc::FIONBIO, 1).unwrap();
    assert_eq!(sys::accept(listening), NOTHING);
    ours.pass();
    theirs.take();
    assert_eq!(flags(), libc::O_RDWR);
    await_asleep(child.process);
    let client = connect_to(address);
    send_all(client, b"late");
    child.join();
}

fn corner_06_unconnected_spawned_then_connects(family: Family) {
    let (listening, address) = listener(family);
    let socket = tcp(family);
    let [read, write] = sys::pipe(0).unwrap();
    let command = format!("read go <&{read}; echo spawned >&{socket}; read last <&{read}");
    let child = spawn_shell(&command, None);
    sys::connect(socket, address).unwrap();
    let server = sys::accept(listening).unwrap();
    send_all_to_pipe(write, b"go\n");
    expect_bytes(server, b"spawned\n");
    expect_alive(socket, server);
    send_all_to_pipe(write, b"last\n");
    child.join();
    expect_alive(socket, server);
}

fn send_all_to_pipe(write: Descriptor, bytes: &[u8]) {
    assert_eq!(sys::write(write, bytes), Ok(bytes.len()));
}

/// A listener is passed while a connection waits for it. Then the receiver runs `receiving`, and the sender `keeping`.
fn pass_while_one_waits(
    family: Family,
    receiving: impl FnOnce(Descriptor),
    keeping: impl FnOnce(Descriptor),
) {
    let (client, port, connected) = client(family);
    let (child, channel) = receiver(receiving);
    let (listening, _) = listener(family);
    port.send(port_of(listening));
    connected.take();
    sys::send_descriptor(channel, listening).unwrap();
    keeping(listening);
    child.join();
    client.join();
}

/// The receiver accepts a connection that came before the listener was passed; the sender keeps it and does not accept.
fn corner_06_waiting_for_a_passed_listener(family: Family) {
    pass_while_one_waits(family, serve_one, |_| {});
}

fn corner_06_waiting_for_a_passed_listener_in_a_set(family: Family) {
    let (client, port, connected) = client(family);
    let (child, channel) = receiver(serve_one);
    let (listening, _) = listener(family);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, libc::EPOLLIN as u32, 0).unwrap();
    port.send(port_of(listening));
    connected.take();
    assert_eq!(sys::epoll_wait(set, 1, -1).unwrap().len(), 1);
    sys::send_descriptor(channel, listening).unwrap();
    child.join();
    client.join();
    assert_eq!(sys::epoll_wait(set, 1, 0).unwrap().len(), 0);
}

/// What the receiver's set, of the listener and what `others` adds, tells at once.
fn first_look(family: Family, others: impl FnOnce(Descriptor) -> usize) {
    let looking = |listening| {
        let set = sys::epoll_create().unwrap();
        let told = 1 + others(set);
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, libc::EPOLLIN as u32, 7).unwrap();
        assert_eq!(sys::epoll_wait(set, 8, 0).unwrap().len(), told);
        assert_eq!(sys::epoll_wait(set, 8, 0).unwrap().len(), told);
        serve_one(listening);
    };
    pass_while_one_waits(family, looking, |_| {});
}

fn corner_06_waiting_for_the_receivers_first_look(family: Family) {
    first_look(family, |_| 0);
}

fn corner_06_waiting_for_a_look_beside_a_member_of_the_kernel(family: Family) {
    first_look(family, |set| {
        let [read, write] = sys::pipe(0).unwrap();
        send_all_to_pipe(write, b"told");
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, read, libc::EPOLLIN as u32, 8).unwrap();
        1
    });
}

fn corner_06_waiting_after_a_look_of_the_sender(family: Family) {
    let go = Baton::new();
    let look = |listening| {
        assert_eq!(poll_one(listening, libc::POLLIN, 10_000), libc::POLLIN);
    };
    let receiving = |listening| {
        go.take();
        look(listening);
        serve_one(listening);
    };
    let keeping = |listening| {
        look(listening);
        go.pass();
    };
    pass_while_one_waits(family, receiving, keeping);
}

/// The receiver's set is to tell nothing of the listener (any more), and the sender accepts.
fn corner_06_waiting_beside_a_set_that_does_not_ask(family: Family) {
    let edge = libc::EPOLLET.cast_unsigned();
    let once = libc::EPOLLONESHOT.cast_unsigned();
    for events in [0, edge, sys::IN | once, sys::IN | once | edge] {
        let (told, end) = (Baton::new(), Baton::new());
        let (client, port, connected) = client(family);
        let (child, channel) = receiver(|listening| {
            let set = sys::epoll_create().unwrap();
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, listening, events, 7).unwrap();
            if events & sys::IN != 0 {
                assert_eq!(reported(set, PATIENCE_MILLISECONDS), 1);
            }
            assert_eq!(reported(set, 50), 0);
            told.pass();
            end.take();
            sys::epoll_control(set, libc::EPOLL_CTL_MOD, listening, sys::IN, 7).unwrap();
            assert_eq!(reported(set, PATIENCE_MILLISECONDS), 1);
            serve_one(listening);
        });
        let (listening, address) = listener(family);
        port.send(port_of(listening));
        connected.take();
        sys::send_descriptor(channel, listening).unwrap();
        told.take();
        await_events(listening, libc::POLLIN);
        serve_one(listening);
        client.join();
        // Asked again, it tells.
        let next = fork_child(|| {
            let next = connect_to(address);
            expect_bytes(next, b"accepted");
            send_all(next, b"thanks");
        });
        end.pass();
        child.join();
        next.join();
    }
}

/// The connection comes while the listener is in a message.
fn corner_06_waiting_between_message_and_receipt(family: Family) {
    let go = Baton::new();
    let (client, port, connected) = client(family);
    let [ours, theirs] = unix_pair();
    let child = fork_child(|| {
        go.take();
        serve_one(sys::recv_descriptor(theirs).expect("recvmsg"));
    });
    let (listening, _) = listener(family);
    sys::send_descriptor(ours, listening).unwrap();
    port.send(port_of(listening));
    connected.take();
    go.pass();
    child.join();
    client.join();
}

/// The sender closes the listener before it is received.
fn corner_06_waiting_for_a_listener_in_a_message(family: Family) {
    let go = Baton::new();
    let (client, port, connected) = client(family);
    let [ours, theirs] = unix_pair();
    let child = fork_child(|| {
        go.take();
        let listening = sys::recv_descriptor(theirs).expect("recvmsg");
        serve_one(listening);
        let next = connect_to(sys::getsockname(listening).unwrap());
        expect_alive(next, sys::accept(listening).unwrap());
    });
    let (listening, _) = listener(family);
    port.send(port_of(listening));
    connected.take();
    sys::send_descriptor(ours, listening).unwrap();
    sys::close(listening).unwrap();
    go.pass();
    child.join();
    client.join();
}

/// The same process receives it, after a look at what waits. Its client makes no call meanwhile.
fn corner_06_waiting_for_a_listener_sent_to_oneself(family: Family) {
    let (port, accepted) = (Baton::new(), Baton::new());
    let client = fork_child(|| {
        let port = u16::try_from(port.receive()).unwrap();
        let socket = connect_to(family.loopback(port));
        accepted.take();
        expect_bytes(socket, b"hello");
    });
    let [ours, theirs] = unix_pair();
    let (listening, _) = listener(family);
    port.send(port_of(listening));
    await_events(listening, libc::POLLIN);
    sys::send_descriptor(ours, listening).unwrap();
    sys::close(listening).unwrap();
    let server = sys::accept(sys::recv_descriptor(theirs).expect("recvmsg")).unwrap();
    accepted.pass();
    send_all(server, b"hello");
    client.join();
}

/// Who receives the listener sends more than a small buffer, while the client reads nothing. The sender has looked at what waits.
fn corner_06_waiting_and_sent_much_by_another(family: Family) {
    const MUCH: usize = 60_000;
    let (port, sent, end) = (Baton::new(), Baton::new(), Baton::new());
    let client = fork_child(|| {
        let port = u16::try_from(port.receive()).unwrap();
        let socket = connect_to(family.loopback(port));
        sent.take();
        expect_bytes(socket, &[7; MUCH]);
        end.pass();
    });
    let (child, channel) = receiver(|listening| {
        let server = sys::accept(listening).unwrap();
        assert_eq!(sys::send(server, &[7; MUCH], libc::MSG_DONTWAIT), Ok(MUCH));
        sent.pass();
        end.take();
    });
    let (listening, _) = listener(family);
    port.send(port_of(listening));
    await_events(listening, libc::POLLIN);
    sys::send_descriptor(channel, listening).unwrap();
    child.join();
    client.join();
}

/// With the message the listener goes, and with it what waits.
fn corner_06_waiting_for_a_listener_never_received(family: Family) {
    let [ours, theirs] = unix_pair();
    let (listening, address) = listener(family);
    let client = connect_to(address);
    sys::send_descriptor(ours, listening).unwrap();
    sys::close(listening).unwrap();
    expect_quiet(client, libc::POLLIN | libc::POLLRDHUP);
    sys::close(ours).unwrap();
    sys::close(theirs).unwrap();
    let mut byte = [0];
    assert_eq!(
        sys::recv(client, &mut byte, 0),
        Err(Errno(libc::ECONNRESET))
    );
    let again = tcp(family);
    assert_eq!(sys::connect(again, address), Err(Errno(libc::ECONNREFUSED)));
}

/// Whoever closes it resets what waits. A daemon between them may take a moment.
fn corner_06_waiting_for_a_listener_that_is_not_sent(family: Family) {
    sys::ignore_signal(libc::SIGPIPE).unwrap();
    let [ours, theirs] = unix_pair();
    sys::close(theirs).unwrap();
    let (listening, address) = listener(family);
    let client = connect_to(address);
    let sent = sys::send_descriptor(ours, listening);
    assert_eq!(sent, Err(Errno(libc::EPIPE)));
    sys::close(listening).unwrap();
    await_events(client, libc::POLLHUP);
    let sent = sys::send(client, b"to nobody", libc::MSG_NOSIGNAL);
    assert_eq!(sent, Err(Errno(libc::ECONNRESET)));
}

/// The sender accepts after all what came before it passed the listener.
fn corner_06_waiting_for_a_listener_that_is_passed_and_kept(family: Family) {
    let end = Baton::new();
    let clients: Vec<_> = (0..3).map(|_| client(family)).collect();
    let (child, channel) = receiver(|_listening| end.take());
    let (listening, _) = listener(family);
    for (_, port, connected) in &clients {
        port.send(port_of(listening));
        connected.take();
    }
    sys::send_descriptor(channel, listening).unwrap();
    assert_eq!(await_events(listening, libc::POLLIN), libc::POLLIN);
    for _ in &clients {
        serve_one(listening);
    }
    expect_quiet(listening, libc::POLLIN);
    clients.iter().for_each(|(client, _, _)| client.join());
    end.pass();
    child.join();
}

/// The parent listens only after it has forked, and does not accept: the child does.
fn corner_06_waiting_for_a_listener_of_before_the_fork(family: Family) {
    let go = Baton::new();
    let socket = tcp(family);
    sys::bind(socket, family.loopback(0)).unwrap();
    let child = fork_child(|| {
        go.take();
        serve_one(socket);
    });
    sys::listen(socket, 8).unwrap();
    let (client, port, connected) = client(family);
    port.send(port_of(socket));
    connected.take();
    go.pass();
    child.join();
    client.join();
}

/// A program that `posix_spawn` starts accepts a connection that came before; this one keeps the listener.
fn is_accepted_by_spawned(family: Family, at: Option<Descriptor>) {
    let connected = Baton::new();
    let (listening, address) = listener(family);
    let client = fork_child(|| {
        sys::close(listening).unwrap();
        let socket = connect_to(address);
        connected.pass();
        send_all(socket, b"there");
        expect_bytes(socket, b"there");
    });
    connected.take();
    let program = std::env::current_exe().expect("the program's path");
    let number = at.unwrap_or(listening);
    let command = format!("exec {} helper accept-echo {number} 1", program.display());
    if at.is_some() {
        sys::fcntl(listening, libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
    }
    let child = spawn_shell(&command, at.map(|_| listening));
    child.join();
    client.join();
    let next = connect_to(address);
    expect_alive(next, sys::accept(listening).unwrap());
}

fn corner_06_waiting_for_a_spawned_program(family: Family) {
    is_accepted_by_spawned(family, None);
}

fn corner_06_waiting_for_a_spawned_program_by_another_number(family: Family) {
    is_accepted_by_spawned(family, Some(0));
}
