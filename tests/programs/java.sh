#!/bin/bash
# Java: blocking sockets and channels with a selector; threads that wait on a socket which another thread closes.
. "$(dirname "$0")/common.sh"
need java javac

talk() {
    free_port PORT
    start server "${SERVER[@]}" java -Xshare:auto -cp "$TMP/classes" Echo "$1" "$PORT"
    wait_port "$PORT"
    local code=0
    limited 60 "${CLIENT[@]}" java -Xshare:auto -cp "$TMP/classes" Echo client "$PORT" >"$TMP/client.log" 2>&1 || code=$?
    observe "$1: exit $code"
    observe "$(cat "$TMP/client.log")"
    alive "$LAST_STARTED" || fail "$1: the server ended: $(tail -n 3 "$TMP/server.log")"
    stop "$LAST_STARTED"
}

scenario() {
    talk server
    talk nio-server
}

javac -d "$TMP/classes" "$HERE/helpers/Echo.java"
compare_modes scenario
