#!/bin/bash
# liburing's own tests that have to do with sockets, with and without the library, compared test by test. Their rings are made by inline
# calls, so what is made after them is kernel TCP in either case (SPECIFICATION.md, 8.5): what is looked for is harm.
#
# LIBURING_SOURCE  its source, if not Debian's
LIMIT=${LIMIT:-540}
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/suites.sh"
need cc make
TESTS="232c93d07b74 accept accept-link accept-reuse accept-test across-fork connect double-poll-crash fd-pass files-exit-hang-poll
    files-exit-hang-timeout poll poll-cancel poll-link poll-v-poll recv-msgall recv-msgall-stream recv-multishot ring-leak2 send-zerocopy
    send_recv send_recvmsg shutdown socket socket-rw socket-rw-eagain socket-rw-offset"
source_of liburing "${LIBURING_SOURCE:-}"
BUILT=$SUITE_SOURCES/liburing-build
if [ ! -e "$BUILT/complete" ]; then
    echo "== building"
    rm -rf "$BUILT"
    cp -r "$SOURCE" "$BUILT"
    {
        cd "$BUILT" && ./configure --cc=cc && make -C src -j "$(nproc)" &&
            make -k -C test -j "$(nproc)" CFLAGS="-O1 -g0" $(printf '%s.t ' $TESTS) && touch complete
    } >"$TMP/build.log" 2>&1 || skip "liburing's tests cannot be built: $(tail -n 1 "$TMP/build.log")"
fi
cd "$TMP"
code=0
limited 10 "$BUILT/test/socket.t" >"$TMP/first.log" 2>&1 || code=$?
if [ "$code" = 77 ] || grep -q 'Function not implemented\|Operation not permitted' "$TMP/first.log"; then
    skip "the kernel gives no rings: $(tail -n 1 "$TMP/first.log")"
fi

alone() {
    local code=0
    mkdir -p "$TMP/work.$1"
    cd "$TMP/work.$1"
    in_way "$1" 30 "$BUILT/test/$2.t" >>"$TMP/$1.log" 2>&1 || code=$?
    echo "ends-with-$code"
}

suite() {
    local test
    for test in $TESTS; do
        echo "$test $(alone "$1" "$test")"
    done >"$2"
}

# One has its sockets before it makes its ring, and uses them by it only: that is not noticed. The other's go on as local sockets, over which
# nothing is sent without a copy.
kept() {
    case $1 in
        232c93d07b74 | send-zerocopy) echo 8.5 ;;
    esac
}

compare_suite
