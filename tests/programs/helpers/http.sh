# Sourced by the tests of programs that speak HTTP, after common.sh: what clients see of a server.

# fetch NAME CURL-ARGUMENTS...: exit code, and a checksum of what came.
fetch() {
    local name=$1 code=0
    shift
    limited 20 "${CLIENT[@]}" curl --silent --show-error --output "$TMP/fetched" "$@" >"$TMP/client.log" 2>&1 || code=$?
    observe "$name: exit $code, $(checksum "$TMP/fetched" 2>/dev/null || echo nothing)"
    rm -f "$TMP/fetched"
}

# hammer NAME AB-ARGUMENTS...: how many requests were answered, and how many failed.
hammer() {
    local name=$1 code=0
    shift
    limited 60 "${CLIENT[@]}" ab -q "$@" >"$TMP/ab.log" 2>&1 || code=$?
    [ "$code" = 0 ] || tail -n 5 "$TMP/ab.log"
    observe "$name: exit $code, $(grep -E '^(Complete|Failed|Non-2xx)' "$TMP/ab.log" | tr -s ' ' | xargs)"
}

# A program of a web server in Python: /pid says who serves, /large is large, the rest is short; each takes a millisecond of sleep.
make_application() {
    cat >"$1/application.py" <<'APPLICATION'
import os
import time

LARGE = bytes(range(256)) * 8000


def application(environ, start_response):
    time.sleep(0.001)
    path = environ["PATH_INFO"]
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length:
        body = environ["wsgi.input"].read(length)
    elif path == "/large":
        body = LARGE
    elif path == "/pid":
        body = b"%d\n" % os.getpid()
    else:
        body = b"answer to %s\n" % path.encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
APPLICATION
}
