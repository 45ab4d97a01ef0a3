#!/bin/bash
# Programs with rings of io_uring: those that ask for one by libc or liburing, and those that have one all the same.
. "$(dirname "$0")/common.sh"
need cc "$PYTHON"

# build FLAGS...
build() {
    cc -O1 -o "$TMP/rings" "$HERE/helpers/rings.c" "$@" -ldl 2>"$TMP/cc.log"
}

if ! build -DWITH_LIBURING -luring; then
    left_out "programs linked with liburing: $(tail -n 1 "$TMP/cc.log")"
    build || skip "programs with rings cannot be compiled: $(tail -n 1 "$TMP/cc.log")"
fi
code=0
"$TMP/rings" before 1 >"$TMP/first.log" 2>&1 || code=$?
if [ "$code" = 77 ]; then skip "$(cat "$TMP/first.log")"; fi

# serving PROGRAM: under one port, for what follows.
serving() {
    free_port PORT
    start server "${SERVER[@]}" "$TMP/rings" "$1" "$PORT"
    wait_port "$PORT"
}

# client PROGRAM
client() {
    local code=0
    limited 20 "${CLIENT[@]}" "$TMP/rings" "$1" "$PORT" >"$TMP/$1.log" 2>"$TMP/$1.errors.log" || code=$?
    observe "$1: exit $code, $(tr '\n' ';' <"$TMP/$1.log")"
}

# said WHO: one sentence on standard error, where the library is in the program.
said() {
    local count
    count=$(grep -c '^netchannel: .*io_uring' "$TMP/$1.log") || true
    [ "$count" = 1 ] || fail "$1: $count sentences: $(cat "$TMP/$1.log")"
}

# shown PID: what the daemon says of a program's sockets.
shown() {
    "$NETCHANNEL_PROGRAM" ss --socket "$SOCKET" --program "$1" >"$TMP/ss.log" 2>&1 || true
    grep -q io-uring "$TMP/ss.log" || fail "no reason in ss: $(cat "$TMP/ss.log")"
    if grep -q virtual "$TMP/ss.log"; then fail "virtual in spite of a ring: $(cat "$TMP/ss.log")"; fi
}

# No ring is made, and a program that has none is not harmed.
refused_to_all() {
    local code=0 run=("$NETCHANNEL_PROGRAM" run --socket "$SOCKET" --refuse-rings --)
    limited 20 "${run[@]}" "$TMP/rings" before "$PORT" >"$TMP/refused.log" 2>&1 || code=$?
    if [ "$code" != 77 ] || ! grep -q 'Function not implemented' "$TMP/refused.log"; then
        fail "--refuse-rings, exit $code: $(cat "$TMP/refused.log")"
    fi
    limited 20 "${run[@]}" "$TMP/rings" asked "$PORT" >"$TMP/refused.log" 2>&1 || fail "--refuse-rings: $(cat "$TMP/refused.log")"
}

scenario() {
    serving serve
    if [ "$MODE" = both ]; then refused_to_all; fi
    client asked
    if [ "${#CLIENT[@]}" != 0 ] && grep '^asked' "$TMP/asked.errors.log" | grep -v 'Function not implemented'; then
        fail "a ring was not refused: $(cat "$TMP/asked.errors.log")"
    fi
    for program in before by-ring between over-exec; do
        client "$program"
        # Over an exec nothing came that is virtual, where the server has no library.
        if [ "$MODE" = both ] || { [ "$MODE" = client ] && [ "$program" != over-exec ]; }; then said "$program.errors"; fi
    done
    stop "$LAST_STARTED"
    for program in ring-serves late-serves; do
        serving "$program"
        client asked
        client asked
        # The second is noticed when a virtual connection comes; without one there is nothing that a ring could harm.
        if [ "$MODE" = both ] || { [ "$MODE" = server ] && [ "$program" = ring-serves ]; }; then
            said server
            shown "$LAST_STARTED"
        fi
        stop "$LAST_STARTED"
    done
}

compare_modes scenario
