#!/bin/bash
# Stacks as processes of their own: two tenants, in a namespace that has nothing but loopback, whose stacks live in other namespaces than
# the daemon. A stack is killed, changed under load, started by hand as another user, and does not start at all: what each does to the
# tenants is asserted.
LIMIT=${LIMIT:-120}
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
. "$HERE/helpers/world.sh"
[ "$(id -u)" = 0 ] || skip "namespaces are made by root only"
[ "$NETCHANNEL_PROGRAM" != none ] || skip "there is nothing to compare with"
need ip ss nsenter unshare curl nginx socat "$PYTHON"

ID=ncs$$
OUTSIDE=$ID-outside HOST=$ID-host WAN=$ID-wan EMPTY=$ID-empty
WAN_ADDRESS=$HOST_ADDRESS
trap 'remove_namespaces; finish' EXIT

ON_HOST=(nsenter --net="/run/netns/$HOST")
OUT=(nsenter --net="/run/netns/$OUTSIDE")

# configure STACK-OF-WEB LINES...: both tenants and their stacks, and more of the tenant web.
configure() {
    local stack=$1
    shift
    {
        printf '[host]\nname = "host"\n'
        printf '[[stacks]]\nname = "%s"\nnamespace = "%s"\n' one "$WAN" two "$WAN"
        printf '[[stacks]]\nname = "own"\nstart = "manual"\nuser = 65534\nnamespace = "%s"\n' "$WAN"
        printf '[[stacks]]\nname = "lost"\nnamespace = "%s-lost"\n' "$ID"
        printf '[[tenants]]\nname = "db"\nstack = "two"\naddresses = ["10.88.0.3"]\nreach = ["10.7.0.0/24"]\n'
        printf '[[tenants]]\nname = "web"\nstack = "%s"\naddresses = ["10.88.0.2"]\n' "$stack"
        printf '%s\n' 'reach = ["10.7.0.0/24"]' 'publish = ["8080:80"]' "$@"
    } >"$TMP/netchannel.toml"
}

WEB=("$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET" run web -- nsenter --net="/run/netns/$EMPTY")
DB=("$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET" run db -- nsenter --net="/run/netns/$EMPTY")

stacks_of() {
    "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET" --json | "$PYTHON" -c "
import json, sys
for tenant in json.load(sys.stdin):
    if tenant['name'] == '$1':
        print(tenant['stack'], *(former['name'] for former in tenant['former_stacks']))"
}

process_of() {
    pgrep -f "^netchannel stack kernel --name $1 --socket $TMP/" || true
}

has_stack() {
    [ "$(stacks_of "$1")" = "$2" ] && [ -n "$(process_of "$2")" ]
}

answers() {
    "${OUT[@]}" curl --silent --output /dev/null --max-time 2 "http://$WAN_ADDRESS:8080/"
}

serve_page() {
    local folder=$TMP/nginx
    mkdir -p "$folder/www"
    echo page >"$folder/www/index.html"
    chmod -R a+rX "$TMP"
    nginx_page "$folder" 1
    start nginx "${WEB[@]}" nginx -c "$folder/nginx.conf" -e "$folder/error.log"
    until_true 10 "nginx inside" answers
}

# A client that connects again and again, and counts what became of it.
cat >"$TMP/clients.py" <<'PYTHON'
import os, socket, sys, time
address, stop = (sys.argv[1], int(sys.argv[2])), sys.argv[3]
counts = {"answered": 0, "refused": 0, "reset": 0, "other": 0}
longest = 0
while not os.path.exists(stop):
    begin = time.monotonic()
    try:
        with socket.create_connection(address, timeout=10) as client:
            client.sendall(b"GET /who HTTP/1.0\r\n\r\n")
            answer = b""
            while part := client.recv(4096):
                answer += part
        counts["answered" if answer.startswith(b"HTTP/1.1 200") else "other"] += 1
    except ConnectionRefusedError:
        counts["refused"] += 1
    except ConnectionResetError:
        counts["reset"] += 1
    longest = max(longest, time.monotonic() - begin)
