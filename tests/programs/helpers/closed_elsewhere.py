"""Many connections, each passed to a child that closes it last: closed_elsewhere.py PORT COUNT."""

import os
import socket
import sys

port, count = int(sys.argv[1]), int(sys.argv[2])
ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    while True:
        word, descriptors, _, _ = socket.recv_fds(theirs, 1, 1)
        if not word:
            os._exit(0)
        theirs.recv(1)
        with socket.socket(fileno=descriptors[0]) as connection:
            connection.sendall(b"from the child")
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while block := connection.recv(100):
                answer += block
        theirs.send(b"y" if answer == b"from the child" else b"n")

theirs.close()
right = 0
for _ in range(count):
    connection = socket.create_connection(("127.0.0.1", port))
    socket.send_fds(ours, [b"x"], [connection.fileno()])
    connection.close()
    ours.send(b"x")
    right += ours.recv(1) == b"y"
print(right, "of", count, "came back to the child")
