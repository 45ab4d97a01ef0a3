#!/bin/bash
# CPython's own network tests, with and without the library, compared test by test.
#
# A test that comes out differently is run again by itself, both ways, as often as CPYTHON_RETRIES says (default 2), and
# counts as different only if it differs every time.
#
# CPYTHON_SUITES   the suites to run
# CPYTHON_PYTHON   the interpreter: one that has its `test` package beside it
LIMIT=${LIMIT:-1500}
. "$(dirname "$0")/common.sh"
CPYTHON_PYTHON=${CPYTHON_PYTHON:-/usr/bin/python3.11}
SUITES=${CPYTHON_SUITES:-test_asyncio test_ssl test_socket test_selectors test_poll test_epoll test_select test_socketserver test_httplib}
need "$CPYTHON_PYTHON"
"$CPYTHON_PYTHON" -c 'import test.test_socket' 2>/dev/null || skip "$CPYTHON_PYTHON has no test suite (libpython3.11-testsuite)"

# run_suite WAY FOLDER SUITE: the file FOLDER/SUITE gets a line `TEST RESULT` for each test.
run_suite() {
    local way=$1 folder=$2 suite=$3 prefix=() code=0
    if [ "$way" = library ]; then prefix=("$NETCHANNEL_PROGRAM" run --socket "$SOCKET" --); fi
    mkdir -p "$folder" "$folder.work/$suite"
    : >"$folder/$suite"
    # Tests leave files in the current folder.
    cd "$folder.work/$suite"
    limited "${SUITE_LIMIT:-300}" "${prefix[@]}" "$CPYTHON_PYTHON" "$HERE/helpers/cpython_suite.py" "$suite" \
        "$folder/$suite" >"$folder/$suite.log" 2>&1 </dev/null || code=$?
    echo "$suite ends-with $code" >>"$folder/$suite"
}

# run_suites WAY FOLDER: all of them, four at a time; they mostly wait.
run_suites() {
    local suite running=()
    for suite in $SUITES; do
        if [ ${#running[@]} -ge 4 ]; then
            wait "${running[0]}"
            running=("${running[@]:1}")
        fi
        (trap - EXIT INT TERM; run_suite "$1" "$2" "$suite") &
        running+=("$!")
    done
    wait "${running[@]}"
}

# Tests with a verdict in a folder of results.
count_tests() {
    local suite
    for suite in $SUITES; do cat "$1/$suite"; done | grep -cvE ' ends-with [0-9]+$' || true
}

MODE=kernel
echo "== $(echo "$SUITES" | wc -w) suites without the library"
begun=$SECONDS
run_suites kernel "$TMP/kernel"
kernel_tests=$(count_tests "$TMP/kernel")
left_out "VSOCK tests of test_socket"
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
run_suites library "$TMP/library"
echo "$((SECONDS - begun)) s"

# Lines `SUITE TEST RESULT-WITHOUT RESULT-WITH` for all that differ.
differences() {
    local suite
    for suite in $SUITES; do
        join -a 1 -a 2 -e missing -o 0,1.2,2.2 <(sort -u "$TMP/kernel/$suite") <(sort -u "$TMP/library/$suite") |
            awk -v suite="$suite" '$2 != $3 { print suite, $1, $2, $3 }'
    done
}

# same_again TEST: whether the test, alone, comes out the same both ways in any of the tries. With many differences
# they are no accidents, and further tries would only take time.
same_again() {
    local try seconds=30
    case $1 in *.*) ;; *) seconds=150 ;; esac
    for ((try = 1; try <= ${CPYTHON_RETRIES:-2}; try++)); do
        if [ "$SECONDS" -gt "$RETRY_UNTIL" ]; then return 1; fi
        rm -rf "$TMP/again"
        SUITE_LIMIT=$seconds run_suite kernel "$TMP/again/kernel" "$1"
        SUITE_LIMIT=$seconds run_suite library "$TMP/again/library" "$1"
        # A test that cannot be run by its name has no line of its own.
        if grep -q "^$1 " "$TMP/again/kernel/$1" && cmp -s "$TMP/again/kernel/$1" "$TMP/again/library/$1"; then
            return 0
        fi
    done
    return 1
}

differences >"$TMP/differences"
different=0 flaky=0
RETRY_UNTIL=$((SECONDS + 240))
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
