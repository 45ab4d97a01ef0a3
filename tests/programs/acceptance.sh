#!/bin/bash
# The speed that NetChannel must reach on one host: real programs over kernel TCP and under `netchannel run`, in
# interleaved pairs on this machine, as a Markdown table of medians. Not part of `cargo xtask test`: it wants a machine
# that does nothing else, and takes some minutes.
#
#   acceptance.sh [ROW]...   iperf3 sockperf redis nginx connections alone idle memory (default: all)
#
# PAIRS     pairs per row (default 3)
# DURATION  seconds of each run (default 3)
# AGAINST   another build's `netchannel`: what is compared is that build and this one, not kernel TCP and this one, and the
#           table tells the interval in which the median of the ratio lies (95 of 100 times)
LIMIT=${LIMIT:-3600}
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
. "$HERE/helpers/pairs.sh"
RUN_OPTIONS=(--require)
PAIRS=${PAIRS:-3}
DURATION=${DURATION:-3}
[ -z "$AGAINST" ] || set -- "${@:-iperf3 sockperf redis nginx connections alone}"
ROWS=${*:-iperf3 sockperf redis nginx connections alone idle memory}

# ---- rows ----------------------------------------------------------------------------------------------------------

iperf3_rate() {
    "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["end"]["sum_received"]["bits_per_second"] / 1e9)'
}

measure_iperf3() {
    free_port PORT
    start server "${SERVER[@]}" iperf3 -s -p "$PORT"
    wait_port "$PORT"
    record iperf3 "$(limited 30 "${CLIENT[@]}" iperf3 -J -c 127.0.0.1 -p "$PORT" -t "$DURATION" | iperf3_rate)"
}

# One second: its numbers of messages are bounded, and more do not fit when a round trip takes under a microsecond.
measure_sockperf() {
    free_port PORT
    start server "${SERVER[@]}" sockperf server --tcp -i 127.0.0.1 -p "$PORT"
    wait_port "$PORT"
    limited 60 "${CLIENT[@]}" sockperf ping-pong --tcp -i 127.0.0.1 -p "$PORT" -m 64 -t 1 --mps 5000000 >"$TMP/sockperf.log" 2>&1 ||
        fail "$(tail -n 3 "$TMP/sockperf.log")"
    record sockperf-p50 "$(grep -oP 'percentile 50\.000 = *\K[0-9.]+' "$TMP/sockperf.log")"
    record sockperf-p999 "$(grep -oP 'percentile 99\.900 = *\K[0-9.]+' "$TMP/sockperf.log")"
    # It does not end when it is asked to while it waits.
    stop "$LAST_STARTED" KILL
}

measure_redis() {
    free_port PORT
    start server "${SERVER[@]}" redis-server --port "$PORT" --bind 127.0.0.1 --dir "$TMP" --save '' --appendonly no
    wait_port "$PORT"
    # 70,000 requests take about a second over kernel TCP.
    limited 120 "${CLIENT[@]}" redis-benchmark -h 127.0.0.1 -p "$PORT" -c 50 -d 4096 -t set,get -n $((DURATION * 70000)) --csv \
        >"$TMP/redis.log" 2>&1 || fail "$(tail -n 3 "$TMP/redis.log")"
    record redis-set "$(sed -n 's/^"SET","\([0-9.]*\)".*/\1/p' "$TMP/redis.log")"
    record redis-get "$(sed -n 's/^"GET","\([0-9.]*\)".*/\1/p' "$TMP/redis.log")"
}

start_nginx() {
    free_port PORT
    mkdir -p "$TMP/nginx"
    cat >"$TMP/nginx/nginx.conf" <<CONFIGURATION
$([ "$(id -u)" != 0 ] || echo "user root;")
worker_processes 2;
daemon off;
pid $TMP/nginx/nginx.pid;
error_log $TMP/nginx/error.log;
events { worker_connections 1024; }
http {
    access_log off;
    keepalive_requests 100000000;
    $(nginx_folders "$TMP/nginx")
    server { listen 127.0.0.1:$PORT; location / { return 200 "hello\n"; } }
}
CONFIGURATION
    start server "${SERVER[@]}" nginx -c "$TMP/nginx/nginx.conf" -e "$TMP/nginx/error.log"
    wait_port "$PORT"
}

