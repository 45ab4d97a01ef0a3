#!/bin/bash
# uWSGI: processes, threads with its thunder lock, workers that end after some requests, a reload in good order.
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
need uwsgi curl ab

serve() {
    free_port PORT
    start uwsgi "${SERVER[@]}" uwsgi --plugin python3 --http-socket "127.0.0.1:$PORT" --master --need-app --die-on-term \
        --wsgi-file "$TMP/application.py" "$@"
    wait_port "$PORT" uwsgi
    local master=$LAST_STARTED
    fetch large "http://127.0.0.1:$PORT/large"
    fetch posted --data-binary "@$TMP/data" "http://127.0.0.1:$PORT/posted"
    hammer close -n 1500 -c 8 "http://127.0.0.1:$PORT/short"
    kill -HUP "$master"
    until_true 20 "the reload" eval '[ "$(grep -c "WSGI app 0 .* ready" "$TMP/uwsgi.log")" -ge 2 ]'
    hammer "after reload" -n 1500 -c 8 "http://127.0.0.1:$PORT/short"
    stop "$master"
    observe "listens after the end: $(listening "$PORT" && echo yes || echo no)"
}

# What uWSGI sets by itself (TCP_DEFER_ACCEPT) is served.
uwsgi --plugin python3 --version >/dev/null 2>&1 || skip "uwsgi has no plugin for Python 3"
make_data "$TMP/data" 300001 uwsgi
make_application "$TMP"
compare_modes serve --processes 4
compare_modes serve --processes 4 --thunder-lock
compare_modes serve --processes 2 --threads 4 --enable-threads --thunder-lock
compare_modes serve --processes 4 --max-requests 100
