//! Corner 15: high numbers, close_range over everything, descriptor limits, vfork, posix_spawn.

use std::ffi::CString;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;
use crate::corner_06_rights::unix_pair;
use crate::helpers::leave_one_number;

cases! {
    families: [
        corner_15_select_near_fd_setsize,
        corner_15_poll_and_epoll_above_fd_setsize,
        corner_15_close_range_over_everything,
        corner_15_close_range_closes_connections,
        corner_15_close_range_cloexec,
        corner_15_close_range_under_who_sleeps,
        corner_15_cloexec_before_connect,
        corner_15_waiting_for_a_listener_takes_no_number,
        corner_15_closefrom,
        corner_15_close_all_in_a_loop_as_daemons_do,
        corner_15_close_all_in_forked_child,
        corner_15_limit_socket_emfile,
        corner_15_limit_listens_again,
        corner_15_limit_accept_emfile_keeps_the_connection,
        corner_15_limit_low_from_the_start,
        corner_15_limit_of_none_waits_go_on,
        corner_15_limit_of_who_receives_a_listener,
        corner_15_limit_of_none_low_water_mark,
        corner_15_vfork_child_execs,
        corner_15_vfork_child_closes,
        corner_15_spawn_with_file_actions,
        corner_15_spawn_cloexec_default,
        corner_15_system_and_popen,
        corner_15_daemon_call,
        corner_15_dup_beyond_a_lower_limit,
        corner_15_lowest_number_is_used,
        corner_15_proc_says_socket,
    ];
}

fn corner_15_limit_of_none_waits_go_on(family: Family) {
    let (client, server) = pair(family);
    let (listening, _address) = listener(family);
    let limit = sys::descriptor_limit().unwrap();
    let short = libc::timeval {
        tv_sec: 0,
        tv_usec: 20_000,
    };
    sys::set_option(server, libc::SOL_SOCKET, libc::SO_RCVTIMEO, short).unwrap();
    sys::set_descriptor_limit(0).unwrap();
    let received = sys::recv(server, &mut [0; 8], 0);
    let highest = listening.max(server);
    let mut read = sys::Set::of(&[server, listening]);
    let quiet = sys::select(highest, Some(&mut read), None, None, 20);
    let mut entries = [libc::pollfd {
        fd: server,
        events: libc::POLLIN,
        revents: 0,
    }];
    let polled = sys::poll(&mut entries, 0);
    send_all(client, b"x");
    let mut read = sys::Set::of(&[server, listening]);
    let count = sys::select(highest, Some(&mut read), None, None, 10_000);
    let readable = read.has(server);
    expect_bytes(server, b"x");
    sys::set_descriptor_limit(limit.rlim_cur).unwrap();
    assert_eq!(received, Err(Errno(libc::EAGAIN)));
    assert_eq!(quiet, Ok(0));
    assert_eq!(polled, Err(Errno(libc::EINVAL)));
    assert_eq!((count, readable), (Ok(1), true));
}

/// No number is left for the library, either.
fn corner_15_limit_of_none_low_water_mark(family: Family) {
    let child = fork_child(|| {
        let (client, server) = pair(family);
        let limit = libc::rlimit {
            rlim_cur: 3,
            rlim_max: 3,
        };
        // SAFETY: reads a local.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        set_int(server, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 5);
        send_all(client, b"abc");
        expect_quiet(server, libc::POLLIN);
        send_all(client, b"def");
        await_events(server, libc::POLLIN);
        expect_bytes(server, b"abcdef");
    });
    child.join();
}

/// There are two numbers more: one for the listener, and one.
fn corner_15_limit_of_who_receives_a_listener(family: Family) {
    let [ours, theirs] = unix_pair();
    let go = Baton::new();
    let child = fork_child(|| {
        go.take();
        let _attached = tcp(family);
        let free = sys::dup(theirs).unwrap();
        leave_one_number(theirs);
        sys::close(free).unwrap();
        assert_eq!(sys::recv_descriptor(theirs).expect("recvmsg"), free);
        assert_eq!(sys::dup(theirs), Ok(free + 1));
        assert_eq!(sys::dup(theirs), Err(Errno(libc::EMFILE)));
    });
    let (listening, _) = listener(family);
    sys::send_descriptor(ours, listening).unwrap();
    go.pass();
    child.join();
}

