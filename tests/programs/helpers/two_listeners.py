"""A server of two listeners: FIRST SECOND, its ports. It waits at both, answers with the port, and gives the first up after one connection."""

import os
import socket
import sys
import threading

PORTS = [int(port) for port in sys.argv[1:3]]
servers = []
for port in PORTS:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("0.0.0.0", port))
    server.listen(16)
    servers.append(server)
print(os.getpid(), flush=True)


def serve(server, port, once):
    while True:
        connection, _ = server.accept()
        connection.sendall(str(port).encode())
        connection.close()
        if once and os.path.exists(sys.argv[3]):
            return server.close()


threads = [threading.Thread(target=serve, args=(*pair, pair[1] == PORTS[0])) for pair in zip(servers, PORTS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
