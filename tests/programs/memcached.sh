#!/bin/bash
# memcached with one and four threads: values of all sizes, many clients at once.
. "$(dirname "$0")/common.sh"
need memcached "$PYTHON"

scenario() {
    free_port PORT
    local user=()
    [ "$(id -u)" != 0 ] || user=(-u nobody)
    start memcached "${SERVER[@]}" memcached "${user[@]}" -l 127.0.0.1 -p "$PORT" -U 0 -t "$1" -m 512 -I 8m
    wait_port "$PORT" memcached
    local code=0
    limited 60 "${CLIENT[@]}" "$PYTHON" "$HERE/helpers/memcached_client.py" "$PORT" >"$TMP/client.log" 2>&1 || code=$?
    observe "exit $code, $(tail -n 1 "$TMP/client.log")"
    stop "$LAST_STARTED"
}

# It lowers its own limit of descriptors, so that the library has none to itself.
EXPECT_VIRTUAL=no
compare_modes scenario 1
compare_modes scenario 4
