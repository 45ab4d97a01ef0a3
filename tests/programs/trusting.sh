#!/bin/bash
# Two tenants that trust each other: their programs share memory, and nobody is on the way. What goes directly and what does not, what each
# sees of the other, and tables that change meanwhile.
LIMIT=${LIMIT:-120}
. "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || skip "namespaces are made by root only"
[ "$NETCHANNEL_PROGRAM" != none ] || skip "there is nothing to compare with"
need ip nsenter iperf3 setpriv "$PYTHON"
. "$HERE/helpers/tenant.sh"
. "$HERE/helpers/meeting.sh"

# A server that says whom it sees, and then what it gets, with as many children as are asked for.
cat >"$TMP/echo.py" <<'END'
import os, socket, sys, threading
listening = socket.create_server((sys.argv[1], int(sys.argv[2])))
for _ in range(int(sys.argv[3])):
    if os.fork() == 0:
        break
def serve(peer, address):
    peer.sendall(b'%s %s\n' % (address[0].encode(), peer.getsockname()[0].encode()))
    while got := peer.recv(65536):
        peer.sendall(got)
while True:
    threading.Thread(target=serve, args=listening.accept()).start()
END

# A client that says whom it was seen as, keeps its connection while it is told to ("more"), and says what came back.
cat >"$TMP/ask.py" <<'END'
import socket, sys
client = socket.socket()
client.settimeout(10)
if len(sys.argv) > 3:
    client.bind((sys.argv[3], 0))
client.connect((sys.argv[1], int(sys.argv[2])))
seen = client.makefile().readline().split()
own = client.getsockname()[0]
print(*seen, own, flush=True)
for line in sys.stdin:
    client.sendall(line.encode())
    print(client.recv(100).decode().strip(), flush=True)
END

# A client that, while its server sleeps, writes over the address by which it is announced in the memory that both share.
cat >"$TMP/lie.py" <<'END'
import os, re, signal, socket, struct, sys
server, port, process, claimed, claimed_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
def words(address, port):
    return struct.pack('<QQ', socket.AF_INET | port << 16, int.from_bytes(socket.inet_aton(address) + bytes(4), 'big'))
first = socket.create_connection((server, port))
first.recv(100)
os.killpg(process, signal.SIGSTOP)
client = socket.create_connection((server, port))
own, written = words(*client.getsockname()), 0
with open('/proc/self/maps') as maps, open('/proc/self/mem', 'r+b', buffering=0) as memory:
    for line in maps:
        if found := re.match(r'([0-9a-f]+)-([0-9a-f]+) rw-s .*netchannel-link', line):
            start, end = (int(one, 16) for one in found.groups())
            memory.seek(start)
            head = memory.read(min(end - start, 4 << 20))
            for place in re.finditer(re.escape(own), head):
                memory.seek(start + place.start())
                written += memory.write(words(claimed, claimed_port))
assert written == len(own), written
os.killpg(process, signal.SIGCONT)
client.settimeout(10)
try:
    print(client.recv(100).decode().split()[0])
except ConnectionResetError:
    print('reset')
END

# way NAME: by which stack the connections of its programs go, or by which path.
way() {
    "$NETCHANNEL_PROGRAM" ss --socket "$SOCKET" --tenant "$1" --json | "$PYTHON" -c "
import json, sys
found = [one['stack'] or one['path'] for one in json.load(sys.stdin) if one['path'] not in ('listener', 'fresh')]
print(*sorted(set(found)) or ['none'])"
}

# keep TENANT ADDRESS PORT: a connection that lasts, over a pipe. What is started meanwhile would have the pipe, too.
keep() {
    rm -f "$TMP/lines"
    mkfifo "$TMP/lines"
    start_in kept "$1" sh -c "exec '$PYTHON' '$TMP/ask.py' $2 $3 <'$TMP/lines'"
    KEPT=$LAST_STARTED
    exec {LINES_TO}>"$TMP/lines"
    until_true 10 "a connection that lasts" test -s "$TMP/kept.log"
}

answers_again() {
    : >"$TMP/kept.log"
    echo "$1" >&"$LINES_TO"
    until_true 10 "the connection answers" grep -qx "$1" "$TMP/kept.log"
}

let_go() {
    exec {LINES_TO}>&-
    wait_end "$KEPT" 10 || fail "the client: $(cat "$TMP/kept.log")"
}

# goes TENANT ADDRESS PORT WAY: a connection takes this way as soon as the daemon's threads have told each other.
goes_now() {
    keep "$1" "$2" "$3"
    FOUND=$(way "$1")
    let_go
    [ "$FOUND" = "$4" ]
}

goes() {
    local i
    for ((i = 0; i < 50; i++)); do
        if goes_now "$@"; then
            CHECKED=$((CHECKED + 1))
            return
        fi
        sleep 0.1
    done
    fail "from $1 to $2:$3 by $FOUND instead of $4"
}

seen_as() {
    in_tenant "$1" "$PYTHON" "$TMP/ask.py" "${@:2}" </dev/null
}

