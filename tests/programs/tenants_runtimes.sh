#!/bin/bash
# More real programs as a tenant, in a network namespace that has nothing but loopback: git over https, pip, PostgreSQL, Java and Node, as
# clients of a world outside and as its servers, compared with kernel TCP as in tenants.sh.
LIMIT=${LIMIT:-240}
. "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || skip "namespaces are made by root only"
need ip nsenter curl git nginx ab openssl setpriv "$PYTHON"
. "$HERE/helpers/tenant.sh"
. "$HERE/helpers/http.sh"
POSTGRES=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
NOBODY=(setpriv --reuid nobody --regid "$(id -gn nobody)" --clear-groups)
# PostgreSQL is another user's: so is its attachment.
MORE=('mode = "0666"')
chmod 755 "$TMP"

# ---- the world -----------------------------------------------------------------------------------------------------

make_repository() {
    git init --quiet --initial-branch=main "$TMP/work"
    cp "$TMP/large" "$TMP/small" "$TMP/work/"
    git -C "$TMP/work" add .
    git -C "$TMP/work" -c user.name=t -c user.email=t@t -c commit.gpgsign=false commit --quiet -m all --date @0
    git clone --quiet --bare "$TMP/work" "$TMP/www/repository.git"
    git -C "$TMP/www/repository.git" update-server-info
}

