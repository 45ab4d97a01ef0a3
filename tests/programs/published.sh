#!/bin/bash
# Published ports of a tenant, reached by a peer over channels: two hosts (network namespaces joined by veth), a daemon on each. curl and ab of
# the other host's programs and of its tenant, nginx in the tenant, which sees true addresses; then who may not, caps both ways, as many
# connections as the tenant may have, tables that change, a program of the host at the same port, and a stack process that is killed.
LIMIT=${LIMIT:-120}
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
[ "$(id -u)" = 0 ] || skip "namespaces are made by root only"
[ "$NETCHANNEL_PROGRAM" != none ] || skip "there is nothing to compare with"
need ip nsenter pgrep curl nginx ab openssl socat "$PYTHON"
ID=ncp$$
. "$HERE/helpers/peers.sh"
SHOP=10.99.0.2

# The tenant of alpha goes over channels to beta.
alpha() {
    {
        peers_of alpha
        printf '%s\n' '[[tenants]]' 'name = "web"' "addresses = \"$OWN\"" "reach = \"$B/32\"" 'destinations = { beta = "channels" }'
    } >"$TMP/a/netchannel.toml"
}

# beta LINES...: more of the table of its tenant `shop`. PREFIXES are those that it believes of alpha.
beta() {
    {
        peers_of beta "prefixes = [$PREFIXES]"
        [ -z "$STACK" ] || printf '[[stacks]]\nname = "%s"\n' "$STACK"
        printf '%s\n' '[[tenants]]' 'name = "shop"' "addresses = \"$SHOP\""
        [ -z "$STACK" ] || printf 'stack = "%s"\n' "$STACK"
        printf '%s\n' "$@"
    } >"$TMP/b/netchannel.toml"
}

shop() {
    "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET_B" run shop -- nsenter --net="/run/netns/$EMPTY" "$@"
}

# A program of alpha.
on_alpha() {
    "${ON_A[@]}" "$NETCHANNEL_PROGRAM" run --no-daemon --socket "$SOCKET_A" -- "$@"
}

# count NAME: of beta's tenant.
count() {
    "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET_B" --json | "$PYTHON" -c "
import json, sys
tenant = json.load(sys.stdin)[0]
print(tenant['channels'][sys.argv[1]] if sys.argv[1] != 'all' else tenant['accepted'])" "$1"
}

# entered COMMAND...: it makes so many connections to the tenant over channels, and so many of the kernel's. The word is ENTERED.
entered() {
    local over all
    over=$(count accepted) all=$(count all)
    "$@"
    over=$(($(count accepted) - over)) all=$(($(count all) - all))
    ENTERED="$over over channels, $((all - over)) by the kernel"
}

# who FROM...: what the server sees of a client there.
who() {
    SEEN=$("$@" curl --silent --max-time 5 "http://$B:$PORT/who" || echo "exit $?")
}

serve_page() {
    local folder=$TMP/nginx
    rm -rf "$folder"
    mkdir -p "$folder/www" "$folder/upload"
    chmod a+rwx "$folder/upload"
    cp "$TMP/large" "$folder/www/"
    nginx_page "$folder" 1 "location /upload/ { dav_methods PUT; root $folder; }"
    start nginx "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET_B" run shop -- nsenter --net="/run/netns/$EMPTY" \
        nginx -c "$folder/nginx.conf" -e "$folder/error.log"
    NGINX=$LAST_STARTED
    until_true 10 "what the other host announces" knows 1
}

# Connections that a client holds, and what becomes of one more, each with a line of a server that says one.
cat >"$TMP/hold.py" <<'PYTHON'
import socket, sys
address = (sys.argv[1], int(sys.argv[2]))
def connect():
    one = socket.create_connection(address, timeout=10)
    one.sendall(b"GET /who HTTP/1.1\r\nHost: x\r\n\r\n")
    return one
held = [connect() for _ in range(4)]
answers = sum(one.recv(4096).startswith(b"HTTP/1.1 200") for one in held)
more = connect()
more.settimeout(0.5)
try:
    early = bool(more.recv(1))
except TimeoutError:
    early = False
held.pop().close()
more.settimeout(10)
print(answers, "answered,", "one more at once," if early else "one more not yet,", more.recv(4096)[:12].decode())
PYTHON

programs() {
    entered who on_alpha
    expect "a program of the other host" "$A $SHOP:80, 1 over channels, 0 by the kernel" "$SEEN, $ENTERED"
    entered who web
    expect "its tenant" "$OWN $SHOP:80, 1 over channels, 0 by the kernel" "$SEEN, $ENTERED"
    entered who "${ON_A[@]}"
    expect "a program without NetChannel" "$A $SHOP:80, 0 over channels, 1 by the kernel" "$SEEN, $ENTERED"
    on_alpha curl --silent -o "$TMP/got" "http://$B:8080/large" || fail "curl"
    expect "large" "$(checksum "$TMP/large")" "$(checksum "$TMP/got")"
    on_alpha curl --silent -T "$TMP/large" "http://$B:8080/upload/got" || fail "upload"
    expect "upload" "$(checksum "$TMP/large")" "$(checksum "$TMP/nginx/upload/got")"
    entered eval 'on_alpha ab -q -n 500 -c 16 "http://$B:8080/who" >"$TMP/ab.log" || fail "ab: $(cat "$TMP/ab.log")"'
    expect "ab" "Complete requests: 500 Failed requests: 0" "$(grep -E '^(Complete|Failed) requests' "$TMP/ab.log" | xargs)"
    # It makes a few more than it uses.
    [[ $ENTERED == 5[0-2][0-9]\ over\ channels,\ 0\ by* ]] || fail "ab: $ENTERED"
}

