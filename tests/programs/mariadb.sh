#!/bin/bash
# MariaDB: a thread for each connection and a pool of threads; many clients, large rows, a statement that is killed, a connection each.
. "$(dirname "$0")/common.sh"
need mariadbd mariadb mariadb-slap mariadb-install-db
AS=()
[ "$(id -u)" != 0 ] || AS=(--user=nobody)

sql() {
    limited 60 "${CLIENT[@]}" mariadb --protocol=tcp -h 127.0.0.1 -P "$PORT" -u root -N -B -e "$1" 2>&1 || echo "exit $?"
}

scenario() {
    DATA=$HOME_/data
    rm -rf "$DATA"
    cp -a "$HOME_/fresh" "$DATA"
    free_port PORT
    start mariadb "${SERVER[@]}" mariadbd --no-defaults "${AS[@]}" --datadir="$DATA" --port="$PORT" --bind-address=127.0.0.1 \
        --socket="$HOME_/mariadb.sock" --skip-grant-tables --skip-networking=0 --max-allowed-packet=64M --thread-handling="$1"
    wait_port "$PORT" mariadb
    local server=$LAST_STARTED
    observe "version: $(sql 'select 1')"
    sql 'create database work' >/dev/null
    sql "create table work.numbers as with recursive n as (select 1 i union all select i + 1 from n where i < 900) select a.i * 1000 + b.i i, md5(a.i * b.i) t from n a, n b where a.i <= 50; create unique index n on work.numbers (i)" >/dev/null
    observe "rows: $(sql 'select i, t from work.numbers order by i' | checksum -)"
    observe "large: $(sql "select repeat('0123456789abcdef', 1000000)" | checksum -)"
    local code=0
    limited 60 "${CLIENT[@]}" mariadb-slap --protocol=tcp -h 127.0.0.1 -P "$PORT" -u root --concurrency=8 --iterations=1 \
        --number-of-queries=2000 --create-schema=work --query='select t from numbers where i = 1077' >"$TMP/slap.log" 2>&1 || code=$?
    observe "many: exit $code"
    for code in 1 2 3 4 5 6 7 8 9 10; do
        sql "select $code, t from work.numbers where i = 1000 + $code"
    done >"$TMP/each"
    observe "a connection each: $(checksum "$TMP/each")"
    sql 'select sleep(60)' >"$TMP/killed.log" &
    until_true 10 "the statement" eval '[ -n "$(sql "select id from information_schema.processlist where info like '"'%sleep(60)%'"' and id <> connection_id()")" ]'
    sql "kill $(sql "select id from information_schema.processlist where info like '%sleep(60)%' and id <> connection_id()")"
    wait $!
    observe "killed: $(xargs <"$TMP/killed.log")"
    stop "$server"
    observe "listens after the end: $(listening "$PORT" && echo yes || echo no)"
}

# A folder of its user's.
HOME_=$TMP/home
mkdir "$HOME_"
chmod a+rx "$TMP"
[ "$(id -u)" != 0 ] || chown nobody "$HOME_"
mariadb-install-db --no-defaults "${AS[@]}" --datadir="$HOME_/fresh" --skip-test-db >"$TMP/install.log" 2>&1 || fail "mariadb-install-db"
compare_modes scenario one-thread-per-connection
compare_modes scenario pool-of-threads
