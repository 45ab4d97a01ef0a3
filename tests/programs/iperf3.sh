#!/bin/bash
# iperf3 against its own server: one and eight streams, both directions, sendfile, small and exact amounts, IPv6, UDP.
. "$(dirname "$0")/common.sh"
need iperf3

# try NAME OPTIONS...: the client must report no error, both ends must have counted bytes on every stream.
try() {
    local name=$1
    shift
    limited 20 "${CLIENT[@]}" iperf3 -J -p "$PORT" "$@" >"$TMP/client.json" 2>"$TMP/client.log" || true
    observe "$name: $("$PYTHON" "$HERE/helpers/iperf3_result.py" "$TMP/client.json")"
}

scenario() {
    free_port PORT
    start server "${SERVER[@]}" iperf3 -s -p "$PORT"
    wait_port "$PORT"
    try "one stream" -c 127.0.0.1 -t 1
    try "eight streams" -c 127.0.0.1 -t 1 -P 8
    try "reverse" -c 127.0.0.1 -t 1 -R
    try "eight reverse" -c 127.0.0.1 -t 1 -P 8 -R
    try "bidirectional" -c 127.0.0.1 -t 1 --bidir
    try "zero copy" -c 127.0.0.1 -t 1 -Z
    try "zero copy reverse" -c 127.0.0.1 -t 1 -Z -R
    try "exact amount" -c 127.0.0.1 -n 64M
    try "small writes" -c 127.0.0.1 -n 2M -l 128
    try "paced" -c 127.0.0.1 -t 1 -b 100M
    try "options" -c 127.0.0.1 -t 1 -N -M 1400 -w 256K -S 0x10 -C cubic
    try "UDP" -c 127.0.0.1 -t 1 -u -b 20M
    if has_ipv6; then try "IPv6" -c ::1 -t 1; fi
    # Nobody there: the error a user reads.
    local port
    free_port port
    limited 5 "${CLIENT[@]}" iperf3 -c 127.0.0.1 -p "$port" >"$TMP/refused.log" 2>&1 && fail "a connection to nobody"
    observe "nobody: $(sed "s/$port/PORT/" "$TMP/refused.log" | xargs)"
}

compare_modes scenario
