#!/bin/bash
# lighttpd alone and with workers that share its listener.
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
need lighttpd curl ab

serve() {
    free_port PORT
    cat >"$TMP/lighttpd.conf" <<CONFIGURATION
server.document-root = "$TMP/www"
server.bind = "127.0.0.1"
server.port = $PORT
server.max-worker = $1
server.errorlog = "$TMP/error.log"
server.max-keep-alive-requests = 10000
$([ "$(id -u)" != 0 ] || printf 'server.username = "nobody"\nserver.groupname = "%s"' "$(id -gn nobody)")
CONFIGURATION
    start lighttpd "${SERVER[@]}" lighttpd -D -f "$TMP/lighttpd.conf"
    wait_port "$PORT" lighttpd
    fetch large "http://127.0.0.1:$PORT/large"
    fetch part --range 1000000-1999999 "http://127.0.0.1:$PORT/large"
    hammer close -n 2000 -c 16 "http://127.0.0.1:$PORT/small"
    hammer keep-alive -k -n 5000 -c 16 "http://127.0.0.1:$PORT/small"
    stop "$LAST_STARTED"
    observe "listens after the end: $(listening "$PORT" && echo yes || echo no)"
}

mkdir "$TMP/www"
make_data "$TMP/www/large" 5000001 lighttpd
make_data "$TMP/www/small" 4000 small
touch "$TMP/error.log"
chmod -R a+rX "$TMP"
chmod a+rw "$TMP/error.log"
compare_modes serve 0
compare_modes serve 4
