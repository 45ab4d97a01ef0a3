//! Calls around the socket calls: sendfile, splice, stdio, dprintf, fortified and aliased names.

use std::ffi::{CStr, CString};

use netchannel_testkit::far;
use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::case::cases;

cases! {
    families: [
        foreign_sendfile,
        foreign_sendfile_with_offset,
        foreign_sendfile_large_nonblocking,
        foreign_splice_socket_to_pipe,
        foreign_splice_pipe_to_socket,
        foreign_splice_socket_to_socket_by_pipe,
        foreign_splice_then_plain_calls,
        foreign_stdio_read_and_write,
        foreign_stdio_fgets_lines_with_unread_data,
        foreign_stdio_fclose_ends_the_stream,
        foreign_stdio_two_streams_on_one_socket,
        foreign_dprintf,
        foreign_fortified_names,
        foreign_aliased_names,
        foreign_standard_output_is_a_socket,
        foreign_std_net,
        foreign_resolver_then_connect,
    ];
}

fn foreign_sendfile(family: Family) {
    let (client, server) = pair(family);
    let file = file_of(&pattern(0, 200_000));
    let (reader, _) = start_thread(move || expect_pattern(server, 0, 200_000));
    let mut sent = 0;
    while sent < 200_000 {
        let size = sys::sendfile(client, file, None, 200_000 - sent).unwrap();
        assert_ne!(size, 0);
        sent += size;
    }
    join_thread(reader);
    assert_eq!(
        sys::sendfile(client, file, None, 100),
        Ok(0),
        "the end of the file"
    );
    assert_eq!(sys::lseek(file, 0, libc::SEEK_CUR), Ok(200_000));
    expect_alive(client, server);
}

fn foreign_sendfile_with_offset(family: Family) {
    let (client, server) = pair(family);
    let file = file_of(&pattern(0, 10_000));
    send_all(client, b"header");
    let mut offset = 4_000;
    assert_eq!(
        sys::sendfile(client, file, Some(&mut offset), 3_000),
        Ok(3_000)
    );
    assert_eq!(offset, 7_000);
    assert_eq!(
        sys::lseek(file, 0, libc::SEEK_CUR),
        Ok(0),
        "the position is untouched"
    );
    send_all(client, b"trailer");
    expect_bytes(server, b"header");
    expect_pattern(server, 4_000, 3_000);
    expect_bytes(server, b"trailer");
    assert_eq!(sys::sendfile(client, -1, None, 10), Err(Errno(libc::EBADF)));
}

fn foreign_sendfile_large_nonblocking(family: Family) {
    const TOTAL: usize = 4 * 1024 * 1024;
    let (client, server) = small_pair(family);
    set_nonblocking(client);
    let file = file_of(&pattern(0, TOTAL));
    let (reader, _) = start_thread(move || expect_pattern(server, 0, TOTAL));
    let mut sent = 0;
    let mut waits = 0;
    while sent < TOTAL {
        match sys::sendfile(client, file, None, TOTAL - sent) {
            Ok(size) => sent += size,
            Err(errno) => {
                assert_eq!(errno, Errno(libc::EAGAIN));
                await_events(client, libc::POLLOUT);
                waits += 1;
            }
        }
    }
    join_thread(reader);
    assert!(waits > 0, "it never had to wait");
}

fn foreign_splice_socket_to_pipe(family: Family) {
    let (client, server) = pair(family);
    let [reader, writer] = sys::pipe(0).unwrap();
    send_pattern(server, 0, 20_000);
    let mut moved = 0;
    while moved < 20_000 {
        let size = sys::splice(client, writer, 20_000 - moved, 0).unwrap();
        let bytes = {
            let mut bytes = vec![0_u8; size];
            assert_eq!(sys::read(reader, &mut bytes), Ok(size));
            bytes
        };
        assert_eq!(pattern_mismatch(moved, &bytes), None);
        moved += size;
    }
    set_nonblocking(client);
    assert_eq!(
        sys::splice(client, writer, 100, 0),
        Err(Errno(libc::EAGAIN))
    );
    sys::close(server).unwrap();
    await_events(client, libc::POLLIN);
    assert_eq!(
        sys::splice(client, writer, 100, 0),
        Ok(0),
        "the end of the stream"
    );
}

