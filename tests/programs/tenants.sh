#!/bin/bash
# Real programs as a tenant, in a network namespace that has nothing but loopback: curl, wget, git, nginx, redis, socat, Python, Node
# reach a world outside and are reached from it. What they observe is compared with kernel TCP, in a namespace of the same address that
# is routed. Then what only a tenant has: what it may not reach, ports, caps, a reload, a daemon that is killed.
LIMIT=${LIMIT:-240}
. "$(dirname "$0")/common.sh"
. "$HERE/helpers/http.sh"
[ "$(id -u)" = 0 ] || skip "namespaces are made by root only"
need ip nsenter unshare curl wget git nginx ab redis-server redis-cli socat openssl "$PYTHON"

. "$HERE/helpers/tenant.sh"

# ---- the tenant reaches the world ----------------------------------------------------------------------------------

reaches() {
    rm -rf "$TMP/www" "$TMP/got"
    mkdir "$TMP/www" "$TMP/got"
    ln "$TMP/large" "$TMP/small" "$TMP/www/"
    git init --quiet --bare "$TMP/www/repository.git"
    git -C "$TMP/www/repository.git" update-server-info
    TEST_ADDRESS=$WORLD start world "${OUT[@]}" "$PYTHON" "$HERE/helpers/http_server.py" 8000 "$TMP/www"
    until_true 10 "the world's server" listens "$OUTSIDE" 8000
    local world=http://$WORLD:8000
    try "curl" "${IN[@]}" curl --silent -o "$TMP/got/large" "$world/large"
    observe "curl: $(checksum "$TMP/got/large")"
    try "curl, upload" "${IN[@]}" curl --silent -T "$TMP/large" "$world/uploaded"
    observe "curl, upload: $(checksum "$TMP/www/uploaded")"
    try "curl, in parallel" "${IN[@]}" curl --silent --parallel --parallel-max 16 -o "$TMP/got/#1" "$world/small?[1-64]"
    observe "curl, in parallel: $(ls "$TMP/got" | wc -l) files"
    try "wget" "${IN[@]}" wget --quiet -O "$TMP/got/wget" "$world/large"
    observe "wget: $(checksum "$TMP/got/wget")"
    try "git" "${IN[@]}" git clone --quiet "$world/repository.git" "$TMP/got/repository"
    try "python" "${IN[@]}" "$PYTHON" -c "
import hashlib, urllib.request
print(hashlib.sha256(urllib.request.urlopen('$world/large').read()).hexdigest())"
    observe "python: $(cat "$TMP/client.log")"
    if command -v node >/dev/null; then
        try "node" "${IN[@]}" node -e "require('http').get('$world/small', r => r.pipe(process.stdout))"
        observe "node: $(checksum "$TMP/client.log")"
    else
        left_out "node"
    fi
    try "nobody listens" "${IN[@]}" curl --silent --show-error "http://$WORLD:8001/"
    observe "nobody listens: $(sed 's/after [0-9]* ms/after a while/' "$TMP/client.log")"
    try "half closed" "${IN[@]}" sh -c "printf 'GET /small HTTP/1.0\r\n\r\n' | socat -t 10 - TCP:$WORLD:8000 >'$TMP/got/socat'"
    observe "half closed: $(tail -c 1000 "$TMP/got/socat" | sha256sum)"
    start store "${OUT[@]}" redis-server --port 6379 --bind "$WORLD" --save '' --protected-mode no
    until_true 10 "redis outside" listens "$OUTSIDE" 6379
    try "redis-cli" "${IN[@]}" redis-cli -h "$WORLD" SET key value
    try "redis-cli" "${IN[@]}" redis-cli -h "$WORLD" GET key
    observe "redis-cli: $(cat "$TMP/client.log")"
    try "redis-benchmark" "${IN[@]}" redis-benchmark -h "$WORLD" -q -n 20000 -c 20 -P 4 -t set,get
}

# ---- names of the world --------------------------------------------------------------------------------------------

