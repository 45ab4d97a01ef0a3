#!/bin/bash
# A virtual machine as a tenant: QEMU with Debian's kernel, and nothing that leads out of it but memory that it shares with the host. Curl
# in it reaches the world outside and names of it; its nginx is reached at a published port and sees the true clients; iperf3 measures.
# Then machines and ends are killed and come again.
LIMIT=${LIMIT:-400}
. "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || skip "namespaces are made by root only"
[ "$(uname -m)" = x86_64 ] || skip "the machine is an x86-64 one"
need ip nsenter qemu-system-x86_64 busybox curl nginx ab iperf3 socat openssl "$PYTHON"
[ "$NETCHANNEL_PROGRAM" != none ] || skip "without NetChannel a guest has no network"

. "$HERE/helpers/guest.sh"

# ---- the kernel ----------------------------------------------------------------------------------------------------

# Debian's kernel for machines in a cloud: that of this host where it has one, else out of the package, which stays unpacked for the next run.
find_kernel() {
    local kept=$HERE/../../target/guest-kernel package
    KERNEL=$(ls /boot/vmlinuz-*-cloud-amd64 "$kept"/boot/vmlinuz-*-cloud-amd64 2>/dev/null | tail -n 1 || true)
    if [ -z "$KERNEL" ]; then
        command -v apt-get >/dev/null || skip "there is no kernel of Debian's (linux-image-cloud-amd64)"
        mkdir -p "$TMP/package"
        package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | grep -oE 'linux-image-[0-9][^ ]*-cloud-amd64' | head -n 1) || true
        [ -n "$package" ] || skip "no package of a kernel is known (linux-image-cloud-amd64)"
        (cd "$TMP/package" && limited 120 apt-get -qq download "$package" >/dev/null 2>&1) || skip "$package can not be had"
        mkdir -p "$kept"
        dpkg-deb -x "$TMP"/package/*.deb "$kept"
        rm -rf "$TMP/package"
        KERNEL=$(ls "$kept"/boot/vmlinuz-*-cloud-amd64 | tail -n 1)
    fi
    MODULES=${KERNEL%/boot/*}/lib/modules/${KERNEL##*/vmlinuz-}/kernel
    [ -d "$MODULES" ] || skip "the modules of $KERNEL are not there"
}

# Without KVM, unpacking the kernel would take the machine longer than all else.
unpack_kernel() {
    [ "$ACCELERATION" != kvm ] || return 0
    command -v lz4 >/dev/null || return 0
    "$PYTHON" - "$KERNEL" >"$TMP/payload" <<'END'
import struct, sys
image = open(sys.argv[1], 'rb').read()
offset, length = struct.unpack_from('<II', image, 0x248)
start = (image[0x1f1] + 1) * 512 + offset
sys.stdout.buffer.write(image[start:start + length])
END
    # The size of what is packed follows behind it, at which lz4 complains.
    lz4 -q -d -f "$TMP/payload" "$TMP/vmlinux" 2>/dev/null || true
    rm -f "$TMP/payload"
    if [ "$(head -c 4 "$TMP/vmlinux" 2>/dev/null)" = $'\177ELF' ]; then KERNEL=$TMP/vmlinux; fi
}

# ---- what the machine runs -----------------------------------------------------------------------------------------

# with_libraries PROGRAM: copies it with what it is linked to.
with_libraries() {
    local path file
    path=$(command -v "$1")
    install -D "$path" "$ROOT$path"
    ldd "$path" 2>/dev/null | grep -oE '/[^ ]+' | sort -u | while read -r file; do
        [ -e "$ROOT$file" ] || install -D "$file" "$ROOT$file"
    done
}

make_machine() {
    ROOT=$TMP/root
    local name file library
    mkdir -p "$ROOT"/{bin,dev,etc,modules,proc,run,sys,tmp,usr/bin,usr/lib/netchannel,var/log/nginx,var/lib/nginx}
    install "$(command -v busybox)" "$ROOT/bin/busybox"
    for name in sh mount ip insmod sleep cat sha256sum cut echo mkdir test true grep kill; do ln -s busybox "$ROOT/bin/$name"; done
    for name in nginx iperf3 curl; do with_libraries "$name"; done
    with_libraries "$NETCHANNEL_PROGRAM"
    mv "$ROOT$NETCHANNEL_PROGRAM" "$ROOT/usr/bin/netchannel"
    library=${NETCHANNEL_PROGRAM%/*}/libnetchannel.so
    [ -e "$library" ] || library=${NETCHANNEL_PROGRAM%/bin/*}/lib/netchannel/libnetchannel.so
    install "$library" "$ROOT/usr/lib/netchannel/"
    if command -v strip >/dev/null; then strip "$ROOT/usr/bin/netchannel" "$ROOT/usr/lib/netchannel/libnetchannel.so"; fi
    # The C library loads these when names are looked up.
    for file in /lib/x86_64-linux-gnu/libnss_{files,dns}.so.2 /lib/x86_64-linux-gnu/libresolv.so.2; do
        [ ! -e "$file" ] || install -D "$file" "$ROOT$file"
    done
    for name in virtio/virtio virtio/virtio_ring virtio/virtio_pci_modern_dev virtio/virtio_pci_legacy_dev virtio/virtio_pci char/virtio_console; do
        file=$(ls "$MODULES/drivers/$name".ko* 2>/dev/null | head -n 1) || true
        case $file in
            *.xz) xz -dc "$file" >"$ROOT/modules/${name##*/}.ko" ;;
            *.ko) cp "$file" "$ROOT/modules/" ;;
        esac
    done
    echo 'root:x:0:0:root:/:/bin/sh' >"$ROOT/etc/passwd"
    echo 'root:x:0:' >"$ROOT/etc/group"
    printf 'hosts: files dns\n' >"$ROOT/etc/nsswitch.conf"
    printf '127.0.0.1 localhost\n' >"$ROOT/etc/hosts"
    printf 'search world.test\n' >"$ROOT/etc/resolv.conf"
    cat >"$ROOT/etc/nginx.conf" <<END
