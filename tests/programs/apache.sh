#!/bin/bash
# Apache with each of its three ways to serve, with two addresses, in Debian's configuration otherwise: curl and ab, workers that end after
# some connections, a reload in good order.
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
need curl ab openssl
APACHE=/usr/sbin/apache2
MODULES=/usr/lib/apache2/modules
[ -x "$APACHE" ] || skip "apache2 is not installed"

# start_apache prefork|worker|event COUNT
start_apache() {
    FOLDER=$TMP/apache
    rm -rf "$FOLDER"
    mkdir -p "$FOLDER/www"
    cp "$TMP/large" "$TMP/small" "$FOLDER/www/"
    chmod -R a+rX "$TMP"
    free_port PORT
    free_port OTHER
    cat >"$FOLDER/apache.conf" <<CONFIGURATION
ServerRoot $FOLDER
ServerName localhost
PidFile $FOLDER/apache.pid
ErrorLog $FOLDER/error.log
LoadModule mpm_$1_module $MODULES/mod_mpm_$1.so
LoadModule authz_core_module $MODULES/mod_authz_core.so
$([ "$(id -u)" != 0 ] || printf 'User nobody\nGroup %s' "$(id -gn nobody)")
Listen 127.0.0.1:$PORT
$([ "$2" = 1 ] || echo "Listen 127.0.0.1:$OTHER")
StartServers 2
MaxConnectionsPerChild 200
KeepAlive On
MaxKeepAliveRequests 0
DocumentRoot $FOLDER/www
<Directory $FOLDER/www>
    Require all granted
</Directory>
CONFIGURATION
    start apache "${SERVER[@]}" "$APACHE" -f "$FOLDER/apache.conf" -DFOREGROUND
    wait_port "$PORT" apache
    [ "$2" = 1 ] || wait_port "$OTHER" apache
    MASTER=$LAST_STARTED
}

serve() {
    start_apache "$1" "$2"
    local port ports=("$PORT")
    [ "$2" = 1 ] || ports+=("$OTHER")
    for port in "${ports[@]}"; do
        fetch large "http://127.0.0.1:$port/large"
        fetch small "http://127.0.0.1:$port/small"
        hammer close -n 1000 -c 8 "http://127.0.0.1:$port/small"
        hammer keep-alive -k -n 4000 -c 8 "http://127.0.0.1:$port/small"
    done
    kill -USR1 "$MASTER"
    until_true 10 "the reload" eval '[ "$(grep -c "resuming normal operations" "$FOLDER/error.log")" = 2 ]'
    fetch "after reload" "http://127.0.0.1:$PORT/small"
    stop "$MASTER"
    observe "listens after the end: $(listening "$PORT" && echo yes || echo no)"
}

make_data "$TMP/large" 5000001 apache
make_data "$TMP/small" 4000 small
# What Apache sets by itself (TCP_DEFER_ACCEPT) is served.
for way in prefork worker event; do
    compare_modes serve "$way" 2
done