# An index of packages with one package.
make_index() {
    local wheel=tested_thing-1.0-py3-none-any.whl
    mkdir -p "$TMP/www/simple/tested-thing"
    "$PYTHON" - "$TMP/www/simple/tested-thing/$wheel" <<'END'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    wheel.writestr("tested_thing.py", "ANSWER = 42\n")
    for name, text in (
        ("METADATA", "Metadata-Version: 2.1\nName: tested-thing\nVersion: 1.0\n"),
        ("WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
        ("RECORD", ""),
    ):
        wheel.writestr("tested_thing-1.0.dist-info/" + name, text)
END
    echo "<a href=\"$wheel\">$wheel</a>" >"$TMP/www/simple/tested-thing/index.html"
}

make_world() {
    local folder=$TMP/world
    mkdir -p "$folder" "$TMP/www/upload"
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=world -addext "subjectAltName=IP:$WORLD" -keyout "$TMP/key.pem" -out "$TMP/cert.pem" \
        2>"$TMP/openssl.log" || fail "openssl: $(cat "$TMP/openssl.log")"
    nginx_server "$folder" 1 "
        listen $WORLD:8000;
        listen $WORLD:8443 ssl;
        ssl_certificate $TMP/cert.pem;
        ssl_certificate_key $TMP/key.pem;
        root $TMP/www;
        index index.html;
        location /from-java { dav_methods PUT; }"
    WORLD_CONFIGURATION=$folder/nginx.conf
}

# ---- what programs see ---------------------------------------------------------------------------------------------

git_and_pip() {
    rm -rf "$TMP/got" "$TMP/www/from-java"
    mkdir "$TMP/got"
    try "git over https" "${IN[@]}" env "GIT_SSL_CAINFO=$TMP/cert.pem" git clone --quiet "https://$WORLD:8443/repository.git" "$TMP/got/repository"
    observe "git over https: $(checksum "$TMP/got/repository/large")"
    try "git that trusts others" "${IN[@]}" env -u GIT_SSL_CAINFO git clone --quiet "https://$WORLD:8443/repository.git" "$TMP/got/another"
    if "$PYTHON" -m pip --version >/dev/null 2>&1; then
        local pip=("$PYTHON" -m pip --isolated --disable-pip-version-check --no-cache-dir --retries 0)
        try "pip" "${IN[@]}" "${pip[@]}" install --quiet --target "$TMP/got/pip" --trusted-host "$WORLD" --index-url "http://$WORLD:8000/simple" tested-thing
        observe "pip: $(cd "$TMP/got/pip" && "$PYTHON" -c 'import tested_thing; print(tested_thing.ANSWER)')"
        try "pip over https" "${IN[@]}" "${pip[@]}" download --quiet --dest "$TMP/got/wheels" --cert "$TMP/cert.pem" --index-url "https://$WORLD:8443/simple" tested-thing
        observe "pip over https: $(ls "$TMP/got/wheels")"
        try "pip, no such package" "${IN[@]}" "${pip[@]}" download --quiet --dest "$TMP/got/wheels" --trusted-host "$WORLD" --index-url "http://$WORLD:8000/simple" nothing
    else
        left_out "pip"
    fi
}

# queries BY... -- ADDRESS PORT: psql and pgbench.
queries() {
    local name=$1 address=$2 port=$3
    shift 3
    local psql=("$@" "$POSTGRES/psql" -h "$address" -p "$port" -U tester -d postgres -At)
    try "$name" "${psql[@]}" -c 'select sum(i) from generate_series(1, 1000) i'
    observe "$name: $(cat "$TMP/client.log")"
    try "$name: who" "${psql[@]}" -c 'select host(inet_client_addr()), host(inet_server_addr())'
    observe "$name: who: $(sed "s/$HOST_ADDRESS|/$OWN|/" "$TMP/client.log")"
    try "$name: rows" "${psql[@]}" -c 'select i, md5(i::text) from generate_series(1, 100000) i'
    observe "$name: rows: $(checksum "$TMP/client.log")"
    try "$name: bench" "$@" "$POSTGRES/pgbench" -h "$address" -p "$port" -U tester -n -i -s 1 postgres
    try "$name: bench" "$@" "$POSTGRES/pgbench" -h "$address" -p "$port" -U tester -n -c 4 -t 50 postgres
    observe "$name: bench: $(grep 'actually processed' "$TMP/client.log")"
}

# postgres_ ADDRESS PORT BY...
postgres_() {
    local address=$1 port=$2
    shift 2
    rm -rf "$TMP/postgres/data"
    cp -a "$TMP/postgres/fresh" "$TMP/postgres/data"
    start postgres "$@" "${NOBODY[@]}" "$POSTGRES/postgres" -D "$TMP/postgres/data" -p "$port" -k '' -h "$address" -c fsync=off
}

postgresql() {
    if [ ! -x "$POSTGRES/postgres" ]; then
        left_out "PostgreSQL"
        return
    fi
    postgres_ "$WORLD" 5432 "${OUT[@]}"
    until_true 20 "PostgreSQL outside" "${OUT[@]}" "$POSTGRES/pg_isready" -q -h "$WORLD" -p 5432
    queries psql "$WORLD" 5432 "${IN[@]}"
    stop "$LAST_STARTED"
    postgres_ 0.0.0.0 80 "${IN[@]}"
    until_true 20 "PostgreSQL inside" "${OUT[@]}" "$POSTGRES/pg_isready" -q -h "${AT%:*}" -p "${AT#*:}"
    queries PostgreSQL "${AT%:*}" "${AT#*:}" "${OUT[@]}"
    stop "$LAST_STARTED"
}

java_() {
    if ! command -v javac >/dev/null; then
        left_out "Java"
        return
    fi
    try "Java, client" "${IN[@]}" java -Xshare:auto -cp "$TMP/classes" Web client "http://$WORLD:8000"
    observe "Java, client: $(cat "$TMP/client.log")"
    # Its own resolver asks over UDP, and over TCP what does not fit.
    local server=$WORLD
    [ "$MODE" = kernel ] || server=192.0.2.53
    start names "${OUT[@]}" "$PYTHON" "$HERE/helpers/dns_server.py" "$WORLD" 53 "$WORLD"
    until_true 10 "the world's names" listens "$OUTSIDE" 53
    try "Java, names" "${IN[@]}" java -Xshare:auto -cp "$TMP/classes" Names "$server" four.world.test alias.world.test many.world.test missing.world.test
    observe "Java, names: $(cat "$TMP/client.log")"
    start java "${IN[@]}" java -Xshare:auto -cp "$TMP/classes" Web server 80
    until_true 20 "Java inside" answers
    serves "Java, server"
    stop "$LAST_STARTED"
}

node_() {
    if ! command -v node >/dev/null; then
        left_out "Node"
        return
    fi
    try "Node, client" "${IN[@]}" node -e "
const http = require('http'), hash = require('crypto').createHash, agent = new http.Agent({keepAlive: true, maxSockets: 8});
const get = path => new Promise((done, fail) => http.get('http://$WORLD:8000' + path, {agent}, r => {
    const sum = hash('sha256');
    r.on('data', d => sum.update(d)).on('end', () => done(r.statusCode + ' ' + sum.digest('hex')));
}).on('error', fail));
(async () => {
    console.log(await get('/large'), new Set(await Promise.all(Array.from({length: 64}, () => get('/small')))).size);
    await fetch('http://$WORLD:8000/small').then(r => r.text()).then(t => console.log(t.length));
    http.get('http://$WORLD:1/').on('error', e => { console.log(e.code); agent.destroy(); });
})();"
    observe "Node, client: $(cat "$TMP/client.log")"
    start node "${IN[@]}" node -e "
require('http').createServer((request, response) => {
    let length = 0;
    request.on('data', d => { length += d.length; }).on('end', () => {
        const s = request.socket;
        response.end([s.remoteAddress, s.localAddress + ':' + s.localPort, length].join(' ').replaceAll('::ffff:', '') + '\n');
    });
}).listen(80, '0.0.0.0');"
    until_true 10 "Node inside" answers
    serves "Node, server"
    stop "$LAST_STARTED"
}

# serves NAME: a server inside, that answers with the client, itself, and how much it was sent.
serves() {
    try "$1" "${OUT[@]}" curl --silent "http://$AT/"
    observe "$1: $(cat "$TMP/client.log")"
    try "$1, upload" "${OUT[@]}" curl --silent -H Expect: -T "$TMP/large" "http://$AT/upload"
    observe "$1, upload: $(cat "$TMP/client.log")"
    try "$1, ab" "${OUT[@]}" ab -q -n 500 -c 16 "http://$AT/"
    observe "$1, ab: $(grep -E '^(Complete|Failed) requests' "$TMP/client.log" | xargs)"
    try "$1, ab, keep-alive" "${OUT[@]}" ab -q -k -n 2000 -c 16 "http://$AT/"
    observe "$1, ab, keep-alive: $(grep -E '^(Complete|Failed) requests' "$TMP/client.log" | xargs)"
}

scenario() {
    start world "${OUT[@]}" nginx -c "$WORLD_CONFIGURATION" -e "$TMP/world/error.log"
    until_true 10 "the world's server" listens "$OUTSIDE" 8000
    git_and_pip
    postgresql
    java_
    node_
}

make_namespaces || skip "no network namespace can be made"
for name in "$INSIDE" "$EMPTY"; do
    nsenter --net="/run/netns/$name" sh -c 'echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start'
done
mkdir "$TMP/www"
make_data "$TMP/large" 8000003 large
make_data "$TMP/small" 1000 small
cp "$TMP/large" "$TMP/small" "$TMP/www/"
make_repository
make_index
make_world
chmod -R a+rX "$TMP"
if command -v javac >/dev/null; then javac -d "$TMP/classes" "$HERE/helpers/Web.java" "$HERE/helpers/Names.java"; fi
if [ -x "$POSTGRES/postgres" ]; then
    mkdir "$TMP/postgres"
    chown nobody "$TMP/postgres"
    "${NOBODY[@]}" "$POSTGRES/initdb" -D "$TMP/postgres/fresh" -U tester -A trust --no-sync >"$TMP/initdb.log" 2>&1 || fail "initdb: $(tail -n 3 "$TMP/initdb.log")"
    echo 'host all all 10.0.0.0/8 trust' >>"$TMP/postgres/fresh/pg_hba.conf"
fi
compare_with_kernel true
