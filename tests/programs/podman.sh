#!/bin/bash
# Containers as a tenant: a rootless podman with an image that is not the host, made here without a network. nginx in it is reached at the
# published port and sees true addresses, curl in it reaches the world, by name too, and not what it may not; the daemon is renewed under
# it. The same with an image that has no glibc: static programs, Go's and musl's under a supervisor. Then bubblewrap, unshare and what
# systemd does for PrivateNetwork=yes.
LIMIT=${LIMIT:-240}
# In a user namespace a folder of the host's root is believed only where no other user can make one.
TMPDIR=/var/lib
[ -w "$TMPDIR" ] || { echo "skipped: namespaces are made by root only"; exit 77; }
. "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || skip "namespaces are made by root only"
[ "$NETCHANNEL_PROGRAM" != none ] || skip "containers without a network have no kernel TCP"
need ip nsenter unshare setpriv curl nginx socat "$PYTHON"

. "$HERE/helpers/world.sh"
ID=ncp$$
OUTSIDE=$ID-outside HOST=$ID-host
ON_HOST=(nsenter --net="/run/netns/$HOST")
OUT=(nsenter --net="/run/netns/$OUTSIDE")
# Whose container it is: not root's.
OWNER=www-data
OWNER_ID=$(id -u "$OWNER") || skip "there is no user $OWNER"
PLACE=$TMP/owner
HAS_PODMAN=
SUPERVISED=()

end() {
    if [ -n "$HAS_PODMAN" ]; then
        as_owner "${PODMAN[@]}" rm --force --all --time 1 >/dev/null 2>&1
        as_owner "${PODMAN[@]}" system migrate >/dev/null 2>&1
    fi
    remove_namespaces
}
trap 'code=$?; set +e; end; (exit $code); finish' EXIT

# A container engine wants cgroups of the second version and no others: it sees such. A host may let nobody raise a limit, so containers
# take less than it has.
PREPARE='umount --recursive /sys/fs/cgroup 2>/dev/null; mount -t cgroup2 none /sys/fs/cgroup && exec "$@"'
OWNERS=(unshare --mount sh -c "$PREPARE" sh env "HOME=$PLACE" "XDG_RUNTIME_DIR=$PLACE")
UNPRIVILEGED=(setpriv "--reuid=$OWNER" "--regid=$(id -g "$OWNER")" --clear-groups)
PODMAN=(podman --root "$PLACE/store" --runroot "$PLACE/run" --storage-driver vfs --storage-opt vfs.ignore_chown_errors=true
    --cgroup-manager cgroupfs --log-level error)
RUN=("${PODMAN[@]}" run --cgroups=disabled --ulimit=nofile=1024:16384 --ulimit=nproc=1000:1000)

# as_owner COMMAND...
as_owner() {
    (cd "$PLACE" && limited 60 "${OWNERS[@]}" "${UNPRIVILEGED[@]}" "$@")
}

# in_tenant COMMAND...: its owner's, as the tenant's.
in_tenant() {
    as_owner "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET" run "${SUPERVISED[@]}" web -- "$@"
}

serve() {
    start daemon "${ON_HOST[@]}" "$NETCHANNEL_PROGRAM" daemon --socket "$SOCKET" --config "$TMP/netchannel.toml"
    DAEMON=$LAST_STARTED
    until_true 10 "the tenant's socket" test -S "$TMP/tenants/web/nc.sock"
}

# ---- an image ------------------------------------------------------------------------------------------------------

# make_image FOLDER: nginx, curl, a shell and what they load, of this host; an address and a name come from nowhere.
make_image() {
    local image=$1 program file
    mkdir -p "$image"/{bin,etc,proc,sys,dev,tmp,run,www,var/log/nginx,var/lib/nginx}
    for program in nginx curl sh sleep; do
        file=$(readlink -f "$(command -v "$program")")
        cp "$file" "$image/bin/$program"
        ldd "$file" | grep -oE '/[^ ]+' | xargs -I{} cp --parents -L {} "$image"
    done
    printf 'root:x:0:0:root:/:/bin/sh\n' >"$image/etc/passwd"
    printf 'root:x:0:\n' >"$image/etc/group"
    printf 'hosts: files dns\n' >"$image/etc/nsswitch.conf"
    printf 'a page of the tenant\n' >"$image/www/index.html"
    cat >"$image/etc/nginx.conf" <<'CONFIGURATION'
user root;
daemon off;
pid /run/nginx.pid;
error_log stderr warn;
events { worker_connections 256; }
http {
    access_log off;
    server {
        listen 80;
        root /www;
        location /who { return 200 "$remote_addr $server_addr:$server_port\n"; }
    }
}
CONFIGURATION
}

