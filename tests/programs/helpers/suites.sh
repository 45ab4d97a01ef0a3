# Sourced by tests that run another project's own tests, built from Debian's source package, with and without the library, and compare
# them by name. Sourced after common.sh.
#
# SUITE_SOURCES  where sources and what is built from them are kept from run to run (default: target/suites)
SUITE_SOURCES=${SUITE_SOURCES:-$HERE/../../target/suites}
# So many differences are looked at again: more are no accidents, and would only take time.
MOST_AGAIN=12

# source_of PACKAGE FOLDER: sets SOURCE to the folder of the package's upstream source: FOLDER where it is given, otherwise what apt has
# fetched and verified, without a change to the system's own lists.
source_of() {
    local package=$1 apt
    SOURCE=${2:-$SUITE_SOURCES/$package}
    if [ -d "$SOURCE" ]; then return 0; fi
    need apt-get tar
    apt=$TMP/apt
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$SUITE_SOURCES"
    (
        . /etc/os-release
        [ "$ID" = debian ] || exit 1
        echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $VERSION_CODENAME main" \
            >"$apt/sources.list"
        options=(-o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$apt/lists"
            -o "Dir::Cache=$apt/cache" -o "APT::Sandbox::User=$(id -un)" -o Acquire::Retries=1)
        cd "$apt"
        limited 90 apt-get "${options[@]}" update
        limited 60 apt-get "${options[@]}" source --download-only "$package"
        mkdir "$apt/source"
        # Not the signature beside it.
        archive=$(find . -maxdepth 1 -name "${package}_*.orig.tar.*" ! -name '*.asc')
        tar xf "$archive" -C "$apt/source" --strip-components 1
    ) >"$TMP/source.log" 2>&1 || skip "the source of $package cannot be had: $(tail -n 1 "$TMP/source.log")"
    mv "$apt/source" "$SOURCE"
    rm -rf "$apt"
}

# The networks of the two ways, by a process that is in each: their tests use the same ports, and those of whoever else runs them. Who may
# make none runs one way after the other.
declare -A NETWORK=()

make_networks() {
    local way
    need unshare nsenter ip
    unshare -n true 2>/dev/null || return 0
    for way in kernel library; do
        start "network.$way" unshare -n sleep "$LIMIT"
        NETWORK[$way]=$LAST_STARTED
        until_true 5 "a network" has_own_network "$LAST_STARTED"
    done
}

# Before `unshare` has done its work, the process is in this script's network.
has_own_network() {
    [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ] && nsenter -t "$1" -n ip link set lo up
}

# in_way WAY SECONDS COMMAND...: the command as it is, or with the library, and not for longer.
in_way() {
    local way=$1 seconds=$2 prefix=()
    shift 2
    if [ -n "${NETWORK[$way]:-}" ]; then prefix=(nsenter -t "${NETWORK[$way]}" -n); fi
    if [ "$way" = library ]; then prefix+=("$NETCHANNEL_PROGRAM" run --socket "$SOCKET" --); fi
    limited "$seconds" "${prefix[@]}" "$@"
}

# compare_suite: runs `suite WAY FILE`, which writes lines `TEST RESULT`, both ways, at the same time where they do not meet. What differs is
# run again by `alone WAY TEST`, which prints one result, and is a failure if it differs each time, unless `kept TEST` names a difference
# of SPECIFICATION.md, section 8.
compare_suite() {
    local test kernel library number try same count different=0 flaky=0 known=0 again=0
    MODE=kernel
    make_networks
    if [ "$NETCHANNEL_PROGRAM" != none ]; then
        MODE=both
        if [ -n "${NETWORK[library]:-}" ]; then DAEMON_PREFIX=(nsenter -t "${NETWORK[library]}" -n); fi
        start_daemon
    fi
    (trap - EXIT INT TERM; suite kernel "$TMP/kernel") &
    count=$!
    if [ "${#NETWORK[@]}" = 0 ]; then wait "$count"; fi
    if [ "$MODE" = both ]; then (trap - EXIT INT TERM; suite library "$TMP/library"); fi
    wait "$count" || true
    count=$(wc -l <"$TMP/kernel")
    [ "$count" -gt 0 ] || fail "no test ran without the library"
    if [ "$MODE" = kernel ]; then
        echo "result: $count tests without the library"
        return
    fi
    while read -r test kernel library; do
        same=no
        again=$((again + 1))
        for ((try = 0; try < 2 && again <= MOST_AGAIN; try++)); do
            kernel=$(alone kernel "$test")
            library=$(alone library "$test")
            if [ "$kernel" = "$library" ]; then
                same=yes
                break
            fi
        done
        number=$(kept "$test")
        if [ "$same" = yes ]; then
            flaky=$((flaky + 1))
            echo "flaky: $test (the same when run alone)"
        elif [ -n "$number" ]; then
            known=$((known + 1))
            echo "kept, $number: $test: $kernel without, $library with the library"
        else
            different=$((different + 1))
            echo "different: $test: $kernel without, $library with the library"
        fi
    done < <(join -a 1 -a 2 -e missing -o 0,1.2,2.2 <(sort -u "$TMP/kernel") <(sort -u "$TMP/library") | awk '$2 != $3')
    stop_daemon
    [ "$different" = 0 ] || fail "$different tests give another result with the library"
    echo "result: $((count - known)) tests alike, $flaky of them only when run alone; $known that differ are kept"
}
