#!/bin/bash
# FTP servers, a process for each connection and more for each transfer, under their own limits of memory: active and passive, up and
# down, listings, a transfer that goes on where another ended.
. "$(dirname "$0")/common.sh"
need curl
[ "$(id -u)" = 0 ] || skip "FTP servers begin as root"

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
ftp_username=nobody
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

by_pure_ftpd() {
    make_folder
    getent passwd ftp >/dev/null || { left_out "pure-ftpd without a user ftp"; observe none; return; }
    start pure-ftpd "${SERVER[@]}" pure-ftpd -S "127.0.0.1,$PORT" -e -M -H -l unix -j
    wait_port "$PORT" pure-ftpd
    local url=ftp://127.0.0.1:$PORT
    curl_ "list" --list-only "$url/"
    curl_ "list, active" --ftp-port 127.0.0.1 --list-only "$url/"
    stop "$LAST_STARTED"
}

make_data "$TMP/large" 8000001 ftp
if command -v vsftpd >/dev/null; then compare_modes by_vsftpd; else left_out "vsftpd is not installed"; fi
if command -v pure-ftpd >/dev/null; then
    # A listing is all that its anonymous user may do here.
    compare_modes by_pure_ftpd
else
    left_out "pure-ftpd is not installed"
fi
