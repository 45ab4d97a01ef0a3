//! The devices of the two hosts: made and addressed with `ip`, offloads set as ethtool does.

use crate::{ADDRESSES, Error, Host};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// The name of each host's end of the cable.
pub const DEVICE: &str = "veth0";

/// The same of a second cable.
pub const SECOND: &str = "veth1";

/// Bytes to which the kernel's TCP may let a socket's buffer grow in these hosts, in either direction.
pub const BUFFER: usize = 4 << 20;

/// The offloads of the devices for TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// As a veth comes: segments of up to 64 KiB pass as one.
    Segments,
    /// TSO, GSO and GRO off: every packet of the MTU's size passes by itself.
    Packets,
}

/// Commands of linux/ethtool.h, which libc does not have.
const SET_GSO: u32 = 0x24;
const SET_TSO: u32 = 0x1f;
const SET_GRO: u32 = 0x2c;

/// `struct ethtool_value`
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Makes the cable and the addresses, and waits for nothing: addresses can be used at once.
pub fn join(a: &Host, b: &Host) -> Result<(), Error> {
    let settings = |error: io::Error| Error::Devices(error.to_string());
    for host in [a, b] {
        configure(host).map_err(settings)?;
    }
    let cable = format!(
        "link add {DEVICE} type veth peer name {DEVICE} netns {}\n",
        b.path().display()
    );
    ip(a, &(cable + &addresses(a)))?;
    ip(b, &addresses(b))
}

/// Settings of a namespace, all before it has devices.
fn configure(host: &Host) -> io::Result<()> {
    buffers(host, BUFFER)?;
    if has_ipv6(host) {
        // Addresses stay when the cable is pulled, and are used at once when it is back.
        host.set(KEEP_ADDRESSES, "1")?;
        host.set("ipv6/conf/default/accept_dad", "0")?;
    }
    if !host.processors().is_empty() {
        // Without it (Linux before 6.3) what a host receives is processed where the other one sent it.
        let _ = host.set("core/rps_default_mask", &host.mask());
    }
    Ok(())
}

/// Bytes to which TCP may let the buffers of new sockets grow.
pub fn buffers(host: &Host, bytes: usize) -> io::Result<()> {
    let first = |usual: usize| usual.min(bytes);
    host.set("ipv4/tcp_rmem", &format!("4096 {} {bytes}", first(131_072)))?;
    host.set("ipv4/tcp_wmem", &format!("4096 {} {bytes}", first(16_384)))
}

/// Bytes of a packet, and segments that the device takes at a time.
pub fn packets(host: &Host, bytes: u16, segments: u16) -> Result<(), Error> {
    ip(
        host,
        &format!("link set {DEVICE} mtu {bytes} gso_max_segs {segments}\n"),
    )
}

/// This setting exists if IPv6 does.
const KEEP_ADDRESSES: &str = "ipv6/conf/default/keep_addr_on_down";

fn has_ipv6(host: &Host) -> bool {
    host.setting(KEEP_ADDRESSES).is_ok()
}

/// The commands to `ip` for one host. Both hosts' addresses are on the cable, so that no routes are needed.
fn addresses(host: &Host) -> String {
    let ipv6 = has_ipv6(host);
    let mut text = String::from("link set lo up\n");
    // Writing to a String cannot fail.
    for index in 0..ADDRESSES {
        let _ = writeln!(text, "addr add {}/16 dev {DEVICE}", host.v4(index));
        if ipv6 {
            let _ = writeln!(text, "addr add {}/16 dev {DEVICE} nodad", host.v6(index));
        }
    }
    let _ = writeln!(text, "link set {DEVICE} up");
    text
}

/// The first addresses of a host on the loopback device of another namespace.
pub fn on_loopback(place: &Host, address: u8) -> Result<(), Error> {
    let v4 = place.v4(address);
    let mut text = format!("link set lo up\naddr add {v4}/32 dev lo\n");
    if has_ipv6(place) {
        let _ = writeln!(text, "addr add {}/128 dev lo nodad", place.v6(address));
    }
    ip(place, &text)
}

