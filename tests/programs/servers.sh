#!/bin/bash
# The speed of real servers of several processes or threads on one host: over kernel TCP and under `netchannel run`, in interleaved pairs on
# this machine, as a Markdown table of medians. Not part of `cargo xtask test`: it wants a machine that does nothing else, and takes some
# minutes. It ends with 1 where a run fails, not where a floor is missed.
#
#   servers.sh [--pairs N] [--seconds S] [ROW]...
#
#   --pairs N     pairs per row (default 3)
#   --seconds S   of each run (default 3; scp takes as long as it takes)
#   ROW           gunicorn gunicorn-clients uwsgi apache php php-clients postgresql mariadb scp (default: all; `apache` is apache-prefork,
#                 apache-worker and apache-event)
#
# In front of gunicorn and PHP, nginx is a proxy, whose own clients are elsewhere: they have kernel TCP both times, and only what nginx asks is
# compared. In the rows `-clients` its clients are under `netchannel run`, too.
#
# AGAINST   another build's `netchannel` to compare with, instead of kernel TCP
usage() {
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
}

PAIRS=3
DURATION=3
ROWS=()
while [ $# != 0 ]; do
    case $1 in
        --pairs | --seconds)
            [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || {
                echo "$1 takes a whole number" >&2
                exit 2
            }
            if [ "$1" = --pairs ]; then PAIRS=$2; else DURATION=$2; fi
            shift 2
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        apache) ROWS+=(apache-prefork apache-worker apache-event) && shift ;;
        gunicorn | gunicorn-clients | uwsgi | apache-prefork | apache-worker | apache-event | php | php-clients | postgresql | mariadb | scp)
            ROWS+=("$1") && shift
            ;;
        *)
            echo "there is no row $1 (--help lists them)" >&2
            exit 2
            ;;
    esac
