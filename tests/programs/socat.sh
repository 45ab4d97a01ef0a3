#!/bin/bash
# socat: a listener that forks per connection and gives the socket to a program over exec, half-close, relays.
. "$(dirname "$0")/common.sh"
need socat openssl

# through NAME ADDRESS FILE: sends the file, half-closes, and tells what came back.
through() {
    local code=0
    limited 30 "${CLIENT[@]}" socat -t 10 - "$2" <"$3" >"$TMP/answer" 2>"$TMP/client.log" || code=$?
    observe "$1: exit $code, $(stat -c %s "$TMP/answer") bytes, $(checksum "$TMP/answer")"
}


serve() {
    free_port PORT
    local address=$1
    start server "${SERVER[@]}" socat -t 10 "${address/PORT/$PORT}" "${@:2}"
    wait_port "$PORT"
}

scenario() {
    serve TCP-LISTEN:PORT,bind=127.0.0.1,fork,reuseaddr EXEC:cat
    through "echo by exec" "TCP:127.0.0.1:$PORT" "$TMP/data"
    through "echo of nothing" "TCP:127.0.0.1:$PORT" /dev/null
    local number clients=()
    for number in 1 2 3 4 5 6 7 8; do
        limited 30 "${CLIENT[@]}" socat -t 10 - "TCP:127.0.0.1:$PORT" <"$TMP/small" >"$TMP/answer.$number" &
        clients+=("$!")
    done
    for number in "${clients[@]}"; do wait "$number"; done
    observe "eight at once: $(checksum "$TMP"/answer.[1-8] | sort -u | xargs)"

    # The program on the socket itself, not on a pipe: descriptors 0 and 1 are the connection after an exec.
    serve TCP-LISTEN:PORT,bind=127.0.0.1,fork,reuseaddr EXEC:cat,nofork
    through "echo on the socket" "TCP:127.0.0.1:$PORT" "$TMP/data"
    serve TCP-LISTEN:PORT,bind=127.0.0.1,fork,reuseaddr 'SYSTEM:sha256sum'
    through "half-close" "TCP:127.0.0.1:$PORT" "$TMP/data"
    serve TCP-LISTEN:PORT,bind=127.0.0.1,fork,reuseaddr 'EXEC:sha256sum,nofork'
    through "half-close on the socket" "TCP:127.0.0.1:$PORT" "$TMP/data"
    serve TCP-LISTEN:PORT,bind=127.0.0.1,fork,reuseaddr "OPEN:$TMP/data,rdonly"
    through "download" "TCP:127.0.0.1:$PORT" /dev/null

    # A relay is client and server at once.
    serve TCP-LISTEN:PORT,bind=127.0.0.1,fork,reuseaddr EXEC:cat
    local behind=$PORT
    serve TCP-LISTEN:PORT,bind=127.0.0.1,fork,reuseaddr "TCP:127.0.0.1:$behind"
    through "relay" "TCP:127.0.0.1:$PORT" "$TMP/data"

    if has_ipv6; then
        serve TCP6-LISTEN:PORT,bind=[::1],fork,reuseaddr EXEC:cat
        through "IPv6" "TCP6:[::1]:$PORT" "$TMP/data"
        serve TCP6-LISTEN:PORT,ipv6only=0,fork,reuseaddr EXEC:cat
        through "IPv4 to a socket of both" "TCP4:127.0.0.1:$PORT" "$TMP/small"
    fi

    free_port PORT
    local code=0
    limited 5 "${CLIENT[@]}" socat - "TCP:127.0.0.1:$PORT" </dev/null >"$TMP/refused.log" 2>&1 || code=$?
    observe "nobody: exit $code, $(grep -oE 'Connection refused' "$TMP/refused.log" | head -n 1)"
}

make_data "$TMP/data" 3000001 socat
make_data "$TMP/small" 70001 small
compare_modes scenario
