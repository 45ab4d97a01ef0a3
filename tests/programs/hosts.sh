#!/bin/bash
# Real programs on two hosts (network namespaces joined by veth, a daemon on each): iperf3, curl, redis, nginx, socat, Python. Servers
# are on host b, clients on host a. What they observe is compared with kernel TCP between the same hosts.
LIMIT=${LIMIT:-220}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
NETCHANNEL_PROGRAM=${NETCHANNEL_PROGRAM:-$HERE/../../target/release/netchannel}
if [ -z "${HOST_A:-}" ]; then
    if [ "$NETCHANNEL_PROGRAM" = none ]; then
        HOSTS=$HERE/../../target/release/hosts
        WORDS=()
    else
        HOSTS=$(dirname "$NETCHANNEL_PROGRAM")/hosts
        WORDS=(--netchannel "$NETCHANNEL_PROGRAM")
    fi
    if [ ! -x "$HOSTS" ]; then
        echo "skipped: there is no $HOSTS (cargo build --release --package netchannel-testkit)"
        exit 77
    fi
    exec "$HOSTS" "${WORDS[@]}" -- bash "${BASH_SOURCE[0]}" "$@"
fi
. "$HERE/common.sh"
. "$HERE/helpers/http.sh"
need nsenter iperf3 curl redis-server redis-cli redis-benchmark nginx ab socat openssl "$PYTHON"

ON_A=(nsenter --net="$HOST_A")
ON_B=(nsenter --net="$HOST_B")
SOCKET_A=$TMP/a.sock
SOCKET_B=$TMP/b.sock
export TEST_ADDRESS=$ADDRESS_B

# ---- what common.sh does on one host -------------------------------------------------------------------------------

# Both daemons, each told of the other. `DAEMON` is that of the servers' host, whose connections are counted.
start_daemon() {
    local words
    mapfile -t words <"$WORDS_A"
    start daemon-a "${ON_A[@]}" "$NETCHANNEL_PROGRAM" daemon --socket "$SOCKET_A" "${words[@]}"
    DAEMON_A=$LAST_STARTED
    mapfile -t words <"$WORDS_B"
    start daemon "${ON_B[@]}" "$NETCHANNEL_PROGRAM" daemon --socket "$SOCKET_B" "${words[@]}"
    DAEMON=$LAST_STARTED
    SOCKET=$SOCKET_B
    VIRTUAL=0
    until_true 10 "the daemons' sockets" test -S "$SOCKET_A" -a -S "$SOCKET_B"
}

stop_daemon() {
    alive "$DAEMON" || fail "the daemon of host b ended by itself: $(tail -n 5 "$TMP/daemon.log")"
    alive "$DAEMON_A" || fail "the daemon of host a ended by itself: $(tail -n 5 "$TMP/daemon-a.log")"
    local daemon=$DAEMON
    DAEMON=
    stop "$daemon"
    stop "$DAEMON_A"
    rm -f "$SOCKET_A"* "$SOCKET_B"*
}

enter() {
    MODE=$1
    SERVER=("${ON_B[@]}") CLIENT=("${ON_A[@]}")
    case $MODE in
        kernel) return ;;
        both | server | client) start_daemon ;;
        *) fail "there is no mode $MODE" ;;
    esac
    [ "$MODE" = client ] || SERVER+=("$NETCHANNEL_PROGRAM" run --no-daemon --socket "$SOCKET_B" --)
    [ "$MODE" = server ] || CLIENT+=("$NETCHANNEL_PROGRAM" run --no-daemon --socket "$SOCKET_A" --)
    if [ "$MODE" = both ]; then until_true 10 "a channel between the hosts" reached; fi
}

# Whether connections go over channels by now. A daemon that knows no other hosts never gets there, and is not waited for.
reached() {
    [ -s "$WORDS_A" ] && "$NETCHANNEL_PROGRAM" peers --help >/dev/null 2>&1 || return 0
    grep -qE '"state": *"up"' <<<"$("$NETCHANNEL_PROGRAM" peers --socket "$SOCKET_A" --json)"
}

stop_scenario() {
    local pid
    for pid in "${STARTED[@]}"; do
        if [ "$pid" != "$DAEMON" ] && [ "$pid" != "${DAEMON_A:-}" ]; then stop "$pid"; fi
    done
    STARTED=()
    if [ -n "$DAEMON" ]; then STARTED=("$DAEMON" "$DAEMON_A"); fi
}

