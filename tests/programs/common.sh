# Sourced by every real-program test.
#
# A test defines `scenario` and ends with `compare_modes scenario`. The scenario runs once per mode, starting servers
# with `start NAME "${SERVER[@]}" PROGRAM ...` and clients with "${CLIENT[@]}" PROGRAM ...:
#
#   mode      SERVER                  CLIENT
#   kernel    (nothing)               (nothing)               what everything else is compared with
#   both      netchannel run ... --   netchannel run ... --
#   server    netchannel run ... --   (nothing)
#   client    (nothing)               netchannel run ... --
#
# What the scenario tells `observe` must be the same in every mode; figures that differ from run to run do not go there.
#
# NETCHANNEL_PROGRAM  the program under test; `none`: only the kernel mode (to check the tests themselves)
# NETCHANNEL_MODES    modes to run after the kernel's, if not all: "both"
# NETCHANNEL_KEEP     keep the temporary folder
#
# Exit codes: 0 passed, 1 failed, 77 could not try. Lines `skipped: `, `left out: ` and `result: ` are read by xtask.

set -eu -o pipefail
exec </dev/null
# A signal can find the shell with its output redirected, in a function; `finish` speaks to these.
exec {OUTPUT}>&1 {ERRORS}>&2
shopt -s inherit_errexit

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
NETCHANNEL_PROGRAM=${NETCHANNEL_PROGRAM:-$HERE/../../target/release/netchannel}
LIMIT=${LIMIT:-180}
# The system's own Python, not whatever a version manager put into PATH.
PYTHON=/usr/bin/python3
export LC_ALL=C

skip() {
    echo "skipped: $*"
    exit 77
}

left_out() {
    echo "left out: $*"
}

fail() {
    echo "FAILED${MODE:+ ($MODE)}: $*" >&2
    exit 1
}

need() {
    local program
    for program; do
        command -v "$program" >/dev/null || skip "$program is not installed"
    done
}

if [ "$NETCHANNEL_PROGRAM" != none ] && [ ! -x "$NETCHANNEL_PROGRAM" ]; then
    skip "there is no $NETCHANNEL_PROGRAM (cargo build --release)"
fi

TMP=$(mktemp -d "${TMPDIR:-/tmp}/netchannel-test.XXXXXX")
SOCKET=$TMP/nc.sock
STARTED=()
LAST_STARTED=
MODE=
SERVER=()
CLIENT=()
DAEMON=
# That of another build, where two are compared.
OTHER_DAEMON=
DIFFERENT=0

# ---- children ------------------------------------------------------------------------------------------------------

# start NAME COMMAND...: runs it in the background, in a session of its own, with its output in $TMP/NAME.log.
start() {
    local name=$1
    shift
    setsid "$@" >"$TMP/$name.log" 2>&1 </dev/null {OUTPUT}>&- {ERRORS}>&- &
    LAST_STARTED=$!
    STARTED+=("$LAST_STARTED")
}

# adopt PID: treats a daemon that made a session of its own as if `start` had started it.
adopt() {
    LAST_STARTED=$1
    STARTED+=("$1")
}

alive() {
    [ -d "/proc/$1" ] && ! grep -q '^State:[[:space:]]Z' "/proc/$1/status" 2>/dev/null
}

# stop PID [SIGNAL]: asks a started program to end, and insists after five seconds; its whole session goes with it.
stop() {
    local pid=$1 signal=${2:-TERM} i
    count_virtual
    kill "-$signal" "$pid" 2>/dev/null || true
    for ((i = 0; i < 250; i++)); do
        alive "$pid" || break
        sleep 0.02
    done
    kill -KILL -- "-$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
}

stop_all() {
    local pid
    for pid in "${STARTED[@]}"; do
        kill -TERM -- "-$pid" 2>/dev/null || true
    done
    for pid in "${STARTED[@]}"; do
        stop "$pid"
    done
    STARTED=()
}

