#!/bin/bash
# Both ends of a guest without a machine: two processes that share a file, each in a namespace of its own; with a doorbell and without.
# Programs of the guest reach the world and are reached as those of a tenant. tests/programs/guest.sh has a machine between.
LIMIT=${LIMIT:-120}
. "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || skip "namespaces are made by root only"
need ip nsenter curl nginx ab socat openssl "$PYTHON"
[ "$NETCHANNEL_PROGRAM" != none ] || skip "without NetChannel a guest has no network"
. "$HERE/helpers/guest.sh"

INNER=$TMP/inside.sock
IN_NAMESPACE=(nsenter --net="/run/netns/$INSIDE")
IN=("${IN_NAMESPACE[@]}" "$NETCHANNEL_PROGRAM" run --no-daemon --require --socket "$INNER" --)

# inside NAME OPTIONS...: the end in the guest.
inside() {
    local name=$1
    shift
    start "$name" "${IN_NAMESPACE[@]}" "$NETCHANNEL_PROGRAM" guest inside --socket "$INNER" --memory "$MEMORY" "$@"
    GUEST=$LAST_STARTED
    until_true 10 "the guest's socket" test -S "$INNER"
}

# tried COMMAND...: its exit code.
tried() {
    local code=0
    limited 30 "$@" >"$TMP/client.log" 2>&1 || code=$?
    echo "$code"
}

# errno ADDRESS PORT: the error of a connect.
errno() {
    "${IN[@]}" "$PYTHON" -c "
import errno, socket, sys
s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET)
s.settimeout(5)
print(errno.errorcode.get(s.connect_ex((sys.argv[1], int(sys.argv[2]))), 'connected'))" "$1" "$2"
}

start_nginx() {
    mkdir -p "$TMP/nginx/www"
    cp "$TMP/www/large" "$TMP/nginx/www/"
    chmod -R a+rX "$TMP"
    nginx_page "$TMP/nginx" 1
    start nginx "${IN[@]}" nginx -c "$TMP/nginx/nginx.conf" -e "$TMP/nginx/error.log"
    NGINX=$LAST_STARTED
    until_true 20 "nginx in the guest" who
}

reaches() {
    local world=http://$WORLD:8000
    rm -f "$TMP/www/uploaded"
    expect "a large file" 0 "$(tried "${IN[@]}" curl --silent -o "$TMP/got" "$world/large")"
    expect "its bytes" "$(checksum "$TMP/www/large")" "$(checksum "$TMP/got")"
    expect "an upload" 0 "$(tried "${IN[@]}" curl --silent -T "$TMP/www/large" "$world/uploaded")"
    expect "the uploaded bytes" "$(checksum "$TMP/www/large")" "$(checksum "$TMP/www/uploaded")"
    expect "requests at once" 0 "$(tried "${IN[@]}" curl --silent --parallel --parallel-max 16 -o "/dev/null" "$world/small?[1-64]")"
    expect "half closed" 0 "$(tried "${IN[@]}" sh -c "printf 'GET /small HTTP/1.0\r\n\r\n' | socat -t 10 - TCP:$WORLD:8000 | tail -c 1000 | cmp - '$TMP/www/small'")"
    expect "a name" 0 "$(tried "${IN[@]}" curl --silent -o /dev/null "http://four.world.test:8000/small")"
    expect "a name that there is not" 6 "$(tried "${IN[@]}" curl --silent "http://missing.world.test:8000/small")"
    expect "a port at which nobody listens" ECONNREFUSED "$(errno "$WORLD" 8001)"
    expect "what is not named" EACCES "$(errno 192.0.2.1 80)"
    expect "the host's loopback" ECONNREFUSED "$(errno 127.0.0.1 8001)"
    expect "its own address" ECONNREFUSED "$(errno "$OWN" 81)"
    expect "a family that it has not" ENETUNREACH "$(errno 2001:db8::1 80)"
    expect "a reset of the world's" ECONNRESET "$("${IN[@]}" "$PYTHON" -c "
import errno, socket
s = socket.create_connection(('$WORLD', 7000))
s.send(b'x')
try:
    while s.recv(1): pass
    print('end')
except OSError as error:
    print(errno.errorcode[error.errno])")"
}

