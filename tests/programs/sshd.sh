#!/bin/bash
# sshd: commands, scp, sftp, forwarding in both directions and by SOCKS. Its processes change their user, and the one that meets strangers
# sets a filter of system calls that kills; as root with separated privileges, and as an ordinary user.
. "$(dirname "$0")/common.sh"
# sshd executes itself again for each connection, and wants to be named by its path.
need ssh scp sftp ssh-keygen curl openssl "$PYTHON"
SSHD=/usr/sbin/sshd
[ -x "$SSHD" ] || skip "sshd is not installed"

# start_sshd [COMMAND...]: what it is started with, to be another user's.
start_sshd() {
    free_port PORT
    cat >"$TMP/sshd_config" <<CONFIGURATION
ListenAddress 127.0.0.1:$PORT
HostKey $TMP/host
PidFile none
AuthorizedKeysFile $TMP/user.pub
StrictModes no
UsePAM ${PAM:-no}
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
Subsystem sftp $SFTP
CONFIGURATION
    start sshd "$@" "${SERVER[@]}" "$SSHD" -D -e -f "$TMP/sshd_config"
    wait_port "$PORT" sshd
    OPTIONS=(-F none -q -i "$TMP/user" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes)
}

# remote SECONDS COMMAND...: runs it there.
remote() {
    local seconds=$1
    shift
    limited "$seconds" "${CLIENT[@]}" ssh "${OPTIONS[@]}" -p "$PORT" "$USER_THERE@127.0.0.1" "$@"
}

# tell NAME COMMAND...: its exit code and the sum of what it says.
tell() {
    local name=$1 code=0
    shift
    "$@" >"$TMP/said" 2>"$TMP/client.log" || code=$?
    observe "$name: exit $code, $(checksum "$TMP/said")"
}

forwarded() {
    local web there back socks
    free_port web
    start web "${CLIENT[@]}" "$PYTHON" -m http.server --bind 127.0.0.1 --directory "$TMP/files" "$web"
    wait_port "$web" web
    free_port there
    free_port back
    free_port socks
    start tunnel "${CLIENT[@]}" ssh "${OPTIONS[@]}" -p "$PORT" -N -o ExitOnForwardFailure=yes -L "127.0.0.1:$there:127.0.0.1:$web" \
        -R "127.0.0.1:$back:127.0.0.1:$web" -D "127.0.0.1:$socks" "$USER_THERE@127.0.0.1"
    wait_port "$there" tunnel
    wait_port "$back" tunnel
    wait_port "$socks" tunnel
    tell "forwarded there" limited 20 "${CLIENT[@]}" curl -sS "http://127.0.0.1:$there/large"
    tell "forwarded back" limited 20 "${CLIENT[@]}" curl -sS "http://127.0.0.1:$back/large"
    tell "by SOCKS" limited 20 "${CLIENT[@]}" curl -sS --proxy "socks5h://127.0.0.1:$socks" "http://127.0.0.1:$web/large"
    tell "forwarded to nowhere" limited 20 "${CLIENT[@]}" curl -sS --proxy "socks5h://127.0.0.1:$socks" "http://127.0.0.1:1/"
}

own_user() {
    USER_THERE=$(id -un)
    start_sshd
    local i
    for i in 1 2 3 4 5 6; do tell "a command, $i" remote 10 echo "hello $i"; done
    tell "exit code" remote 10 exit 3
    tell "there and back" remote 20 cat <"$TMP/files/large"
    tell "end of input" remote 10 "head -c 10; sleep 0.1; echo end" <"$TMP/files/large"
    tell "a terminal" remote 10 -tt "stty size; tty >/dev/null && echo terminal"
    tell "a wrong key" limited 10 "${CLIENT[@]}" ssh "${OPTIONS[@]}" -i "$TMP/host" -o IdentitiesOnly=yes -p "$PORT" "nobody-there@127.0.0.1" true
    copies
    forwarded
    observe "killed: $(grep -cE 'preauth.*(killed|signal)|fatal' "$TMP/sshd.log")"
}

copies() {
    rm -f "$TMP"/copied.*
    tell "scp there" limited 20 "${CLIENT[@]}" scp "${OPTIONS[@]}" -P "$PORT" "$TMP/files/large" "$USER_THERE@127.0.0.1:$TMP/copied.there"
    tell "scp back" limited 20 "${CLIENT[@]}" scp "${OPTIONS[@]}" -P "$PORT" "$USER_THERE@127.0.0.1:$TMP/files/large" "$TMP/copied.back"
    tell "scp of old" limited 20 "${CLIENT[@]}" scp -O "${OPTIONS[@]}" -P "$PORT" "$USER_THERE@127.0.0.1:$TMP/files/large" "$TMP/copied.old"
    printf 'put %s\nget %s\n' "$TMP/files/large $TMP/copied.put" "$TMP/files/large $TMP/copied.got" >"$TMP/batch"
    tell "sftp" limited 20 "${CLIENT[@]}" sftp "${OPTIONS[@]}" -P "$PORT" -b "$TMP/batch" "$USER_THERE@127.0.0.1"
    observe "copied: $(checksum "$TMP"/copied.* | xargs)"
}

# The process that meets strangers is then of the same user, and the session, too: only the filter locks it in. With no shell to log in to,
# files are what can be had.
ordinary_user() {
    USER_THERE=nobody
    SFTP=internal-sftp PAM=yes
    chown nobody "$TMP/host"
    mkdir -p "$TMP/drop"
    chmod a+rwx "$TMP/drop"
    start_sshd setpriv --reuid nobody --regid "$(id -gn nobody)" --clear-groups
    rm -f "$TMP"/drop/* "$TMP/got"
    printf 'put %s\nget %s\n' "$TMP/files/large $TMP/drop/put" "$TMP/files/large $TMP/got" >"$TMP/batch"
    for _ in 1 2 3; do
        tell "sftp" limited 20 "${CLIENT[@]}" sftp "${OPTIONS[@]}" -P "$PORT" -b "$TMP/batch" nobody@127.0.0.1
    done
    observe "copied: $(checksum "$TMP/drop/put" "$TMP/got" | xargs)"
    chown root "$TMP/host"
}

SFTP=/usr/lib/openssh/sftp-server
ssh-keygen -q -t ed25519 -N '' -f "$TMP/host"
ssh-keygen -q -t ed25519 -N '' -f "$TMP/user"
mkdir "$TMP/files"
chmod a+rx "$TMP" "$TMP/files"
make_data "$TMP/files/large" 5000001 sshd
chmod a+r "$TMP/files/large"
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
compare_modes own_user
if [ "$(id -u)" = 0 ]; then
    EXPECT_VIRTUAL=no compare_modes ordinary_user
else
    left_out "sshd of another user (not root)"
fi