# caps: 4 MB at 4 MB/s, less the burst, either way.
caps() {
    local way before took
    head -c 4000000 "$TMP/large" >"$TMP/part"
    for way in in out; do
        beta "$PUBLISH" "rate-$way = \"4MB/s burst=64KiB\""
        reload "$SOCKET_B"
        before=$(date +%s%N)
        case $way in
            in) on_alpha curl --silent -o /dev/null -T "$TMP/part" "http://$B:8080/upload/part" ;;
            out) on_alpha curl --silent "http://$B:8080/large" | head -c 4000000 >"$TMP/got" || true ;;
        esac
        took=$((($(date +%s%N) - before) / 1000000))
        [ "$took" -ge 800 ] || fail "a cap of 4 MB/s $way let 4 MB through in $took ms"
        CHECKED=$((CHECKED + 1))
    done
}

# Who may not, ports that come and go, and what another program of the host has.
tables() {
    beta "$PUBLISH" 'connections = 4'
    reload "$SOCKET_B"
    expect "as many as it may have" "4 answered, one more not yet, HTTP/1.1 200" "$(on_alpha "$PYTHON" "$TMP/hold.py" "$B" 8080)"
    PREFIXES="\"$A/32\""
    beta "$PUBLISH"
    reload "$SOCKET_B"
    entered who web
    expect "an address that is not permitted" "$A $SHOP:80, 0 over channels, 1 by the kernel" "$SEEN, $ENTERED"
    PREFIXES="\"$A/32\", \"$OWN/32\""
    # A transfer goes on where its port is published no more.
    start slow "${ON_A[@]}" "$NETCHANNEL_PROGRAM" run --no-daemon --socket "$SOCKET_A" -- curl --silent --limit-rate 8M -o "$TMP/slow" "http://$B:8080/large"
    SLOW=$LAST_STARTED
    until_true 5 "a slow connection" eval '[ "$(count connections)" = 1 ]'
    shows() {
        "$NETCHANNEL_PROGRAM" ss --socket "$SOCKET_B" --tenant shop >"$TMP/ss" && grep -qE "^ESTAB +.*$A:.* alpha .*channels" "$TMP/ss"
    }
    until_true 5 "the connection in ss: $(cat "$TMP/ss" 2>/dev/null)" shows
    beta "publish = \"$B:8081:80\""
    reload "$SOCKET_B"
    who on_alpha
    expect "a port that is published no more" "exit 7" "$SEEN"
    PORT=8081
    until_true 5 "a port that is published now" eval 'entered who on_alpha; [ "$ENTERED" = "1 over channels, 0 by the kernel" ]'
    expect "a port that is published now" "$A $SHOP:80" "$SEEN"
    wait_end "$SLOW" 15 || fail "the connection that was there"
    expect "the connection that was there" "$(checksum "$TMP/large")" "$(checksum "$TMP/slow")"
    PORT=8080
    beta "$PUBLISH"
    reload "$SOCKET_B"
    # While the tenant does not listen, nobody does, or a program of the host.
    stop "$NGINX"
    until_true 5 "no listener" eval 'who on_alpha; [ "$SEEN" = "exit 7" ]'
    start own "${ON_B[@]}" "$NETCHANNEL_PROGRAM" run --no-daemon --socket "$SOCKET_B" -- socat "TCP-LISTEN:8080,bind=$B,reuseaddr,fork" SYSTEM:'echo own'
    local own=$LAST_STARTED
    hears() {
        [ "$(on_alpha socat -T 2 - "TCP:$B:8080" 2>/dev/null)" = own ]
    }
    until_true 5 "a program of the host at that port" hears
    serve_page
    until_true 5 "the log" grep -q "no client can come in at $B:8080" "$TMP/daemon-b.log"
    hears || fail "a program of the host lost its port to a tenant"
    CHECKED=$((CHECKED + 3))
    stop "$own"
    stop "$NGINX"
    serve_page
    until_true 5 "the tenant again" eval 'who on_alpha; [ "$SEEN" = "$A $SHOP:80" ]'
}

# A stack process that is killed resets what goes through it, and is served again, over channels, too.
killed() {
    local stack
    start slow "${ON_A[@]}" "$NETCHANNEL_PROGRAM" run --no-daemon --socket "$SOCKET_A" -- curl --silent --limit-rate 2M -o "$TMP/slow" "http://$B:8080/large"
    SLOW=$LAST_STARTED
    until_true 5 "a slow connection" eval '[ "$(count connections)" = 1 ]'
    stack=$(pgrep -f "^netchannel stack kernel --name $STACK --socket $TMP/" || true)
    [ -n "$stack" ] || fail "no stack process"
    kill -KILL $stack
    local code=0
    wait_end "$SLOW" 10 || code=$?
    expect "a transfer whose stack is killed" "exit 56" "exit $code"
    until_true 10 "the stack again" eval 'entered who on_alpha; [ "$ENTERED" = "1 over channels, 0 by the kernel" ]'
    expect "the stack again" "$A $SHOP:80" "$SEEN"
}

PUBLISH="publish = \"$B:8080:80\""
PORT=8080
for STACK in "" egress; do
    PREFIXES="\"$A/32\", \"$OWN/32\""
    if [ -z "$STACK" ]; then
        make_hosts || skip "no network namespace can be made"
        make_data "$TMP/large" 20000003 large
    fi
    alpha
    beta "$PUBLISH"
    start_beta
    start_alpha
    until_true 10 "the tenant's socket" test -S "$TMP/b/tenants/shop/nc.sock"
    serve_page
    programs
    if [ -z "$STACK" ]; then
        caps
        tables
    else
        killed
    fi
    stop_all
done
echo "result: $CHECKED of $CHECKED held"