# All of it, before anybody looks: who has found what he seeks reads no more, and to `pipefail` that is a failure.
tables() {
    "${ON_B[@]}" cat /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

listening() {
    local port
    port=$(printf '%04X' "$1")
    grep -qE "^ *[0-9]+: [0-9A-F]+:$port [0-9A-F]+:0000 0A " <<<"$(tables)"
}

free_port() {
    local candidate
    while :; do
        candidate=$((10000 + RANDOM % 20000))
        if ! grep -qE ":$(printf '%04X' "$candidate") " <<<"$(tables)"; then break; fi
    done
    printf -v "$1" %d "$candidate"
}

# ---- scenarios -----------------------------------------------------------------------------------------------------

# iperf NAME OPTIONS...
iperf() {
    local name=$1
    shift
    limited 20 "${CLIENT[@]}" iperf3 -J -p "$PORT" "$@" >"$TMP/client.json" 2>"$TMP/client.log" || true
    observe "$name: $("$PYTHON" "$HERE/helpers/iperf3_result.py" "$TMP/client.json")"
}

with_iperf3() {
    free_port PORT
    start server "${SERVER[@]}" iperf3 -s -p "$PORT"
    wait_port "$PORT"
    iperf "one stream" -c "$ADDRESS_B" -t 1
    iperf "eight streams" -c "$ADDRESS_B" -t 1 -P 8
    iperf "reverse" -c "$ADDRESS_B" -t 1 -R
    iperf "bidirectional" -c "$ADDRESS_B" -t 1 --bidir
    iperf "exact amount" -c "$ADDRESS_B" -n 64M
    iperf "small writes" -c "$ADDRESS_B" -n 2M -l 128
    if has_ipv6; then iperf "IPv6" -c "$ADDRESS6_B" -t 1; fi
    # Nobody there: the error a user reads.
    local port
    free_port port
    limited 5 "${CLIENT[@]}" iperf3 -c "$ADDRESS_B" -p "$port" >"$TMP/refused.log" 2>&1 && fail "a connection to nobody"
    observe "nobody: $(sed "s/$port/PORT/" "$TMP/refused.log" | xargs)"
}

# fetch NAME OPTIONS...
fetch() {
    local name=$1 code=0
    shift
    limited 40 "${CLIENT[@]}" curl --silent --show-error "$@" >"$TMP/client.log" 2>&1 || code=$?
    observe "$name: exit $code"
}

with_curl() {
    free_port PORT
    rm -rf "$TMP/www" "$TMP/got"
    mkdir "$TMP/www" "$TMP/got"
    ln "$TMP/large" "$TMP/medium" "$TMP/www/"
    start server "${SERVER[@]}" "$PYTHON" "$HERE/helpers/http_server.py" "$PORT" "$TMP/www"
    wait_port "$PORT"
    local address=http://$ADDRESS_B:$PORT
    fetch "large" -o "$TMP/got/large" "$address/large"
    observe "large: $(checksum "$TMP/got/large")"
    fetch "upload" -T "$TMP/large" "$address/uploaded"
    observe "upload: $(checksum "$TMP/www/uploaded")"
    fetch "given up" --max-time 0.3 --limit-rate 1M -o "$TMP/got/part" "$address/large"
    fetch "in parallel" --parallel --parallel-max 8 --create-dirs -o "$TMP/got/parallel.#1" "$address/medium?[1-16]"
    observe "in parallel: $(ls "$TMP/got" | grep -c parallel) files, $(checksum "$TMP"/got/parallel.* | sort -u | xargs)"
    kill -STOP "$LAST_STARTED"
    fetch "a stopped server" --max-time 1 "$address/medium"
    kill -CONT "$LAST_STARTED"
    fetch "after it goes on" -o "$TMP/got/after" "$address/medium"
    observe "after it goes on: $(checksum "$TMP/got/after")"
}

cli() {
    limited 20 "${CLIENT[@]}" redis-cli -h "$ADDRESS_B" -p "$PORT" "$@"
}

with_redis() {
    free_port PORT
    rm -rf "$TMP/redis" && mkdir "$TMP/redis"
    start server "${SERVER[@]}" redis-server --port "$PORT" --bind "$ADDRESS_B" --protected-mode no --dir "$TMP/redis" --save '' \
        --appendonly no --enable-debug-command yes
    wait_port "$PORT"
    observe "pipe: $(limited 30 "${CLIENT[@]}" redis-cli -h "$ADDRESS_B" -p "$PORT" --pipe <"$TMP/commands" | tail -n 1)"
    observe "digest $(cli debug digest), size $(cli dbsize)"
    limited 60 "${CLIENT[@]}" redis-benchmark -h "$ADDRESS_B" -p "$PORT" -q -c 50 -n 20000 -d 4096 -t set,get \
        >"$TMP/benchmark.log" 2>&1 || fail "redis-benchmark: $(tail -n 3 "$TMP/benchmark.log")"
    observe "benchmark: $(grep -oE '(SET|GET): [0-9]+' "$TMP/benchmark.log" | cut -d: -f1 | sort -u | xargs)"
    limited 60 "${CLIENT[@]}" redis-benchmark -h "$ADDRESS_B" -p "$PORT" -q -c 20 -P 16 -n 40000 -d 64 -t set,get,lpush \
        >"$TMP/benchmark.log" 2>&1 || fail "pipelined: $(tail -n 3 "$TMP/benchmark.log")"
    observe "deleted: $(cli del key:__rand_int__ mylist)"
    observe "large set: $(cli -x set large <"$TMP/medium")"
    observe "large get: $(cli --raw get large | head -c 3000017 | checksum)"
    # A client that blocks until another one writes, and one whose server is killed.
    "${CLIENT[@]}" redis-cli -h "$ADDRESS_B" -p "$PORT" blpop queue 20 >"$TMP/blocked" &
    local blocked=$! code=0
    until_true 5 "a blocked client" eval 'cli info clients | grep -q blocked_clients:1'
    observe "push: $(cli rpush queue element)"
    wait "$blocked"
    observe "popped: $(xargs <"$TMP/blocked")"
    "${CLIENT[@]}" redis-cli -h "$ADDRESS_B" -p "$PORT" blpop queue 20 >"$TMP/blocked" 2>&1 &
    blocked=$!
    until_true 5 "a blocked client" eval 'cli info clients | grep -q blocked_clients:1'
    stop "$LAST_STARTED" KILL
    wait "$blocked" || code=$?
    observe "killed: exit $code, $(sed "s/$PORT/PORT/" "$TMP/blocked" | xargs)"
}

with_nginx() {
    free_port PORT
    FOLDER=$TMP/nginx
    rm -rf "$FOLDER"
    mkdir -p "$FOLDER/www"
    cp "$TMP/medium" "$FOLDER/www/"
    cat >"$FOLDER/nginx.conf" <<CONFIGURATION
$([ "$(id -u)" != 0 ] || echo "user root root;")
worker_processes 2;
daemon off;
pid $FOLDER/nginx.pid;
error_log $FOLDER/error.log warn;
events { worker_connections 1024; }
http {
    access_log off;
    sendfile on;
    keepalive_requests 1000000;
    $(nginx_folders "$FOLDER")
    server { listen $ADDRESS_B:$PORT; root $FOLDER/www; location /hello { return 200 "hello\n"; } }
}
CONFIGURATION
    start server "${SERVER[@]}" nginx -c "$FOLDER/nginx.conf" -e "$FOLDER/error.log"
    wait_port "$PORT"
    local address=http://$ADDRESS_B:$PORT
    fetch "file" -o "$TMP/got.nginx" "$address/medium"
    observe "file: $(checksum "$TMP/got.nginx")"
    hammer "ab" -n 2000 -c 20 "$address/hello"
    hammer "ab, keep-alive" -k -n 5000 -c 20 "$address/hello"
}

# through NAME FILE SERVER-ADDRESS...: sends the file, half-closes, and tells what came back.
through() {
    local name=$1 file=$2 code=0
    free_port PORT
    start server "${SERVER[@]}" socat -t 10 "TCP-LISTEN:$PORT,bind=$ADDRESS_B,fork,reuseaddr" "${@:3}"
    wait_port "$PORT"
    limited 30 "${CLIENT[@]}" socat -t 10 - "TCP:$ADDRESS_B:$PORT" <"$file" >"$TMP/answer" 2>"$TMP/client.log" || code=$?
    observe "$name: exit $code, $(stat -c %s "$TMP/answer") bytes, $(checksum "$TMP/answer")"
}

with_socat() {
    through "echo by exec" "$TMP/medium" EXEC:cat
    through "echo of nothing" /dev/null EXEC:cat
    through "echo on the socket" "$TMP/medium" EXEC:cat,nofork
    through "half-close" "$TMP/medium" 'SYSTEM:sha256sum'
    through "half-close on the socket" "$TMP/medium" 'EXEC:sha256sum,nofork'
    through "download" /dev/null "OPEN:$TMP/medium,rdonly"
}

# talk NAME SERVER-KIND CLIENT-KIND
talk() {
    free_port PORT
    start server "${SERVER[@]}" "$PYTHON" "$HERE/helpers/echo_server.py" "$2" "$PORT" "$TMP"
    wait_port "$PORT"
    local code=0
    limited 40 "${CLIENT[@]}" "$PYTHON" "$HERE/helpers/echo_client.py" "$3" "$PORT" "$TMP" >"$TMP/client.log" 2>&1 || code=$?
    observe "$1: exit $code, $(tail -n 1 "$TMP/client.log")"
    alive "$LAST_STARTED" || fail "$1: the server ended: $(tail -n 3 "$TMP/server.log")"
    stop "$LAST_STARTED"
}

with_python() {
    talk "asyncio" asyncio asyncio
    talk "threads" threads threads
    talk "selectors" selectors threads
    talk "pre-forked processes" prefork threads
    talk "connections passed to workers" passed threads
    talk "asyncio over TLS" asyncio-tls asyncio-tls
}

make_data "$TMP/large" 60000003 hosts
make_data "$TMP/medium" 3000017 medium
awk 'BEGIN { for (i = 0; i < 2000; i++) printf "SET key:%d \"%0*d\"\r\n", i, (i * 37) % 700 + 1, i }' >"$TMP/commands"
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout "$TMP/key.pem" -out "$TMP/certificate.pem" \
    2>/dev/null
for name in ${*:-iperf3 curl redis nginx socat python}; do
    compare_modes "with_$name"
done
