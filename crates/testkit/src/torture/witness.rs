//! Plain programs that print their observations of a connection, for tests that break it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::FromRawFd;
use std::thread;
use std::time::{Duration, Instant};

use netchannel_testkit::support::{Family, socket_error, tcp, tcp_nonblocking};
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::Options;
use crate::errors::name;

/// Within this time a connect has an outcome.
const CONNECTED: Duration = Duration::from_secs(30);

/// A buffer that takes nothing for this long is full.
const FULL_AFTER: Duration = Duration::from_millis(500);

/// Runs the program with a name.
pub fn run(name: &str, options: &Options) {
    let address = options.address;
    match name {
        "serve" => serve(address),
        "serve-many" => serve_many(address),
        "many" => many(options),
        "victim" => victim(options),
        "ping" => ping(address, Duration::from_millis(options.milliseconds)),
        "hold" => hold(address),
        "pour" => pour(address),
        "call" => call(address),
        "endure" => crate::endure::run(options),
        other => panic!("no witness is named {other}"),
    }
}

/// Echoes the bytes of every connection, and prints how each connection ends.
fn serve(address: SocketAddr) {
    let listener = TcpListener::bind(address).expect("bind");
    print_line(&format!(
        "ready {}",
        listener.local_addr().expect("an address")
    ));
    loop {
        let (stream, _) = listener.accept().expect("accept");
        thread::spawn(move || {
            let outcome = echo(stream);
            print_line(&format!("gone {outcome}"));
        });
    }
}

fn echo(mut stream: TcpStream) -> String {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return "end".to_owned(),
            Ok(size) => {
                if let Err(error) = stream.write_all(&buffer[..size]) {
                    return name(&error);
                }
            }
            Err(error) => return name(&error),
        }
    }
}

/// As [`serve`], for a thousand connections.
fn serve_many(address: SocketAddr) {
    let family = Family::of(address);
    let listening = tcp(family);
    sys::bind(listening, address).expect("bind");
    sys::listen(listening, 4096).expect("listen");
    print_line(&format!(
        "ready {}",
        sys::getsockname(listening).expect("getsockname")
    ));
    // SAFETY: made above, and owned by nothing else.
    let listener = unsafe { TcpListener::from_raw_fd(listening) };
    loop {
        let (stream, _) = listener.accept().expect("accept");
        let worker = thread::Builder::new().stack_size(64 << 10);
        worker.spawn(move || echo(stream)).expect("a thread");
    }
}

/// The line that [`many`] prints when all connects have succeeded.
pub fn all_made(count: usize) -> String {
    format!("{count} of {count} echoed")
}

/// Connects many times without blocking, `--rounds` times, from the address in `--only`, and asks each connection for
/// an echo.
fn many(options: &Options) {
    let family = Family::of(options.address);
    let count = usize::try_from(options.rounds.unwrap_or(1)).unwrap_or(1);
    let start = Instant::now();
    let mut errors: Vec<String> = Vec::new();
    let mut waiting = Vec::new();
    for _ in 0..count {
        let socket = tcp_nonblocking(family);
        if let Ok(source) = options.only.parse() {
            sys::bind(socket, SocketAddr::new(source, 0)).expect("bind");
        }
        match sys::connect(socket, options.address) {
            Ok(()) | Err(Errno(libc::EINPROGRESS)) => waiting.push(socket),
            Err(errno) => errors.push(format!("connect: {errno:?}")),
        }
    }
    let mut connected = Vec::new();
    while !waiting.is_empty() && start.elapsed() < CONNECTED {
        let entry = |fd: &Descriptor| libc::pollfd {
            fd: *fd,
            events: libc::POLLOUT,
            revents: 0,
        };
        let mut entries: Vec<libc::pollfd> = waiting.iter().map(entry).collect();
        sys::poll(&mut entries, 1000).expect("poll");
        for entry in entries.iter().filter(|entry| entry.revents != 0) {
            waiting.retain(|one| *one != entry.fd);
            match socket_error(entry.fd) {
                Errno(0) => connected.push(entry.fd),
                errno => errors.push(format!("SO_ERROR: {errno:?}")),
            }
        }
    }
    errors.extend(waiting.iter().map(|_| "nothing came of it".to_owned()));
    let mut echoed = 0;
    for socket in connected {
        // SAFETY: made above, and owned by nothing else.
        let mut stream = unsafe { TcpStream::from_raw_fd(socket) };
        let mut answer = [0; 4];
        let asked = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_read_timeout(Some(CONNECTED)))
            .and_then(|()| stream.write_all(b"echo"))
            .and_then(|()| stream.read_exact(&mut answer));
        match asked {
            Ok(()) if &answer == b"echo" => echoed += 1,
            Ok(()) => errors.push("wrong bytes".to_owned()),
            Err(error) => errors.push(name(&error)),
        }
    }
    errors.sort();
    errors.dedup();
    let seconds = start.elapsed().as_secs_f64();
    print_line(&format!(
        "{echoed} of {count} echoed in {seconds:.2} s {}",
        errors.join(", ")
    ));
}