# Programs' own resolvers: over UDP, to a server of the world, one of loopback and one that the tenant may not reach.
asks() {
    local server
    for server in "$WORLD" 127.0.0.53 192.0.2.53; do
        expect "a resolver of its own, $server" 0 "$(tried "${IN[@]}" "$PYTHON" "$HERE/helpers/udp_names.py" "$server" 53)"
        sed "s/'$server'/SERVER/g" "$TMP/client.log" >"$TMP/asked.$server"
        cmp "$TMP/asked.kernel" "$TMP/asked.$server" || fail "a resolver of its own saw something else: $(diff "$TMP/asked.kernel" "$TMP/asked.$server")"
    done
}

is_reached() {
    start_nginx
    expect "a large file of the guest's" 0 "$(tried "${OUT[@]}" curl --silent -o "$TMP/got" "http://$HOST_ADDRESS:8080/large")"
    expect "its bytes" "$(checksum "$TMP/www/large")" "$(checksum "$TMP/got")"
    expect "ab" 0 "$(tried "${OUT[@]}" ab -q -n "$1" -c 16 "http://$HOST_ADDRESS:8080/who")"
    expect "ab: failed" 0 "$(sed -nE 's/^Failed requests: *//p' "$TMP/client.log")"
    expect "ab, keep-alive" 0 "$(tried "${OUT[@]}" ab -q -k -n "$1" -c 16 "http://$HOST_ADDRESS:8080/who")"
    expect "ab: failed" 0 "$(sed -nE 's/^Failed requests: *//p' "$TMP/client.log")"
}

make_inside() {
    add_namespaces "$INSIDE" || skip "no network namespace can be made"
    ip -n "$INSIDE" addr add "$OWN/32" dev lo
    mkdir -p "$TMP/etc"
    printf 'search world.test\n' >"$TMP/etc/resolv.conf"
    printf 'hosts: files dns\n' >"$TMP/etc/nsswitch.conf"
    local bind='mount --bind "$0/resolv.conf" /etc/resolv.conf; mount --bind "$0/nsswitch.conf" /etc/nsswitch.conf; exec "$@"'
    IN=(unshare --mount sh -c "$bind" "$TMP/etc" "${IN[@]}")
}

. "$HERE/helpers/http.sh"
make_host
make_inside
make_world
start resets "${OUT[@]}" "$PYTHON" -c "
import socket, struct
s = socket.create_server(('$WORLD', 7000))
while True:
    c, _ = s.accept()
    c.recv(1)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    c.close()"

# What it sees over kernel UDP.
"${OUT[@]}" "$PYTHON" "$HERE/helpers/udp_names.py" "$WORLD" 53 | sed "s/'$WORLD'/SERVER/g" >"$TMP/asked.kernel"

echo "== with a doorbell"
host_end
inside first --bell "$BELL"
reaches
asks
is_reached 2000
echo "== the guest's end is killed"
hold killed
kill -KILL "$GUEST"
wait "$GUEST" 2>/dev/null || true
is_gone killed
stop "$NGINX"
rm -f "$INNER"*
inside second --bell "$BELL"
start_nginx
echo "== the host's end is killed"
hold ended
kill -KILL "$END"
wait "$END" 2>/dev/null || true
wait_end "$HELD" 40
expect "the connection of a client" reset "$(tail -n 1 "$TMP/ended.log")"
host_end
until_true 20 "nginx in the guest once more" who
stop "$NGINX"
until_true 20 "a port that is refused" refused
stop "$GUEST"
stop "$END"
expect "without the host's end" 7 "$(tried "${OUT[@]}" curl --silent "http://$HOST_ADDRESS:8080/who")"

echo "== without a doorbell"
start end "${ON_HOST[@]}" "$NETCHANNEL_PROGRAM" guest host web --socket "$SOCKET" --memory "$MEMORY"
END=$LAST_STARTED
inside third
reaches
asks
is_reached 300
echo "== the host's end ends in good order"
kill -TERM "$END"
wait_end "$END" 10
expect "no way out" ENETUNREACH "$(errno "$WORLD" 8000)"
echo "result: $CHECKED checks"