done
[ ${#ROWS[@]} != 0 ] || ROWS=(gunicorn gunicorn-clients uwsgi apache-{prefork,worker,event} php php-clients postgresql mariadb scp)

LIMIT=${LIMIT:-3600}
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
. "$HERE/helpers/pairs.sh"

# installed ROW PROGRAM|PATH...: says what a row lacks, if anything.
installed() {
    local row=$1 program
    shift
    for program; do
        [ -e "$program" ] || command -v "$program" >/dev/null || {
            left_out "$row: $program is not installed"
            return 1
        }
    done
}

# one FUNCTION ARGUMENTS...: one run, which must have taken the path that it is compared for.
one() {
    VIRTUAL=0
    "$@"
    count_virtual
    stop_scenario
    if [ "$MODE" = both ] && [ "$VIRTUAL" = 0 ]; then fail "$*: no connection took the way through memory"; fi
}

# ---- clients -------------------------------------------------------------------------------------------------------

# ready ADDRESS: until a request is answered; workers that were not yet there then have a moment to start.
ready() {
    until_true 20 "an answer of $1" curl --silent --fail --output "$TMP/fetched" "$1"
    sleep 0.7
}

# ab_rate NAME ADDRESS: 8 clients, a connection for each request.
ab_rate() {
    # It makes room for all its requests when it starts, so not for more than there can be.
    limited $((DURATION + 30)) "${CLIENT[@]}" ab -q -c 8 -t "$DURATION" -n $((DURATION * 400000)) "$2" >"$TMP/ab.log" 2>&1 ||
        fail "$1: $(tail -n 3 "$TMP/ab.log")"
    grep -qE '^Failed requests: +0$' "$TMP/ab.log" || fail "$1: $(grep '^Failed' "$TMP/ab.log")"
    ! grep '^Non-2xx' "$TMP/ab.log" || fail "$1: other answers"
    record "$1" "$(sed -n 's/^Requests per second: *\([0-9.]*\).*/\1/p' "$TMP/ab.log")"
}

# wrk_rate NAME ADDRESS OPTIONS...: 8 clients.
wrk_rate() {
    local name=$1
    limited $((DURATION + 30)) "${CLIENT[@]}" wrk -t 2 -c 8 -d "$DURATION" "${@:3}" "$2" >"$TMP/wrk.log" 2>&1 ||
        fail "$name: $(tail -n 3 "$TMP/wrk.log")"
    ! grep -E 'Socket errors|Non-2xx' "$TMP/wrk.log" || fail "$name: requests failed"
    record "$name" "$(sed -n 's/^Requests\/sec: *//p' "$TMP/wrk.log")"
}

# ---- behind nginx --------------------------------------------------------------------------------------------------

# start_nginx LOCATION: a proxy, which is a client of what it asks.
start_nginx() {
    free_port PORT
    local folder=$TMP/nginx
    mkdir -p "$folder"
    chmod a+rwx "$folder"
    cat >"$folder/nginx.conf" <<CONFIGURATION
pid $folder/nginx.pid;
error_log $folder/nginx.log;
daemon off;
$([ "$(id -u)" != 0 ] || echo "user nobody $(id -gn nobody);")
worker_processes 2;
events { worker_connections 256; }
http {
    access_log off;
    $(nginx_folders "$folder")
    server { listen 127.0.0.1:$PORT; location / { $1 } }
}
CONFIGURATION
    start nginx "${CLIENT[@]}" nginx -c "$folder/nginx.conf" -e "$folder/nginx.log"
    wait_port "$PORT" nginx
}

# gunicorn ROW
gunicorn_behind() {
    free_port BEHIND
    start gunicorn "${SERVER[@]}" gunicorn --bind "127.0.0.1:$BEHIND" --workers 4 --worker-class sync --chdir "$TMP" \
        --worker-tmp-dir "$TMP" slow:application
    wait_port "$BEHIND" gunicorn
    until_true 20 "four workers" eval '[ "$(grep -c "Booting worker" "$TMP/gunicorn.log")" = 4 ]'
    start_nginx "proxy_pass http://127.0.0.1:$BEHIND;"
    [ "$1" = gunicorn-clients ] || CLIENT=()
    ready "http://127.0.0.1:$PORT/"
    ab_rate "$1" "http://127.0.0.1:$PORT/"
}

php_behind() {
    free_port BEHIND
    cat >"$TMP/fpm.conf" <<CONFIGURATION
[global]
error_log = $TMP/fpm-error.log
daemonize = no
[www]
listen = 127.0.0.1:$BEHIND
$([ "$(id -u)" != 0 ] || printf 'user = nobody\ngroup = %s' "$(id -gn nobody)")
pm = static
pm.max_children = 4
CONFIGURATION
    start fpm "${SERVER[@]}" "$FPM" --nodaemonize --fpm-config "$TMP/fpm.conf"
    wait_port "$BEHIND" fpm
    start_nginx "fastcgi_param SCRIPT_FILENAME $TMP/short.php; fastcgi_param REQUEST_METHOD \$request_method; fastcgi_pass 127.0.0.1:$BEHIND;"
    [ "$1" = php-clients ] || CLIENT=()
    ready "http://127.0.0.1:$PORT/"
    ab_rate "$1" "http://127.0.0.1:$PORT/"
}

with_clients() {
    [[ $1 != *-clients ]] || echo ", with nginx's clients"
}

# ---- other servers of the web --------------------------------------------------------------------------------------

uwsgi_threads() {
    free_port PORT
    start uwsgi "${SERVER[@]}" uwsgi --plugin python3 --http-socket "127.0.0.1:$PORT" --master --need-app --die-on-term \
        --disable-logging --wsgi-file "$TMP/quick.py" --processes 2 --threads 4 --enable-threads --thunder-lock
    wait_port "$PORT" uwsgi
    ready "http://127.0.0.1:$PORT/"
    ab_rate uwsgi "http://127.0.0.1:$PORT/"
}

# apache prefork|worker|event: what it has by itself, so 100 requests for a connection that is kept.
apache_way() {
    free_port PORT
    cat >"$TMP/apache.conf" <<CONFIGURATION
ServerRoot $TMP
ServerName localhost
PidFile $TMP/apache.pid
ErrorLog $TMP/apache-error.log
LoadModule mpm_$1_module $MODULES/mod_mpm_$1.so
LoadModule authz_core_module $MODULES/mod_authz_core.so
IncludeOptional /etc/apache2/mods-available/mpm_$1.conf
$([ "$(id -u)" != 0 ] || printf 'User nobody\nGroup %s' "$(id -gn nobody)")
Listen 127.0.0.1:$PORT
DocumentRoot $TMP/www
<Directory $TMP/www>
    Require all granted
</Directory>
CONFIGURATION
    start apache "${SERVER[@]}" "$APACHE" -f "$TMP/apache.conf" -DFOREGROUND
    wait_port "$PORT" apache
    ready "http://127.0.0.1:$PORT/small"
    wrk_rate "apache-$1-keep-alive" "http://127.0.0.1:$PORT/small"
    wrk_rate "apache-$1-close" "http://127.0.0.1:$PORT/small" -H 'Connection: close'
}

# ---- databases -----------------------------------------------------------------------------------------------------

start_postgres() {
    free_port PORT
    start postgres "${AS[@]}" "${SERVER[@]}" "$BIN/postgres" -D "$OWNED/postgres" -p "$PORT" -k '' -h 127.0.0.1 -c fsync=off
    wait_port "$PORT" postgres
    until_true 20 "an answer" "$BIN/pg_isready" -q -U tester -d postgres -h 127.0.0.1 -p "$PORT"
}

# Twenty seconds beside the run itself are for its start and end.
pgbench_run() {
    limited $((DURATION + 20)) "${CLIENT[@]}" "$BIN/pgbench" -h 127.0.0.1 -p "$PORT" -U tester -n "$@" postgres >"$TMP/pgbench.log" 2>&1 ||
        fail "pgbench: $(tail -n 3 "$TMP/pgbench.log")"
}

pgbench_rate() {
    local name=$1
    shift
    pgbench_run -S -c 8 -T "$DURATION" "$@"
    record "$name" "$(sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$TMP/pgbench.log")"
}

postgresql() {
    start_postgres
    pgbench_rate postgresql-select
    pgbench_rate postgresql-connect -C
    stop "$LAST_STARTED" INT
}

prepare_postgresql() {
    MODE=kernel SERVER=() CLIENT=()
    "${AS[@]}" "$BIN/initdb" -D "$OWNED/postgres" -U tester --auth=trust --no-sync >"$TMP/initdb.log" 2>&1 || fail "initdb"
    start_postgres
    pgbench_run -i -s 1
    stop "$LAST_STARTED" INT
}

start_mariadb() {
    free_port PORT
    local as=()
    [ "$(id -u)" != 0 ] || as=(--user=nobody)
    start mariadb "${SERVER[@]}" mariadbd --no-defaults "${as[@]}" --datadir="$OWNED/mariadb" --port="$PORT" --bind-address=127.0.0.1 \
        --socket="$OWNED/mariadb.sock" --skip-grant-tables --skip-networking=0
    wait_port "$PORT" mariadb
}

sysbench_run() {
    limited $((DURATION + 30)) "${CLIENT[@]}" sysbench --db-driver=mysql --mysql-host=127.0.0.1 --mysql-port="$PORT" --mysql-user=root \
        --mysql-db=work --table-size=10000 --threads=1 "$@" >"$TMP/sysbench.log" 2>&1 || fail "sysbench: $(tail -n 3 "$TMP/sysbench.log")"
}

mariadb_sysbench() {
    start_mariadb
    local work
    for work in read_only point_select; do
        sysbench_run --time="$DURATION" "oltp_$work" run
        record "mariadb-$work" "$(sed -n 's/^ *transactions: .*(\([0-9.]*\) per sec.*/\1/p' "$TMP/sysbench.log")"
    done
    stop "$LAST_STARTED"
}

prepare_mariadb() {
    local as=()
    [ "$(id -u)" != 0 ] || as=(--user=nobody)
    MODE=kernel SERVER=() CLIENT=()
    mariadb-install-db --no-defaults "${as[@]}" --datadir="$OWNED/mariadb" --skip-test-db >"$TMP/install.log" 2>&1 || fail "mariadb-install-db"
    start_mariadb
    limited 20 mariadb --protocol=tcp -h 127.0.0.1 -P "$PORT" -u root -e 'create database work' || fail "no database"
    sysbench_run oltp_read_only prepare
    stop "$LAST_STARTED"
}

# ---- sshd ----------------------------------------------------------------------------------------------------------

scp_there() {
    free_port PORT
    cat >"$TMP/sshd_config" <<CONFIGURATION
ListenAddress 127.0.0.1:$PORT
HostKey $TMP/host
PidFile none
AuthorizedKeysFile $TMP/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
Subsystem sftp $SFTP
CONFIGURATION
    start sshd "${SERVER[@]}" "$SSHD" -D -e -f "$TMP/sshd_config"
    wait_port "$PORT" sshd
    local began=$EPOCHREALTIME ended
    limited 120 "${CLIENT[@]}" scp -F none -q -i "$TMP/user" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
        -o BatchMode=yes -P "$PORT" "$TMP/sent" "$(id -un)@127.0.0.1:$TMP/copied" >"$TMP/scp.log" 2>&1 || fail "scp: $(tail -n 3 "$TMP/scp.log")"
    ended=$EPOCHREALTIME
    cmp -s "$TMP/sent" "$TMP/copied" || fail "scp: what came is not what was sent"
    rm "$TMP/copied"
    record scp "$(awk -v began="$began" -v ended="$ended" 'BEGIN { print 500 / (ended - began) }')"
}

prepare_scp() {
    ssh-keygen -q -t ed25519 -N '' -f "$TMP/host"
    ssh-keygen -q -t ed25519 -N '' -f "$TMP/user"
    make_data "$TMP/sent" 500000000 scp
    [ "$(id -u)" != 0 ] || mkdir -p /run/sshd
}

# ---- all of it -----------------------------------------------------------------------------------------------------

# Users that the servers change to read it.
chmod a+rx "$TMP"
# A folder of the databases' user, which is not root.
OWNED=$TMP/owned
mkdir "$OWNED" "$TMP/www"
AS=()
if [ "$(id -u)" = 0 ]; then
    chown nobody "$OWNED"
    AS=(setpriv --reuid nobody --regid "$(id -gn nobody)" --clear-groups)
fi
APACHE=/usr/sbin/apache2
MODULES=/usr/lib/apache2/modules
BIN=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
FPM=$(ls /usr/sbin/php-fpm* 2>/dev/null | tail -n 1)
SSHD=/usr/sbin/sshd
SFTP=/usr/lib/openssh/sftp-server
make_data "$TMP/www/small" 4000 small
echo '<?php echo "short";' >"$TMP/short.php"
for name in slow:0.05 quick:0; do
    cat >"$TMP/${name%:*}.py" <<APPLICATION
import time


def application(environ, start_response):
    if ${name#*:}:
        time.sleep(${name#*:})
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "6")])
    return [b"hello\n"]
APPLICATION
done
chmod a+r "$TMP"/*.php "$TMP"/*.py "$TMP/www/small"

start_daemons
table_head
for name in "${ROWS[@]}"; do
    case $name in
        gunicorn*)
            installed "$name" gunicorn nginx ab curl || continue
            pairs one gunicorn_behind "$name"
            row "$name" "nginx in front of gunicorn sync -w 4, 50 ms of work, c = 8$(with_clients "$name")" "1/s" more 1.0 1.1
            ;;
        uwsgi)
            installed "$name" uwsgi ab curl /usr/lib/uwsgi/plugins/python3_plugin.so || continue
            pairs one uwsgi_threads
            row uwsgi "uWSGI thunder lock, 2 processes of 4 threads, c = 8" "1/s" more 1.2 2
            ;;
        apache-*)
            installed "$name" "$APACHE" wrk curl || continue
            pairs one apache_way "${name#apache-}"
            row "$name-keep-alive" "Apache ${name#apache-}, keep-alive, c = 8" "1/s" more 1.3 2
            row "$name-close" "Apache ${name#apache-}, close, c = 8" "1/s" more 1.5 3
            ;;
        php*)
            installed "$name" "${FPM:-php-fpm}" nginx ab curl || continue
            pairs one php_behind "$name"
            row "$name" "nginx in front of PHP-FPM, c = 8$(with_clients "$name")" "1/s" more 1.05 1.15
            ;;
        postgresql)
            installed "$name" "${BIN:+$BIN/}postgres" "${BIN:+$BIN/}pgbench" || continue
            prepare_postgresql
            pairs one postgresql
            row postgresql-select "PostgreSQL, pgbench select -c 8" "1/s" more 1.1 1.3
            row postgresql-connect "PostgreSQL, pgbench select -c 8 -C" "1/s" more 1.0 1.1
            ;;
        mariadb)
            installed "$name" mariadbd mariadb mariadb-install-db sysbench || continue
            prepare_mariadb
            pairs one mariadb_sysbench
            row mariadb-read_only "MariaDB, sysbench oltp_read_only, 1 thread" "1/s" more 1.0 1.2
            row mariadb-point_select "MariaDB, sysbench oltp_point_select, 1 thread" "1/s" more 1.0 1.2
            ;;
        scp)
            installed "$name" "$SSHD" ssh scp ssh-keygen openssl "$SFTP" || continue
            prepare_scp
            pairs one scp_there
            row scp "scp of 500 MB" "MB/s" more 0.97 1.05
            ;;
    esac
done
stop_daemons
