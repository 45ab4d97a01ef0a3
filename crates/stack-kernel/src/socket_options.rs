//! What a program asks of the stack's socket: when it counts a silent connection as lost, and what the kernel says of it.

use netchannel_abi::answer::{BYTES, INFORMATION, NAME, wants_answer};
use netchannel_abi::liveness::Liveness;
use netchannel_service::lane::Lane;
use netchannel_shm::kernel_socket;
use rustix::io;
use rustix::net::sockopt;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The congestion controls that any program may choose.
const PERMITTED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// What was done by now.
#[derive(Debug, Default)]
pub struct SocketOptions {
    number: u32,
    liveness: Liveness,
    congestion: [u8; NAME],
}

impl SocketOptions {
    /// Does what the program has asked for since. A congestion control it chooses only where its operator has not.
    #[inline]
    pub fn follow(&mut self, lane: &Lane, socket: &OwnedFd, may_choose: bool) {
        let number = lane.asked();
        if number != self.number {
            self.number = number;
            self.look(lane, socket, may_choose);
        }
    }

    #[cold]
    fn look(&mut self, lane: &Lane, socket: &OwnedFd, may_choose: bool) {
        let (liveness, congestion) = lane.wanted_of_socket();
        let before = std::mem::replace(&mut self.liveness, liveness);
        // It fails only for values that a word does not have.
        let _ = set(socket, before, liveness);
        if congestion != self.congestion {
            self.congestion = congestion;
            if may_choose && let Some(name) = permitted(&congestion) {
                // The program is told what holds when it asks.
                let _ = sockopt::set_tcp_congestion(socket, name);
            }
        }
        if wants_answer(self.number) {
            lane.answer(self.number, &answer(socket));
        }
    }
}

/// The name that a program has chosen, where the kernel leaves it to any program: a stack may have more rights.
fn permitted(name: &[u8; NAME]) -> Option<&str> {
    let name = name.split(|byte| *byte == 0).next();
    let name = std::str::from_utf8(name?).ok()?;
    let all = std::fs::read_to_string(PERMITTED).ok()?;
    all.split_ascii_whitespace()
        .any(|one| one == name)
        .then_some(name)
}

/// Sets what has changed. What a program has never set stays as the kernel has it.
#[cold]
fn set(socket: &OwnedFd, before: Liveness, now: Liveness) -> io::Result<()> {
    let seconds = |number: u32| Duration::from_secs(number.into());
    if now.idle != before.idle && now.idle != 0 {
        sockopt::set_tcp_keepidle(socket, seconds(now.idle))?;
    }
    if now.interval != before.interval && now.interval != 0 {
        sockopt::set_tcp_keepintvl(socket, seconds(now.interval))?;
    }
    if now.probes != before.probes && now.probes != 0 {
        sockopt::set_tcp_keepcnt(socket, now.probes)?;
    }
    if now.user_timeout != before.user_timeout {
        sockopt::set_tcp_user_timeout(socket, now.user_timeout)?;
    }
    if now.keep_alive != before.keep_alive {
        sockopt::set_socket_keepalive(socket, now.keep_alive)?;
    }
    Ok(())
}

#[cold]
fn answer(socket: &OwnedFd) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let (information, place) = bytes.split_at_mut(INFORMATION);
    kernel_socket::tcp_info(socket, information);
    let name = sockopt::tcp_congestion(socket).unwrap_or_default();
    // The last byte stays 0.
    let last = place.len() - 1;
    for (to, byte) in place[..last].iter_mut().zip(name.bytes()) {
        *to = byte;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_socket_is_set_as_the_program_said() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket: OwnedFd = TcpStream::connect(listener.local_addr().unwrap())
            .unwrap()
            .into();
        let usual = sockopt::tcp_keepcnt(&socket).unwrap();
        let none = Liveness::default();
        let some = Liveness {
            keep_alive: true,
            idle: 7,
            user_timeout: 9000,
            ..none
        };
        set(&socket, none, some).unwrap();
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        let idle = sockopt::tcp_keepidle(&socket).unwrap();
        assert_eq!(idle, Duration::from_secs(7));
        assert_eq!(sockopt::tcp_user_timeout(&socket), Ok(9000));
        assert_eq!(sockopt::tcp_keepcnt(&socket), Ok(usual));
        set(&socket, some, none).unwrap();
        assert!(!sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(&socket), Ok(0));
        let most = Liveness::from_word(u64::MAX);
        assert_eq!(set(&socket, none, most), Ok(()));
    }

    #[test]
    fn a_program_chooses_what_any_may() {
        let all = std::fs::read_to_string(PERMITTED).unwrap();
        let mut name = [0; NAME];
        let first = all.split_ascii_whitespace().next().unwrap();
        name[..first.len()].copy_from_slice(first.as_bytes());
        assert_eq!(permitted(&name), Some(first));
        name[first.len()] = b'x';
        assert_eq!(permitted(&name), None);
        assert_eq!(permitted(&[0; NAME]), None);
        assert_eq!(permitted(&[0xff; NAME]), None);
    }

    #[test]
    fn it_says_what_the_kernel_says() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket: OwnedFd = TcpStream::connect(listener.local_addr().unwrap())
            .unwrap()
            .into();
        let bytes = answer(&socket);
        // TCP_ESTABLISHED.
        assert_eq!(bytes[0], 1);
        let name = sockopt::tcp_congestion(&socket).unwrap();
        let told = bytes[INFORMATION..].split(|byte| *byte == 0).next();
        assert_eq!(told, Some(name.as_bytes()));
    }
}