fn corner_15_select_near_fd_setsize(family: Family) {
    let (client, server) = pair(family);
    let highest = 1023;
    assert_eq!(sys::dup2(client, highest), Ok(highest));
    sys::close(client).unwrap();
    let mut read = sys::Set::of(&[highest]);
    assert_eq!(sys::select(highest, Some(&mut read), None, None, 0), Ok(0));
    let mut write = sys::Set::of(&[highest]);
    assert_eq!(
        sys::select(highest, None, Some(&mut write), None, 10_000),
        Ok(1)
    );
    send_all(server, b"x");
    let mut read = sys::Set::of(&[highest, server]);
    assert_eq!(
        sys::select(highest, Some(&mut read), None, None, 10_000),
        Ok(1)
    );
    assert!(read.has(highest) && !read.has(server));
    let mut read = sys::Set::of(&[client]);
    let answer = sys::select(highest, Some(&mut read), None, None, 0);
    assert_eq!(answer, Err(Errno(libc::EBADF)));
}

fn corner_15_poll_and_epoll_above_fd_setsize(family: Family) {
    let (client, server) = pair(family);
    let limit = sys::descriptor_limit().unwrap();
    let high = Descriptor::try_from(limit.rlim_cur.min(5_000) - 1).unwrap();
    if high < 1024 {
        skip("the descriptor limit is too low");
    }
    let copy = sys::fcntl(client, libc::F_DUPFD, high).unwrap();
    assert_eq!(copy, high);
    sys::close(client).unwrap();
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, copy, sys::IN, 8).unwrap();
    send_all(server, b"x");
    assert_eq!(await_events(copy, libc::POLLIN), libc::POLLIN);
    assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap().len(), 1);
    expect_bytes(copy, b"x");
    expect_alive(copy, server);
}

fn corner_15_close_range_over_everything(family: Family) {
    let (client, server) = pair(family);
    expect_alive(client, server);
    sys::close_range(3, libc::c_uint::MAX, 0).unwrap();
    assert_eq!(
        sys::fcntl(client, libc::F_GETFD, 0),
        Err(Errno(libc::EBADF))
    );
    // The program goes on and sockets work as before.
    for _ in 0..3 {
        let (client, server) = pair(family);
        expect_alive(client, server);
        send_pattern(client, 0, 50_000);
        expect_pattern(server, 0, 50_000);
        sys::close(client).unwrap();
        expect_end(server);
        sys::close(server).unwrap();
    }
    let set = sys::epoll_create().unwrap();
    let (client, server) = pair(family);
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, sys::IN, 8).unwrap();
    send_all(server, b"x");
    assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap().len(), 1);
}

fn corner_15_close_range_closes_connections(family: Family) {
    let (child, client, _) = forked_server(family, |connection| {
        send_all(connection, b"bye");
        let first = libc::c_uint::try_from(connection).unwrap();
        sys::close_range(first, libc::c_uint::MAX, 0).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
    });
    assert_eq!(receive_to_end(client), b"bye");
    child.join();
}

/// The sleeping call keeps the connection until it returns, even if all numbers are closed twice.
fn corner_15_close_range_under_who_sleeps(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    let (thread, task) = start_thread(move || {
        let mut buffer = [0; 8];
        let size = sys::recv(client, &mut buffer, 0)?;
        Ok::<_, Errno>(buffer[..size].to_vec())
    });
    await_asleep(task);
    let first = libc::c_uint::try_from(client).unwrap();
    for _ in 0..2 {
        sys::close_range(first, libc::c_uint::MAX, 0).unwrap();
    }
    let served = sys::accept(listening).unwrap();
    send_all(served, b"x");
    assert_eq!(join_thread(thread), Ok(b"x".to_vec()));
    expect_end(served);
}

