"""Many idle connections: `idle_connections.py serve PORT` accepts and holds; `idle_connections.py hold PORT NUMBER` connects, says
so, and holds until its standard input ends."""

import resource
import socket
import sys


def most_descriptors():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def serve(port):
    listener = socket.create_server(("127.0.0.1", port), backlog=4096)
    held = []
    while True:
        held.append(listener.accept()[0])


def hold(port, number):
    held = []
    for _ in range(number):
        held.append(socket.create_connection(("127.0.0.1", port)))
        # Each was used once: its rings are there.
        held[-1].send(b"x")
    print("connected", flush=True)
    sys.stdin.read()


most_descriptors()
if sys.argv[1] == "serve":
    serve(int(sys.argv[2]))
else:
    hold(int(sys.argv[2]), int(sys.argv[3]))
