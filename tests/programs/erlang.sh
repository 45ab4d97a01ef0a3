#!/bin/bash
# Erlang: its machine defines `sigaction` itself, over whatever defines it before. Packets between processes of it, accepting and connecting,
# in passive and active mode.
. "$(dirname "$0")/common.sh"
need erl escript
export ERL_CRASH_DUMP=$TMP/crash

echoes() {
    free_port PORT
    start server "${SERVER[@]}" escript "$TMP/echo.erl" server "$PORT"
    wait_port "$PORT"
    local mode
    for mode in passive active; do
        observe "$mode: $(limited 30 "${CLIENT[@]}" escript "$TMP/echo.erl" client "$PORT" "$mode" 2>&1)"
    done
    # Both ends in one.
    observe "alone: $(limited 30 "${SERVER[@]}" escript "$TMP/echo.erl" alone 0 2>&1)"
}

cat >"$TMP/echo.erl" <<'PROGRAM'
-module(echo).
-export([main/1]).
-define(OPTIONS, [binary, {packet, 4}, {ip, {127, 0, 0, 1}}, {reuseaddr, true}]).

main(["server", Port]) ->
    {ok, Listener} = listen(list_to_integer(Port)),
    serve(Listener);
main(["client", Port, Mode]) ->
    client(list_to_integer(Port), list_to_atom(Mode));
main(["alone", _]) ->
    {ok, Listener} = listen(0),
    {ok, Port} = inet:port(Listener),
    spawn_link(fun() -> serve(Listener) end),
    client(Port, passive).

listen(Port) -> gen_tcp:listen(Port, [{active, false}, {backlog, 128} | ?OPTIONS]).

serve(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    spawn(fun() -> receive go -> answer(Socket) end end) ! go,
    serve(Listener).

answer(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Packet} -> gen_tcp:send(Socket, Packet), answer(Socket);
        {error, closed} -> gen_tcp:close(Socket)
    end.

client(Port, Mode) ->
    Parent = self(),
    Each = fun(N) -> spawn_link(fun() -> Parent ! {sum, lists:sum([talk(Port, Mode, N * 50 + I) || I <- lists:seq(1, 50)])} end) end,
    [Each(N) || N <- lists:seq(1, 8)],
    Sums = [receive {sum, Sum} -> Sum end || _ <- lists:seq(1, 8)],
    io:format("~p bytes~n", [lists:sum(Sums)]).

talk(Port, Mode, N) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [{active, Mode == active} | lists:keydelete(ip, 1, ?OPTIONS)]),
    Packet = binary:copy(<<N:32>>, 1 + (N * 977) rem 20000),
    ok = gen_tcp:send(Socket, Packet),
    {ok, Packet} = case Mode of
        passive -> gen_tcp:recv(Socket, 0, 10000);
        active -> receive {tcp, Socket, Data} -> {ok, Data} after 10000 -> timeout end
    end,
    gen_tcp:close(Socket),
    byte_size(Packet).
PROGRAM
compare_modes echoes