fn corner_15_close_range_cloexec(family: Family) {
    let (client, server) = pair(family);
    let child = fork_child(|| {
        sys::close_range(3, libc::c_uint::MAX, 4).unwrap();
        assert_eq!(sys::fcntl(server, libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
        expect_alive(client, server);
        exec_helper(&["expect-closed", &server.to_string()], true);
    });
    child.join();
    expect_alive(client, server);
}

fn corner_15_cloexec_before_connect(family: Family) {
    let (_listening, address) = listener(family);
    for by_range in [true, false] {
        let client = tcp(family);
        if by_range {
            let number = client.cast_unsigned();
            sys::close_range(number, number, 4).unwrap();
        } else {
            sys::ioctl_none(client, libc::FIOCLEX).unwrap();
        }
        sys::connect(client, address).unwrap();
        assert_eq!(sys::fcntl(client, libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC));
    }
}

fn corner_15_waiting_for_a_listener_takes_no_number(family: Family) {
    let (listening, _) = listener(family);
    fork_child(|| {
        let limit = libc::rlimit {
            rlim_cur: 32,
            rlim_max: 32,
        };
        // SAFETY: a local; only this process is concerned.
        let lowered = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        assert_eq!(lowered, 0);
        let free = sys::dup(listening).unwrap();
        sys::close(free).unwrap();
        assert_eq!(poll_one(listening, 0, 20), 0);
        assert_eq!(poll_one(listening, libc::POLLIN, 20), 0);
        assert_eq!(sys::dup(listening), Ok(free));
    })
    .join();
}

/// A program whose limit has no room for the library's descriptors listens again, as servers do that change the
/// backlog: the kernel listens.
fn corner_15_limit_listens_again(family: Family) {
    let (listening, address) = listener(family);
    let listens = Baton::new();
    let child = fork_child(|| {
        leave_one_number(listening);
        sys::listen(listening, 2).unwrap();
        listens.pass();
        let server = sys::accept(listening).unwrap();
        expect_bytes(server, b"served");
    });
    sys::close(listening).unwrap();
    listens.take();
    let client = connect_to(address);
    send_all(client, b"served");
    child.join();
}

fn corner_15_closefrom(family: Family) {
    let (client, server) = pair(family);
    unsafe extern "C" {
        fn closefrom(lowest: libc::c_int);
    }
    // SAFETY: takes an integer; everything above is this case's.
    unsafe { closefrom(client) };
    assert_eq!(
        sys::fcntl(server, libc::F_GETFD, 0),
        Err(Errno(libc::EBADF))
    );
    let (client, server) = pair(family);
    expect_alive(client, server);
}

fn corner_15_close_all_in_a_loop_as_daemons_do(family: Family) {
    let (client, server) = pair(family);
    expect_alive(client, server);
    for number in 3..2_000 {
        let _ = sys::close(number);
    }
    for _ in 0..3 {
        let (client, server) = pair(family);
        expect_alive(client, server);
        sys::close(client).unwrap();
        expect_end(server);
        sys::close(server).unwrap();
    }
}

fn corner_15_close_all_in_forked_child(family: Family) {
    let (client, server) = pair(family);
    let child = fork_child(|| {
        for number in 3..500 {
            let _ = sys::close(number);
        }
        let (own, peer) = pair(family);
        expect_alive(own, peer);
    });
    child.join();
    expect_alive(client, server);
}

fn corner_15_limit_socket_emfile(family: Family) {
    let before = count_descriptors();
    sys::set_descriptor_limit(40).unwrap();
    let mut sockets = Vec::new();
    let errno = loop {
        match sys::socket(family.domain(), libc::SOCK_STREAM, 0) {
            Ok(socket) => sockets.push(socket),
            Err(errno) => break errno,
        }
    };
    assert_eq!(errno, Errno(libc::EMFILE));
    // A library's own descriptors may be among the forty, a few only.
    assert!(
        sockets.len() + before >= 28,
        "only {} sockets",
        sockets.len()
    );
    for socket in sockets {
        sys::close(socket).unwrap();
    }
    let (client, server) = pair(family);
    expect_alive(client, server);
}

fn corner_15_limit_accept_emfile_keeps_the_connection(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    send_all(client, b"patience");
    let mut fillers = Vec::new();
    sys::set_descriptor_limit(64).unwrap();
    while let Ok(filler) = sys::dup(listening) {
        fillers.push(filler);
    }
    assert_eq!(sys::accept(listening), Err(Errno(libc::EMFILE)));
    assert_eq!(
        poll_one(listening, libc::POLLIN, 1000),
        libc::POLLIN,
        "it still waits"
    );
    assert_eq!(sys::accept(listening), Err(Errno(libc::EMFILE)));
    sys::close(fillers.pop().unwrap()).unwrap();
    let server = sys::accept(listening).unwrap();
    expect_bytes(server, b"patience");
    expect_alive(client, server);
}

fn corner_15_limit_low_from_the_start(family: Family) {
    sys::set_descriptor_limit(24).unwrap();
    let child = fork_child(|| {
        let (client, server) = pair(family);
        expect_alive(client, server);
        send_pattern(client, 0, 100_000);
        expect_pattern(server, 0, 100_000);
    });
    child.join();
}

fn corner_15_vfork_child_execs(family: Family) {
    let (client, server) = pair(family);
    let (_words, pointers) = terminated(&["sh", "-c", "exit 7"]);
    #[expect(
        deprecated,
        reason = "programs that call it are what this case is about"
    )]
    // SAFETY: the child only executes or exits.
    let process = unsafe {
        let process = libc::vfork();
        if process == 0 {
            libc::execv(c"/bin/sh".as_ptr(), pointers.as_ptr());
            libc::_exit(1);
        }
        process
    };
    assert_eq!(child_of_id(process).wait(), Ended::Exit(7));
    expect_alive(client, server);
}

