#!/bin/bash
# rsync's daemon, a process for each connection: a tree there and back, a change, several at once.
. "$(dirname "$0")/common.sh"
need rsync

copy() {
    local name=$1 code=0
    shift
    limited 40 "${CLIENT[@]}" rsync --archive "$@" >"$TMP/client.log" 2>&1 || code=$?
    [ "$code" = 0 ] || tail -n 3 "$TMP/client.log"
    observe "$name: exit $code"
}

tree() {
    (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum | checksum -)
}

scenario() {
    rm -rf "$TMP/there" "$TMP/back" "$TMP/back2" "$TMP/back3"
    mkdir -p "$TMP/there"
    free_port PORT
    cat >"$TMP/rsyncd.conf" <<CONFIGURATION
use chroot = no
pid file = $TMP/rsyncd.pid
[files]
path = $TMP/there
read only = no
$([ "$(id -u)" != 0 ] || printf 'uid = root\ngid = root')
CONFIGURATION
    rm -f "$TMP/rsyncd.pid"
    start rsync "${SERVER[@]}" rsync --daemon --no-detach --config="$TMP/rsyncd.conf" --address=127.0.0.1 --port="$PORT"
    wait_port "$PORT" rsync
    local server=$LAST_STARTED url=rsync://127.0.0.1:$PORT/files
    copy there "$TMP/tree/" "$url/"
    observe "$(tree "$TMP/there")"
    copy back "$url/" "$TMP/back/"
    observe "$(tree "$TMP/back")"
    printf 'changed' | dd of="$TMP/back/large" bs=1 seek=1234567 conv=notrunc 2>/dev/null
    copy "a change" --ignore-times "$TMP/back/" "$url/"
    observe "$(tree "$TMP/there")"
    copy "one of two" "$url/" "$TMP/back2/" &
    copy "the other" "$url/" "$TMP/back3/"
    wait $!
    observe "$(tree "$TMP/back2") $(tree "$TMP/back3")"
    sort -o "$TMP/observed.$MODE" "$TMP/observed.$MODE"
    stop "$server"
}

mkdir -p "$TMP/tree/many"
make_data "$TMP/tree/large" 20000001 rsync
for i in $(seq 300); do echo "file $i" >"$TMP/tree/many/$i"; done
compare_modes scenario
