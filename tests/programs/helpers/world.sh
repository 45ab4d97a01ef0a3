# Sourced after common.sh by tests with a world outside and a host beside it, each in a namespace of its own: how these are made and
# removed, and what else such tests have in common. ON_HOST runs a program on the host.

OWN=10.88.0.2 WORLD=10.7.0.2 HOST_ADDRESS=10.7.0.1
CHECKED=0
NAMESPACES=()

# add_namespaces NAME...: each has loopback. Fails where none can be made.
add_namespaces() {
    local name
    for name; do
        ip netns add "$name" 2>/dev/null || return 1
        NAMESPACES+=("$name")
        ip -n "$name" link set lo up
    done
}

remove_namespaces() {
    local name
    for name in "${NAMESPACES[@]}"; do ip netns del "$name" 2>/dev/null || true; done
}

# join_world HOST OUTSIDE: the cable between them.
join_world() {
    ip -n "$1" link add world type veth peer name host netns "$2"
    ip -n "$1" addr add "$HOST_ADDRESS/24" dev world
    ip -n "$2" addr add "$WORLD/24" dev host
    ip -n "$1" link set world up
    ip -n "$2" link set host up
}

# expect WHAT WANTED GOT
expect() {
    [ "$2" = "$3" ] || fail "$1: $3 and not $2"
    CHECKED=$((CHECKED + 1))
}

reload() {
    "${ON_HOST[@]}" "$NETCHANNEL_PROGRAM" config reload --socket "$SOCKET" >"$TMP/reload.log" || fail "reload: $(cat "$TMP/reload.log")"
}
