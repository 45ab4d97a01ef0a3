#!/bin/bash
# The systemd unit that is shipped: how little systemd finds that it may do, and that the daemon serves programs of other users with that.
. "$(dirname "$0")/common.sh"
need systemd-analyze setpriv curl openssl "$PYTHON"
[ "$(id -u)" = 0 ] || skip "the service is root's"
UNIT=$HERE/../../dist/netchannel.service
# Tenths of systemd's exposure level.
MOST_EXPOSURE=25
# As the kernel shows them: CHOWN (0), NET_BIND_SERVICE (10), SYS_PTRACE (19), SYS_NICE (23).
CAPABILITIES=0000000000880401
USER_ID=61017

exposure() {
    local said
    said=$(systemd-analyze security --offline=yes --threshold=$MOST_EXPOSURE "$UNIT") || fail "$(tail -n 1 <<<"$said")"
    echo "result:$(tail -n 1 <<<"$said" | sed 's/.*:\( [0-9.]*\).*/\1/') exposure by systemd-analyze"
}

under_unit() {
    local own
    own=$(awk '$1 == "CapEff:" { print $2 }' /proc/self/status)
    if [ $((0x$own & 0x$CAPABILITIES)) != $((0x$CAPABILITIES)) ]; then
        left_out "the daemon under the unit's restrictions: root may not do here what the unit leaves it"
        exit 0
    fi
    "$PYTHON" "$HERE/helpers/under_unit.py" "$UNIT" true || {
        local code=$?
        [ "$code" = 77 ] || fail "the restrictions of the unit cannot be had"
        left_out "the daemon under the unit's restrictions: libseccomp.so.2 is not installed"
        exit 0
    }
}

configure() {
    (umask 077 && openssl rand -hex 32 >"$TMP/key")
    free_port LISTEN
    # Below 1024: as a service might.
    METRICS=$((600 + RANDOM % 400))
    cat >"$TMP/netchannel.toml" <<END
[host]
name = "here"
listen = ["127.0.0.1:$LISTEN"]
[metrics]
listen = "127.0.0.1:$METRICS"
[[peers]]
name = "there"
addresses = ["127.0.0.2:9"]
key-file = "key"
[[tenants]]
name = "web"
addresses = ["10.88.0.2"]
reach = ["192.0.2.0/24"]
user = $USER_ID
END
}

shown() {
    awk -v name="$1:" '$1 == name { print $2 }' "/proc/$DAEMON/status"
}

# As a user who is not root: a server and a client in Python, over memory.
talk() {
    local as_user=(setpriv --reuid "$USER_ID" --regid "$USER_ID" --clear-groups)
    local run=("$NETCHANNEL_PROGRAM" run --no-daemon --require --socket "$SOCKET" --)
    free_port PORT
    start server "${as_user[@]}" "${run[@]}" "$PYTHON" "$HERE/helpers/echo_server.py" threads "$PORT" "$TMP"
    wait_port "$PORT"
    limited 60 "${as_user[@]}" "${run[@]}" "$PYTHON" "$HERE/helpers/echo_client.py" threads "$PORT" "$TMP" >"$TMP/client.log"
    count_virtual
    [ "$VIRTUAL" -gt 0 ] || fail "no connection took the way through memory"
    "$NETCHANNEL_PROGRAM" ss --listening --socket "$SOCKET" | grep ":$PORT" >/dev/null || fail "ss does not show the server"
}

# The socket of a tenant is its user's, and opened by nobody else but root.
serve_tenant() {
    local tenant=$TMP/tenants/web/nc.sock owner
    until_true 10 "the tenant's socket" test -S "$tenant"
    owner=$(stat --format %u "$tenant")
    [ "$owner" = "$USER_ID" ] || fail "the socket of a tenant belongs to $owner"
    limited 20 setpriv --reuid "$USER_ID" --regid "$USER_ID" --clear-groups env LD_PRELOAD="$NETCHANNEL_LIBRARY" NETCHANNEL_SOCKET="$tenant" \
        "$PYTHON" -c "import socket; print(socket.socket().connect_ex(('10.88.0.2', 9)))" >"$TMP/tenant.log"
    [ "$(cat "$TMP/tenant.log")" = 111 ] || fail "a program of the tenant's user: $(cat "$TMP/tenant.log")"
    "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET" | grep web >/dev/null || fail "no tenant"
}

exposure
under_unit
configure
chmod 755 "$TMP"
start daemon "$PYTHON" "$HERE/helpers/under_unit.py" "$UNIT" \
    "$NETCHANNEL_PROGRAM" daemon --socket "$SOCKET" --config "$TMP/netchannel.toml"
DAEMON=$LAST_STARTED
MODE=both
until_true 10 "the daemon's socket" test -S "$SOCKET"
for set in CapEff CapPrm CapBnd; do
    [ "$(shown $set)" = "$CAPABILITIES" ] || fail "$set is $(shown $set)"
done
[ "$(shown NoNewPrivs)" = 1 ] || fail "no_new_privs is not set"
[ "$(shown Seccomp)" = 2 ] || fail "no filter of system calls is there"
talk
serve_tenant
curl -sSf "http://127.0.0.1:$METRICS/metrics" | grep netchannel_ >/dev/null || fail "no metrics"
"$NETCHANNEL_PROGRAM" config reload --socket "$SOCKET" >/dev/null || fail "the configuration is not read again"
"$NETCHANNEL_PROGRAM" peers --socket "$SOCKET" | grep there >/dev/null || fail "no peer"
# Nobody is where the peer should be.
if grep -E "WARN|ERROR" "$TMP/daemon.log" | grep -v "cannot reach peer"; then fail "the daemon lacks something"; fi
stop_daemon
echo "result: served $VIRTUAL connections of user $USER_ID, metrics at port $METRICS, a configuration read again"
