#!/bin/bash
# haproxy before two servers: requests, and reloads under load, where a new process takes the listeners over from the old one.
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
need haproxy nginx curl ab

start_servers() {
    FOLDER=$TMP/haproxy
    rm -rf "$FOLDER"
    mkdir -p "$FOLDER/www"
    cp "$TMP/large" "$TMP/small" "$FOLDER/www/"
    chmod -R a+rX "$TMP"
    chmod a+rwx "$FOLDER"
    free_port PORT
    local server ports=()
    for server in one two; do
        free_port BACKEND
        ports+=("$BACKEND")
        cat >"$FOLDER/$server.conf" <<CONFIGURATION
pid $FOLDER/$server.pid;
error_log $FOLDER/$server.error;
daemon off;
$([ "$(id -u)" != 0 ] || echo "user nobody $(id -gn nobody);")
events { worker_connections 512; }
http {
    access_log off;
    $(nginx_folders "$FOLDER")
    server {
        listen 127.0.0.1:$BACKEND;
        root $FOLDER/www;
    }
}
CONFIGURATION
        start "$server" "${SERVER[@]}" nginx -c "$FOLDER/$server.conf"
        wait_port "$BACKEND" "$server"
    done
    cat >"$FOLDER/haproxy.cfg" <<CONFIGURATION
global
    maxconn 500
    $1
    $([ "$(id -u)" != 0 ] || printf 'user nobody\n    group %s' "$(id -gn nobody)")
    stats socket $FOLDER/stats mode 600 level admin expose-fd listeners
defaults
    mode http
    timeout connect 5s
    timeout client 20s
    timeout server 20s
frontend web
    bind 127.0.0.1:$PORT
    default_backend servers
backend servers
    server one 127.0.0.1:${ports[0]}
    server two 127.0.0.1:${ports[1]}
CONFIGURATION
    start haproxy "${SERVER[@]}" haproxy -W -db -f "$FOLDER/haproxy.cfg" -p "$FOLDER/haproxy.pid"
    wait_port "$PORT" haproxy
    MASTER=$LAST_STARTED
}

serve() {
    start_servers "$1"
    fetch large "http://127.0.0.1:$PORT/large"
    hammer close -n 2000 -c 8 "http://127.0.0.1:$PORT/small"
    hammer keep-alive -k -n 4000 -c 8 "http://127.0.0.1:$PORT/small"
    (
        for _ in 1 2 3; do
            sleep 0.7
            kill -USR2 "$MASTER"
        done
    ) &
    local code=0
    limited 60 "${CLIENT[@]}" ab -q -t 3 -n 1000000 -c 4 "http://127.0.0.1:$PORT/small" >"$TMP/ab.log" 2>&1 || code=$?
    [ "$code" = 0 ] || tail -n 5 "$TMP/ab.log"
    observe "under reloads: exit $code, $(grep -E '^(Failed|Non-2xx)' "$TMP/ab.log" | tr -s ' ' | xargs)"
    wait $!
    fetch after "http://127.0.0.1:$PORT/small"
    stop "$MASTER"
    observe "listens after the end: $(listening "$PORT" && echo yes || echo no)"
}

make_data "$TMP/large" 5000001 haproxy
make_data "$TMP/small" 4000 small


compare_modes serve "nbthread 2"
compare_modes serve "nbthread 2"
compare_modes serve "nbthread 2"
compare_modes serve "nbthread 2"
compare_modes serve "nbthread 2"
compare_modes serve "nbthread 2"