# make_bare_image FOLDER: programs that the library can not enter, and nothing else. Which there are: STATIC.
make_bare_image() {
    local image=$1
    STATIC=()
    mkdir -p "$image"/{bin,etc,proc,sys,dev,tmp,run}
    printf 'root:x:0:0:root:/:/bin/sh\n' >"$image/etc/passwd"
    printf 'nameserver %s\n' "$WORLD" >"$image/etc/resolv.conf"
    if command -v busybox >/dev/null && ! ldd "$(command -v busybox)" >/dev/null 2>&1; then
        cp "$(readlink -f "$(command -v busybox)")" "$image/bin/busybox"
        ln -s busybox "$image/bin/sh"
        STATIC+=(busybox)
    fi
    if command -v go >/dev/null; then
        GOFLAGS='' GO111MODULE=off GOCACHE=${GOCACHE:-$TMP/go-cache} CGO_ENABLED=0 GOTOOLCHAIN=local \
            go build -o "$image/bin/web" "$HERE/helpers/static.go"
        STATIC+=(web)
    fi
    if command -v musl-gcc >/dev/null; then
        musl-gcc -O1 -pthread -o "$image/bin/sockets" "$HERE/helpers/static.c"
        musl-gcc -O1 -o "$image/bin/names" "$HERE/helpers/static_names.c"
        cp --parents -L /lib/ld-musl-*.so.1 "$image"
        STATIC+=(musl)
    fi
}

# has_static NAME
has_static() {
    case " ${STATIC[*]} " in
        *" $1 "*) return 0 ;;
    esac
    left_out "$1 in a container: not installed here"
    return 1
}

has_podman() {
    command -v podman >/dev/null || { left_out "podman: not installed"; return 1; }
    local image
    make_image "$TMP/page"
    make_bare_image "$TMP/bare"
    for image in page bare; do
        tar --owner=0 --group=0 -C "$TMP/$image" -cf "$TMP/$image.tar" .
        chmod a+r "$TMP/$image.tar"
    done
    HAS_PODMAN=yes
    local try=("${RUN[@]}" --rm --network=none localhost/page /bin/sh -c 'echo it runs')
    for OWNER_IS in "without privileges" root; do
        for image in page bare; do
            as_owner "${PODMAN[@]}" import "$TMP/$image.tar" "localhost/$image" >"$TMP/import.log" 2>&1
        done
        if [ "$(as_owner "${try[@]}" 2>"$TMP/podman.log")" = "it runs" ]; then return 0; fi
        left_out "podman $OWNER_IS: $(grep -vE '^$' "$TMP/podman.log" "$TMP/import.log" -h | tail -n 1)"
        UNPRIVILEGED=()
        PLACE=$TMP/root
        mkdir -p "$PLACE"
        PODMAN=("${PODMAN[@]/#$TMP\/owner/$PLACE}")
        RUN=("${RUN[@]/#$TMP\/owner/$PLACE}")
        OWNERS=("${OWNERS[@]//$TMP\/owner/$PLACE}")
    done
    HAS_PODMAN=
    return 1
}

page() {
    "${OUT[@]}" curl --silent --max-time 2 "http://$HOST_ADDRESS:8080/$1"
}

