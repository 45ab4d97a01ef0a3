#!/bin/bash
# libuv's own tests, with and without the library, compared test by test.
#
# LIBUV_SOURCE  its source, if not Debian's
LIMIT=${LIMIT:-540}
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/suites.sh"
need cc make cmake
source_of libuv1 "${LIBUV_SOURCE:-}"
BUILT=$SUITE_SOURCES/libuv-build
RUNNER=$BUILT/uv_run_tests_a
if [ ! -x "$RUNNER" ]; then
    echo "== building"
    rm -rf "$BUILT"
    mkdir -p "$BUILT"
    cp -r "$SOURCE" "$BUILT/source"
    # Both ways at the same time must not meet under one name.
    sed -i 's,"/tmp/uv-test-sock,"./uv-test-sock,' "$BUILT/source/test/task.h"
    {
        cmake -S "$BUILT/source" -B "$BUILT" -DCMAKE_BUILD_TYPE= -DCMAKE_C_FLAGS=-O1 &&
            cmake --build "$BUILT" --target uv_run_tests_a --parallel "$(nproc)"
    } >"$TMP/build.log" 2>&1 || skip "libuv's tests cannot be built: $(tail -n 1 "$TMP/build.log")"
fi
export UV_RUN_AS_ROOT=1

# Tests look for the fixtures of the source, and leave files.
for way in kernel library; do
    mkdir -p "$TMP/work.$way/test"
    cp -r "$SOURCE/test/fixtures" "$TMP/work.$way/test/"
done

# suite WAY FILE: lines `ok 1 - NAME`, `not ok 2 - NAME`, `ok 3 - NAME # SKIP why`.
suite() {
    cd "$TMP/work.$1"
    # Its exit code says that some failed.
    in_way "$1" 240 "$RUNNER" >"$TMP/$1.log" 2>&1 || true
    sed -nE 's/^ok [0-9]+ - ([a-z0-9_]+) # SKIP.*/\1 skipped/p; s/^ok [0-9]+ - ([a-z0-9_]+)$/\1 ok/p; s/^not ok [0-9]+ - ([a-z0-9_]+)$/\1 failed/p' \
        "$TMP/$1.log" >"$2"
}

alone() {
    cd "$TMP/work.$1"
    if in_way "$1" 60 "$RUNNER" "$2" >"$TMP/alone.log" 2>&1; then echo ok; else echo "ends-with-$?"; fi
}

kept() {
    :
}

compare_suite