wrk_rate() {
    limited 60 "${CLIENT[@]}" wrk -t 2 -c 50 -d "$DURATION" "$@" "http://127.0.0.1:$PORT/" >"$TMP/wrk.log" 2>&1 ||
        fail "$(tail -n 3 "$TMP/wrk.log")"
    grep -E 'Socket errors|Non-2xx' "$TMP/wrk.log" | sed "s/^/wrk, $MODE:/" >>"$TMP/notes" || true
    sed -n 's/^Requests\/sec: *//p' "$TMP/wrk.log"
}

measure_nginx() {
    start_nginx
    record nginx-keep-alive "$(wrk_rate)"
    record nginx-close "$(wrk_rate -H 'Connection: close')"
}

# It makes its own interleaved pairs.
measure_connections() {
    if [ -n "$AGAINST" ]; then
        pairs measure_one_connections
        return
    fi
    "$NETCHANNEL_PROGRAM" bench connections --unix=false --quiet --json --pairs "$PAIRS" --seconds "$DURATION" >"$TMP/bench.json"
    "$PYTHON" - "$TMP/bench.json" "$RESULTS" <<'PROGRAM'
import json, sys
with open(sys.argv[1]) as file:
    report = json.load(file)
for row in report["cases"][0]["rows"]:
    mode = {"tcp": "kernel", "netchannel": "both"}[row["transport"]]
    with open(f"{sys.argv[2]}/connections.{mode}", "w") as file:
        for run in row["runs"]:
            print(run["rate"], file=file)
PROGRAM
}

measure_one_connections() {
    local program=$NETCHANNEL_PROGRAM
    if [ "$MODE" = kernel ]; then program=$AGAINST; fi
    "$program" bench connections --unix=false --quiet --json --pairs 1 --seconds "$DURATION" >"$TMP/bench.json"
    record connections "$("$PYTHON" -c 'import json, sys
rows = json.load(open(sys.argv[1]))["cases"][0]["rows"]
print(next(run["rate"] for row in rows if row["transport"] == "netchannel" for run in row["runs"]))' "$TMP/bench.json")"
}

# Only the client has the library, the server is anybody's: nothing may be lost.
measure_alone() {
    SERVER=()
    free_port PORT
    start server iperf3 -s -p "$PORT"
    wait_port "$PORT"
    record alone-iperf3 "$(limited 30 "${CLIENT[@]}" iperf3 -J -c 127.0.0.1 -p "$PORT" -t "$DURATION" | iperf3_rate)"
    start redis redis-server --port "$((PORT + 1))" --bind 127.0.0.1 --dir "$TMP" --save '' --appendonly no
    wait_port "$((PORT + 1))" redis
    limited 120 "${CLIENT[@]}" redis-benchmark -h 127.0.0.1 -p "$((PORT + 1))" -c 50 -d 64 -t get -n $((DURATION * 50000)) --csv \
        >"$TMP/redis.log" 2>&1 || fail "$(tail -n 3 "$TMP/redis.log")"
    record alone-redis "$(sed -n 's/^"GET","\([0-9.]*\)".*/\1/p' "$TMP/redis.log")"
}

