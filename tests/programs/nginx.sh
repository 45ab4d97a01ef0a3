#!/bin/bash
# nginx with two workers: curl, ab and wrk; as a proxy; TLS; reload and binary upgrade under load without a failed
# request; workers that gave up root.
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
need nginx curl ab wrk openssl

configure() {
    local user=$1
    cat >"$FOLDER/nginx.conf" <<CONFIGURATION
$([ "$(id -u)" != 0 ] || echo "user $user $(id -gn "$user");")
worker_processes 2;
daemon on;
pid $FOLDER/nginx.pid;
error_log $FOLDER/error.log warn;
events { worker_connections 1024; }
http {
    access_log off;
    sendfile on;
    keepalive_requests 1000000;
    client_max_body_size 100m;
    $(nginx_folders "$FOLDER")
    ssl_certificate $TMP/certificate.pem;
    ssl_certificate_key $TMP/key.pem;
    upstream behind { server 127.0.0.1:$BEHIND; keepalive 8; }
    server {
        listen 127.0.0.1:$PORT;
        $(has_ipv6 && echo "listen [::1]:$PORT;")
        root $FOLDER/www;
        location /hello { return 200 "hello\n"; }
        location /proxy/ { proxy_pass http://behind/; proxy_http_version 1.1; proxy_set_header Connection ""; }
        location /upload/ { dav_methods PUT DELETE; root $FOLDER; }
    }
    server { listen 127.0.0.1:$BEHIND reuseport; root $FOLDER/www; }
    server { listen 127.0.0.1:$SECURE ssl http2; root $FOLDER/www; }
}
CONFIGURATION
}

start_nginx() {
    FOLDER=$TMP/nginx
    rm -rf "$FOLDER"
    mkdir -p "$FOLDER/www" "$FOLDER/upload"
    cp "$TMP/large" "$TMP/small" "$FOLDER/www/"
    chmod -R a+rX "$TMP"
    chmod a+rwx "$FOLDER/upload"
    free_port PORT
    free_port BEHIND
    free_port SECURE
    configure "$1"
    # By its path: with this name nginx executes itself again at an upgrade. As a daemon: it refuses to upgrade while
    # the process that started it lives.
    limited 10 "${SERVER[@]}" "$(command -v nginx)" -c "$FOLDER/nginx.conf" -e "$FOLDER/error.log" \
        >"$TMP/nginx.log" 2>&1 || fail "nginx: $(tail -n 3 "$TMP/nginx.log" "$FOLDER/error.log")"
    until_true 5 "nginx's pid file" test -s "$FOLDER/nginx.pid"
    MASTER=$(cat "$FOLDER/nginx.pid")
    adopt "$MASTER"
    wait_port "$PORT" nginx
    wait_port "$SECURE" nginx
}

# blow NAME OPTIONS...: wrk for one second; it tells of errors only if there were some.
blow() {
    local name=$1 code=0
    shift
    limited 20 "${CLIENT[@]}" wrk -d 1 "$@" >"$TMP/wrk.log" 2>&1 || code=$?
    observe "$name: exit $code, $(grep -cE 'requests in' "$TMP/wrk.log") report, $(grep -E 'errors|Non-2xx' "$TMP/wrk.log" || echo no errors)"
}

workers() {
    cat "/proc/$1/task/$1/children" 2>/dev/null || true
}

plain_use() {
    start_nginx root
    local address=http://127.0.0.1:$PORT
    fetch "large" "$address/large"
    fetch "small" "$address/small"
    fetch "range" -r 1000000-1999999 "$address/large"
    fetch "missing" "$address/none"
    fetch "several on one connection" "$address/small" -o "$TMP/second" "$address/hello" -o "$TMP/third" "$address/large"
    observe "several on one connection: $(checksum "$TMP/second" "$TMP/third" | xargs)"
    fetch "upload" -T "$TMP/large" "$address/upload/large"
    observe "uploaded: $(checksum "$FOLDER/upload/large")"
    fetch "proxied" "$address/proxy/large"
    fetch "TLS" --insecure --http1.1 "https://127.0.0.1:$SECURE/large"
    fetch "TLS and HTTP/2" --insecure --http2 "https://127.0.0.1:$SECURE/large"
    if has_ipv6; then fetch "IPv6" "http://[::1]:$PORT/large"; fi
    hammer "ab" -n 3000 -c 20 "$address/small"
    hammer "ab, keep-alive" -k -n 10000 -c 20 "$address/hello"
    hammer "ab, proxied" -n 1000 -c 10 "$address/proxy/small"
    blow "wrk" -t 2 -c 50 "$address/hello"
    blow "wrk, close" -t 2 -c 50 -H 'Connection: close' "$address/hello"
    observe "errors: $(grep -vcE 'notice|buffered to a temporary file' "$FOLDER/error.log" | head -n 1)"
    count_virtual
    kill -QUIT "$MASTER"
    until_true 10 "the end of nginx" eval "! alive $MASTER"
    observe "listens after the end: $(listening "$PORT" && echo yes || echo no)"
}

# Requests by ab, round after round, from here until `end_load`. ab gives up at the first error.
begin_load() {
    touch "$TMP/load"
    : >"$TMP/rounds"
    (
        trap - EXIT INT TERM
        while [ -e "$TMP/load" ]; do
            limited 30 "${CLIENT[@]}" ab -q -n 1000 -c 20 "http://127.0.0.1:$PORT/small" >"$TMP/load.log" 2>&1 || exit 1
            grep -q '^Failed requests: *0$' "$TMP/load.log" || exit 1
            ! grep -q '^Non-2xx' "$TMP/load.log" || exit 1
            echo >>"$TMP/rounds"
        done
    ) &
    LOAD=$!
    rounds 1
}

# Waits for so many rounds more.
rounds() {
    local wanted=$(($(wc -l <"$TMP/rounds") + $1))
    until_true 30 "the load" eval "! alive $LOAD || [ \"\$(wc -l <'$TMP/rounds')\" -ge $wanted ]"
}

end_load() {
    local code=0
    rm "$TMP/load"
    wait "$LOAD" || code=$?
    [ "$code" = 0 ] || tail -n 15 "$TMP/load.log"
    observe "$1: $([ "$code" = 0 ] && echo no failed request || echo failed requests)"
}

reload_under_load() {
    start_nginx root
    local before
    begin_load
    for _ in 1 2 3 4 5 6; do
        before=$(workers "$MASTER")
        kill -HUP "$MASTER"
        until_true 10 "new workers" eval "[ \"\$(workers $MASTER)\" != '$before' ]"
        rounds 1
    done
    end_load reload
    fetch "after reload" "http://127.0.0.1:$PORT/large"
}

upgrade_under_load() {
    start_nginx root
    local new
    begin_load
    kill -USR2 "$MASTER"
    until_true 10 "the new master" eval '[ -s "$FOLDER/nginx.pid.oldbin" ] && [ -s "$FOLDER/nginx.pid" ]'
    new=$(cat "$FOLDER/nginx.pid")
    [ "$new" != "$MASTER" ] || fail "the pid file still names the old master"
    until_true 10 "the new workers" eval "[ \"\$(workers $new | wc -w)\" = 2 ]"
    rounds 2
    kill -WINCH "$MASTER"
    until_true 10 "the end of the old workers" eval "[ \"\$(workers $MASTER)\" = '$new ' ]"
    rounds 2
    kill -QUIT "$MASTER"
    until_true 10 "the end of the old master" eval "! alive $MASTER"
    rounds 2
    end_load upgrade
    # The new master was started by the old one; it stays in its session.
    alive "$new" || fail "the new master is gone"
    fetch "after upgrade" "http://127.0.0.1:$PORT/large"
    count_virtual
    kill -QUIT "$new"
    until_true 10 "the end of the new master" eval "! alive $new"
    observe "listens after the end: $(listening "$PORT" && echo yes || echo no)"
}

# Workers as another user attach to a daemon that they do not own, or stay on kernel TCP; the pages are the same.
other_user() {
    start_nginx nobody
    fetch "as nobody" "http://127.0.0.1:$PORT/large"
    hammer "ab, as nobody" -n 2000 -c 20 "http://127.0.0.1:$PORT/small"
}

openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout "$TMP/key.pem" -out "$TMP/certificate.pem" \
    2>/dev/null
make_data "$TMP/large" 20000001 nginx
make_data "$TMP/small" 4000 small
compare_modes plain_use
compare_modes reload_under_load
compare_modes upgrade_under_load
if [ "$(id -u)" = 0 ]; then
    EXPECT_VIRTUAL=no compare_modes other_user
else
    left_out "workers of another user (not root)"
fi