# make_names NAMESERVER: what programs have as /etc/resolv.conf under BY, which is IN with it.
make_names() {
    printf 'search world.test\nnameserver %s\noptions timeout:2\n' "$1" >"$TMP/resolv.conf"
    printf 'hosts: files dns\nservices: files\n' >"$TMP/nsswitch.conf"
    printf '127.0.0.1 localhost\n' >"$TMP/hosts"
    local bind='cd "$0"; for file in resolv.conf nsswitch.conf hosts; do mount --bind "$file" "/etc/$file" || exit 99; done; exec "$@"'
    BY=(unshare --mount sh -c "$bind" "$TMP" "${IN[@]}")
}

# names WHAT: programs that look names up.
names() {
    local what=$1 world=http://alias.world.test:8000
    try "$what: python" "${BY[@]}" "$PYTHON" "$HERE/helpers/names.py"
    observe "$what: $(cat "$TMP/client.log")"
    grep -q '^left open: ' "$TMP/client.log" || fail "names.py: $(tail -n 1 "$TMP/client.log")"
    try "$what: curl" "${BY[@]}" curl --silent --show-error -o "$TMP/got/named" "$world/large"
    observe "$what: curl: $(checksum "$TMP/got/named")"
    try "$what: curl, no such name" "${BY[@]}" curl --silent --show-error http://missing.world.test/
    observe "$what: curl, no such name: $(cat "$TMP/client.log")"
    try "$what: wget" "${BY[@]}" wget --quiet -O "$TMP/got/named" "http://four:8000/large"
    observe "$what: wget: $(checksum "$TMP/got/named")"
    rm -rf "$TMP/got/repository"
    try "$what: git" "${BY[@]}" git clone --quiet "$world/repository.git" "$TMP/got/repository"
    if command -v node >/dev/null; then
        try "$what: node" "${BY[@]}" node -e "
const dns = require('dns'), names = ['alias', 'four', 'six', 'empty', 'broken', 'missing'];
const look = name => dns.promises.lookup(name + '.world.test', {all: true}).catch(error => error.code);
Promise.all(names.map(look)).then(all => console.log(JSON.stringify(all)));
require('http').get('$world/small', r => r.resume().on('end', () => console.log(r.statusCode)));"
        observe "$what: node: $(sort "$TMP/client.log")"
    fi
    own_resolvers "$what"
    local database name
    for database in hosts ahosts ahostsv6; do
        for name in alias six.world.test missing broken "$WORLD"; do
            try "$what: getent $database $name" "${BY[@]}" getent "$database" "$name"
            observe "$what: getent $database $name: $(cat "$TMP/client.log")"
        done
    done
}

# own_resolvers WHAT: programs that ask name servers over UDP by themselves, at the server of resolv.conf.
own_resolvers() {
    local what=$1 server
    server=$(awk '$1 == "nameserver" { print $2 }' "$TMP/resolv.conf")
    try "$what: UDP" "${BY[@]}" "$PYTHON" "$HERE/helpers/udp_names.py" "$server" 53
    observe "$what: UDP: $(sed "s/'$server'/SERVER/g" "$TMP/client.log")"
    if command -v node >/dev/null; then
        try "$what: c-ares" "${BY[@]}" node -e "
const {resolve4, resolve6, resolveTxt, reverse} = require('dns').promises;
const shown = answer => answer.catch(error => error.code);
const names = ['four', 'both', 'alias', 'many', 'missing', 'broken', 'empty'].map(name => name + '.world.test');
Promise.all([...names.map(name => shown(resolve4(name))), shown(resolve6(names[1])), shown(resolveTxt('text.world.test')),
    shown(reverse('$WORLD')), ...Array.from({length: 50}, () => shown(resolve4(names[0])))])
    .then(all => console.log(JSON.stringify(all.map(one => one.length > 9 && Array.isArray(one) ? one.length : one))));"
        observe "$what: c-ares: $(cat "$TMP/client.log")"
    fi
    if command -v dig >/dev/null; then
        for name in four alias missing many; do
            try "$what: dig $name" "${BY[@]}" dig +noall +comments +answer +nocookie +timeout=5 "$name.world.test"
            observe "$what: dig $name: $(sed 's/id: [0-9]*//' "$TMP/client.log")"
        done
    else
        left_out "dig"
    fi
}