fn foreign_splice_pipe_to_socket(family: Family) {
    let (client, server) = pair(family);
    let [reader, writer] = sys::pipe(0).unwrap();
    for round in 0..20_usize {
        sys::write(writer, &pattern(round * 3_000, 3_000)).unwrap();
        let mut moved = 0;
        while moved < 3_000 {
            moved += sys::splice(reader, client, 3_000 - moved, 0).unwrap();
        }
    }
    expect_pattern(server, 0, 60_000);
    expect_alive(client, server);
}

fn foreign_splice_socket_to_socket_by_pipe(family: Family) {
    // A proxy between two connections that never looks at the bytes.
    const TOTAL: usize = 2 * 1024 * 1024;
    let (source, proxy_in) = pair(family);
    let (proxy_out, sink) = pair(family);
    let (proxy, _) = start_thread(move || {
        let [reader, writer] = sys::pipe(0).unwrap();
        loop {
            let size = sys::splice(proxy_in, writer, 32_768, 0).unwrap();
            if size == 0 {
                sys::shutdown(proxy_out, libc::SHUT_WR).unwrap();
                return;
            }
            let mut moved = 0;
            while moved < size {
                moved += sys::splice(reader, proxy_out, size - moved, 0).unwrap();
            }
        }
    });
    let (sender, _) = start_thread(move || {
        send_pattern(source, 0, TOTAL);
        sys::shutdown(source, libc::SHUT_WR).unwrap();
    });
    expect_pattern(sink, 0, TOTAL);
    expect_end(sink);
    join_thread(sender);
    join_thread(proxy);
}

fn foreign_splice_then_plain_calls(family: Family) {
    let (client, server) = pair(family);
    let [reader, writer] = sys::pipe(0).unwrap();
    send_all(server, b"plain");
    expect_bytes(client, b"plain");
    send_all(server, b"spliced");
    await_events(client, libc::POLLIN);
    let size = sys::splice(client, writer, 7, 0).unwrap();
    let mut bytes = vec![0_u8; size];
    sys::read(reader, &mut bytes).unwrap();
    assert_eq!(bytes, b"spliced"[..size]);
    expect_bytes(client, &b"spliced"[size..]);
    send_all(server, b"plain again");
    expect_bytes(client, b"plain again");
    expect_alive(client, server);
    send_pattern(client, 0, 100_000);
    expect_pattern(server, 0, 100_000);
}

fn open_stream(socket: Descriptor, mode: &CStr) -> *mut libc::FILE {
    far::only_near(socket, "fdopen");
    // SAFETY: a terminated mode.
    let stream = unsafe { libc::fdopen(socket, mode.as_ptr()) };
    assert!(!stream.is_null(), "fdopen: {:?}", sys::last_errno());
    stream
}

fn read_line(stream: *mut libc::FILE) -> String {
    let mut line = [0; 128];
    // SAFETY: stream is open, line has room.
    let answer = unsafe { libc::fgets(line.as_mut_ptr(), 128, stream) };
    assert!(!answer.is_null(), "fgets found the end");
    // SAFETY: fgets terminates what it reads.
    unsafe { CStr::from_ptr(line.as_ptr()) }
        .to_string_lossy()
        .into_owned()
}

fn foreign_stdio_read_and_write(family: Family) {
    let (client, server) = pair(family);
    let stream = open_stream(client, c"r+");
    send_all(server, b"first line\nsecond line\n");
    assert_eq!(read_line(stream), "first line\n");
    assert_eq!(read_line(stream), "second line\n");
    // SAFETY: stream is open, the format matches its arguments.
    unsafe {
        libc::fprintf(
            stream,
            c"number %d, text %s\n".as_ptr(),
            42 as libc::c_int,
            c"yes".as_ptr(),
        );
        libc::fputs(c"more\n".as_ptr(), stream);
        assert_eq!(libc::fflush(stream), 0);
    }
    expect_bytes(server, b"number 42, text yes\nmore\n");
    send_all(server, b"third\n");
    assert_eq!(read_line(stream), "third\n");
    // SAFETY: stream is open and not used afterwards.
    unsafe { libc::fclose(stream) };
    expect_end(server);
}