user root;
worker_processes 1;
daemon off;
pid /run/nginx.pid;
error_log /tmp/error.log warn;
events { worker_connections 1024; }
http {
    log_format short '\$remote_addr \$request';
    access_log /tmp/access.log short;
    server {
        listen 80;
        root /tmp/www;
        location = /who { return 200 "\$remote_addr \$server_addr:\$server_port\n"; }
        location = /log { access_log off; alias /tmp/access.log; }
    }
}
END
    cat >"$ROOT/init" <<END
#!/bin/sh
export PATH=/bin:/usr/bin:/usr/sbin:/sbin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/shm /tmp/www
mount -t tmpfs none /dev/shm
mount -t tmpfs none /run
# One needs another: those that fail do so until that is there.
for round in 1 2 3 4; do
    for file in /modules/*.ko; do insmod \$file 2>/dev/null; done
done
ip link set lo up
ip address add $OWN/32 dev lo
export NETCHANNEL_SOCKET=/run/netchannel/nc.sock
mkdir -p /run/netchannel
echo "machine: booted"
netchannel guest inside &
until test -S \$NETCHANNEL_SOCKET; do sleep 0.1; done
echo "machine: attached"
# From now on every program is under the library.
echo /usr/lib/netchannel/libnetchannel.so >/etc/ld.so.preload
try() {
    name=\$1
    shift
    "\$@" >/tmp/output 2>&1
    echo "machine: \$name: exit \$?"
}
try large curl --silent --show-error --max-time 60 -o /tmp/www/large http://$WORLD:8000/large
echo "machine: sum: \$(sha256sum /tmp/www/large | cut -d ' ' -f 1)"
try upload curl --silent --show-error --max-time 60 -T /tmp/www/large http://$WORLD:8000/uploaded
try parallel curl --silent --parallel --parallel-max 8 -o "/tmp/got#1" "http://$WORLD:8000/small?[1-32]"
try closed curl --silent --max-time 20 http://$WORLD:8001/
try elsewhere curl --silent --max-time 20 http://192.0.2.1/
try named curl --silent --show-error --max-time 20 -o /tmp/named http://four.world.test:8000/small
try unknown curl --silent --max-time 20 http://missing.world.test:8000/small
nginx -c /etc/nginx.conf -e /tmp/error.log &
while :; do iperf3 -s -1 >/tmp/iperf3.log 2>&1; done &
echo "machine: serves"
while :; do sleep 1000; done
END
    chmod +x "$ROOT/init"
    (cd "$ROOT" && find . | busybox cpio -o -H newc 2>/dev/null) >"$TMP/initramfs"
    rm -rf "$ROOT"
}

# machine NAME: starts it; what it says is in NAME.console.
machine() {
    local name=$1
    start "$name" qemu-system-x86_64 -accel "$ACCELERATION" -cpu max -smp 1 -m 768 -nodefaults -display none -no-user-config \
        -kernel "$KERNEL" -initrd "$TMP/initramfs" -append "console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off" \
        -serial "file:$TMP/$name.console" -monitor "unix:$TMP/monitor,server=on,wait=off" \
        -object "memory-backend-file,id=nc,share=on,mem-path=$MEMORY,size=16M" -device ivshmem-plain,memdev=nc \
        -device virtio-serial -chardev "socket,id=bell,path=$BELL,reconnect=1" -device virtserialport,chardev=bell,name=org.netchannel.0
    MACHINE=$LAST_STARTED CONSOLE=$TMP/$name.console
}

said() {
    grep -aq "^machine: $1" "$CONSOLE"
}

# says WHAT SECONDS: waits until the machine has said it.
says() {
    local i
    for ((i = 0; i < $2 * 10; i++)); do
        if said "$1" 2>/dev/null; then return 0; fi
        alive "$MACHINE" || fail "the machine has ended: $(tail -n 3 "$CONSOLE")"
        sleep 0.1
    done
    tail -n 20 "$CONSOLE" >"$TMP/console.log"
    fail "the machine has not said '$1' within $2 s"
}

# heard NAME: what it said of that.
heard() {
    tr -d '\r' <"$CONSOLE" | sed -n "s/^machine: $1: //p" | tail -n 1
}

# ---- what must hold ------------------------------------------------------------------------------------------------

reaches() {
    expect "a large file" "exit 0" "$(heard large)"
    expect "its bytes" "$(checksum "$TMP/www/large")" "$(heard sum)"
    expect "an upload" "exit 0" "$(heard upload)"
    expect "the uploaded bytes" "$(checksum "$TMP/www/large")" "$(checksum "$TMP/www/uploaded")"
    expect "32 requests" "exit 0" "$(heard parallel)"
    expect "a port at which nobody listens" "exit 7" "$(heard closed)"
    expect "what is not named" "exit 7" "$(heard elsewhere)"
    expect "a name" "exit 0" "$(heard named)"
    expect "a name that there is not" "exit 6" "$(heard unknown)"
}

is_reached() {
    until_true 20 "nginx in the machine" who
    "${OUT[@]}" curl --silent --max-time 60 -o "$TMP/got" "http://$HOST_ADDRESS:8080/large"
    expect "a large file of the machine's" "$(checksum "$TMP/www/large")" "$(checksum "$TMP/got")"
    limited 120 "${OUT[@]}" ab -q -n 1000 -c 16 "http://$HOST_ADDRESS:8080/who" >"$TMP/ab.log" 2>&1 || fail "ab: $(tail -n 2 "$TMP/ab.log")"
    expect "ab" "1000 0" "$(sed -nE 's/^(Complete|Failed) requests: *//p' "$TMP/ab.log" | xargs)"
    limited 120 "${OUT[@]}" ab -q -k -n 2000 -c 16 "http://$HOST_ADDRESS:8080/who" >"$TMP/keep.log" 2>&1 || fail "ab: $(tail -n 2 "$TMP/keep.log")"
    expect "ab, keep-alive" "2000 0" "$(sed -nE 's/^(Complete|Failed) requests: *//p' "$TMP/keep.log" | xargs)"
    "${OUT[@]}" curl --silent --max-time 20 -o "$TMP/access" "http://$HOST_ADDRESS:8080/log"
    expect "the clients of the log" "$WORLD" "$(cut -d ' ' -f 1 "$TMP/access" | sort -u | xargs)"
    [ "$(wc -l <"$TMP/access")" -ge 3000 ] || fail "the log of nginx has $(wc -l <"$TMP/access") lines"
    echo "ab: $(sed -nE 's/^Requests per second: *([0-9.]+).*/\1/p' "$TMP/ab.log") connections/s, $(sed -nE 's/^Requests per second: *([0-9.]+).*/\1/p' "$TMP/keep.log") requests/s"
}

