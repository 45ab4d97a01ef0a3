"""Many clients at a time: ADDRESS PORT COUNT. None of their connects waits within the call; it says `waits` when all are under way."""

import errno
import os
import selectors
import socket
import sys
import time

at, count = (sys.argv[1], int(sys.argv[2])), int(sys.argv[3])
selector = selectors.DefaultSelector()
began = time.monotonic()
clients = []
for _ in range(count):
    client = socket.socket()
    client.setblocking(False)
    error = client.connect_ex(at)
    if error not in (0, errno.EINPROGRESS):
        sys.exit(f"connect: {os.strerror(error)}")
    selector.register(client, selectors.EVENT_WRITE)
    clients.append(client)
took = time.monotonic() - began
print("waits" if took < 5 else f"connects took {took:.1f} s", flush=True)
answers = 0
while answers < count:
    for key, events in selector.select():
        client = key.fileobj
        if events & selectors.EVENT_WRITE:
            error = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                sys.exit(f"later: {os.strerror(error)}")
            selector.modify(client, selectors.EVENT_READ)
        elif client.recv(100):
            answers += 1
            selector.unregister(client)
            client.close()
print(f"{answers} answers")