# wait_end PID SECONDS: waits for a started program to end by itself and returns its exit code. Says of one that does
# not end what each of its threads does.
wait_end() {
    local pid=$1 i thread
    for ((i = 0; i < $2 * 50; i++)); do
        alive "$pid" || break
        sleep 0.02
    done
    if alive "$pid"; then
        for thread in "/proc/$pid/task"/*; do
            printf '%s: %s, in %s, system call %s\n' "$thread" "$(grep -h '^State:' "$thread/status")" \
                "$(cat "$thread/wchan")" "$(cat "$thread/syscall")" >&2
        done
        fail "process $pid did not end within $2 s"
    fi
    wait "$pid"
}

# until_true SECONDS WHAT COMMAND...: repeats the command until it succeeds.
until_true() {
    local seconds=$1 what=$2 i
    shift 2
    for ((i = 0; i < seconds * 25; i++)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.04
    done
    fail "$what: not within $seconds s"
}

# limited SECONDS COMMAND...: a client that must end by itself. In the foreground, so that Ctrl-C reaches it.
limited() {
    timeout --foreground --kill-after=5 "$@" {OUTPUT}>&- {ERRORS}>&-
}

finish() {
    local code=$?
    trap - EXIT INT TERM
    set +e
    exec >&"$OUTPUT" 2>&"$ERRORS"
    DAEMON=
    kill "$WATCHDOG" 2>/dev/null
    stop_all
    if [ -e "$TMP/timed-out" ]; then
        echo "FAILED${MODE:+ ($MODE)}: still running after $LIMIT s" >&2
        code=1
    fi
    if [ "$code" = 0 ] && [ "$DIFFERENT" != 0 ]; then code=1; fi
    if [ "$code" != 0 ] && [ "$code" != 77 ]; then
        local log
        for log in "$TMP"/*.log; do
            [ -s "$log" ] || continue
            echo "--- ${log##*/} (its last lines)"
            tail -n 15 "$log"
        done
    fi
    if [ -n "${NETCHANNEL_KEEP:-}" ]; then echo "kept: $TMP"; else rm -rf "$TMP"; fi
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Ends what this script waits for in the foreground, and then the script, when it takes too long.
watchdog() {
    local script=$1 child stat fields
    sleep "$LIMIT"
    touch "$TMP/timed-out"
    for stat in /proc/[0-9]*/stat; do
        read -r fields 2>/dev/null <"$stat" || continue
        child=${fields%% *}
        set -- ${fields##*)}
        if [ "$2" = "$script" ] && [ "$child" != "$BASHPID" ]; then kill -TERM "$child" 2>/dev/null; fi
    done
    kill -TERM "$script"
}
set +e
# What it waits with outlives it, and must not keep a pipe open that somebody reads to its end.
(trap - EXIT INT TERM; watchdog $$) >/dev/null 2>&1 {OUTPUT}>&- {ERRORS}>&- &
WATCHDOG=$!
set -e
disown "$WATCHDOG"

# ---- ports ---------------------------------------------------------------------------------------------------------

# listening PORT: whether a TCP socket listens there, without connecting to it.
listening() {
    local port
    port=$(printf '%04X' "$1")
    grep -qE "^ *[0-9]+: [0-9A-F]+:$port [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# free_port VARIABLE: a port below the ephemeral ones that nothing uses, and not one that was found before.
FOUND_PORTS=' '
free_port() {
    local candidate
    while :; do
        candidate=$((10000 + RANDOM % 20000))
        if [[ $FOUND_PORTS == *" $candidate "* ]]; then continue; fi
        if ! grep -qE ":$(printf '%04X' "$candidate") " /proc/net/tcp /proc/net/tcp6 2>/dev/null; then break; fi
    done
    FOUND_PORTS+="$candidate "
    printf -v "$1" %d "$candidate"
}

# wait_port PORT [NAME]: until it is listened on; at once a failure when the program started last has ended.
wait_port() {
    local i
    for ((i = 0; i < 500; i++)); do
        if listening "$1"; then return 0; fi
        alive "$LAST_STARTED" || fail "the server for port $1 ended: $(tail -n 3 "$TMP/${2:-server}.log" 2>/dev/null)"
        sleep 0.02
    done
    fail "nothing listens on port $1 after 10 s"
}

has_ipv6() {
    grep -q '^00000000000000000000000000000001 ' /proc/net/if_inet6 2>/dev/null
}

# ---- data ----------------------------------------------------------------------------------------------------------

# make_data FILE BYTES SEED: bytes that look random and are the same for the same seed.
make_data() {
    openssl enc -aes-128-ctr -nosalt -pass "pass:$3" -md sha256 -in /dev/zero 2>/dev/null | head -c "$2" >"$1" || true
    [ "$(stat -c %s "$1")" = "$2" ] || fail "could not make $1"
}

checksum() {
    sha256sum "$@" | cut -d ' ' -f 1
}

# ---- modes ---------------------------------------------------------------------------------------------------------

observe() {
    printf '%s\n' "$*" >>"$TMP/observed.$MODE"
}

# The most connections through memory that the programs attached at one time had accepted. A program that has ended is
# no longer listed, so this is asked before one is stopped.
VIRTUAL=0

count_virtual() {
    local now
    [ "$MODE" = both ] && [ -n "$DAEMON" ] || return 0
    now=$("$PYTHON" "$HERE/helpers/virtual_connections.py" "$SOCKET") || fail "the daemon does not answer"
    if [ "$now" -gt "$VIRTUAL" ]; then VIRTUAL=$now; fi
}

# More options of the daemon, for scripts that set some.
DAEMON_OPTIONS=()
# What starts it, for scripts that have it elsewhere.
DAEMON_PREFIX=()

start_daemon() {
    start daemon "${DAEMON_PREFIX[@]}" "$NETCHANNEL_PROGRAM" daemon --socket "$SOCKET" "${DAEMON_OPTIONS[@]}"
    DAEMON=$LAST_STARTED
    VIRTUAL=0
    until_true 10 "the daemon's socket" test -S "$SOCKET"
}

stop_daemon() {
    alive "$DAEMON" || fail "the daemon ended by itself: $(tail -n 5 "$TMP/daemon.log")"
    local daemon=$DAEMON
    DAEMON=
    stop "$daemon"
    rm -f "$SOCKET" "$SOCKET.control"
}

# enter MODE: sets SERVER and CLIENT, and starts a daemon where one is needed.
enter() {
    MODE=$1
    local run=("$NETCHANNEL_PROGRAM" run --socket "$SOCKET" --)
    SERVER=() CLIENT=()
    case $MODE in
        kernel) return ;;
        both) SERVER=("${run[@]}") CLIENT=("${run[@]}") ;;
        server) SERVER=("${run[@]}") ;;
        client) CLIENT=("${run[@]}") ;;
        *) fail "there is no mode $MODE" ;;
    esac
    start_daemon
}

