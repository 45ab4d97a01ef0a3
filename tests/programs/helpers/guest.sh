# What both tests of a guest have: a world, a host with a tenant, and the host's end of the guest. Sourced behind common.sh.

. "$HERE/helpers/world.sh"

ID=ncg$$
OUTSIDE=$ID-outside HOST=$ID-host INSIDE=$ID-inside
MEMORY=/dev/shm/$ID BELL=$TMP/bell
ON_HOST=(nsenter --net="/run/netns/$HOST")
OUT=(nsenter --net="/run/netns/$OUTSIDE")
MODE=guest

trap 'remove_namespaces; rm -f "$MEMORY"; finish' EXIT

# ---- the host ------------------------------------------------------------------------------------------------------

make_host() {
    add_namespaces "$OUTSIDE" "$HOST" || skip "no network namespace can be made"
    join_world "$HOST" "$OUTSIDE"
    cat >"$TMP/netchannel.toml" <<END
[host]
name = "host"
[[tenants]]
name = "web"
addresses = ["$OWN"]
reach = ["10.7.0.0/24"]
publish = ["$HOST_ADDRESS:8080:80", "$HOST_ADDRESS:5201:5201"]
resolver = "$WORLD"
END
    start daemon "${ON_HOST[@]}" "$NETCHANNEL_PROGRAM" daemon --socket "$SOCKET" --config "$TMP/netchannel.toml"
    until_true 10 "the tenant's socket" test -S "$TMP/tenants/web/nc.sock"
}

host_end() {
    start end "${ON_HOST[@]}" "$NETCHANNEL_PROGRAM" guest host web --socket "$SOCKET" --memory "$MEMORY" --bell "$BELL"
    END=$LAST_STARTED
    until_true 10 "the doorbell" test -S "$BELL"
}

make_world() {
    mkdir "$TMP/www"
    make_data "$TMP/www/large" 20000003 large
    make_data "$TMP/www/small" 1000 small
    TEST_ADDRESS=$WORLD start world "${OUT[@]}" "$PYTHON" "$HERE/helpers/http_server.py" 8000 "$TMP/www"
    start names "${OUT[@]}" "$PYTHON" "$HERE/helpers/dns_server.py" "$WORLD" 53 "$WORLD"
    until_true 10 "the world's server" "${OUT[@]}" curl --silent -o /dev/null "http://$WORLD:8000/small"
}

who() {
    [ "$("${OUT[@]}" curl --silent --max-time 5 "http://$HOST_ADDRESS:8080/who")" = "$WORLD $OWN:80" ]
}

refused() {
    local code=0
    "${OUT[@]}" curl --silent --max-time 5 "http://$HOST_ADDRESS:8080/who" >/dev/null || code=$?
    [ "$code" = 7 ]
}

open_connections() {
    "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET" --json | "$PYTHON" -c "import json, sys; print(json.load(sys.stdin)[0]['connections'])"
}

has_none() {
    [ "$(open_connections)" = 0 ]
}

# Sockets of programs of the tenant on the host, of which there is one: the host's end.
shows_no_socket() {
    [ "$("$NETCHANNEL_PROGRAM" ss --socket "$SOCKET" --tenant web --json | "$PYTHON" -c "import json, sys; print(len(json.load(sys.stdin)))")" = 0 ]
}

# ---- clients that wait ---------------------------------------------------------------------------------------------

# hold NAME: a client that has half of an answer, and waits for the rest.
hold() {
    start "$1" "${OUT[@]}" "$PYTHON" -c "
import socket
s = socket.create_connection(('$HOST_ADDRESS', 8080))
s.send(b'GET /large HTTP/1.0\r\n\r\n')
s.recv(1000)
print('waits', flush=True)
s.settimeout(60)
import time
time.sleep(1)
count = 0
try:
    while True:
        some = s.recv(1)
        if not some: break
        # So slowly that the machine is gone before the end.
        if count < 100: time.sleep(0.05)
        count += 1
    print('end')
except ConnectionResetError:
    print('reset')"
    HELD=$LAST_STARTED
    until_true 10 "a client that waits" grep -q waits "$TMP/$1.log"
}

is_gone() {
    until_true 20 "a port that is refused" refused
    wait_end "$HELD" 40
    expect "the connection of a client" reset "$(tail -n 1 "$TMP/$1.log")"
    until_true 10 "no connection at the host" has_none
    until_true 10 "no socket at the host's end" shows_no_socket
}

