#!/bin/bash
# A tenant's connections over channels to another host: two hosts (network namespaces joined by veth), a daemon on each. curl, ab and iperf3 of
# the tenant, nginx and iperf3 under NetChannel on the other host, which sees the tenant's true address; then who may not, caps, a host that does
# not permit the address, one that is down, tables that change, a published port of a tenant, and a stack process.
LIMIT=${LIMIT:-120}
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
[ "$(id -u)" = 0 ] || skip "namespaces are made by root only"
[ "$NETCHANNEL_PROGRAM" != none ] || skip "there is nothing to compare with"
need ip nsenter curl nginx ab iperf3 openssl "$PYTHON"
ID=ncc$$
. "$HERE/helpers/peers.sh"

# alpha LINES...: the table of the tenant `web`, with more lines.
alpha() {
    {
        peers_of alpha
        [ -z "$STACK" ] || printf '[[stacks]]\nname = "%s"\n' "$STACK"
        printf '[[tenants]]\nname = "web"\naddresses = "%s"\n' "$OWN"
        [ -z "$STACK" ] || printf 'stack = "%s"\n' "$STACK"
        printf '%s\n' "$@"
    } >"$TMP/a/netchannel.toml"
}

# beta PREFIXES: what the other host believes of alpha. It has a tenant, too, with a published port.
beta() {
    {
        peers_of beta "prefixes = [$1]"
        printf '[[tenants]]\nname = "shop"\naddresses = "10.99.0.2"\npublish = "%s:8080:80"\n' "$B"
    } >"$TMP/b/netchannel.toml"
}

# counter NAME: of the tenant's connections over channels.
counter() {
    "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET_A" --json | "$PYTHON" -c "
import json, sys
print(json.load(sys.stdin)[0]['channels'][sys.argv[1]])" "$1"
}

# errno ADDRESS PORT: the error of a connect of the tenant's.
errno() {
    web "$PYTHON" -c "
import errno, socket, sys
s = socket.socket()
s.settimeout(5)
print(errno.errorcode.get(s.connect_ex((sys.argv[1], int(sys.argv[2]))), 'connected'))" "$1" "$2"
}

who() {
    web curl --silent --max-time 5 "http://$B/who"
}

# over WHAT COMMAND...: it makes so many connections over channels, and that many go by the kernel instead.
over() {
    local what=$1 dialed fell_back
    shift
    dialed=$(counter dialed) fell_back=$(counter fell_back)
    "$@"
    OVER="$(($(counter dialed) - dialed)) over channels, $(($(counter fell_back) - fell_back)) by the kernel"
}

on_beta() {
    "${ON_B[@]}" "$NETCHANNEL_PROGRAM" run --no-daemon --socket "$SOCKET_B" -- "$@"
}

serve_pages() {
    local folder=$TMP/nginx
    rm -rf "$folder"
    mkdir -p "$folder/www"
    cp "$TMP/large" "$folder/www/"
    nginx_page "$folder" 1
    start nginx "${ON_B[@]}" "$NETCHANNEL_PROGRAM" run --no-daemon --socket "$SOCKET_B" -- nginx -c "$folder/nginx.conf" -e "$folder/error.log"
    until_true 10 "what the other host announces" knows 1
}

# The tenant reaches beta, and its connections there go over channels.
TABLE=("reach = [\"$B/32\", \"10.8.0.0/16\"]" 'destinations = { beta = "channels", "10.8.0.0/16" = "none" }')

programs() {
    over who eval 'SEEN=$(who)'
    expect "who, as the other host sees it" "$OWN $B:80" "$SEEN"
    expect "who" "1 over channels, 0 by the kernel" "$OVER"
    web curl --silent -o "$TMP/got" "http://$B/large" || fail "curl"
    expect "large" "$(checksum "$TMP/large")" "$(checksum "$TMP/got")"
    over ab eval 'web ab -q -n 500 -c 16 "http://$B/who" >"$TMP/ab.log" || fail "ab: $(cat "$TMP/ab.log")"'
    expect "ab" "Complete requests: 500 Failed requests: 0" "$(grep -E '^(Complete|Failed) requests' "$TMP/ab.log" | xargs)"
    # It makes a few more than it uses.
    [[ $OVER == 5[0-2][0-9]\ over\ channels,\ 0\ by* ]] || fail "ab: $OVER"
}

