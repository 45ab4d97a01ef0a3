#!/bin/bash
# gunicorn, whose workers are forked with the listener: its three kinds of workers, workers that end after some requests, a reload and
# one more and one less worker under load.
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
need gunicorn curl ab

start_gunicorn() {
    free_port PORT
    start gunicorn "${SERVER[@]}" gunicorn --bind "127.0.0.1:$PORT" --workers 4 --chdir "$TMP" --graceful-timeout 10 \
        --worker-tmp-dir "$TMP" "$@" application:application
    wait_port "$PORT" gunicorn
    MASTER=$LAST_STARTED
}

workers() {
    pgrep -P "$MASTER" -c -f gunicorn || true
}

serve() {
    start_gunicorn "$@"
    fetch large "http://127.0.0.1:$PORT/large"
    fetch posted --data-binary "@$TMP/data" "http://127.0.0.1:$PORT/posted"
    hammer close -n 1500 -c 8 "http://127.0.0.1:$PORT/short"
    hammer keep-alive -k -n 1500 -c 8 "http://127.0.0.1:$PORT/short"
    stop "$MASTER"
    observe "listens after the end: $(listening "$PORT" && echo yes || echo no)"
}

# Workers that end, a reload, workers that come and go, while requests are under way.
change() {
    start_gunicorn --worker-class "$1" --max-requests 50
    (
        sleep 0.5
        kill -HUP "$MASTER"
        sleep 0.7
        kill -TTIN "$MASTER"
        sleep 0.5
        kill -TTOU "$MASTER"
    ) &
    hammer "under change" -n 2500 -c 8 "http://127.0.0.1:$PORT/short"
    wait $!
    fetch after "http://127.0.0.1:$PORT/short"
    stop "$MASTER"
}

make_data "$TMP/data" 300001 gunicorn
make_application "$TMP"
compare_modes serve --worker-class sync
compare_modes serve --worker-class gthread --threads 4
if "$PYTHON" -c 'import gevent' 2>/dev/null; then
    compare_modes serve --worker-class gevent
else
    left_out "gevent is not installed"
fi
compare_modes change sync
