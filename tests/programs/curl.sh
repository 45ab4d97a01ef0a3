#!/bin/bash
# curl: large files both ways through python3's http.server, resumed, slowly, in parallel, given up halfway.
. "$(dirname "$0")/common.sh"
need curl openssl "$PYTHON"

# fetch NAME FILE OPTIONS...
fetch() {
    local name=$1 code=0
    shift
    limited 40 "${CLIENT[@]}" curl --silent --show-error "$@" >"$TMP/client.log" 2>&1 || code=$?
    observe "$name: exit $code"
}

scenario() {
    free_port PORT
    rm -rf "$TMP/www" "$TMP/got"
    mkdir "$TMP/www" "$TMP/got"
    ln "$TMP/large" "$TMP/medium" "$TMP/www/"
    start server "${SERVER[@]}" "$PYTHON" "$HERE/helpers/http_server.py" "$PORT" "$TMP/www"
    wait_port "$PORT"
    local address=http://127.0.0.1:$PORT number
    fetch "large" -o "$TMP/got/large" "$address/large"
    observe "large: $(checksum "$TMP/got/large")"
    fetch "upload" -T "$TMP/large" "$address/uploaded"
    observe "upload: $(checksum "$TMP/www/uploaded")"
    fetch "upload in chunks" -T - "$address/chunked" <"$TMP/medium"
    fetch "form" --data-binary "@$TMP/medium" -H 'Content-Type: application/octet-stream' "$address/posted"
    observe "form: $(checksum "$TMP/www/posted")"
    fetch "slowly" --limit-rate 4M -o "$TMP/got/slow" "$address/medium"
    observe "slowly: $(checksum "$TMP/got/slow")"
    fetch "given up" --max-time 0.3 --limit-rate 1M -o "$TMP/got/part" "$address/large"
    fetch "in parallel" --parallel --parallel-max 8 --create-dirs -o "$TMP/got/parallel.#1" "$address/medium?[1-16]"
    observe "in parallel: $(ls "$TMP/got" | grep -c parallel) files, $(checksum "$TMP"/got/parallel.* | sort -u | xargs)"
    fetch "telnet" --max-time 1 "telnet://127.0.0.1:$PORT" </dev/null
    kill -STOP "$LAST_STARTED"
    fetch "a stopped server" --max-time 1 "$address/medium"
    kill -CONT "$LAST_STARTED"
    fetch "after it goes on" -o "$TMP/got/after" "$address/medium"
    observe "after it goes on: $(checksum "$TMP/got/after")"
    free_port number
    fetch "nobody" "http://127.0.0.1:$number/"
}

make_data "$TMP/large" 100000003 curl
make_data "$TMP/medium" 3000017 medium
compare_modes scenario
