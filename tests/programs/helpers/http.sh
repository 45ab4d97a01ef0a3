# Sourced by the tests of programs that speak HTTP, after common.sh: what clients see of a server.

# fetch NAME OPTIONS... ADDRESS
fetch() {
    local name=$1 code=0
    shift
    limited 30 "${CLIENT[@]}" curl --silent --show-error --output "$TMP/fetched" --write-out '%{http_code}' "$@" \
        >"$TMP/code" 2>"$TMP/client.log" || code=$?
    observe "$name: exit $code, status $(cat "$TMP/code"), $(checksum "$TMP/fetched" 2>/dev/null || echo nothing)"
    rm -f "$TMP/fetched"
}

# hammer NAME OPTIONS...: ab, which gives up at the first error; how many requests were answered, and how many failed.
hammer() {
    local name=$1 code=0
    shift
    limited 60 "${CLIENT[@]}" ab -q "$@" >"$TMP/ab.log" 2>&1 || code=$?
    [ "$code" = 0 ] || tail -n 5 "$TMP/ab.log"
    observe "$name: exit $code, $(grep -E '^(Complete|Failed|Non-2xx)' "$TMP/ab.log" | tr -s ' ' | xargs)"
}

# A program of a web server in Python: /large is large, the rest is short; each takes a millisecond of sleep.
make_application() {
    cat >"$1/application.py" <<'APPLICATION'
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
    else:
        body = b"answer to %s\n" % path.encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
APPLICATION
}

# nginx_page FOLDER WORKERS LINES...: the configuration of a server at port 80 of the files in FOLDER/www and of /who, which says the client's
# address and its own; with more lines.
nginx_page() {
    local folder=$1 workers=$2
    shift 2
    nginx_server "$folder" "$workers" "
        listen 80;
        root $folder/www;
        location /who { return 200 \"\$remote_addr \$server_addr:\$server_port\\n\"; }
        $*"
}

# nginx_server FOLDER WORKERS LINES...: the configuration of a server of these lines.
nginx_server() {
    local folder=$1 workers=$2
    shift 2
    cat >"$folder/nginx.conf" <<CONFIGURATION
user root;
worker_processes $workers;
daemon off;
pid $folder/nginx.pid;
error_log $folder/error.log warn;
events { worker_connections 1024; }
http {
    access_log off;
    client_max_body_size 200m;
    $(nginx_folders "$folder")
    server {
        $*
    }
}
CONFIGURATION
}

# nginx_folders FOLDER: for its configuration, where it keeps what does not fit its memory.
nginx_folders() {
    local kind
    for kind in client_body proxy fastcgi uwsgi scgi; do
        echo "${kind}_temp_path $1/$kind;"
    done
}