# A figure each way; it is told, not judged.
rates() {
    local way
    for way in "" --reverse; do
        sleep 0.5
        limited 30 "${OUT[@]}" iperf3 --client "$HOST_ADDRESS" --time 3 --json $way >"$TMP/iperf3.json" 2>&1 || fail "iperf3 $way: $(tail -n 3 "$TMP/iperf3.json")"
        echo "iperf3${way:+ $way}: $("$PYTHON" -c "import json, sys; print(round(json.load(open(sys.argv[1]))['end']['sum_received']['bits_per_second'] / 1e6))" "$TMP/iperf3.json") Mbit/s"
        CHECKED=$((CHECKED + 1))
    done
}

find_kernel
# That /dev/kvm is there does not say that a machine comes far with it.
ACCELERATION=${NETCHANNEL_GUEST_ACCELERATION:-tcg}
unpack_kernel
make_machine
make_host
make_world
host_end

echo "== a machine ($ACCELERATION, ${KERNEL##*/})"
BEGUN=$(date +%s)
machine first
says booted 120
says serves 120
echo "booted and done with its own tests after $(($(date +%s) - BEGUN)) s"
reaches
is_reached
rates

echo "== the host's end is killed"
hold ended
kill -KILL "$END"
wait "$END" 2>/dev/null || true
wait_end "$HELD" 40
expect "the connection of a client" reset "$(tail -n 1 "$TMP/ended.log")"
host_end
until_true 20 "nginx in the machine once more" who

echo "== the machine is reset"
hold reset
echo system_reset | socat -t 1 - "UNIX-CONNECT:$TMP/monitor" >/dev/null
is_gone reset
until_true 120 "nginx in the machine that has booted again" who

echo "== the machine is killed"
hold killed
kill -KILL "$MACHINE"
wait "$MACHINE" 2>/dev/null || true
is_gone killed

echo "== another machine"
machine second
says serves 120
reaches
until_true 20 "nginx in another machine" who

stop "$END"
until_true 20 "a port that is refused" refused
[ ! -e "$BELL" ] || fail "the doorbell is still there"
echo "result: $CHECKED checks, $ACCELERATION"