fn foreign_stdio_fgets_lines_with_unread_data(family: Family) {
    // Bytes that arrived, and were partly read, before stdio took the descriptor.
    let (client, server) = pair(family);
    send_all(server, b"plain part;line one\nline two\n");
    expect_bytes(client, b"plain part;");
    let stream = open_stream(client, c"r");
    assert_eq!(read_line(stream), "line one\n");
    assert_eq!(read_line(stream), "line two\n");
    sys::shutdown(server, libc::SHUT_WR).unwrap();
    // SAFETY: stream is open.
    unsafe {
        assert_eq!(libc::fgetc(stream), libc::EOF);
        assert_ne!(libc::feof(stream), 0);
    }
    send_all(client, b"still writing");
    expect_bytes(server, b"still writing");
}

fn foreign_stdio_fclose_ends_the_stream(family: Family) {
    let (client, server) = pair(family);
    let stream = open_stream(client, c"w");
    let text = CString::new("x".repeat(100_000)).unwrap();
    let (reader, _) = start_thread(move || receive_to_end(server));
    // SAFETY: stream is open, text is terminated.
    unsafe {
        assert!(libc::fputs(text.as_ptr(), stream) >= 0);
        assert_eq!(libc::fclose(stream), 0);
    }
    assert_eq!(join_thread(reader), vec![b'x'; 100_000]);
    assert_eq!(
        sys::fcntl(client, libc::F_GETFD, 0),
        Err(Errno(libc::EBADF))
    );
    // The number is free: the next socket gets the number and is a new connection.
    let (again, peer) = pair(family);
    expect_alive(again, peer);
}

fn foreign_stdio_two_streams_on_one_socket(family: Family) {
    let (client, server) = pair(family);
    let copy = sys::dup(client).unwrap();
    let input = open_stream(client, c"r");
    let output = open_stream(copy, c"w");
    for index in 0..20 {
        // SAFETY: output is open, the format matches its arguments.
        unsafe {
            libc::fprintf(output, c"query %d\n".as_ptr(), index as libc::c_int);
            libc::fflush(output);
        }
        expect_bytes(server, format!("query {index}\n").as_bytes());
        send_all(server, format!("answer {index}\n").as_bytes());
        assert_eq!(read_line(input), format!("answer {index}\n"));
    }
    // SAFETY: both are open and not used afterwards.
    unsafe {
        libc::fclose(output);
        expect_quiet(server, libc::POLLIN | libc::POLLRDHUP);
        libc::fclose(input);
    }
    expect_end(server);
}

fn foreign_dprintf(family: Family) {
    let (client, server) = pair(family);
    for index in 0..5 {
        // SAFETY: the format matches its arguments.
        let size = unsafe { dprintf(client, c"row %03d\n".as_ptr(), index as libc::c_int) };
        assert_eq!(size, 8);
        expect_bytes(server, format!("row {index:03}\n").as_bytes());
        send_all(client, b"and send\n");
        expect_bytes(server, b"and send\n");
    }
    expect_alive(client, server);
}

unsafe extern "C" {
    fn dprintf(fd: i32, format: *const libc::c_char, ...) -> i32;
    fn __read_chk(fd: i32, buffer: *mut u8, length: usize, room: usize) -> isize;
    fn __recv_chk(fd: i32, buffer: *mut u8, length: usize, room: usize, flags: i32) -> isize;
    fn __recvfrom_chk(
        fd: i32,
        buffer: *mut u8,
        length: usize,
        room: usize,
        flags: i32,
        address: *mut libc::sockaddr,
        address_length: *mut libc::socklen_t,
    ) -> isize;
    fn __poll_chk(entries: *mut libc::pollfd, count: u64, timeout: i32, room: usize) -> i32;
    fn __ppoll_chk(
        entries: *mut libc::pollfd,
        count: u64,
        timeout: *const libc::timespec,
        mask: *const libc::sigset_t,
        room: usize,
    ) -> i32;
    fn __read(fd: i32, buffer: *mut u8, length: usize) -> isize;
    fn __write(fd: i32, buffer: *const u8, length: usize) -> isize;
    fn __send(fd: i32, buffer: *const u8, length: usize, flags: i32) -> isize;
    fn __close(fd: i32) -> i32;
    fn __poll(entries: *mut libc::pollfd, count: u64, timeout: i32) -> i32;
    fn __connect(fd: i32, address: *const libc::sockaddr, length: libc::socklen_t) -> i32;
    fn __dup2(from: i32, to: i32) -> i32;
}

