#!/bin/bash
# CPython's own network tests, with and without the library, compared test by test.
#
# A test that comes out differently is run again by itself, both ways, as often as CPYTHON_RETRIES says (default 2), and
# counts as different only if it differs every time.
#
# CPYTHON_SUITES   the suites to run
# CPYTHON_PYTHON   the interpreter: one that has its `test` package beside it
LIMIT=1500
. "$(dirname "$0")/common.sh"
CPYTHON_PYTHON=${CPYTHON_PYTHON:-/usr/bin/python3.11}
SUITES=${CPYTHON_SUITES:-test_socket test_selectors test_epoll test_poll test_select test_socketserver test_asyncio test_httplib test_ssl}
need "$CPYTHON_PYTHON"
"$CPYTHON_PYTHON" -c 'import test.test_socket' 2>/dev/null || skip "$CPYTHON_PYTHON has no test suite (libpython3.11-testsuite)"

# Tests leave files in the current folder.
mkdir "$TMP/work"
cd "$TMP/work"

# run_suites WAY FOLDER SUITE...: one result file FOLDER/SUITE per suite, with a line `TEST RESULT` for each test.
run_suites() {
    local way=$1 folder=$2 suite prefix=()
    shift 2
    mkdir -p "$folder"
    if [ "$way" = library ]; then prefix=("$NETCHANNEL_PROGRAM" run --socket "$SOCKET" --); fi
    for suite; do
        local code=0
        limited "${SUITE_LIMIT:-300}" "${prefix[@]}" "$CPYTHON_PYTHON" "$HERE/helpers/cpython_suite.py" "$suite" \
            "$folder/$suite" >"$folder/$suite.log" 2>&1 </dev/null || code=$?
        touch "$folder/$suite"
        echo "$suite ends-with $code" >>"$folder/$suite"
    done
}

MODE=kernel
echo "== $(echo "$SUITES" | wc -w) suites without the library"
begun=$SECONDS
run_suites kernel "$TMP/kernel" $SUITES
kernel_tests=$(cat "$TMP"/kernel/test_?????* | grep -cE ' (ok|skipped|expected-failure)$' || true)
cat "$TMP"/kernel/*.log | grep -E '^Ran ' || true
[ "$kernel_tests" -gt 0 ] || fail "no test ran without the library: $(tail -n 5 "$TMP"/kernel/*.log)"
echo "$kernel_tests tests, $((SECONDS - begun)) s"
if [ "$NETCHANNEL_PROGRAM" = none ]; then
    echo "result: $kernel_tests tests without the library"
    exit 0
fi

MODE=both
start_daemon
echo "== the same with the library"
begun=$SECONDS
run_suites library "$TMP/library" $SUITES
echo "$((SECONDS - begun)) s, $(virtual_connections) connections through memory"

# What differs: lines of `comm` that stand in one only, by test.
differences() {
    local suite
    for suite in $SUITES; do
        join -a 1 -a 2 -e missing -o 0,1.2,2.2 <(sort -u "$TMP/kernel/$suite") <(sort -u "$TMP/library/$suite") |
            awk -v suite="$suite" '$2 != $3 { print suite, $1, $2, $3 }'
    done
}

# same_again TEST: whether the test, alone, comes out the same both ways in any of the tries.
same_again() {
    local try
    for ((try = 1; try <= ${CPYTHON_RETRIES:-2}; try++)); do
        rm -rf "$TMP/again"
        SUITE_LIMIT=60 run_suites kernel "$TMP/again/kernel" "$1"
        SUITE_LIMIT=60 run_suites library "$TMP/again/library" "$1"
        if cmp -s "$TMP/again/kernel/$1" "$TMP/again/library/$1"; then return 0; fi
    done
    return 1
}

differences >"$TMP/differences"
different=0 flaky=0
while read -r suite test kernel library; do
    # The suite's own exit code follows from its tests.
    if [ "$test" = "$suite" ] && [ "$(grep -c "^$suite " "$TMP/differences")" -gt 1 ]; then continue; fi
    if same_again "$test"; then
        flaky=$((flaky + 1))
        echo "flaky: $test ($kernel without, $library with the library, the same when run alone)"
    else
        different=$((different + 1))
        echo "different: $test: $kernel without, $library with the library"
        grep -hE -B 2 -A 25 "^(FAIL|ERROR): ${test##*.} " "$TMP/library/$suite.log" | head -n 40 || true
    fi
done <"$TMP/differences"
stop_daemon
[ "$different" = 0 ] || fail "$different tests give another result with the library"
echo "result: $kernel_tests tests alike, $flaky of them only when run alone"
