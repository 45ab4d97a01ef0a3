//! Today's ways to give programs without a network one, to compare with: a process in user mode that plays a network for a namespace. Each
//! program has its own, as containers have; its processor time is that of the program's tree. It lives a little longer than
//! the program, whose last bytes are still on their way.

use crate::options::Transport;
use std::ffi::OsString;

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
slirp4netns --configure --mtu=65520 $program tap0 >/dev/null 2>&1 &
network=$!
wait $program
code=$?
sleep 0.2
kill $network
wait $network
exit $code";

/// The same with `pasta`, which is told what it would otherwise take from a default route, and takes a namespace by its name. Its network
/// is as wide as the class of the address.
const PASTA: &str = "exec 3<&0
unshare --net -- sh -c 'until grep -q ^veth0.00000000 /proc/net/route; do sleep 0.02; done
ip route change 10.0.0.0/8 dev veth0 $congctl
exec \"$@\" <&3 3<&-' sh \"$@\" &
program=$!
own=$(readlink /proc/self/ns/net)
while [ \"$(readlink /proc/$program/ns/net)\" = \"$own\" ]; do sleep 0.02; done
ip netns attach bench-$program $program
pasta --foreground --quiet --ipv4-only --config-net --no-map-gw --runas 0 --interface veth0 --address 10.77.200.9 --gateway 10.77.200.1 \
    --tcp-ports none --udp-ports none --tcp-ns none --udp-ns none --netns-only --netns bench-$program >/dev/null 2>&1 &
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

/// The words before a program's own with which it is started.
pub fn prefix(transport: Transport) -> Option<Vec<OsString>> {
    let script = match transport {
        Transport::Slirp4netns => SLIRP,
        Transport::Pasta => PASTA,
        Transport::Tcp | Transport::Unix | Transport::Netchannel => return None,
    };
    let script = format!("{CONGESTION}{script}");
    Some(["sh", "-c", &script, "sh"].map(OsString::from).to_vec())
}
