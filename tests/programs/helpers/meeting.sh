# Sourced by tests of tenants that meet, after tenant.sh: two tenants and a stranger, and ways in.

DB=10.88.0.3

# in_tenant NAME COMMAND...
in_tenant() {
    local name=$1
    shift
    "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET" run "$name" -- nsenter --net="/run/netns/$EMPTY" "$@"
}

# start_in NAME TENANT COMMAND...
start_in() {
    local name=$1 tenant=$2
    shift 2
    start "$name" "$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET" run "$tenant" -- nsenter --net="/run/netns/$EMPTY" "$@"
}

# tables WEB-MEETS DB-MEETS [MORE-OF-DB [MORE-OF-WEB]]: both tenants, and a stranger.
tables() {
    local stack=${STACK:+stack = \"$STACK\"}
    {
        printf '[host]\nname = "host"\n'
        [ -z "$stack" ] || printf '[[stacks]]\nname = "%s"\n' "$STACK"
        printf '[[tenants]]\nname = "web"\naddresses = ["%s"]\nmeets = [%s]\n%s\n%s\n' "$OWN" "$1" "$stack" "${4:-}"
        printf '[[tenants]]\nname = "db"\naddresses = ["%s"]\nmeets = [%s]\n%s\n%s\n' "$DB" "$2" "$stack" "${3:-}"
        printf '[[tenants]]\nname = "stranger"\naddresses = ["10.88.0.4"]\n%s\n' "$stack"
    } >"$TMP/netchannel.toml"
}

# errno TENANT ADDRESS PORT: the error of a connect.
errno() {
    in_tenant "$1" "$PYTHON" -c "
import errno, socket, sys
s = socket.socket()
s.settimeout(5)
print(errno.errorcode.get(s.connect_ex((sys.argv[1], int(sys.argv[2]))), 'connected'))" "$2" "$3"
}