# cpu_ticks PID...: what the processes have used so far, in hundredths of a second on most machines.
cpu_ticks() {
    local pid fields total=0
    for pid; do
        read -r fields <"/proc/$pid/stat"
        set -- ${fields##*)}
        total=$((total + ${12} + ${13}))
    done
    echo "$total"
}

# Two programs with an open connection and nothing to say, and the daemon.
available() { sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo; }

# What idle connections between two programs take from the whole machine: of both programs, the daemon and the kernel.
measure_memory() {
    enter_quietly both
    free_port PORT
    start server "${SERVER[@]}" "$PYTHON" "$HERE/helpers/idle_connections.py" serve "$PORT"
    wait_port "$PORT"
    mkfifo "$TMP/hold"
    exec 9<>"$TMP/hold"
    local before after
    before=$(available)
    setsid "${CLIENT[@]}" "$PYTHON" "$HERE/helpers/idle_connections.py" hold "$PORT" "$HELD" <&9 >"$TMP/hold.log" 2>&1 &
    STARTED+=("$!")
    until_true 60 "$HELD connections" grep -q connected "$TMP/hold.log"
    sleep 1
    after=$(available)
    exec 9>&-
    MEMORY=$(awk -v all=$((before - after)) -v held="$HELD" 'BEGIN { printf "%.1f KB", all / held }')
    stop_scenario
}

measure_idle() {
    enter_quietly both
    free_port PORT
    start server "${SERVER[@]}" socat -u "TCP-LISTEN:$PORT,bind=127.0.0.1" OPEN:/dev/null
    local server=$LAST_STARTED client
    wait_port "$PORT"
    mkfifo "$TMP/never"
    exec 9<>"$TMP/never"
    setsid "${CLIENT[@]}" socat -u - "TCP:127.0.0.1:$PORT" <&9 >"$TMP/client.log" 2>&1 &
    client=$!
    STARTED+=("$client")
    sleep 2
    local before after
    before=$(cpu_ticks "$DAEMON" "$server" "$client")
    sleep 10
    after=$(cpu_ticks "$DAEMON" "$server" "$client")
    exec 9>&-
    IDLE="$((after - before)) ticks of 1/$(getconf CLK_TCK) s in 10 s"
    stop_scenario
}

start_daemons
IDLE=
MEMORY=
# Connections that are held; both ends of a connection are descriptors of this machine.
HELD=${HELD:-8000}
for name in $ROWS; do
    case $name in
        iperf3) need iperf3; pairs measure_iperf3 ;;
        sockperf) need sockperf; pairs measure_sockperf ;;
        redis) need redis-server redis-benchmark; pairs measure_redis ;;
        nginx) need nginx wrk; pairs measure_nginx ;;
        connections) measure_connections ;;
        alone) need iperf3 redis-server redis-benchmark; pairs measure_alone ;;
        idle) need socat; measure_idle ;;
        memory) need "$PYTHON"; measure_memory ;;
        *) fail "there is no row $name" ;;
    esac
done

table_head
row iperf3 "iperf3 -t $DURATION" "Gbps" more 3 4
row sockperf-p50 "sockperf pp -m 64, P50" "us" less 6 10
row sockperf-p999 "sockperf pp -m 64, P99.9" "us" less 1 5
row redis-set "redis-benchmark -c 50 -d 4096, SET" "1/s" more 2.5 4
row redis-get "redis-benchmark -c 50 -d 4096, GET" "1/s" more 2.5 4
row nginx-keep-alive "nginx, wrk -c 50, keep-alive" "1/s" more 1.5 2
row nginx-close "nginx, wrk -c 50, Connection: close" "1/s" more 3 5
row connections "netchannel bench connections" "1/s" more 4 10
row alone-iperf3 "iperf3, library on one side only" "Gbps" more 0.95 1.0
row alone-redis "redis-benchmark 64 B GET, library on one side only" "1/s" more 0.95 1.0
if [ -n "$IDLE" ]; then echo "| idle daemon and two idle programs | CPU | | $IDLE | | 0 | 0 | |"; fi
if [ -n "$MEMORY" ]; then echo "| an idle connection, of $HELD | memory of the whole machine | | $MEMORY | | 16 KB | | |"; fi
if [ -s "$TMP/notes" ]; then printf '\nErrors that clients met:\n\n' && cat "$TMP/notes"; fi
stop_daemons
