#!/bin/bash
# PostgreSQL: a process for each connection, in one family with clients of its own; pgbench, with a connection for each transaction, too;
# COPY both ways, a query that is cancelled, a restart.
. "$(dirname "$0")/common.sh"
BIN=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
[ -x "$BIN/postgres" ] || skip "postgresql is not installed"
AS=()
if [ "$(id -u)" = 0 ]; then
    # It does not run as root.
    need setpriv
    AS=(setpriv --reuid nobody --regid "$(id -gn nobody)" --clear-groups)
fi

sql() {
    limited 60 "${CLIENT[@]}" "$BIN/psql" -h 127.0.0.1 -p "$PORT" -U tester -d postgres -At -c "$1" 2>&1 || echo "exit $?"
}

start_postgres() {
    start postgres "${AS[@]}" "${SERVER[@]}" "$BIN/postgres" -D "$DATA" -p "$PORT" -k '' -h 127.0.0.1 -c fsync=off
    wait_port "$PORT" postgres
    MASTER=$LAST_STARTED
    until_true 20 "an answer" "$BIN/pg_isready" -q -U tester -d postgres -h 127.0.0.1 -p "$PORT"
}

benchmark() {
    local name=$1 code=0
    shift
    limited 60 "${CLIENT[@]}" "$BIN/pgbench" -h 127.0.0.1 -p "$PORT" -U tester -n "$@" postgres >"$TMP/pgbench.log" 2>&1 || code=$?
    [ "$code" = 0 ] || tail -n 5 "$TMP/pgbench.log"
    observe "$name: exit $code, $(grep -E 'actually processed|failed transactions' "$TMP/pgbench.log" | xargs)"
}

scenario() {
    DATA=$HOME_/data
    rm -rf "$DATA"
    cp -a "$HOME_/fresh" "$DATA"
    free_port PORT
    start_postgres
    benchmark initialise -i -s 1
    benchmark select -S -c 8 -t 200
    benchmark update -c 4 -t 50
    benchmark "a connection each" -S -C -c 4 -t 50
    observe "sum $(sql 'select sum(abalance) = sum(bbalance) from pgbench_accounts, (select sum(bbalance) bbalance from pgbench_branches) b group by bbalance')"
    sql 'create table numbers as select i, md5(i::text) from generate_series(1, 200000) i' >/dev/null
    sql 'copy numbers to stdout' >"$TMP/copied"
    observe "copied out: $(checksum "$TMP/copied")"
    sql 'create table again (i int, t text)' >/dev/null
    limited 60 "${CLIENT[@]}" "$BIN/psql" -h 127.0.0.1 -p "$PORT" -U tester -d postgres -q -c 'copy again from stdin' <"$TMP/copied"
    observe "copied in: $(sql 'select count(*), sum(i), md5(string_agg(t, null order by i)) from again')"
    # A request to cancel is a connection of its own.
    local code=0
    limited 30 "${CLIENT[@]}" timeout -s INT 1 "$BIN/psql" -h 127.0.0.1 -p "$PORT" -U tester -d postgres -c 'select pg_sleep(60)' \
        >"$TMP/cancel.log" 2>&1 || code=$?
    observe "cancelled: exit $code, $(grep -c 'canceling statement due to user request' "$TMP/cancel.log")"
    # A backend that is killed takes the others with it, and all begin anew.
    sql 'select pg_sleep(60)' >"$TMP/killed.log" &
    until_true 10 "the backend" eval '[ "$(sql "select count(*) from pg_stat_activity where query like '"'%pg_sleep%'"' and pid <> pg_backend_pid()")" = 1 ]'
    kill -KILL "$(sql "select pid from pg_stat_activity where query like '%pg_sleep%' and pid <> pg_backend_pid()")"
    wait $!
    observe "killed: $(grep -c 'server closed the connection unexpectedly\|terminating connection' "$TMP/killed.log")"
    until_true 20 "an answer" "$BIN/pg_isready" -q -U tester -d postgres -h 127.0.0.1 -p "$PORT"
    observe "after it: $(sql 'select count(*) from again')"
    stop "$MASTER" INT
    start_postgres
    observe "after a restart: $(sql 'select count(*) from numbers')"
    stop "$MASTER" INT
}

# A folder of its user's.
HOME_=$TMP/home
mkdir "$HOME_"
chmod a+rx "$TMP"
[ "$(id -u)" != 0 ] || chown nobody "$HOME_"
"${AS[@]}" "$BIN/initdb" -D "$HOME_/fresh" -U tester --auth=trust --no-sync >"$TMP/initdb.log" 2>&1 || fail "initdb"
compare_modes scenario