resolves() {
    start names "${OUT[@]}" "$PYTHON" "$HERE/helpers/dns_server.py" "$WORLD" 53 "$WORLD"
    until_true 10 "the world's names" listens "$OUTSIDE" 53
    # With the operator's resolver the servers of resolv.conf are not needed, and what `reach` says of them does not matter.
    case $MODE in
        kernel) make_names "$WORLD" ;;
        tenant) make_names 192.0.2.53 ;;
    esac
    names "the operator's resolver"
    if [ "$MODE" = tenant ]; then
        configure 'reach = ["10.7.0.0/24"]' "publish = [\"$HOST_ADDRESS:8080:80\"]"
        reload
    fi
    make_names "$WORLD"
    names "a server of its own"
    # Where the image is the host's, resolv.conf names a server of the host's loopback.
    if [ "$MODE" = tenant ]; then
        configure 'reach = ["10.7.0.0/24"]' "publish = [\"$HOST_ADDRESS:8080:80\"]" "resolver = \"$WORLD\""
        reload
        make_names 127.0.0.53
    fi
    own_resolvers "a server of loopback"
    if [ "$MODE" = tenant ]; then
        configure 'reach = ["10.7.0.0/24"]' "publish = [\"$HOST_ADDRESS:8080:80\"]"
        reload
    fi
}

# ---- the world reaches the tenant ----------------------------------------------------------------------------------

is_reached() {
    local folder=$TMP/nginx
    rm -rf "$folder"
    mkdir -p "$folder/www" "$folder/upload"
    cp "$TMP/large" "$TMP/small" "$folder/www/"
    chmod -R a+rX "$TMP"
    chmod a+rwx "$folder/upload"
    nginx_page "$folder" 2 "location /upload/ { dav_methods PUT; root $folder; }"
    start nginx "${IN[@]}" nginx -c "$folder/nginx.conf" -e "$folder/error.log"
    until_true 10 "nginx inside" answers
    try "who" "${OUT[@]}" curl --silent "http://$AT/who"
    observe "who: $(cat "$TMP/client.log")"
    try "large" "${OUT[@]}" curl --silent -o "$TMP/got/large" "http://$AT/large"
    observe "large: $(checksum "$TMP/got/large")"
    try "upload" "${OUT[@]}" curl --silent -T "$TMP/large" "http://$AT/upload/large"
    observe "upload: $(checksum "$folder/upload/large")"
    try "ab" "${OUT[@]}" ab -q -n 2000 -c 32 "http://$AT/small"
    observe "ab: $(grep -E '^(Complete|Failed) requests' "$TMP/client.log" | xargs)"
    try "ab, keep-alive" "${OUT[@]}" ab -q -k -n 5000 -c 32 "http://$AT/small"
    observe "ab, keep-alive: $(grep -E '^(Complete|Failed) requests' "$TMP/client.log" | xargs)"
    stop "$LAST_STARTED"
    start redis "${IN[@]}" redis-server --port 80 --bind 0.0.0.0 --save '' --protected-mode no
    until_true 10 "redis inside" "${OUT[@]}" redis-cli -h "${AT%:*}" -p "${AT#*:}" PING
    try "redis" "${OUT[@]}" redis-benchmark -h "${AT%:*}" -p "${AT#*:}" -q -n 20000 -c 20 -t set,get
    try "redis" "${OUT[@]}" redis-cli -h "${AT%:*}" -p "${AT#*:}" CLIENT LIST
    observe "redis: $(grep -oE 'addr=[0-9.]+' "$TMP/client.log" | sort -u | xargs)"
    stop "$LAST_STARTED"
    try "nobody listens inside" "${OUT[@]}" curl --silent --show-error "http://$AT/"
    observe "nobody listens inside: $(sed "s/$AT/ADDRESS/; s/${AT%:*} port ${AT#*:}/ADDRESS/; s/after [0-9]* ms/after a while/" "$TMP/client.log")"
}

# ---- the connection as TCP has it ----------------------------------------------------------------------------------

# lose_world COMMAND...: a program that says `ready`, for which the world answers nothing from then on.
lose_world() {
    local name=$1 own=$HOST_ADDRESS program
    shift
    [ "$MODE" = tenant ] || own=$OWN
    mkfifo "$TMP/$name.go"
    start "$name" sh -c 'exec "$@" <"$0"' "$TMP/$name.go" "$@"
    program=$LAST_STARTED
    exec 8>"$TMP/$name.go"
    if [ "$name" = listening ]; then
        until_true 10 "a listener" grep -q listens "$TMP/$name.log"
        start caller "${OUT[@]}" sh -c "sleep 60 | socat - TCP:$AT,retry=50,interval=0.1"
    fi
    until_true 10 "a connection ($name)" grep -q ready "$TMP/$name.log"
    ip -n "$OUTSIDE" route add blackhole "$own/32"
    echo >&8
    exec 8>&-
    wait_end "$program" 30 || true
    ip -n "$OUTSIDE" route del blackhole "$own/32"
    observe "$(grep -E ': ' "$TMP/$name.log")"
    rm "$TMP/$name.go"
}

is_told() {
    local options=("${IN[@]}" "$PYTHON" -u "$HERE/helpers/socket_options.py")
    try "information" "${options[@]}" information "$WORLD" 8000 'GET /small HTTP/1.0\r\n\r\n'
    observe "information: $(cat "$TMP/client.log")"
    start silent "${OUT[@]}" socat TCP-LISTEN:7003,bind="$WORLD",fork,reuseaddr EXEC:'sleep 60'
    until_true 10 "a silent server" listens "$OUTSIDE" 7003
    lose_world silence "${options[@]}" silence "$WORLD" 7003
    lose_world listening "${options[@]}" listening 80
}

# ---- what only a tenant has ----------------------------------------------------------------------------------------

# errno ADDRESS PORT: the error of a connect.
errno() {
    "${IN[@]}" "$PYTHON" -c "
import errno, socket, sys
s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET)
s.settimeout(5)
print(errno.errorcode.get(s.connect_ex((sys.argv[1], int(sys.argv[2]))), 'connected'))" "$1" "$2"
}

