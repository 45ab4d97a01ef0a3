#!/bin/bash
# This project's own torture program: seeded connections whose every byte is compared, processes killed at random, and families of servers
# and clients of drawn shapes.
#
# TORTURE_SECONDS   how long each kind runs (default 5)
# TORTURE_SEED      what is drawn from (default: the time; it is in the output of a failure)
. "$(dirname "$0")/common.sh"
if [ "$NETCHANNEL_PROGRAM" = none ]; then
    TORTURE=$HERE/../../target/release/torture
else
    TORTURE=$(dirname "$NETCHANNEL_PROGRAM")/torture
fi
[ -x "$TORTURE" ] || skip "there is no $TORTURE (cargo build --release --package netchannel-testkit)"
TORTURE_SECONDS=${TORTURE_SECONDS:-5}
TORTURE_SEED=${TORTURE_SEED:-$(date +%s)}

# Both ends are one program and its children, so there are only two ways to run it.
try() {
    local code=0
    start "$1" "${SERVER[@]}" "$TORTURE" "$1" --seconds "$TORTURE_SECONDS" --seed "$TORTURE_SEED" "${@:2}"
    while alive "$LAST_STARTED"; do
        count_virtual
        sleep 0.3
    done
    wait "$LAST_STARTED" || code=$?
    [ "$code" = 0 ] || echo "seed $TORTURE_SEED: $(tail -n 5 "$TMP/$1.log")"
    # The run over kernel TCP tests the test. About one killed program in 15,000 leaves a stream there that ends too early without an
    # error, which the test takes for a loss: it is tried again. NetChannel has one try.
    if [ "$code" != 0 ] && [ "$MODE" = kernel ] && [ -z "${AGAIN:-}" ]; then
        AGAIN=1 try "$@"
        return
    fi
    observe "$1: exit $code"
}

scenario() {
    try bytes
    try killer
    try servers
    try shared
    try handed
    try hostile
    try limits --rounds 2000
}

NETCHANNEL_MODES=both
compare_modes scenario
