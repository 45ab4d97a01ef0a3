#!/bin/bash
# Python: asyncio streams with checksums, threads, a pre-forked server, sockets passed to another process, TLS.
. "$(dirname "$0")/common.sh"
need "$PYTHON" openssl

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

scenario() {
    talk "asyncio" asyncio asyncio
    talk "asyncio server, threads" asyncio threads
    talk "threads" threads threads
    talk "threads, asyncio client" threads asyncio
    talk "selectors" selectors threads
    talk "pre-forked processes" prefork threads
    talk "a process per connection" fork threads
    talk "connections passed to workers" passed threads
    talk "asyncio over TLS" asyncio-tls asyncio-tls
}

openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout "$TMP/key.pem" -out "$TMP/certificate.pem" \
    2>/dev/null
compare_modes scenario