# address NAME: the addresses that a program finds, or the error.
address() {
    "${BY[@]}" "$PYTHON" -c "
import socket, sys
try:
    print(*sorted({entry[4][0] for entry in socket.getaddrinfo(sys.argv[1], 80)}))
except socket.gaierror as error:
    print(error.errno)" "$1"
}

# udp_errno ADDRESS PORT: the error of a datagram, or the code of the answer to a question.
udp_errno() {
    "${IN[@]}" "$PYTHON" -c "
import errno, socket, sys
s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
question = bytes([9, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 97, 0, 0, 1, 0, 1])
try:
    s.sendto(question, (sys.argv[1], int(sys.argv[2])))
    print('code', s.recv(512)[3] & 15)
except OSError as error:
    print(errno.errorcode.get(error.errno, 'silence'))" "$1" "$2"
}

knows() {
    [ "$(address four.world.test)" = "$1" ]
}

# Servers that a tenant need not have in mind; each is asked at its own address.
servers_of_names() {
    local manner number=0 wanted before after server
    for manner in closing garbage silent; do
        number=$((number + 1))
        ip -n "$OUTSIDE" addr add "10.7.0.$((50 + number))/24" dev host
        start names "${OUT[@]}" "$PYTHON" "$HERE/helpers/dns_server.py" "10.7.0.$((50 + number))" 53 "$WORLD" "$manner"
        until_true 10 "names ($manner)" nsenter --net="/run/netns/$OUTSIDE" \
            "$PYTHON" -c "import socket; socket.create_connection(('10.7.0.$((50 + number))', 53))"
        make_names "10.7.0.$((50 + number))"
        printf 'options timeout:1 attempts:1\n' >>"$TMP/resolv.conf"
        wanted=-3
        [ "$manner" != closing ] || wanted="$WORLD 2001:db8:7::2"
        before=$(date +%s%N)
        expect "a server that is $manner" "$wanted" "$(address alias.world.test)"
        after=$(date +%s%N)
        [ $(((after - before) / 1000000)) -lt 5000 ] || fail "a server that is $manner: $(((after - before) / 1000000)) ms"
    done
    make_names 192.0.2.53
    expect "a server that may not be reached" -3 "$(address four.world.test)"
    make_names 127.0.0.53
    configure 'reach = ["192.0.2.0/24"]' "resolver = \"$WORLD\""
    reload
    expect "the operator's resolver, whatever is named" "$WORLD" "$(address four.world.test)"
    for server in 127.0.0.53 0.0.0.0 ::1 2001:db8::53 203.0.113.1; do
        expect "a resolver's answer over TCP, asked at $server" connected "$(errno "$server" 53)"
    done
    expect "another port of a server that is not named" EACCES "$(errno 203.0.113.1 54)"
    # A program of the tenant that listens at that port goes before the operator's.
    start names "${IN[@]}" "$PYTHON" "$HERE/helpers/dns_server.py" "0.0.0.0" 53 10.1.2.3 tcp
    until_true 10 "names inside" knows 10.1.2.3
    expect "a resolver of its own" 10.1.2.3 "$(address four.world.test)"
    stop "$LAST_STARTED"
    configure 'reach = ["10.7.0.0/24"]'
    reload
}