podman_serves() {
    in_tenant "${RUN[@]}" --detach --name web localhost/page /bin/nginx -c /etc/nginx.conf -e stderr >"$TMP/run.log" 2>&1 ||
        fail "podman run: $(cat "$TMP/run.log")"
    until_true 10 "nginx in a container" page ''
    expect "a page" "a page of the tenant" "$(page '')"
    expect "the client's address" "$WORLD $OWN:80" "$(page who)"
    # A program that is executed in a container that runs, and a container of its own.
    expect "to the world" small "$(as_owner "${PODMAN[@]}" exec web /bin/curl --silent "http://$WORLD:8000/small")"
    expect "within the tenant" "a page of the tenant" "$(as_owner "${PODMAN[@]}" exec web /bin/curl --silent "http://$OWN/")"
    local other=("${RUN[@]}" --rm localhost/page /bin/curl --silent --max-time 10)
    expect "to the world by name" small "$(in_tenant "${other[@]}" http://four.world.test:8000/small)"
    expect "to what it may not" "exit 7" "$(in_tenant "${other[@]}" "http://$HOST_ADDRESS:8080/" || echo "exit $?")"
    # The daemon is renewed: what starts in the container finds the next one, as its folder is still there.
    stop "$DAEMON"
    serve
    expect "to the world after a new daemon" small "$(as_owner "${PODMAN[@]}" exec web /bin/curl --silent "http://$WORLD:8000/small")"
    as_owner "${PODMAN[@]}" rm --force --time 1 web >/dev/null
    expect "after its end" "exit 7" "$(page '' || echo "exit $?")"
}

# ---- programs that the library can not enter --------------------------------------------------------------------------

# bare COMMAND...: in a container of its own, of an image without glibc.
bare() {
    in_tenant "${RUN[@]}" --rm localhost/bare "$@" 2>&1
}

podman_supervises() {
    if has_static busybox; then
        expect "busybox: to the world" small "$(bare /bin/busybox wget -q -O - "http://$WORLD:8000/small")"
        expect "busybox: its exit code" 7 "$(bare /bin/busybox sh -c 'exit 7' || echo $?)"
        expect "busybox: not there" "exit 127" "$(bare /bin/missing >/dev/null || echo "exit $?")"
    fi
    if has_static musl; then
        limited 20 "$TMP/bare/bin/sockets" >"$TMP/sockets.kernel" 2>&1
        # One of its children executes a shell.
        has_static busybox || sed -i 's/executed//' "$TMP/sockets.kernel"
        bare /bin/sockets >"$TMP/sockets.container" || true
        diff "$TMP/sockets.kernel" "$TMP/sockets.container" || fail "musl in a container saw something else than over kernel TCP"
        CHECKED=$((CHECKED + 1))
        expect "musl: names" "four.world.test:  $WORLD" "$(bare /bin/names four.world.test)"
    fi
    has_static web || return 0
    expect "Go: to the world by name" "200, 5 bytes" "$(bare /bin/web fetch http://four.world.test:8000/small | cut -d, -f1,2)"
    expect "Go: to what it may not" "permission denied" "$(bare /bin/web dial "$HOST_ADDRESS:8080")"
    in_tenant "${RUN[@]}" --detach --name bare localhost/bare /bin/web serve :80 >"$TMP/run.log" 2>&1 || fail "podman run: $(cat "$TMP/run.log")"
    until_true 10 "a Go server in a container" page who
    expect "Go: the client's address" "$WORLD $OWN:80" "$(page who)"
    # The first process passes signals on, and is there again with the container.
    expect "Go: ended by a signal" 143 "$(as_owner "${PODMAN[@]}" stop --time 10 bare >/dev/null && as_owner "${PODMAN[@]}" wait bare)"
    as_owner "${PODMAN[@]}" start bare >/dev/null
    until_true 10 "a Go server in a container that is started again" page who
    # What is executed in a container that runs names the supervisor itself.
    expect "Go: executed in it" "connected" "$(as_owner "${PODMAN[@]}" exec bare /run/.netchannel/netchannel-supervisor /bin/web dial "$WORLD:8000")"
    as_owner "${PODMAN[@]}" rm --force --time 1 bare >/dev/null
    SUPERVISED=(--static=off)
    expect "Go: without a supervisor" "network is unreachable" "$(bare /bin/web dial "$WORLD:8000")"
    SUPERVISED=(--static=plain)
    rm "$TMP/tenants/web/nc.sock.lib/netchannel-supervisor"
    expect "a supervisor that is gone" "1 sentence" "$(bare /bin/true 2>&1 | grep -c 'have no network in this container: .* has no netchannel-supervisor.*not run') sentence"
    SUPERVISED=()
}

