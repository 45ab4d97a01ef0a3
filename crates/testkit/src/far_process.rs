//! The process on the other host to which `far` sends calls. It makes each call with the plain C library.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crate::far::wire::{Answer, Call, Request};
use crate::sys::{self, Errno, Outcome};

/// Listens at a path and serves each connection with its own thread, until the process is killed.
///
/// # Errors
/// If the process cannot listen or accept.
pub fn serve(path: &Path) -> io::Result<()> {
    sys::ignore_signal(libc::SIGPIPE).map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
    // A process that sees the path may connect at once, so the socket listens before it gets its name.
    let hidden = path.with_extension("hidden");
    let listener = UnixListener::bind(&hidden)?;
    std::fs::rename(&hidden, path)?;
    loop {
        let (stream, _) = listener.accept()?;
        std::thread::spawn(move || {
            // An error means that the case has ended, in whatever way.
            let _ = answer_all(stream);
        });
    }
}

fn answer_all(mut stream: UnixStream) -> io::Result<()> {
    while let Some(request) = Request::read(&mut stream)? {
        let answer = match answer(&request) {
            Ok(answer) => answer,
            Err(Errno(errno)) => Answer {
                result: -i64::from(errno),
                ..Answer::default()
            },
        };
        answer.write(&mut stream)?;
    }
    Ok(())
}

fn answer(request: &Request) -> Outcome<Answer> {
    let Request {
        descriptor,
        numbers,
        bytes,
        ..
    } = request;
    let descriptor = *descriptor;
    let int = |index: usize| libc::c_int::try_from(numbers[index]).expect("an int");
    let length = |index: usize| usize::try_from(numbers[index]).expect("a length");
    let address = || {
        let text = String::from_utf8_lossy(bytes);
        text.parse::<SocketAddr>().expect("an address")
    };
    match request.call {
        Call::Socket => number(sys::socket(int(0), int(1), int(2))?),
        Call::Bind => unit(sys::bind(descriptor, address())),
        Call::Listen => unit(sys::listen(descriptor, int(0))),
        Call::Connect => unit(sys::connect(descriptor, address())),
        Call::Accept => number(sys::accept(descriptor)?),
        Call::AcceptFrom => {
            let (accepted, from) = sys::accept_from(descriptor)?;
            named(i64::from(accepted), from)
        }
        Call::Accept4 => number(sys::accept4(descriptor, int(0))?),
        Call::Shutdown => unit(sys::shutdown(descriptor, int(0))),
        Call::OwnName => named(0, sys::getsockname(descriptor)?),
        Call::PeerName => named(0, sys::getpeername(descriptor)?),
        Call::SetOption => unit(sys::set_option_bytes(descriptor, int(0), int(1), bytes)),
        Call::Option => {
            let value = sys::option_bytes(descriptor, int(0), int(1), length(2))?;
            Ok(Answer {
                bytes: value,
                ..Answer::default()
            })
        }
        Call::AtMark => number(libc::c_int::from(sys::at_mark(descriptor)?)),
        Call::Close => unit(sys::close(descriptor)),
        Call::Dup => number(sys::dup(descriptor)?),
        Call::Control => number(sys::fcntl(descriptor, int(0), int(1))?),
        Call::IoctlInt => {
            let request = libc::c_ulong::try_from(numbers[0]).expect("a request");
            let value = sys::ioctl_int(descriptor, request, int(1))?;
            Ok(Answer {
                number: i64::from(value),
                ..Answer::default()
            })
        }
        Call::Send => size(sys::send(descriptor, bytes, int(0))?),
        Call::Write => size(sys::write(descriptor, bytes)?),
        Call::WriteVector => {
            let (first, second) = bytes.split_at(bytes.len() / 2);
            size(sys::writev(descriptor, &[first, second])?)
        }
        Call::SendTo => {
            let nobody: SocketAddr = match numbers[1] {
                0 => (Ipv4Addr::LOCALHOST, 9).into(),
                _ => (Ipv6Addr::LOCALHOST, 9).into(),
            };
            size(sys::sendto(descriptor, bytes, int(0), nobody)?)
        }
        Call::Receive => received(length(1), |room| sys::recv(descriptor, room, int(0))),
        Call::Read => received(length(1), |room| sys::read(descriptor, room)),
        Call::Poll => {
            let mut entries = [libc::pollfd {
                fd: descriptor,
                events: libc::c_short::try_from(numbers[0]).expect("events"),
                revents: 0,
            }];
            let count = sys::poll(&mut entries, int(1))?;
            Ok(Answer {
                result: i64::from(count),
                number: i64::from(entries[0].revents),
                bytes: Vec::new(),
            })
        }
    }
}

fn number(value: libc::c_int) -> Outcome<Answer> {
    Ok(Answer {
        result: i64::from(value),
        ..Answer::default()
    })
}

fn size(value: usize) -> Outcome<Answer> {
    Ok(Answer {
        result: i64::try_from(value).expect("a size"),
        ..Answer::default()
    })
}

fn unit(outcome: Outcome<()>) -> Outcome<Answer> {
    outcome.map(|()| Answer::default())
}

fn named(result: i64, name: SocketAddr) -> Outcome<Answer> {
    Ok(Answer {
        result,
        number: 0,
        bytes: name.to_string().into_bytes(),
    })
}

/// With `MSG_TRUNC` the result is larger than the number of bytes put into the buffer.
fn received(room: usize, receive: impl FnOnce(&mut [u8]) -> Outcome<usize>) -> Outcome<Answer> {
    let mut bytes = vec![0; room];
    let count = receive(&mut bytes)?;
    bytes.truncate(count);
    Ok(Answer {
        result: i64::try_from(count).expect("a size"),
        number: 0,
        bytes,
    })
}
