#!/bin/bash
# Two tenants that may meet: nginx, redis and iperf3 of the one, curl, ab, redis-benchmark and iperf3 of the other, in a namespace that has
# nothing but loopback. Then a stranger, caps, a server that is killed, tables that change, and a common stack process.
LIMIT=${LIMIT:-120}
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
[ "$(id -u)" = 0 ] || skip "namespaces are made by root only"
[ "$NETCHANNEL_PROGRAM" != none ] || skip "there is nothing to compare with"
need ip nsenter unshare curl nginx ab redis-server redis-benchmark iperf3 "$PYTHON"
. "$HERE/helpers/tenant.sh"
. "$HERE/helpers/meeting.sh"

page() {
    in_tenant web curl --silent --max-time 2 "http://$DB/small" >"$TMP/page" && [ "$(checksum "$TMP/page")" = "$(checksum "$TMP/small")" ]
}

serve_pages() {
    local folder=$TMP/nginx
    rm -rf "$folder"
    mkdir -p "$folder/www"
    cp "$TMP/large" "$TMP/small" "$folder/www/"
    chmod -R a+rX "$TMP"
    nginx_page "$folder" 2
    start_in nginx db nginx -c "$folder/nginx.conf" -e "$folder/error.log"
    NGINX=$LAST_STARTED
    until_true 10 "the page of the other tenant" page
}

programs() {
    serve_pages
    expect "who" "$OWN $DB:80" "$(in_tenant web curl --silent "http://$DB/who")"
    in_tenant web curl --silent -o "$TMP/got" "http://$DB/large" || fail "curl"
    expect "large" "$(checksum "$TMP/large")" "$(checksum "$TMP/got")"
    in_tenant web ab -q -n 2000 -c 32 "http://$DB/small" >"$TMP/ab.log" || fail "ab: $(cat "$TMP/ab.log")"
    expect "ab" "Complete requests: 2000 Failed requests: 0" "$(grep -E '^(Complete|Failed) requests' "$TMP/ab.log" | xargs)"
    expect "a stranger" EACCES "$(errno stranger "$DB" 80)"
    expect "a stranger's address" EACCES "$(errno db 10.88.0.4 80)"
    expect "a port at which nobody listens" ECONNREFUSED "$(errno web "$DB" 81)"
    start_in redis db redis-server --port 6379 --bind 0.0.0.0 --save '' --protected-mode no
    until_true 10 "redis of the other tenant" eval '[ "$(errno web "$DB" 6379)" = connected ]'
    in_tenant web redis-benchmark -h "$DB" -q -n 20000 -c 20 -P 4 -t set,get >"$TMP/redis.log" || fail "redis-benchmark"
    # The other way, with several streams.
    start_in iperf3 web iperf3 --server --port 5201
    until_true 10 "iperf3 of the first tenant" eval '[ "$(errno db "$OWN" 5201)" = connected ]'
    in_tenant db iperf3 --client "$OWN" --port 5201 --time 1 --parallel 8 --json >"$TMP/iperf3.json" || fail "iperf3: $(tail -n 3 "$TMP/iperf3.json")"
    CHECKED=$((CHECKED + 2))
}

for STACK in "" common; do
    if [ -z "$STACK" ]; then
        make_namespaces || skip "no network namespace can be made"
        make_data "$TMP/large" 30000003 large
        make_data "$TMP/small" 1000 small
    fi
    tables '"db"' '"web"'
    start_daemon
    programs
    if [ -z "$STACK" ]; then
        # A cap of the one who receives; two transfers of 4 MB at 8 MB/s, less the burst.
        tables '"db"' '"web"' 'rate-out = "8MB/s burst=64KiB"'
        reload
        before=$(date +%s%N)
        for _ in 1 2; do in_tenant web curl --silent "http://$DB/large" | head -c 4000000 >"$TMP/got" || true; done
        took=$((($(date +%s%N) - before) / 1000000))
        [ "$took" -ge 900 ] || fail "a cap of 8 MB/s let 8 MB through in $took ms"
        # A server that is killed within an answer.
        start client "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET" run web -- nsenter --net="/run/netns/$EMPTY" curl --silent -o /dev/null "http://$DB/large"
        sleep 0.5
        stop "$NGINX"
        code=0
        wait_end "$LAST_STARTED" 10 || code=$?
        [ "$code" != 0 ] || fail "curl ended well although its server was killed"
        expect "a server that ends" ECONNREFUSED "$(errno web "$DB" 80)"
        # Tables that name each other no more, and that do so in part.
        tables '' ''
        reload
        expect "tenants that meet no more" EACCES "$(errno web "$DB" 6379)"
        tables '"db"' ''
        code=0
        "$NETCHANNEL_PROGRAM" config check "$TMP/netchannel.toml" >"$TMP/check.log" 2>&1 || code=$?
        grep -q 'tenant db does not name web in turn: add meets = \["web"\]' "$TMP/check.log" || fail "config check: $(cat "$TMP/check.log")"
        CHECKED=$((CHECKED + 2))
    fi
    stop_all
    DAEMON=
done
echo "result: $CHECKED of $CHECKED held"
