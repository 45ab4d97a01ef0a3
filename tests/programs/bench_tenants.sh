#!/bin/bash
# The benchmarks of tenants, for a moment each: with the real daemon they give figures, and what must hold whatever the figures are is so.
LIMIT=${LIMIT:-60}
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/world.sh"
[ "$(id -u)" = 0 ] || skip "namespaces are made by root only"
[ "$NETCHANNEL_PROGRAM" != none ] || skip "there is nothing to compare with"
need ip unshare "$PYTHON"

# bench NAME WORDS...: its report is NAME.json.
bench() {
    local name=$1
    shift
    limited 30 "$NETCHANNEL_PROGRAM" bench "$@" --quiet --json >"$TMP/$name.json" 2>"$TMP/$name.log" || fail "bench $*: $(tail -c 500 "$TMP/$name.json")"
}

# read_report NAME PYTHON: what is printed of `report`.
read_report() {
    "$PYTHON" -c "import json; report = json.load(open('$TMP/$1.json')); $2"
}

# Servers and clients of a tenant, between tenants, and requests that are due.
bench tenants tenants stream latency colocated --kernel-only --seconds 0.2 --pairs 1
expect "cases with both ways" "stream stream-in colocated colocated-directly latency-1 latency-1000" \
    "$(read_report tenants "print(*[case['case'] for case in report['cases'] if len(case['rows']) == 2])")"

# A stack that is changed under load loses nothing.
bench switch switch --changes 2 --interval 0.4 --rate 100
expect "requests over changes of the stack" "4 0" \
    "$(read_report switch "print(len(report['requests']), sum(one['refused'] + one['reset'] + one['lost'] for one in report['requests']))")"

# Idle tenants are idle.
bench idle idle --tenants 3 --seconds 1
expect "ticks of idle tenants" "daemon 0 stack 0 library 0" \
    "$(read_report idle "print(*[word for part in report['parts'] for word in (part['part'], part['ticks'])])")"
echo "result: $CHECKED of $CHECKED held"
