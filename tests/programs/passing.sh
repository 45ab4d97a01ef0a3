#!/bin/bash
# Accepted connections passed to other processes, by the means that Python has; and connections that another process
# closes last, of which nothing must stay behind.
. "$(dirname "$0")/common.sh"
need "$PYTHON" pgrep

# What stays behind is missed soon.
DAEMON_OPTIONS=(--slots 64 --arena 64)

# held PID: descriptors of a program and its children.
held() {
    local process total=0
    for process in "$1" $(pgrep -P "$1"); do
        total=$((total + $(ls "/proc/$process/fd" | wc -l)))
    done
    echo "$total"
}

# talk KIND
talk() {
    free_port PORT
    start server "${SERVER[@]}" "$PYTHON" "$HERE/helpers/passing_server.py" "$1" "$PORT"
    wait_port "$PORT"
    local code=0 before after
    limited 60 "${CLIENT[@]}" "$PYTHON" "$HERE/helpers/echo_client.py" threads "$PORT" "$TMP" >"$TMP/client.log" 2>&1 || code=$?
    observe "$1: exit $code, $(tail -n 1 "$TMP/client.log")"
    # A client that has ended leaves nothing with those who served it.
    before=$(held "$LAST_STARTED")
    for _ in 1 2 3 4 5 6; do
        limited 20 "${CLIENT[@]}" "$PYTHON" "$HERE/helpers/closed_elsewhere.py" "$PORT" 2 >"$TMP/client.log" 2>&1 || true
        observe "$1: $(tail -n 1 "$TMP/client.log")"
    done
    sleep 0.3
    after=$(held "$LAST_STARTED")
    if [ "$after" -gt $((before + 6)) ]; then fail "$1: $before descriptors have become $after"; fi
    alive "$LAST_STARTED" || fail "$1: the server ended: $(tail -n 3 "$TMP/server.log")"
    stop "$LAST_STARTED"
}

closed_elsewhere() {
    free_port PORT
    start server "${SERVER[@]}" "$PYTHON" "$HERE/helpers/echo_server.py" threads "$PORT" "$TMP"
    wait_port "$PORT"
    limited 40 "${CLIENT[@]}" "$PYTHON" "$HERE/helpers/closed_elsewhere.py" "$PORT" 400 >"$TMP/client.log" 2>&1 || true
    observe "closed elsewhere: $(tail -n 1 "$TMP/client.log")"
    count_virtual
    if [ "$MODE" = both ] && [ "$VIRTUAL" -lt 250 ]; then fail "only $VIRTUAL of 400 connections went through memory"; fi
    stop "$LAST_STARTED"
}

scenario() {
    talk fork-handles
    talk spawn-handles
    talk fork-objects
    talk programs
    closed_elsewhere
}

compare_modes scenario