make_namespaces || skip "no network namespace can be made"
tables '"db"' '"web"' 'trusts = ["web"]' 'trusts = ["db"]'
start_daemon
start_in echo db "$PYTHON" "$TMP/echo.py" 0.0.0.0 80 0
ECHO=$LAST_STARTED
until_true 10 "the server of the other tenant" eval '[ "$(errno web "$DB" 80)" = connected ]'
start_in children db "$PYTHON" "$TMP/echo.py" 0.0.0.0 82 2
until_true 10 "a server with children" eval '[ "$(errno web "$DB" 82)" = connected ]'
start_in inner db "$PYTHON" "$TMP/echo.py" 127.0.0.1 83 0
until_true 10 "a server at loopback" eval '[ "$(errno db 127.0.0.1 83)" = connected ]'

# Directly, with the addresses of both.
goes web "$DB" 80 virtual
expect "who is seen" "$OWN $DB $OWN" "$(seen_as web "$DB" 80)"
keep web "$DB" 80
answers_again one
expect "the server's side" virtual "$(way db)"
expect "what a stranger sees" none "$(way stranger)"
expect "a stranger" EACCES "$(errno stranger "$DB" 80)"
expect "a port at which nobody listens" ECONNREFUSED "$(errno web "$DB" 81)"
let_go

# A program of the other tenant is believed its port, and no address but its tenant's.
lie() {
    in_tenant web "$PYTHON" "$TMP/lie.py" "$DB" 80 "$ECHO" "$@"
}
expect "another port" "$OWN" "$(lie "$OWN" 4321)"
for address in "$DB" 127.0.0.1 10.88.0.4; do
    expect "the address $address" reset "$(lie "$address" 4321)"
done

# By the stack: from an address that is not the tenant's, to several processes, and as another user. What listens at loopback is not shown.
expect "from loopback" "$OWN $DB $OWN" "$(seen_as web "$DB" 80 127.0.0.1 | sed 's/ 127.0.0.1$/ '"$OWN"'/')"
expect "a server at loopback, from outside" ECONNREFUSED "$(errno web "$DB" 83)"

# The permission goes: what is connected goes on, and the next connection takes the stack.
keep web "$DB" 80
tables '"db"' '"web"'
reload
answers_again two
let_go
goes web "$DB" 80 local
expect "who is seen by the stack" "$OWN $DB $OWN" "$(seen_as web "$DB" 80)"
goes web "$DB" 82 local
# What has come and was not accepted before that is reset: a program keeps its link, whatever its directory says.
tables '"db"' '"web"' 'trusts = ["web"]' 'trusts = ["db"]'
reload
goes web "$DB" 80 virtual
kill -STOP -- "-$ECHO"
start_in late web "$PYTHON" "$TMP/ask.py" "$DB" 80
until_true 10 "a connection that is not accepted" eval '[ "$(way web)" = virtual ]'
tables '"db"' '"web"'
reload
# An answer of the tenant's thread, which has read its table by then.
way db >/dev/null
kill -CONT -- "-$ECHO"
code=0
wait_end "$LAST_STARTED" 10 || code=$?
[ "$code" != 0 ] && grep -q ConnectionResetError "$TMP/late.log" || fail "a link outlived the permission: $(cat "$TMP/late.log")"
CHECKED=$((CHECKED + 1))
# It comes again, with a mistake at first.
tables '"db"' '"web"' 'trusts = ["web"]
rate-in = "1Gbit/s"' 'trusts = ["db"]'
code=0
"$NETCHANNEL_PROGRAM" config check "$TMP/netchannel.toml" >"$TMP/check.log" 2>&1 || code=$?
[ "$code" != 0 ] && grep -q 'rate-in would not hold: remove one of the two' "$TMP/check.log" || fail "config check: $(cat "$TMP/check.log")"
tables '"db"' '"web"' 'trusts = ["web"]' 'trusts = ["db"]'
reload
goes web "$DB" 80 virtual
goes web "$DB" 82 local

# Streams both ways at once.
start_in iperf3 db iperf3 --server --port 5201
until_true 10 "iperf3 of the other tenant" eval '[ "$(errno web "$DB" 5201)" = connected ]'
in_tenant web iperf3 --client "$DB" --port 5201 --time 1 --parallel 8 --json >"$TMP/iperf3.json" || fail "iperf3: $(tail -n 3 "$TMP/iperf3.json")"

# A server that is killed, and a tenant that is served no more.
keep web "$DB" 80
answers_again three
stop "$ECHO" KILL
exec {LINES_TO}>&-
wait_end "$KEPT" 10 || true
expect "a server that ends" ECONNREFUSED "$(errno web "$DB" 80)"
start_in echo db "$PYTHON" "$TMP/echo.py" 0.0.0.0 80 0
until_true 10 "another server in its place" eval '[ "$(errno web "$DB" 80)" = connected ]'
goes web "$DB" 80 virtual
printf '[host]\nname = "host"\n[[tenants]]\nname = "web"\naddresses = ["%s"]\n' "$OWN" >"$TMP/netchannel.toml"
reload
expect "a tenant that is no more" EACCES "$(errno web "$DB" 80)"
stop_all
DAEMON=
echo "result: $CHECKED of $CHECKED held"