for STACK in "" egress; do
    if [ -z "$STACK" ]; then
        make_hosts || skip "no network namespace can be made"
        make_data "$TMP/large" 20000003 large
    fi
    alpha "${TABLE[@]}"
    beta "\"$A/32\", \"$OWN/32\""
    start_beta
    start_alpha
    serve_pages
    programs
    if [ -n "$STACK" ]; then
        stop_all
        continue
    fi
    # What the operator sees of a connection that is there.
    start iperf-server "${ON_B[@]}" "$NETCHANNEL_PROGRAM" run --no-daemon --socket "$SOCKET_B" -- iperf3 --server --port 5201
    until_true 10 "iperf3 of the other host" knows 2
    start iperf "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET_A" run web -- nsenter --net="/run/netns/$EMPTY" iperf3 --client "$B" --port 5201 --time 2 --parallel 4
    shows() {
        "$NETCHANNEL_PROGRAM" ss --socket "$SOCKET_A" --tenant web >"$TMP/ss" && grep -qE "^ESTAB +channel .*$B:5201 .* beta +- +channels" "$TMP/ss"
    }
    until_true 5 "the connection in ss" shows
    "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET_A" >"$TMP/tenants"
    grep -q 'kernel +channels: 5' "$TMP/tenants" || fail "tenants: $(cat "$TMP/tenants")"
    wait_end "$LAST_STARTED" 15 || fail "iperf3: $(tail -n 3 "$TMP/iperf.log")"
    CHECKED=$((CHECKED + 3))
    # What is not named; nothing of it comes to the other host.
    over denied eval 'expect "beyond reach" EACCES "$(errno "$A" 80)"; expect "no stack" ENETUNREACH "$(errno 10.8.0.1 80)"'
    expect "denied" "0 over channels, 0 by the kernel" "$OVER"
    # Who is no program of NetChannel there is reached by the kernel, and sees the host.
    start plain "${ON_B[@]}" "$PYTHON" -m http.server --bind "$B" --directory "$TMP/nginx/www" 8000
    until_true 10 "a server without NetChannel" "${ON_B[@]}" curl --silent --output /dev/null "http://$B:8000/"
    over plain eval 'web curl --silent -o "$TMP/got" "http://$B:8000/large" || fail "curl by the kernel"'
    expect "by the kernel" "$(checksum "$TMP/large")" "$(checksum "$TMP/got")"
    expect "a server without NetChannel" "0 over channels, 1 by the kernel" "$OVER"
    grep -q "$A - - .*GET /large" "$TMP/plain.log" || fail "the other server saw $(tail -n 1 "$TMP/plain.log")"
    over refused eval 'expect "nobody" ECONNREFUSED "$(errno "$B" 81)"'
    expect "nobody there" "0 over channels, 1 by the kernel" "$OVER"
    # A published port of a tenant there.
    start shop "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET_B" run shop -- nsenter --net="/run/netns/$EMPTY" "$PYTHON" -m http.server --directory "$TMP/nginx/www" 80
    until_true 10 "the published port" eval 'web curl --silent -o "$TMP/got" "http://$B:8080/large"'
    expect "a published port" "$(checksum "$TMP/large")" "$(checksum "$TMP/got")"
    # Caps, either way: 4 MB at 4 MB/s, less the burst.
    for way in in out; do
        alpha "${TABLE[@]}" "rate-$way = \"4MB/s burst=64KiB\""
        reload "$SOCKET_A"
        before=$(date +%s%N)
        case $way in
            in) web curl --silent "http://$B/large" | head -c 4000000 >"$TMP/got" || true ;;
            out) head -c 4000000 "$TMP/large" | web curl --silent -o /dev/null --data-binary @- "http://$B/who" || true ;;
        esac
        took=$((($(date +%s%N) - before) / 1000000))
        [ "$took" -ge 800 ] || fail "a cap of 4 MB/s $way let 4 MB through in $took ms"
        CHECKED=$((CHECKED + 1))
    done
    # A host that does not permit the tenant's address: kernel TCP, which shows the host's.
    alpha "${TABLE[@]}"
    reload "$SOCKET_A"
    beta "\"$A/32\""
    reload "$SOCKET_B"
    over unpermitted eval 'SEEN=$(who)'
    expect "not permitted" "$A $B:80, 0 over channels, 1 by the kernel" "$SEEN, $OVER"
    grep -q "the host of $B does not permit the address $OWN of a tenant" "$TMP/daemon-a.log" || fail "the log says nothing of it"
    beta "\"$A/32\", \"$OWN/32\""
    reload "$SOCKET_B"
    over permitted eval 'SEEN=$(who)'
    expect "permitted again" "$OWN $B:80, 1 over channels, 0 by the kernel" "$SEEN, $OVER"
    # A table that changes under a connection.
    start slow "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET_A" run web -- nsenter --net="/run/netns/$EMPTY" curl --silent --limit-rate 8M -o "$TMP/slow" "http://$B/large"
    SLOW=$LAST_STARTED
    until_true 5 "a slow connection" eval '[ "$(counter connections)" = 1 ]'
    alpha "reach = \"$B/32\""
    reload "$SOCKET_A"
    over changed eval 'SEEN=$(who)'
    expect "another table" "$A $B:80, 0 over channels, 0 by the kernel" "$SEEN, $OVER"
    wait_end "$SLOW" 15 || fail "the connection that was there"
    expect "the connection that was there" "$(checksum "$TMP/large")" "$(checksum "$TMP/slow")"
    alpha "${TABLE[@]}"
    reload "$SOCKET_A"
    # The other host's daemon goes, and comes back.
    stop "$DAEMON_B"
    over down eval 'SEEN=$(who)'
    expect "a peer that is down" "$A $B:80, 0 over channels, 1 by the kernel" "$SEEN, $OVER"
    start_beta
    until_true 20 "the peer is back" eval '[ "$(who)" = "$OWN $B:80" ]'
    # Mistakes.
    alpha "reach = \"$B/32\"" 'destinations = { gamma = "channels" }'
    code=0
    "$NETCHANNEL_PROGRAM" config check "$TMP/a/netchannel.toml" >"$TMP/check.log" 2>&1 || code=$?
    grep -q '"gamma" is no destination: write a prefix like 10.1.0.0/16, the name of a peer' "$TMP/check.log" || fail "config check: $(cat "$TMP/check.log")"
    CHECKED=$((CHECKED + 2))
    stop_all
done
echo "result: $CHECKED of $CHECKED held"
