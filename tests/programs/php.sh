#!/bin/bash
# PHP-FPM behind nginx, over TCP: a fixed and a changing number of workers, workers that end after some requests, a reload.
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
need nginx curl ab
FPM=$(ls /usr/sbin/php-fpm* 2>/dev/null | tail -n 1)
[ -x "$FPM" ] || skip "php-fpm is not installed"

start_fpm() {
    free_port PORT
    free_port FPM_PORT
    FOLDER=$TMP/php
    rm -rf "$FOLDER"
    mkdir -p "$FOLDER/www"
    cp "$TMP"/*.php "$FOLDER/www/"
    chmod -R a+rX "$TMP"
    cat >"$FOLDER/fpm.conf" <<CONFIGURATION
[global]
error_log = $FOLDER/error.log
daemonize = no
[www]
listen = 127.0.0.1:$FPM_PORT
$([ "$(id -u)" != 0 ] || printf 'user = nobody\ngroup = %s' "$(id -gn nobody)")
pm = $1
pm.max_children = 4
pm.start_servers = 2
pm.min_spare_servers = 1
pm.max_spare_servers = 3
pm.max_requests = $2
CONFIGURATION
    cat >"$FOLDER/nginx.conf" <<CONFIGURATION
pid $FOLDER/nginx.pid;
error_log $FOLDER/nginx.log;
daemon off;
$([ "$(id -u)" != 0 ] || echo "user nobody $(id -gn nobody);")
worker_processes 2;
events { worker_connections 256; }
http {
    access_log off;
    $(nginx_folders "$FOLDER")
    server {
        listen 127.0.0.1:$PORT;
        root $FOLDER/www;
        location / {
            fastcgi_param SCRIPT_FILENAME \$document_root\$fastcgi_script_name;
            fastcgi_param REQUEST_METHOD \$request_method;
            fastcgi_param CONTENT_LENGTH \$content_length;
            fastcgi_param CONTENT_TYPE \$content_type;
            fastcgi_pass 127.0.0.1:$FPM_PORT;
        }
    }
}
CONFIGURATION
    chmod a+rwx "$FOLDER"
    start fpm "${SERVER[@]}" "$FPM" --nodaemonize --fpm-config "$FOLDER/fpm.conf"
    wait_port "$FPM_PORT" fpm
    MASTER=$LAST_STARTED
    # To PHP it is the client.
    start nginx "${CLIENT[@]}" nginx -c "$FOLDER/nginx.conf"
    wait_port "$PORT" nginx
}

serve() {
    start_fpm "$1" "$2"
    CLIENT=()
    fetch large "http://127.0.0.1:$PORT/large.php"
    fetch posted --data-binary "@$TMP/data" "http://127.0.0.1:$PORT/posted.php"
    hammer close -n 1500 -c 8 "http://127.0.0.1:$PORT/short.php"
    kill -USR2 "$MASTER"
    until_true 20 "the reload" eval '[ "$(grep -c "ready to handle connections" "$FOLDER/error.log")" = 2 ]'
    hammer "after reload" -n 1500 -c 8 "http://127.0.0.1:$PORT/short.php"
    stop "$MASTER"
    observe "listens after the end: $(listening "$FPM_PORT" && echo yes || echo no)"
}

make_data "$TMP/data" 300001 php
echo '<?php echo str_repeat("0123456789abcdef", 200000);' >"$TMP/large.php"
echo '<?php echo strlen(file_get_contents("php://input")), " ", md5(file_get_contents("php://input"));' >"$TMP/posted.php"
echo '<?php usleep(500); echo "short";' >"$TMP/short.php"
compare_modes serve static 0
compare_modes serve static 40
compare_modes serve dynamic 100