/// Connects `--index` times, blocking or not, and is then killed at once.
fn victim(options: &Options) {
    let family = Family::of(options.address);
    for number in 0..options.index {
        let socket = if number % 2 == 0 {
            tcp(family)
        } else {
            tcp_nonblocking(family)
        };
        let connected = sys::connect(socket, options.address);
        if connected.is_ok() && number % 3 == 0 {
            // Whether the send succeeds does not matter.
            let _ = sys::send(socket, b"x", libc::MSG_NOSIGNAL);
        }
    }
    // SAFETY: no pointers.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Asks for one echo after the other for a while. Prints the longest time that one took.
fn ping(address: SocketAddr, duration: Duration) {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_nodelay(true).expect("an option");
    print_line("connected");
    let (start, mut worst) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < duration {
        let began = Instant::now();
        let mut answer = [0; 4];
        let asked = stream
            .write_all(b"echo")
            .and_then(|()| stream.read_exact(&mut answer));
        if let Err(error) = asked {
            return print_line(&format!("gone {}", name(&error)));
        }
        worst = worst.max(began.elapsed());
        thread::sleep(Duration::from_millis(2));
    }
    print_line(&format!("paused {}", worst.as_millis()));
}

/// Accepts connections and never reads.
fn hold(address: SocketAddr) {
    let listener = TcpListener::bind(address).expect("bind");
    print_line(&format!(
        "ready {}",
        listener.local_addr().expect("an address")
    ));
    let mut held = Vec::new();
    loop {
        held.push(listener.accept().expect("accept"));
    }
}

/// Writes until nothing more is taken for a while, prints that, and waits to be killed.
fn pour(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream
        .set_write_timeout(Some(FULL_AFTER))
        .expect("a time-out");
    while stream.write(&[7; 1 << 16]).is_ok() {}
    print_line("full");
    loop {
        thread::park();
    }
}

/// Connects, asks for an echo, then waits for any event, and prints each event.
fn call(address: SocketAddr) {
    let mut stream = match TcpStream::connect(address) {
        Ok(stream) => stream,
        Err(error) => return print_line(&format!("refused {}", name(&error))),
    };
    print_line("connected");
    let mut answer = [0; 4];
    let asked = stream
        .write_all(b"echo")
        .and_then(|()| stream.read_exact(&mut answer));
    match asked {
        Ok(()) if &answer == b"echo" => print_line("echoed"),
        Ok(()) => return print_line("gone wrong bytes"),
        Err(error) => return print_line(&format!("gone {}", name(&error))),
    }
    print_line(&format!("gone {}", echo(stream)));
}

fn print_line(line: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{line}");
    let _ = output.flush();
}
