"""A server that only waits: WAY PORT. It answers each connection with its way. WAY: how it waits."""

import os
import select
import socket
import sys

WAY, PORT = sys.argv[1], int(sys.argv[2])
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("0.0.0.0", PORT))
server.listen(16)
print(os.getpid(), flush=True)


def answer():
    connection, _ = server.accept()
    connection.sendall(WAY.encode())
    connection.close()


if WAY == "forked":
    for _ in range(2):
        if os.fork() == 0:
            break
if WAY in ("accept", "forked"):
    while True:
        answer()
server.setblocking(WAY != "edge")
if WAY == "poll":
    ready = select.poll()
    ready.register(server, select.POLLIN)
elif WAY in ("epoll", "edge"):
    ready = select.epoll()
    ready.register(server, select.EPOLLIN | (select.EPOLLET if WAY == "edge" else 0))
while True:
    if WAY == "select":
        select.select([server], [], [])
    else:
        ready.poll()
    try:
        answer()
    except BlockingIOError:
        pass