# ---- other ways to have no network ---------------------------------------------------------------------------------

# sandboxed NAME COMMAND...: what fetches a page, in it.
sandboxed() {
    local name=$1
    shift
    expect "$name: to the world" small "$(in_tenant "$@" curl --silent --show-error --max-time 10 "http://$WORLD:8000/small" 2>&1)"
    start "$name" "${OWNERS[@]}" "${UNPRIVILEGED[@]}" "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET" run "${SUPERVISED[@]}" web -- "$@" \
        socat TCP-LISTEN:80,reuseaddr,fork SYSTEM:"echo $name"
    until_true 10 "$name: from the world" served "$name"
    stop "$LAST_STARTED"
    CHECKED=$((CHECKED + 1))
}

served() {
    [ "$("${OUT[@]}" socat -T 2 - "TCP:$HOST_ADDRESS:8080")" = "$1" ]
}

sandboxes() {
    sandboxed unshare unshare --net --user --map-root-user
    if command -v bwrap >/dev/null; then
        sandboxed bubblewrap bwrap --ro-bind / / --dev /dev --proc /proc --bind "$TMP/tenants/web" "$TMP/tenants/web" \
            --unshare-all --uid 0 --gid 0 --cap-add CAP_NET_BIND_SERVICE
    else
        left_out "bubblewrap: not installed"
    fi
    # As for a unit with PrivateNetwork=yes, PrivateTmp=yes, ProtectSystem=strict and NoNewPrivileges=yes.
    UNPRIVILEGED=()
    # A unit has the library by its environment; a supervisor of root is none for another user.
    SUPERVISED=(--static=off)
    sandboxed systemd unshare --net --mount --propagation private \
        sh -c 'mount -o remount,bind,ro / 2>/dev/null; mount -t tmpfs none /var/tmp; echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start; exec "$@"' sh \
        setpriv --no-new-privs "--reuid=$OWNER" "--regid=$(id -g "$OWNER")" --clear-groups
}

add_namespaces "$OUTSIDE" "$HOST" || skip "no network namespace can be made"
join_world "$HOST" "$OUTSIDE"
mkdir "$TMP/bin" "$PLACE" "$TMP/www"
chmod 755 "$TMP"
chown "$OWNER_ID" "$PLACE"
# Where its owner may read it.
cp "$NETCHANNEL_PROGRAM" "$(dirname "$NETCHANNEL_PROGRAM")"/{libnetchannel.so,netchannel-supervisor} "$TMP/bin/"
NETCHANNEL_PROGRAM=$TMP/bin/netchannel
cat >"$TMP/netchannel.toml" <<CONFIGURATION
[host]
name = "host"
[[tenants]]
name = "web"
addresses = ["$OWN"]
user = $OWNER_ID
reach = ["10.7.0.2/32:8000"]
publish = ["$HOST_ADDRESS:8080:80"]
resolver = "$WORLD"
CONFIGURATION
serve
FILE=$TMP/tenants/web/nc.sock.lib/libnetchannel.so
cmp --silent "$FILE" "$TMP/bin/libnetchannel.so" || left_out "the library in the tenant's folder: $(grep -o 'containers load.*' "$TMP/daemon.log")"
printf small >"$TMP/www/small"
TEST_ADDRESS=$WORLD start world "${OUT[@]}" "$PYTHON" "$HERE/helpers/http_server.py" 8000 "$TMP/www"
start names "${OUT[@]}" "$PYTHON" "$HERE/helpers/dns_server.py" "$WORLD" 53 "$WORLD"
until_true 10 "the world's server" "${OUT[@]}" curl --silent "http://$WORLD:8000/small"
if has_podman; then
    podman_serves
    podman_supervises
fi
sandboxes
stop "$DAEMON"
echo "result: $CHECKED expectations met"
