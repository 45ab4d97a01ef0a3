#!/bin/bash
# stunnel before a web server, and a second one that speaks TLS for clients that do not: three connections for each request.
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
need stunnel4 openssl curl ab "$PYTHON"

scenario() {
    free_port PORT
    free_port TLS
    free_port WEB
    start web "${SERVER[@]}" "$PYTHON" "$HERE/helpers/http_server.py" "$WEB" "$TMP/www"
    wait_port "$WEB" web
    printf 'foreground = yes\npid =\n[server]\naccept = 127.0.0.1:%s\nconnect = 127.0.0.1:%s\ncert = %s\n' \
        "$TLS" "$WEB" "$TMP/both.pem" >"$TMP/server.conf"
    printf 'foreground = yes\npid =\n[client]\nclient = yes\naccept = 127.0.0.1:%s\nconnect = 127.0.0.1:%s\n' \
        "$PORT" "$TLS" >"$TMP/client.conf"
    start server "${SERVER[@]}" stunnel4 "$TMP/server.conf"
    wait_port "$TLS" server
    start tunnel "${SERVER[@]}" stunnel4 "$TMP/client.conf"
    wait_port "$PORT" tunnel
    fetch "by TLS" --insecure "https://127.0.0.1:$TLS/large"
    fetch "through both" "http://127.0.0.1:$PORT/large"
    hammer close -n 300 -c 4 "http://127.0.0.1:$PORT/small"
}

mkdir "$TMP/www"
make_data "$TMP/www/large" 5000001 stunnel
make_data "$TMP/www/small" 4000 small
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout "$TMP/key.pem" -out "$TMP/certificate.pem" 2>/dev/null
cat "$TMP/key.pem" "$TMP/certificate.pem" >"$TMP/both.pem"
chmod 600 "$TMP/both.pem"
compare_modes scenario
