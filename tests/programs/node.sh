#!/bin/bash
# Node: net and http servers and clients, alone and as a cluster whose parent hands connections to workers.
. "$(dirname "$0")/common.sh"
need node

talk() {
    free_port PORT
    start server "${SERVER[@]}" node "$HERE/helpers/echo.mjs" "$1" "$PORT"
    wait_port "$PORT"
    wait_port $((PORT + 1))
    local code=0
    limited 60 "${CLIENT[@]}" node "$HERE/helpers/echo.mjs" client "$PORT" >"$TMP/client.log" 2>&1 || code=$?
    observe "$1: exit $code, $(xargs <"$TMP/client.log")"
    alive "$LAST_STARTED" || fail "$1: the server ended: $(tail -n 3 "$TMP/server.log")"
    stop "$LAST_STARTED"
}

scenario() {
    talk server
    talk cluster
}

compare_modes scenario
