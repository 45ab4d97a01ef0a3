#!/bin/bash
# mosquitto: subscribers and publishers, kept messages, a subscriber's last will.
. "$(dirname "$0")/common.sh"
need mosquitto mosquitto_pub mosquitto_sub

publish() {
    limited 30 "${CLIENT[@]}" mosquitto_pub -h 127.0.0.1 -p "$PORT" "$@"
}

scenario() {
    free_port PORT
    printf 'listener %s 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n' "$PORT" >"$TMP/mosquitto.conf"
    start mosquitto "${SERVER[@]}" mosquitto -c "$TMP/mosquitto.conf"
    wait_port "$PORT" mosquitto
    local server=$LAST_STARTED number
    for number in 1 2 3; do
        rm -f "$TMP/heard.$number"
        start "subscriber$number" "${CLIENT[@]}" timeout 60 mosquitto_sub -h 127.0.0.1 -p "$PORT" -q 1 -C 502 -t 'numbers/#' -t will
    done
    until_true 10 "subscribers" eval '[ "$(grep -c "Sending SUBACK\|New client connected" "$TMP/mosquitto.log")" -ge 3 ]'
    sleep 0.3
    seq 500 | publish -q 1 -l -t numbers/one
    publish -q 1 -t numbers/large -f "$TMP/large"
    publish -r -q 1 -t kept -m "kept message"
    # Its end without a word is told.
    start dying "${CLIENT[@]}" mosquitto_sub -h 127.0.0.1 -p "$PORT" -t none --will-topic will --will-payload died --will-qos 1
    sleep 0.3
    stop "$LAST_STARTED" KILL
    for number in 1 2 3; do
        until_true 20 "subscriber $number" eval '[ "$(tail -c 5 "$TMP/subscriber$number.log")" = died ]'
        observe "$number: $(checksum "$TMP/subscriber$number.log")"
    done
    observe "kept: $(limited 20 "${CLIENT[@]}" mosquitto_sub -h 127.0.0.1 -p "$PORT" -C 1 -t kept)"
    stop "$server"
}

head -c 300000 /dev/zero | tr '\0' x >"$TMP/large"
compare_modes scenario