# served WAY PORT: whether a server that waits in that way is found.
served() {
    [ "$("${OUT[@]}" curl --silent --http0.9 --max-time 1 "http://$HOST_ADDRESS:$2/")" = "$1" ]
}

# Servers that wait when the daemon ends, and say nothing: they are found when it is back.
waiting_servers() {
    local way port=0 ports='' servers=() before after pid
    for way in accept poll select epoll edge forked; do
        port=$((port + 1))
        ports+="\"$HOST_ADDRESS:$((9000 + port)):$((7100 + port))\", "
        start "waiting-$way" "${IN[@]}" "$PYTHON" "$HERE/helpers/waiting_server.py" "$way" $((7100 + port))
        servers+=("$way:$((9000 + port))")
    done
    configure 'reach = ["10.7.0.0/24"]' "publish = [$ports]"
    reload
    for way in "${servers[@]}"; do until_true 10 "a server that waits ($way)" served "${way%:*}" "${way#*:}"; done
    kill -KILL "$DAEMON"
    wait "$DAEMON" 2>/dev/null || true
    sleep 0.3
    before=$(sleeps)
    sleep 1.5
    expect "wake-ups while there is no daemon" "$before" "$(sleeps)"
    start_daemon
    before=$(date +%s%N)
    for way in "${servers[@]}"; do until_true 10 "a server that waited ($way)" served "${way%:*}" "${way#*:}"; done
    after=$(date +%s%N)
    echo "servers that waited are back within $(((after - before) / 1000000)) ms"
    [ $(((after - before) / 1000000)) -lt 3000 ] || fail "servers that waited were back after $(((after - before) / 1000000)) ms only"
    CHECKED=$((CHECKED + 1))
}

# A listener that the next daemon has no room for is announced again when there is some, and costs nothing meanwhile.
refused_listener() {
    local pid before two
    configure 'reach = ["10.7.0.0/24"]' "publish = [\"$HOST_ADDRESS:9101:7201\", \"$HOST_ADDRESS:9102:7202\"]"
    reload
    start two "${IN[@]}" "$PYTHON" "$HERE/helpers/two_listeners.py" 7201 7202 "$TMP/give-up"
    two=$LAST_STARTED
    until_true 10 "the first listener" served 7201 9101
    until_true 10 "the second listener" served 7202 9102
    pid=$(head -n 1 "$TMP/two.log")
    kill -KILL "$DAEMON"
    wait "$DAEMON" 2>/dev/null || true
    start_daemon --listeners-per-program 1
    until_true 10 "the listener for which there is room" served 7201 9101
    before=$(awk '{ print $14 + $15 }' "/proc/$pid/stat")
    sleep 2
    expect "a listener for which there is none" no "$(served 7202 9102 && echo yes || echo no)"
    [ $(($(awk '{ print $14 + $15 }' "/proc/$pid/stat") - before)) -lt 20 ] || fail "a listener that is refused takes the processor"
    touch "$TMP/give-up"
    expect "the last client of the first" yes "$(served 7201 9101 && echo yes || echo no)"
    until_true 12 "the listener that was refused" served 7202 9102
    stop "$two"
    kill -KILL "$DAEMON"
    wait "$DAEMON" 2>/dev/null || true
    start_daemon
    # The sockets of the one that was killed are there still.
    until_true 10 "the daemon" "$NETCHANNEL_PROGRAM" status --socket "$SOCKET"
}

# sleeps: how often the servers that wait went to sleep.
sleeps() {
    local log
    for log in "$TMP"/waiting-*.log; do
        awk '/^voluntary_ctxt_switches/ { print $2 }' "/proc/$(head -n 1 "$log")/status"
    done | xargs
}

# Two containers of one tenant, with network namespaces of their own: servers of several processes in one, clients in the other.
two_containers() {
    local other=$ID-other by way
    add_namespaces "$other"
    by=("$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET" run web -- nsenter --net="/run/netns/$other")
    start nginx "${IN[@]}" nginx -c "$TMP/nginx/nginx.conf" -e "$TMP/nginx/error.log"
    until_true 10 "nginx of the neighbour" "${by[@]}" curl --silent --fail --max-time 1 --output /dev/null "http://$OWN/small"
    limited 30 "${by[@]}" ab -q -n 3000 -c 32 "http://$OWN/small" >"$TMP/client.log" 2>&1 || fail "nginx of the neighbour: $(tail -n 3 "$TMP/client.log")"
    expect "nginx of the neighbour" "Complete requests: 3000 Failed requests: 0" "$(grep -E '^(Complete|Failed) requests' "$TMP/client.log" | xargs)"
    limited 30 "${by[@]}" curl --silent -o "$TMP/got/large" "http://$OWN/large" || fail "a large file of the neighbour"
    expect "a large file of the neighbour" "$(checksum "$TMP/large")" "$(checksum "$TMP/got/large")"
    expect "who comes from the neighbour" "$OWN $OWN:80" "$("${by[@]}" curl --silent "http://$OWN/who")"
    stop "$LAST_STARTED"
    # Those that wait in accept, and one that is busy.
    start forked "${IN[@]}" "$PYTHON" "$HERE/helpers/waiting_server.py" forked 7200
    local forked=$LAST_STARTED
    until_true 10 "a forked server of the neighbour" "${by[@]}" curl --silent --http0.9 --max-time 1 --output /dev/null "http://$OWN:7200/"
    limited 30 "${by[@]}" "$PYTHON" -c "
import socket
for _ in range(300):
    with socket.create_connection(('$OWN', 7200)) as s:
        assert s.recv(10) == b'forked'
print('all')" >"$TMP/client.log" 2>&1 || true
    expect "a forked server of the neighbour" all "$(tail -n 1 "$TMP/client.log")"
    # Nobody accepts for a while: connects wait, and none fails.
    local busy
    busy=$(pgrep -s "$forked" | xargs)
    kill -STOP $busy
    start crowd "${by[@]}" "$PYTHON" "$HERE/helpers/crowd.py" "$OWN" 7200 300
    until_true 10 "a crowd at a server that is busy" grep -q waits "$TMP/crowd.log"
    sleep 0.5
    kill -CONT $busy
    wait_end "$LAST_STARTED" 20 || true
    expect "a crowd at a server that was busy" "300 answers" "$(tail -n 1 "$TMP/crowd.log")"
    stop "$forked"
}

boundaries() {
    CHECKED=0
    two_containers
    waiting_servers
    refused_listener
    configure 'reach = ["10.7.0.0/24"]' "publish = [\"$HOST_ADDRESS:8080:80\"]"
    reload
    servers_of_names
    start secret "${ON_HOST[@]}" socat TCP-LISTEN:7000,bind=127.0.0.1,fork,reuseaddr SYSTEM:'echo secret'
    until_true 10 "the host's service" listens "$HOST" 7000
    expect "the host's loopback" ECONNREFUSED "$(errno 127.0.0.1 7000)"
    expect "any address" ECONNREFUSED "$(errno 0.0.0.0 7000)"
    expect "what is not named" EACCES "$(errno 192.0.2.1 80)"
    expect "the host by a mapped address" EACCES "$(errno ::ffff:192.0.2.1 80)"
    expect "a family that it has not" ENETUNREACH "$(errno 2001:db8::1 80)"
    expect "its own address" ECONNREFUSED "$(errno "$OWN" 81)"
    expect "names of which nobody knows" ECONNREFUSED "$(errno "$OWN" 53)"
    for server in 192.0.2.53 127.0.0.53 0.0.0.0 ::1 2001:db8::53 "$OWN"; do
        expect "a datagram to a name server at $server" "code 5" "$(udp_errno "$server" 53)"
    done
    expect "a datagram elsewhere" ENETUNREACH "$(udp_errno "$WORLD" 123)"
    expect "what is named" connected "$(errno "$WORLD" 8000)"
    local before after bytes=4000000 took server
    configure 'reach = ["10.7.0.0/24:8001"]' 'rate-in = "4MB/s burst=64KiB"'
    reload
    expect "what is named no more" EACCES "$(errno "$WORLD" 8000)"
    expect "a port that is given up" 7 "$(answers || echo $?)"
    configure 'reach = ["10.7.0.0/24"]' 'rate-in = "4MB/s burst=64KiB"'
    reload
    before=$(date +%s%N)
    "${IN[@]}" curl --silent --range "0-$((bytes - 1))" -o "$TMP/got/capped" "http://$WORLD:8000/large" || true
    "${IN[@]}" curl --silent "http://$WORLD:8000/large" | head -c "$bytes" >"$TMP/got/capped" || true
    after=$(date +%s%N)
    took=$(((after - before) / 1000000))
    # A cap is never exceeded, however slow the machine: two downloads of 4 MB at 4 MB/s, less the burst.
    [ "$took" -ge 900 ] || fail "a cap of 4 MB/s let 4 MB through in $took ms"
    CHECKED=$((CHECKED + 1))
    # A killed daemon resets, and does not end, what went through it.
    start stream "${OUT[@]}" socat TCP-LISTEN:7001,bind="$WORLD",reuseaddr EXEC:'sleep 60'
    until_true 10 "a silent server" listens "$OUTSIDE" 7001
    start reader "${IN[@]}" "$PYTHON" -c "
import errno, socket
s = socket.create_connection(('$WORLD', 7001))
print('connected', flush=True)
try:
    print('end' if not s.recv(1) else 'bytes')
except OSError as error:
    print(errno.errorcode[error.errno])"
    local reader=$LAST_STARTED
    # A socket that asks name servers outlives the daemon.
    start asker "${IN[@]}" "$PYTHON" -c "
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(2)
s.connect(('192.0.2.53', 53))
question = bytes([9, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 97, 0, 0, 1, 0, 1])
state = 'new'
while state != 'again':
    try:
        s.send(question)
        state = 'again' if s.recv(512) and state == 'lost' else 'answered'
    except OSError:
        state = 'lost'
    print(state, flush=True)
    time.sleep(0.1)"
    local asker=$LAST_STARTED
    until_true 10 "an answer" grep -q answered "$TMP/asker.log"
    until_true 10 "a connection" grep -q connected "$TMP/reader.log"
    kill -KILL "$DAEMON"
    wait "$DAEMON" 2>/dev/null || true
    wait_end "$reader" 10 || true
    expect "a daemon that is killed" ECONNRESET "$(tail -n 1 "$TMP/reader.log")"
    start_daemon
    expect "a daemon that came again" connected "$(errno "$WORLD" 8000)"
    wait_end "$asker" 10 || true
    expect "answers of a daemon that came again" again "$(tail -n 1 "$TMP/asker.log")"
    echo "result: $CHECKED boundaries held"
}

scenario() {
    reaches
    resolves
    is_told
    is_reached
}

make_namespaces || skip "no network namespace can be made"
make_data "$TMP/large" 30000003 large
make_data "$TMP/small" 1000 small
compare_with_kernel boundaries