/// Connections over the cable take this congestion control from their route: the setting of a network namespace takes only
/// those that every user may have.
pub fn congestion_control(host: &Host, name: &str) -> Result<(), Error> {
    let (v4, network) = (host.v4(0), Ipv4Addr::new(10, 77, 0, 0));
    let mut text = format!(
        "route replace {network}/16 dev {DEVICE} proto kernel scope link src {v4} congctl {name}\n"
    );
    if has_ipv6(host) {
        let _ = writeln!(
            text,
            "route replace fd77::/16 dev {DEVICE} proto kernel metric 256 congctl {name}"
        );
    }
    ip(host, &text)
}

/// Makes a host acknowledge received bytes at once, from itself and over the cable.
pub fn acknowledge_at_once(host: &Host) -> Result<(), Error> {
    let (v4, network) = (host.v4(0), Ipv4Addr::new(10, 77, 0, 0));
    let mut text = String::new();
    let own = (0..ADDRESSES).map(|index| host.v4(index));
    let own = own.map(|address| (address.to_string(), DEVICE, address));
    let loopback = ["127.0.0.0/8", "127.0.0.1"].map(|name| (name.to_owned(), "lo"));
    let loopback = loopback.map(|(name, device)| (name, device, Ipv4Addr::LOCALHOST));
    for (name, device, source) in loopback.into_iter().chain(own) {
        let _ = writeln!(
            text,
            "route change local {name} dev {device} table local proto kernel scope host src {source} quickack 1"
        );
    }
    let _ = writeln!(
        text,
        "route replace {network}/16 dev {DEVICE} proto kernel scope link src {v4} quickack 1"
    );
    if has_ipv6(host) {
        // Routes of the kernel itself can not be changed.
        let own = (0..ADDRESSES).map(|index| (host.v6(index), DEVICE));
        for (address, device) in own.chain([(Ipv6Addr::LOCALHOST, "lo")]) {
            let own = format!("route del local {address} dev {device} table local\n");
            once_there(|| ip(host, &own))?;
            let _ = writeln!(
                text,
                "route add local {address} dev {device} table local metric 1 quickack 1"
            );
        }
        let _ = writeln!(
            text,
            "route replace fd77::/16 dev {DEVICE} proto kernel metric 256 quickack 1"
        );
    }
    ip(host, &text)
}

/// The kernel makes routes of IPv6 when it has noticed that the other end of the cable is up, some moments later.
fn once_there(change: impl Fn() -> Result<(), Error>) -> Result<(), Error> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let begun = Instant::now();
    loop {
        match change() {
            Err(_) if begun.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
            done => return done,
        }
    }
}

/// Routes all other addresses over the cable, where packets to them are lost.
pub fn blackhole_other_addresses(host: &Host, other: &Host) -> Result<(), Error> {
    let via = other.v4(0);
    ip(host, &format!("route add default via {via} dev {DEVICE}\n"))
}

/// A second cable between two hosts, of a network of its own.
pub fn join_again(a: &Host, b: &Host) -> Result<(), Error> {
    let cable = format!(
        "link add {SECOND} type veth peer name {SECOND} netns {}\n",
        b.path().display()
    );
    let address = |host: &Host| {
        let address = host.v4_of_second_cable();
        format!("addr add {address}/24 dev {SECOND}\nlink set {SECOND} up\n")
    };
    ip(a, &(cable + &address(a)))?;
    ip(b, &address(b))
}

/// Runs lines of `ip` in a host.
pub fn ip(host: &Host, lines: &str) -> Result<(), Error> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Error::NoIproute,
        _ => Error::Devices(error.to_string()),
    };
    // PATH of other users often has no sbin.
    let program = ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .unwrap_or("ip");
    let mut child = host
        .command(program)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // An error is reported by the command that does not read.
        let _ = input.write_all(lines.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let first = complaint.lines().next().unwrap_or("no reason given");
    Err(Error::Devices(format!("ip: {first}")))
}

/// Sets the offloads of the device in the namespace of the calling thread.
pub fn offload(offload: Offload) -> io::Result<()> {
    // SAFETY: takes integers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor just made, owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // GRO stays as a veth comes, off: whole segments leave it nothing to do, and single packets are meant to stay single.
    let segments = u32::from(offload == Offload::Segments);
    for (command, data) in [(SET_GSO, segments), (SET_TSO, segments), (SET_GRO, 0)] {
        let mut value = Value { command, data };
        // SAFETY: all-zero is a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (place, byte) in request.ifr_name.iter_mut().zip(DEVICE.bytes()) {
            *place = libc::c_char::from_ne_bytes([byte]);
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: `request` and `value` live through the call, and are what this command reads.
        let result =
            unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
