# Sourced after common.sh by what compares speeds: interleaved pairs of runs, over kernel TCP and under `netchannel run`, and their table.
#
# A script calls `start_daemons`, then `pairs FUNCTION ARGUMENTS...` for what is measured, which records its figures by `record`, then
# `table_head` and `row` for each figure, and `stop_daemons`.
#
# AGAINST   another build's `netchannel`: what is compared is that build and this one, not kernel TCP and this one, and the
#           table tells the interval in which the median of the ratio lies (95 of 100 times)

[ "$NETCHANNEL_PROGRAM" != none ] || skip "what is compared is a program"
AGAINST=${AGAINST:-}
# Of `netchannel run`, beside its socket.
RUN_OPTIONS=()
RESULTS=$TMP/results
mkdir "$RESULTS"

start_daemons() {
    start_daemon
    [ -n "$AGAINST" ] || return 0
    start against "$AGAINST" daemon --socket "$SOCKET.against"
    OTHER_DAEMON=$LAST_STARTED
    until_true 10 "the other build's socket" test -S "$SOCKET.against"
}

stop_daemons() {
    MODE=
    if [ -n "$AGAINST" ]; then stop "$OTHER_DAEMON"; fi
    stop_daemon
}

# Pairs of one row: CLIENT and SERVER as `both` or as `kernel` has them. The order changes from pair to pair, so that a
# machine that gets slower does not favour one side.
pairs() {
    local pair mode order
    for ((pair = 1; pair <= PAIRS; pair++)); do
        order="kernel both"
        if ((pair % 2 == 0)); then order="both kernel"; fi
        for mode in $order; do
            printf '\r\033[K%s, pair %d of %d, %s ' "$*" "$pair" "$PAIRS" "$mode" >&2
            enter_quietly "$mode"
            "$@"
            stop_scenario
        done
    done
    printf '\r\033[K' >&2
}

# One daemon of each build for all rows; `kernel`, which is the other build where there is one, runs beside it while it is idle.
enter_quietly() {
    MODE=$1
    SERVER=() CLIENT=()
    if [ "$MODE" = both ]; then
        SERVER=("$NETCHANNEL_PROGRAM" run "${RUN_OPTIONS[@]}" --socket "$SOCKET" --)
    elif [ -n "$AGAINST" ]; then
        SERVER=("$AGAINST" run "${RUN_OPTIONS[@]}" --socket "$SOCKET.against" --)
    fi
    CLIENT=("${SERVER[@]}")
}

record() {
    [ -n "$2" ] || fail "$1: no figure in the output"
    echo "$2" >>"$RESULTS/$1.$MODE"
}

median() {
    sort -g "$1" | awk '{ value[NR] = $1 } END { print (NR % 2) ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'
}

# interval FILE: between which of the sorted values the median of all there could be lies, with 95 % certainty: by the binomial
# distribution of how many of the measured ones are below it. Where there are too few, the least and the largest.
interval() {
    sort -g "$1" | awk '{ value[NR] = $1 } END {
        chance = sum = 0.5 ^ NR
        for (rank = 1; rank < NR; rank++) {
            chance *= (NR - rank + 1) / rank
            if (sum + chance > 0.025) break
            sum += chance
        }
        printf "%.3f to %.3f", value[rank], value[NR + 1 - rank] }'
}

table_head() {
    if [ -n "$AGAINST" ]; then
        echo "| work, $PAIRS pairs | unit | other build | this build | ratio | its interval |"
        echo "|---|---|---|---|---|---|"
    else
        echo "| work | unit | kernel TCP | NetChannel | ratio | floor | target | reached |"
        echo "|---|---|---|---|---|---|---|---|"
    fi
}

# row KEY TITLE UNIT BETTER FLOOR TARGET: one line of the table; BETTER is `more` or `less`. The ratio is the median of
# the pairs' ratios, and always larger where NetChannel is better.
row() {
    local key=$1 title=$2 unit=$3 better=$4 floor=$5 target=$6 ratio verdict
    [ -s "$RESULTS/$key.both" ] || return 0
    paste "$RESULTS/$key.kernel" "$RESULTS/$key.both" |
        awk -v better="$better" '{ print (better == "more") ? $2 / $1 : $1 / ($2 > 0 ? $2 : 1e-9) }' >"$RESULTS/$key.ratio"
    ratio=$(median "$RESULTS/$key.ratio")
    if [ -n "$AGAINST" ]; then
        printf '| %s | %s | %s | %s | %.3f x | %s |\n' "$title" "$unit" \
            "$(human "$(median "$RESULTS/$key.kernel")")" "$(human "$(median "$RESULTS/$key.both")")" \
            "$ratio" "$(interval "$RESULTS/$key.ratio")"
        return
    fi
    verdict=$(awk -v ratio="$ratio" -v floor="$floor" -v target="$target" 'BEGIN {
        shown = sprintf("%.2f", ratio) + 0
        print (shown >= target) ? "target" : (shown >= floor) ? "floor" : "MISSED" }')
    printf '| %s | %s | %s | %s | %.2f x | %s x | %s x | %s |\n' "$title" "$unit" \
        "$(human "$(median "$RESULTS/$key.kernel")")" "$(human "$(median "$RESULTS/$key.both")")" \
        "$ratio" "$floor" "$target" "$verdict"
}

human() {
    awk -v value="$1" 'BEGIN { printf (value >= 1000) ? "%.0f" : (value >= 10) ? "%.1f" : "%.2f", value }'
}