fn corner_15_vfork_child_closes(family: Family) {
    // The child has the parent's memory and its own descriptors.
    let (client, server) = pair(family);
    #[expect(
        deprecated,
        reason = "programs that call it are what this case is about"
    )]
    // SAFETY: the child only closes descriptors of its own table and exits.
    let process = unsafe {
        let process = libc::vfork();
        if process == 0 {
            libc::close(client);
            libc::close(server);
            libc::_exit(3);
        }
        process
    };
    assert_eq!(child_of_id(process).wait(), Ended::Exit(3));
    expect_alive(client, server);
    send_pattern(client, 0, 50_000);
    expect_pattern(server, 0, 50_000);
}

fn corner_15_spawn_with_file_actions(family: Family) {
    let (client, server) = pair(family);
    sys::fcntl(client, libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
    let child = spawn_shell("read a; echo \"<$a>\"; cat", Some(server));
    sys::close(server).unwrap();
    send_all(client, b"line\nand more");
    sys::shutdown(client, libc::SHUT_WR).unwrap();
    assert_eq!(
        String::from_utf8_lossy(&receive_to_end(client)),
        "<line>\nand more"
    );
    assert_eq!(child.wait(), Ended::Exit(0));
}

fn corner_15_spawn_cloexec_default(family: Family) {
    let (client, server) = pair(family);
    for socket in [client, server] {
        sys::fcntl(socket, libc::F_SETFD, libc::FD_CLOEXEC).unwrap();
    }
    let child = spawn_shell(&format!("! test -e /proc/self/fd/{client}"), None);
    assert_eq!(child.wait(), Ended::Exit(0));
    expect_alive(client, server);
}

fn corner_15_system_and_popen(family: Family) {
    let (client, server) = pair(family);
    // SAFETY: terminated texts; the stream is closed once.
    unsafe {
        assert_eq!(libc::WEXITSTATUS(libc::system(c"exit 5".as_ptr())), 5);
        let stream = libc::popen(c"echo out".as_ptr(), c"r".as_ptr());
        assert!(!stream.is_null());
        let mut line = [0; 16];
        assert!(!libc::fgets(line.as_mut_ptr(), 16, stream).is_null());
        assert_eq!(libc::pclose(stream), 0);
    }
    expect_alive(client, server);
    // The shell gets the socket as its output.
    let command = CString::new(format!("echo from the shell >&{server}")).unwrap();
    // SAFETY: a terminated text.
    assert_eq!(unsafe { libc::system(command.as_ptr()) }, 0);
    expect_bytes(client, b"from the shell\n");
    expect_alive(client, server);
}

fn corner_15_daemon_call(family: Family) {
    // daemon() forks, and its parent ends at once. Connections and listeners go on in the child.
    let (listening, address) = listener(family);
    let (client, server) = pair(family);
    let child = fork_child(|| {
        sys::close(client).unwrap();
        // SAFETY: takes integers.
        let result = unsafe { libc::daemon(1, 1) };
        assert_eq!(result, 0, "daemon");
        sys::alarm(WATCHDOG_SECONDS);
        expect_bytes(server, b"hello daemon");
        send_all(server, b"hello client");
        let connection = sys::accept(listening).unwrap();
        let question = receive_to_end(connection);
        send_all(connection, &question);
    });
    assert_eq!(child.wait(), Ended::Exit(0));
    sys::close(server).unwrap();
    sys::close(listening).unwrap();
    send_all(client, b"hello daemon");
    expect_bytes(client, b"hello client");
    let second = connect_to(address);
    send_all(second, b"question");
    sys::shutdown(second, libc::SHUT_WR).unwrap();
    assert_eq!(receive_to_end(second), b"question");
    // The connection ends with the daemon.
    expect_end(client);
}

/// A number above the limit cannot be the target of dup, and its descriptor stays.
fn corner_15_dup_beyond_a_lower_limit(family: Family) {
    let (client, server) = pair(family);
    let (reader, writer) = (20, 21);
    sys::dup2(client, reader).unwrap();
    sys::dup2(server, writer).unwrap();
    let limit = sys::descriptor_limit().unwrap();
    sys::set_descriptor_limit(20).unwrap();
    let answers = [sys::dup2(server, reader), sys::dup3(client, writer, 0)];
    sys::set_descriptor_limit(limit.rlim_cur).unwrap();
    assert_eq!(answers, [Err(Errno(libc::EBADF)); 2]);
    expect_alive(reader, writer);
    assert_eq!(sys::dup2(server, reader), Ok(reader));
    expect_alive(client, reader);
}

fn corner_15_lowest_number_is_used(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    assert_eq!(client, listening + 1);
    let server = sys::accept(listening).unwrap();
    assert_eq!(server, client + 1);
    let second = connect_to(address);
    assert_eq!(second, server + 1);
    sys::close(client).unwrap();
    let again = sys::accept(listening).unwrap();
    assert_eq!(again, client, "the gap is filled");
    expect_alive(second, again);
    let copy = sys::dup(second).unwrap();
    assert_eq!(copy, second + 1);
    sys::close(server).unwrap();
    assert_eq!(tcp(family), server);
    let [reader, writer] = sys::pipe(0).unwrap();
    assert_eq!((reader, writer), (copy + 1, copy + 2));
}

fn corner_15_proc_says_socket(family: Family) {
    let (client, server) = pair(family);
    let (listening, _) = listener(family);
    for socket in [client, server, listening] {
        let target = std::fs::read_link(format!("/proc/self/fd/{socket}")).unwrap();
        assert!(
            target.to_string_lossy().starts_with("socket:["),
            "{target:?}"
        );
        let status = sys::fstat(socket).unwrap();
        assert_eq!(status.st_mode & libc::S_IFMT, libc::S_IFSOCK);
        assert!(is_type_socket(socket));
    }
    assert_ne!(
        sys::fstat(client).unwrap().st_ino,
        sys::fstat(server).unwrap().st_ino
    );
    let copy = sys::dup(client).unwrap();
    assert_eq!(
        sys::fstat(client).unwrap().st_ino,
        sys::fstat(copy).unwrap().st_ino
    );
}

fn is_type_socket(descriptor: Descriptor) -> bool {
    unsafe extern "C" {
        fn isfdtype(descriptor: libc::c_int, kind: libc::c_int) -> libc::c_int;
    }
    // SAFETY: takes integers.
    unsafe {
        isfdtype(
            descriptor,
            libc::c_int::try_from(libc::S_IFSOCK).unwrap_or(0),
        ) == 1
    }
}