counts["longest-ms"] = round(longest * 1000)
print(*(f"{name}={count}" for name, count in counts.items()))
PYTHON

# A transfer of which each byte is known, slow enough to outlive what happens meanwhile.
cat >"$TMP/sender.py" <<'PYTHON'
import socket, sys, time
server = socket.create_server((sys.argv[1], 7000))
while True:
    client, _ = server.accept()
    block = bytes(range(256)) * 256
    try:
        for _ in range(40):
            client.sendall(block)
            time.sleep(0.05)
        client.close()
    except OSError:
        pass
PYTHON
cat >"$TMP/reader.py" <<'PYTHON'
import errno, socket, sys
with socket.create_connection((sys.argv[1], 7000)) as server:
    print("connected", flush=True)
    got = b""
    try:
        while part := server.recv(1 << 16):
            got += part
        print("whole" if got == bytes(range(256)) * 256 * 40 else f"wrong: {len(got)}")
    except OSError as error:
        print(errno.errorcode[error.errno])
PYTHON

# read_slowly NAME PROGRAM-OF-A-TENANT...: begins a transfer.
read_slowly() {
    start "$@" "$PYTHON" "$TMP/reader.py" "$WORLD"
    READER=$LAST_STARTED
    until_true 10 "the transfer $1" grep -q connected "$TMP/$1.log"
}

# end_of NAME PID: waits for it, in this shell, whose child it is; its last line is LAST.
end_of() {
    wait_end "$2" 20 || true
    LAST=$(tail -n 1 "$TMP/$1.log")
}

# The daemon's namespace has no way to the world. That of the stacks has.
add_namespaces "$OUTSIDE" "$HOST" "$WAN" "$EMPTY" || skip "no network namespace can be made"
join_world "$WAN" "$OUTSIDE"
configure one
start daemon "${ON_HOST[@]}" "$NETCHANNEL_PROGRAM" daemon --socket "$SOCKET" --config "$TMP/netchannel.toml"
DAEMON=$LAST_STARTED
start sender "${OUT[@]}" "$PYTHON" "$TMP/sender.py" "$WORLD"
until_true 10 "stack one" has_stack web one
until_true 10 "stack two" has_stack db two
until_true 10 "a stack without its namespace" grep -q "there is no network namespace at /run/netns/$ID-lost" "$TMP/daemon.log"

# What the world sees, and what it is shown.
serve_page
expect "the client's address" "$WORLD" "$("${OUT[@]}" curl --silent "http://$WAN_ADDRESS:8080/who" | cut -d' ' -f1)"
start peer "${OUT[@]}" socat -u TCP-LISTEN:7001,bind="$WORLD",reuseaddr,fork SYSTEM:'echo $SOCAT_PEERADDR >>'"$TMP/peers"
sleep 0.2
"${WEB[@]}" socat -u OPEN:/dev/null "TCP:$WORLD:7001"
until_true 10 "a connection from the stack's namespace" grep -q "$WAN_ADDRESS" "$TMP/peers"
CHECKED=$((CHECKED + 1))

# A stack that is killed resets its own connections, and refuses nobody.
read_slowly killed "${WEB[@]}"
KILLED=$READER
read_slowly other "${DB[@]}"
OTHER=$READER
start clients "${OUT[@]}" "$PYTHON" "$TMP/clients.py" "$WAN_ADDRESS" 8080 "$TMP/stop"
CLIENTS=$LAST_STARTED
for round in 1 2 3; do
    before=$(process_of one)
    sleep 0.3
    kill -KILL "$before"
    until_true 10 "stack one, started again ($round)" has_stack web one
    until_true 10 "the page after kill $round" answers
