#!/bin/bash
# Go programs, static: the library cannot be loaded into them. `netchannel run` says so and runs them over kernel TCP,
# against servers and clients with the library.
. "$(dirname "$0")/common.sh"
need go "$PYTHON"

# talk NAME PORT CLIENT...
talk() {
    local code=0
    limited 30 "${CLIENT[@]}" "${@:2}" >"$TMP/client.log" 2>"$TMP/client.err.log" || code=$?
    observe "$1: exit $code, $(tail -n 1 "$TMP/client.log")"
}

scenario() {
    free_port PORT
    start server "${SERVER[@]}" "$TMP/echo" server "$PORT"
    wait_port "$PORT"
    talk "Go to Go" "$TMP/echo" client "$PORT"
    talk "Python to Go" "$PYTHON" "$HERE/helpers/echo_client.py" threads "$PORT" "$TMP"
    free_port PORT
    start python "${SERVER[@]}" "$PYTHON" "$HERE/helpers/echo_server.py" threads "$PORT" "$TMP"
    wait_port "$PORT" python
    talk "Go to Python" "$TMP/echo" client "$PORT"
}

GOFLAGS='' GO111MODULE=off GOCACHE=${GOCACHE:-$TMP/go-cache} CGO_ENABLED=0 GOTOOLCHAIN=local \
    go build -o "$TMP/echo" "$HERE/helpers/echo.go"
EXPECT_VIRTUAL=no compare_modes scenario

# With cgo it is dynamic: the library loads, and Go's system calls pass it by.
if [ "$NETCHANNEL_PROGRAM" = none ]; then exit 0; fi
GOFLAGS='' GO111MODULE=off GOCACHE=${GOCACHE:-$TMP/go-cache} CGO_ENABLED=1 GOTOOLCHAIN=local \
    go build -o "$TMP/dynamic" "$HERE/helpers/echo.go" || { left_out "Go with cgo: no C compiler"; exit 0; }
start_daemon
"$NETCHANNEL_PROGRAM" run --socket "$SOCKET" -- "$TMP/dynamic" 2>"$TMP/dynamic.log" || true
stop_daemon
grep -q "is a Go program" "$TMP/dynamic.log" || fail "nothing is said of a dynamic Go program"