leave() {
    if [ "$MODE" != kernel ]; then
        # With both ends under the library, a scenario that stayed on kernel TCP has tested nothing.
        if [ "$MODE" = both ] && [ "${EXPECT_VIRTUAL:-yes}" = yes ] && [ "$VIRTUAL" = 0 ]; then
            fail "no connection took the way through memory"
        fi
        stop_daemon
    fi
    MODE=
}

# compare_modes FUNCTION ARGUMENTS...: runs it in every mode and compares what it observed with the kernel's.
compare_modes() {
    local modes=${NETCHANNEL_MODES:-both server client} mode count=0
    [ "$NETCHANNEL_PROGRAM" != none ] || modes=
    rm -f "$TMP"/observed.*
    for mode in kernel $modes; do
        echo "== $* ($mode)"
        enter "$mode"
        : >"$TMP/observed.$mode"
        "$@"
        [ -s "$TMP/observed.$mode" ] || fail "$1 observed nothing"
        count_virtual
        stop_scenario
        leave
        if ! diff -u --label kernel --label "$mode" "$TMP/observed.kernel" "$TMP/observed.$mode"; then
            echo "FAILED ($mode): $* saw something else than over kernel TCP (above)" >&2
            DIFFERENT=$((DIFFERENT + 1))
        fi
        count=$((count + 1))
    done
    # The other modes and scenarios still have something to say; `finish` makes it a failure.
    echo "result: $count modes, $(wc -l <"$TMP/observed.kernel") observations each"
}

# Ends what the scenario left running, but not the daemons.
stop_scenario() {
    local pid left=()
    for pid in "${STARTED[@]}"; do
        if [ "$pid" != "$DAEMON" ] && [ "$pid" != "$OTHER_DAEMON" ]; then
            stop "$pid"
        elif alive "$pid"; then
            left+=("$pid")
        fi
    done
    STARTED=("${left[@]}")
}
