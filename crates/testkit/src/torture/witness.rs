//! Two plain programs that say what they see of a connection, for tests that break it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// A buffer that takes nothing for so long is full.
const FULL_AFTER: Duration = Duration::from_millis(500);

/// Runs the program of a name.
pub fn run(name: &str, address: SocketAddr) {
    match name {
        "serve" => serve(address),
        "hold" => hold(address),
        "pour" => pour(address),
        "call" => call(address),
        other => panic!("no witness is named {other}"),
    }
}

/// Echoes what comes on every connection, and says how each ends.
fn serve(address: SocketAddr) {
    let listener = TcpListener::bind(address).expect("bind");
    say(&format!(
        "ready {}",
        listener.local_addr().expect("an address")
    ));
    loop {
        let (stream, _) = listener.accept().expect("accept");
        thread::spawn(move || {
            let outcome = echo(stream);
            say(&format!("gone {outcome}"));
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

/// Accepts connections and never reads.
fn hold(address: SocketAddr) {
    let listener = TcpListener::bind(address).expect("bind");
    say(&format!(
        "ready {}",
        listener.local_addr().expect("an address")
    ));
    let mut held = Vec::new();
    loop {
        held.push(listener.accept().expect("accept"));
    }
}

/// Writes until nothing more is taken for a while, says so, and waits to be killed.
fn pour(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream
        .set_write_timeout(Some(FULL_AFTER))
        .expect("a time-out");
    while stream.write(&[7; 1 << 16]).is_ok() {}
    say("full");
    loop {
        thread::park();
    }
}

/// Connects, asks for an echo, then waits for whatever comes, and says each of these.
fn call(address: SocketAddr) {
    let mut stream = match TcpStream::connect(address) {
        Ok(stream) => stream,
        Err(error) => return say(&format!("refused {}", name(&error))),
    };
    say("connected");
    let mut answer = [0; 4];
    let asked = stream
        .write_all(b"echo")
        .and_then(|()| stream.read_exact(&mut answer));
    match asked {
        Ok(()) if &answer == b"echo" => say("echoed"),
        Ok(()) => return say("gone wrong bytes"),
        Err(error) => return say(&format!("gone {}", name(&error))),
    }
    say(&format!("gone {}", echo(stream)));
}

fn name(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionReset => "ECONNRESET".to_owned(),
        ErrorKind::TimedOut => "ETIMEDOUT".to_owned(),
        ErrorKind::BrokenPipe => "EPIPE".to_owned(),
        ErrorKind::ConnectionRefused => "ECONNREFUSED".to_owned(),
        ErrorKind::HostUnreachable => "EHOSTUNREACH".to_owned(),
        _ => error.to_string(),
    }
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{line}");
    let _ = output.flush();
}
