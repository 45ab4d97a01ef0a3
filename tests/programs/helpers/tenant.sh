# Sourced by tests of a tenant's programs, after common.sh: its namespaces, the daemon, and a way in.

. "$HERE/helpers/world.sh"

ID=nct$$
OUTSIDE=$ID-outside HOST=$ID-host INSIDE=$ID-inside EMPTY=$ID-empty
trap 'remove_namespaces; finish' EXIT

# The world and the host are neighbours; the namespace of the kernel's mode lies behind the host.
# Fails where none can be made.
make_namespaces() {
    add_namespaces "$OUTSIDE" "$HOST" "$INSIDE" "$EMPTY" || return 1
    join_world "$HOST" "$OUTSIDE"
    ip -n "$HOST" link add tenant type veth peer name host netns "$INSIDE"
    ip -n "$HOST" addr add 10.88.0.1/24 dev tenant
    ip -n "$INSIDE" addr add "$OWN/24" dev host
    # Whether a host has IPv6 is a question of its addresses: a tenant has the address that it is given, and none of the link.
    ip -n "$INSIDE" link set host addrgenmode none
    ip -n "$HOST" link set tenant up
    ip -n "$INSIDE" link set host up
    ip -n "$OUTSIDE" route add 10.88.0.0/24 via "$HOST_ADDRESS"
    ip -n "$INSIDE" route add default via 10.88.0.1
    "${ON_HOST[@]}" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
}

ON_HOST=(nsenter --net="/run/netns/$HOST")
OUT=(nsenter --net="/run/netns/$OUTSIDE")

# configure LINES...: the table of the tenant, with more lines.
configure() {
    {
        printf '[host]\nname = "host"\n[[tenants]]\nname = "web"\naddresses = ["%s"]\n' "$OWN"
        printf '%s\n' "$@"
    } >"$TMP/netchannel.toml"
}

# More of the tenant's table.
MORE=()
TENANT_SOCKET=$TMP/tenants/web/nc.sock

start_daemon() {
    start daemon "${ON_HOST[@]}" "$NETCHANNEL_PROGRAM" daemon --socket "$SOCKET" --config "$TMP/netchannel.toml" "$@"
    DAEMON=$LAST_STARTED
    until_true 10 "the tenant's socket" test -S "$TENANT_SOCKET"
}

# enter MODE: IN runs a program inside, and AT is where the world finds port 80 of it.
enter() {
    MODE=$1
    case $MODE in
        kernel)
            IN=(nsenter --net="/run/netns/$INSIDE")
            AT=$OWN:80
            ;;
        tenant)
            IN=("$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET" run web -- nsenter --net="/run/netns/$EMPTY")
            AT=$HOST_ADDRESS:8080
            configure 'reach = ["10.7.0.0/24"]' "publish = [\"$HOST_ADDRESS:8080:80\"]" "resolver = \"$WORLD\"" "${MORE[@]}"
            start_daemon
            ;;
    esac
}

# listens NAMESPACE PORT
listens() {
    nsenter --net="/run/netns/$1" grep -qE "^ *[0-9]+: [0-9A-F]+:$(printf '%04X' "$2") [0-9A-F]+:0000 0A " /proc/net/tcp
}

answers() {
    "${OUT[@]}" curl --silent --output /dev/null --max-time 1 "http://$AT/"
}

# try NAME COMMAND...: its exit code, and nothing else of it.
try() {
    local name=$1 code=0
    shift
    limited 40 "$@" >"$TMP/client.log" 2>&1 || code=$?
    observe "$name: exit $code"
}

# compare_with_kernel COMMAND...: the scenario over kernel TCP and as a tenant, of which the command is run besides.
compare_with_kernel() {
    local modes="kernel tenant" mode
    [ "$NETCHANNEL_PROGRAM" != none ] || modes=kernel
    rm -f "$TMP"/observed.*
    for mode in $modes; do
        echo "== scenario ($mode)"
        enter "$mode"
        : >"$TMP/observed.$mode"
        scenario
        [ "$mode" = kernel ] || "$@"
        stop_all
        DAEMON=
        MODE=
    done
    if [ "$modes" != kernel ]; then
        diff -u --label kernel --label tenant "$TMP/observed.kernel" "$TMP/observed.tenant" || fail "a tenant saw something else than over kernel TCP"
    fi
    echo "result: $(wc -w <<<"$modes") modes, $(wc -l <"$TMP/observed.kernel") observations each"
}
