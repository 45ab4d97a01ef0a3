"""Echo servers built in the ways Python programs are: echo_server.py KIND PORT FOLDER."""

import asyncio
import os
import selectors
import signal
import socket
import ssl
import sys
import threading

kind, port, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
ADDRESS = (os.environ.get("TEST_ADDRESS", "127.0.0.1"), port)


def listen():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(ADDRESS)
    listener.listen(128)
    return listener


def echo(connection):
    with connection:
        while block := connection.recv(1 << 16):
            connection.sendall(block)
        connection.shutdown(socket.SHUT_WR)


def threads():
    listener = listen()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=echo, args=(connection,), daemon=True).start()


def prefork():
    listener = listen()
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            while True:
                echo(listener.accept()[0])
        children.append(child)

    def end(*_):
        for child in children:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        signal.pause()


def fork():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = listen()
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            echo(connection)
            os._exit(0)
        connection.close()


def passed():
    """Accepts in one process and hands each connection to one of two others with SCM_RIGHTS."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    workers = []
    for _ in range(2):
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            ours.close()
            for other in workers:
                other.close()
            work(theirs)
            os._exit(0)
        theirs.close()
        workers.append(ours)
    listener = listen()
    turn = 0
    while True:
        connection, _ = listener.accept()
        socket.send_fds(workers[turn % 2], [b"x"], [connection.fileno()])
        connection.close()
        turn += 1


def work(channel):
    while True:
        word, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if not word:
            return
        connection = socket.socket(fileno=descriptors[0])
        threading.Thread(target=echo, args=(connection,), daemon=True).start()


def by_selectors():
    listener = listen()
    listener.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    waiting = {}
    ended = set()
    while True:
        for key, events in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setblocking(False)
                waiting[connection] = bytearray()
                selector.register(connection, selectors.EVENT_READ)
                continue
            connection = key.fileobj
            if events & selectors.EVENT_READ:
                block = connection.recv(1 << 16)
                if not block:
                    ended.add(connection)
                waiting[connection] += block
            if waiting[connection] and events & selectors.EVENT_WRITE:
                sent = connection.send(waiting[connection])
                del waiting[connection][:sent]
            if waiting[connection]:
                reads = selectors.EVENT_READ if len(waiting[connection]) < 1 << 20 and connection not in ended else 0
                selector.modify(connection, selectors.EVENT_WRITE | reads)
            elif connection in ended:
                selector.unregister(connection)
                ended.discard(connection)
                del waiting[connection]
                connection.close()
            else:
                selector.modify(connection, selectors.EVENT_READ)


async def by_asyncio(context):
    async def handle(reader, writer):
        while block := await reader.read(1 << 16):
            writer.write(block)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(handle, *ADDRESS, backlog=128, ssl=context)
    await server.serve_forever()


def tls_context():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder + "/certificate.pem", folder + "/key.pem")
    return context


if kind == "asyncio":
    asyncio.run(by_asyncio(None))
elif kind == "asyncio-tls":
    asyncio.run(by_asyncio(tls_context()))
else:
    {"threads": threads, "prefork": prefork, "fork": fork, "passed": passed, "selectors": by_selectors}[kind]()
