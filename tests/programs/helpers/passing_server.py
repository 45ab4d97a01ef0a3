"""Echo servers that accept in one process and serve in others: passing_server.py KIND PORT."""

import asyncio
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from multiprocessing import reduction

kind, port = sys.argv[1], int(sys.argv[2])
WORKERS = 2


def listen():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


def echo(connection):
    with connection:
        while block := connection.recv(1 << 16):
            connection.sendall(block)
        connection.shutdown(socket.SHUT_WR)


def by_thread(connection):
    threading.Thread(target=echo, args=(connection,), daemon=True).start()


def handle_worker(pipe):
    """Gets descriptors, one message each."""
    while True:
        by_thread(socket.socket(fileno=reduction.recv_handle(pipe)))


def object_worker(pipe):
    """Gets socket objects: the descriptor is fetched from the process that sent the object."""
    while True:
        by_thread(pipe.recv())


def by_multiprocessing(method, worker, pass_on):
    context = multiprocessing.get_context(method)
    pipes = []
    for _ in range(WORKERS):
        ours, theirs = context.Pipe()
        process = context.Process(target=worker, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        pipes.append((ours, process.pid))
    # What ends this process in good order ends the workers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listener = listen()
    turn = 0
    while True:
        connection, _ = listener.accept()
        pass_on(connection, *pipes[turn % WORKERS])
        connection.close()
        turn += 1


def by_program():
    """Workers are programs of their own, which get descriptors over a UNIX socket."""
    channels = []
    for _ in range(WORKERS):
        ours, theirs = socket.socketpair()
        arguments = [sys.executable, __file__, "worker", str(theirs.fileno())]
        subprocess.Popen(arguments, pass_fds=[theirs.fileno()])
        theirs.close()
        channels.append(ours)
    listener = listen()
    turn = 0
    while True:
        connection, _ = listener.accept()
        socket.send_fds(channels[turn % WORKERS], [b"x"], [connection.fileno()])
        connection.close()
        turn += 1


async def asyncio_worker(channel):
    async def serve(connection):
        reader, writer = await asyncio.open_connection(sock=connection)
        while block := await reader.read(1 << 16):
            writer.write(block)
            await writer.drain()
        writer.write_eof()
        writer.close()
        await writer.wait_closed()

    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    served = set()

    def take():
        word, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if not word:
            ended.set_result(None)
            loop.remove_reader(channel)
            return
        task = loop.create_task(serve(socket.socket(fileno=descriptors[0])))
        served.add(task)
        task.add_done_callback(served.discard)

    loop.add_reader(channel, take)
    await ended


if __name__ == "__main__":
    if kind == "worker":
        asyncio.run(asyncio_worker(socket.socket(fileno=port)))
        os._exit(0)
    if kind == "programs":
        by_program()
    method, what = kind.split("-")
    if what == "handles":
        by_multiprocessing(method, handle_worker, lambda one, pipe, pid: reduction.send_handle(pipe, one.fileno(), pid))
    else:
        by_multiprocessing(method, object_worker, lambda one, pipe, _: pipe.send(one))