done
end_of killed "$KILLED"
expect "a transfer of the stack that was killed" ECONNRESET "$LAST"
end_of other "$OTHER"
expect "a transfer of the other stack" whole "$LAST"
touch "$TMP/stop"
end_of clients "$CLIENTS"
counted=$LAST
# "other" is an answer that was cut off without a reset: the kernel ends connections of a killed process so where nothing lies unread.
expect "clients of a stack that is killed thrice: none is refused" "refused=0" "$(grep -oE 'refused=[0-9]+' <<<"$counted")"
echo "result: over three kills: $counted"
"${WEB[@]}" curl --silent --max-time 5 -o /dev/null "http://$WORLD:7000/" || true

# A stack that is changed under load loses nothing.
rm "$TMP/stop"
read_slowly changed "${WEB[@]}"
CHANGED=$READER
start clients "${OUT[@]}" "$PYTHON" "$TMP/clients.py" "$WAN_ADDRESS" 8080 "$TMP/stop"
CLIENTS=$LAST_STARTED
for stack in two one two; do
    sleep 0.2
    configure "$stack"
    reload
    until_true 10 "stack $stack" grep -q "new connections go to stack $stack" "$TMP/daemon.log"
done
expect "both stacks are shown" "two one" "$(stacks_of web | cut -d' ' -f1,2)"
sleep 0.7
touch "$TMP/stop"
end_of clients "$CLIENTS"
counted=$LAST
expect "clients of a stack that is changed" "refused=0 reset=0 other=0" "$(cut -d' ' -f2-4 <<<"$counted")"
end_of changed "$CHANGED"
expect "a transfer over three changes" whole "$LAST"
until_true 10 "the former stack is left" test "$(stacks_of web)" = two
echo "result: over three changes: $counted"

# The congestion control of a connection that lives.
read_slowly control "${WEB[@]}"
CONTROL=$READER
algorithm() {
    nsenter --net="/run/netns/$WAN" ss -Htin dst "$WORLD:7000" | awk '/rto:/ { print $1 }' | sort -u | xargs
}
kernels=$(nsenter --net="/run/netns/$WAN" cat /proc/sys/net/ipv4/tcp_congestion_control)
expect "the kernel's congestion control" "$kernels" "$(algorithm)"
configure two 'congestion-control = "reno"'
reload
until_true 5 "another congestion control" eval '[ "$(algorithm)" = reno ]'
end_of control "$CONTROL"
expect "a transfer over a change of its congestion control" whole "$LAST"

# By hand, as another user.
configure own
reload
grep -q "waits: stack own is awaited: start it with" "$TMP/daemon.log" || fail "nothing says that a stack is awaited"
expect "until it is there the former serves" page "$("${OUT[@]}" curl --silent "http://$WAN_ADDRESS:8080/" || true)"
start own "$NETCHANNEL_PROGRAM" stack kernel --name own --socket "$TMP/stacks/own/stack.sock" --namespace "/run/netns/$WAN" --user 65534
until_true 10 "a stack started by hand" eval '[ "$(stacks_of web | cut -d" " -f1)" = own ]'
until_true 10 "the page by hand" answers
expect "its user" "65534" "$(awk '/^Uid:/ { print $2 }' "/proc/$LAST_STARTED/status")"
expect "its rights" "0000000000000000" "$(awk '/^CapEff:/ { print $2 }' "/proc/$LAST_STARTED/status")"
code=0
"$NETCHANNEL_PROGRAM" stack kernel --name other --socket "$TMP/stacks/own/stack.sock" 2>"$TMP/refused.log" || code=$?
expect "a stack of another name" "1" "$code"
grep -q "this is the socket of the kernel stack own" "$TMP/refused.log" || fail "refused: $(cat "$TMP/refused.log")"
expect "the stack that was there" page "$("${OUT[@]}" curl --silent "http://$WAN_ADDRESS:8080/")"

# Nothing is left.
stop "$DAEMON"
DAEMON=
gone() {
    [ -z "$(pgrep -f "^netchannel stack[- ].*$TMP/|^netchannel stack-launcher" || true)" ] && [ ! -e "$TMP/stacks" ]
}
until_true 10 "stacks and launcher end with the daemon" gone
CHECKED=$((CHECKED + 1))
echo "result: $CHECKED of $CHECKED held"
