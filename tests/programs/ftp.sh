#!/bin/bash
# vsftpd, with processes of two users for each connection, confined by a filter of system calls and a limit of memory: active and passive,
# up and down, listings, a transfer that goes on where another ended.
. "$(dirname "$0")/common.sh"
need curl vsftpd
[ "$(id -u)" = 0 ] || skip "vsftpd begins as root"

curl_() {
    local name=$1 code=0
    shift
    limited 40 "${CLIENT[@]}" curl --silent --show-error "$@" >"$TMP/curl.log" 2>&1 || code=$?
    [ "$code" = 0 ] || tail -n 3 "$TMP/curl.log"
    observe "$name: exit $code"
}

use() {
    local url=ftp://127.0.0.1:$PORT/$1 how
    for how in --ftp-pasv "--ftp-port 127.0.0.1" --disable-epsv; do
        curl_ "down $how" $how --output "$TMP/got" "$url/large"
        observe "$(checksum "$TMP/got")"
        rm -f "$TMP/got"
        curl_ "up $how" $how --upload-file "$TMP/large" "$url/new${how//[^a-z]/}"
        observe "$(checksum "$FOLDER/$1/new${how//[^a-z]/}")"
        curl_ "list $how" $how --list-only "$url/"
        observe "$(sort "$TMP/curl.log" | xargs)"
    done
    head -c 1000000 "$TMP/large" >"$TMP/got"
    curl_ "goes on" --continue-at - --output "$TMP/got" "$url/large"
    observe "$(checksum "$TMP/got")"
    curl_ "three at once" --parallel --output "$TMP/1" "$url/large" --output "$TMP/2" "$url/large" --output "$TMP/3" "$url/large"
    observe "$(checksum "$TMP/1" "$TMP/2" "$TMP/3" | xargs)"
}

make_folder() {
    FOLDER=$TMP/ftp
    rm -rf "$FOLDER"
    mkdir -p "$FOLDER/files"
    cp "$TMP/large" "$FOLDER/files/"
    chmod a+rx "$TMP" "$FOLDER"
    chmod -R a+rwX "$FOLDER/files"
    free_port PORT
}

by_vsftpd() {
    make_folder
    mkdir -p "$TMP/empty"
    cat >"$TMP/vsftpd.conf" <<CONFIGURATION
listen=YES
listen_address=127.0.0.1
listen_port=$PORT
background=NO
anonymous_enable=YES
anon_root=$FOLDER
anon_upload_enable=YES
anon_other_write_enable=YES
anon_umask=022
write_enable=YES
no_anon_password=YES
ftp_username=daemon
nopriv_user=nobody
secure_chroot_dir=$TMP/empty
connect_from_port_20=NO
pasv_address=127.0.0.1
CONFIGURATION
    start vsftpd "${SERVER[@]}" vsftpd "$TMP/vsftpd.conf"
    wait_port "$PORT" vsftpd
    use files
    stop "$LAST_STARTED"
}

make_data "$TMP/large" 8000001 ftp
compare_modes by_vsftpd