fn foreign_fortified_names(family: Family) {
    // Functions that a program compiled with _FORTIFY_SOURCE calls.
    let (client, server) = pair(family);
    let mut bytes = [0_u8; 16];
    let pointer = bytes.as_mut_ptr();
    let mut entry = [libc::pollfd {
        fd: client,
        events: libc::POLLIN,
        revents: 0,
    }];
    let room = size_of_val(&entry);
    let zero = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: bytes and entry have room for the given lengths.
    unsafe {
        assert_eq!(__poll_chk(entry.as_mut_ptr(), 1, 0, room), 0);
        send_all(server, b"abcdef");
        eventually("all is there", || {
            sys::ioctl_int(client, libc::FIONREAD, 0) == Ok(6)
        });
        assert_eq!(__poll_chk(entry.as_mut_ptr(), 1, 10_000, room), 1);
        assert_eq!(
            __ppoll_chk(
                entry.as_mut_ptr(),
                1,
                &raw const zero,
                std::ptr::null(),
                room
            ),
            1
        );
        assert_eq!(__read_chk(client, pointer, 2, 16), 2);
        assert_eq!(__recv_chk(client, pointer.add(2), 2, 14, 0), 2);
        let none = std::ptr::null_mut();
        let size = __recvfrom_chk(client, pointer.add(4), 9, 12, 0, none, std::ptr::null_mut());
        assert_eq!(size, 2);
    }
    assert_eq!(&bytes[..6], b"abcdef");
    expect_alive(client, server);
}

fn foreign_aliased_names(family: Family) {
    // Names inside glibc that are exported all the same, and that some libraries call.
    let (listening, address) = listener(family);
    let client = tcp(family);
    let raw = sys::RawAddress::from(address);
    let mut bytes = [0_u8; 16];
    // SAFETY: addresses, buffers and entries are valid for the lengths given.
    unsafe {
        assert_eq!(
            __connect(client, (&raw const raw.storage).cast(), raw.length),
            0
        );
        let server = sys::accept(listening).unwrap();
        assert_eq!(__send(client, b"ab".as_ptr(), 2, 0), 2);
        assert_eq!(__write(client, b"cd".as_ptr(), 2), 2);
        expect_bytes(server, b"abcd");
        send_all(server, b"answer");
        let mut entry = [libc::pollfd {
            fd: client,
            events: libc::POLLIN,
            revents: 0,
        }];
        assert_eq!(__poll(entry.as_mut_ptr(), 1, 10_000), 1);
        assert_eq!(__read(client, bytes.as_mut_ptr(), 16), 6);
        let (other, other_server) = pair(family);
        assert_eq!(__dup2(client, other), other);
        expect_end(other_server);
        assert_eq!(__close(client), 0);
        expect_alive(other, server);
        assert_eq!(__close(other), 0);
        expect_end(server);
    }
}

fn foreign_standard_output_is_a_socket(family: Family) {
    // As under inetd: the connection is standard input and output.
    let (child, client, _) = forked_server(family, |connection| {
        sys::dup2(connection, 0).unwrap();
        sys::dup2(connection, 1).unwrap();
        sys::close(connection).unwrap();
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        print!("hello {line}");
        std::process::exit(0);
    });
    send_all(client, b"inetd\n");
    assert_eq!(receive_to_end(client), b"hello inetd\n");
    child.join();
}

fn foreign_std_net(family: Family) {
    use std::io::{Read, Write};
    let server = std::net::TcpListener::bind(family.loopback(0)).unwrap();
    let mut client = std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let (mut accepted, peer) = server.accept().unwrap();
    assert_eq!(client.local_addr().unwrap(), peer);
    client.set_nodelay(true).unwrap();
    client
        .set_read_timeout(Some(std::time::Duration::from_millis(30)))
        .unwrap();
    let error = client.read(&mut [0_u8; 4]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    client.write_all(b"through the standard library").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    accepted.read_to_string(&mut text).unwrap();
    assert_eq!(text, "through the standard library");
    let copy = accepted.try_clone().unwrap();
    drop(accepted);
    let mut copy = copy;
    copy.write_all(b"answer").unwrap();
    drop(copy);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"answer");
}

fn foreign_resolver_then_connect(family: Family) {
    use std::net::ToSocketAddrs;
    let (listening, address) = listener(family);
    let text = address.ip().to_string();
    let found = (text.as_str(), address.port())
        .to_socket_addrs()
        .unwrap()
        .next();
    let client = connect_to(found.expect("an address"));
    expect_alive(client, sys::accept(listening).unwrap());
}
