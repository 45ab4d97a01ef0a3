//! Today's ways to give programs without a network one, to compare with: a process in user mode that plays a network for a namespace. Each
//! program has its own, as containers have; its processor time is that of the program's tree. It lives a little longer than
//! the program, whose last bytes are still on their way. A server is reached at a port of the host, from where they lead on.

use crate::error::RunError;
use crate::options::Transport;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The congestion control of this host's routes, for a new namespace, which has the kernel's.
const CONGESTION: &str =
    "congctl=$(ip route | sed -n 's/.* congctl \\([a-z]*\\).*/congctl \\1/p' | head -n 1)
export congctl
";

/// Starts the program in a namespace of its own once `slirp4netns` has made a device there.
const SLIRP: &str = "exec 3<&0
unshare --net -- sh -c 'until grep -q ^tap0.00000000 /proc/net/route; do sleep 0.02; done
ip route change default via 10.0.2.2 dev tap0 $congctl
exec \"$@\" <&3 3<&-' sh \"$@\" &
program=$!
trap 'kill $program' TERM
slirp4netns --configure --mtu=65520 $forward $program tap0 >/dev/null 2>&1 &
network=$!
wait $program
code=$?
sleep 0.2
kill $network
wait $network
exit $code";

/// The name of the socket at which slirp4netns is told what it leads on.
const API: &str = "slirp.sock";
/// How long it may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// The same with `pasta`, which is told what it would otherwise take from a default route, and takes a namespace by its name. Its network
/// is as wide as the class of the address.
const PASTA: &str = "exec 3<&0
unshare --net -- sh -c 'until grep -q ^veth0.00000000 /proc/net/route; do sleep 0.02; done
ip route change 10.0.0.0/8 dev veth0 $congctl
exec \"$@\" <&3 3<&-' sh \"$@\" &
program=$!
trap 'kill $program' TERM
own=$(readlink /proc/self/ns/net)
while [ \"$(readlink /proc/$program/ns/net)\" = \"$own\" ]; do sleep 0.02; done
ip netns attach bench-$program $program
pasta --foreground --quiet --ipv4-only --config-net --no-map-gw --runas 0 --interface veth0 --address 10.77.200.9 --gateway 10.77.200.1 \
    --tcp-ports ${forward:-none} --udp-ports none --tcp-ns none --udp-ns none --netns-only --netns bench-$program >/dev/null 2>&1 &
network=$!
wait $program
code=$?
sleep 0.2
kill $network
wait $network
ip netns delete bench-$program
exit $code";

/// What must be installed for it; none for what needs nothing.
pub const fn needs(transport: Transport) -> Option<&'static str> {
    match transport {
        Transport::Slirp4netns => Some("slirp4netns"),
        Transport::Pasta => Some("pasta"),
        Transport::Tcp | Transport::Unix | Transport::Netchannel => None,
    }
}

/// The port of the host at which a server without a network is reached; none for what has one. Each has another, as a port that
/// is published stays bound.
pub const fn published_port(transport: Transport) -> Option<u16> {
    match transport {
        Transport::Netchannel => Some(7100),
        Transport::Slirp4netns => Some(7101),
        Transport::Pasta => Some(7102),
        Transport::Tcp | Transport::Unix => None,
    }
}

/// The words before a program's own with which it is started; a server is `published` at its port, by way of a folder.
pub fn prefix(transport: Transport, published: Option<&Path>) -> Option<Vec<OsString>> {
    let (script, forward) = match (transport, published_port(transport), published) {
        (Transport::Slirp4netns, _, None) => (SLIRP, String::new()),
        (Transport::Slirp4netns, _, Some(folder)) => {
            let path = folder.join(API);
            let path = path.display();
            (
                SLIRP,
                format!("rm -f {path}; forward=--api-socket={path}\n"),
            )
        }
        (Transport::Pasta, Some(port), Some(_)) => (PASTA, format!("forward={port}\n")),
        (Transport::Pasta, _, _) => (PASTA, String::new()),
        (Transport::Tcp | Transport::Unix | Transport::Netchannel, ..) => return None,
    };
    let script = format!("{CONGESTION}{forward}{script}");
    Some(["sh", "-c", &script, "sh"].map(OsString::from).to_vec())
}

/// Tells the process that plays the network of a server which port leads there, where it does not know by its command line.
pub fn forward(transport: Transport, folder: &Path, port: u16) -> Result<(), RunError> {
    if transport != Transport::Slirp4netns {
        return Ok(());
    }
    let ask = || -> io::Result<String> {
        let mut stream = UnixStream::connect(folder.join(API))?;
        stream.set_read_timeout(Some(ANSWER))?;
        let words = format!(
            "{{\"execute\":\"add_hostfwd\",\"arguments\":{{\"proto\":\"tcp\",\"host_port\":{port},\"guest_port\":{port}}}}}"
        );
        stream.write_all(words.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(RunError::Files)?;
    if answer.contains("error") {
        return Err(RunError::Wrong(format!("slirp4netns: {answer}")));
    }
    Ok(())
}
