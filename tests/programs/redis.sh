#!/bin/bash
# redis-server with redis-cli and redis-benchmark: one and two I/O threads, forks (BGSAVE, BGREWRITEAOF) under load, a
# restart from what they wrote, a replica, blocking commands, large values.
LIMIT=${LIMIT:-220}
. "$(dirname "$0")/common.sh"
need redis-server redis-cli redis-benchmark

cli() {
    "${CLIENT[@]}" redis-cli -h 127.0.0.1 -p "$PORT" "$@"
}

# Only asks what the server thinks, so it need not be under test.
info() {
    redis-cli -p "$PORT" info "$1" | tr -d '\r'
}

start_redis() {
    start "$1" "${SERVER[@]}" redis-server --port "$PORT" --bind 127.0.0.1 --dir "$FOLDER" --save '' \
        --appendonly yes --appendfsync no --auto-aof-rewrite-percentage 0 --enable-debug-command local \
        --repl-diskless-sync-delay 0 --io-threads "$THREADS" --io-threads-do-reads yes "${@:2}"
    wait_port "$PORT" "$1"
    until_true 10 "an answer to PING" eval 'redis-cli -p "$PORT" ping | grep -q PONG'
}

# 3000 keys of several types and sizes, the same ones every time, as commands for `redis-cli --pipe`.
make_commands() {
    awk 'BEGIN {
        for (i = 0; i < 3000; i++) {
            value = ""
            for (j = 0; j < (i * 37) % 90; j++) value = value sprintf("%08d", (i * 7919 + j * 104729) % 99999989)
            printf "SET key:%d \"%s\"\r\n", i, value
            printf "HSET hash:%d field:%d \"%d\"\r\n", i % 50, i, i * i
            if (i % 10 == 0) printf "RPUSH list:%d a b c %d\r\n", i % 7, i
        }
    }' >"$TMP/commands"
}

scenario() {
    THREADS=$1
    FOLDER=$TMP/redis
    rm -rf "$FOLDER" && mkdir "$FOLDER"
    free_port PORT
    start_redis redis
    local server=$LAST_STARTED

    observe "pipe: $(limited 30 "${CLIENT[@]}" redis-cli -p "$PORT" --pipe <"$TMP/commands" | tail -n 1)"
    local digest
    digest=$(cli debug digest)
    observe "digest $digest, size $(cli dbsize)"

    # Load, and two forks during it.
    limited 60 "${CLIENT[@]}" redis-benchmark -h 127.0.0.1 -p "$PORT" -q -c 50 -n 30000 -d 4096 -t set,get \
        >"$TMP/benchmark.log" 2>&1 &
    local load=$!
    sleep 0.2
    observe "bgsave: $(cli bgsave)"
    until_true 30 "BGSAVE" eval 'info persistence | grep -q rdb_bgsave_in_progress:0'
    observe "rewrite: $(cli bgrewriteaof)"
    until_true 30 "BGREWRITEAOF" eval 'info persistence | grep -q aof_rewrite_in_progress:0'
    observe "$(info persistence | grep -E '^(rdb_last_bgsave_status|aof_last_bgrewrite_status|aof_last_write_status)')"
    wait "$load" || fail "redis-benchmark: $(tail -n 3 "$TMP/benchmark.log")"
    observe "benchmark: $(grep -oE '(SET|GET): [0-9]+' "$TMP/benchmark.log" | cut -d: -f1 | sort -u | xargs)"

    # Pipelining with small values.
    limited 60 "${CLIENT[@]}" redis-benchmark -h 127.0.0.1 -p "$PORT" -q -c 20 -P 16 -n 40000 -d 64 -t set,get,lpush \
        >"$TMP/benchmark.log" 2>&1 || fail "pipelined: $(tail -n 3 "$TMP/benchmark.log")"
    observe "deleted: $(cli del key:__rand_int__ mylist)"
    observe "digest after load $(cli debug digest)"

    # A large value, both ways.
    observe "large set: $(cli -x set large <"$TMP/large")"
    observe "large get: $(cli --raw get large | head -c 9000000 | checksum)"
    observe "large del: $(cli del large)"

    # A client that blocks until another one writes.
    "${CLIENT[@]}" redis-cli -p "$PORT" blpop queue 20 >"$TMP/blocked" &
    local blocked=$!
    until_true 5 "a blocked client" eval 'info clients | grep -q blocked_clients:1'
    observe "push: $(cli rpush queue element)"
    wait "$blocked"
    observe "popped: $(xargs <"$TMP/blocked")"

    # The server is killed while a client waits for it.
    "${CLIENT[@]}" redis-cli -p "$PORT" blpop queue 20 >"$TMP/blocked" 2>&1 &
    blocked=$!
    until_true 5 "a blocked client" eval 'info clients | grep -q blocked_clients:1'
    stop "$server" KILL
    local code=0
    wait "$blocked" || code=$?
    observe "killed: exit $code, $(sed "s/$PORT/PORT/" "$TMP/blocked" | xargs)"

    # What the children wrote: the log, then the dump.
    start_redis restarted
    server=$LAST_STARTED
    observe "digest from the log $(cli debug digest)"

    # A replica, itself under the server's mode, catches up and follows.
    local primary=$PORT
    free_port PORT
    start replica "${SERVER[@]}" redis-server --port "$PORT" --bind 127.0.0.1 --dir "$TMP" --save '' \
        --replicaof "127.0.0.1 $primary" --enable-debug-command local --dbfilename "replica.$MODE.rdb"
    wait_port "$PORT" replica
    until_true 20 "the replica" eval 'info replication | grep -q master_link_status:up'
    redis-cli -p "$primary" set followed yes >/dev/null
    until_true 5 "the replica's copy" eval 'redis-cli -p "$PORT" get followed | grep -q yes'
    redis-cli -p "$primary" del followed >/dev/null
    until_true 5 "the replica's deletion" eval 'redis-cli -p "$PORT" exists followed | grep -q 0'
    observe "digest of the replica $(cli debug digest)"
    cli shutdown nosave >/dev/null 2>&1 || true
    wait_end "$LAST_STARTED" 40 && observe "replica: exit 0"

    PORT=$primary
    cli shutdown nosave >/dev/null 2>&1 || true
    wait_end "$server" 40 && observe "server: exit 0"
    rm -rf "$FOLDER/appendonlydir"
    start_redis from-dump --appendonly no
    observe "keys in the dump: $(cli dbsize | grep -cE '^[0-9]+$')"
    cli del key:__rand_int__ >/dev/null
    observe "digest from the dump $(cli debug digest)"
}

make_commands
make_data "$TMP/large" 8000000 redis
compare_modes scenario 1
compare_modes scenario 2
