# Sourced after common.sh by tests of two hosts that are peers and have tenants: network namespaces joined by veth, a key, a daemon on each.
# ON_A and ON_B run a program on a host; EMPTY is a namespace with nothing but loopback.

. "$HERE/helpers/world.sh"

ALPHA=$ID-alpha BETA=$ID-beta EMPTY=$ID-empty
A=10.7.0.1 B=10.7.0.2
SOCKET_A=$TMP/a/nc.sock SOCKET_B=$TMP/b/nc.sock
ON_A=(nsenter --net="/run/netns/$ALPHA")
ON_B=(nsenter --net="/run/netns/$BETA")
trap 'remove_namespaces; finish' EXIT

make_hosts() {
    add_namespaces "$ALPHA" "$BETA" "$EMPTY" || return 1
    ip link add a0 netns "$ALPHA" type veth peer name b0 netns "$BETA"
    ip -n "$ALPHA" addr add "$A/24" dev a0
    ip -n "$BETA" addr add "$B/24" dev b0
    ip -n "$ALPHA" link set a0 up
    ip -n "$BETA" link set b0 up
    mkdir "$TMP/a" "$TMP/b"
    (umask 077 && openssl rand -hex 32 >"$TMP/key")
}

# peers_of alpha|beta LINES...: the head of a host's configuration, with more lines about its peer.
peers_of() {
    local name=$1 own=$A other=beta at=$B
    shift
    [ "$name" = alpha ] || own=$B other=alpha at=$A
    printf '[host]\nname = "%s"\nlisten = "%s"\n[[peers]]\nname = "%s"\naddresses = "%s"\nkey-file = "%s/key"\n' "$name" "$own" "$other" "$at" "$TMP"
    if [ $# != 0 ]; then printf '%s\n' "$@"; fi
}

start_alpha() {
    start daemon-a "${ON_A[@]}" "$NETCHANNEL_PROGRAM" daemon --socket "$SOCKET_A" --config "$TMP/a/netchannel.toml"
    until_true 10 "the tenant's socket" test -S "$TMP/a/tenants/web/nc.sock"
}

start_beta() {
    start daemon-b "${ON_B[@]}" "$NETCHANNEL_PROGRAM" daemon --socket "$SOCKET_B" --config "$TMP/b/netchannel.toml"
    DAEMON_B=$LAST_STARTED
    until_true 10 "the socket of the other host" test -S "$SOCKET_B"
}

reload() {
    "$NETCHANNEL_PROGRAM" config reload --socket "$1" >"$TMP/reload.log" 2>&1 || fail "reload: $(cat "$TMP/reload.log")"
}

# Whether so many listeners of beta are known on alpha, over channels that are up.
knows() {
    "$NETCHANNEL_PROGRAM" peers --socket "$SOCKET_A" --json >"$TMP/peers.json" && "$PYTHON" -c "
import json, sys
peers = json.load(open(sys.argv[1]))
peer, = peers['peers'] if isinstance(peers, dict) else peers
sys.exit(not (peer['state'] == 'up' and peer['listeners'] >= int(sys.argv[2])))" "$TMP/peers.json" "$1"
}

# web COMMAND...: of alpha's tenant.
web() {
    "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET_A" run web -- nsenter --net="/run/netns/$EMPTY" "$@"
}
