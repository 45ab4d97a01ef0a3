#!/bin/bash
# sockperf: ping-pong, under load, many sockets with every way of waiting; no message lost, doubled or out of order.
. "$(dirname "$0")/common.sh"
need sockperf

# try NAME MODE OPTIONS...
try() {
    local name=$1 code=0
    shift
    limited 20 "${CLIENT[@]}" sockperf "$@" >"$TMP/client.log" 2>&1 || code=$?
    [ "$code" = 0 ] || tail -n 5 "$TMP/client.log"
    observe "$name: exit $code, $(grep -oE '# dropped messages = .*' "$TMP/client.log" || echo 'no summary of messages')"
    observe "$name: $(grep -cE 'Summary: (Latency|Round-trip|BandWidth)' "$TMP/client.log" || true) summaries"
}

scenario() {
    local wait feed=$TMP/feed
    free_port PORT
    start server "${SERVER[@]}" sockperf server --tcp -i 127.0.0.1 -p "$PORT"
    wait_port "$PORT"
    # Its table of messages holds 600,000 a second unless it is told that more may come.
    try "ping-pong 64" ping-pong --tcp -i 127.0.0.1 -p "$PORT" -m 64 -t 1 --mps 5000000
    try "ping-pong 4096" ping-pong --tcp -i 127.0.0.1 -p "$PORT" -m 4096 -t 1 --mps 5000000
    try "ping-pong, non-blocking" ping-pong --tcp -i 127.0.0.1 -p "$PORT" -m 14 -t 1 --mps 5000000 --nonblocked
    try "under load" under-load --tcp -i 127.0.0.1 -p "$PORT" -m 200 --mps 20000 --reply-every 10 -t 1
    try "throughput" throughput --tcp -i 127.0.0.1 -p "$PORT" -m 1400 -t 1
    stop "$LAST_STARTED" KILL

    for wait in select poll epoll; do
        : >"$feed"
        local ports=() port
        for _ in 1 2 3 4 5; do
            free_port port
            ports+=("$port")
            echo "T:127.0.0.1:$port" >>"$feed"
        done
        start "server-$wait" "${SERVER[@]}" sockperf server -f "$feed" -F "$wait"
        for port in "${ports[@]}"; do wait_port "$port" "server-$wait"; done
        try "five sockets, $wait" ping-pong -f "$feed" -F "$wait" -m 64 -t 1 --mps 5000000
        stop "$LAST_STARTED" KILL
    done
}

compare_modes scenario
